"""Sums of op calls along the axes of a profile: time on host and device, self and total.

Rows of a profile are work of a device; what an op does on the host, and the work of the ops inside
of it, follow from the op calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pandas.api.types import is_string_dtype

from pyprof2.analysis.intervals import add_to_parents, levels_of, same_again
from pyprof2.analysis.linking.stacks import libraries, stack_texts
from pyprof2.analysis.summaries.profile import Key, KeyGroups, added, order_shown, whole_numbers
from pyprof2.analysis.summaries.profile_columns import AXES, OF_CALLS
from pyprof2.columns import as_pandas, sum_at, text_array, with_text
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Int

NEEDED: Final = {
    "kernels": ("op_id", "dur_ns", "tensor_core"),
    "copies": ("op_id", "dur_ns", "tensor_core"),
    "launches": ("op_id", "dur_ns"),
}
"""The columns of each table, beside `ops`, that calls are made of."""

_OF_OPS: Final = ("op_id", "rank", "dur_ns", "self_ns", "op", "category", "parent_op_id")
_MADE: Final = {
    "signature": ("signature_id",),
    "library": ("library_source", "source"),
    "stack": ("stack_id",),
}
_TENSOR_CORE_KINDS: Final = ("matmul", "conv", "attention", "rnn")
"""The categories of ops that Tensor Cores do in half precision."""
_ADDED: Final = (
    "calls", "host_self_ns", "host_total_ns", "device_total_ns", "tensor_core_ns", "known_ns",
)  # fmt: skip


def op_columns(wanted: Collection[str]) -> list[str]:
    """Return the columns of `ops` that `op_calls` reads for the columns `wanted`."""
    made = {part for name in wanted for part in _MADE.get(name, ())}
    return [*{*_OF_OPS, *made, *wanted} - _MADE.keys()]


def op_calls(
    tables: Mapping[str, pa.Table], signatures: pa.Table, stacks: pa.Table, wanted: Collection[str]
) -> pa.Table:
    """Return a row for each op call of a rank, with what it adds to sums.

    A call whose only op inside has its name is one call with it, as where an op hands over to
    another overload of its own. `device_total_ns` counts the ops inside; of ops that call one
    another under one name it counts each, as `host_total_ns` does.

    Args:
        tables: `ops`, with `op_columns`, and those of `NEEDED`, with its columns.
        signatures: table `signatures`, for the key of that name.
        stacks: table `stacks`, the same.
        wanted: the columns that are keys, or selected by.

    Returns:
        These columns, then what `sums_of_calls` adds up. Nothing is known of a device where there
        is no work of one.
    """
    ops = tables["ops"]
    parent = int_column(ops, "parent_op_id", -1)
    count = ops.num_rows
    device, fast, known = (np.zeros(count, np.int64) for _ in range(3))
    for name in ("kernels", "copies"):
        work = tables[name]
        op, time = int_column(work, "op_id", -1), int_column(work, "dur_ns", 0)
        yes = has_text(work, "tensor_core", ("yes",))
        has_verdict = yes | has_text(work, "tensor_core", ("no",))
        device += sum_at(op, time, count)
        fast += sum_at(np.where(yes, op, -1), time, count)
        known += sum_at(np.where(has_verdict, op, -1), time, count)
    launches = tables["launches"]
    owner, took = int_column(launches, "op_id", -1), int_column(launches, "dur_ns", 0)
    launching = sum_at(owner, took, count)
    is_kind = has_text(ops, "category", _TENSOR_CORE_KINDS)
    could = np.asarray(is_kind | (fast > 0), np.int64)
    levels = levels_of(parent)
    for sums in (device, fast, known):
        add_to_parents(sums, parent, levels)
    add_to_parents(could, parent, levels)
    first = ~same_again(code_column(ops, "op")[0], parent)
    has_device = any(tables[name].num_rows for name in ("kernels", "copies"))
    made = {
        "calls": first.astype(np.int64),
        "host_self_ns": np.maximum(int_column(ops, "self_ns", 0) - launching, 0),
        "host_total_ns": np.where(first, int_column(ops, "dur_ns", 0), 0),
        "device_total_ns": _or_null(np.where(first, device, 0), known=has_device),
        "tensor_core_ns": np.where(first, fast, 0),
        "known_ns": np.where(first, known, 0),
        "could": could > 0,
    }
    texts = {
        "signature": lambda: text_array(
            (int_column(ops, "signature_id", -1), signatures["signature"].to_pylist())
        ),
        "library": lambda: text_array(libraries(ops)),
        "stack": lambda: text_array(stack_texts(ops, stacks)),
    }
    keys = {name: texts[name]() if name in texts else ops[name] for name in wanted}
    return pa.table(keys | made)


def _or_null(values: Int, *, known: bool) -> pa.Array:
    return pa.array(values) if known else pa.nulls(len(values), pa.int64())


def with_calls(
    sums: pd.DataFrame,
    calls: pa.Table,
    by: Sequence[str],
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
) -> pd.DataFrame:
    """Return sums along axes with the columns `OF_CALLS`, and rows for what only calls have.

    Args:
        sums: what `summarize` gave.
        calls: the chosen rows of `op_calls`.
        by: the axes, of `OPS_HAVE`.
        depth: as for `summarize`.
        fold_numbers: as for `summarize`.
    """
    keys, group, count = KeyGroups.along(
        lambda name: Key.of(calls, name), by, depth, fold_numbers=fold_numbers
    )
    sum_of = {name: added(int_column(calls, name, 0), group, count) for name in _ADDED}
    known = np.full(count, calls["device_total_ns"].null_count == 0)
    found = {
        name: whole_numbers(sum_of[name], known | (name != "device_total_ns")) for name in _ADDED
    }
    base = sum_of["known_ns"].astype(np.float64)
    share = 100 * sum_of["tensor_core_ns"].astype(np.float64) / np.where(base > 0, base, 1)
    found["tensor_core_total_pct"] = pa.array(share, mask=base <= 0)
    could = np.bincount(group, calls["could"].to_numpy(), count) > 0
    found["tensor_core_eligible"] = pa.array(could)
    return beside(sums, keys | {c.name: found[c.name] for c in OF_CALLS}, by)


def beside(sums: pd.DataFrame, others: Mapping[str, pa.Array], by: Sequence[str]) -> pd.DataFrame:
    """Return sums with the columns of others that have the same keys; nothing is left out.

    A key that only the others have has no work of a device: no count, and no time.
    """
    names = [AXES[axis] for axis in by]
    kinds = {name: sums[name].dtype for name in ("count", "op_calls", "time_ns")}
    never_null = [name for name in ("rank", "span") if name in names]
    added_to = as_pandas(pa.table(others), never_null)
    texts = [name for name in names if is_string_dtype(sums[name].dtype)]
    found = sums.merge(with_text(added_to, texts), on=names, how="outer", sort=True)
    new = found["count"].isna()
    for name, kind in kinds.items():
        found[name] = found[name].fillna(0).astype(kind)
    if sums["time_ns"].sum():
        found.loc[new, "share_pct"] = 0.0
    step = found["step"].fillna(np.iinfo(np.int64).max) if by[0] == "step" else None
    order = order_shown(
        found["time_ns"].to_numpy(np.int64), None if step is None else step.to_numpy(np.int64)
    )
    return found.iloc[order].reset_index(drop=True)
