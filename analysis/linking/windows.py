"""A long recording, cut into windows of time that are linked one after another.

Each window has what begins in it, the GPU activities that are launched in it, and what of the
ranges around reaches into it. So what linking holds at once grows with the longest window, not with
the recording.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pyprof2.analysis.linking.cuts import TIMES, find_cuts, marked_texts
from pyprof2.analysis.linking.threads import NO_ID, among_sorted
from pyprof2.analysis.linking.user_ranges import is_users
from pyprof2.columns import lookup, order_of
from pyprof2.recording import BatchRows, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyprof2.analysis.intervals import Int
    from pyprof2.recording import Recording

    _Part: TypeAlias = BatchRows | pa.Table
    """Rows that lie somewhere, or that are to be written."""

ROWS: Final = 1 << 19
"""A window has so many rows of all raw tables, or more where there is no earlier cut."""
_FIRST, _LAST = -(1 << 62), 1 << 62


class TraceWindow(NamedTuple):
    """A part of a recording.

    Attributes:
        recording: its raw tables, among them ranges of other windows that reach into it.
        begin, end: the times from and before which what begins is its own.
    """

    recording: Recording
    begin: int = _FIRST
    end: int = _LAST


@dataclass(frozen=True)
class Windows:
    """The windows of a recording, in order; one that is short has itself alone.

    Attributes:
        each: the windows.
        first, last: when the first and the last of the GPU activities of each begin.
    """

    each: list[TraceWindow]
    first: Int
    last: Int

    def following(self, at: int) -> int:
        """Return when the first GPU activity of all windows after this one begins."""
        return int(self.first[at + 1 :].min(initial=_LAST))

    def activity_ids(self, at: int) -> Int:
        """Return the ids of the GPU activities of a window: their positions among those of all."""
        counts = np.array([w.recording.spool.counts["activities"] for w in self.each])
        before = self.last < self.first[at]
        beside = (self.first <= self.last[at]) & ~before
        beside[at] = False
        numbers = [at, *np.flatnonzero(beside).tolist()]
        keys = zip(*(self._activities(number) for number in numbers), strict=True)
        order = order_of(*(np.concatenate(key) for key in keys))
        own = np.flatnonzero(order < counts[at])
        return own + int(counts[before].sum())

    def _activities(self, at: int) -> tuple[Int, Int, Int]:
        """Return what the GPU activities of a window are sorted by, the first key first."""
        raw = self.each[at].recording.spool.raw(
            "activities", ("correlation_id", "dur_ns", "start_ns")
        )
        correlation = int_column(raw, "correlation_id", NO_ID)
        return int_column(raw, "start_ns", 0), -int_column(raw, "dur_ns", 0), correlation


def windows_of(recording: Recording, folder: Path, rows: int = ROWS) -> Windows:
    """Return the windows of a recording.

    Args:
        recording: the raw tables.
        folder: an empty one for the rows of the windows.
        rows: how many rows of all tables a window has at least.
    """
    cuts = find_cuts(recording, rows)
    if not len(cuts):
        return Windows([TraceWindow(recording)], np.array([_FIRST]), np.array([_LAST]))
    parts = _WindowRows(recording, folder, cuts)
    for table in TIMES:
        parts.find(table)
    bounds = pairwise([_FIRST, *cuts.tolist(), _LAST])
    each = [TraceWindow(parts.recording(at), *pair) for at, pair in enumerate(bounds)]
    return Windows(each, parts.first, parts.last)


class _WindowRows:
    """Finds where the rows of each window lie, in the order of the file.

    What is not together, or in several windows, is written anew.

    Attributes:
        first, last: when the first and the last GPU activity of each window begin.
    """

    def __init__(self, recording: Recording, folder: Path, cuts: Int) -> None:
        self._whole, self._folder, self._cuts = recording, folder, cuts
        count = len(cuts) + 1
        self._batches: list[dict[str, list[BatchRows]]] = [
            {t: [] for t in TIMES} for _ in range(count)
        ]
        self._counts: list[Counter[str]] = [Counter() for _ in range(count)]
        self.first, self.last = np.full(count, _LAST), np.full(count, _FIRST)

    def recording(self, at: int) -> Recording:
        """Return the rows of a window."""
        part = self._whole.spool.part(self._batches[at], self._counts[at])
        return replace(self._whole, spool=part)

    def find(self, table: str) -> None:
        """Find the rows of a table."""
        rows_of = {"activities": self._activities, "ranges": self._ranges}.get(table)
        beginning = (
            _by_window(batch, rows, self._window(time)) for batch, rows, time in self._each(table)
        )
        rows = chain.from_iterable(beginning) if rows_of is None else rows_of()
        schema = self._whole.spool.written(table, ()).schema
        count = 0
        with pa.ipc.new_file(self._folder / f"{table}.arrow", schema) as writer:
            for window, part in rows:
                batch = part
                if isinstance(part, pa.Table):
                    writer.write_table(part.combine_chunks())
                    batch = BatchRows(self._folder, count, 0, part.num_rows)
                    count += 1
                self._batches[window][table].append(batch)
                self._counts[window][table] += batch.length

    def _each(self, table: str) -> Iterator[tuple[BatchRows, pa.Table, Int]]:
        """Yield where rows of a table lie, these as they are written, and their times."""
        spool = self._whole.spool
        for batch in spool.batches(table):
            rows = spool.written(table, [batch])
            yield batch, rows, int_column(rows, TIMES[table], 0)

    def _window(self, time: Int) -> Int:
        found: Int = np.searchsorted(self._cuts, time, "right")
        return found

    def _activities(self) -> Iterator[tuple[int, _Part]]:
        """Yield GPU activities where their launches are, or by their own time."""
        launches = _LaunchTimes.of(self._whole)
        for batch, rows, time in self._each("activities"):
            correlation = int_column(rows, "correlation_id", NO_ID)
            window = self._window(launches.starts(correlation, time))
            np.minimum.at(self.first, window, time)
            np.maximum.at(self.last, window, time)
            yield from _by_window(batch, rows, window)

    def _ranges(self) -> Iterator[tuple[int, _Part]]:
        """Yield ranges where they begin, and where they reach into."""
        witnesses, done = _witnesses(self._whole), 0
        for batch, rows, time in self._each("ranges"):
            begins = self._window(time)
            ends = self._window(time + int_column(rows, "dur_ns", 0))
            yield from _by_window(batch, rows, begins)
            everywhere = np.isin(np.arange(done, done + rows.num_rows), witnesses)
            done += rows.num_rows
            far = np.flatnonzero((ends > begins) | everywhere)
            for window in range(len(self._counts) if len(far) else 0):
                reaches = (begins[far] <= window) & (ends[far] >= window)
                has = far[(reaches | everywhere[far]) & (begins[far] != window)]
                if len(has):
                    yield window, rows.take(has)


def _by_window(batch: BatchRows, rows: pa.Table, window: Int) -> Iterator[tuple[int, _Part]]:
    """Yield the rows of each window, in their order."""
    is_together = not (window[1:] < window[:-1]).any()
    if not is_together:
        order = np.argsort(window, kind="stable")
        rows, window = rows.take(order), window[order]
    bounds = np.flatnonzero(np.r_[True, window[1:] != window[:-1], True]).tolist()
    for begin, end in pairwise(bounds):
        part = batch._replace(begin=batch.begin + begin, length=end - begin)
        yield int(window[begin]), part if is_together else rows.slice(begin, end - begin)


class _LaunchTimes(NamedTuple):
    """The launches, by correlation id and start."""

    key: Int
    start: Int

    @classmethod
    def of(cls, recording: Recording) -> _LaunchTimes:
        """Sort those of a recording."""
        raw = recording.spool.raw("launches", ("correlation_id", "start_ns"))
        key, start = int_column(raw, "correlation_id", NO_ID), int_column(raw, "start_ns", 0)
        order = order_of(key, start)
        return cls(key[order], start[order])

    def starts(self, correlation: Int, time: Int) -> Int:
        """Return when the launch of each GPU activity starts; its own time where it has none."""
        found, _ = among_sorted(self.key, self.start, correlation, time)
        has_none = (found < 0) | (correlation == NO_ID)
        return np.where(has_none, time, lookup(self.start, found, 0))


def _witnesses(recording: Recording) -> Int:
    """Return the row of one of the user's own ranges of each thread that has any.

    Every window knows them, wherever they are: a thread that has its own borrows no other's.
    """
    is_note = marked_texts(recording, "ranges", "kind", lambda text: text == "annotation")
    names, domains = (list(recording.spool.texts["ranges"][c]) for c in ("name", "domain"))
    asked: dict[tuple[int, int], bool] = {}
    first: dict[tuple[int, int], int] = {}
    done = 0
    for rows in recording.spool.slices("ranges", ("kind", "name", "domain", "pid", "tid")):
        at = np.flatnonzero(is_note[int_column(rows, "kind", -1)])
        missing = {"pid": NO_ID, "tid": NO_ID, "name": -1, "domain": -1}
        columns = (int_column(rows, *column)[at] for column in missing.items())
        keys, place = np.unique(np.stack([*columns]), axis=1, return_index=True)
        for (pid, tid, name, domain), row in zip(keys.T.tolist(), at[place].tolist(), strict=True):
            if (name, domain) not in asked:
                of = domains[domain] if domain >= 0 else None
                asked[name, domain] = is_users(names[name], of)
            if asked[name, domain]:
                first.setdefault((pid, tid), done + row)
        done += rows.num_rows
    return np.array(sorted(first.values()), np.int64)
