"""SQL over a store: what it gives, and that it can do no more than read the store."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import pytest

import pyprof2
from pyprof2 import errors
from pyprof2.store import queries
from pyprof2.store.queries import VIEWS
from pyprof2.tables import TABLES

pytest.importorskip("duckdb")

GPU: Final = Path(pyprof2.__file__).with_name("data") / "gpu.json.gz"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pyprof2.parse(GPU, tmp_path_factory.mktemp("store") / "net.pyprof2")


@pytest.mark.parametrize(
    "query",
    [
        "COPY (SELECT 1) TO '{}'",
        "COPY kernels TO '{}' (FORMAT parquet)",
        "EXPORT DATABASE '{}'",
        "ATTACH '{}' AS other",
        "CREATE TABLE mine AS SELECT 1",
        "INSERT INTO kernels SELECT * FROM kernels",
        "DELETE FROM kernels",
        "UPDATE kernels SET op = 'mine'",
        "DROP VIEW kernels",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "INSTALL httpfs",
        "LOAD json",
        "EXPLAIN ANALYZE SELECT 1",
        "SELECT 1; SELECT 2",
        "SELECT 1; COPY (SELECT 1) TO '{}'",
        "SELECT * FROM query('COPY (SELECT 1) TO ''{}''')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM read_parquet('/**/*.parquet')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sqlite_scan('/x', 'y')",
        "SELECT getenv('HOME')",
        "SELECT repeat('x', 30000000000)",
        "SELECT * FROM range(100000000000) ORDER BY random()",
        "",
        "nonsense",
    ],
)
def test_sql_that_does_more_than_read_the_tables_is_refused(
    query: str, store: Path, tmp_path: Path
) -> None:
    with pytest.raises(errors.UsageError):
        queries.query(store, query.format(tmp_path / "written"), seconds=5)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "query",
    [
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t",
        "SELECT count(*) FROM ops a, ops b, ops c, ops d, ops e",
        "SELECT sum(x.range) FROM range(100000000) x, range(100000000) y",
    ],
)
def test_sql_without_an_end_is_ended(query: str, store: Path) -> None:
    began = time.monotonic()
    with pytest.raises(errors.UsageError, match="ended after 1 s"):
        queries.query(store, query, seconds=1)

    assert time.monotonic() - began < 60


def test_it_gives_no_more_rows_than_are_asked_for(store: Path) -> None:
    found = queries.query(store, "SELECT kernel_id FROM kernels ORDER BY kernel_id", rows=7)

    assert found.table.to_pydict() == {"kernel_id": list(range(7))}
    assert found.more
    assert not queries.query(store, "SELECT 1", rows=1).more


def test_columns_are_numbers_or_text(store: Path) -> None:
    text = (
        "SELECT 1 AS a, 2 AS a, sum(1) AS whole, 2::HUGEINT ** 70 AS large, 1.5 AS part, "
        "[1, 2] AS several, NULL AS nothing, DATE '2026-01-02' AS day"
    )

    (row,) = queries.query(store, text).table.to_pylist()

    assert row == {
        "a": 1, "a (2)": 2, "whole": 1, "large": 2.0**70, "part": 1.5, "several": "[1, 2]",
        "nothing": None, "day": "2026-01-02",
    }  # fmt: skip
    assert type(row["whole"]) is int


@pytest.mark.parametrize("name", ["kernels", *VIEWS])
def test_tables_and_views_have_the_columns_that_are_documented(name: str, store: Path) -> None:
    known = TABLES | {view.name: view.table for view in VIEWS.values()}

    described = queries.query(store, f"DESCRIBE {name}").table["column_name"].to_pylist()

    assert sorted(described) == sorted(known[name].names)


def test_costs_of_work_add_up_to_those_of_the_profile(store: Path) -> None:
    run = pyprof2.load(store)
    profile = run.profile("op")

    found = run.sql("SELECT sum(flops) AS flops, sum(bytes) AS bytes, count(*) AS count FROM work")

    assert found.loc[0].to_dict() == profile[["flops", "bytes", "count"]].sum().to_dict()


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT CASE WHEN i > 20000 THEN 'abc' ELSE '1' END::INT FROM range(30000) t(i)", "abc"),
        ("SELECT repeat('x', 20000000) AS x FROM range(20)", "more than 256 MiB"),
    ],
)
def test_why_there_are_no_rows_is_said(query: str, says: str, store: Path) -> None:
    with pytest.raises(errors.UsageError, match=says):
        queries.query(store, query, seconds=1e10)


def test_a_run_of_another_device_is_refused(store: Path) -> None:
    with pytest.raises(errors.UsageError, match="without device"):
        pyprof2.load(store, device="L4").sql("SELECT 1")


def test_without_duckdb_it_says_what_to_install(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(errors.UsageError, match="pip install duckdb"):
        queries.query(store, "SELECT 1")
