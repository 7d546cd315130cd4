"""The tables of a rank of several recordings, which were made one after another.

A profiler that records every hundredth step writes a file each time. Each file is linked by
itself, so that nothing is joined across what was not recorded; then their rows are put together,
on the clock of the first one, with ids of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.recording import Recording

_COUNTED_IN: Final = {
    "kernel_id": ("kernels", "copies"),
    "launch_id": ("launches",),
    "op_id": ("ops",),
    "parent_op_id": ("ops",),
    "forward_op_id": ("ops",),
    "cost_op_id": ("ops",),
    "shapes_op_id": ("ops",),
    "estimate_id": ("estimates",),
    "range_id": ("ranges",),
    "stall_id": ("stalls",),
    "gap_id": ("idle",),
    "collective_id": ("collectives",),
    "signature_id": ("signatures",),
    "stack_id": ("stacks",),
    "caller_id": ("stacks",),
}
"""The ids, and the tables whose rows they number."""
_TIMES: Final = ("start_ns", "launch_ns", "issued_ns", "time_ns", "end_ns")
_LENGTHS: Final = (("idle", "time_ns"),)
"""Columns that are called like a time and are none."""
_CORRELATED: Final = ("launches", "kernels", "copies", "stalls")


def clock_shifts(segments: Sequence[Recording]) -> list[int]:
    """Return what to add to the times of each segment to have them on the first one's clock."""
    bases = [segment.trace["unix_ns"] or 0 for segment in segments]
    return [base - bases[0] for base in bases]


def joined(
    name: str, folders: Sequence[Path], rank: int, shifts: Sequence[int], spans: Sequence[int]
) -> Iterator[pa.Table]:
    """Yield the rows of a table, of one segment after another, with ids that go on.

    Args:
        name: of the table.
        folders: where each segment's tables are, as a store has them.
        rank: of all of them.
        shifts: see `clock_shifts`.
        spans: the span that each segment is, or is of.
    """
    counts = [{table: _file(f, table, rank).metadata.num_rows for table in TABLES} for f in folders]
    calls = _correlation_shifts(folders, rank)
    seen: list[dict[str, Any]] = []
    for at, folder in enumerate(folders):
        added = ids_after({table: sum(count[table] for count in counts[:at]) for table in TABLES})
        added |= dict.fromkeys(("correlation_id", "waits_for_correlation_id"), calls[at])
        added["unix_ns"] = -shifts[at]
        added |= {each: shifts[at] for each in _TIMES if (name, each) not in _LENGTHS}
        file = _file(folder, name, rank)
        for group in range(file.num_row_groups):
            part = shifted(file.read_row_group(group), added)
            if "span" in part.column_names:
                number = pa.array(np.full(part.num_rows, spans[at], np.int64))
                part = part.set_column(part.column_names.index("span"), "span", number)
            if name == "devices":
                part = pa.Table.from_pylist(
                    [row for row in part.to_pylist() if row not in seen], part.schema
                )
                seen += part.to_pylist()
            yield part


def ids_after(row_counts: Mapping[str, int]) -> dict[str, int]:
    """Return what to add to ids of rows that come after so many of each table."""
    return {
        column: sum(row_counts[table] for table in tables) for column, tables in _COUNTED_IN.items()
    }


def _file(folder: Path, name: str, rank: int) -> pq.ParquetFile:
    return pq.ParquetFile(folder / name / f"rank-{rank}.parquet")


def shifted(table: pa.Table, added: Mapping[str, int]) -> pa.Table:
    """Return a table with something added to the columns of these names that it has."""
    for at, name in enumerate(table.column_names):
        if added.get(name):
            table = table.set_column(at, table.field(at), pc.add(table[name], added[name]))
    return table


def _correlation_shifts(folders: Sequence[Path], rank: int) -> list[int]:
    """Return what to add to correlation ids, where a profiler began to count anew."""
    shifts, last = [], -1
    for folder in folders:
        ids = pa.chunked_array(
            [
                chunk
                for name in _CORRELATED
                for chunk in _file(folder, name, rank).read(["correlation_id"])[0].chunks
            ],
            pa.int64(),
        )
        known = len(ids) - ids.null_count
        first = pc.min(ids).as_py() if known else 0
        shifts.append(max(0, last + 1 - first) if known else 0)
        last = max(last, pc.max(ids).as_py() + shifts[-1]) if known else last
    return shifts
