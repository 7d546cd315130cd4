"""A rank's tables: those of the store, or others for another device or other lines."""

from __future__ import annotations

import gc
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyprof2.analysis.hardware import verdict
from pyprof2.analysis.hardware.verdict import JUDGED
from pyprof2.pipeline.parsing import parse
from pyprof2.store import folder as stores
from pyprof2.store.folder import STORED, read_rank, write_table
from pyprof2.store.rank_tables import RankTables
from tests.kineto_events import frame, launched, op, trace

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    import pyarrow as pa

GPU = ("kernels", "copies")
ROOTED = ("kernels", "copies", "ops", "memory", "idle", "idle_sums", "summary")
NOT_REMADE = ("sums", "sum_calls", "axis_sums", "axis_sum_calls")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kernels with a late host between them, below frames of two folders."""
    frames = [frame("/w/a.py(1): f", 0, 90), frame("/x/b.py(2): g", 1, 80)]
    first = launched(10, 5, at=20, dur=9, name="ampere_sgemm")
    second = launched(60, 6, at=70, dur=9, name="ampere_sgemm")
    return trace(
        tmp_path_factory.mktemp("frames") / "a.json",
        frames,
        op("a", 8, 10),
        op("b", 50, 20),
        first,
        second,
    )


@pytest.fixture(scope="module")
def store(recording: Path) -> Path:
    """Return its store."""
    return parse(recording, recording.with_suffix(".pyprof2"))


@pytest.fixture(scope="module")
def rooted(recording: Path) -> list[Path]:
    """Return its stores with two folders of the user's own code."""
    return [
        parse(recording, recording.with_suffix(f".{root}"), source_root=f"/{root}")
        for root in ("w", "x")
    ]


@pytest.mark.parametrize("name", ROOTED)
def test_another_root_gives_what_a_store_made_with_it_has(rooted: list[Path], name: str) -> None:
    made, other = rooted

    found = RankTables(made, 0, source_root="/x").read(name)

    assert found.to_pylist() == RankTables(other, 0).read(name).to_pylist()
    assert found.column_names == STORED[name].names


@pytest.mark.parametrize("name", NOT_REMADE)
def test_stored_sums_are_not_made_anew(store: Path, name: str) -> None:
    found = RankTables(store, 0, device="H100 SXM", source_root="/x").read(name)

    assert found.num_rows
    assert found.equals(RankTables(store, 0).read(name))


@pytest.mark.parametrize("name", STORED)
@pytest.mark.parametrize(
    ("named", "others", "columns"),
    [
        pytest.param({}, (), (), id="nothing"),
        pytest.param({"device": "H100 SXM"}, (*GPU, "utilization"), JUDGED, id="device"),
        pytest.param({"source_root": "/x"}, ROOTED, ("source",), id="root"),
    ],
)
def test_all_else_is_as_it_is_stored(
    store: Path, named: dict[str, Any], others: Collection[str], columns: Collection[str], name: str
) -> None:
    found, stored = RankTables(store, 0, **named).read(name), read_rank(store, name, 0)

    assert found.schema == stored.schema
    if name not in others:
        assert found.equals(stored)
    elif name in (*GPU, "ops", "memory"):
        assert found.drop_columns([n for n in columns if n in found.column_names]).equals(
            stored.drop_columns([n for n in columns if n in stored.column_names])
        )


def test_other_columns_are_found_once_and_go_with_the_tables(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, judge = [], verdict.judge

    def counted(*args: Any) -> pa.Table:
        calls.append(args)
        return judge(*args)

    monkeypatch.setattr(verdict, "judge", counted)
    tables = RankTables(store, 0, device="H100 SXM")

    assert tables.parts("kernels").row_count == 2
    assert tables.read("kernels", ["start_ns"]).num_rows == 2
    assert not calls
    whole = tables.read("kernels", ["bound", "start_ns"])
    rows = tables.rows("kernels", np.array([1]), ["bound", "start_ns"])

    assert len(calls) == 1
    assert rows.to_pylist() == whole.to_pylist()[1:]
    folder = tables._made
    assert folder.is_dir()
    del tables
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("name", [*ROOTED, "utilization"])
def test_a_table_of_many_parts_is_that_of_one(
    recording: Path, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(stores, "_ROW_GROUP", 1)
    cut = RankTables(parse(recording, tmp_path / "cut"), 0, "H100 SXM", "/x")

    found = cut.read(name)

    assert len(cut.parts("kernels")) == 2
    assert found.to_pylist() == RankTables(store, 0, "H100 SXM", "/x").read(name).to_pylist()
    assert [row for part in cut.in_parts(name, STORED[name].names) for row in part.to_pylist()] == (
        found.to_pylist()
    )


def test_parts_without_rows_stay_parts(store: Path, tmp_path: Path) -> None:
    """As those of a span that begins after the first part."""
    whole = RankTables(store, 0, "H100 SXM", "/x").read("kernels")
    shutil.copytree(store, tmp_path / "store")
    rows = read_rank(store, "kernels", 0)
    write_table(tmp_path / "store", "kernels", 0, [rows[:0], rows[:1], rows[:0], rows[1:]])

    cut = RankTables(tmp_path / "store", 0, "H100 SXM", "/x")

    assert len(cut.parts("kernels")) == 4
    assert cut.read("kernels").to_pylist() == whole.to_pylist()


def test_sums_of_idle_time_that_were_not_stored_are_made(recording: Path, tmp_path: Path) -> None:
    store = parse(recording, tmp_path / "store")
    tables = RankTables(store, 0)
    stored = tables.read("idle_sums").to_pylist()

    (store / "idle_sums" / "rank-0.parquet").unlink()

    assert stored
    assert tables.read("idle_sums").to_pylist() == stored
