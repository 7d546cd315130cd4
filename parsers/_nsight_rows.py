"""Code that the readers of Nsight Systems' tables share: ids, strings, rows of one process."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._columns import DURATION_MAX_NS, TIME_MAX_NS, is_sensible
from pyprof2.parsers._names import cut_names
from pyprof2.problems import NEGATIVE_DURATION, ROW_TIME
from pyprof2.recording import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pyprof2.markers import Marker
    from pyprof2.parsers._sqlite import Database
    from pyprof2.recording import TextCodes

    Int: TypeAlias = NDArray[np.int64]
    Bool: TypeAlias = NDArray[np.bool_]

Columns: TypeAlias = "dict[str, pa.Array]"

PID_SHIFT: Final = 24
ID_MASK: Final = (1 << 24) - 1
"""A `globalTid` is a process id above 24 bits of thread id, below that of the machine; a
`globalPid` has no thread."""

NO_ID: Final = -(1 << 62)
"""Stands for null in NumPy columns."""

_AMOUNT_LIMIT: Final = 1 << 53
"""More bytes, or blocks, than there can be anywhere; a float holds all below it exactly."""
_LOOK_UP_LIMIT: Final = 1 << 21
_TIMES: Final = ("start", "end")


def ints(column: pa.Array, missing: int = NO_ID) -> Int:
    """Return a column of numbers as NumPy, with `missing` for null."""
    values: Int = (column.fill_null(missing) if column.null_count else column).to_numpy()
    return values


def amounts(column: pa.Array) -> pa.Array:
    """Return a column of sizes or counts; null what is negative, or more than there can be."""
    sensible = pc.and_(pc.greater_equal(column, 0), pc.less(column, _AMOUNT_LIMIT))
    return pc.if_else(sensible, column, None)


def where(rows: Columns, keep: Bool) -> Columns:
    """Return the rows that `keep` marks."""
    rows_kept = pa.array(np.flatnonzero(keep))
    return {name: column.take(rows_kept) for name, column in rows.items()}


def distinct(values: Int, limit: int) -> tuple[Int, Int]:
    """Return the distinct values, sorted, and for each value the position of its own among them.

    Args:
        values: from 0 to less than `limit`.
        limit: if it is small this is a matter of looking up, else of sorting.
    """
    if limit > _LOOK_UP_LIMIT:
        unique, inverse = np.unique(values, return_inverse=True)
        return unique, inverse.reshape(-1)
    is_there = np.zeros(limit, bool)
    is_there[values] = True
    unique = np.flatnonzero(is_there)
    place = np.empty(limit, np.int64)
    place[unique] = np.arange(len(unique))
    return unique, place[values]


def codes_array(codes: NDArray[np.int32]) -> pa.Array:
    """Return codes of texts, or of anything else that counts from 0; negative ones are null."""
    return pa.array(codes, mask=codes < 0)


class Strings:
    """The registered strings of a file: texts by id."""

    def __init__(self, database: Database, table: str) -> None:
        ids, texts = [pa.array([], pa.int64())], [pa.array([], pa.string())]
        for rows in database.batches(table, {"id": "int", "value": "text"}):
            known = rows["id"].is_valid()
            ids.append(rows["id"].filter(known))
            texts.append(rows["value"].filter(known))
        numbers = pa.concat_arrays(ids).to_numpy()
        order = np.argsort(numbers, kind="stable")
        self._ids = numbers[order]
        self.problems: Counter[str] = Counter()
        self._texts = pa.concat_arrays(texts).take(pa.array(order))

    def __len__(self) -> int:
        return len(self._ids)

    def positions(self, ids: Int) -> Int:
        """Return where the text of each id is, -1 if it has none."""
        if not len(self._ids):
            return np.full(len(ids), -1, np.int64)
        found = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[found] == ids, found, -1)

    def take(self, positions: Int) -> pa.StringArray:
        """Return the texts at positions; null for -1."""
        return self._texts.take(pa.array(positions, mask=positions < 0))

    def codes(self, ids: pa.Array, codes: TextCodes, cut_off: str | None = None) -> pa.Array:
        """Return the codes of the texts of some ids, null where an id has none.

        What matches the regular expression `cut_off` is left out of the texts.
        """
        unique, inverse = distinct(self.positions(ints(ids)) + 1, len(self._ids) + 1)
        texts = cut_names(self.take(unique - 1), self.problems)
        if cut_off is not None:
            texts = pc.replace_substring_regex(texts, cut_off, "")
        table = [-1 if text is None else codes[text] for text in texts.to_pylist()]
        return codes_array(np.array(table, np.int32)[inverse])


class Process:
    """One process, as far as it is known.

    Attributes:
        number: its id below that of its machine; None if the file does not say whose the rows are.
        pid: its id.
        spool: its raw tables.
        problems, skipped: as in `Recording`.
        rows: how many rows were read.
        first_ns, last_ns: the first start and the last end of anything.
        ordinals: the devices that it used.
        devices: what the file says of devices; None until it was looked up.
        correlations: the correlation ids of its GPU work, in parts.
        first_call: the smallest correlation id of its calls.
        rank, world_size: what its annotation says of its place in the job.
        source_root: and of where the user's own code is.
        machine: and of its machine, as columns of table `trace`.
        cpu, entry: what its annotation says of its CPU, and of the entry point that is run.
        annotated: as in `Recording`.
    """

    def __init__(self, number: int | None, folder: Path) -> None:
        folder = folder / ("unknown" if number is None else str(number))
        folder.mkdir(exist_ok=True)
        self.number = number
        self.pid = None if number is None else number & ID_MASK
        self.spool = Spool(folder)
        self.problems: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.annotated: Counter[str] = Counter()
        self.rows = 0
        self.first_ns, self.last_ns = TIME_MAX_NS, -TIME_MAX_NS
        self.ordinals: set[int] = set()
        self.devices: list[dict[str, Any]] | None = None
        self.correlations: list[Int] = []
        self.first_call: int | None = None
        self.rank: int | None = None
        self.world_size: int | None = None
        self.source_root: str | None = None
        self.machine: dict[str, Any] = {}
        self.cpu: Marker | None = None
        self.entry: Marker | None = None

    @property
    def used_gpu(self) -> bool:
        """Whether it has any GPU work."""
        return bool(self.spool.counts["activities"])

    def times(self, rows: Columns, *, in_span: bool = True) -> tuple[Columns, Columns]:
        """Return the rows whose times make sense, and their start_ns, dur_ns and pid.

        `in_span`: whether they are work of the program, which the recording spans and counts.
        """
        start, end = (ints(rows[name]) for name in _TIMES)
        # Times that are not sensible may overflow here; they are dropped for themselves.
        dur = end - start
        good = (dur <= DURATION_MAX_NS) & is_sensible(start) & is_sensible(end)
        if not good.all():
            self.problems[ROW_TIME] += int((~good).sum())
            rows, start, dur = where(rows, good), start[good], dur[good]
        negative = int((dur < 0).sum())
        if negative:
            self.problems[NEGATIVE_DURATION] += negative
            dur = np.maximum(dur, 0)
        if len(start) and in_span:
            self.rows += len(start)
            self.first_ns = min(self.first_ns, int(start.min()))
            self.last_ns = max(self.last_ns, int((start + dur).max()))
        pid = pa.nulls(len(start), pa.int64())
        if self.pid is not None:
            pid = pa.array(np.full(len(start), self.pid))
        return rows, {"start_ns": pa.array(start), "dur_ns": pa.array(dur), "pid": pid}
