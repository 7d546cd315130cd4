"""Facts about the host from ranges: where it loads data or communicates, and which lines it is at.

It is found in one pass over each table, part by part, before any window of time is looked at. Where
Python stacks are recorded most ranges are frames, more than there are ops. A range that says only
that Python ran, as of the frames those that are neither the user's own nor a data loader's, is one
with all such that it touches or overlaps on its thread.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.chunked import InMemory, chunks_of
from pyprof2.analysis.intervals import merged
from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.analysis.time.step_windows import only_steps
from pyprof2.columns import combine_keys, distinct
from pyprof2.frames import frame_line, is_own_path, parse_frame
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int

    Spool: TypeAlias = Callable[[pa.Schema, Iterator[pa.Table]], ChunkedTable]
    """Keeps parts that come one by one, of numbers, until each is read again."""

COLUMNS: Final = ("start_ns", "dur_ns", "pid", "tid", "name", "kind")
"""The columns of the canonical table `ranges` that this takes."""
FLAGGED: Final = pa.schema(
    [(name, pa.int64()) for name in ("start_ns", "dur_ns", "pid", "tid")]
    + [("flags", pa.int32()), ("line", pa.int32())]
)
"""Ranges by what they say of the host; a process or thread that is not known is `NO_ID`."""

LOADS, COMM, RUNS, BELOW_ROOT, OWN, AT_WORK, FRAME, WAITS = (1 << bit for bit in range(8))
"""Flags of a range: the host loads data; prepares communication; runs anything; is at a line below
the root of the user's own code, or of the user's own by its path; the process is at work; Python
stacks were recorded; the thread waits for another one or a process."""
_OF_AN_INSTANT: Final = LOADS | COMM | RUNS | BELOW_ROOT | OWN | WAITS

COMMUNICATION: Final = re.compile(r"c10d::|record_param_comms|(?:gloo|mpi|nccl):")
_LOADER: Final = "enumerate(DataLoader)#"
_USERS_LOADING: Final = re.compile(r"data(?!\W?_?parallel)", re.IGNORECASE)
_LOADER_CODE: Final = re.compile(r"(?:^|/)torch/utils/data/")
_WAITING: Final = re.compile(
    r"<built-in (?:method|function) (?:acquire|wait\w*|poll|select|join|recv\w*|accept) |"
    r"<built-in (?:method|function) get of _queue|<built-in function (?:wait\w*|select)>"
)
"""Python's own functions that return when another thread or process has done something."""
_NOT_WORK: Final = ("step", "marker")
"""Kinds of ranges that say nothing of what the host does at an instant."""
_EVENT: Final = ("start_ns", "dur_ns", "pid", "tid")
_SLICE: Final = 1 << 15
"""How many ranges are looked at in one go, where a part of the table has more."""


class HostRanges:
    """Reads what ranges say of the host; each distinct text is looked at once.

    Attributes:
        lines: `path:line` of the frames that have one of the user's own, by code; a text for each
            frame, so that two functions at one line stay two.
    """

    def __init__(self, root: str | None) -> None:
        """Begin without ranges; `root` is the folder of the user's own code."""
        self._root = root
        self._known: dict[tuple[str | None, str], tuple[int, int]] = {}
        self._line_of: dict[str, int] = {}
        self.lines: list[str] = []

    def flags(self, ranges: pa.Table) -> tuple[Int, Int]:
        """Return the flags of each range, and its line as a code, -1 for none."""
        (kind, kinds), (name, names) = (code_column(ranges, c) for c in ("kind", "name"))
        key = (kind.astype(np.int64) + 1) * (len(names) + 1) + name + 1
        used, place = distinct(key)
        kinds_by_key, names_by_key = [None, *kinds], ["", *names]
        pairs = [divmod(each, len(names) + 1) for each in used.tolist()]
        found = [self._of(kinds_by_key[kind], names_by_key[name]) for kind, name in pairs]
        bits, line = np.array(found, np.int64).reshape(-1, 2).T
        return bits[place], line[place]

    def _of(self, kind: str | None, name: str) -> tuple[int, int]:
        if (kind, name) not in self._known:
            bits = 0 if kind in _NOT_WORK else RUNS
            bits |= AT_WORK if kind == "step" or is_loader(name) else 0
            if kind == "annotation":
                bits |= LOADS if is_loader(name) or _USERS_LOADING.match(name) else 0
                bits |= COMM if COMMUNICATION.match(name) else 0
            if kind == "python":
                bits |= FRAME | (LOADS if is_loader_frame(name) else 0)
                bits |= (WAITS if _WAITING.match(name) else 0) | _is_own(name, self._root)
            line = -1
            if bits & (BELOW_ROOT | OWN):
                line = self._line_of.setdefault(name, len(self.lines))
                if line == len(self.lines):
                    self.lines.append(frame_line(name) or "")
            self._known[kind, name] = bits, line
        return self._known[kind, name]

    def read(self, ranges: pa.Table, flags: Int, line: Int) -> pa.Table:
        """Return what ranges say of instants, as `FLAGGED`.

        Args:
            ranges: columns `COLUMNS` of the canonical table, or of a part of it.
            flags: of each, see `flags`.
            line: of each, see `flags`.

        Returns:
            First the ranges that say more than that the host ran, in their order, then the others,
            merged.
        """
        start, dur, pid, tid = (
            int_column(ranges, name, missing)
            for name, missing in zip(COLUMNS[:4], (0, 0, NO_ID, NO_ID), strict=True)
        )
        flags = np.where(dur > 0, flags & _OF_AN_INSTANT, 0)
        rows = np.flatnonzero((flags != 0) & (flags != RUNS))
        more = (start[rows], dur[rows], pid[rows], tid[rows], flags[rows], line[rows])
        plain = _merged(flags == RUNS, start, dur, pid, tid)
        only_run = (*plain, np.full(len(plain[0]), RUNS), np.full(len(plain[0]), -1))
        columns = [np.concatenate(both) for both in zip(more, only_run, strict=True)]
        arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, FLAGGED, strict=True)]
        return pa.Table.from_arrays(arrays, schema=FLAGGED)


def _is_own(name: str, root: str | None) -> int:
    line = frame_line(name)
    if not line:
        return 0
    path = line.rpartition(":")[0]
    below = root is not None and is_own_path(path, root)
    return (BELOW_ROOT if below else 0) | (OWN if is_own_path(path, None) else 0)


def loading_ranges(ranges: pa.Table) -> Bool:
    """Return which ranges load data: a loader's, its code's frames, the user's named `data…`."""
    found: Bool = HostRanges(None).flags(ranges)[0] & LOADS > 0
    return found


def is_loader(name: str) -> bool:
    """Whether a range is the wait for a data loader's next batch."""
    return name.startswith(_LOADER)


def is_loader_frame(name: str) -> bool:
    """Whether a frame is code of PyTorch's data loader."""
    frame = parse_frame(name)
    return frame is not None and bool(_LOADER_CODE.search(frame[0].replace("\\", "/")))


def _merged(chosen: Bool, start: Int, dur: Int, pid: Int, tid: Int) -> tuple[Int, Int, Int, Int]:
    """Return start, length, process and thread of what the chosen ranges of each thread cover."""
    rows = np.flatnonzero(chosen)
    start, dur, pid, tid = (column[rows] for column in (start, dur, pid, tid))
    thread = combine_keys(pid, tid)
    parts = [np.empty((4, 0), np.int64)]
    for each in np.unique(thread).tolist():
        own = np.flatnonzero(thread == each)
        begin, end = merged(start[own], start[own] + dur[own])
        of = [np.full(len(begin), ids[own[0]]) for ids in (pid, tid)]
        parts.append(np.stack((begin, end - begin, *of)))
    begin, length, of_pid, of_tid = np.concatenate(parts, axis=1)
    return begin, length, of_pid, of_tid


def in_memory(schema: pa.Schema, parts: Iterator[pa.Table]) -> ChunkedTable:
    """Keep parts where they are."""
    return InMemory(schema.empty_table(), *parts)


@dataclass(frozen=True)
class HostFacts:
    """Facts about the host that hold for a whole recording.

    Attributes:
        threads: their numbers.
        first, last: by process the first start and the last end of what shows that it is at work.
        has_stacks: whether Python stacks were recorded, which slows the host down.
        lines: `path:line` of frames, by code.
        flagged: the ranges, as `FLAGGED`.
        steps: the ranges that are steps.
    """

    threads: Threads
    first: Int
    last: Int
    has_stacks: bool
    lines: Sequence[str]
    flagged: ChunkedTable
    steps: pa.Table


def read_host(
    tables: Mapping[str, ChunkedTable], stalls: pa.Table, root: str | None, spool: Spool
) -> HostFacts:
    """Read `launches`, `ops` and `ranges`.

    Args:
        tables: these.
        stalls: the canonical table.
        root: the folder of the user's own code.
        spool: keeps what ranges say of the host.
    """
    reader = _HostReader(root)
    ranges = (
        part.slice(at, _SLICE)
        for part in chunks_of(tables["ranges"], COLUMNS)
        for at in range(0, part.num_rows, _SLICE)
    )
    flagged = spool(FLAGGED, map(reader.range_part, ranges))
    for name in ("launches", "ops"):
        for part in chunks_of(tables[name], _EVENT):
            reader.event_part(part)
    threads = reader.threads(stalls)
    first, last = reader.reach(threads)
    steps = pa.concat_tables([tables["ranges"].empty(COLUMNS), *reader.steps])
    return HostFacts(
        threads, first, last, reader.has_stacks, reader.ranges.lines, flagged,
        steps.unify_dictionaries(),
    )  # fmt: skip


class _HostReader:
    """Reads the parts of the tables one after another, and keeps the facts about all of them."""

    def __init__(self, root: str | None) -> None:
        self.ranges = HostRanges(root)
        self.steps: list[pa.Table] = []
        self.has_stacks = False
        self._pids: set[int] = set()
        self._tids: set[int] = set()
        self._reach: dict[int, tuple[int, int]] = {}

    def range_part(self, part: pa.Table) -> pa.Table:
        """Read ranges; return what they say of instants."""
        flags, line = self.ranges.flags(part)
        self.has_stacks |= bool((flags & FRAME).any())
        self.steps.append(only_steps(part))
        self._take(part, flags & AT_WORK > 0)
        return self.ranges.read(part, flags, line)

    def event_part(self, part: pa.Table) -> None:
        """Read launches or ops, each of which shows that its process is at work."""
        self._take(part, np.ones(part.num_rows, bool))

    def _take(self, part: pa.Table, at_work: Bool) -> None:
        for found, name in ((self._pids, "pid"), (self._tids, "tid")):
            found.update(pc.unique(part[name]).fill_null(NO_ID).to_pylist())
        start, dur, pid = (
            int_column(part, name, missing)[at_work]
            for name, missing in (("start_ns", 0), ("dur_ns", 0), ("pid", NO_ID))
        )
        values, place = distinct(pid)
        first, last = np.full((2, len(values)), np.iinfo(np.int64).max)
        np.minimum.at(first, place, start)
        np.minimum.at(last, place, -(start + dur))
        for each, begin, end in zip(values.tolist(), first.tolist(), last.tolist(), strict=True):
            known = self._reach.get(each, (begin, -end))
            self._reach[each] = min(begin, known[0]), max(-end, known[1])

    def threads(self, stalls: pa.Table) -> Threads:
        """Return the threads of what was read, and those of stalls."""
        own = Threads.of([stalls])
        pids, tids = (
            np.array(sorted(found.union(more.tolist())), np.int64)
            for found, more in ((self._pids, own.pids), (self._tids, own.tids))
        )
        return Threads(pids, tids)

    def reach(self, threads: Threads) -> tuple[Int, Int]:
        """Return by process the first start and the last end of what was read."""
        first = np.full(len(threads.pids), np.iinfo(np.int64).max)
        last = np.full(len(threads.pids), np.iinfo(np.int64).min)
        for pid, (begin, end) in self._reach.items():
            at = int(np.searchsorted(threads.pids, pid))
            first[at], last[at] = begin, end
        return first, last
