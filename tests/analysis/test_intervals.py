"""The algebra of intervals, against brute force: whatever nests, ties, touches and overlaps."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.intervals import (
    Nest,
    depths,
    holds_marked,
    innermost_time,
    last_not_after,
    nearest_marked,
    time_within,
    union_length,
)
from pyprof2.columns import combine_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Int

EPOCH: Final = 1_712_195_495_519_689_047
"""A time since 1970 in ns: a float64 keeps 256 ns of it."""

Span: TypeAlias = tuple[int, int, int]
"""Thread, start, end."""


@pytest.fixture(params=["0", "1"], ids=["compiled", "pure"], autouse=True, scope="module")
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run all tests with `_nest.c`, where it is built, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYPROF2_PURE", request.param)
        yield


@st.composite
def spans(draw: st.DrawFn, clock: int = 0) -> list[Span]:
    """Few times and threads, so that ties, touches, zero lengths and overlaps are the rule."""
    pieces = st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(0, 6))
    return [(t, clock + s, clock + s + d) for t, s, d in draw(st.lists(pieces, max_size=14))]


CLOCKS: Final = st.sampled_from([0, EPOCH, -40])
ANY_SPANS: Final = CLOCKS.flatmap(spans)


def columns(intervals: list[Span]) -> tuple[Int, Int, Int]:
    table = np.array(intervals, np.int64).reshape(-1, 3)
    return table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()


def pairs(table: list[tuple[int, int]], clock: int) -> tuple[Int, Int]:
    """Threads or keys, and times on a clock."""
    both = np.array(table, np.int64).reshape(-1, 2)
    return both[:, 0].copy(), both[:, 1] + clock


def nest(intervals: list[Span]) -> Nest:
    return Nest.of(*columns(intervals))


def outer_first(intervals: list[Span]) -> list[int]:
    """The positions in the order in which one may enclose the next: the definition."""
    return sorted(
        range(len(intervals)), key=lambda i: (intervals[i][0], intervals[i][1], -intervals[i][2], i)
    )


def innermost_by_hand(intervals: list[Span], thread: int, time: int) -> int:
    holding = [i for i in outer_first(intervals) if _holds(intervals[i], thread, time)]
    return holding[-1] if holding else -1


def _holds(span: Span, thread: int, time: int) -> bool:
    return span[0] == thread and span[1] <= time < span[2]


def parents_by_hand(intervals: list[Span]) -> list[int]:
    order = outer_first(intervals)
    parent = [-1] * len(intervals)
    for place, i in enumerate(order):
        thread, start, end = intervals[i]
        around = [j for j in order[:place] if _holds(intervals[j], thread, start)]
        around = [j for j in around if intervals[j][2] >= end]
        parent[i] = around[-1] if around else -1
    return parent


@given(ANY_SPANS)
def test_intervals_overlap_where_one_ends_outside_of_another_that_it_begins_in(
    intervals: list[Span],
) -> None:
    crossing = any(
        a == b and begin < start < end < last
        for a, begin, end in intervals
        for b, start, last in intervals
    )

    thread, start, end = columns(intervals)
    assert Nest.of(thread, start, end).overlaps() == crossing


@given(ANY_SPANS)
def test_the_parent_is_the_nearest_before_that_ends_no_earlier(intervals: list[Span]) -> None:
    assert nest(intervals).parents().tolist() == parents_by_hand(intervals)


@given(ANY_SPANS, st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 20))), CLOCKS)
def test_the_innermost_starts_last_and_then_is_the_shortest(
    intervals: list[Span], queries: list[tuple[int, int]], clock: int
) -> None:
    thread, time = pairs(queries, clock)

    found = nest(intervals).innermost(thread, time)

    wanted = [innermost_by_hand(intervals, t, at) for t, at in zip(thread, time, strict=True)]
    assert found.tolist() == wanted


@pytest.mark.parametrize(
    ("intervals", "parent"),
    [
        pytest.param([(0, 0, 9), (0, 2, 5)], [-1, 0], id="inside"),
        pytest.param([(0, 2, 5), (0, 0, 9)], [1, -1], id="inside, later in the file"),
        pytest.param([(0, 0, 5), (0, 5, 9)], [-1, -1], id="touching"),
        pytest.param([(0, 0, 5), (0, 3, 9)], [-1, -1], id="overlapping"),
        pytest.param([(0, 0, 5), (0, 3, 9), (0, 4, 5)], [-1, -1, 1], id="in both"),
        pytest.param([(0, 0, 5), (0, 3, 4), (0, 5, 5)], [-1, 0, -1], id="nothing long, at the end"),
        pytest.param([(0, 0, 5), (0, 0, 0)], [-1, 0], id="nothing long, at the begin"),
        pytest.param([(0, 5, 5), (0, 5, 5)], [-1, -1], id="nothing long, twice"),
        pytest.param([(0, 0, 5000), (0, 3000, 6000)], [-1, 0], id="cut off to whole µs"),
        pytest.param([(0, 0, 5000), (0, 3000, 7000)], [-1, -1], id="of whole µs, overlapping"),
        pytest.param([(0, 0, 5000), (0, 5000, 6000)], [-1, -1], id="of whole µs, touching"),
        pytest.param([(0, 0, 5001), (0, 3000, 6000)], [-1, -1], id="not of whole µs"),
        pytest.param([(0, 3, 7), (0, 3, 7)], [-1, 0], id="equal"),
        pytest.param([(0, 0, 9), (1, 2, 5)], [-1, -1], id="on another thread"),
        pytest.param([], [], id="none"),
    ],
)
def test_intervals_nest(intervals: list[Span], parent: list[int]) -> None:
    assert nest(intervals).parents().tolist() == parent


def test_of_equal_intervals_the_one_of_smaller_rank_is_around_the_other() -> None:
    thread, start, end = columns([(0, 3, 7), (0, 3, 7)])

    parents = Nest.of(thread, start, end, rank=np.array([5, 2])).parents()

    assert parents.tolist() == [1, -1]


def test_one_ns_is_enough_to_be_outside_on_a_clock_that_a_float_does_not_hold() -> None:
    found = nest([(0, EPOCH, EPOCH + 9)]).innermost(np.array([0, 0]), EPOCH + np.array([8, 9]))

    assert found.tolist() == [0, -1]


@given(ANY_SPANS)
def test_time_inside_is_counted_once_and_given_to_the_innermost(intervals: list[Span]) -> None:
    thread, start, end = columns(intervals)

    own = innermost_time(thread, start, end)

    wanted = [0] * len(intervals)
    for t in {span[0] for span in intervals}:
        bounds = sorted({bound for span in intervals if span[0] == t for bound in span[1:]})
        for left, right in itertools.pairwise(bounds):
            owner = _innermost_over(intervals, t, left, right)
            if owner >= 0:
                wanted[owner] += right - left
    assert own.tolist() == wanted


def _innermost_over(intervals: list[Span], thread: int, left: int, right: int) -> int:
    over = [i for i in outer_first(intervals) if intervals[i][0] == thread]
    over = [i for i in over if intervals[i][1] <= left and right <= intervals[i][2]]
    return over[-1] if over else -1


@given(ANY_SPANS)
def test_the_times_of_the_innermost_add_up_to_the_union(intervals: list[Span]) -> None:
    thread, start, end = columns(intervals)

    total = sum(union_length(start[thread == t], end[thread == t]) for t in np.unique(thread))

    assert innermost_time(thread, start, end).sum() == total


@given(ANY_SPANS, st.randoms())
def test_the_union_is_the_points_covered_whatever_the_order(
    intervals: list[Span], random: object
) -> None:
    covered = {at for _, start, end in intervals for at in range(start, end)}
    random.shuffle(intervals)  # type: ignore[attr-defined]

    assert union_length(*columns(intervals)[1:]) == len(covered)


@pytest.mark.parametrize(
    ("pieces", "length"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([(5, 5)], 0, id="nothing long"),
        pytest.param([(0, 10), (20, 30)], 20, id="apart"),
        pytest.param([(0, 10), (10, 30)], 30, id="touching"),
        pytest.param([(0, 20), (10, 30)], 30, id="overlapping"),
        pytest.param([(0, 30), (5, 10), (20, 40)], 40, id="long, short, later"),
        pytest.param([(EPOCH, EPOCH + 1), (EPOCH + 2, EPOCH + 3)], 2, id="epoch clock"),
    ],
)
def test_overlap_counts_once(pieces: list[tuple[int, int]], length: int) -> None:
    start, end = np.array(pieces, np.int64).reshape(-1, 2).T

    assert union_length(start, end) == length


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9))),
    st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 10))),
    CLOCKS,
)
def test_the_last_row_not_after_a_time_is_found(
    table: list[tuple[int, int]], queries: list[tuple[int, int]], clock: int
) -> None:
    table.sort()
    key, start = pairs(table, clock)
    wanted_key, time = pairs(queries, clock)

    found = last_not_after(key, start, wanted_key, time)

    for at, (k, t) in enumerate(queries):
        before = [i for i, row in enumerate(table) if row[0] == k and row[1] <= t]
        assert found[at] == (before[-1] if before else -1)


@given(st.lists(st.tuples(st.integers(), st.integers(-3, 3), st.sampled_from([0, 1 << 62]))))
def test_combined_keys_are_equal_and_sort_as_the_columns_do(
    table: list[tuple[int, int, int]],
) -> None:
    table = [row for row in table if abs(row[0]) < 1 << 62]
    keys = combine_keys(*np.array(table, np.int64).reshape(-1, 3).T)

    places = {row: place for place, row in enumerate(sorted(set(table)))}
    assert keys.tolist() == [places[row] for row in table]


@st.composite
def forests(draw: st.DrawFn) -> list[int]:
    """Parents by position, each before its children or not: the order is drawn too."""
    size = draw(st.integers(0, 12))
    parents = [draw(st.integers(-1, i - 1)) for i in range(size)]
    order = draw(st.permutations(range(size)))
    shuffled = [-1] * size
    for i, parent in enumerate(parents):
        shuffled[order[i]] = order[parent] if parent >= 0 else -1
    return shuffled


def ancestors(parent: list[int], row: int) -> list[int]:
    return [] if parent[row] < 0 else [parent[row], *ancestors(parent, parent[row])]


@given(forests())
def test_the_depth_is_the_number_of_ancestors(parent: list[int]) -> None:
    found = depths(np.array(parent, np.int64))

    assert found.tolist() == [len(ancestors(parent, row)) for row in range(len(parent))]


@given(forests().flatmap(lambda p: st.tuples(st.just(p), st.lists(
    st.booleans(), min_size=len(p), max_size=len(p)))))  # fmt: skip
def test_the_nearest_marked_is_the_row_itself_or_the_first_ancestor(
    case: tuple[list[int], list[bool]],
) -> None:
    parent, marked = case

    found = nearest_marked(np.array(parent, np.int64), np.array(marked, bool))

    for row in range(len(parent)):
        candidates = [at for at in [row, *ancestors(parent, row)] if marked[at]]
        assert found[row] == (candidates[0] if candidates else -1)


@given(forests().flatmap(lambda p: st.tuples(st.just(p), st.lists(
    st.booleans(), min_size=len(p), max_size=len(p)))))  # fmt: skip
def test_a_row_holds_a_marked_one_where_it_is_an_ancestor_of_one(
    case: tuple[list[int], list[bool]],
) -> None:
    parent, marked = case

    found = holds_marked(np.array(parent, np.int64), np.array(marked, bool))

    above = {at for row in range(len(parent)) if marked[row] for at in ancestors(parent, row)}
    assert found.tolist() == [row in above for row in range(len(parent))]


@given(ANY_SPANS, st.lists(st.tuples(st.integers(-2, 20), st.integers(0, 8)), max_size=6))
def test_time_within_counts_what_is_covered(
    intervals: list[Span], queries: list[tuple[int, int]]
) -> None:
    _, start, end = columns(intervals)
    clock = int(start[0]) if len(start) else 0
    begin = np.array([clock + at for at, _ in queries], np.int64)
    finish = begin + np.array([length for _, length in queries], np.int64)

    covered = {
        time for s, e in zip(start.tolist(), end.tolist(), strict=True) for time in range(s, e)
    }
    expected = [
        len(covered & set(range(a, b)))
        for a, b in zip(begin.tolist(), finish.tolist(), strict=True)
    ]
    assert time_within(start, end, begin, finish).tolist() == expected
