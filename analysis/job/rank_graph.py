"""The events that every launch and activity of a rank waited for, as far as the recording shows.

An activity waits for the one before it on its stream, for its launch, and for the waits of its
stream; a launch for the one before it on its thread, and after a call that blocked for the activity
that released it. Where waits between streams are not recorded they are inferred, and marked so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.time.cause_names import BLOCKING, CAUSES, call_cause
from pyprof2.columns import combine_keys, first_rows, lookup, order_of, row_of, short, values_of
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

    Read = Callable[[str, tuple[str, ...]], pa.Table]

LABELS: Final = ("kernel_short", "category", "op", "layer", "source")
"""The columns of the names of events."""
NAMED: Final = ("start_ns", "launch_ns", *LABELS)
"""The columns of activities that a graph keeps."""
_OF_ACTIVITIES: Final = ("kernel_id", "dur_ns", "launch_id", "device", "stream", "step", *NAMED)
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
        count = int(good.sum())
        return cls(short(source[good]), short(target[good]), np.full(count, kind, np.int8))


@dataclass(frozen=True)
class RankGraph:
    """The events of a rank: first the root, then launches, then activities or members.

    Attributes:
        rank: its number.
        kind: of each event.
        start, end: as recorded, on the clock of the reference.
        step: of each event; `NO_STEP` for none.
        edges: from each event to those that wait for it.
        activities: kernels and copies in order of start, columns `NAMED`; without any its
            collectives.
        member: the member, by row in the members, that each event is, or -1.
        named_by: the row of `activities` that names an event: its own, or the first that a launch
            queued; -1 for the root.
        lane: equal for events that run one after another: of one stream, or one thread.
    """

    rank: int
    kind: NDArray[Any]
    start: Int
    end: Int
    step: Int
    edges: EventEdges
    activities: pa.Table
    member: Int
    named_by: Int
    lane: Int


def rank_graph(
    read: Read, members: pd.DataFrame, rank: int, align: Callable[[Int], Int]
) -> RankGraph:
    """Return the graph of a rank, whose root is at its first event.

    Args:
        read: gives a table with columns of `INPUT`; each is let go of before the next one.
        members: of the rank: `kernel_id`, `start_ns`, `dur_ns`, `step`, in order of start.
        rank: its number.
        align: from the rank's times to those on the clock of the reference.
    """
    tables = [read(name, INPUT[name]).select(INPUT[name]) for name in ("kernels", "copies")]
    activities = pa.concat_tables(tables).unify_dictionaries()
    del tables
    starts, ids = (int_column(activities, name, 0) for name in ("start_ns", "kernel_id"))
    activities = activities.take(pa.array(order_of(starts, ids)))
    if not activities.num_rows:
        return _of_members(members, rank, align)
    launches = _QueuedLaunches.of(read("launches", INPUT["launches"]), activities, align)
    start, dur = (int_column(activities, name, 0) for name in ("start_ns", "dur_ns"))
    first, count = 1 + len(launches.start), len(start)
    starts = np.r_[0, launches.start, align(start)]
    ends = np.r_[0, launches.end, starts[first:] + dur]
    starts[0] = ends[0] = int(starts[1:].min())
    times = (starts, ends)
    parts = _activity_edges(activities, launches, times, first, _awaited(read, activities))
    parts += _host_edges(launches, times, first)
    # Nothing is pinned to the clock: events without any other edge wait for the root.
    is_bare = np.ones(len(starts), bool)
    for each in parts:
        is_bare[each.target] = False
    bare = 1 + np.flatnonzero(is_bare[1:])
    parts.append(EventEdges.of(np.zeros(len(bare), np.int64), bare, START))
    edges = EventEdges(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    del parts
    order = np.argsort(edges.target, kind="stable")
    edges = EventEdges(*(column[order] for column in edges))
    step = int_column(activities, "step", NO_STEP)
    kernel = members["kernel_id"].fillna(-1).to_numpy(np.int64)
    order = np.argsort(kernel, kind="stable")
    member = lookup(order, row_of(kernel[order], int_column(activities, "kernel_id", -2)), -1)
    kind = np.full(len(starts), LAUNCH, np.int8)
    is_copy = has_text(activities, "category", ("memcpy", "memset"))
    kind[0], kind[first:] = ROOT, np.where(is_copy, COPY, KERNEL)
    return RankGraph(
        rank,
        kind,
        starts, ends,
        np.r_[NO_STEP, lookup(step, launches.first_activity, NO_STEP), step],
        edges,
        activities.select(NAMED),
        short(np.r_[np.full(first, -1), member]),
        short(np.r_[-1, launches.first_activity, np.arange(count)]),
        short(np.r_[-1, -2 - launches.thread, _queues(activities)]),
    )  # fmt: skip


def _queues(activities: pa.Table) -> Int:
    return combine_keys(*(int_column(activities, name, -1) for name in ("device", "stream")))


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
        thread = combine_keys(*(int_column(launches, name, -1) for name in ("pid", "tid")))
        used = values_of(row[row >= 0])
        used = used[np.argsort(start[used], kind="stable")]
        place = np.full(len(ids) + 1, -1)
        place[used] = np.arange(len(used))
        own = place[row]
        first = first_rows(own, len(used))
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
    before = _before_on(queue, np.lexsort((start, queue)))
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
    waits = _waited_for(start, end, allowed, queue, issued_of(activities))
    wait = EventEdges.of(np.where(waits >= 0, first + waits, -1), node, WAIT)
    talks = has_text(activities, "category", ("comm",))
    ties = talks[wait.source - first] != talks[wait.target - first]
    wait = wait._replace(kind=np.where(ties, COMM_WAIT, WAIT))
    return [fifo, launched, wait, EventEdges(first + source, first + target, kind)]


def _before_on(lane: Int, order: Int) -> Int:
    """Return of each event the one before it in an order by lanes, -1 for the first of a lane."""
    before = np.full(len(lane), -1)
    same = lane[order[1:]] == lane[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def issued_of(activities: pa.Table) -> Int:
    """Return when each activity was launched; where that is not known, when it began."""
    issued = int_column(activities, "launch_ns", NO_STEP)
    return np.where(issued == NO_STEP, int_column(activities, "start_ns", 0), issued)


def _awaited(read: Read, activities: pa.Table) -> EventEdges:
    """Return the edges of waits that were recorded, between activities by position.

    Work that is launched to a stream after the call that makes it wait for an event begins when the
    work that was launched to the other stream before the event was recorded has ended.
    """
    stalls = read("stalls", INPUT["stalls"])
    chosen = stalls.filter(pa.array(has_text(stalls, "kind", ("stream_wait",))))
    names = ("device", "stream", "waits_for_stream", "correlation_id", "waits_for_correlation_id")
    device, onto, other, waited, noted = (int_column(chosen, name, -1) for name in names)
    if not len(other):
        return EventEdges(other, other, other)
    calls = read("launches", ("start_ns", "correlation_id"))
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
    issued = issued_of(activities)
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
    found = np.full(len(start), -1)
    if queue.min() == queue.max():
        return found
    order = np.argsort(end, kind="stable")
    place = np.searchsorted(end[order], start, "right") - 1
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
    before = _before_on(launches.thread, np.argsort(launches.thread, kind="stable"))
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


def _of_members(members: pd.DataFrame, rank: int, align: Callable[[Int], Int]) -> RankGraph:
    """Return the graph of a rank without device: its collectives, one after another."""
    start = align(members["start_ns"].to_numpy(np.int64))
    starts = np.r_[0, start]
    ends = starts + np.r_[0, members["dur_ns"].to_numpy(np.int64)]
    starts[0] = ends[0] = int(start.min()) if len(start) else 0
    count = len(starts)
    source, kind = np.arange(count - 1), np.full(max(0, count - 1), HOST)
    kind[:1] = START
    step = members["step"].fillna(NO_STEP).to_numpy(np.int64)
    rows = np.arange(count) - 1
    schema = TABLES["kernels"].schema(NAMED)
    words = pa.array(["collective"] * len(start), pa.string()).dictionary_encode()
    known = {"start_ns": pa.array(start), "kernel_short": words}
    named = [known.get(each.name, pa.nulls(len(start), each.type)) for each in schema]
    return RankGraph(
        rank, np.r_[ROOT, np.full(count - 1, MEMBER)], starts, ends, np.r_[NO_STEP, step],
        EventEdges(source, source + 1, kind), pa.Table.from_arrays(named, schema=schema),
        rows, rows, np.minimum(rows, 0),
    )  # fmt: skip
