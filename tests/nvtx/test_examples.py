"""The training scripts under examples run as they are, and every op of theirs is marked."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_trains_and_is_marked(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [path.name, "--steps", "2"])
    recorder = Recorder()
    start(Options(), recorder.sink())
    runpy.run_path(str(path), run_name="__main__")
    shutdown()

    assert len(capsys.readouterr().out.splitlines()) == 2
    assert recorder.is_balanced
    directions = {marker.direction for marker in recorder.markers("op")}
    assert {"forward", "backward", "optimizer"} <= directions
    ends = [marker.step for marker in recorder.markers("step") if marker.event == "stepped"]
    assert ends[:2] == [0, 1]
    backward = [m for m in recorder.markers("op") if m.direction == "backward"]
    assert all(m.forward or m.accumulate for m in backward)
    assert all((m.source or "").startswith(str(path)) for m in backward)
