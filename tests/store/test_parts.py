"""A table part by part: what it holds, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pyprof2.errors import StoreError
from pyprof2.store.parts import TableParts
from pyprof2.tables import LAUNCHES, OPS
from tests.builders import canonical

if TYPE_CHECKING:
    from pathlib import Path


def parts(folder: Path, table: pa.Table, size: int = 2) -> TableParts:
    """Return a table of ops in parts of so many rows."""
    pq.write_table(table, folder / "rank-0.parquet", row_group_size=size)
    return TableParts(folder / "rank-0.parquet", OPS, lambda _: table.num_rows)


ROWS = canonical(
    "ops", *({"op": name, "forward_op_id": forward, "parent_op_id": parent}
             for name, forward, parent in zip("abcde", [None, None, 0, None, 1],
                                              [None, 0, 1, None, 3], strict=True))
)  # fmt: skip


def test_parts_are_read_by_themselves(tmp_path: Path) -> None:
    found = parts(tmp_path, ROWS)

    assert (len(found), found.row_count, found.offsets.tolist()) == (3, 5, [0, 2, 4, 5])
    assert [found.read(at, ["op"])["op"].to_pylist() for at in range(3)] == [
        ["a", "b"], ["c", "d"], ["e"],
    ]  # fmt: skip
    assert found.read(2, ["op_id", "parent_op_id"]).to_pylist() == [{"op_id": 4, "parent_op_id": 3}]


def test_bounds_are_those_of_each_part(tmp_path: Path) -> None:
    least, greatest = parts(tmp_path, ROWS).bounds("forward_op_id")

    assert least[0] > greatest[0], "no values"
    assert [(least[at], greatest[at]) for at in (1, 2)] == [(0, 0), (1, 1)]


def test_without_statistics_a_part_may_hold_anything(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "x.parquet", write_statistics=False)
    least, greatest = TableParts(tmp_path / "x.parquet", OPS, lambda _: 5).bounds("forward_op_id")

    assert least[0] < -(1 << 60)
    assert greatest[0] > 1 << 60


@pytest.mark.parametrize(
    ("column", "values"),
    [
        pytest.param("op_id", [0, 1, 2, 4, 3], id="row keys that do not count"),
        pytest.param("forward_op_id", [0, 1, 2, 3, 5], id="a key of no row"),
        pytest.param("parent_op_id", [None, 0, 2, 1, 1], id="a circle"),
        pytest.param("dur_ns", [0, 0, -1, 0, 0], id="a length below nothing"),
    ],
)
def test_a_part_with_impossible_keys_is_refused(
    tmp_path: Path, column: str, values: list[int | None]
) -> None:
    at = ROWS.column_names.index(column)
    found = parts(
        tmp_path, ROWS.set_column(at, ROWS.schema.field(at), pa.array(values, pa.int64()))
    )

    def read_all() -> None:
        for part in range(len(found)):
            found.read(part, [column])

    with pytest.raises(StoreError, match="make the store anew"):
        read_all()


def test_a_table_without_rows_has_no_parts_to_read(tmp_path: Path) -> None:
    pq.write_table(LAUNCHES.empty(), tmp_path / "x.parquet")
    found = TableParts(tmp_path / "x.parquet", LAUNCHES, lambda _: 0)

    assert found.row_count == 0
    assert all(found.read(at, ["name"]).num_rows == 0 for at in range(len(found)))
