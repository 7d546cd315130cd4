"""What each host thread was doing at an instant, as the recording shows it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from pyprof2.analysis.intervals import Bool, Int, Nest, last_not_after, merged
from pyprof2.analysis.linking.link import Threads
from pyprof2.analysis.time.causes import CODES, call_cause
from pyprof2.analysis.time.pieces import Bounds
from pyprof2.columns import TextColumn, lookup, row_of
from pyprof2.frames import frame_line, is_own_path, parse_frame
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

_LOADER: Final = "enumerate(DataLoader)#"
_USERS_LOADING: Final = re.compile(r"data(?!\W?_?parallel)", re.IGNORECASE)
_LOADER_CODE: Final = re.compile(r"(?:^|/)torch/utils/data/")
_COMMUNICATION: Final = re.compile(r"c10d::|record_param_comms|(?:gloo|mpi|nccl):")
_WAIT_CALL: Final = "StreamWaitEvent"
_NOT_WORK: Final = ("step", "marker")
"""Kinds of ranges that say nothing of what the host does at an instant."""


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
        """The events, sorted for look-ups: a `Nest` has closed intervals."""
        return Nest.of(self.thread, self.start, self.end - 1)

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
    """The calls of the GPU runtime and driver, in order of their ids."""

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
        """Read the canonical table `launches` of one rank, in order of `launch_id`."""
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

    def latest(self, among: Int, thread: Int, time: Int) -> Int:
        """Return the latest of some calls that each thread began not after a time; -1: none."""
        row = among[np.lexsort((self.start[among], self.thread[among]))]
        return lookup(row, last_not_after(self.thread[row], self.start[row], thread, time), -1)


class Lines:
    """The innermost line of the user's own that Python frames have, at any instant."""

    def __init__(self, ranges: pa.Table, threads: Threads, root: str | None) -> None:
        kind, kinds = code_column(ranges, "kind")
        code, names = code_column(ranges, "name")
        is_frame = kind == (kinds.index("python") if "python" in kinds else -2)
        self.texts = [frame_line(name) or "" for name in names]
        self._code = code
        self._frames = []
        for folder in dict.fromkeys((root, None)):
            own = [
                bool(line) and is_own_path(line.rpartition(":")[0], folder) for line in self.texts
            ]
            keep = is_frame & np.array([*own, False])[code]
            self._frames.append(Events.of(ranges, threads, keep))

    def at(self, thread: Int, time: Int) -> Int:
        """Return the line at each instant, as a code into `texts`; -1 where there is none."""
        found = np.full(len(time), -1)
        for frames in self._frames:
            rest = np.flatnonzero(found < 0)
            found[rest] = frames.at(thread[rest], time[rest])
        return lookup(self._code, found, -1)

    @property
    def events(self) -> list[Events]:
        """The frames that have a line of the user's own."""
        return self._frames


class State(NamedTuple):
    """What a thread does at instants: the cause, -1 for nothing recorded, and the rows of it."""

    cause: Int
    op: Int
    call: Int


class Host:
    """The host's side of one recording.

    Attributes:
        threads: their numbers.
        calls: of the GPU runtime and driver.
        lines: of Python frames.
        has_stacks: whether Python stacks were recorded, which slows the host down.
    """

    def __init__(self, tables: Mapping[str, pa.Table], root: str | None) -> None:
        """Read `launches`, `ops`, `ranges` and `stalls`, the first two in order of their ids."""
        ranges = tables["ranges"]
        self.threads = Threads.of([tables[n] for n in ("launches", "ops", "ranges", "stalls")])
        self.calls = Calls.of(tables["launches"], self.threads)
        self.lines = Lines(ranges, self.threads, root)
        kind, kinds = code_column(ranges, "kind")
        self.has_stacks = "python" in kinds and bool((kind == kinds.index("python")).any())
        self._called = Events.of(tables["launches"], self.threads)
        self._op_id = int_column(tables["ops"], "op_id", -1)
        self._ops = Events.of(tables["ops"], self.threads)
        code, names = code_column(tables["ops"], "op")
        self._op_is_comm = _marked(code, names, _COMMUNICATION.match)
        op_loads = _marked(code, names, is_loader)
        loads, comm = _kinds_of_ranges(ranges)
        self._loading = _together(
            Events.of(ranges, self.threads, loads), self._ops.where(op_loads[self._ops.row])
        )
        other = ~np.isin(kind, [kinds.index(k) for k in _NOT_WORK if k in kinds])
        self._comm = Events.of(ranges, self.threads, comm)
        self._python = Events.of(ranges, self.threads, other).union()
        self.first, self.last = self._reach(tables)

    def _reach(self, tables: Mapping[str, pa.Table]) -> tuple[Int, Int]:
        """Return by process the first start and the last end of what tells that it is at work."""
        ranges = tables["ranges"]
        step = pc.equal(ranges["kind"].cast("string"), "step").to_numpy()
        loader = _marked(*code_column(ranges, "name"), is_loader)
        count = len(self.threads.pids)
        first = np.full(count, np.iinfo(np.int64).max)
        last = np.full(count, np.iinfo(np.int64).min)
        for table in (tables["launches"], tables["ops"], ranges.filter(step | loader)):
            process = self.threads.process(self.threads.number(table))
            start = int_column(table, "start_ns", 0)
            np.minimum.at(first, process, start)
            np.maximum.at(last, process, start + int_column(table, "dur_ns", 0))
        return first, last

    @cached_property
    def bounds(self) -> Bounds:
        """The times at which the state of a thread may change."""
        events = (
            self._called,
            self._loading,
            self._ops,
            self._comm,
            self._python,
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
        begun = called.start + 1
        own = Nest.of(called.thread, begun, called.end).innermost(thread, time)
        process = self.threads.process(called.thread)
        other = Nest.of(process, begun, called.end).innermost(self.threads.process(thread), time)
        return lookup(called.row, np.where(own >= 0, own, other), -1)


def is_loader(name: str) -> bool:
    """Whether a range is the wait for a data loader's next batch."""
    return name.startswith(_LOADER)


def _marked(code: Int, names: Sequence[str], wanted: Callable[[str], object]) -> Bool:
    """Return which rows have a wanted name; asked once for each name."""
    return np.array([*(bool(wanted(name)) for name in names), False])[code]


def _kinds_of_ranges(ranges: pa.Table) -> tuple[Bool, Bool]:
    """Return which ranges load data, and which prepare communication."""
    kind, kinds = code_column(ranges, "kind")
    code, names = code_column(ranges, "name")
    is_note, is_frame = (
        kind == (kinds.index(k) if k in kinds else -2) for k in ("annotation", "python")
    )
    loads = is_note & _marked(code, names, lambda n: is_loader(n) or _USERS_LOADING.match(n))
    loads |= is_frame & _marked(code, names, is_loader_frame)
    return loads, is_note & _marked(code, names, _COMMUNICATION.match)


def loading_ranges(ranges: pa.Table) -> Bool:
    """Return which ranges load data: a loader's, its code's frames, the user's named `data…`."""
    return _kinds_of_ranges(ranges)[0]


def is_loader_frame(name: str) -> bool:
    """Whether a frame is code of PyTorch's data loader."""
    frame = parse_frame(name)
    return frame is not None and bool(_LOADER_CODE.search(frame[0].replace("\\", "/")))


def _together(*events: Events) -> Events:
    """Return all of the events; their rows are those of no table any more."""
    thread, start, end = (
        np.concatenate([getattr(e, name) for e in events]) for name in ("thread", "start", "end")
    )
    return Events(np.arange(len(thread)), thread, start, end)
