"""Many ranks in the data of a page: heat maps of any size stay small, and the path adds up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import pyprof2
from pyprof2 import cli
from pyprof2.reports.page.job import ALONE, HEAT, MOST_OWNERS, MOST_PATH, heat_of, path_rows
from tests.analysis.job.job_generator import Job, simulate, write
from tests.reports.page.reader import document_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path


def _parts(ranks: int, steps: int) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    rank, step = (each.ravel() for each in np.mgrid[:ranks, :steps])
    values = {name: rng.integers(0, 10**6, ranks * steps) for name in HEAT}
    frame = pd.DataFrame({"rank": rank, "device": 0, "step": step} | values)
    return frame.astype({"step": "Int64", "exposed_wait_ns": "Int64"})


def test_few_ranks_stand_alone_in_the_order_that_is_asked_for() -> None:
    parts = _parts(4, 3)
    heat = heat_of(parts, [2, 0, 1, 3])

    assert [row["label"] for row in heat["rows"]] == ["rank 2", "rank 0", "rank 1", "rank 3"]
    assert heat["steps"] == ["0", "1", "2"]
    found = {(c["row"], c["column"]): c for c in rows_of(heat["cells"])}
    for each in parts.to_dict("records"):
        cell = found[[2, 0, 1, 3].index(each["rank"]), each["step"]]
        assert [cell[name] for name in HEAT] == [each[name] for name in HEAT]


def test_a_thousand_ranks_are_a_few_alone_and_groups_with_their_medians() -> None:
    parts = _parts(1000, 250)
    order = [613, *(rank for rank in range(1000) if rank != 613)]
    heat = heat_of(parts, order)

    rows = heat["rows"]
    assert (len(rows), len(heat["steps"])) == (MOST_OWNERS, 100)
    assert rows[0]["label"] == "rank 613"
    assert sorted(rank for row in rows for rank in row["ranks"]) == list(range(1000))
    assert all(len(row["ranks"]) == 1 for row in rows[:ALONE])
    assert rows[ALONE]["label"].endswith(", median")
    cells = rows_of(heat["cells"])
    assert len(cells) == MOST_OWNERS * 100
    whole = parts["window_ns"].to_numpy().reshape(1000, 250)
    at = 250 // 100 + 1
    assert heat["steps"][0] == f"0\N{EN DASH}{at - 1}, largest"
    largest = whole[:, :at].max(axis=1)
    first = {c["row"]: c["window_ns"] for c in cells if c["column"] == 0}
    for number in (0, 5, ALONE, MOST_OWNERS - 1):
        expected = float(np.median(largest[rows[number]["ranks"]]))
        assert first[number] == pytest.approx(expected, abs=1)


def test_without_steps_there_is_one_column() -> None:
    parts = _parts(3, 1).assign(step=pd.array([None] * 3, "Int64"))

    assert heat_of(parts, [0, 1, 2])["steps"] == ["all"]


def test_what_is_left_out_of_a_path_is_one_row() -> None:
    path = pd.DataFrame(
        {"rank": 0, "kind": "kernel", "op": [f"op{n}" for n in range(3000)], "kernel": None,
         "layer": None, "source": None, "ns": np.arange(3000)}
    )  # fmt: skip
    rows = path_rows(path, int(path["ns"].sum()))

    assert len(rows) == MOST_PATH + 1
    assert rows["time_ns"].sum() == 3000 * 2999 // 2
    assert rows["count"].sum() == 3000
    assert rows["share_pct"].sum() == pytest.approx(100)
    assert (rows["kind"].iloc[-1], rows["op"].iloc[0]) == ("(others)", "op2999")


def _document(folder: Path, job: Job, **options: Any) -> tuple[Any, dict[str, Any]]:
    store = pyprof2.parse(write(simulate(job), folder, **options), folder / "job.pyprof2")
    page = folder / "job.html"
    assert cli.main(["report", str(store), "-o", str(page)]) == 0
    return pyprof2.load(store).ranks, document_of(page)["job"]


def test_a_rank_alone_has_its_path_and_what_ifs(tmp_path: Path) -> None:
    job, found = _document(tmp_path, Job(4), ranks=[1])

    assert found["blame"] is None
    assert sum(row["time_ns"] for row in rows_of(found["path"])) == found["window_ns"]
    assert found["window_ns"] == job.graph.window_ns
    assert "perfect overlap" in {row["what"] for row in rows_of(found["whatif"])}
    assert found["answers"][0].startswith("which rank is slow is not known from one rank")


def test_what_is_too_large_to_replay_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyprof2.api.job.MOST_REPLAYED", 10)
    _, found = _document(tmp_path, Job(3, slow={2: 1.3}))

    assert (found["path"], found["whatif"]) == (None, None)
    assert found["answers"][0].startswith("rank 2 is slow: it computes ")
    assert "pyprof2 whatif --rank" in found["answers"][0]
    assert "pyprof2 whatif" in found["notes"][0]
    assert len(rows_of(found["ranks"])) == 3
    rules = pyprof2.load(tmp_path / "job.pyprof2").advise()
    straggler = rules[rules["rule"] == "straggler"]
    assert set(straggler["status"]) == {"unknown"}
    assert straggler["needs"].str.contains("pyprof2 whatif").all()


@pytest.mark.kept("slow")
@pytest.mark.parametrize("job", [Job(4), Job(3, slow={2: 1.2})], ids=["healthy", "slow"])
def test_which_rank_is_slow_is_what_the_command_says(
    tmp_path: Path, job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    _, found = _document(tmp_path, job)
    capsys.readouterr()
    assert cli.main(["ranks", str(tmp_path / "job.pyprof2"), "-w", "1000"]) == 0

    (said,) = found["answers"]
    assert capsys.readouterr().out.splitlines()[0] == f"{said[:1].upper()}{said[1:]}."
