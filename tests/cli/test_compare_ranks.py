"""`pyprof2 compare` of many ranks: what became of each rank's step, and which rank changed."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import pytest

import pyprof2
from pyprof2.cli import main
from tests.analysis.job.job_generator import Job, simulate, write

if TYPE_CHECKING:
    from pathlib import Path

PARTS = ("compute_only", "comm_only", "copy_only", "comp_comm", "copy_overlap", "idle")


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a job before, with a slow rank after, and with one rank less."""
    folder = tmp_path_factory.mktemp("jobs")
    jobs = {"a": Job(4), "b": Job(4, slow={2: 1.2}), "late": Job(4, pause={1: (2, 9000.0)})}
    made = {name: simulate(job) for name, job in jobs.items()} | {"few": simulate(Job(4))}
    found = {}
    for name, each in made.items():
        own = folder / name
        own.mkdir()
        files = write(each, own, ranks=[0, 1, 3] if name == "few" else None)
        found[name] = str(pyprof2.parse(files, folder / f"{name}.pyprof2"))
    return found


def _rows(text: str) -> dict[int, dict[str, str]]:
    return {int(row["rank"]): row for row in csv.DictReader(text.splitlines())}


def test_each_rank_has_its_difference_in_parts_that_add_up(
    stores: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", stores["a"], stores["b"], "--by", "rank", "--format", "csv"]) == 0
    rows = _rows(capsys.readouterr().out)

    assert set(rows) == {0, 1, 2, 3}
    kernels = {}
    for side in "ab":
        own = pyprof2.load(stores[side]).kernels
        own = own[(own["category"] != "comm") & (own["step"] > 0)]
        # One stream: their times are what they take of the device.
        kernels[side] = own.groupby("rank")["dur_ns"].sum() / 3
    for rank, row in rows.items():
        parts = sum(float(row[f"{part}_delta_ns"]) for part in PARTS)
        assert parts == pytest.approx(float(row["delta_ns"]), abs=1e-3)
        whole = float(row["b_ns"]) - float(row["a_ns"])
        assert whole == pytest.approx(float(row["delta_ns"]), abs=1e-3)
        longer = kernels["b"][rank] - kernels["a"][rank]
        assert float(row["compute_delta_ns"]) == pytest.approx(longer, abs=0.01 * 2_400_000)
    assert [row["changed"] for row in rows.values()] == ["", "", "computes longer", ""]
    # All steps became longer: the others wait.
    assert all(float(row["delta_ns"]) > 100_000 for row in rows.values())
    waits = [float(row["exposed_wait_delta_ns"]) for row in rows.values()]
    assert waits[2] < 10_000 < min(waits[0], waits[1], waits[3])


def test_the_text_names_the_rank_that_changed(
    stores: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", stores["a"], stores["b"], "-w", "200"]) == 0
    out = capsys.readouterr().out
    assert "by rank, per step: rank 2 computes longer (+4" in out

    assert main(["compare", stores["b"], stores["a"], "-w", "200"]) == 0
    assert "rank 2 computes less (-4" in capsys.readouterr().out


def test_no_rank_changed_against_itself(
    stores: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", stores["a"], stores["a"]]) == 0
    assert "no rank's own times changed" in capsys.readouterr().out


def test_a_pause_in_one_step_is_within_its_error(
    stores: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One step of three is late: its mean's error is as large as the change."""
    assert main(["compare", stores["a"], stores["late"], "--by", "rank", "--format", "csv"]) == 0
    assert {row["changed"] for row in _rows(capsys.readouterr().out).values()} == {""}

    one = ["compare", stores["a"], stores["late"], "--steps", "2", "--by", "rank"]
    assert main([*one, "--format", "csv"]) == 0
    rows = _rows(capsys.readouterr().out)
    assert [row["changed"] for row in rows.values()] == ["", "its host is later", "", ""]


def test_ranks_that_only_one_side_has_are_named(
    stores: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", stores["a"], stores["few"]]) == 0
    assert "note: 4 and 3 ranks: only A has rank 2" in capsys.readouterr().out

    assert main(["compare", stores["few"], stores["b"], "--by", "rank", "--format", "csv"]) == 0
    assert set(_rows(capsys.readouterr().out)) == {0, 1, 3}


def test_one_rank_has_no_rows_of_ranks(
    stores: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = write(simulate(Job(4)), tmp_path, ranks=[1])

    assert main(["compare", str(one), str(one)]) == 0
    assert "by rank" not in capsys.readouterr().out
    assert main(["compare", str(one), stores["a"], "--by", "rank"]) == 2
    assert "both need several ranks" in capsys.readouterr().err
