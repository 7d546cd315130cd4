"""The compiled part of the intervals: it is used, and leaves no column for another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from pyprof2.analysis import intervals
from pyprof2.analysis.intervals import Nest, nearest_marked

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int

_nest = pytest.importorskip("pyprof2.analysis._nest")

COUNT: Final = 60


def ints(*values: int) -> Int:
    return np.array(values, np.int64)


@pytest.mark.parametrize("unit", [1, 1000])
@pytest.mark.parametrize("seed", range(16))
def test_it_finds_what_numpy_finds_of_hundreds_of_intervals(
    seed: int, unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    thread, start, length = (rng.integers(0, most, COUNT) for most in (3, 1 << (seed % 12), 40))
    start, length = start * unit, length * unit
    asked = rng.integers(-1, 4, COUNT), unit * rng.integers(-5, 1 << (seed % 12), COUNT)
    marked = rng.random(COUNT) < 0.1

    def found() -> list[list[int]]:
        nest = Nest.of(thread, start, start + length)
        parent = nest.parents()
        held = nest.innermost(*asked), *nest.holders(*asked)
        columns = nest.outer, parent, *held, nearest_marked(parent, marked)
        return [[nest.overlaps()], *(column.tolist() for column in columns)]

    monkeypatch.setenv("PYPROF2_PURE", "0")
    compiled = found()
    monkeypatch.setenv("PYPROF2_PURE", "1")
    assert compiled == found()


def test_it_is_asked_unless_nothing_compiled_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        @staticmethod
        def nearest_marked(_parent: Int, found: Int) -> None:
            found[:] = 7

    monkeypatch.setattr(intervals, "_nest", Broken)
    monkeypatch.setenv("PYPROF2_PURE", "0")
    assert nearest_marked(ints(-1), np.array([False])).tolist() == [7]
    monkeypatch.setenv("PYPROF2_PURE", "1")
    assert nearest_marked(ints(-1), np.array([False])).tolist() == [-1]


def shorts(*values: int) -> NDArray[np.int32]:
    return np.array(values, np.int32)


ZEROS: Final = ints(0, 0, 0)
ONE: Final = (ints(0), ints(0))
NONE: Final = shorts()
REFUSED: Final = {
    "another length": ("nearest_later_end", (ZEROS, ZEROS, ints(0, 0))),
    "queries of another length": ("last_not_after", (ZEROS, ZEROS, ZEROS, ints(0), ZEROS.copy())),
    "too few columns": ("holder", (ZEROS, ZEROS.copy())),
    "no whole numbers": ("nearest_marked", (ZEROS, np.zeros(3, np.int8))),
    "around itself": ("enclosing", (ZEROS, ZEROS, ints(1, 2, 3), ints(0, 1, 2), ZEROS.copy())),
    "held by itself": ("holder", (ZEROS, ints(0, 1, 2), ints(9, 9, 9), ints(2, 2, 2))),
    "held by none there is": ("holder", (ZEROS, ints(-1, 0, 1), ints(9, 9, 9), ints(3, 3, 3))),
    "inside of itself": ("first_overlap", (ZEROS, ZEROS, ints(1, 2, 3), ints(0, 1, 2), ints(0))),
    "no room": ("first_overlap", (ZEROS, ZEROS, ZEROS, ZEROS, ZEROS.copy())),
    "round in circles": ("nearest_marked", (ints(1, 2, 0), ints(-2, -2, -2))),
    "a parent that there is not": ("nearest_marked", (ints(-1, 3, 0), ints(-2, -2, -2))),
    "an event that there is not": (
        "replay",
        (NONE, shorts(1), shorts(0, 1), shorts(0), *ONE, ints(0)),
    ),
    "edges that there are not": (
        "replay",
        (NONE, shorts(0), shorts(0, 2), shorts(0), *ONE, ints(0)),
    ),
    "edges before the first": (
        "replay",
        (NONE, shorts(0), shorts(-1, 1), shorts(0), *ONE, ints(0)),
    ),
    "after an event that there is not": (
        "replay",
        (NONE, shorts(0), shorts(0, 1), shorts(1), *ONE, ints(0)),
    ),
    "no room for times": ("replay", (NONE, shorts(0), shorts(0, 1), shorts(0), *ONE, ints())),
    "no room for bindings": (
        "replay",
        (shorts(0, 0), shorts(0), shorts(0, 1), shorts(0), *ONE, ints(0)),
    ),
    "positions of 64 bits": ("replay", (NONE, ints(0), shorts(0, 1), shorts(0), *ONE, ints(0))),
    "lags of edges that there are not": ("recorded_lags", (shorts(0, 2), shorts(0), *ONE, ints(0))),
    "lags after an event that there is not": (
        "recorded_lags",
        (shorts(0, 1), shorts(1), *ONE, ints(0)),
    ),
    "no room for lags": ("recorded_lags", (shorts(0, 1), shorts(0), *ONE, ints())),
    "back from an event that there is not": ("way_back", (shorts(-1), shorts(0), shorts(1, 0))),
    "back by an edge that there is not": ("way_back", (shorts(1), shorts(0), shorts(0, 0))),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_do_not_fit_are_refused(case: str) -> None:
    function, columns = REFUSED[case]
    with pytest.raises(ValueError, match=r"column|interval|parents"):
        getattr(_nest, function)(*columns)


def test_a_result_that_cannot_be_written_is_refused() -> None:
    fixed = ints(-2)
    fixed.flags.writeable = False
    with pytest.raises((BufferError, ValueError)):
        _nest.nearest_marked(ints(-1), fixed)
