"""The state of each host thread at an instant, as the recording shows it, and what held it up.

A call may hand work over long before that runs. So where its line is and what it launched is found
for all calls beforehand, in order of time, and takes some bytes for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.chunked import ENDLESS, ChunkedTable
from pyprof2.analysis.intervals import Bool, Int, Nest, last_not_after, merged
from pyprof2.analysis.time.cause_names import BLOCKING, CODES, call_cause
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.host_ranges import (
    BELOW_ROOT,
    COMM,
    COMMUNICATION,
    FLAGGED,
    LOADS,
    OWN,
    RUNS,
    WAITS,
    is_loader,
)
from pyprof2.analysis.time.rows_in_time import RowsInTime
from pyprof2.analysis.time.slices import Bounds, IntervalSlices
from pyprof2.columns import TextColumn, combine_keys, lookup, row_of
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.threads import Threads
    from pyprof2.analysis.time.host_ranges import HostFacts

_WAIT_CALL: Final = "StreamWaitEvent"
CALL_COLUMNS: Final = ("launch_id", "name", "op_id", "start_ns", "dur_ns", "pid", "tid")
"""The columns of `launches` that calls are read from."""
_BLOCKING: Final = [CODES[name] for name in BLOCKING]
_ALL_THREADS: Final = -1
"""Stands for the thread of a stall that holds up all of them."""


@dataclass(frozen=True)
class Events:
    """Intervals of host threads, `[start, end)`, none of them empty.

    Attributes:
        row: of each in the table that it is from.
        thread: the number of its thread.
        start, end: in ns.
    """

    row: Int
    thread: Int
    start: Int
    end: Int

    @classmethod
    def of(cls, table: pa.Table, threads: Threads, keep: Bool | None = None) -> Events:
        """Read the rows of a table that `keep` marks, by default all."""
        start = int_column(table, "start_ns", 0)
        end = start + int_column(table, "dur_ns", 0)
        wanted = end > start if keep is None else (end > start) & keep
        row = np.flatnonzero(wanted)
        return cls(row, threads.number(table)[row], start[row], end[row])

    def where(self, keep: Bool) -> Events:
        """Return the events that `keep` marks."""
        return Events(self.row[keep], self.thread[keep], self.start[keep], self.end[keep])

    @cached_property
    def nest(self) -> Nest:
        """The events, sorted for look-ups."""
        return Nest.of(self.thread, self.start, self.end)

    def at(self, thread: Int, time: Int) -> Int:
        """Return the row of the innermost one of the thread that holds each instant, or -1."""
        return lookup(self.row, self.nest.innermost(thread, time), -1)

    def union(self) -> Events:
        """Return the events of each thread, where those that touch or overlap are one."""
        parts = []
        for thread in np.unique(self.thread).tolist():
            start, end = merged(
                *(column[self.thread == thread] for column in (self.start, self.end))
            )
            parts.append(np.stack((np.full(len(start), thread), start, end)))
        thread, start, end = np.concatenate([np.empty((3, 0), np.int64), *parts], axis=1)
        return Events(np.arange(len(thread)), thread, start, end)


class RuntimeCalls(NamedTuple):
    """The calls of the GPU runtime and driver, in order of their ids.

    Attributes:
        cause: the code of the cause that idle time inside of it has.
        is_wait: whether it lets a stream wait.
    """

    launch_id: Int
    thread: Int
    start: Int
    end: Int
    cause: Int
    is_wait: Bool
    op_id: Int
    name: TextColumn

    @classmethod
    def of(cls, launches: pa.Table, threads: Threads) -> RuntimeCalls:
        """Read rows of the canonical table `launches` of one rank, in order of `launch_id`."""
        code, names = code_column(launches, "name")
        start = int_column(launches, "start_ns", 0)
        of_name = np.array([*map(call_cause, names), CODES["runtime_call"]])
        is_wait = np.array([*(_WAIT_CALL in name for name in names), False])
        return cls(
            int_column(launches, "launch_id", -1),
            threads.number(launches),
            start,
            start + np.maximum(0, int_column(launches, "dur_ns", 0)),
            of_name[code],
            is_wait[code],
            int_column(launches, "op_id", -1),
            (code, names),
        )


class Lines:
    """The innermost line of the user's own that Python frames have, at any instant."""

    def __init__(self, ranges: pa.Table, threads: Threads) -> None:
        """Read rows of `host_ranges.FLAGGED`."""
        flags, self._code = (int_column(ranges, name, 0) for name in ("flags", "line"))
        self.events: Final = [
            Events.of(ranges, threads, flags & bit > 0) for bit in (BELOW_ROOT, OWN)
        ]
        """The frames that have a line of the user's own, the first ones below the root."""

    def at(self, thread: Int, time: Int) -> Int:
        """Return the line at each instant, as a code into `HostFacts.lines`; -1 for none."""
        found = np.full(len(time), -1)
        for frames in self.events:
            rest = np.flatnonzero(found < 0)
            found[rest] = frames.at(thread[rest], time[rest])
        return lookup(self._code, found, -1)


class State(NamedTuple):
    """The states of threads at instants: the cause, -1 for nothing recorded, and the rows of it."""

    cause: Int
    op: Int
    call: Int


class Host:
    """The host in a window of time of one recording: what each thread did.

    Attributes:
        facts: what holds of the whole recording.
        threads: their numbers.
        calls: of the GPU runtime and driver.
        known: of the calls, what they do with the rest of the recording.
        lines: of Python frames.
        waiting: the Python frames in which a thread waits for another thread or a process.
    """

    def __init__(
        self, facts: HostFacts, launches: pa.Table, ops: pa.Table, ranges: pa.Table,
        known: CallFacts,
    ) -> None:  # fmt: skip
        """Read the rows of the window: what holds any of its instants, and more if need be.

        Args:
            facts: of the recording.
            launches: rows of the canonical table, in order of their ids.
            ops: the same.
            ranges: rows of `host_ranges.FLAGGED`.
            known: of all calls of the recording.
        """
        self.facts, self.threads = facts, facts.threads
        self.calls = RuntimeCalls.of(launches, self.threads)
        self.known = known.of(self.calls.launch_id)
        self.lines = Lines(ranges, self.threads)
        self._called = Events.of(launches, self.threads)
        self._op_id = int_column(ops, "op_id", -1)
        self._ops = Events.of(ops, self.threads)
        code, names = code_column(ops, "op")
        self._op_is_comm = _marked(code, names, COMMUNICATION.match)
        op_loads = _marked(code, names, is_loader)
        flags = int_column(ranges, "flags", 0)
        loads, self._comm, runs, self.waiting = (
            Events.of(ranges, self.threads, flags & bit > 0) for bit in (LOADS, COMM, RUNS, WAITS)
        )
        self._loading = _together(loads, self._ops.where(op_loads[self._ops.row]))
        self._python = runs.union()

    @cached_property
    def launching(self) -> Int:
        """The rows of the calls that launched any work, in the whole recording."""
        return np.flatnonzero(self.known.launching)

    @cached_property
    def bounds(self) -> Bounds:
        """The times at which the state of a thread may change."""
        events = (
            self._called,
            self._loading,
            self._ops,
            self._comm,
            self._python,
            self.waiting,
            *self.lines.events,
        )
        both = [(e.thread, e.thread, e.start, e.end) for e in events]
        return Bounds(
            np.concatenate([c for thread, again, _, _ in both for c in (thread, again)]),
            np.concatenate([c for _, _, start, end in both for c in (start, end)]),
        )

    @cached_property
    def busy_threads(self) -> Int:
        """The threads that do anything that is recorded, by process and then in order of tid."""
        events = (self._called, self._loading, self._ops, self._python)
        return np.unique(np.concatenate([e.thread for e in events]))

    def op_row(self, op_id: Int) -> Int:
        """Return the row of each op; -1 for -1."""
        return row_of(self._op_id, op_id)

    def state(self, thread: Int, time: Int) -> State:
        """Return what each thread does at an instant: in a call, loading, in an op, in Python."""
        call, op = self._called.at(thread, time), self._ops.at(thread, time)
        loads = self._loading.at(thread, time) >= 0
        comm = np.where(op >= 0, lookup(self._op_is_comm, op, 0), self._comm.at(thread, time) >= 0)
        conditions = {
            "data_loading": loads,
            "host_comm": comm > 0,
            "host_op": op >= 0,
            "host_python": self._python.at(thread, time) >= 0,
        }
        causes = [CODES[name] for name in conditions]
        cause = np.select(list(conditions.values()), causes, -1)
        return State(np.where(call >= 0, lookup(self.calls.cause, call, -1), cause), op, call)

    def states_in(
        self, slices: IntervalSlices, thread: Int
    ) -> tuple[IntervalSlices, State, Int, IntervalSlices]:
        """Return what threads do in slices of intervals.

        Args:
            slices: of the intervals.
            thread: of each interval; -1 for none.

        Returns:
            The slices in which the thread does anything that is recorded, its state and its line in
            each, and the slices that are left.
        """
        mine = thread[slices.of] >= 0
        rest, slices = slices.where(~mine), slices.where(mine)
        slices = slices.cut(self.bounds, thread[slices.of])
        at = thread[slices.of]
        state = self.state(at, slices.start)
        seen = state.cause >= 0
        line = self.lines.at(at[seen], slices.start[seen])
        rest = IntervalSlices.joined([rest, slices.where(~seen)])
        return slices.where(seen), State(*(column[seen] for column in state)), line, rest

    def blocked(self, thread: Int, time: Int, classes: Sequence[str]) -> Int:
        """Return the call of these classes that began before each time and ended not before it.

        That of the thread itself, else of any thread of its process: the one that began last; -1
        for none.
        """
        wanted = np.isin(self.calls.cause[self._called.row], [CODES[name] for name in classes])
        called = self._called.where(wanted)
        begun, over = called.start + 1, called.end + 1
        own = Nest.of(called.thread, begun, over).innermost(thread, time)
        process = self.threads.process(called.thread)
        other = Nest.of(process, begun, over).innermost(self.threads.process(thread), time)
        return lookup(called.row, np.where(own >= 0, own, other), -1)


def _marked(code: Int, names: Sequence[str], wanted: Callable[[str], object]) -> Bool:
    """Return which rows have a wanted name; asked once for each name."""
    return np.array([*(bool(wanted(name)) for name in names), False])[code]


def _together(*events: Events) -> Events:
    """Return all of the events; their rows are those of no table any more."""
    thread, start, end = (
        np.concatenate([getattr(e, name) for e in events]) for name in ("thread", "start", "end")
    )
    return Events(np.arange(len(thread)), thread, start, end)


@dataclass(frozen=True)
class CallFacts:
    """By call: rows are ids, or those of the calls that were chosen.

    Attributes:
        launching: whether it launched any work.
        waited: of those, whether its thread asked for a wait since it launched any before.
        line: of those and the ones that may block, the line of the user's own that its thread was
            at when it began, as a code, -1 for none.
    """

    launching: Bool
    waited: Bool
    line: NDArray[np.int32]

    @classmethod
    def of_launches(cls, launching: Bool) -> CallFacts:
        """Begin with the ids of the calls that launched work."""
        return cls(launching, np.zeros(len(launching), bool), np.full(len(launching), -1, np.int32))

    def of(self, launch_id: Int) -> CallFacts:
        """Return what is known of some calls."""
        return CallFacts(self.launching[launch_id], self.waited[launch_id], self.line[launch_id])

    def at(self, column: str, row: Int) -> Int:
        """Return a column at these rows; of row -1 nothing is known, and no line."""
        return lookup(getattr(self, column), row, -1 if column == "line" else 0)


def read_calls(launches: ChunkedTable, launching: Bool, facts: HostFacts) -> CallFacts:
    """Return the facts about all calls.

    Args:
        launches: the canonical table.
        launching: by id whether a call launched work; longer than the greatest id.
        facts: of the recording.
    """
    found = CallFacts.of_launches(launching)
    rows, ranges = RowsInTime(launches, CALL_COLUMNS), RowsInTime(facts.flagged, FLAGGED.names)
    waits = _Waits(len(facts.threads.pids) * len(facts.threads.tids))
    begins = np.unique(launches.bounds("start_ns")[0])
    for until in [*begins[begins < ENDLESS].tolist(), ENDLESS]:
        calls = RuntimeCalls.of(rows.take_until(until).unify_dictionaries(), facts.threads)
        if not len(calls.start):
            continue
        launches_work = launching[calls.launch_id]
        own = np.flatnonzero(launches_work)
        found.waited[calls.launch_id[own]] = waits.between(calls, own)
        if facts.lines:
            asked = np.flatnonzero(launches_work | np.isin(calls.cause, _BLOCKING))
            lines = _lines_at(ranges, calls.start, facts)
            found.line[calls.launch_id[asked]] = lines.at(calls.thread[asked], calls.start[asked])
    return found


def _lines_at(ranges: RowsInTime, times: Int, facts: HostFacts) -> Lines:
    """Return the lines at some times; what ended before them is held no longer."""
    since = int(times.min())

    def wanted(rows: pa.Table) -> Bool:
        start, dur, flags = (int_column(rows, n, 0) for n in ("start_ns", "dur_ns", "flags"))
        found: Bool = (flags & (BELOW_ROOT | OWN) > 0) & (start + dur > since)
        return found

    ranges.keep(wanted(ranges.rows))
    return Lines(ranges.read_until(int(times.max()) + 1, wanted), facts.threads)


class _Waits:
    """The calls of each thread that let a stream wait, window by window."""

    def __init__(self, thread_count: int) -> None:
        self._last_wait = np.full(thread_count, NEVER)
        self._last_launch = np.full(thread_count, NEVER)

    def between(self, calls: RuntimeCalls, own: Int) -> Bool:
        """Return whether there is a wait between a launch and the one before it on its thread.

        Args:
            calls: those of a window; calls of later ones begin later.
            own: the rows of those that launched work.
        """
        begin, waiting = calls.start[own], np.flatnonzero(calls.is_wait)
        wait = _latest(self._last_wait, calls, waiting, own, begin)
        launch = _latest(self._last_launch, calls, own, own, begin - 1)
        for last, rows in ((self._last_wait, waiting), (self._last_launch, own)):
            np.maximum.at(last, calls.thread[rows], calls.start[rows])
        found: Bool = (wait > NEVER) & (wait >= launch)
        return found


def _latest(before: Int, calls: RuntimeCalls, among: Int, of: Int, time: Int) -> Int:
    """Return the latest start of some calls on the threads of others, not after a time."""
    row = among[np.lexsort((calls.start[among], calls.thread[among]))]
    thread = calls.thread[of]
    at = last_not_after(calls.thread[row], calls.start[row], thread, time)
    return np.where(at >= 0, lookup(calls.start[row], at, NEVER), before[thread])


class Stalls:
    """The stalls of one recording, by kind."""

    def __init__(self, stalls: pa.Table, threads: Threads) -> None:
        self._stalls = stalls
        is_threads = int_column(stalls, "tid", NEVER) != NEVER
        thread = np.where(is_threads, threads.number(stalls), _ALL_THREADS)
        device = int_column(stalls, "device", NEVER)
        of_device = has_text(stalls, "kind", ("device_wait",))
        self._devices = np.unique(device[of_device])
        self._first_free = int(thread.max(initial=-1)) + 1
        thread[of_device] = self.device_thread(device[of_device])
        events = Events.of(stalls, threads)
        self._events = Events(events.row, thread[events.row], events.start, events.end)
        place = np.stack([int_column(stalls, name, NEVER) for name in ("device", "stream")])
        start = int_column(stalls, "start_ns", 0)
        rows = np.flatnonzero(has_text(stalls, "kind", ("stream_wait",)))
        order = rows[np.lexsort((start[rows], *place[::-1, rows]))]
        self._wait_place, self._wait_start = place[:, order], start[order]
        self._held: dict[str, tuple[Events, Bounds]] = {}

    def _holding(self, kind: str) -> tuple[Events, Bounds]:
        """Return the stalls of a kind that hold threads up, and when they begin and end."""
        if kind not in self._held:
            events = self._events.where(has_text(self._stalls, "kind", (kind,))[self._events.row])
            both = np.concatenate((events.start, events.end))
            self._held[kind] = events, Bounds(np.tile(events.thread, 2), both)
        return self._held[kind]

    def device_thread(self, device: Int) -> Int:
        """Return what stands for the thread of the waits of each device: no thread of a stall."""
        at = np.searchsorted(self._devices, device)
        known = np.r_[self._devices, NEVER][at] == device
        return self._first_free + np.where(known, at, len(self._devices))

    def cut(self, slices: IntervalSlices, thread: Int, kind: str) -> IntervalSlices:
        """Return the slices, cut where stalls of the kind begin and end on their thread.

        Args:
            slices: of intervals.
            thread: of each interval.
            kind: of the stalls.
        """
        _, bounds = self._holding(kind)
        slices = slices.cut(bounds, thread[slices.of])
        return slices.cut(bounds, np.full(len(slices), _ALL_THREADS))

    def holds(self, thread: Int, time: Int, kind: str) -> Bool:
        """Return whether a stall of the kind holds each thread up at an instant."""
        events, _ = self._holding(kind)
        held: Bool = events.at(thread, time) >= 0
        return held | (events.at(np.full(len(time), _ALL_THREADS), time) >= 0)

    def last_wait(self, device: Int, stream: Int, time: Int) -> Int:
        """Return when the last wait of each stream before a time was asked for, or long ago."""
        count = len(self._wait_start)
        if not count:
            return np.full(len(time), NEVER)
        devices, streams = np.concatenate((self._wait_place, np.stack((device, stream))), axis=1)
        key = combine_keys(devices, streams)  # sorts as both do, as the waits are
        start = self._wait_start
        return lookup(start, last_not_after(key[:count], start, key[count:], time), NEVER)
