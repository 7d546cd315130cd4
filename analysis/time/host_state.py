"""What each host thread was doing at an instant, as the recording shows it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, Nest, merged
from pyprof2.analysis.time.causes import CODES, call_cause
from pyprof2.analysis.time.host_ranges import (
    BELOW_ROOT,
    COMM,
    COMMUNICATION,
    LOADS,
    OWN,
    RUNS,
    WAITS,
    is_loader,
)
from pyprof2.analysis.time.pieces import Bounds
from pyprof2.columns import TextColumn, lookup, row_of
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from pyprof2.analysis.linking.threads import Threads
    from pyprof2.analysis.time.call_facts import CallFacts
    from pyprof2.analysis.time.host_facts import HostFacts

_WAIT_CALL: Final = "StreamWaitEvent"


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


class Calls(NamedTuple):
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
    def of(cls, launches: pa.Table, threads: Threads) -> Calls:
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

    def __init__(self, told: pa.Table, threads: Threads) -> None:
        """Read rows of `host_ranges.TOLD`."""
        tells, self._code = (int_column(told, name, 0) for name in ("tells", "line"))
        self.events: Final = [
            Events.of(told, threads, tells & bit > 0) for bit in (BELOW_ROOT, OWN)
        ]
        """The frames that have a line of the user's own, the first ones below the root."""

    def at(self, thread: Int, time: Int) -> Int:
        """Return the line at each instant, as a code into `texts`; -1 where there is none."""
        found = np.full(len(time), -1)
        for frames in self.events:
            rest = np.flatnonzero(found < 0)
            found[rest] = frames.at(thread[rest], time[rest])
        return lookup(self._code, found, -1)


class State(NamedTuple):
    """What a thread does at instants: the cause, -1 for nothing recorded, and the rows of it."""

    cause: Int
    op: Int
    call: Int


class Host:
    """What the host did in a window of time of one recording.

    Attributes:
        facts: what holds of the whole recording.
        threads: their numbers.
        calls: of the GPU runtime and driver.
        known: of the calls, what they do with the rest of the recording.
        lines: of Python frames.
        waiting: the Python frames in which a thread waits for another thread or a process.
    """

    def __init__(
        self, facts: HostFacts, launches: pa.Table, ops: pa.Table, told: pa.Table, known: CallFacts
    ) -> None:
        """Read the rows of the window: what holds any of its instants, and more if need be.

        Args:
            facts: of the recording.
            launches: rows of the canonical table, in order of their ids.
            ops: the same.
            told: rows of `host_ranges.TOLD`.
            known: of all calls of the recording.
        """
        self.facts, self.threads = facts, facts.threads
        self.calls = Calls.of(launches, self.threads)
        self.known = known.of(self.calls.launch_id)
        self.lines = Lines(told, self.threads)
        self._called = Events.of(launches, self.threads)
        self._op_id = int_column(ops, "op_id", -1)
        self._ops = Events.of(ops, self.threads)
        code, names = code_column(ops, "op")
        self._op_is_comm = _marked(code, names, COMMUNICATION.match)
        op_loads = _marked(code, names, is_loader)
        tells = int_column(told, "tells", 0)
        loads, comm, runs, self.waiting = (
            Events.of(told, self.threads, tells & bit > 0) for bit in (LOADS, COMM, RUNS, WAITS)
        )
        self._loading = _together(loads, self._ops.where(op_loads[self._ops.row]))
        self._comm = comm
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
