"""Somebody has a question that no command answers: how long the copies of each step waited."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

from tests.training_trace import training_trace

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("duckdb")


@pytest.mark.slow
def test_the_tables_lead_to_a_query_and_the_query_to_a_file(walk: Walk) -> None:
    (walk.folder / "net.json").write_bytes(training_trace())
    walk.run("pyprof2", "parse", "net.json")

    listed = walk.text("sql", "net.pyprof2")
    columns = walk.text("sql", "net.pyprof2", "DESCRIBE work")
    query = (
        "SELECT step, category, sum(dur_ns) AS time_ns, median(start_ns - launch_ns) AS queued_ns "
        "FROM work WHERE is_copy OR category = 'matmul' GROUP BY ALL ORDER BY step, category"
    )
    walk.run("pyprof2", "sql", "net.pyprof2", query, "-o", "copies.csv")
    wrong = walk.run("pyprof2", "sql", "net.pyprof2", "SELECT layr FROM work", code=2).stderr

    assert "work " in listed
    assert "is_copy" in columns
    with (walk.folder / "copies.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = walk.rows("prof", "net.pyprof2", "--by", "step,category")
    times = {(row["step"], row["category"]): row["time_ns"] for row in right}
    assert len(rows) == 12
    for row in rows:
        assert row["time_ns"] == times[row["step"], row["category"]]
    assert '"layr"' in wrong
    assert wrong.count("\n") == 1
