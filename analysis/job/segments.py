"""The segments of a rank between its collectives: all that a job's replay needs, in a few rows.

A segment is the longest path from the end of one collective of a rank, or from its beginning, to
the start of a later one, or to the end of a step, past no collective between. A path that is never
longer than one through a collective between, whatever that collective takes, is left out. So a rank
of a hundred thousand launches and kernels becomes as many rows as it has collectives, twice or so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.rank_graph import INFERRED, NO_STEP, RankGraph
from pyprof2.analysis.job.replay import Graph, kept_edges, recorded_lags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int

    _Edges = tuple[Sequence[int], Sequence[int], Sequence[bool] | None]

BEGIN: Final = -1
"""Stands for the beginning of a rank, where others are rows of its members."""
MODELS: Final = ("ns", "unwaited_ns", "unlagged_ns")
"""The lengths of a segment: as recorded, without waits that are inferred, and without any lag."""


KEYS: Final = ("rank", "source_id", "target_id", "step")
"""The columns that identify a segment of a job."""


class Timing(NamedTuple):
    """Durations and lags of a rank's events and edges, other than recorded; edges by target."""

    duration: Int
    lag: Int


def segments_of(rank: RankGraph, timing: Timing | None = None) -> pd.DataFrame:
    """Return the segments of a rank.

    Args:
        rank: its graph.
        timing: instead of the recorded one.

    Returns:
        `source`, a row of the members or `BEGIN`; `target`, a row of the members, or -1 for the end
        of `step`; `step` (`NO_STEP`: of what is in no step); `MODELS`, null where there is none.
    """
    source, first, kind = rank.edges
    recorded = recorded_lags(rank.start, rank.end, source, first)
    durations, lag = (rank.end - rank.start, recorded) if timing is None else timing
    base = np.zeros(len(durations), np.int64)
    graph = Graph.by_target(durations, base, (source, first, lag), rank.start)
    inferred = np.isin(kind, INFERRED)
    whole = _Walk(rank, graph).paths(lag, None)
    found = {
        "ns": whole,
        "unwaited_ns": _Walk(rank, graph).paths(lag, kept_edges(graph, inferred).tolist())
        if inferred.any()
        else whole,
        "unlagged_ns": _Walk(rank, graph).paths(np.minimum(lag, 0), None),
    }
    keys = sorted(set().union(*found.values()))
    frame = pd.DataFrame(keys, columns=["source", "target", "step"], dtype="int64")
    lengths = {name: pd.array([p.get(key) for key in keys], "Int64") for name, p in found.items()}
    return frame.assign(**lengths)


_NEVER: Final = -(1 << 62)
_PATHS: Final = 4
"""To an event the paths that arrive last as recorded are kept, so many, and the beginning's."""
_REMEMBERED: Final = 64
"""So many collectives back a path may begin and still be compared with those through others."""


class _Walk:
    """One pass over a rank's events, each with the longest path from every collective before."""

    def __init__(self, rank: RankGraph, graph: Graph) -> None:
        step = rank.step
        self.member, self.step, self.graph = rank.member.tolist(), step.tolist(), graph
        # Only events that nothing of their step follows can be its last.
        same = (step[graph.source] == step[graph.target]) & (graph.lag >= 0)
        followed = np.zeros(len(rank.start), bool)
        followed[graph.source[same]] = True
        self.is_last = (~followed).tolist()
        self.ended = {BEGIN: int(rank.end[0])} | {
            self.member[at]: int(rank.end[at]) for at in np.flatnonzero(rank.member >= 0).tolist()
        }
        self.reach: dict[int, dict[int, int]] = {BEGIN: {}}

    def paths(self, lag: Int, kept: Sequence[bool] | None) -> dict[tuple[int, int, int], int]:
        """Return the length of each segment, by source, target and step."""
        graph, first = self.graph, self.graph.first.tolist()
        edges = (graph.source.tolist(), lag.tolist(), kept)
        durations = graph.duration.tolist()
        ends: list[dict[int, int]] = [{}] * len(durations)
        found: dict[tuple[int, int, int], int] = {}
        for event in graph.order.tolist():
            best = _longest(ends, edges, first[event], first[event + 1])
            if len(best) > 1:
                self._drop(best)
            own, took = self.member[event], durations[event]
            if own >= 0:
                self.reach[own] = self._reached(best)
                found.update({(at, own, NO_STEP): length for at, length in best.items()})
                best = {own: 0}
            elif not best:
                best = {BEGIN: 0}
            elif took:
                best = {origin: length + took for origin, length in best.items()}
            ends[event] = best
            if self.is_last[event]:
                for origin, length in best.items():
                    key = (origin, -1, self.step[event])
                    found[key] = max(length, found.get(key, _NEVER))
        return found

    def _reached(self, best: dict[int, int]) -> dict[int, int]:
        """Return the longest path from each collective before, through others as well."""
        found = dict(best)
        for later, rest in best.items():
            for origin, length in self.reach[later].items():
                if length + rest > found.get(origin, _NEVER):
                    found[origin] = length + rest
        if len(found) > _REMEMBERED:
            found = {origin: found[origin] for origin in sorted(found)[-_REMEMBERED:]}
        return found

    def _drop(self, best: dict[int, int]) -> None:
        """Leave out paths that one through a later collective is never shorter than."""
        for origin in list(best):
            length = best[origin]
            for later, rest in best.items():
                through = self.reach[later].get(origin)
                if through is not None and length <= through + rest:
                    del best[origin]
                    break
        if len(best) > 2 * _PATHS:
            latest = sorted(best, key=lambda origin: self.ended[origin] + best[origin])
            for origin in latest[:-_PATHS]:
                if origin != BEGIN:
                    del best[origin]


def _longest(
    ends: Sequence[dict[int, int]], edges: _Edges, first: int, last: int
) -> dict[int, int]:
    """Return the longest path to an event's start from each collective, along its edges."""
    sources, lags, kept = edges
    best: dict[int, int] = {}
    for at in range(first, last):
        if kept is not None and not kept[at]:
            continue
        between = lags[at]
        for origin, length in ends[sources[at]].items():
            if length + between > best.get(origin, _NEVER):
                best[origin] = length + between
    return best
