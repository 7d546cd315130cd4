"""Trainings are marked as with another version of torch: layers, lines, pairs, directions, shapes.

`make test-torch` names the Python of an environment with the other one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
OTHER: Final = os.environ.get("PYPROF2_OTHER_PYTHON")

RENAMED: Final = {"aten::gt", "aten::ge"}
"""Backward of `clamp_` calls the first since torch 2.14, in place of the second."""


def marked(python: str, way: str) -> dict[str, list[list[Any]]]:
    """Return the ops of each training; see `marked_trainings`."""
    done = subprocess.run(
        [python, "-m", "tests.nvtx.marked_trainings", way],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return dict(found["trainings"])


@pytest.mark.skipif(not OTHER, reason="make test-torch names another torch")
@pytest.mark.parametrize("way", ["observer", "mode"])
def test_trainings_are_marked_as_with_the_other_torch(way: str) -> None:
    assert OTHER is not None
    ours, theirs = marked(sys.executable, way), marked(OTHER, way)

    assert list(ours) == list(theirs)
    assert len(ours) >= 22
    for name, ops in ours.items():
        assert len(ops) == len(theirs[name]) >= 50, name
        for own, other in zip(ops, theirs[name], strict=True):
            if own != other:
                names = [json.loads(text)["op"] for text, _ in (own, other)]
                assert set(names) == RENAMED, (name, own, other)
                assert own[0].replace(names[0], names[1], 1) == other[0], name
                assert own[1] == other[1], name
    assert sum(map(len, ours.values())) > 8_000
