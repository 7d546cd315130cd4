"""Boxes on a time line: what is merged, what is not, and what stays of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.time.slices import FINEST, merge_short

Row = tuple[int, int, int]


def found(spans: list[Row], begin: int, end: int, most: int = 1000) -> list[tuple[int, ...]]:
    """Return (track, start, end, longest, merged, busy) of each box of (track, start, end)."""
    track, start, stop = np.array(spans, np.int64).reshape(-1, 3).T
    made = merge_short(track, start, stop, (begin, end), most)
    return [tuple(row) for row in np.array(made).T.tolist()]


def test_what_is_as_long_as_a_piece_is_a_box_of_its_own() -> None:
    # A window of pieces of 10 ns each.
    spans = [(0, 0, 10), (0, 10, 20), (0, 20, 500)]

    assert found(spans, 0, 10 * FINEST) == [
        (0, 0, 10, 0, 1, 10), (0, 10, 20, 1, 1, 10), (0, 20, 500, 2, 1, 480),
    ]  # fmt: skip


def test_short_ones_that_begin_in_one_piece_are_one_box_with_the_longest_of_them() -> None:
    spans = [(0, 0, 2), (0, 3, 7), (0, 8, 9), (0, 11, 12)]

    assert found(spans, 0, 10 * FINEST) == [(0, 0, 9, 1, 3, 7), (0, 11, 12, 3, 1, 1)]


def test_tracks_are_not_merged_and_a_long_one_between_parts_short_ones() -> None:
    spans = [(0, 0, 1), (1, 1, 2), (0, 2, 50), (0, 9, 10)]

    assert found(spans, 0, 10 * FINEST) == [
        (0, 0, 1, 0, 1, 1), (0, 2, 50, 2, 1, 48), (0, 9, 10, 3, 1, 1), (1, 1, 2, 1, 1, 1),
    ]  # fmt: skip


def test_what_reaches_over_the_window_is_cut_and_what_is_outside_is_none() -> None:
    spans = [(0, -30, 5), (0, 5, 9), (0, 90, 200), (0, 200, 300)]

    assert [row[1:3] for row in found(spans, 0, 100)] == [(0, 5), (5, 9), (90, 100)]


@pytest.mark.parametrize("most", [1, 2, 7, 40])
def test_there_are_not_more_boxes_than_allowed(most: int) -> None:
    spans = [(0, 100 * n, 100 * n + 60) for n in range(500)]

    assert len(found(spans, 0, 50_000, most)) <= most


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9000), st.integers(1, 900)))


@given(SPANS, st.integers(3, 60))
def test_every_activity_is_in_one_box_of_its_track(
    rows: list[tuple[int, int, int]], most: int
) -> None:
    spans = [(track, start, start + length) for track, start, length in rows]

    made = found(spans, 0, 10_000, most)

    for track in range(3):
        own = [row for row in made if row[0] == track]
        inside = [(s, min(e, 10_000)) for t, s, e in spans if t == track]
        assert sum(row[4] for row in own) == len(inside)
        assert sum(row[5] for row in own) == sum(end - start for start, end in inside)
        assert all(any(b <= s and e <= f for _, b, f, *_ in own) for s, e in inside)
        assert all(spans[row[3]][0] == track for row in own)
