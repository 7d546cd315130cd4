"""From rows of a table to what their slices show: names, arguments, flows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto import packets
from pyprof2.reports.perfetto.packets import Argument, Slices

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyprof2.columns import TextColumn
    from pyprof2.reports.perfetto.packets import Writer
    from pyprof2.reports.perfetto.wire import Ints

TEXTS: Final = (
    "kernel", "copy_kind", "signature", "layer", "source", "direction", "bound", "tensor_core",
    "cause", "group", "op", "call", "thread", "note", "finding", "severity", "limit", "evidence",
    "remedy", "kind", "group_desc", "group_key", "dtype", "match",
)  # fmt: skip
"""The columns that are shown as text."""
SHARES: Final = ("roofline_pct",)
"""Those that are shown as numbers with a fraction; all others are whole ones."""


def slices_of(
    writer: Writer,
    rows: pa.Table,
    name: TextColumn,
    category: TextColumn,
    shown: Sequence[str],
    shift: int,
) -> Slices:
    """Return the slices of rows with a start and a duration.

    Args:
        writer: which writes their texts.
        rows: in order of start, the longer first.
        name: of each.
        category: of each.
        shown: the columns that are arguments.
        shift: what to add to their times.
    """
    start = int_column(rows, "start_ns", 0) + shift
    return Slices(
        start,
        start + np.maximum(0, int_column(rows, "dur_ns", 0)),
        writer.texts(packets.NAME, name),
        writer.texts(packets.CATEGORY, category),
        [_argument(writer, rows, column) for column in shown],
    )


def order_of(found: pa.Table, key: str | None = None) -> Ints:
    """Return the order of rows by start, the longer first, then by `key`."""
    start, duration = int_column(found, "start_ns", 0), int_column(found, "dur_ns", 0)
    last = np.arange(len(start)) if key is None else int_column(found, key, 0)
    return np.lexsort((last, -duration, start))


def _argument(writer: Writer, rows: pa.Table, column: str) -> Argument:
    if column in TEXTS:
        numbers = writer.texts(packets.VALUE, code_column(rows, column))
        return Argument(column, packets.TEXT, numbers, numbers > 0)
    present = rows[column].is_valid().to_numpy()
    if column in SHARES:
        values = rows[column].fill_null(0).to_numpy()
        return Argument(column, packets.DOUBLE, values, present & ~np.isnan(values))
    return Argument(column, packets.INT, int_column(rows, column, 0), present)


def work_names(rows: pa.Table) -> TextColumn:
    """Return names of kernels and copies: layer and op, else what the kernel is called."""
    layer, layers = code_column(rows, "layer")
    op, ops = code_column(rows, "op")
    kernel, kernels = code_column(rows, "kernel_short")
    category, categories = code_column(rows, "category")
    is_copy = np.array([*(text in {"memcpy", "memset"} for text in categories), False])[category]
    by_op = (op >= 0) & ~is_copy
    # Each pair of a layer and an op has a number, and behind them all each kernel.
    pairs = (len(layers) + 1) * (len(ops) + 1)
    code = np.where(by_op, (layer + 1).astype(np.int64) * (len(ops) + 1) + op + 1, pairs + kernel)
    used, codes = np.unique(code, return_inverse=True)
    texts = [
        _op_name(layers, ops, *divmod(each, len(ops) + 1))
        if each < pairs
        else kernels[each - pairs]
        for each in used.tolist()
        if each >= 0
    ]
    return np.where(by_op | (kernel >= 0), codes, -1), texts


def _op_name(layers: Sequence[str], ops: Sequence[str], layer: int, op: int) -> str:
    return f"{layers[layer - 1]}: {ops[op - 1]}" if layer else ops[op - 1]


def constant(text: str, count: int) -> TextColumn:
    """Return the same text for every row."""
    return np.zeros(count, np.int64), [text]


def flows_from(number: Ints, named: Ints, flow: Ints) -> tuple[Ints, Ints]:
    """Return the flows that begin in rows, one row after another, and their offsets.

    Args:
        number: of each row.
        named: in ascending order, the row in which each flow begins.
        flow: the flows, in that order.
    """
    first = np.searchsorted(named, number)
    count = np.searchsorted(named, number, "right") - first
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(count)))
    at = np.repeat(first - offsets[:-1], count) + np.arange(offsets[-1])
    return flow[at], offsets
