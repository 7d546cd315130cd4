"""The work of the kernels and copies of a recording, and why some cannot be predicted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.roofs import floats, op_numbers, savings_of
from pyprof2.analysis.prediction.model import EXTRAPOLATED, KINDS, Work, WorkUnit, shares_of_groups
from pyprof2.columns import combine_keys, values_of
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.prediction.model import Predicted

COLUMNS: Final = (
    "kernel_id", "start_ns", "dur_ns", "device", "step", "kernel", "kernel_short", "op",
    "direction", "category", "params", "compute_dtype", "tensor_core", "flops", "bytes", "link",
    "copy_kind", "launch_ns", "cost_op_id", "cost_call_id",
    "cost_status",
)  # fmt: skip
"""The columns of kernels and copies that are read."""
_OF_OPS: Final = ("step", "cost_op_id", "cost_call_id")
_KIND_OF: Final = {
    "matmul": "linear", "conv": "linear", "attention": "linear", "softmax": "softmax",
    "norm": "norm", "reduce": "norm", "pool": "norm", "loss": "norm", "rnn": "norm",
} | dict.fromkeys(
    ("elementwise", "copy", "optimizer", "index", "embedding", "cat", "random", "sort", "memcpy",
     "memset"), "elementwise",
)  # fmt: skip
_IN_DEVICE: Final = "d2d"
_BATCHES: Final = re.compile(r"B=(?!1,)\d")
_SPARSE: Final = re.compile(
    r"^aten::(?:_?sparse_|_?to_sparse|_cslt_|_sparse)|cusparse|spmm|spgemm|sddmm|csrm[mv]|gemm_sp"
)
_GRAPH: Final = "graph"
_FEW: Final = 0.01
_MUCH: Final = 0.1
_MOST: Final = 0.5
"""Shares of time: of graphs and sparse work, of dtypes that lack, of what is extrapolated."""


@dataclass(frozen=True)
class Rows:
    """Kernels and copies in order of their start.

    Attributes:
        table: their columns `COLUMNS`.
        work: what they did.
        is_sparse: of which the counts are those of dense work.
        is_unexplained: of replayed graphs, without an op.
    """

    table: pa.Table
    work: Work
    is_sparse: Bool
    is_unexplained: Bool

    @classmethod
    def of(cls, read: Callable[..., pa.Table], step: int | None) -> Rows:
        """Return those of a step of a rank, or all, of its tables `kernels` and `copies`.

        Args:
            read: as `RankTables.read`.
            step: which one; None: all.
        """
        names = ("kernels", "copies")
        if step is None:
            found = [read(name, COLUMNS) for name in names]
        else:
            # An algorithm is known by all kernels of its op, in whatever step they are.
            keys = [read(name, _OF_OPS).select(_OF_OPS) for name in names]
            both = pa.concat_tables(keys)
            op, own = op_numbers(both), int_column(both, "step", -1) == step
            wanted = own | np.isin(op, values_of(op[own & (op >= 0)]))
            parts = np.split(wanted, [keys[0].num_rows])
            found = [read(name, COLUMNS, part) for name, part in zip(names, parts, strict=True)]
        both = pa.concat_tables(table.select(COLUMNS) for table in found).unify_dictionaries()
        order = np.lexsort((int_column(both, "kernel_id", 0), int_column(both, "start_ns", 0)))
        table = both.take(pa.array(order))
        op, ops = code_column(table, "op")
        kernel, kernels = code_column(table, "kernel")
        sparse_op, sparse_kernel = (
            np.array([*(bool(text and _SPARSE.search(text)) for text in texts), False])
            for texts in (ops, kernels)
        )
        is_unexplained = has_text(table, "link", (_GRAPH,)) & (op < 0)
        rows = cls(table, _work(table), sparse_op[op] | sparse_kernel[kernel], is_unexplained)
        return rows if step is None else rows.only(int_column(table, "step", -1) == step)

    def only(self, chosen: Int | Bool) -> Rows:
        """Return some of them."""
        work = self.work
        picked = {
            name: getattr(work, name)[chosen]
            for name in ("time", "flops", "bytes", "kind", "unit", "is_kept")
        }
        at = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        return Rows(
            self.table.take(pa.array(at)), Work(units=work.units, **picked),
            self.is_sparse[chosen], self.is_unexplained[chosen],
        )  # fmt: skip


def _work(table: pa.Table) -> Work:
    category, categories = code_column(table, "category")
    params, texts = code_column(table, "params")
    of_category = [KINDS.index(_KIND_OF[c]) if c in _KIND_OF else -1 for c in categories]
    kind = np.array([*of_category, -1])[category]
    is_batched = np.array([*(bool(text and _BATCHES.match(text)) for text in texts), False])[params]
    is_product = has_text(table, "category", ("matmul",))
    kind = np.where(is_product & is_batched, KINDS.index("batched"), kind)
    is_copy = has_text(table, "category", ("memcpy",))
    kept = has_text(table, "category", ("comm",))
    kept |= is_copy & ~has_text(table, "copy_kind", (_IN_DEVICE,))
    # Some algorithms need fewer multiplications than the counts, which are of the direct one.
    own, savings = savings_of(table, op_numbers(table))
    flops = floats(table, "flops") / np.array([*(each.factor for each in savings), 1.0])[own]
    flops = np.where(is_copy | has_text(table, "category", ("memset",)), 0.0, flops)
    unit, units = _units(table)
    return Work(
        int_column(table, "dur_ns", 0).astype(float), flops, floats(table, "bytes"), kind, unit,
        units, kept,
    )  # fmt: skip


def _units(table: pa.Table) -> tuple[Int, list[WorkUnit]]:
    dtype, dtypes = code_column(table, "compute_dtype")
    matrix, answers = code_column(table, "tensor_core")
    _, first, of = np.unique(combine_keys(dtype, matrix), return_index=True, return_inverse=True)
    units = [
        WorkUnit(
            dtypes[dtype[at]] if dtype[at] >= 0 else None,
            answers[matrix[at]] if matrix[at] >= 0 else None,
        )
        for at in first.tolist()
    ]
    return of.reshape(-1), units


def why_not(rows: Rows, found: Predicted, source: Device, target: Device) -> Iterator[str]:
    """Give the reasons why nothing can be said of the target; none: something can.

    Args:
        rows: as recorded.
        found: what the model says of them.
        source: where they were recorded.
        target: where they would run.
    """
    total = max(float(rows.work.time.sum()), 1.0)

    def share(which: Bool) -> float:
        return float(rows.work.time[which].sum()) / total

    if source == target:
        return
    if target.memory_bytes_per_s is None:
        yield "the bandwidth of its memory is not known"
    if share(rows.is_sparse) > _FEW:
        yield "sparse kernels: what they skip is not in the counts"
    if share(rows.is_unexplained) > _FEW:
        yield "kernels of CUDA graphs without an op: record the capture too"
    for dtype in dict.fromkeys(unit.dtype for unit in rows.work.units):
        own = np.array([unit.dtype == dtype for unit in rows.work.units])[rows.work.unit]
        if WorkUnit(dtype, None).is_lacking(target) and share(own) > _MUCH:
            yield f"it has no units for {dtype}, in {100 * share(own):.0f} % of the time"
    extrapolated = float(shares_of_groups(found)[EXTRAPOLATED])
    if extrapolated > _MOST:
        part = f"{100 * extrapolated:.0f} % of the time"
        yield f"{part} would be extrapolated: {_lacking(rows, found)}"


def _lacking(rows: Rows, found: Predicted) -> str:
    """Return of what kernels the time would be extrapolated, and what helps."""
    work, lacks = rows.work, found.group == EXTRAPOLATED
    uncounted = np.isnan(work.flops) | np.isnan(work.bytes) | (work.flops + work.bytes == 0)
    uncounted &= lacks
    status, words = code_column(rows.table, "cost_status")
    no_shapes = np.array([*(word == "no_shapes" for word in words), False])[status]
    names = [unit.dtype or "an unknown type" for unit in work.units]
    types = dict.fromkeys(names[at] for at in np.unique(work.unit[lacks & ~uncounted]).tolist())
    causes = {
        "kernels without counts of FLOPs and bytes (record shapes)": uncounted & no_shapes,
        "kernels whose FLOPs and bytes no formula counts": uncounted & ~no_shapes,
        f"kernels in {', '.join(types)}, whose peaks are not known": lacks & ~uncounted,
    }
    times = {words: float(found.time[own].sum()) for words, own in causes.items()}
    return ", ".join(sorted((each for each in times if times[each]), key=lambda e: -times[e]))


def remarks(rows: Rows, source: Device, target: Device) -> Iterator[str]:
    """Give what was assumed of float32 products."""
    if source == target:
        return
    tf32, plain = (WorkUnit("f32", matrix) for matrix in ("yes", "no"))
    has_tf32 = "tf32" in target.matrix_flop_per_s
    used = {rows.work.units[at] for at in np.unique(rows.work.unit[rows.work.flops > 0]).tolist()}
    if tf32 in used and "f32" not in source.matrix_flop_per_s and not has_tf32:
        yield "TF32 here, plain float32 there: it has none"
    products = has_text(rows.table, "category", ("matmul", "conv")) & (rows.work.flops > 0)
    products &= np.array([unit == plain for unit in rows.work.units])[rows.work.unit]
    if has_tf32 and rows.work.time[products].sum() > _FEW * rows.work.time.sum():
        yield "float32 without TF32 here, and so there"
