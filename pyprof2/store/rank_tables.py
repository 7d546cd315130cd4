"""The tables of one rank of a store, as analyses take them."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pyprof2.store.folder import STORED, open_parts, read_rank, write_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.store.parts import TableParts

_WITH_LINES: Final = ("kernels", "copies", "ops", "memory")
"""The tables whose `source` is another one with another folder of the user's own code."""
_LINED: Final = ("stack_id", "shared_source")
"""The columns that lines are chosen by."""
_JUDGED: Final = ("kernels", "copies")
"""The tables that another device gives other roofs and verdicts."""
_OF_ROOT: Final = ("idle", "idle_sums", "summary")
"""The results that another folder of the user's own code makes others of, by its lines."""
_LATER: Final = ("idle_sums", "device_use")
"""The tables that earlier versions of the same schema did not write."""


@dataclass(frozen=True)
class RankTables:
    """The tables of one rank, of which only the columns that are asked for are read.

    A named device or folder of the user's own code makes other columns of some tables, and other
    tables of some results. They are written once, when they are first asked for, and are read as
    those of the store are.

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

        Raises:
            StoreError: the table is missing or damaged.
            TableError: its file does not have the table's columns.
        """
        wanted = [n for n in STORED[name].names if columns is None or n in columns]
        if where is not None:
            return self.rows(name, np.flatnonzero(where), wanted)
        if not self._is_made(name) and self._others(name).isdisjoint(wanted):
            return read_rank(self.store, name, self.rank, wanted)
        return pa.concat_tables(self.in_parts(name, wanted)).unify_dictionaries()

    def has_sums(self, name: str) -> bool:
        """Whether stored sums are those of the rows, whose roofs and lines are as recorded."""
        return self.device is None and self.source_root is None and self._file(name).is_file()

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

    def rows(self, name: str, at: Int, columns: Collection[str]) -> pa.Table:
        """Return columns of the rows at ascending positions; only parts that have any are read.

        Raises:
            StoreError: the table is missing or damaged.
        """
        wanted = [n for n in STORED[name].names if n in columns]
        parts = self.parts(name)
        of = np.searchsorted(parts.offsets, at, "right") - 1
        found = [
            parts.read(part, wanted).take(pa.array(at[of == part] - parts.offsets[part]))
            for part in np.unique(of).tolist()
        ]
        return pa.concat_tables([parts.empty(wanted), *found]).unify_dictionaries()

    def parts(self, name: str) -> TableParts:
        """Return a table whose rows are read part by part.

        Raises:
            StoreError: the table is missing or damaged.
        """
        if self._is_made(name):
            if not (self._made / name).is_dir():
                part = self._made / "part"  # as below
                part.mkdir(exist_ok=True)
                write_table(part, name, self.rank, [self._result(name)])
                (part / name).replace(self._made / name)
            return open_parts(self._made, name, self.rank, own=True)
        found = open_parts(self.store, name, self.rank, own=self.own)
        if others := self._others(name):
            found.others = others, partial(self._other_columns, name, found)
        return found

    def in_parts(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of a table part by part.

        Raises:
            StoreError: the table is missing or damaged.
        """
        parts = self.parts(name)
        yield from (parts.read(part, columns) for part in range(len(parts)))

    def devices(self) -> list[dict[str, Any]]:
        """Return the rows of table `devices`."""
        return self._devices

    @cached_property
    def _devices(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.read("devices").to_pylist()
        return rows

    def _file(self, name: str) -> Path:
        return self.store / name / f"rank-{self.rank}.parquet"

    @cached_property
    def _made(self) -> Path:
        """The folder of what a named device or root makes others of; it goes with these tables."""
        folder = tempfile.mkdtemp(prefix="pyprof2-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def _is_made(self, name: str) -> bool:
        """Whether a result is not that of the store, but made of tables that are others."""
        if (name == "utilization" and self.device) or (name in _OF_ROOT and self.source_root):
            return True
        return name in _LATER and not self._file(name).is_file()

    def _result(self, name: str) -> pa.Table:
        """Return a result that is not that of the store."""
        from pyprof2.analysis.summaries import spent, summary, totals, utilization
        from pyprof2.analysis.time import steps
        from pyprof2.analysis.time.idle import GRAPHS, INPUT, idle_of_ranks
        from pyprof2.analysis.time.step_windows import StepWindows

        if name == "idle":
            return idle_of_ranks(self.several(INPUT | GRAPHS), self.source_root)
        if name == "idle_sums":
            return spent.idle_sums(self.in_parts("idle", spent.IDLE_INPUT), self.rank)
        if name == "summary":
            stored = totals.Totals.of(read_rank(self.store, name, self.rank))
            lines = (self.read(each, ["source"]) for each in ("kernels", "ops"))
            return replace(stored, **summary.with_source(*lines)).table()
        windows = StepWindows.of(self.read("steps"))
        if name == "device_use":
            tables = {name: self.parts(name) for name in steps.INPUT}
            return steps.steps_and_use(tables, windows, self.rank)[1]
        tables = {name: self.parts(name) for name in utilization.NEEDED}
        return utilization.utilization(tables, windows, self.devices(), self.device, self.rank)

    def _others(self, name: str) -> frozenset[str]:
        """Return the columns that are not those of the store."""
        lines = ["source"] if self.source_root and name in _WITH_LINES else []
        if self.device is None or name not in _JUDGED:
            return frozenset(lines)
        from pyprof2.analysis.hardware.verdict import JUDGED

        return frozenset([*lines, *JUDGED])

    def _other_columns(self, name: str, stored: TableParts) -> Path:
        """Write the columns that are not those of the store, in the same parts; return the file."""
        from pyprof2.analysis.hardware.verdict import JUDGED_BY, judge
        from pyprof2.analysis.linking.stacks import with_lines

        file, others = self._made / f"{name}.parquet", self._others(name)
        if file.is_file():
            return file
        needed = others.union(JUDGED_BY, _LINED).intersection(STORED[name].names)
        rows = read_rank(self.store, name, self.rank, needed)
        if "source" in others:
            rows = with_lines(rows, self.read("stacks"), self.source_root)
        if self.device is not None and name in _JUDGED:
            rows = judge(rows, self.devices(), self.device)
        rows = STORED[name].conform(rows.select(sorted(others)), others)
        part = file.with_suffix(".part")  # who interrupts this may ask again
        with pq.ParquetWriter(part, rows.schema, compression="lz4") as writer:
            for first, end in pairwise(stored.offsets.tolist()):
                writer.write_table(rows.slice(first, end - first), max(1, end - first))
        return part.replace(file)
