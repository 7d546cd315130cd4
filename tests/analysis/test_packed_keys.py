"""Keys and times in one number: the same rows are found, whether the numbers fit or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis import intervals
from pyprof2.analysis.intervals import Nest, last_not_after
from pyprof2.columns import order_of

if TYPE_CHECKING:
    from collections.abc import Iterator

NONE: Final = -(1 << 62)
FAR: Final = (NONE, 1 << 62)
"""What columns hold for no time and no key, and its opposite."""
CLOCKS: Final = st.sampled_from([0, -5, 10**18, -(4 * 10**18), 4 * 10**18])
LENGTHS: Final = st.sampled_from([3, 10**6, 1 << 40, 1 << 61])
KEYS: Final = st.sampled_from([2, 1 << 20, 1 << 33])


@pytest.fixture(params=["0", "1"], ids=["compiled", "pure"], autouse=True, scope="module")
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run all tests with `_nest.c`, where it is built, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYPROF2_PURE", request.param)
        yield


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return sorted rows of key and time, and queries: at, around, and far from them."""
    clock, length, keys = draw(CLOCKS), draw(LENGTHS), draw(KEYS)
    row = st.tuples(st.integers(0, keys), st.integers(clock, clock + length))
    rows = sorted(draw(st.lists(row, max_size=10)))
    near = [time + by for _, time in rows for by in (-1, 0, 1)]
    queries = st.tuples(
        st.sampled_from([-1, 0, 1, *FAR, *(key for key, _ in rows)]),
        st.sampled_from([*FAR, clock, *near]),
    )
    return rows, draw(st.lists(queries, max_size=10))


@given(tables())
def test_the_last_row_not_after_is_that_of_a_look_at_each(
    found: tuple[list[tuple[int, int]], list[tuple[int, int]]],
) -> None:
    rows, queries = found
    columns = (np.array(table, np.int64).reshape(-1, 2).T.copy() for table in (rows, queries))
    (key, time), (wanted, at) = columns

    expected = [
        max((i for i, (k, t) in enumerate(rows) if k == q and t <= until), default=-1)
        for q, until in queries
    ]
    assert last_not_after(key, time, wanted, at).tolist() == expected


@pytest.mark.parametrize("wide", [0, 1 << 40], ids=["packed", "too wide"])
def test_intervals_are_sorted_alike_by_packed_and_by_wide_keys(wide: int) -> None:
    thread = np.array([1, 0, 1, 1, 0]) * max(1, wide)
    start = np.array([5, 7, 5, 1, 0]) * max(1, wide >> 16)
    end = start + np.array([1, 2, 9, 3, 50])

    assert (intervals._Packing.of(thread, start) is None) == (wide > 0)
    assert Nest.of(thread, start, end).order.tolist() == [4, 1, 3, 2, 0]


@given(st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=20), st.integers(1, 3))
def test_rows_are_put_in_order_of_one_column_after_another(
    rows: list[tuple[int, int, int]], width: int
) -> None:
    columns = [np.array([row[at] for row in rows], np.int64) for at in range(width)]

    order = order_of(*columns)

    assert order.tolist() == sorted(range(len(rows)), key=lambda row: rows[row][:width])
