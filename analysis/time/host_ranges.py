"""What ranges tell of the host: where it loads data or communicates, and which lines it is at.

Where Python stacks are recorded most ranges are frames, more than there are ops. A range that tells
only that Python ran, as of the frames those that are neither the user's own nor a data loader's, is
one with all such that it touches or overlaps on its thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import merged
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import combine_keys, distinct
from pyprof2.frames import frame_line, is_own_path, parse_frame
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int

COLUMNS: Final = ("start_ns", "dur_ns", "pid", "tid", "name", "kind")
"""The columns of the canonical table `ranges` that this takes."""
TOLD: Final = pa.schema(
    [(name, pa.int64()) for name in ("start_ns", "dur_ns", "pid", "tid")]
    + [("tells", pa.int32()), ("line", pa.int32())]
)
"""What it returns; a process or thread that is not known is `NO_ID`."""

LOADS, COMM, RUNS, BELOW_ROOT, OWN, AT_WORK, FRAME, WAITS = (1 << bit for bit in range(8))
"""What a range may tell: the host loads data; prepares communication; runs anything; is at a line
below the root of the user's own code, or of the user's own by its path; the process is at work;
Python stacks were recorded; the thread waits for another one or a process."""
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


class HostRanges:
    """Reads ranges as what they tell; asked once for each text.

    Attributes:
        lines: `path:line` of the frames that have one of the user's own, by code; a text for each
            frame, so that two functions at one line stay two.
    """

    def __init__(self, root: str | None) -> None:
        """Begin without ranges; `root` is the folder of the user's own code."""
        self._root = root
        self._known: dict[tuple[str | None, str | None], tuple[int, int]] = {}
        self._line_of: dict[str, int] = {}
        self.lines: list[str] = []

    def tells(self, ranges: pa.Table) -> tuple[Int, Int]:
        """Return what each range tells, and its line as a code, -1 for none."""
        (kind, kinds), (name, names) = (code_column(ranges, c) for c in ("kind", "name"))
        key = (kind.astype(np.int64) + 1) * (len(names) + 1) + name + 1
        used, place = distinct(key)
        words: tuple[list[str | None], list[str | None]] = ([None, *kinds], [None, *names])
        pairs = [divmod(each, len(names) + 1) for each in used.tolist()]
        found = [self._of(words[0][of_kind], words[1][of_name]) for of_kind, of_name in pairs]
        bits, line = np.array(found, np.int64).reshape(-1, 2).T
        return bits[place], line[place]

    def _of(self, kind: str | None, name: str | None) -> tuple[int, int]:
        if (kind, name) not in self._known:
            bits = _tells(kind, name or "")
            bits |= _is_own(name or "", self._root) if kind == "python" else 0
            line = -1
            if bits & (BELOW_ROOT | OWN):
                line = self._line_of.setdefault(name or "", len(self.lines))
                if line == len(self.lines):
                    self.lines.append(frame_line(name or "") or "")
            self._known[kind, name] = bits, line
        return self._known[kind, name]

    def read(self, ranges: pa.Table, told: tuple[Int, Int]) -> pa.Table:
        """Return what ranges tell of instants, as `TOLD`.

        Args:
            ranges: columns `COLUMNS` of the canonical table, or of a part of it.
            told: what `tells` gives of them.

        Returns:
            First the ranges that tell more than that the host ran, in their order, then the others,
            merged.
        """
        tells, line = told
        start, dur, pid, tid = (
            int_column(ranges, name, missing)
            for name, missing in zip(COLUMNS[:4], (0, 0, NO_ID, NO_ID), strict=True)
        )
        tells = np.where(dur > 0, tells & _OF_AN_INSTANT, 0)
        rows = np.flatnonzero((tells != 0) & (tells != RUNS))
        more = (start[rows], dur[rows], pid[rows], tid[rows], tells[rows], line[rows])
        plain = _merged(tells == RUNS, start, dur, pid, tid)
        only_run = (*plain, np.full(len(plain[0]), RUNS), np.full(len(plain[0]), -1))
        columns = [np.concatenate(both) for both in zip(more, only_run, strict=True)]
        arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, TOLD, strict=True)]
        return pa.Table.from_arrays(arrays, schema=TOLD)


def _tells(kind: str | None, name: str) -> int:
    """Return what a range tells by kind and name, without the lines of its code."""
    bits = 0 if kind in _NOT_WORK else RUNS
    if kind == "annotation":
        bits |= LOADS if is_loader(name) or _USERS_LOADING.match(name) else 0
        bits |= COMM if COMMUNICATION.match(name) else 0
    if kind == "python":
        bits |= FRAME | (LOADS if is_loader_frame(name) else 0)
        bits |= WAITS if _WAITING.match(name) else 0
    return bits | (AT_WORK if kind == "step" or is_loader(name) else 0)


def _is_own(name: str, root: str | None) -> int:
    line = frame_line(name)
    if not line:
        return 0
    path = line.rpartition(":")[0]
    below = root is not None and is_own_path(path, root)
    return (BELOW_ROOT if below else 0) | (OWN if is_own_path(path, None) else 0)


def loading_ranges(ranges: pa.Table) -> Bool:
    """Return which ranges load data: a loader's, its code's frames, the user's named `data…`."""
    found: Bool = HostRanges(None).tells(ranges)[0] & LOADS > 0
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
