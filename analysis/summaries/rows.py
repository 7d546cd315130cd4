"""The rows of axis `kernel`: GPU activities, or op calls where a recording has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.axes import COARSE
from pyprof2.analysis.chunked import frame_of_parts
from pyprof2.analysis.hardware.missed_tensor_cores import missed_reasons
from pyprof2.analysis.hardware.roofs import floats
from pyprof2.analysis.linking.ops import is_envelope
from pyprof2.analysis.linking.stacks import libraries, stack_texts
from pyprof2.columns import text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import KERNELS, OPS, PROFILE_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

    Floats = NDArray[np.float64]

_NEVER_NULL: Final = (
    *(c.name for c in KERNELS.columns if not c.nullable), "rate_ns",
)  # fmt: skip

_OF_ACTIVITIES: Final = {
    "tensor_core_missed": (
        "tensor_core", "tensor_core_eligible", "tensor_core_eligible_half", "flops",
        "compute_dtype", "params", "device_type",
    ),
    "library": ("library_source", "source"),
    "stack_id": ("stack_id",),
    "call_id": ("call_id",),
    "stack": ("stack_id",),
    "other_sequence_nrs": ("op_id", "sequence_nr"),
    **{f"shared_{name}": (f"shared_{name}",) for name in COARSE},
}  # fmt: skip
"""The columns beside those of the profile, and what each is made of."""
_OF_OPS: Final = (
    "op_id", "rank", "start_ns", "op", "is_written", "original_op", "link", "dur_ns", "self_ns",
    "flops", "bytes", "flops_lo", "bytes_lo", "category", "params", "compute_dtype",
    "cost_status", "span",
)  # fmt: skip
"""The columns that rows of ops rest on, whichever are asked for."""

HIDDEN: Final = (*_OF_ACTIVITIES, "rate_ns")
"""Columns that rows may have beside those of the profile, for sums along an axis."""

ALL: Final = (*PROFILE_COLUMNS, *HIDDEN)
"""The columns that rows may have."""

BESIDE: Final = {
    "stack": ("stacks", ("stack_id", "caller_id", "line")),
    "other_sequence_nrs": ("ops", ("op_id", "parent_op_id", "sequence_nr")),
}
"""The columns that need another table of the rank, that table, and its columns."""


def activity_parts(
    read: Callable[[str, Sequence[str]], Iterable[pa.Table]],
    wanted: Collection[str],
    beside: Mapping[str, pa.Table] | None = None,
    keep: Callable[[pa.Table], Bool] | None = None,
) -> Iterator[pa.Table]:
    """Yield the kernels and then the copies of a rank part by part, with columns that are made.

    Args:
        read: gives the parts of a table, with the columns that are named.
        wanted: the columns, of those of `kernels` and of `ALL`.
        beside: the tables that some columns need, see `BESIDE`.
        keep: says by stored columns which rows of a part to give; None: all.
    """
    made = {name for column in wanted for name in _OF_ACTIVITIES.get(column, ())}
    stored = [name for name in KERNELS.names if name in made or name in wanted]
    for name in ("kernels", "copies"):
        for part in read(name, stored):
            rows = part if keep is None else part.filter(pa.array(keep(part)))
            for column, values in _made(rows, wanted, beside or {}).items():
                rows = rows.append_column(column, values)
            yield rows


def _made(
    rows: pa.Table, wanted: Collection[str], beside: Mapping[str, pa.Table]
) -> dict[str, pa.Array]:
    """Return the columns that are made of others."""
    found = {}
    if "library" in wanted:
        found["library"] = text_array(libraries(rows))
    if "tensor_core_missed" in wanted:
        found["tensor_core_missed"] = text_array(missed_reasons(rows))
    if "stack" in wanted and "stack" in beside:
        found["stack"] = text_array(stack_texts(rows, beside["stack"]))
    if "other_sequence_nrs" in wanted and "other_sequence_nrs" in beside:
        found["other_sequence_nrs"] = other_sequence_nrs(rows, beside["other_sequence_nrs"])
    return found


def other_sequence_nrs(rows: pa.Table, ops: pa.Table) -> pa.Array:
    """Return the other sequence numbers of the ops around each row, ascending, as `1064,1066`.

    A 0 beside others is none: PyTorch writes it where autograd counts nothing.

    Args:
        rows: with `op_id` and `sequence_nr`.
        ops: table `ops`, in order of `op_id`.
    """
    own = int_column(rows, "sequence_nr", -1)
    numbers, parents = (int_column(ops, name, -1) for name in ("sequence_nr", "parent_op_id"))
    ids, op = ops["op_id"].to_numpy(), int_column(rows, "op_id", -1)
    row = np.flatnonzero(op >= 0)
    at = np.searchsorted(ids, op[row])
    found_rows, found = [row[:0]], [own[:0]]
    while len(row):
        differs = (numbers[at] > 0) & (numbers[at] != own[row])
        found_rows.append(row[differs])
        found.append(numbers[at][differs])
        outer = parents[at]
        row, at = row[outer >= 0], np.searchsorted(ids, outer[outer >= 0])
    pairs = np.unique(np.stack([np.concatenate(found_rows), np.concatenate(found)]), axis=1)
    counts = np.bincount(pairs[0], minlength=rows.num_rows)
    lists = pa.ListArray.from_arrays(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        pa.array(pairs[1]).cast(pa.string()),
    )
    texts = pc.binary_join(lists, ",")
    return pc.if_else(counts > 0, texts, None).dictionary_encode()


def frame(parts: Iterable[pa.Table], wanted: Collection[str] = ALL, count: int = 0) -> pd.DataFrame:
    """Return rows that come in parts, rank by rank in order of their ids.

    Args:
        parts: with `rank` and `kernel_id`, too.
        wanted: which of the columns `ALL`.
        count: how many there are, if that is known.
    """
    names, by = [name for name in ALL if name in wanted], ("rank", "kernel_id")
    return frame_of_parts(parts, names, lambda _, v: v, count, by=by, never_null=_NEVER_NULL)


def are_helpers(rows: pa.Table) -> Bool:
    """Return which kernels have a part in an op's cost, but do not do its work."""
    role, roles = code_column(rows, "cost_role")
    found: Bool = np.array([*(text != "main" for text in roles), False])[role]
    return found


def has_least(rows: pa.Table) -> Bool:
    """Return which rows have a roof, and so a least time."""
    found: Bool = ~np.isnan(floats(rows, "roofline_pct"))
    return found


def least_times(rows: pa.Table, working: Floats | Int, has_roof: Bool) -> Floats:
    """Return the time that the roof allows each row for its part of its op's work; NaN: unknown.

    That of an op belongs to the kernels that work, in proportion to their time; others have none.

    Args:
        rows: of `kernels` and `copies`.
        working: of each row, the time of those that do the work of its op, in ns.
        has_roof: of each row, whether any row of its op has a roof.
    """
    time = int_column(rows, "dur_ns", 0)
    part = np.divide(time, working, out=np.full(len(time), np.nan), where=working > 0)
    least: Floats = floats(rows, "roofline_pct") / 100 * floats(rows, "op_time_ns") * part
    least[are_helpers(rows) & has_roof] = 0
    return least


def op_columns(wanted: Collection[str]) -> list[str]:
    """Return the columns of `ops` that `op_rows` makes its columns of."""
    made = {*_OF_OPS, *wanted, *(_OF_ACTIVITIES["library"] if "library" in wanted else ())}
    made |= {"signature_id"} if "signature" in wanted else set()
    made |= {"stack_id"} if "stack" in wanted else set()
    made |= {"sequence_nr"} if "other_sequence_nrs" in wanted else set()
    return [name for name in OPS.names if name in made]


def op_rows(
    ops: pa.Table,
    signatures: pa.Table,
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
    wanted: Collection[str] = ALL,
    beside: Mapping[str, pa.Table] | None = None,
) -> pa.Table:
    """Return one row per op call of a rank on the CPU, timed by its self time.

    Rates are those of the op over its whole duration, which stands in `rate_ns`, because the ops
    inside do part of its FLOPs. The autograd engine's own ranges are no rows.

    Args:
        ops: table `ops`, at least `op_columns`.
        signatures: table `signatures`.
        devices: rows of the canonical table `devices`: what was measured of the CPU.
        override: a file that describes the CPU, to use instead.
        wanted: which of the columns `ALL`.
        beside: the tables that some columns need, see `BESIDE`.
    """
    # The verdicts take long to import, and most recordings have kernels instead.
    from pyprof2.analysis.hardware.verdict import examine_ops

    calls = examine_ops(op_calls(ops, signatures), devices, override).table
    columns = {name: calls[name] for name in calls.column_names if name in wanted}
    columns |= _made(calls, wanted, beside or {})
    if "rate_ns" in wanted:
        columns["rate_ns"] = calls["op_time_ns"]
    return pa.table(columns)


def op_calls(ops: pa.Table, signatures: pa.Table) -> pa.Table:
    """Return the calls of ops as rows of the canonical table `kernels`, without their roofs.

    Columns that were not read of the ops are null.
    """
    ops = ops.filter(pa.array(~is_engine(ops["op"])))
    columns = {name: ops[name] for name in KERNELS.names if name in ops.column_names}
    # Rates are over the whole durations.
    flops, nbytes = (ops[name].cast(pa.float64()) for name in ("flops", "bytes"))
    duration, moved = (
        pc.if_else(pc.greater(ops[name], 0), ops[name], None).cast(pa.float64())
        for name in ("dur_ns", "bytes")
    )
    columns |= {
        "kernel_id": pa.array(np.arange(ops.num_rows)),
        "dur_ns": ops["self_ns"],
        **dict.fromkeys(("kernel", "kernel_short"), ops["op"]),
        "device_type": pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(ops.num_rows, np.int32)), pa.array(["cpu"])
        ),
        "cost_op_id": ops["op_id"],
        "op_time_ns": ops["dur_ns"],
        "link": pc.fill_null(_texts(ops, "link"), "self").dictionary_encode(),
        "op": pc.if_else(
            pc.fill_null(ops["is_written"], False),  # noqa: FBT003 - a value
            _texts(ops, "original_op"),
            _texts(ops, "op"),
        ).dictionary_encode(),
        "tflops": pc.divide(pc.divide(flops, duration), 1e3),
        "gbps": pc.divide(nbytes, duration),
        "intensity": pc.divide(flops, moved),
    }
    if "signature_id" in ops.column_names:
        # Ids are positions. Signatures that differ in arguments without a shape have one text.
        ids = ops["signature_id"].fill_null(-1).to_numpy()
        columns["signature"] = text_array((ids, signatures["signature"].to_pylist()))
    return KERNELS.conform(pa.table(columns))


def is_engine(op: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which ops are envelopes of autograd's: its engine's range, or a node."""
    names, texts = code_column(pa.table({"op": op}), "op")
    engine = [is_envelope(text) for text in texts]
    found: np.ndarray[Any, np.dtype[np.bool_]] = np.array(engine or [False])[names]
    return found


def _texts(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table[name].cast(pa.string())
