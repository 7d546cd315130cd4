"""A step of one rank with other durations: the replay of its launches.

The step begins when the work before it ended, as recorded. It lasts at least as long as its host
was at work itself, for a host may have run ahead of the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.job.job_graph import host_gaps
from pyprof2.analysis.job.rank_graph import (
    BLOCKED_NS,
    COPY,
    KERNEL,
    LAUNCH,
    LAUNCHED,
    NO_STEP,
    ROOT,
)
from pyprof2.analysis.job.replay import Graph, replay

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.job.job_graph import JobGraph
    from pyprof2.analysis.job.replay import Times

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
        own = (job.kind != ROOT) if step is None else (job.step == step)
        at = np.flatnonzero(own)
        graph, edges, number = _only(job, at)
        events, carrying = host_gaps(job)
        gaps = np.flatnonzero(np.isin(number, carrying) & (graph.lag > 0))
        earlier = (job.step > NO_STEP) & (job.step < (NO_STEP if step is None else step))
        ended = job.recorded.end[earlier]
        begin = int(ended.max() if len(ended) else job.start[at].min(initial=_NEVER))
        waiting = _waiting(job)[at]
        kinds = job.kind[at]
        host = int(edges[kinds == LAUNCH].sum() - waiting.sum())
        host += int(np.maximum(job.graph.lag[carrying[own[events]]], 0).sum())
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


def _only(job: JobGraph, at: Int) -> tuple[Graph, Int, Int]:
    """Return the graph of some events, their durations, and which edge of the job each is, or -1.

    What they waited for outside of it has ended as recorded.
    """
    graph = job.graph
    place = np.full(len(job.kind), -1)
    place[at] = 1 + np.arange(len(at))
    inside = (place[graph.source] > 0) & (place[graph.target] > 0)
    outside = (place[graph.target] > 0) & ~inside
    # An event without any edge begins as recorded.
    allowed = np.where(job.recorded.binding[at] < 0, job.start[at], -_NEVER)
    after = job.recorded.end[graph.source[outside]] + graph.lag[outside]
    np.maximum.at(allowed, place[graph.target[outside]] - 1, after)
    known = np.flatnonzero(allowed > -_NEVER)
    source = np.r_[place[graph.source[inside]], np.zeros(len(known), np.int64)]
    target = np.r_[place[graph.target[inside]], 1 + known]
    lag = np.r_[graph.lag[inside], allowed[known]]
    order = np.argsort(target, kind="stable")
    number = np.r_[np.flatnonzero(inside), np.full(len(known), -1)][order]
    duration = np.r_[0, graph.duration[at]]
    zeros = np.zeros(len(duration), np.int64)
    # The events of the job are in an order in which no edge goes back.
    rank = np.empty(len(job.kind), np.int64)
    rank[graph.order] = np.arange(len(rank))
    hint = np.r_[-1, rank[at]]
    return Graph.of(duration, zeros, (source, target, lag), hint), duration[1:], number


def _waiting(job: JobGraph) -> Int:
    """Return of launches what they waited for the device, beyond a short time.

    Copies did that return after the device had begun them, and launches that are far ahead of it.
    """
    graph = job.graph
    launched = job.edge_kind == LAUNCHED
    source, target = graph.source[launched], graph.target[launched]
    first = np.full(len(job.kind), _NEVER)
    np.minimum.at(first, source, job.start[target])
    copies = np.zeros(len(job.kind), bool)
    copies[source[job.kind[target] == COPY]] = True
    is_ahead = (first < _NEVER) & (first - job.end > _BEHIND_NS)
    waits = (job.kind == LAUNCH) & ((copies & (first < job.end)) | is_ahead)
    return np.where(waits, np.maximum(graph.duration - BLOCKED_NS, 0), 0)


def busy_ns(start: Int, time: Int, device: Int) -> int:
    """Return the time in which a device of a rank worked, summed over its devices."""
    return sum(
        union_length(start[device == each], (start + time)[device == each])
        for each in np.unique(device).tolist()
    )
