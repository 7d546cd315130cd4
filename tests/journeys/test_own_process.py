"""Somebody types commands of the README, each in its own process, and reads what they write."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

import pyprof2

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

GPU = Path(pyprof2.__file__).parent / "data" / "gpu.json.gz"
KERNELS_NS, COPIES_NS = 865_907, 8_832
"""Summed by hand from the JSON, as is the number of rows."""
ROWS = 248


def test_each_format_has_the_rows_of_the_recording_in_the_order_asked(walk: Walk) -> None:
    shutil.copy(GPU, walk.folder / "net.json.gz")
    walk.run("pyprof2", "parse", "net.json.gz")

    walk.run("pyprof2", "prof", "net.pyprof2", "-o", "net.csv")
    sort = ("prof", "net.pyprof2", "--by", "kernel", "--sort", "dur_ns")
    walk.run("pyprof2", *sort, "-o", "net.json")
    walk.run("pyprof2", *sort, "--category", "matmul", "-o", "matmul.parquet")

    with (walk.folder / "net.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == ROWS
    assert sum(int(row["dur_ns"]) for row in rows) == KERNELS_NS + COPIES_NS
    assert [int(row["kernel_id"]) for row in rows] == list(range(ROWS))
    longest = [row["dur_ns"] for row in json.loads((walk.folder / "net.json").read_text())]
    assert longest == sorted((int(row["dur_ns"]) for row in rows), reverse=True)
    products = pq.read_table(walk.folder / "matmul.parquet")["dur_ns"].to_pylist()
    wanted = [int(row["dur_ns"]) for row in rows if row["category"] == "matmul"]
    assert products == sorted(wanted, reverse=True) != []
