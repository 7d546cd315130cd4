"""The rows that collectives are made of: few, and what is found in them is what is found in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest

import pyprof2
from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.job.collective_rows import INPUT, rows_of_collectives
from pyprof2.analysis.job.collectives import collectives_of_rank
from pyprof2.store.folder import ranks_of
from pyprof2.store.rank_tables import RankTables
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyprof2.analysis.intervals import Int

IN_PARTS: Final = ("kernels", "ops", "ranges")


def chosen(tables: Mapping[str, pa.Table], part: int) -> dict[str, pa.Table]:
    """Return the rows that count, of tables in parts of so many rows."""
    parts = {name: InMemory.cut(tables[name], part) for name in IN_PARTS}

    def rows(name: str, at: Int) -> pa.Table:
        assert (np.diff(at) > 0).all()
        return tables[name].select(INPUT[name]).take(pa.array(at))

    return rows_of_collectives(parts, rows)


def test_ops_that_communicate_or_launched_what_does_come_with_all_around_them() -> None:
    names = ["outer", "aten::add", "c10d::allreduce_", "nccl:all_reduce", "aten::mm", "alone"]
    parents = [None, 0, 0, 2, None, None]
    ops = [
        {"op": name, "parent_op_id": parent, "start_ns": i}
        for i, (name, parent) in enumerate(zip(names, parents, strict=True))
    ]
    kernels = [{"category": "comm", "op_id": 4}, {"category": "matmul", "op_id": 5}]
    ranges: list[dict[str, Any]] = [
        {"name": "ncclAllReduce"}, {"name": "step"}, {"name": "gloo:all_reduce"},
        {"name": "{}", "kind": "collective"}, {"name": "ncclLower"},
        {"name": "nccl:all_reduce", "signature_id": 0}, {"name": "nccl:all_reduce"},
        {"name": "other", "signature_id": 1},
    ]  # fmt: skip
    tables = {
        "ops": canonical("ops", *ops),
        "kernels": canonical("kernels", *kernels),
        "ranges": canonical("ranges", *ranges),
    }

    for part in (1, 2, 9):
        found = chosen(tables, part)
        assert found["ops"]["op_id"].to_pylist() == [0, 2, 3, 4]
        assert found["kernels"]["op_id"].to_pylist() == [4]
        assert found["ranges"]["name"].to_pylist() == [
            "ncclAllReduce", "gloo:all_reduce", "{}", "ncclLower", "nccl:all_reduce"
        ]  # fmt: skip


@pytest.mark.minutes
def test_collectives_of_a_real_trace_are_those_of_all_its_rows(real_trace: Path) -> None:
    run = pyprof2.load(real_trace)
    for rank in ranks_of(run.path):
        whole = RankTables(run.path, rank).several(INPUT)
        few = chosen(whole, 500) | {"signatures": whole["signatures"]}

        assert rows_in(collectives_of_rank(few, rank)) == rows_in(collectives_of_rank(whole, rank))


def rows_in(table: pa.Table) -> list[dict[str, object]]:
    """Return the rows of a table."""
    rows: list[dict[str, object]] = table.to_pylist()
    return rows
