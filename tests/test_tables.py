"""The canonical tables: what conforms to them, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from pyprof2.errors import TableError
from pyprof2.result_tables import FINDINGS, RESULTS
from pyprof2.tables import PROFILE_COLUMNS, TABLES, TEXT, Column, Table

THINGS = Table(
    "things",
    "One row per thing.",
    (
        Column("thing_id", pa.int64(), "Row key.", nullable=False),
        Column("dur_ns", pa.int64(), "How long.", "ns"),
        Column("name", TEXT, "What it is."),
        Column("share", pa.float64(), "How much."),
        Column("good", pa.bool_(), "Whether it is."),
    ),
)

DESCRIBED = [*TABLES.values(), *RESULTS.values(), FINDINGS]


def conformed(**columns: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = THINGS.conform(
        pa.table({"thing_id": [1, 2]} | columns)
    ).to_pydict()
    return found


def test_columns_come_in_order_and_type_whatever_they_came_in() -> None:
    table = pa.table(
        {"name": ["a", "a"], "dur_ns": pa.array([3, None], pa.int32()), "thing_id": [1, 2]}
    )

    found = THINGS.conform(table)

    assert found.schema.equals(THINGS.schema())
    assert found["name"].to_pylist() == ["a", "a"]


def test_columns_that_are_missing_are_null() -> None:
    assert conformed()["dur_ns"] == [None, None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_codes_of_texts_may_have_any_width(kind: pa.DataType) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([1, None], kind), pa.array(["a", "b"]))

    assert conformed(name=codes)["name"] == ["b", None]


def test_what_is_unknown_is_refused() -> None:
    with pytest.raises(TableError, match="table things: unknown columns other, still"):
        conformed(still=[1, 2], other=[1, 2])


def test_a_key_that_is_missing_is_refused() -> None:
    with pytest.raises(TableError, match="table things: column thing_id is missing"):
        THINGS.conform(pa.table({"dur_ns": [1]}))


def test_a_key_that_is_null_is_refused() -> None:
    with pytest.raises(TableError, match="column thing_id has 1 nulls"):
        THINGS.conform(pa.table({"thing_id": [1, None]}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("dur_ns", ["long", "longer"], id="text for a number"),
        pytest.param("dur_ns", ["1", "2"], id="digits for a number"),
        pytest.param("dur_ns", [1.5, 2.0], id="fractions for whole numbers"),
        pytest.param("dur_ns", [1.0, 2.0], id="times that were a float"),
        pytest.param("dur_ns", pa.array([1, 2**63], pa.uint64()), id="too large"),
        pytest.param("dur_ns", [[1], [2]], id="lists"),
        pytest.param("name", [[1], [2]], id="lists for text"),
        pytest.param("name", [1, 2], id="numbers for text"),
        pytest.param("good", [1, 0], id="numbers for yes and no"),
        pytest.param("good", ["yes", "no"], id="words for yes and no"),
    ],
)
def test_another_type_is_refused(name: str, values: Any) -> None:
    with pytest.raises(TableError, match=f"table things: column {name} is .*, not "):
        conformed(**{name: values})


@pytest.mark.parametrize(
    ("name", "values"),
    [
        pytest.param("share", [1, 2], id="whole numbers for fractions"),
        pytest.param("dur_ns", pa.nulls(2), id="nothing known"),
        pytest.param("name", pa.nulls(2), id="no text known"),
        pytest.param("dur_ns", pa.array([1, 2], pa.uint64()), id="no sign"),
        pytest.param("name", pa.array(["a", "b"], pa.large_string()), id="long text"),
    ],
)
def test_a_type_that_loses_nothing_is_taken(name: str, values: Any) -> None:
    assert len(conformed(**{name: values})[name]) == 2


def test_an_empty_table_has_all_columns() -> None:
    assert THINGS.empty().schema.equals(THINGS.schema())
    assert THINGS.conform(THINGS.empty()).num_rows == 0


def test_a_schema_of_some_columns_keeps_the_order_of_the_table() -> None:
    assert THINGS.schema(["name", "thing_id"]).names == ["thing_id", "name"]


@pytest.mark.parametrize("table", DESCRIBED, ids=lambda table: table.name)
def test_every_column_says_what_it_means_and_in_which_unit(table: Table) -> None:
    assert table.meaning.endswith(".")
    for column in table.columns:
        assert column.meaning.endswith("."), column.name
        assert not column.name.endswith("_ns") or column.unit == "ns", column.name
    assert len(set(table.names)) == len(table.names)


@pytest.mark.parametrize("table", DESCRIBED, ids=lambda table: table.name)
def test_times_and_counts_are_whole_numbers(table: Table) -> None:
    for column in table.columns:
        if column.name.endswith(("_ns", "_id", "bytes", "rank")) or column.name == "flops":
            assert column.type in (pa.int64(), pa.uint64()), column.name


def test_a_table_of_some_columns_has_no_others() -> None:
    table = pa.table({"thing_id": [1], "dur_ns": [5], "name": ["a"]})

    assert THINGS.conform(table, ["name", "share"]).to_pydict() == {"name": ["a"], "share": [None]}
    with pytest.raises(TableError, match="column thing_id is missing"):
        THINGS.conform(table.drop(["thing_id"]), ["thing_id"])


def test_kernels_and_copies_have_the_columns_of_the_profile() -> None:
    assert TABLES["kernels"].columns == TABLES["copies"].columns
    assert set(PROFILE_COLUMNS) <= set(TABLES["kernels"].names)
