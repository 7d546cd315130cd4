"""What is to be known of the host before any window of time is looked at: of all of a recording.

It is found in one pass over each table, part by part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.analysis.parted import InMemory
from pyprof2.analysis.time.host_ranges import AT_WORK, COLUMNS, FRAME, TOLD, HostRanges
from pyprof2.analysis.time.step_windows import only_steps
from pyprof2.columns import distinct
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.parted import Parted

    Spool: TypeAlias = Callable[[pa.Schema, Iterator[pa.Table]], Parted]
    """Keeps parts that come one by one, of numbers, until each is read again."""

_EVENT: Final = ("start_ns", "dur_ns", "pid", "tid")
_SLICE: Final = 1 << 15
"""How many ranges are looked at in one go, where a part of the table has more."""


def in_memory(schema: pa.Schema, parts: Iterator[pa.Table]) -> Parted:
    """Keep parts where they are."""
    return InMemory(schema.empty_table(), *parts)


@dataclass(frozen=True)
class HostFacts:
    """What holds of a whole recording.

    Attributes:
        threads: their numbers.
        first, last: by process the first start and the last end of what tells that it is at work.
        has_stacks: whether Python stacks were recorded, which slows the host down.
        lines: `path:line` of frames, by code.
        told: the ranges, as `host_ranges.TOLD`.
        steps: the ranges that are steps.
    """

    threads: Threads
    first: Int
    last: Int
    has_stacks: bool
    lines: Sequence[str]
    told: Parted
    steps: pa.Table


def read_host(
    tables: Mapping[str, Parted], stalls: pa.Table, root: str | None, spool: Spool
) -> HostFacts:
    """Read `launches`, `ops` and `ranges`.

    Args:
        tables: these.
        stalls: the canonical table.
        root: the folder of the user's own code.
        spool: keeps what ranges tell.
    """
    reader = _Reader(root)
    ranges = (
        part.slice(at, _SLICE)
        for part in _each(tables["ranges"], COLUMNS)
        for at in range(0, part.num_rows, _SLICE)
    )
    told = spool(TOLD, map(reader.range_part, ranges))
    for name in ("launches", "ops"):
        for part in _each(tables[name], _EVENT):
            reader.event_part(part)
    threads = reader.threads(stalls)
    first, last = reader.reach(threads)
    steps = pa.concat_tables([tables["ranges"].empty(COLUMNS), *reader.steps])
    return HostFacts(
        threads, first, last, reader.has_stacks, reader.ranges.lines, told,
        steps.unify_dictionaries(),
    )  # fmt: skip


def _each(parts: Parted, columns: Sequence[str]) -> Iterator[pa.Table]:
    return (parts.read(number, columns) for number in range(len(parts)))


class _Reader:
    """Takes up the parts of the tables, and keeps what is to be known of all of them."""

    def __init__(self, root: str | None) -> None:
        self.ranges = HostRanges(root)
        self.steps: list[pa.Table] = []
        self.has_stacks = False
        self._pids: set[int] = set()
        self._tids: set[int] = set()
        self._reach: dict[int, tuple[int, int]] = {}

    def range_part(self, part: pa.Table) -> pa.Table:
        """Take up ranges; return what they tell of instants."""
        tells, line = self.ranges.tells(part)
        self.has_stacks |= bool((tells & FRAME).any())
        self.steps.append(only_steps(part))
        self._take(part, tells & AT_WORK > 0)
        return self.ranges.read(part, (tells, line))

    def event_part(self, part: pa.Table) -> None:
        """Take up launches or ops, each of which tells that its process is at work."""
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
        """Return the threads that were taken up, and those of stalls."""
        own = Threads.of([stalls])
        pids, tids = (
            np.array(sorted(found.union(more.tolist())), np.int64)
            for found, more in ((self._pids, own.pids), (self._tids, own.tids))
        )
        return Threads(pids, tids)

    def reach(self, threads: Threads) -> tuple[Int, Int]:
        """Return by process the first start and the last end that were taken up."""
        first = np.full(len(threads.pids), np.iinfo(np.int64).max)
        last = np.full(len(threads.pids), np.iinfo(np.int64).min)
        for pid, (begin, end) in self._reach.items():
            at = int(np.searchsorted(threads.pids, pid))
            first[at], last[at] = begin, end
        return first, last
