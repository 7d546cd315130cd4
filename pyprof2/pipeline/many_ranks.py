"""Jobs of many ranks: a map for each rank, and a reduce that reads few rows of each.

The map leaves what a rank is compared by (table `parts`) and the paths between its collectives
(table `segments`). Kernels are read again only of a rank that stands out, and of a few others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.job import rank_parts, what_if
from pyprof2.analysis.job.clocks import clock_frame, whole_ns
from pyprof2.analysis.job.collectives import as_table, with_found
from pyprof2.analysis.job.job_graph import INNER, host_times, job_graph
from pyprof2.analysis.job.rank_graph import COPY, KERNEL, NO_STEP, SHARED_WAIT, rank_graph
from pyprof2.analysis.job.reduce import MEMBERS, TRACE, Reduced, reduce_job
from pyprof2.analysis.job.segment_job import SegmentJob, segment_job
from pyprof2.analysis.job.segments import KEYS, Timing, segments_of
from pyprof2.analysis.summaries.idle_profile import ADDED, added_up
from pyprof2.analysis.time.cause_names import CAUSES
from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows
from pyprof2.columns import as_pandas
from pyprof2.parsers.formats import SESSIONS
from pyprof2.recording import has_text
from pyprof2.result_tables import CLOCKS, PARTS, SEGMENTS
from pyprof2.store.folder import read_table, write_table
from pyprof2.store.rank_tables import RankTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.job.job_graph import JobGraph
    from pyprof2.analysis.job.rank_graph import RankGraph

MANY_RANKS: Final = 32
"""A job of so many is taken by its segments between collectives; of fewer all kernels are in one
graph."""
PEERS: Final = 8
"""A rank that stands out is measured against so many of its role, evenly spread."""
LATE: Final = {cause.name for cause in CAUSES if cause.group == "host late"} - {"host_comm"}
"""The causes of idle time that are a host's own: in ops that communicate it may wait for others."""


def reduce_store(store: Path, *, one_clock: bool = False) -> Reduced:
    """Return what the ranks of a store say together; only `collectives` and `trace` are read.

    Args:
        store: its folder.
        one_clock: whether the ranks share a clock, where the recordings do not say so.
    """
    members = as_pandas(read_table(store, "collectives", MEMBERS), ("rank", "start_ns", "dur_ns"))
    members = members.astype(dict.fromkeys(("kind", "dtype", "group_key", "group_desc"), object))
    trace = as_pandas(read_table(store, "trace", TRACE))
    return reduce_job(members, trace, SESSIONS, one_clock=one_clock)


def parts_of_rank(tables: RankTables, members: pd.DataFrame) -> pd.DataFrame:
    """Return what a rank's devices did in each step, and how long they waited for its host.

    Args:
        tables: of the rank.
        members: of the rank, as `reduce_job` returns them, with `kernel_id`.

    Returns:
        `rank`, what `five_parts` returns, `host_ns`; without steps one window for all.
    """
    windows = StepWindows.of(tables.read("steps", OF_WINDOWS))
    chosen = windows if len(windows.step) else None
    kernels, copies = (tables.in_parts(*each) for each in rank_parts.INPUT.items())
    frame = rank_parts.five_parts(kernels, copies, chosen, members)
    if not len(frame):  # no device was recorded
        return as_pandas(PARTS.empty(), PARTS.never_null)
    axes = ("device", "step", "cause")
    idle = added_up(tables.in_parts("idle", (*axes, *ADDED)), axes)
    late = idle.filter(pa.array(has_text(idle, "cause", LATE))).to_pandas()
    late = late.astype({"step": "Int64", "device": "Int64"})
    if chosen is None:
        late = late.assign(step=pd.array([None] * len(late), "Int64"))
    keys = [*axes[:2]]
    host = (
        late.groupby(keys, dropna=False, observed=True)["time_ns"]
        .sum()
        .rename("host_ns")
        .reset_index()
    )
    found = frame.astype(dict.fromkeys(keys, "Int64")).merge(host, how="left", on=keys)
    found = found.assign(host_ns=found["host_ns"].fillna(0).astype("int64"), rank=tables.rank)
    return found[["rank", *(name for name in found if name != "rank")]]


def with_kernels(members: pd.DataFrame, own: pa.Table) -> pd.DataFrame:
    """Return a rank's members with `kernel_id`, of its table `collectives`."""
    kernels = pd.array(own["kernel_id"].to_pylist(), "Int64")
    ids = pd.Series(kernels, own["collective_id"].to_pylist())
    return members.assign(kernel_id=ids.reindex(members["collective_id"]).to_numpy())


def segments_table(tables: RankTables, members: pd.DataFrame) -> pa.Table:
    """Return table `segments` of a rank; `members` as for `parts_of_rank`."""
    rows = members.sort_values("start_ns", kind="stable").reset_index(drop=True)
    graph = rank_graph(tables.parts, rows, tables.rank, lambda time: time)
    frame = _named(segments_of(graph), rows).assign(rank=tables.rank, begin_ns=int(graph.start[0]))
    step = frame["step"].astype("Int64")
    return as_table(SEGMENTS, frame.assign(step=step.mask(step == NO_STEP)))


def _named(segments: pd.DataFrame, members: pd.DataFrame) -> pd.DataFrame:
    """Return segments whose ends are ids of collectives."""
    ids = np.r_[members["collective_id"].to_numpy(np.int64), -1]
    ends = {f"{name}_id": ids[segments[name].to_numpy()] for name in ("source", "target")}
    return segments.drop(columns=["source", "target"]).assign(**ends)


class _Changed(NamedTuple):
    """A rank as the others.

    Attributes:
        change: what is changed, in the graph of it and its peers.
        segments: of the rank, as they would be.
        excess: what it takes longer than the others: `kind`, `op`, `source`, `excess_ns`.
        host_times: of it and its peers.
        scatter: see `what_if.scatter`.
    """

    change: what_if.Scenario
    segments: pd.DataFrame
    excess: pd.DataFrame
    host_times: pd.Series
    scatter: int


@dataclass
class ManyRanks:
    """A job by its segments between collectives: the stored table `segments`.

    Attributes:
        store: its folder.
        reduced: what its ranks say together.
        roles: of each rank.
        graph_of: gives the graph of a rank, and the members that it was made of.
    """

    store: Path
    reduced: Reduced
    roles: Mapping[int, Any]
    graph_of: Callable[[int], tuple[RankGraph, pd.DataFrame]]
    _known: dict[int, _Changed] = field(default_factory=dict)

    @cached_property
    def _segments(self) -> pd.DataFrame:
        frame = as_pandas(read_table(self.store, "segments"), (*KEYS[:3], "begin_ns"))
        frame["step"] = frame["step"].fillna(NO_STEP).astype("int64")
        begin = frame["begin_ns"].to_numpy(np.int64, copy=True)
        rank = frame["rank"].to_numpy()
        for each in np.unique(rank).tolist():
            own = rank == each
            begin[own] = self.reduced.align(each)(begin[own])
        return frame.assign(begin_ns=begin)

    @cached_property
    def job(self) -> SegmentJob:
        """The segments of all ranks, joined by their collectives."""
        return segment_job(self._segments, self.reduced.members)

    def scale_transfers(self, factor: float) -> what_if.Gain:
        """Return what the job gains if transfers of matched collectives take `factor` as long."""
        return self.job.evaluate(f"transfers × {factor:g}", transfers=factor)

    def as_the_others(self, ranks: Sequence[int]) -> tuple[what_if.Gain, pd.DataFrame]:
        """Return what the job gains, and each step, with each rank as `PEERS` of its role.

        Raises:
            UsageError: no other rank has the role of one.
        """
        changes = [self._changed(rank) for rank in ranks]
        segments = pd.concat([change.segments for change in changes], ignore_index=True)
        known = self._segments[list(KEYS)].merge(segments[list(KEYS)], indicator=True, how="right")
        new = segments[(known["_merge"] == "right_only").to_numpy(bool)]
        job = self.job
        if len(new):
            none = dict.fromkeys(("ns", "unwaited_ns", "unlagged_ns"))
            begin = self._segments.groupby("rank", observed=True)["begin_ns"].first()
            more = new.assign(begin_ns=new["rank"].map(begin), **none)
            more = more.astype(dict.fromkeys(none, "Int64"))
            job = segment_job(
                pd.concat([self._segments, more], ignore_index=True), self.reduced.members
            )
        lengths = job.changed(segments)
        scatter = round(math.hypot(*(change.scatter for change in changes)))
        gain = job.evaluate(what_if.as_others_words(ranks), lengths, scatter=scatter)
        return gain, job.step_gains(lengths)

    def worst_call(self, rank: int) -> tuple[str, str | None, str | None, int]:
        """Return kind (`kernel` or `host`), op and source of what most of a rank's excess is in.

        The last one is how much longer it took than in other ranks, over the recording.
        """
        excess = self._changed(rank).excess
        sums = excess.groupby(["kind", "op", "source"], dropna=False, observed=True)[
            "excess_ns"
        ].sum()
        kind, op, source = sums.index[int(sums.to_numpy().argmax())]
        op, source = (text if isinstance(text, str) else None for text in (op, source))
        return str(kind), op, source, int(sums.max())

    def host_times(self, rank: int) -> pd.Series:
        """Return how long the hosts of a rank and of `PEERS` of its role were at work, by rank."""
        return self._changed(rank).host_times

    def _changed(self, rank: int) -> _Changed:
        if rank not in self._known:
            self._known[rank] = self._change(rank)
        return self._known[rank]

    def _change(self, rank: int) -> _Changed:
        others = [r for r in self.roles if r != rank and self.roles[r] == self.roles.get(rank)]
        at = np.unique(np.linspace(0, len(others) - 1, min(PEERS, len(others))).astype(int))
        chosen = [rank, *(others[each] for each in at.tolist())]
        found = {each: self.graph_of(each) for each in chosen}
        graph = found[rank][0]
        job = job_graph([g for g, _ in found.values()], {r: m for r, (_, m) in found.items()})
        change = what_if.as_the_others(job, [rank], dict.fromkeys(chosen))
        duration = job.graph.duration if change.duration is None else change.duration
        lag = job.graph.lag if change.lag is None else change.lag
        count = len(graph.start)
        # Those that the rank has alone: waits that only others show are no edges of its graph.
        own = (job.graph.target < count) & ~np.isin(job.edge_kind, (INNER, SHARED_WAIT))
        segments = segments_of(graph, Timing(duration[:count], lag[own]))
        excess = _excess(job, job.graph.duration - duration, (job.graph.lag - lag)[own], own)
        named = _named(segments, found[rank][1]).assign(rank=rank)
        hosts = (
            host_times(job)
            .groupby("rank", observed=True)["host_ns"]
            .sum()
            .reindex(chosen)
            .fillna(0)
        )
        return _Changed(change, named, excess, hosts, what_if.scatter(job, change))


def _excess(job: JobGraph, durations: Int, lags: Int, own: Bool) -> pd.DataFrame:
    """Return what events take longer than in other ranks: kernels, and the host before them."""
    target = job.graph.target[own]
    events = np.r_[np.flatnonzero(durations), target[lags != 0]]
    texts = {
        name: pd.Series(job.labels.text(name, events), dtype=object).to_numpy()
        for name in ("op", "source")
    }
    what = np.isin(job.kind[np.flatnonzero(durations)], (KERNEL, COPY))
    kind = np.r_[np.where(what, "kernel", "host"), np.full(int((lags != 0).sum()), "host")]
    return pd.DataFrame(
        {"kind": kind, **texts, "excess_ns": np.r_[durations[durations != 0], lags[lags != 0]]}
    )


def write_job(folder: Path, ranks: Sequence[int], on_workers: Callable[..., Iterable[Any]]) -> None:
    """Write the tables that need all ranks.

    Args:
        folder: the store, whose ranks are written.
        ranks: their numbers.
        on_workers: as `map`: has a function called for each rank.
    """
    found = reduce_store(folder)
    clocks = whole_ns(clock_frame(found.clocks))
    tasks = (
        [folder] * len(ranks),
        ranks,
        [clocks[clocks["rank"] == rank] for rank in ranks],
        [found.members[found.members["rank"] == rank] for rank in ranks],
        [len(ranks) >= MANY_RANKS] * len(ranks),
    )
    for _ in on_workers(_write_rank_of_job, *tasks):
        pass


def _write_rank_of_job(
    folder: Path,
    rank: int,
    clock: pd.DataFrame,
    members: pd.DataFrame,
    many: bool,  # noqa: FBT001
) -> None:
    """Write what all ranks together say of one; of many ranks also what they are compared by."""
    write_table(folder, "clocks", rank, [as_table(CLOCKS, clock)])
    tables = RankTables(folder, rank)
    own = tables.read("collectives")
    if len(members):
        write_table(folder, "collectives", rank, [with_found(own, members)])
    members = with_kernels(members, own)
    frames = {"parts": PARTS.empty(), "segments": SEGMENTS.empty()}
    if many:
        frames = {
            "parts": as_table(PARTS, parts_of_rank(tables, members).astype({"step": "Int64"})),
            "segments": segments_table(tables, members),
        }
    for name, table in frames.items():
        write_table(folder, name, rank, [table])
