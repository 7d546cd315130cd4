"""Where a call is made: what is remembered of one call never stands for another one."""

from __future__ import annotations

import random
import runpy
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

from pyprof2.nvtx.annotation import current_session, start
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType

LIBRARY = """
import sys
from torch import nn

def one(call): return call()
def two(call): return call()
def twice(call):
    call()
    return call()
def lazily(call):
    def items():
        yield call()
        yield call()
    for _ in items(): pass

class Calls(nn.Module):
    def forward(self, call): return call()

layers = Calls(), nn.Sequential(Calls()), nn.Sequential(nn.Sequential(Calls()))
ways = one, two, twice, lazily, *layers

def descend(depth, numbers, look):
    if not depth:
        look(sys._getframe())
        return look(sys._getframe())
    numbers.choice(ways)(lambda: descend(depth - 1, numbers, look))
"""
OWN = """
def first(call):
    call()
    call()
def second(call): return call()
"""


def _run(path: Path, text: str) -> dict[str, Any]:
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    return runpy.run_path(str(path), run_name=path.stem)


def test_place_is_what_the_whole_stack_says(tmp_path: Path) -> None:
    library = _run(tmp_path / "theirs" / "library.py", LIBRARY)
    own = _run(tmp_path / "mine" / "train.py", OWN)
    start(Options(source_root=str(tmp_path / "mine")), Recorder().sink())
    session, numbers = current_session(), random.Random(0)  # noqa: S311 -- the same in every run
    assert session is not None
    seen: dict[str, int] = {}

    def look(frame: FrameType) -> None:
        place = session.sources.place(frame, session.state().open)
        expected = []
        for outer, line in traceback.walk_stack(frame):
            path = outer.f_code.co_filename
            if path.startswith(str(tmp_path)):
                expected.append(f"{path}:{line}")
            if path == str(tmp_path / "mine" / "train.py"):
                break
        assert place is not None
        assert list(place.lines) == expected
        assert seen.setdefault(place.source, id(place)) == id(place)

    for _ in range(400):
        way = own[numbers.choice(("first", "second"))]
        way(partial(library["descend"], numbers.randrange(5), numbers, look))
    assert len(seen) > 300
