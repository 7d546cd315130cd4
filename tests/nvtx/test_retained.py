"""What forward leaves for backward, and what a checkpoint frees: predicted, then done."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyprof2.cli import main
from tests.nvtx.test_memory_tags import gpt, recorded, train

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.analysis.memory.retained import Retained

pytestmark = pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")

RNG_STATE = 5_056
"""What a checkpoint keeps of the CPU's random numbers."""


def trained(folder: Path, blocks: int, checkpointed: tuple[int, ...] = ()) -> MemoryProfile:
    folder.mkdir(exist_ok=True)
    return recorded(folder, lambda: train(lambda: gpt(blocks, checkpointed), 3))


def kept(found: MemoryProfile) -> tuple[Retained, pd.DataFrame]:
    result = found.retained(0)
    assert result is not None
    return result


def test_what_is_retained_is_split_by_who_holds_it(tmp_path: Path) -> None:
    plain, _ = kept(trained(tmp_path / "plain", 1))
    again, _ = kept(trained(tmp_path / "again", 1, (0,)))

    assert (plain.saved, plain.otherwise, plain.output) == (646_148, 0, 4)
    assert (again.saved, again.otherwise, again.output) == (150_532, RNG_STATE, 4)
    assert plain.saved + plain.output == 646_152  # type: ignore[operator]
    assert again.saved + again.otherwise + again.output == 155_592  # type: ignore[operator]
    assert int(plain.rows["bytes"].sum()) == plain.saved


def test_a_checkpoint_frees_what_was_predicted(tmp_path: Path) -> None:
    before, advice = kept(trained(tmp_path / "before", 3))
    after, _ = kept(trained(tmp_path / "after", 3, (0, 1, 2)))

    first = advice.to_dict("records")[0]
    assert (first["layer"], first["layers"]) == ("blocks.*", 3)
    assert first["frees_bytes"] == before.saved - after.saved == 3 * 495_616
    assert first["again_bytes"] == 495_616
    assert first["recompute_ns"] > 0


def test_the_command_says_what_to_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, 3)
    path = str(tmp_path / "trace.json")

    main(["memory", path])
    text = capsys.readouterr().out
    main(["memory", path, "--format", "json", "--at", "backward"])
    (device,) = json.loads(capsys.readouterr().out)

    assert "= 1.70 MB saved by autograd + 0 B held otherwise" in text
    assert "checkpoint blocks.* (3 of them): predicted to free 1.49 MB" in text
    assert device["retained"]["saved_bytes"] == device["tagged"]["activation"]
    assert sum(row["bytes"] for row in device["retained"]["rows"]) == device["tagged"]["activation"]
    assert device["retained"]["checkpoint"][0]["frees_bytes"] == 3 * 495_616
    assert device["notes"] == []
