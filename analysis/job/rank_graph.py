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

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.time.cause_names import BLOCKING, CAUSES, call_cause
from pyprof2.analysis.time.host_clock import clock_error_ns
from pyprof2.analysis.time.queue import BLOCKED_NS, awaited_work
from pyprof2.columns import (
    combine_keys,
    first_rows,
    lookup,
    narrow,
    order_of,
    row_of,
    short,
    values_of,
)
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int

    Read = Callable[[str], ChunkedTable]
    Rows = Callable[[Sequence[str]], pa.Table]

LABELS: Final = ("kernel_short", "category", "op", "layer", "source")
"""The columns of the names of events."""
ISSUED: Final = ("start_ns", "launch_ns")

ROOT, LAUNCH, KERNEL, COPY, MEMBER = range(5)
"""Kinds of events."""
FIFO, LAUNCHED, HOST, SYNC, WAIT, START, AWAITED, COMM_WAIT, SHARED_WAIT = range(9)
"""Kinds of edges; `AWAITED` is a wait of a stream that was recorded. `WAIT` is inferred, and so is
`COMM_WAIT`, between a collective and work that does not communicate: libraries have collectives on
a stream of their own, which waits for the work that makes their input, and readers of their result
wait for it. A `SHARED_WAIT` is one that only the same calls of other ranks or steps show."""
INFERRED: Final = (WAIT, COMM_WAIT, SHARED_WAIT)

WAIT_NS: Final = 30_000
"""A stream goes on at most that long after the work that it waited for."""
_LOOK_BACK: Final = 16
NO_STEP: Final = -(1 << 62)
"""Stands for no step, and for no time."""
_WORK: Final = {
    "start_ns": 0, "dur_ns": 0, "kernel_id": 0, "launch_id": -2, "device": -1, "stream": -1,
    "step": NO_STEP,
}  # fmt: skip
_CALLS: Final = {"launch_id": -1, "start_ns": 0, "dur_ns": 0, "pid": -1, "tid": -1}
_CALLED: Final = {"start_ns": 0, "correlation_id": -2}
_WAITS: Final = {
    "device": -1, "stream": -1, "waits_for_stream": -1, "correlation_id": -1,
    "waits_for_correlation_id": -1,
}  # fmt: skip
"""The columns of whole numbers of activities, launches, and stalls, and what stands for null."""


class EventEdges(NamedTuple):
    """Edges between events, in order of those that wait.

    Attributes:
        source: the event that is waited for.
        first: for each event, and one past the last, the position of its first edge.
        kind: of each edge.
    """

    source: Int
    first: Int
    kind: Int


@dataclass(frozen=True)
class RankGraph:
    """The events of a rank: first the root, then launches, then activities or members.

    Attributes:
        rank: its number.
        kind: of each event.
        start, end: as recorded, on the clock of the reference.
        edges: from the events that each waits for.
        rows: gives columns of what names events: of kernels, then of copies, as they are stored;
            without any of the rank's collectives.
        steps: of these rows; `NO_STEP` for none.
        member: the member, by row in the members, that each event is, or -1.
        named_by: the row that names an event: its own, or that of the first one that a launch
            queued; -1 for the root.
        lane: equal for events that run one after another: of one stream, or one thread.
        clock_error_ns: how far the clocks of host and device are apart; 0: they agree.
    """

    rank: int
    kind: NDArray[Any]
    start: Int
    end: Int
    edges: EventEdges
    rows: Rows
    steps: Int
    member: Int
    named_by: Int
    lane: Int
    clock_error_ns: int = 0

    @property
    def step(self) -> Int:
        """The step of each event; `NO_STEP` for none."""
        return lookup(self.steps.astype(np.int64), self.named_by, NO_STEP)


def rank_graph(
    read: Read, members: pd.DataFrame, rank: int, align: Callable[[Int], Int]
) -> RankGraph:
    """Return the graph of a rank, whose root is at its first event.

    Args:
        read: gives a table.
        members: of the rank: `kernel_id`, `start_ns`, `dur_ns`, `step`, in order of start.
        rank: its number.
        align: from the rank's times to those on the clock of the reference.
    """
    work = _QueuedWork.of(read)
    if not len(work.order):
        return _of_members(members, rank, align)
    launches = _QueuedLaunches.of(read, work.numbers.pop("launch_id"), align)
    first = 1 + len(launches.start)
    # Each column is let go of where it was needed last: together they are as large as the graph.
    start = np.concatenate(([0], launches.start, align(work.numbers.pop("start_ns"))))
    end = np.concatenate(([0], launches.dur, work.numbers.pop("dur_ns")), dtype=np.int64)
    start[0] = int(start[1:].min())
    end += start
    launches = launches._replace(start=start[1:first])
    kind = np.full(len(start), LAUNCH, np.int8)
    is_copy = has_text(work.rows(("category",)), "category", ("memcpy", "memset"))[work.order]
    kind[0], kind[first:] = ROOT, np.where(is_copy, np.int8(COPY), np.int8(KERNEL))
    named_by = np.concatenate((work.order[:1], work.order[launches.first_activity], work.order))
    named_by[0] = -1
    kernel = members["kernel_id"].fillna(-1).to_numpy(np.int64)
    order = np.argsort(kernel, kind="stable")
    ids = work.numbers.pop("kernel_id")
    member = narrow(lookup(order, row_of(kernel[order], ids), -1))
    launched = launches.of_activity >= 0
    ahead = start[1 + launches.of_activity[launched]] - start[first:][launched]
    woken = _woken(launches, (start, end), first)
    edges = _edges(work, launches, (start, end), _awaited(read, work), woken)
    threads = 1 + int(launches.thread.max(initial=0))
    return RankGraph(
        rank, kind, start, end, edges, work.rows, work.steps,
        np.concatenate((np.full(first, -1, member.dtype), member)), named_by,
        narrow(np.r_[short(ids[:1] * 0), 1 + short(launches.thread), 1 + threads + work.queue]),
        clock_error_ns(ahead),
    )  # fmt: skip


class _QueuedWork(NamedTuple):
    """Kernels and copies, in order of start.

    Attributes:
        rows: as in `RankGraph`.
        order: the row of each.
        numbers: `start_ns`, `dur_ns`, `kernel_id` and `launch_id`, as they are recorded.
        queue: equal for those of one stream.
        steps: of the rows.
    """

    rows: Rows
    order: Int
    numbers: dict[str, Int]
    queue: Int
    steps: Int

    @classmethod
    def of(cls, read: Read) -> _QueuedWork:
        """Return those of a rank."""
        tables = ("kernels", "copies")
        found = _numbers([read(name) for name in tables], _WORK)
        order = short(order_of(found["start_ns"], found["kernel_id"]))
        steps = found.pop("step")
        queue = short(combine_keys(found.pop("device"), found.pop("stream")))[order]
        for name in found:
            found[name] = found[name][order]
        return cls(
            lambda names: _rows([read(name) for name in tables], names),
            order, found, queue, steps,
        )  # fmt: skip

    @property
    def issued(self) -> Int:
        """When each was launched; where that is not known, when it began."""
        return issued_of(self.rows(ISSUED))[self.order]


def _rows(tables: Sequence[ChunkedTable], names: Sequence[str]) -> pa.Table:
    """Return columns of tables, one after another."""
    parts = (
        table.read(part, names).select(names) for table in tables for part in range(len(table))
    )
    return pa.concat_tables(parts).unify_dictionaries()


def _numbers(tables: Sequence[ChunkedTable], missing: Mapping[str, int]) -> dict[str, Int]:
    """Return columns of whole numbers, with what stands for null in each, in 32 bits if these do.

    Starts are in 64, because others are added to them.
    """
    count, at = sum(table.row_count for table in tables), 0
    found: dict[str, Any] = {
        name: np.empty(count, np.int64 if name == "start_ns" else np.int32) for name in missing
    }
    for table in tables:
        for number in range(len(table)):
            part = table.read(number, (*missing,))
            for name, null in missing.items():
                values = narrow(int_column(part, name, null), found[name].dtype.type)
                found[name] = found[name].astype(values.dtype, copy=False)
                found[name][at : at + part.num_rows] = values
            at += part.num_rows
    return found


class _QueuedLaunches(NamedTuple):
    """The launches that queued any activity, in order of start, and the calls that blocked.

    Attributes:
        thread, start, dur: of each launch.
        of_activity: the launch of each activity, or -1.
        first_activity: of each launch.
        blocking: thread, start and end of the calls that may have waited for the device, and the
            launch that each is, or -1.
    """

    thread: Int
    start: Int
    dur: Int
    of_activity: Int
    first_activity: Int
    blocking: tuple[Int, Int, Int, Int]

    @classmethod
    def of(cls, read: Read, wanted: Int, align: Callable[[Int], Int]) -> _QueuedLaunches:
        """Return those of a rank, by the `launch_id` of each activity."""
        table = read("launches")
        found = _numbers([table], _CALLS)
        ids = found.pop("launch_id")
        order = short(np.argsort(ids, kind="stable"))
        row = lookup(order, row_of(ids[order], wanted), -1)
        del ids
        thread = narrow(combine_keys(found.pop("pid"), found.pop("tid")))
        start, dur = align(found.pop("start_ns")), found["dur_ns"]
        used = values_of(row[row >= 0])
        used = short(used[np.argsort(start[used], kind="stable")])
        place = np.full_like(order, -1, shape=len(order) + 1)
        place[used] = np.arange(len(used))
        own = place[row]
        first = short(first_rows(own, len(used)))
        waits = np.flatnonzero(_blocks(_rows([table], ("name",))) & (dur > BLOCKED_NS))
        blocking = (thread[waits], start[waits], start[waits] + dur[waits], place[waits])
        return cls(thread[used], start[used], dur[used], own, first, blocking)


def _blocks(launches: pa.Table) -> Bool:
    code, names = code_column(launches, "name")
    codes = {at for at, cause in enumerate(CAUSES) if cause.name in BLOCKING}
    found: Bool = np.array([*(call_cause(name) in codes for name in names), False])[code]
    return found


def _edges(
    work: _QueuedWork,
    launches: _QueuedLaunches,
    times: tuple[Int, Int],
    awaited: tuple[Int, Int],
    woken: tuple[Int, Int, Int],
) -> EventEdges:
    """Return what each event waits for.

    Args:
        work: the activities.
        launches: what queued them.
        times: starts and ends of all events.
        awaited: activities that were waited for, and those that wait for them, by recorded waits.
        woken: the edges of `_woken`.
    """
    (start, end), first = times, 1 + len(launches.start)
    before, launch = _before_on(work.queue), launches.of_activity
    # A launch that was recorded as later than its activity is not used.
    good = (launch >= 0) & (start[1 + launch] <= start[first:])
    sources = [np.where(before >= 0, first + before, -1), np.where(good, 1 + launch, -1)]
    del before, good
    # Where the waiting activity began before the event ended, the event was recorded anew, or on
    # another clock.
    true = end[first + awaited[0]] <= start[first + awaited[1]]
    source, target = (first + column[true] for column in awaited)
    if work.queue.min() < work.queue.max():
        allowed = np.maximum(*(lookup(end, each, NO_STEP) for each in sources))
        np.maximum.at(allowed, target - first, end[source])
        waits = _waited_for(start[first:], end[first:], allowed, work.queue, work.issued)
        talks = has_text(work.rows(("category",)), "category", ("comm",))[work.order]
        ties = lookup(talks, waits, 0).astype(bool) != talks
        waits = np.where(waits >= 0, first + waits, -1)
        sources += [np.where(ties, -1, waits), np.where(ties, waits, -1)]
    noted = [(source, target, np.full(len(source), AWAITED)), woken]
    blocks: list[tuple[list[Int], Sequence[int]]] = [
        (sources, (FIFO, LAUNCHED, WAIT, COMM_WAIT)[: len(sources)]),
        (_host_sources(launches, launches.start + launches.dur), (HOST, HOST)),
    ]
    del sources
    return _by_target(blocks, noted)


def _by_target(
    blocks: list[tuple[list[Int], Sequence[int]]], noted: Sequence[tuple[Int, Int, Int]]
) -> EventEdges:
    """Return edges in order of the events that wait, and of their kinds.

    Args:
        blocks: of consecutive events after the root, the last ones first, which is emptied: for
            each kind of edge the source or -1.
        noted: further edges: sources, targets, kinds.
    """
    parts, kinds, counts = [], [], [short(np.zeros(1, np.int64))]
    while blocks:
        columns, names = blocks.pop()
        block = np.stack([short(column) for column in columns], axis=1).ravel()
        there, size = block >= 0, len(columns[0])
        del columns
        parts.append(block[there])
        kinds.append(np.tile(np.array(names, np.int8), size)[there])
        counts.append(np.add.reduce(there.reshape(size, len(names)).T.astype(np.int32)))
        del block, there
    source, count = np.concatenate(parts), np.concatenate(counts)
    del parts, counts
    at = np.cumsum(count, dtype=np.int32)
    more = [np.concatenate(columns) for columns in zip(*noted, strict=True)]
    np.add.at(count, more[1], 1)
    # Nothing is pinned to the clock: events without any other edge wait for the root.
    bare = 1 + np.flatnonzero(count[1:] == 0)
    count[bare] = 1
    more = [np.r_[more[0], 0 * bare], np.r_[more[1], bare], np.r_[more[2], 0 * bare + START]]
    rows = np.argsort(more[1], kind="stable")
    at = at[more[1][rows]]
    first = np.zeros_like(count, shape=len(count) + 1)
    np.cumsum(count, out=first[1:])
    return EventEdges(
        np.insert(source, at, more[0][rows]), first,
        np.insert(np.concatenate(kinds), at, more[2][rows]),
    )  # fmt: skip


def _before_on(lane: Int) -> Int:
    """Return of each event the one before it on its lane, -1 for the first; they are in order."""
    order = np.argsort(narrow(lane), kind="stable")
    before = short(np.full(len(lane), -1))
    same = lane[order[1:]] == lane[order[:-1]]
    before[order[1:][same]] = order[:-1][same]
    return before


def issued_of(activities: pa.Table) -> Int:
    """Return when each activity was launched; where that is not known, when it began."""
    issued = int_column(activities, "launch_ns", NO_STEP)
    return np.where(issued == NO_STEP, int_column(activities, "start_ns", 0), issued)


def _awaited(read: Read, work: _QueuedWork) -> tuple[Int, Int]:
    """Return the activities that were waited for by waits that were recorded, and those that wait.

    Work that is launched to a stream after the call that makes it wait for an event begins when the
    work that was launched to the other stream before the event was recorded has ended.
    """
    stalls = _rows([read("stalls")], ("kind", *_WAITS))
    chosen = stalls.filter(pa.array(has_text(stalls, "kind", ("stream_wait",))))
    found = _numbers([InMemory(chosen)], _WAITS)
    device, onto, other, waited, noted = found.values()
    if not len(other):
        return other, other
    calls = _numbers([read("launches")], _CALLED)
    order = np.argsort(calls["correlation_id"], kind="stable")
    called, begin = calls["correlation_id"][order], calls["start_ns"][order]
    waits_at, noted_at = (lookup(begin, row_of(called, each), NO_STEP) for each in (waited, noted))
    known = (waits_at != NO_STEP) & (noted_at != NO_STEP) & (other >= 0)
    rows = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    if known.any():
        places = (device[known], other[known], noted_at[known])
        rows[0] = _beside(work, *places, before=True)
        rows[1] = _beside(work, device[known], onto[known], waits_at[known], before=False)
    good = (rows[0] >= 0) & (rows[1] >= 0)
    source, target = np.unique(np.stack([rows[0][good], rows[1][good]]), axis=1)
    return source, target


def _beside(work: _QueuedWork, device: Int, stream: Int, time: Int, *, before: bool) -> Int:
    """Return the last activity launched to a stream before a time, or the first one after; -1."""
    issued, places = work.issued, work.rows(("device", "stream"))
    own, on = (int_column(places, name, -1)[work.order] for name in ("device", "stream"))
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


def _host_sources(launches: _QueuedLaunches, end: Int) -> list[Int]:
    before = _before_on(launches.thread)
    # Where another thread launched last, this one may have waited for it, as for backward.
    handed = np.full_like(before, -1)
    other = before[1:] != np.arange(len(before) - 1, dtype=np.int32)
    rows = 1 + np.flatnonzero(other & (end[:-1] <= launches.start[1:]))
    handed[rows] = rows
    return [np.where(before >= 0, 1 + before, -1), handed]


def _woken(launches: _QueuedLaunches, times: tuple[Int, Int], first: int) -> tuple[Int, Int, Int]:
    """Return the edges from the activity that released each thread after a call that blocked.

    A call that waited for its own copy ends here when it has queued that, at the latest after a
    short time: the rest of it is the wait, which the edge from the copy stands for.
    """
    thread, begin, finish, own = launches.blocking
    start, end = times[0][first:], times[1][first:]
    order = np.argsort(end, kind="stable")
    last = np.full(len(launches.start) + 1, -1)
    last[launches.of_activity[order]] = order
    last[-1] = -1  # activities without a launch wrote there
    woken = awaited_work(begin, finish, last[own], end)
    held = np.flatnonzero((woken >= 0) & (own >= 0))
    queued = np.minimum(begin[held] + BLOCKED_NS, start[woken[held]])
    times[1][1 + own[held]] = np.maximum(begin[held], queued)
    following = np.full(len(thread), -1)
    for each in values_of(thread).tolist():
        here = np.flatnonzero(launches.thread == each)
        mine = np.flatnonzero(thread == each)
        place = np.searchsorted(launches.start[here], finish[mine], "left")
        ok = place < len(here)
        following[mine[ok]] = here[place[ok]]
    good = (woken >= 0) & (following >= 0)
    good &= lookup(start, woken, 0) < lookup(launches.start, following, 0)
    return first + woken[good], 1 + following[good], np.full(int(good.sum()), SYNC)


def _of_members(members: pd.DataFrame, rank: int, align: Callable[[Int], Int]) -> RankGraph:
    """Return the graph of a rank without device: its collectives, one after another."""
    start = align(members["start_ns"].to_numpy(np.int64))
    starts = np.r_[0, start]
    ends = starts + np.r_[0, members["dur_ns"].to_numpy(np.int64)]
    starts[0] = ends[0] = int(start.min()) if len(start) else 0
    count, words = len(start), pa.array(["collective"] * len(start), pa.string())
    schema = TABLES["kernels"].schema((*LABELS, *ISSUED))
    known = {"start_ns": pa.array(start), "kernel_short": words.dictionary_encode()}
    named = [known.get(each.name, pa.nulls(count, each.type)) for each in schema]
    rows, kind = short(np.arange(count + 1) - 1), np.full(count, HOST)
    kind[:1] = START
    return RankGraph(
        rank, np.r_[np.int8(ROOT), np.full(count, MEMBER, np.int8)], starts, ends,
        EventEdges(rows[1:], np.maximum(np.r_[-1, rows] + 1, 0), kind),
        pa.Table.from_arrays(named, schema=schema).select,
        members["step"].fillna(NO_STEP).to_numpy(np.int64), rows, rows, np.minimum(rows + 1, 1),
    )  # fmt: skip
