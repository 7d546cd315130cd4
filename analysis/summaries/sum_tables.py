"""Sums of kernels as tables, written and read again: `sums`, `axis_sums`, and those of their calls.

Whoever reads them needs nothing of what adds rows up, which takes long to import.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.summaries.profile import Key, Sums
from pyprof2.analysis.summaries.profile_columns import COPY_CATEGORIES
from pyprof2.analysis.summaries.sets import Sets
from pyprof2.columns import text_array
from pyprof2.recording import has_text
from pyprof2.result_tables import SUMS
from pyprof2.tables import TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.intervals import Int
    from pyprof2.tables import Table

ALWAYS: Final = ("tensor_core_missed", "roofline_flag")
"""The keys of all sums, whatever else they are by."""
STORED_KEYS: Final = (
    *(column.name for column in SUMS.columns if column.type == TEXT), "device", "stream",
)  # fmt: skip
"""The keys of what is stored, beside the rank."""
AXIS_KEYS: Final = {
    "step": ("step",),
    "launch": ("stack_id", "grid", "block", "registers", "shared_bytes", "tensor_core", "span"),
}  # fmt: skip
"""The keys of what is stored along other axes, by what `axis_sums` calls them."""
EXTREMES: Final = ("min_ns", "max_ns")
_OF_KERNELS: Final = ("kernel_count", "known_kernel_count", "sized_kernel_count")
_STORED_SUMS: Final = tuple(
    name for name in SUMS.names if name not in ("rank", *STORED_KEYS, "helped_rows", *EXTREMES)
)


def sum_table(sums: Sums, table: Table, axis: str | None = None) -> pa.Table:
    """Return sums as one of the tables of them."""
    keys = {name: key for name, key in sums.keys.items() if name in table.names}
    columns: dict[str, Any] = {
        name: text_array((key.codes, key.domain))
        if key.is_text
        else pa.array([None if c < 0 else key.domain[c] for c in key.codes.tolist()], pa.int64())
        for name, key in keys.items()
    }
    columns["helped_rows"] = _lists(sums.helped, sums.helps)
    columns |= {name: each for name, each in sums.columns.items() if name in table.names}
    return table.conform(_with_axis(columns, axis, len(sums.helps)))


def call_table(sums: Sums, rank: int, table: Table, axis: str | None = None) -> pa.Table:
    """Return the op calls of sums as one of the tables of them."""
    count = len(sums.op_calls)
    rows = _lists(sums.calls, np.arange(count))
    columns = {"rank": np.full(count, rank), "rows": rows, "op_calls": sums.op_calls}
    return table.conform(_with_axis(columns, axis, count))


def _with_axis(columns: Mapping[str, Any], axis: str | None, count: int) -> pa.Table:
    named = {} if axis is None else {"axis": text_array((np.zeros(count, np.int64), [axis]))}
    return pa.table({**columns, **named})


def _lists(sets: Sets, which: Int) -> pa.Array:
    """Return a column of sets, null for -1."""
    members = [part.tolist() for part in np.split(sets.rows, sets.first[1:-1])]
    return pa.array(
        [None if at < 0 else members[at] for at in which.tolist()], pa.list_(pa.int64())
    )


def sums_stored(sums: pa.Table, calls: pa.Table, axis: str | None = None) -> Sums | None:
    """Return the sums that tables `sums` and `sum_calls` of a rank hold.

    With an axis, one of `AXIS_KEYS`, those that `axis_sums` and `axis_sum_calls` hold of it. None
    where they name rows that do not exist: a store may come from anywhere.
    """
    named = STORED_KEYS
    if axis is not None:
        named = (*AXIS_KEYS[axis], *ALWAYS)
        sums, calls = (
            each.filter(pa.array(has_text(each, "axis", (axis,)))) for each in (sums, calls)
        )
    helped, sets = (_sets(table[name]) for table, name in ((sums, "helped_rows"), (calls, "rows")))
    count = sums.num_rows
    if helped is None or sets is None or calls["rows"].null_count:
        return None
    if any(((each.rows < 0) | (each.rows >= count)).any() for each in (helped, sets)):
        return None
    columns = {name: sums[name].to_numpy() for name in (*_STORED_SUMS, *EXTREMES)}
    keys = {name: Key.of(sums, name) for name in ("rank", *named)}
    if axis is None:
        kernel = keys["category"].where(lambda text: text not in COPY_CATEGORIES, null=True)
        columns |= {
            "kernel_count": columns["count"] * kernel,
            "known_kernel_count": columns["known_flops_count"] * kernel,
            "sized_kernel_count": columns["bytes_count"] * kernel,
        }
    else:
        columns |= {name: sums[name].to_numpy() for name in _OF_KERNELS}
    helps = np.where(sums["helped_rows"].is_valid().to_numpy(), np.arange(count), -1)
    op_calls = calls["op_calls"].to_numpy()
    return Sums(keys, columns, sets, op_calls, helps, helped, np.arange(count))


def with_stacks(sums: Sums, stacks: pa.Table) -> Sums:
    """Return sums with column `stack`: the text of the `stack_id` of each row.

    Args:
        sums: of axis `launch`.
        stacks: the table of that name.
    """
    from pyprof2.analysis.linking.stacks import stack_texts  # takes long to import, and is rare

    key = sums.keys["stack_id"]
    ids = pa.table({"stack_id": pa.array([*key.domain, None], pa.int64())})
    texts = Key.of(pa.table({"stack": text_array(stack_texts(ids, stacks))}), "stack")
    return replace(sums, keys={**sums.keys, "stack": texts._replace(codes=texts.codes[key.codes])})


def _sets(column: pa.ChunkedArray) -> Sets | None:
    """Return lists of rows as sets, null as an empty one; None where a row is null."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    rows = pc.list_flatten(column)
    return None if rows.null_count else Sets(np.r_[0, np.cumsum(lengths)], rows.to_numpy())
