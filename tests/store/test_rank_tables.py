"""A rank's tables: those of the store, or made anew for another device or other lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.pipeline.parsing import parse
from pyprof2.store.folder import STORED
from pyprof2.store.rank_tables import RankTables
from tests.kineto_events import frame, launched, op, trace

if TYPE_CHECKING:
    from pathlib import Path

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
def test_the_tables_are_those_of_the_store_where_nothing_is_named(store: Path, name: str) -> None:
    by_device, by_root = {"kernels", "copies", "utilization"}, set(ROOTED)

    assert RankTables(store, 0).is_as_stored(name)
    assert RankTables(store, 0, device="H100 SXM").is_as_stored(name) == (
        name not in {*by_device, *NOT_REMADE}
    )
    assert RankTables(store, 0, source_root="/x").is_as_stored(name) == (
        name not in {*by_root, *NOT_REMADE}
    )


def test_sums_of_idle_time_that_were_not_stored_are_made(recording: Path, tmp_path: Path) -> None:
    store = parse(recording, tmp_path / "store")
    tables = RankTables(store, 0)
    stored = tables.read("idle_sums").to_pylist()

    (store / "idle_sums" / "rank-0.parquet").unlink()

    assert stored
    assert tables.read("idle_sums").to_pylist() == stored
