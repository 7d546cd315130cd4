"""Small tables to test with: a test states what matters to it, the rest is filled in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.summaries.profile import Sums, frame
from pyprof2.analysis.summaries.profile_columns import AXES
from pyprof2.analysis.summaries.sum_tables import ALWAYS
from pyprof2.analysis.summaries.sums import sums_of_rank
from pyprof2.tables import KERNELS, PROFILE_COLUMNS, TABLES, TEXT, Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def profile_rows(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """Return rows of axis `kernel`, as `run_profile.rows_of` does.

    What a row leaves out is null, except `rank` and `span` 0, `dur_ns` 1000, and `kernel_id` and
    `start_ns`, which count up. `library`, `stack`, `other_sequence_nrs`, `call_id` and `rate_ns`
    may be given.
    """
    full: list[dict[str, Any]] = []
    start = 0
    defaults = {"rank": 0, "span": 0, "dur_ns": 1000}
    for i, row in enumerate(rows):
        full.append(defaults | {"kernel_id": i, "start_ns": start} | dict(row))
        start += full[-1]["dur_ns"]
    unknown = {name for row in full for name in row} - {
        *PROFILE_COLUMNS,
        "rate_ns",
        "library",
        "stack",
        "other_sequence_nrs",
        "call_id",
    }
    if unknown:
        msg = f"no such columns: {sorted(unknown)}"
        raise ValueError(msg)
    names = {*PROFILE_COLUMNS, "call_id"}
    wanted = [column for column in KERNELS.columns if column.name in names]
    wanted.append(Column("library", TEXT, "Package of `library_source`."))
    wanted.append(Column("stack", TEXT, "Lines that led to it."))
    wanted.append(Column("other_sequence_nrs", TEXT, "Sequence numbers around it."))
    if any("rate_ns" in row for row in full):
        wanted.append(Column("rate_ns", pa.int64(), "Time that the rates are taken over."))
    return pd.DataFrame(
        {column.name: _series([row.get(column.name) for row in full], column) for column in wanted}
    )


def sums_of(rows: pd.DataFrame, *keys: str, means: Sequence[str] = ()) -> Sums:
    """Return rows of axis `kernel` added up by columns, as `Run.sums` does.

    Counts belong to rows alone: none only helps with the work of another.
    """
    parts = {int(str(rank)): own for rank, own in rows.groupby("rank")} or {0: rows}

    def of_rank(rank: int, own: pd.DataFrame) -> Sums:
        table = pa.Table.from_pandas(own, preserve_index=False)
        if "tensor_core_missed" not in own:
            table = table.append_column("tensor_core_missed", pa.nulls(len(own), TEXT))
        return sums_of_rank(lambda _, _keep=None: [table], [*keys, *ALWAYS], rank, means=means)

    return Sums.together([of_rank(*part) for part in parts.items()])


def summarized(
    rows: pd.DataFrame,
    by: Sequence[str],
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
) -> pd.DataFrame:
    """Return rows of axis `kernel` summed along axes, with all columns, as `prof` does."""
    sums = sums_of(rows, *(AXES.get(axis, "op") for axis in by))
    return frame(sums.summarize(by, depth, fold_numbers=fold_numbers))


def total_of(rows: pd.DataFrame) -> dict[str, Any]:
    """Return what rows of axis `kernel` add up to."""
    return sums_of(rows).total()


def _series(values: list[Any], column: Column) -> pd.Series:
    if column.type == TEXT:
        return pd.Series(values, dtype="str").astype("category")
    if column.type == pa.int64():
        return pd.Series(values, dtype="Int64" if column.nullable else "int64")
    return pd.Series(values, dtype="boolean" if column.type == pa.bool_() else "float64")


def canonical(name: str, *rows: Mapping[str, Any]) -> pa.Table:
    """Return the canonical table `name` with these rows.

    What a row leaves out is null; where null is not allowed it is 0, and a key counts up.
    """
    table = TABLES[name]
    key = table.columns[0].name
    full = [
        {c.name: row.get(c.name, i if c.name == key else 0 if not c.nullable else None)
         for c in table.columns}
        for i, row in enumerate(rows)
    ]  # fmt: skip
    unknown = {name for row in rows for name in row} - set(table.names)
    if unknown:
        msg = f"no such columns: {sorted(unknown)}"
        raise ValueError(msg)
    return pa.Table.from_pylist(full, schema=table.schema())


def chunked(tables: Mapping[str, pa.Table], size: int | None = None) -> dict[str, InMemory]:
    """Return tables as they are read in parts of so many rows; None: of all."""
    cut = {name: size or max(1, table.num_rows) for name, table in tables.items()}
    return {name: InMemory.cut(table, cut[name]) for name, table in tables.items()}


def kineto_trace(*events: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Kineto trace, as JSON decoded; times are in µs."""
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU X"}],
        "traceEvents": [{"ph": "X", "pid": 1, "tid": 1, "args": {}} | dict(e) for e in events],
    }


def mm_trace() -> dict[str, Any]:
    """Return a Kineto trace of one `aten::mm` that runs one kernel of 40 µs."""
    shapes = {"Input Dims": [[4, 8], [8, 16]], "Input type": ["float", "float"]}
    return kineto_trace(
        {"cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 20, "args": shapes},
        {
            "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 5,
            "args": {"correlation": 9},
        },
        {
            "cat": "kernel", "name": "void gemm<float>(int)", "ts": 30, "dur": 40,
            "pid": 0, "tid": 7, "args": {"correlation": 9, "device": 0, "stream": 7},
        },
    )  # fmt: skip
