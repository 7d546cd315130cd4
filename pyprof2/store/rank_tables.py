"""The tables of one rank of a store, as analyses take them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.store.folder import STORED, open_parts, read_rank

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.store.parts import TableParts

_WITH_LINES: Final = ("kernels", "copies", "ops", "memory")
_LINED: Final = ("stack_id", "shared_source")
"""The columns that lines are chosen anew by."""
_JUDGED: Final = ("kernels", "copies")
_SUMS: Final = ("sums", "sum_calls", "axis_sums", "axis_sum_calls")
"""The tables that are not made anew: where they do not hold, the rows are added up again."""
_OF_DEVICE: Final = {*_JUDGED, "utilization", *_SUMS}
"""The tables that another device makes others of, by its roofs."""
_OF_ROOT: Final = {*_WITH_LINES, "idle", "idle_sums", "summary", *_SUMS}
"""The tables that another folder of the user's own code makes others of, by its lines."""
_LATER: Final = ("idle_sums", "device_use", *_SUMS)
"""The tables that earlier versions of the same schema did not write."""


@dataclass(frozen=True)
class RankTables:
    """The tables of one rank, of which only the columns that are asked for are read.

    Attributes:
        store: its folder.
        rank: the number.
        device: name or file of the device whose roofs to use; None: the recorded one.
        source_root: the folder of the user's own code; None: the one that the store was made with.
        own: whether we have just written them, and need not check what is read part by part.
    """

    store: Path
    rank: int
    device: Path | str | None = None
    source_root: str | None = None
    own: bool = False

    def read(
        self, name: str, columns: Collection[str] | None = None, where: Bool | None = None
    ) -> pa.Table:
        """Return a table, with the columns named in its order, or with all; or some rows of it.

        It is that of the store, or, where `is_as_stored` says no, made anew of others; those of
        sums of kernels are always those of the store.

        Raises:
            StoreError: the table is missing or damaged.
            TableError: its file does not have the table's columns.
        """
        wanted = {n for n in STORED[name].names if columns is None or n in columns}
        if where is not None and not self.is_as_stored(name):
            return self.read(name, columns).filter(pa.array(where))
        if where is not None:
            return self.rows(name, np.flatnonzero(where), wanted)
        if self.is_as_stored(name) or name in _SUMS:
            return read_rank(self.store, name, self.rank, wanted)
        if name not in _WITH_LINES:
            return STORED[name].conform(self._made_anew(name), wanted)
        from pyprof2.analysis.hardware.verdict import JUDGED, JUDGED_BY, judge

        if self.device is None or name not in _JUDGED or wanted.isdisjoint(JUDGED):
            return self._with_lines(name, wanted)
        rows = self._with_lines(name, wanted | set(JUDGED_BY))
        return STORED[name].conform(judge(rows, self.devices(), self.device), wanted)

    def is_as_stored(self, name: str) -> bool:
        """Whether a table is that of the store: it is there, and no named device or root counts."""
        if (self.device is not None and name in _OF_DEVICE) or (
            self.source_root is not None and name in _OF_ROOT
        ):
            return False
        return name not in _LATER or (self.store / name / f"rank-{self.rank}.parquet").is_file()

    @cached_property
    def source_roots(self) -> list[str]:
        """The folders of the user's own code, in the order of the recordings."""
        if self.source_root is not None:
            return [self.source_root]
        roots = self.read("trace", ["source_root"])["source_root"].to_pylist()
        return list(dict.fromkeys(root for root in roots if root))

    def several(self, needed: Mapping[str, Collection[str] | None]) -> dict[str, pa.Table]:
        """Return tables by name, each with the columns needed; None: all."""
        return {name: self.read(name, columns) for name, columns in needed.items()}

    def reduced(
        self, name: str, columns: Sequence[str], reduce: Callable[[pa.Table], pa.Table]
    ) -> pa.Table:
        """Return what a function leaves of a table, as it is stored, which it is given in parts.

        Raises:
            StoreError: the table is missing or damaged.
        """
        parts = self.parts(name)
        left = [reduce(parts.read(number, columns)) for number in range(len(parts))]
        return pa.concat_tables([STORED[name].schema(columns).empty_table(), *left])

    def rows(self, name: str, at: Int, columns: Collection[str]) -> pa.Table:
        """Return columns of the rows at ascending positions; only parts that have any are read.

        What is said of the roof is that of the recorded device: it depends on other rows too.

        Raises:
            StoreError: the table is missing or damaged.
        """
        root = self.source_root if name in _WITH_LINES and "source" in columns else None
        wanted = [n for n in STORED[name].names if n in columns or (root and n in _LINED)]
        parts = self.parts(name)
        of = np.searchsorted(parts.offsets, at, "right") - 1
        found = [
            parts.read(part, wanted).take(pa.array(at[of == part] - parts.offsets[part]))
            for part in np.unique(of).tolist()
        ]
        rows = pa.concat_tables([STORED[name].schema(wanted).empty_table(), *found])
        rows = rows.unify_dictionaries()
        return rows if root is None else self._chosen_lines(name, rows, root, columns)

    def parts(self, name: str) -> TableParts:
        """Return a table as it is stored, whose rows are read part by part.

        Raises:
            StoreError: the table is missing or damaged.
        """
        return open_parts(self.store, name, self.rank, own=self.own)

    def chunked(self, name: str, columns: Sequence[str]) -> ChunkedTable:
        """Return columns of a table as `read` gives it, read part by part where it is stored so.

        Raises:
            StoreError: the table is missing or damaged.
        """
        from pyprof2.analysis.chunked import InMemory

        if self.is_as_stored(name):
            return self.parts(name)
        return InMemory(self.read(name, columns))

    def in_parts(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield a table as `read` gives it, part by part where it is as it is stored.

        Raises:
            StoreError: the table is missing or damaged.
        """
        if self.is_as_stored(name):
            parts = self.parts(name)
            yield from (parts.read(part, columns) for part in range(len(parts)))
        else:
            yield self.read(name, columns)

    def devices(self) -> list[dict[str, Any]]:
        """Return the rows of table `devices`."""
        return self._devices

    @cached_property
    def _devices(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.read("devices").to_pylist()
        return rows

    def _made_anew(self, name: str) -> pa.Table:
        """Return a table of results, made of tables that are not as they are stored."""
        from pyprof2.analysis.chunked import InMemory
        from pyprof2.analysis.summaries import spent, summary, totals, utilization
        from pyprof2.analysis.time import steps
        from pyprof2.analysis.time.step_windows import StepWindows

        if name == "idle":
            return self._idle
        if name == "idle_sums":
            return spent.idle_sums(self.in_parts("idle", spent.IDLE_INPUT), self.rank)
        if name == "summary":
            stored = totals.Totals.of(read_rank(self.store, name, self.rank))
            lines = (self.read(each, ["source"]) for each in ("kernels", "ops"))
            return replace(stored, **summary.with_source(*lines)).table()
        windows = StepWindows.of(self.read("steps"))
        if name == "device_use":
            of_rank = {n: InMemory(table) for n, table in self.several(steps.INPUT).items()}
            return steps.steps_and_use(of_rank, windows, self.rank)[1]
        tables = {n: InMemory(table) for n, table in self.several(utilization.NEEDED).items()}
        return utilization.utilization(tables, windows, self.devices(), self.device, self.rank)

    @cached_property
    def _idle(self) -> pa.Table:
        """The table `idle` with the lines that `source_root` leads to, which takes long to find."""
        from pyprof2.analysis.time.idle import GRAPHS, INPUT, idle_of_ranks

        return idle_of_ranks(self.several(INPUT | GRAPHS), self.source_root)

    def _with_lines(self, name: str, wanted: set[str]) -> pa.Table:
        """Return a table; where another root is named, `source` is chosen anew."""
        if self.source_root is None or "source" not in wanted:
            return read_rank(self.store, name, self.rank, wanted)
        needed = wanted.union(_LINED).intersection(STORED[name].names)
        rows = read_rank(self.store, name, self.rank, needed)
        return self._chosen_lines(name, rows, self.source_root, wanted)

    def _chosen_lines(
        self, name: str, rows: pa.Table, root: str, wanted: Collection[str]
    ) -> pa.Table:
        """Return rows with the `source` that the root of the user's own code leads to."""
        from pyprof2.analysis.linking.stacks import with_lines

        stacks = read_rank(self.store, "stacks", self.rank)
        return STORED[name].conform(with_lines(rows, stacks, root), wanted)
