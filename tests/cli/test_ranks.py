"""`pyprof2 ranks` and `pyprof2 whatif`: what they print, of a made-up job and of one rank."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING

import pytest

from pyprof2.api.run import load, parse
from pyprof2.cli import main
from pyprof2.reports.files import Target
from pyprof2.reports.ranks import VIEWS, RanksQuery, show
from tests.analysis.job.job_generator import Job, simulate, write
from tests.kineto_events import complete, kernel, launch, op, trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("job")
    files = write(simulate(Job(3, slow={2: 1.2})), folder)
    return str(parse(files, folder / "job.pyprof2"))


@pytest.fixture(scope="module")
def ranks(store: str) -> JobOfRanks:
    return load(store).ranks


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_a_table_of_ranks_names_the_straggler(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ranks", store, "-w", "250"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Rank 2 is slow: it computes 19.")
    assert "most of it in aten::gemm_" in lines[0]
    assert (
        "3 ranks, 4 steps, 48 parts in collectives, 48 of them matched with those of other ranks"
    ) in lines
    header = next(line.split() for line in lines if line.startswith("rank"))
    assert {"rank", "idle", "verdict"} < set(header)
    text = " ".join(lines)
    assert "2 ranks waited for it, and as the others it would save" in text
    assert "no lost time" in text


def _answer(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["ranks", *words, "-w", "1000"]) == 0
    return capsys.readouterr().out.splitlines()[0]


def test_recordings_of_all_ranks_are_read_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the order that their names have; each says which rank it is."""
    files = [str(path) for path in write(simulate(Job(3, slow={1: 1.2})), tmp_path)]

    assert _answer(capsys, *files[::-1]).startswith("Rank 1 is slow: it computes 2")
    assert main(["ranks", *files, str(parse(files[0], tmp_path / "one.pyprof2"))]) == 2
    assert "a store is read alone" in capsys.readouterr().err


CLOSE = "No rank is slow: none takes longer than the others by more than 0.1 % of a step"


@pytest.mark.kept("one of two", "three of four", "one of four", "hidden")
@pytest.mark.parametrize(
    ("job", "chosen", "said"),
    [
        (Job(4), None, CLOSE),
        (Job(2), None, CLOSE),
        (Job(2, slow={1: 1.2}), None, "Rank 1 is the slower one: it computes 20.1 % longer than"),
        (Job(4), [0, 1, 3], f"{CLOSE}, of the 3 ranks of 4 that were read."),
        (Job(4), [1], "Which rank is slow is not known from one rank: only rank 1 of 4 was"),
        (Job(4, slow={2: 1.2}, gap_us=200, noise=0.002), None,
         "No rank makes any step 1 % longer; rank 2 computes 20.0 % longer than the ranks of"),
    ],
    ids=["healthy", "two", "one of two", "three of four", "one of four", "hidden"],
)  # fmt: skip
def test_which_rank_is_slow_is_always_answered_first(
    tmp_path: Path,
    job: Job,
    chosen: list[int] | None,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = [str(path) for path in write(simulate(job), tmp_path, ranks=chosen)]

    assert _answer(capsys, *files).startswith(said)


@pytest.mark.parametrize("factor", [1, 2])
def test_without_a_matched_collective_no_rank_is_named(
    tmp_path: Path, factor: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four ranks of five kernels of 100 us each, of which one takes `factor` times as long."""
    files = []
    for rank in range(4):
        events = []
        for at in range(5):
            took = 100 * (factor if rank == 2 else 1)
            begin = 1000 * at
            events += [op("aten::mm", begin, 9), launch(begin + 2, at),
                       kernel(begin + 20, took, at, name="gemm")]  # fmt: skip
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        files.append(str(trace(folder, *events).rename(tmp_path / f"rank{rank}.json")))
    found = _answer(capsys, *files)

    assert found.startswith(
        "Which rank is slow is not known, because no collective of one rank was matched with "
        "those of others: none is recorded"
    )


def test_ranks_that_nothing_compares_are_said_to_be_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = []
    for rank in range(2):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        files.append(str(trace(folder, op("aten::mm", 0, 9)).rename(tmp_path / f"r{rank}.json")))

    assert _answer(capsys, *files).startswith("Which rank is slow is not known, because no")


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("form", ["csv", "json"])
def test_every_view_is_a_file_too(
    ranks: JobOfRanks, view: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    show(ranks, RanksQuery(view, None, None, Target(form)))

    out = capsys.readouterr().out
    rows = _rows(out) if form == "csv" else json.loads(out)
    assert isinstance(rows, list)


def test_ops_are_the_sums_of_their_collectives(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["ranks", store, "--by", "collective", "--format", "csv"])
    every = _rows(capsys.readouterr().out)
    main(["ranks", store, "--by", "op", "--format", "csv"])
    found = _rows(capsys.readouterr().out)

    assert found
    for row in found:
        own = [each for each in every if (each["rank"], each["op"]) == (row["rank"], row["op"])]
        latency = sum(int(each["dur_ns"]) for each in own)
        sizes = [each["in_bytes"] for each in own]
        assert (int(row["count"]), int(row["total_latency_ns"])) == (len(own), latency)
        assert float(row["mean_latency_ns"]) == pytest.approx(latency / len(own))
        assert row["total_bytes"] == ("" if "" in sizes else f"{sum(map(int, sizes))}")


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


def test_what_if_takes_recordings_of_all_ranks(
    tmp_path: Path, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(path) for path in write(simulate(Job(3, slow={2: 1.2})), tmp_path)]
    options = ["--rank", "2", "--ideal", "--format", "csv"]

    assert main(["whatif", *files[::-1], *options]) == 0
    found = capsys.readouterr().out
    assert main(["whatif", store, *options]) == 0
    assert found == capsys.readouterr().out


def test_several_ranks_are_as_the_others_together(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", store, "--rank", "2", "--rank", "0", "--format", "csv"]) == 0

    (row,) = _rows(capsys.readouterr().out)
    assert row["what"] == "ranks 2, 0 as the others"


@pytest.mark.parametrize("hours", [0, 19])
def test_recordings_of_two_starts_have_no_numbers_of_one_job(
    tmp_path: Path, hours: int, capsys: pytest.CaptureFixture[str]
) -> None:
    files = write(simulate(Job(2)), tmp_path, seq=False)
    late = json.loads(files[1].read_text())
    for event in late["traceEvents"]:
        event["ts"] += hours * 3600 * 1_000_000
    files[1].write_text(json.dumps(late))
    store = str(parse(files, tmp_path / "job.pyprof2"))
    why = "rank 1 was recorded 19 hours after rank 0, or its clock is wrong: name recordings of "
    why += "one job"

    assert main(["ranks", store, "-w", "250"]) == 0
    said = capsys.readouterr().out
    assert (f"Which rank is slow is not known: {why}." in said) == bool(hours)
    assert ("critical path" in said) != bool(hours)
    for command in (["ranks", store, "--by", "path"], ["whatif", store, "--ideal"]):
        assert main(command) == (2 if hours else 0)
        found = capsys.readouterr()
        assert (why in found.err) == bool(hours)
    assert main(["advise", store, "--format", "json"]) == 0
    rules = {row["rule"]: row for row in json.loads(capsys.readouterr().out) if row["rank"] == 1}
    assert (rules["straggler"]["needs"] == why) == bool(hours)


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


def test_one_rank_shows_its_own_collectives_by_kind(tmp_path: Path) -> None:
    sizes = (100_000, 100_000, 10, None)
    events = []
    for at, size in enumerate(sizes):
        args = {} if size is None else {"Input Dims": [[size]], "Input type": ["float"]}
        start = 1000 * at
        events += [
            op("c10d::allreduce_", start, 50),
            complete("user_annotation", "nccl:all_reduce", start + 1, 40, args=args),
            launch(start + 5, at),
            kernel(start + 10, 100 * (at + 1), at, name="ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ]
    target = tmp_path / "kinds.csv"

    assert main(["ranks", str(trace(tmp_path, *events)), "--by", "kind", "-o", str(target)]) == 0

    rows = {row["bytes"]: row for row in csv.DictReader(target.read_text().splitlines())}
    assert {size: (row["kind"], int(row["count"])) for size, row in rows.items()} == {
        "400000": ("all_reduce", 2), "40": ("all_reduce", 1), "": ("all_reduce", 1)
    }  # fmt: skip
    large = rows["400000"]
    assert (large["rank"], large["total_latency_ns"]) == ("0", "300000")
    assert float(large["mean_latency_ns"]) == 150_000
    assert float(large["least_algbw_gbps"]) == (400_000 / 100_000 + 400_000 / 200_000) / 2
    assert rows["40"]["least_algbw_gbps"] == rows[""]["least_algbw_gbps"] == ""
    assert large["least_busbw_gbps"] == ""  # of how many ranks is not recorded


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


def test_collectives_of_one_rank_are_counted_beside_those_of_all(tmp_path: Path) -> None:
    files = write(simulate(Job(3)), tmp_path)
    recording = json.loads(files[1].read_text())
    late = 1000 + max(event["ts"] for event in recording["traceEvents"] if "ts" in event)
    for at in range(2):
        broadcast = kernel(late + 10 + at, 1, 9000 + at, name="ncclDevKernel_Broadcast_RING_LL")
        recording["traceEvents"] += [launch(late + at, 9000 + at), broadcast]
    files[1].write_text(json.dumps(recording))
    target = tmp_path / "kinds.csv"

    assert main(["ranks", *map(str, files), "--by", "kind", "-o", str(target)]) == 0

    rows = _rows(target.read_text())
    parts = {(row["kind"], int(row["count"]), int(row["untimed_parts"])) for row in rows}
    assert parts == {("all_reduce", 8, 0), ("broadcast", 0, 2)}
    lone = next(row for row in rows if row["kind"] == "broadcast")
    assert lone["transfer_ns"] == lone["bytes"] == ""
