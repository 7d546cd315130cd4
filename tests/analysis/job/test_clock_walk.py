"""Clocks of ranks that are compared through others, as in a mesh of tensor and data parallel."""

from __future__ import annotations

import numpy as np

from pyprof2.analysis.job.clocks import NO_MODEL, Clock, _walk


def _edge(rank: int, *, error: float = 1.0, comparable: bool = True) -> Clock:
    reason = "" if comparable else NO_MODEL
    return Clock(rank, 0, lo=-1.0, hi=1.0, error=error, comparable=comparable, reason=reason)


def test_a_rank_that_no_clock_is_compared_with_is_reached_by_two_ways() -> None:
    """Both ways cost the same, and there is no order between clocks."""
    edges = {
        0: [_edge(1), _edge(2)],
        1: [_edge(3, comparable=False)],
        2: [_edge(3, comparable=False)],
    }

    found = _walk(0, edges)

    assert set(found) == {0, 1, 2, 3}
    assert [found[rank].comparable for rank in range(4)] == [True, True, True, False]


def test_of_two_ways_with_equal_errors_either_gives_the_offset() -> None:
    edges = {0: [_edge(1), _edge(2)], 1: [_edge(3)], 2: [_edge(3)]}

    found = _walk(0, edges)

    assert found[3].comparable
    assert np.isfinite(found[3].error)
