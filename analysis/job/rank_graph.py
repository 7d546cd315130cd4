"""The events that every launch and activity of a rank waited for, as far as the recording shows.

An activity waits for the one before it on its stream, for its launch, and for the waits of its
stream; a launch for the one before it on its thread, and after a call that blocked for the activity
that released it. Where waits between streams are not recorded they are inferred, and marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.time.cause_names import BLOCKING, CAUSES, call_cause
from pyprof2.columns import combine_keys, lookup, row_of
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from pyprof2.analysis.intervals import Bool, Int

_OF_ACTIVITIES: Final = (
    "kernel_id", "start_ns", "dur_ns", "launch_id", "launch_ns", "device", "stream", "step",
    "kernel_short", "category", "op", "layer", "source",
)  # fmt: skip
INPUT: Final[Mapping[str, tuple[str, ...]]] = {
    "kernels": _OF_ACTIVITIES,
    "copies": _OF_ACTIVITIES,
    "launches": ("launch_id", "start_ns", "dur_ns", "pid", "tid", "name", "correlation_id"),
    "stalls": (
        "kind",
        "device",
        "stream",
        "correlation_id",
        "waits_for_correlation_id",
        "waits_for_stream",
    ),
}
"""The columns of the tables from which a graph is made."""

ROOT, LAUNCH, KERNEL, COPY, MEMBER = range(5)
"""Kinds of events."""
FIFO, LAUNCHED, HOST, SYNC, WAIT, START, AWAITED, COMM_WAIT, SHARED_WAIT = range(9)
"""Kinds of edges; `AWAITED` is a wait of a stream that was recorded. `WAIT` is inferred, and so is
`COMM_WAIT`, between a collective and work that does not communicate: libraries have collectives on
a stream of their own, which waits for the work that makes their input, and readers of their result
wait for it. A `SHARED_WAIT` is one that only the same calls of other ranks or steps show."""
INFERRED: Final = (WAIT, COMM_WAIT, SHARED_WAIT)

BLOCKED_NS: Final = 20_000
"""A call that took longer waited for something."""
WOKEN_NS: Final = 60_000
"""Such a call ended at most that long after the work that it waited for."""
CLOCKS_NS: Final = 10_000
"""Recorders align host and device only so well: a call may seem to end that long before the work
that it waited for."""
WAIT_NS: Final = 30_000
"""A stream goes on at most that long after the work that it waited for."""
_LOOK_BACK: Final = 16
NO_STEP: Final = -(1 << 62)
"""Stands for no step, and for no time."""


class EventEdges(NamedTuple):
    """Edges between events, by position, and their kinds."""

    source: Int
    target: Int
    kind: Int

    @classmethod
    def of(cls, source: Int, target: Int, kind: int, keep: Bool | None = None) -> EventEdges:
        """Return edges of one kind: those that `keep` marks, and whose source is one."""
        good = source >= 0 if keep is None else (source >= 0) & keep
        return cls(source[good], target[good], np.full(int(good.sum()), kind))


@dataclass(frozen=True)
class RankGraph:
    """The events of a rank: first the root, then launches, then activities or members.

    Attributes:
        rank: its number.
        kind: of each event.
        row: the launch, or the row of `activities`, or of the members; -1 for the root.
        start, end: as recorded, on the clock of the reference.
        step: of each event; `NO_STEP` for none.
        edges: from each event to those that wait for it.
        activities: kernels and copies in order of `row`; None without any.
        member: the member, by row in the members, that each event is, or -1.
        named_by: the activity that names an event: the first that a launch queued; else itself.
        lane: equal for events that run one after another: of one stream, or one thread.
    """

    rank: int
    kind: Int
    row: Int
    start: Int
    end: Int
    step: Int
    edges: EventEdges
    activities: pa.Table | None
    member: Int
    named_by: Int
    lane: Int


def rank_graph(
    tables: Mapping[str, pa.Table],
    members: pd.DataFrame,
    rank: int,
    align: Callable[[Int], Int],
    begin: int | None = None,
) -> RankGraph:
    """Return the graph of a rank.

    Args:
        tables: columns `INPUT`.
        members: of the rank: `kernel_id`, `start_ns`, `dur_ns`, `step`, in order of start.
        rank: its number.
        align: from the rank's times to those on the clock of the reference.
        begin: where the root is; None: at the first event.
    """
    activities = _sorted(tables)
    if not activities.num_rows:
        return _of_members(members, rank, align, begin)
    launches = _QueuedLaunches.of(tables["launches"], activities, align)
    start, dur = (int_column(activities, name, 0) for name in ("start_ns", "dur_ns"))
    first = 1 + len(launches.start)
    starts = np.r_[0, launches.start, align(start)]
    ends = np.r_[0, launches.end, starts[first:] + dur]
    starts[0] = ends[0] = int(starts[1:].min()) if begin is None else begin
    times = (starts, ends)
    awaited = _awaited(tables, activities)
    edges = _activity_edges(activities, launches, times, first, awaited)
    edges += _host_edges(launches, times, first)
    # Nothing is pinned to the clock: events without any other edge wait for the root.
    bare = np.setdiff1d(np.arange(1, len(starts)), np.concatenate([e.target for e in edges]))
    edges.append(EventEdges.of(np.zeros(len(bare), np.int64), bare, START))
    step = int_column(activities, "step", NO_STEP)
    kernel = members["kernel_id"].fillna(-1).to_numpy(np.int64)
    order = np.argsort(kernel, kind="stable")
    member = lookup(order, row_of(kernel[order], int_column(activities, "kernel_id", -2)), -1)
    return RankGraph(
        rank,
        np.r_[ROOT, np.full(len(launches.start), LAUNCH), _kinds(activities)],
        np.r_[-1, np.arange(len(launches.start)), np.arange(len(start))],
        starts, ends,
        np.r_[NO_STEP, lookup(step, launches.first_activity, NO_STEP), step],
        EventEdges(*(np.concatenate(c) for c in zip(*edges, strict=True))),
        activities,
        np.r_[np.full(first, -1), member],
        np.r_[-1, launches.first_activity + first, np.arange(first, len(starts))],
        np.r_[-1, -2 - launches.thread, _queues(activities)],
    )  # fmt: skip


def _queues(activities: pa.Table) -> Int:
    return combine_keys(*(int_column(activities, name, -1) for name in ("device", "stream")))


def _kinds(activities: pa.Table) -> Int:
    return np.where(has_text(activities, "category", ("memcpy", "memset")), COPY, KERNEL)


def _sorted(tables: Mapping[str, pa.Table]) -> pa.Table:
    names = list(_OF_ACTIVITIES)
    both = pa.concat_tables([tables[name].select(names) for name in ("kernels", "copies")])
    order = np.lexsort((int_column(both, "kernel_id", 0), int_column(both, "start_ns", 0)))
    return both.unify_dictionaries().take(pa.array(order))


@dataclass(frozen=True)
class _QueuedLaunches:
    """The launches that queued any activity, in order of start, and the calls that blocked.

    Attributes:
        thread, start, end: of each launch.
        of_activity: the launch of each activity, or -1.
        first_activity: of each launch.
        blocking: thread, start and end of the calls that waited for the device.
    """

    thread: Int
    start: Int
    end: Int
    of_activity: Int
    first_activity: Int
    blocking: tuple[Int, Int, Int]

    @classmethod
    def of(
        cls, launches: pa.Table, activities: pa.Table, align: Callable[[Int], Int]
    ) -> _QueuedLaunches:
        """Return those of a rank."""
        ids = int_column(launches, "launch_id", -1)
        order = np.argsort(ids, kind="stable")
        at = row_of(ids[order], int_column(activities, "launch_id", -2))
        row = np.where(at >= 0, lookup(order, at, -1), -1)
        start, dur = align(int_column(launches, "start_ns", 0)), int_column(launches, "dur_ns", 0)
        thread = (
            combine_keys(*(int_column(launches, n, -1) for n in ("pid", "tid")))
            if len(ids)
            else ids
        )
        used = np.unique(row[row >= 0])
        used = used[np.argsort(start[used], kind="stable")]
        place = np.full(len(ids) + 1, -1)
        place[used] = np.arange(len(used))
        own = place[row]
        known = np.flatnonzero(own >= 0)
        first = np.full(len(used), len(own))
        np.minimum.at(first, own[known], known)
        waits = _blocks(launches) & (dur > BLOCKED_NS)
        blocking = (thread[waits], start[waits], (start + dur)[waits])
        return cls(thread[used], start[used], (start + dur)[used], own, first, blocking)


def _blocks(launches: pa.Table) -> Bool:
    code, names = code_column(launches, "name")
    codes = {at for at, cause in enumerate(CAUSES) if cause.name in BLOCKING}
    found: Bool = np.array([*(call_cause(name) in codes for name in names), False])[code]
    return found


def _activity_edges(
    activities: pa.Table,
    launches: _QueuedLaunches,
    times: tuple[Int, Int],
    first: int,
    awaited: EventEdges,
) -> list[EventEdges]:
    start, end = (column[first:] for column in times)
    count = len(start)
    node = first + np.arange(count)
    queue = _queues(activities)
    order = np.lexsort((np.arange(count), start, queue))
    before = np.full(count, -1)
    same = queue[order][1:] == queue[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    launch = launches.of_activity
    # A launch that was recorded as later than its activity is not used.
    good = (launch >= 0) & (lookup(times[0], 1 + launch, 0) <= start)
    fifo = EventEdges.of(np.where(before >= 0, first + before, -1), node, FIFO)
    launched = EventEdges.of(np.where(good, 1 + launch, -1), node, LAUNCHED)
    allowed = np.maximum(
        lookup(end, before, NO_STEP), np.where(good, lookup(times[1], 1 + launch, 0), NO_STEP)
    )
    # Where the waiting activity began before the event ended, the event was recorded anew, or on
    # another clock.
    true = end[awaited.source] <= start[awaited.target]
    source, target, kind = (column[true] for column in awaited)
    np.maximum.at(allowed, target, end[source])
    waits = _waited_for(start, end, allowed, queue, _issued(activities))
    wait = EventEdges.of(np.where(waits >= 0, first + waits, -1), node, WAIT)
    talks = has_text(activities, "category", ("comm",))
    ties = talks[wait.source - first] != talks[wait.target - first]
    wait = wait._replace(kind=np.where(ties, COMM_WAIT, WAIT))
    return [fifo, launched, wait, EventEdges(first + source, first + target, kind)]


def _issued(activities: pa.Table) -> Int:
    """Return when each activity was launched; where that is not known, when it began."""
    issued = int_column(activities, "launch_ns", NO_STEP)
    return np.where(issued == NO_STEP, int_column(activities, "start_ns", 0), issued)


def _awaited(tables: Mapping[str, pa.Table], activities: pa.Table) -> EventEdges:
    """Return the edges of waits that were recorded, between activities by position.

    Work that is launched to a stream after the call that makes it wait for an event begins when the
    work that was launched to the other stream before the event was recorded has ended.
    """
    stalls, calls = tables["stalls"], tables["launches"]
    chosen = stalls.filter(pa.array(has_text(stalls, "kind", ("stream_wait",))))
    names = ("device", "stream", "waits_for_stream", "correlation_id", "waits_for_correlation_id")
    device, onto, other, waited, noted = (int_column(chosen, name, -1) for name in names)
    called = int_column(calls, "correlation_id", -2)
    order = np.argsort(called, kind="stable")
    begin = int_column(calls, "start_ns", 0)[order]
    waits_at, noted_at = (
        lookup(begin, row_of(called[order], each), NO_STEP) for each in (waited, noted)
    )
    known = (waits_at != NO_STEP) & (noted_at != NO_STEP) & (other >= 0)
    rows = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    if known.any():
        places = (device[known], other[known], noted_at[known])
        rows[0] = _beside(activities, *places, before=True)
        rows[1] = _beside(activities, device[known], onto[known], waits_at[known], before=False)
    good = (rows[0] >= 0) & (rows[1] >= 0)
    source, target = np.unique(np.stack([rows[0][good], rows[1][good]]), axis=1)
    return EventEdges(source, target, np.full(len(source), AWAITED))


def _beside(activities: pa.Table, device: Int, stream: Int, time: Int, *, before: bool) -> Int:
    """Return the last activity launched to a stream before a time, or the first one after; -1."""
    issued = _issued(activities)
    own, on = (int_column(activities, name, -1) for name in ("device", "stream"))
    found = np.full(len(time), -1)
    for number, queue in {*zip(device.tolist(), stream.tolist(), strict=True)}:
        rows = np.flatnonzero((own == number) & (on == queue))
        order = np.append(rows[np.argsort(issued[rows], kind="stable")], -1)
        asked = (device == number) & (stream == queue)
        place = np.searchsorted(issued[order[:-1]], time[asked], "left") - int(before)
        found[asked] = order[place]  # the one before the first is -1, as the one after the last
    return found


def _waited_for(start: Int, end: Int, allowed: Int, queue: Int, issued: Int) -> Int:
    """Return the activity that each one's stream seems to have waited for, or -1.

    That of another stream which ended last before its start, at most `WAIT_NS` before, later than
    stream and launch would have allowed, and which was launched before it: a wait names work that
    is queued already.
    """
    order = np.argsort(end, kind="stable")
    place = np.searchsorted(end[order], start, "right") - 1
    found = np.full(len(start), -1)
    todo = np.flatnonzero((place >= 0) & (start > allowed))
    for _ in range(_LOOK_BACK):
        other = order[place[todo]]
        near = (start[todo] - end[other] <= WAIT_NS) & (end[other] > allowed[todo])
        todo, other = todo[near], other[near]
        fits = (queue[other] != queue[todo]) & (issued[other] < issued[todo])
        fits &= start[other] < start[todo]
        found[todo[fits]] = other[fits]
        todo = todo[~fits]
        place[todo] -= 1
        todo = todo[place[todo] >= 0]
        if not len(todo):
            break
    return found


def _host_edges(launches: _QueuedLaunches, times: tuple[Int, Int], first: int) -> list[EventEdges]:
    count = len(launches.start)
    node = 1 + np.arange(count)
    order = np.lexsort((np.arange(count), launches.thread))
    before = np.full(count, -1)
    same = launches.thread[order][1:] == launches.thread[order][:-1]
    before[order[1:][same]] = order[:-1][same]
    host = EventEdges.of(np.where(before >= 0, 1 + before, -1), node, HOST)
    # Where another thread launched last, this one may have waited for it, as for backward.
    last = np.arange(-1, count - 1)
    other = (last != before) & (lookup(launches.end, last, NO_STEP) <= launches.start)
    handed = EventEdges.of(np.where(last >= 0, 1 + last, -1), node, HOST, other)
    return [host, handed, _sync_edges(launches, times, first)]


def _sync_edges(launches: _QueuedLaunches, times: tuple[Int, Int], first: int) -> EventEdges:
    """Return the edges from the activity that released each thread after a call that blocked."""
    thread, begin, finish = launches.blocking
    end = times[1][first:]
    order = np.argsort(end, kind="stable")
    at = np.searchsorted(end[order], finish + CLOCKS_NS, "right") - 1
    woken = np.where(at >= 0, order[np.maximum(at, 0)], -1)
    last = lookup(end, woken, NO_STEP)
    good = (finish - last <= WOKEN_NS) & (last > begin)
    rows = np.lexsort((launches.start, launches.thread))
    key = launches.thread[rows]
    following = np.full(len(thread), -1)
    for each in np.unique(thread).tolist():
        own = rows[key == each]
        mine = np.flatnonzero(thread == each)
        place = np.searchsorted(launches.start[own], finish[mine], "left")
        ok = place < len(own)
        following[mine[ok]] = own[place[ok]]
    good &= (following >= 0) & (
        lookup(times[0][first:], woken, 0) < lookup(launches.start, following, 0)
    )
    return EventEdges.of(np.where(good, first + woken, -1), 1 + following, SYNC)


def _of_members(
    members: pd.DataFrame, rank: int, align: Callable[[Int], Int], begin: int | None
) -> RankGraph:
    """Return the graph of a rank without device: its collectives, one after another."""
    start = align(members["start_ns"].to_numpy(np.int64))
    starts = np.r_[0, start]
    ends = starts + np.r_[0, members["dur_ns"].to_numpy(np.int64)]
    starts[0] = ends[0] = (int(start.min()) if len(start) else 0) if begin is None else begin
    count = len(starts)
    source, kind = np.arange(count - 1), np.full(max(0, count - 1), HOST)
    kind[:1] = START
    step = members["step"].fillna(NO_STEP).to_numpy(np.int64)
    rows = np.arange(count) - 1
    return RankGraph(
        rank, np.r_[ROOT, np.full(count - 1, MEMBER)], rows, starts, ends, np.r_[NO_STEP, step],
        EventEdges(source, source + 1, kind), None, rows, np.arange(count),
        np.minimum(rows, 0),
    )  # fmt: skip
