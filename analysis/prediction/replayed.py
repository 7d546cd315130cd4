"""A step of one rank with other durations: the replay of its launches.

The step begins when the work before it ended, as recorded. It lasts at least as long as its host
was at work itself, for a host may have run ahead of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.job.rank_graph import (
    COPY,
    KERNEL,
    LAUNCH,
    LAUNCHED,
    NO_STEP,
    ROOT,
)
from pyprof2.analysis.job.replay import Graph, replay
from pyprof2.columns import first_rows

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.job.job_graph import JobGraph
    from pyprof2.analysis.job.replay import Times

_CALL_NS: Final = 20_000
"""A call that waited for the device takes so long at most without the wait."""
_BEHIND_NS: Final = 100_000
"""A call that launches waited for room in the queue where its kernel began so much later."""
_NEVER: Final = 1 << 62


@dataclass(frozen=True)
class StepGraph:
    """The events of a step, after one that stands for all that was before it.

    Attributes:
        graph: they and the edges between them; event 0 is that one, and ends at 0.
        row: of each event the row of the step's activities, -1 for launches.
        begin: when the step begins, as recorded.
        gaps: the edges that carry the gaps of the host.
        waiting: of launches what they waited for the device, ns; 0 for others.
        host_ns: how long the host was at work itself, of what the step lasted.
        recorded_ns: how long the step lasted, until its last work ended.
    """

    graph: Graph
    row: Int
    begin: int
    gaps: Int
    waiting: Int
    host_ns: int
    recorded_ns: int

    @classmethod
    def of(cls, job: JobGraph, step: int | None) -> StepGraph:
        """Return a step of a graph of one rank; None: all that was recorded."""
        own, earlier = job.kind != ROOT, np.zeros(len(job.kind), bool)
        if step is not None:
            found = (job.steps == step, (job.steps > NO_STEP) & (job.steps < step))
            # Events without a row have the last one.
            own, earlier = (np.append(rows, False)[job.labels.row] for rows in found)
        at = np.flatnonzero(own)
        graph, carried, host = _only(job, at, own)
        gaps = np.flatnonzero(carried & (graph.lag > 0))
        ended = job.start[earlier] + job.graph.duration[earlier]
        begin = int(ended.max() if len(ended) else job.start[at].min(initial=_NEVER))
        waiting, kinds = _waiting(job, at, own), job.kind[at]
        host += int(graph.duration[1:][kinds == LAUNCH].sum() - waiting.sum())
        works = np.isin(kinds, (KERNEL, COPY))
        row = np.where(works, np.cumsum(works) - 1, -1)
        took = int(replay(graph).last_end) - begin
        return cls(graph, np.r_[-1, row], begin, gaps, np.r_[0, waiting], min(host, took), took)

    def ends(
        self,
        time: Floats,
        of_device: float,
        gap_factor: float = 1.0,
        held: tuple[Int, float] | None = None,
    ) -> Times:
        """Return when each event of the step ends.

        Args:
            time: ns of each activity of the step, by row.
            of_device: how the waits for the device change, as a factor.
            gap_factor: how the host's own time does.
            held: rows of activities that begin at a time at the earliest, and that time.
        """
        own = self.row >= 0
        duration = self.graph.duration - np.rint(self.waiting * (1 - of_device)).astype(np.int64)
        duration[own] = np.rint(time[self.row[own]]).astype(np.int64)
        lag = self.graph.lag.copy()
        lag[self.gaps] = np.rint(lag[self.gaps] * gap_factor).astype(np.int64)
        graph = self.graph
        if held is not None:
            targets = np.flatnonzero(np.isin(self.row, held[0]))
            source = np.r_[graph.source, np.zeros(len(targets), np.int32)]
            lag = np.r_[lag, np.full(len(targets), round(held[1]))]
            edges = (source, np.r_[graph.target, targets], lag)
            graph = Graph.of(graph.duration, graph.base, edges, np.argsort(graph.order))
            lag = graph.lag
        return replay(graph, duration, lag).end

    def lasts(self, ends: Times, gap_factor: float = 1.0) -> float:
        """Return the ns that the step lasts, by when its events end."""
        return max(float(int(ends.max()) - self.begin), self.host_ns * gap_factor)


def _only(job: JobGraph, at: Int, own: Bool) -> tuple[Graph, Bool, int]:
    """Return the graph of some events, its edges that launches rest on, and the gaps before these.

    What they waited for outside of it has ended as recorded.
    """
    graph, start, count = job.graph, job.start[at], np.diff(job.graph.first)[at]
    edge = np.arange(count.sum()) + np.repeat(graph.first[at] - np.cumsum(count) + count, count)
    target, source, lag = np.repeat(np.arange(len(at)), count), graph.source[edge], graph.lag[edge]
    ended = job.start[source] + graph.duration[source] + lag
    binding = first_rows(np.where(ended == start[target], target, -1), len(at))
    carries = np.zeros(len(edge) + 1, bool)
    carries[binding[job.kind[at] == LAUNCH]] = True
    carries, inside = carries[:-1], own[source]
    allowed = np.full(len(at), -_NEVER)
    np.maximum.at(allowed, target[~inside], ended[~inside])
    known = np.flatnonzero(allowed > -_NEVER)
    edges = (
        np.r_[1 + np.searchsorted(at, source[inside]), 0 * known],
        np.r_[1 + target[inside], 1 + known],
        np.r_[lag[inside], allowed[known]],
    )
    order = np.argsort(edges[1], kind="stable")
    duration = np.r_[0, graph.duration[at]]
    found = Graph.of(duration, np.zeros_like(duration), edges, np.r_[-_NEVER, start])
    is_gap = np.r_[carries[inside], np.zeros(len(known), bool)][order]
    return found, is_gap, int(np.maximum(lag[carries], 0).sum())


def _waiting(job: JobGraph, at: Int, own: Bool) -> Int:
    """Return of launches what they waited for the device, beyond a short time; 0 for others.

    Copies did that return after the device had begun them, and launches that are far ahead of it.
    """
    graph = job.graph
    edges = np.flatnonzero(job.edge_kind == LAUNCHED)
    edges = edges[own[graph.source[edges]]]
    source = np.searchsorted(at, graph.source[edges])
    target = np.searchsorted(graph.first, edges, "right") - 1
    first = np.full(len(at), _NEVER)
    np.minimum.at(first, source, job.start[target])
    copies = np.zeros(len(at), bool)
    copies[source[job.kind[target] == COPY]] = True
    end = job.start[at] + graph.duration[at]
    is_ahead = (first < _NEVER) & (first - end > _BEHIND_NS)
    waits = (job.kind[at] == LAUNCH) & ((copies & (first < end)) | is_ahead)
    return np.where(waits, np.maximum(graph.duration[at] - _CALL_NS, 0), 0)


def busy_ns(start: Int, time: Int, device: Int) -> int:
    """Return the time in which a device of a rank worked, summed over its devices."""
    return sum(
        union_length(start[device == each], (start + time)[device == each])
        for each in np.unique(device).tolist()
    )
