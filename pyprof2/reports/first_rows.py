"""The first rows of axis `kernel`, for a table of which the rest is only a sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from pyprof2.listings import Listed, Listing, length, taken
from pyprof2.reports.query import KERNEL, Query
from pyprof2.reports.sums import write_lines
from pyprof2.reports.table import ADDITIVE, Content, rows_shown
from pyprof2.tables import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.rank_tables import RankTables
    from pyprof2.run import Run

_MADE: Final = ("dur_us", "share_pct")
_SELECTS_ALL: Final = {"copies": True}
_TABLES: Final = ("kernels", "copies")


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a store, and what all of them add up to.

    Attributes:
        missing: why there is nothing to show: there is something.
    """

    run: Run
    query: Query
    rows: Listed
    total: dict[str, Any]
    missing: str | None = None

    @classmethod
    def of(cls, run: Run, query: Query) -> Self | None:
        """Return the rows; None where more of them are needed, or sums that are not stored."""
        chosen = {name: value for name, value in query.selection.items() if value is not None}
        # Of other columns that add up the sums of all rows are not stored.
        adds_up = {*ADDITIVE} - {"dur_ns", *_MADE}
        asked = query.axes == KERNEL and query.target.is_text and chosen == _SELECTS_ALL
        asked &= not run.first_ids
        if not asked or query.sort or query.pyprof or not adds_up.isdisjoint(query.kernel_columns):
            return None
        if any(query.takes_pyprofs(name) for name in query.kernel_columns):
            return None
        sums = run.stored_sums
        rows = None if sums is None else _first(run, query)
        if sums is None or rows is None:
            return None
        return cls(run, query, rows, sums.total())

    def write(self) -> None:
        """Write them as a table."""
        time = self.total["time_ns"]
        total = self.total | {"dur_ns": time, "dur_us": time / 1000}
        count, durations = self.total["count"], self.rows["dur_ns"].cells
        made = self.rows | {
            "dur_us": Listing([each / 1000 for each in durations], is_text=False),
            "share_pct": Listing([_share(each, time) for each in durations], is_text=False),
        }
        rest_ns = time - sum(durations)
        sums = {"dur_ns": rest_ns, "dur_us": rest_ns / 1000, "share_pct": _share(rest_ns, time)}
        names = self.query.kernel_columns
        rest = {name: sums[name] for name in names if name in sums}
        content = Content(
            {name: made[name] for name in names}, count, rest, total, made["roofline_flag"].cells
        )
        write_lines(self.run, self.query, content)


def _first(run: Run, query: Query) -> Listed | None:
    """Return as many rows as are shown; None where they are not the first of their tables."""
    wanted = {"kernel_id", "dur_ns", "roofline_flag", *query.kernel_columns}.difference(_MADE)
    columns = [name for name in KERNELS.names if name in wanted]
    found: Listed = {name: Listing([], is_text=_is_text(name)) for name in columns}
    for rank in run.counted_ranks:
        room = rows_shown(query) - length(found)
        rows = _first_of(rank, columns, room)
        if rows is None:
            return None
        for name, column in found.items():
            column.cells.extend(rows[name].cells)
        if length(found) >= rows_shown(query):
            break
    return found


def _first_of(rank: RankTables, columns: Sequence[str], count: int) -> Listed | None:
    """Return the rows of a rank whose ids are the first; None where some are further back."""
    tables = list(_beginnings(rank, columns, count))
    cells = {name: [c for table in tables for c in table[name].to_pylist()] for name in columns}
    ids = cells["kernel_id"]
    order = sorted(range(len(ids)), key=ids.__getitem__)[:count]
    rows = taken({n: Listing(each, is_text=_is_text(n)) for n, each in cells.items()}, order)
    whole = sum(rank.parts(name).row_count for name in _TABLES)
    return rows if rows["kernel_id"].cells == list(range(min(count, whole))) else None


def _beginnings(rank: RankTables, columns: Sequence[str], count: int) -> Iterator[pa.Table]:
    """Yield the first rows of kernels and copies: of each no more than are wanted of both."""
    for name in _TABLES:
        parts = rank.parts(name)
        yield parts.read(0, columns).slice(0, count)


def _share(part: int, whole: int) -> float | None:
    return part / whole * 100 if whole else None


def _is_text(name: str) -> bool:
    kind = KERNELS.schema([name]).field(0).type
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
