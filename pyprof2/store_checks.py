"""What must hold in the tables of a store for their rows to be found by their keys.

Stores are mailed around, and analyses look rows up by position: a key that points outside of its
table, or a chain of callers that ends nowhere, is refused before any of them runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from pyprof2.tables import Table

ROW_KEYS: Final = {
    "ops": "op_id", "launches": "launch_id", "signatures": "signature_id", "stacks": "stack_id",
    "ranges": "range_id", "stalls": "stall_id", "estimates": "estimate_id",
}  # fmt: skip
"""The tables whose rows are numbered from 0 in the order in which they stand."""
JOINS: Final = {
    "op_id": "ops", "parent_op_id": "ops", "forward_op_id": "ops", "cost_op_id": "ops",
    "signature_id": "signatures", "launch_id": "launches", "stack_id": "stacks",
    "caller_id": "stacks", "estimate_id": "estimates", "shapes_op_id": "ops",
}  # fmt: skip
"""The columns that hold a row key of another table, or of their own."""
_POINT_BACK: Final = {"parent_op_id": "ops", "caller_id": "stacks"}
"""The columns whose chains end, because each row points to one before it."""
_TIMES: Final = ("start_ns", "launch_ns", "time_ns", "end_ns")
_LENGTHS: Final = ("dur_ns", "self_ns", "op_time_ns", "kernel_count", "kernel_id", "depth")
_FAR: Final = 1 << 62
"""Times and lengths stay below it, so that their sums fit into 64 bits."""


def find_fault(
    table: Table, rows: pa.Table, row_count: Callable[[str], int], first: int = 0
) -> str | None:
    """Return what is wrong with the rows of one rank, in words; None if nothing is.

    Args:
        table: a table of a store.
        rows: all or some of its columns.
        row_count: gives the number of rows that another table has of this rank.
        first: how many rows of the table stand before these.
    """
    return next(_faults(table, rows, row_count, first), None)


def _faults(
    table: Table, rows: pa.Table, row_count: Callable[[str], int], first: int
) -> Iterator[str]:
    for column in table.schema(rows.column_names):
        values = rows[column.name]
        if not column.nullable and values.null_count:
            yield f"column {column.name} has nulls"
        elif column.name == ROW_KEYS.get(table.name):
            if not np.array_equal(values.to_numpy(), first + np.arange(rows.num_rows)):
                yield f"column {column.name} does not number the rows"
        elif column.name in JOINS:
            if not _is_within(values, 0, row_count(JOINS[column.name]) - 1):
                yield f"column {column.name} names rows that do not exist"
            elif _POINT_BACK.get(column.name) == table.name and not _points_back(values, first):
                yield f"column {column.name} goes round in circles"
        elif column.name in (*_TIMES, *_LENGTHS) and not _is_within(
            values, 0 if column.name in _LENGTHS else -_FAR, _FAR
        ):
            yield f"column {column.name} has values that are none"


def _is_within(values: pa.ChunkedArray, least: int, most: int) -> bool:
    bounds = pc.min_max(values).as_py()
    return bounds["min"] is None or bool(least <= bounds["min"] and bounds["max"] <= most)


def _points_back(values: pa.ChunkedArray, first: int) -> bool:
    numbers = values.fill_null(-1).to_numpy()
    return bool((numbers < first + np.arange(len(numbers))).all())
