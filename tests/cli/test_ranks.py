"""`pyprof2 ranks` and `pyprof2 whatif`: what they print, of a made-up job and of one rank."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from pyprof2.cli import main
from pyprof2.reports.ranks import VIEWS
from pyprof2.run import parse
from tests.analysis.job.job_generator import Job, simulate, write
from tests.kineto_events import kernel, launch, op, trace

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("job")
    files = write(simulate(Job(3, slow={2: 1.2})), folder)
    return str(parse(files, folder / "job.pyprof2"))


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_a_table_of_ranks_names_the_straggler(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ranks", store, "-w", "250"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "3 ranks, 4 steps, 48 parts in collectives, 48 of them matched with those of other ranks"
    )
    header = next(line.split() for line in lines if line.startswith("rank"))
    assert {"rank", "idle", "verdict"} < set(header)
    text = " ".join(lines)
    assert "rank 2 computes 19." in text
    assert "most on the critical path: kernel aten::gemm_" in text
    assert "straggler; as the others it would save" in text
    assert "no lost time" in text


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_every_view_is_a_file_too(
    store: str, view: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ranks", store, "--by", view, "--format", form]) == 0

    out = capsys.readouterr().out
    rows = _rows(out) if form == "csv" else json.loads(out)
    assert isinstance(rows, list)


def test_parts_add_up_and_bounds_are_of_what_is_not_matched(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ranks", store, "--by", "step", "--format", "csv"])
    steps = _rows(capsys.readouterr().out)
    main(["ranks", store, "--by", "collective", "--format", "csv"])
    members = _rows(capsys.readouterr().out)

    parts = ("compute_only", "comm_only", "copy_only", "comp_comm", "copy_overlap", "idle")
    assert len(steps) == 12
    for row in steps:
        assert sum(int(row[f"{part}_ns"]) for part in parts) == int(row["window_ns"])
        exposed = int(row["exposed_wait_ns"]) + int(row["exposed_transfer_ns"])
        assert exposed + int(row["exposed_unmatched_ns"]) == int(row["comm_only_ns"])
    for row in members:
        assert int(row["wait_ns"]) + int(row["transfer_ns"]) == int(row["dur_ns"])
        assert (row["group_ranks"], row["wait_most_ns"]) == ("0,1,2", "")


def test_what_if_is_an_interval(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--rank", "2", "--ideal", "--scale", "op=gemm=0.5", "--overlap", "--format", "csv"]
    assert main(["whatif", store, *options]) == 0

    rows = {row["what"]: row for row in _rows(capsys.readouterr().out)}
    assert set(rows) == {
        "op gemm × 0.5", "rank 2 as the others", "all ranks ideal", "perfect overlap",
    }  # fmt: skip
    one = rows["rank 2 as the others"]
    assert 0 < int(one["lo_ns"]) <= int(one["gain_ns"]) <= int(one["hi_ns"]) <= int(one["bound_ns"])
    assert rows["perfect overlap"]["gain_ns"] == ""


def test_one_rank_has_what_ifs_and_no_peers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [op("aten::mm", 0, 3), launch(0, 1), kernel(10, 100, 1, name="gemm")]
    path = str(trace(tmp_path, *events))

    assert main(["ranks", path]) == 0
    assert "1 rank, 0 steps, 0 parts in collectives" in capsys.readouterr().out
    assert main(["whatif", path, "--scale", "op=mm=0.5"]) == 0
    assert "50.000" in capsys.readouterr().out
    assert main(["whatif", path, "--rank", "0"]) == 2
    assert "no other rank has its role" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["whatif"], "name a change"), (["whatif", "--scale", "op=1"], "AXIS=REGEX=FACTOR"),
        (["whatif", "--scale", "op=none=0.5"], "no kernel or copy has op"),
        (["whatif", "--transfers", "-1"], "is not a factor"),
        (["whatif", "--rank", "9"], "rank 9: no such rank"),
        (["ranks", "--rank", "9"], "rank 9: no such rank"),
        (["ranks", "--by", "kind", "--rank", "1"], "rows of several ranks"),
    ],
)  # fmt: skip
def test_wrong_options_are_said(
    store: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([options[0], store, *options[1:]]) == 2

    assert words in capsys.readouterr().err


def test_a_name_in_a_trace_is_not_obeyed_by_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [op("aten::mm", 0, 3), launch(0, 1), kernel(10, 100, 1, name="k\x1b[31m")]
    path = str(trace(tmp_path, *events))

    for view in ("path", "blame", "rank"):
        assert main(["ranks", path, "--by", view]) == 0
    assert "\x1b[31m" not in capsys.readouterr().out
