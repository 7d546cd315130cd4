"""Slices of a lane never cross, whatever a recording says, and few lanes are enough."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.reports.perfetto.slices import Lanes

Span: TypeAlias = tuple[int, int]

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])),
    max_size=25,
)


def lanes(spans: list[Span], *, nested: bool, cuts: tuple[int, ...] = ()) -> list[int]:
    """Return the lane of each of the sorted spans, given in parts that begin at these times."""
    made = Lanes(nested=nested)
    found: list[int] = []
    bounds = [-1, *sorted(cuts), 1 << 60]
    for first, last in pairwise(bounds):
        part = [span for span in spans if first <= span[0] < last]
        start, end = (np.array([s[at] for s in part], np.int64) for at in (0, 1))
        found += made.assign(np.zeros(len(part), np.int64), start, end).tolist()
    return found


def in_order(spans: list[Span]) -> list[Span]:
    return sorted(spans, key=lambda span: (span[0], -span[1]))


def cross(first: Span, second: Span) -> bool:
    """Whether the later one of two begins inside the other and ends outside of it."""
    (a, b), (c, d) = sorted([first, second])
    return a < c < b < d


def overlap(first: Span, second: Span) -> bool:
    """Whether both last at some time."""
    return max(first[0], second[0]) < min(first[1], second[1])


@given(SPANS, st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_what_is_in_lane_0_is_nested_and_elsewhere_apart(
    spans: list[Span], cuts: tuple[int, int]
) -> None:
    spans = in_order(spans)
    found = lanes(spans, nested=True, cuts=cuts)

    for i, (span, lane) in enumerate(zip(spans, found, strict=True)):
        for other, its_lane in zip(spans[:i], found, strict=False):
            if lane == its_lane:
                assert not (cross if lane == 0 else overlap)(span, other)


@given(SPANS, st.tuples(st.integers(0, 30), st.integers(0, 30)))
def test_what_is_in_a_lane_is_apart_and_no_lane_is_more_than_needed(
    spans: list[Span], cuts: tuple[int, int]
) -> None:
    spans = in_order([span for span in spans if span[0] < span[1]])
    found = lanes(spans, nested=False, cuts=cuts)

    for i, (span, lane) in enumerate(zip(spans, found, strict=True)):
        assert not any(
            overlap(span, other)
            for other, its_lane in zip(spans[:i], found, strict=False)
            if lane == its_lane
        )
    most = max((sum(a <= t < b for a, b in spans) for t in range(45)), default=0)
    assert max(found, default=-1) + 1 <= most


@given(SPANS)
def test_nothing_leaves_lane_0_where_nothing_crosses(spans: list[Span]) -> None:
    kept: list[Span] = []
    for span in in_order(spans):
        if not any(cross(span, other) for other in kept):
            kept.append(span)

    assert set(lanes(kept, nested=True)) <= {0}


@pytest.mark.parametrize(
    ("spans", "nested", "wanted"),
    [
        pytest.param([(0, 9), (1, 5), (2, 3), (5, 9)], True, [0, 0, 0, 0], id="nested"),
        pytest.param([(0, 9), (5, 12)], True, [0, 1], id="the later one of two gives way"),
        pytest.param([(0, 9), (2, 4), (5, 12), (6, 7)], True, [0, 0, 1, 0], id="only that one"),
        pytest.param([(0, 9), (5, 12), (6, 14)], True, [0, 1, 2], id="a third lane"),
        pytest.param([(0, 5), (5, 9), (9, 9)], False, [0, 0, 0], id="one after another"),
        pytest.param([(0, 6), (5, 9), (8, 12), (11, 15)], False, [0, 1, 0, 1], id="begin early"),
        pytest.param([(0, 6), (5, 9), (9, 12)], False, [0, 1, 0], id="then alone again"),
    ],
)
def test_lanes_by_hand(spans: list[Span], nested: bool, wanted: list[int]) -> None:  # noqa: FBT001
    assert lanes(spans, nested=nested) == wanted


def test_groups_have_lanes_of_their_own() -> None:
    start, end = np.array([0, 1, 2]), np.array([9, 12, 12])

    assert Lanes(nested=True).assign(np.array([0, 1, 0]), start, end).tolist() == [0, 0, 1]
