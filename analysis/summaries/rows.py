"""The rows of axis `kernel`: GPU activities, or op calls where a recording has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.missed_tensor_cores import missed_reasons
from pyprof2.analysis.hardware.roofs import floats, op_numbers
from pyprof2.analysis.hardware.verdict import examine_ops
from pyprof2.analysis.linking.stacks import libraries
from pyprof2.columns import as_pandas, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import KERNELS, PROFILE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.intervals import Bool

_NEVER_NULL = [c.name for c in KERNELS.columns if not c.nullable]

HIDDEN: Final = (
    "rate_ns", "least_ns", "accounting_op", "helps", "tensor_core_missed", "library",
)  # fmt: skip
"""Columns that rows may have beside those of the profile, for sums along an axis."""


def activity_rows(kernels: pa.Table, copies: pa.Table) -> pd.DataFrame:
    """Return kernels and copies together, in order of rank and id.

    Why a kernel missed the Tensor Cores stands in `tensor_core_missed`.
    """
    both = pa.concat_tables([kernels, copies]).unify_dictionaries()
    hidden = _rate_parts(both) | {
        "tensor_core_missed": text_array(missed_reasons(both)),
        "library": text_array(libraries(both)),
    }
    both = both.select(PROFILE_COLUMNS)
    for name, column in hidden.items():
        both = both.append_column(name, column)
    order = np.lexsort((both["kernel_id"].to_numpy(), both["rank"].to_numpy()))
    return as_pandas(both.take(order), [*_NEVER_NULL, "accounting_op", "helps"])


def only_helps(rows: pa.Table) -> Bool:
    """Return which kernels have a part in an op's cost, but do not do its work."""
    role, roles = code_column(rows, "cost_role")
    found: Bool = np.array([*(text != "main" for text in roles), False])[role]
    return found


def _rate_parts(rows: pa.Table) -> dict[str, pa.Array]:
    """Return of which op each row's counts are a part, whether it only helps, its least time.

    The least time of an op is that of the kernels that work, in proportion to their time; its
    helpers have none.
    """
    op, helps = op_numbers(rows), only_helps(rows)
    ops, group = np.unique(op, return_inverse=True)
    time = int_column(rows, "dur_ns", 0)
    working = np.bincount(group, np.where(helps, 0, time), len(ops))[group]
    percent = floats(rows, "roofline_pct")
    part = np.divide(time, working, out=np.full(len(op), np.nan), where=working > 0)
    least = percent / 100 * floats(rows, "op_time_ns") * part
    has_roof = np.bincount(group, ~np.isnan(percent), len(ops)) > 0
    least[helps & has_roof[group]] = 0
    return {
        "accounting_op": pa.array(op),
        "helps": pa.array(helps),
        "least_ns": pa.array(least, mask=np.isnan(least)),
    }


def op_rows(
    ops: pa.Table,
    signatures: pa.Table,
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
) -> pd.DataFrame:
    """Return one row per op call on the CPU, timed by its self time.

    Rates are those of the op over its whole duration, which stands in `rate_ns`, because the ops
    inside do part of its FLOPs. The autograd engine's own ranges are no rows.

    Args:
        ops: canonical table `ops`.
        signatures: canonical table `signatures`.
        devices: rows of the canonical table `devices`: what was measured of the CPU.
        override: a file that describes the CPU, to use instead.
    """
    calls = examine_ops(op_calls(ops, signatures), devices, override).table
    rate = calls["op_time_ns"]
    table = calls.select(PROFILE_COLUMNS)
    table = table.append_column("library", text_array(libraries(table)))
    return as_pandas(table.append_column("rate_ns", rate), [*_NEVER_NULL, "rate_ns"])


def op_calls(ops: pa.Table, signatures: pa.Table) -> pa.Table:
    """Return the calls of ops as rows of the canonical table `kernels`, without their roofs."""
    ops = ops.filter(pa.array(~is_engine(ops["op"])))
    columns = {name: ops[name] for name in KERNELS.names if name in ops.column_names}
    count = ops.num_rows
    known = pc.greater(ops["dur_ns"], 0)
    duration = pc.if_else(known, ops["dur_ns"], None).cast(pa.float64())
    gflops, gbytes = (
        pc.divide(ops[name].cast(pa.float64()), duration) for name in ("flops", "bytes")
    )
    columns |= {
        "kernel_id": _dense_ids(ops["rank"].to_numpy()),
        "dur_ns": ops["self_ns"],
        "kernel": ops["op"],
        "kernel_short": ops["op"],
        "device_type": _constant("cpu", count),
        "cost_op_id": ops["op_id"],
        "op_time_ns": ops["dur_ns"],
        "signature": _signature_texts(ops, signatures),
        "link": _constant("self", count),
        "tflops": pc.divide(gflops, 1e3),
        "gbps": gbytes,
        "intensity": pc.divide(
            ops["flops"].cast(pa.float64()),
            pc.if_else(pc.greater(ops["bytes"], 0), ops["bytes"], None).cast(pa.float64()),
        ),
    }
    return KERNELS.conform(pa.table(columns))


def is_engine(op: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which ops are envelopes of autograd's: its engine's range, or a node."""
    names, texts = code_column(pa.table({"op": op}), "op")
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.array(
        [_is_engine(text) for text in texts] or [False]
    )[names]
    return found


def _is_engine(op: str) -> bool:
    if op.startswith(("autograd::engine::", "torch::autograd::")):
        return True
    return "::" not in op and op.rstrip("0123456789").endswith("Backward")


def _dense_ids(rank: np.ndarray) -> pa.Array:
    """Return 0, 1, … within each rank; rows come in order of rank."""
    starts = (
        np.flatnonzero(np.r_[True, rank[1:] != rank[:-1]]) if len(rank) else np.empty(0, np.int64)
    )
    first = np.repeat(starts, np.diff(np.r_[starts, len(rank)]))
    return pa.array(np.arange(len(rank)) - first)


def _constant(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _signature_texts(ops: pa.Table, signatures: pa.Table) -> pa.Array:
    """Return the text of each op's signature, by rank and signature id."""
    offsets = {}
    rank = signatures["rank"].to_numpy()
    for value in np.unique(rank).tolist():
        offsets[value] = int(np.flatnonzero(rank == value)[0])
    offset = np.array(
        [offsets.get(r, 0) for r in np.unique(ops["rank"].to_numpy()).tolist()] or [0]
    )
    of_rank = np.searchsorted(np.unique(ops["rank"].to_numpy()), ops["rank"].to_numpy())
    ids = ops["signature_id"].fill_null(-1).to_numpy()
    index = np.where(ids >= 0, ids + offset[of_rank], -1)
    # Signatures that differ in arguments without a shape have one text.
    return text_array((index, signatures["signature"].to_pylist()))
