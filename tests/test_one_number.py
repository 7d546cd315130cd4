"""What several screens say of one recording is one number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.api import run_time
from pyprof2.cli import main
from pyprof2.lsp.costs import costs_of
from pyprof2.lsp.shown import recording
from pyprof2.reports.heading import heading, sentence
from pyprof2.reports.page.overview import heading_of, quality_of
from pyprof2.reports.page.steps import steps_apart, steps_of, whole_of
from tests.kineto_events import Event, copy, launch, launched, load_events, node, op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

MEAN: Final = re.compile(r"([\d.]+ (?:us|ms|s)) per step|a step takes ([\d.]+ (?:us|ms|s))|"
                         r"steps? [\d, -]+ of ([\d.]+ (?:us|ms|s))")  # fmt: skip


def on_cpu(times: list[int], at: int = 0) -> list[Event]:
    """Steps one after another, each with an op in all but its first and last µs."""
    events = []
    for number, time in enumerate(times):
        events += [step(number, at, time), op("aten::mm", at + 1, time - 2)]
        at += time + 10
    return events


def on_gpu(times: list[int], at: int = 0) -> list[Event]:
    """Steps one after another, each with a kernel for half of it."""
    events = []
    for number, time in enumerate(times):
        own: dict[str, Any] = {"at": at + time // 2 - 4, "dur": time // 2, "id": number + 1}
        work = launched(at + 2, number + 1, **own)
        events += [step(number, at, time), op("aten::mm", at + 1, 9, id=number + 1), *work]
        at += time + 10
    return events


def means(run: Run, capsys: pytest.CaptureFixture[str]) -> dict[str, set[str]]:
    """The mean time of a step, as each screen says it."""
    path, found = str(run.path), {}
    capsys.readouterr()
    for words in (
        ["prof", path],
        ["prof", path, "--by", "step"],
        ["advise", path],
        ["lines", path],
    ):
        assert main(words) == 0
        said = " ".join(capsys.readouterr().out.split())
        found[" ".join(words[::2])] = {next(filter(None, each)) for each in MEAN.findall(said)}
    figures = heading_of(run, None)["figures"]
    found["page"] = {each["value"] for each in figures if each["name"] == "step time"}
    lens = recording(costs_of(run.path), "", "").split(" · step ")[1]
    found["editor"] = {f"{float(lens.split()[0]):.3f} ms"}
    return found


@pytest.mark.parametrize("make", [on_cpu, on_gpu])
@pytest.mark.parametrize(
    ("times", "mean", "words"),
    [
        ([900_000, 30_000, 31_000, 32_000], "31.000 ms", "without step 0, the first: 900.000 ms"),
        ([90_000, 30_000, 30_000], "30.000 ms", "without step 0, the first: 90.000 ms"),
        ([36_000, 30_000, 30_000, 32_000], "32.000 ms", None),  # slow, and no more than that
        ([90_000, 30_000], "60.000 ms", None),  # which of two is unusual cannot be told
        ([30_000, 30_000, 90_000], "50.000 ms", None),  # a later one is part of the program
    ],
)
def test_a_slow_first_step_is_in_no_mean(
    make: Callable[[list[int]], list[Event]],
    times: list[int],
    mean: str,
    words: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = load_events(tmp_path, *make(times))

    assert {text for own in means(run, capsys).values() for text in own} == {mean}
    main(["prof", str(run.path), "--by", "step"])
    said = " ".join(capsys.readouterr().out.split())
    assert (words in said) if words else ("without step" not in said)
    page = steps_of(run, {0: 0}, steps_apart(run))["columns"]["left_out"]
    assert page == [words is not None] + [False] * (len(times) - 1)


def test_shares_are_of_the_steps_of_the_mean(tmp_path: Path) -> None:
    events = on_gpu([90_000, 3000, 3000, 3000])
    run = load_events(tmp_path, *events)

    # Half of a step, but for the 4 µs between.
    assert run.spent.windows == 3
    assert run.spent.window_ns == 9_000_000
    assert run.spent.idle_ns == 4_500_000
    assert run.device_shares["gpu_utilization_pct"] == pytest.approx(50)
    assert {row["step"] for row in run_time.utilization_rows(run.tables)} == {1, 2, 3}
    whole = run.idle_profile(("cause",))["time_ns"].sum()
    assert run.spent.recorded_ns == whole + run.summary["busy_ns"]


def test_each_rank_leaves_out_its_own_first_step(tmp_path: Path) -> None:
    for rank, first in enumerate((90_000, 3000)):
        info: dict[str, Any] = {"distributedInfo": {"rank": rank, "world_size": 2}}
        trace(tmp_path / f"r{rank}.json", *on_gpu([first, 3000, 3000, 3000]), **info)
    from pyprof2.api.run import load

    run = load(tmp_path)

    assert {(each.rank, each.step) for each in run.tables.slow_starts} == {(0, 0)}
    assert run.tables.mean_step_ns == 3_000_000
    assert set(run.ranks.scores["excess_ns"]) == {0}


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, in one line."""
    capsys.readouterr()
    assert main(words) == 0
    return " ".join(capsys.readouterr().out.split())


def test_costed_is_a_share_of_the_ops_that_are_rows(tmp_path: Path) -> None:
    """The product, with shapes, has 100 us; autograd's range around it 800 more, of no work."""
    operands: dict[str, Any] = {"dims": [[2, 3], [3, 4]], "types": ["float", "float"]}
    run = load_events(
        tmp_path,
        node("autograd::engine::evaluate_function: MmBackward0", 100, 900, seq=1) | {"tid": 101},
        op("aten::mm", 150, 100, **operands) | {"tid": 101},
    )

    assert run.summary["costed_pct"] == 100
    assert "costed 100.0 %" in " ".join(heading(run, 1000))


@pytest.mark.parametrize(
    ("inside", "own"),
    [
        (
            [node("CompiledFunctionBackward", 100, 900, seq=1), node("aten::mm", 200, 50, seq=1)],
            850,
        ),
        ([node("autograd::engine::evaluate_function: MmBackward0", 100, 900, seq=1)], 900),
        ([op("aten::mm", 100, 900)], 0),
    ],
)
def test_time_in_ops_is_one_sum(
    inside: list[Event], own: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is in autograd's ranges, and in no op that is a row, is named and not lost."""
    inside = [each | {"tid": 101} for each in inside]
    run = load_events(tmp_path, step(1, 0, 1010), op("aten::add", 10, 80), *inside)
    top = " ".join(heading(run, 1000))
    words = " (980.000 us with autograd's own ranges)" if own else ""
    rows = f"{980 - own}.000 us"

    assert f"in {rows}{words} step" in top
    assert f"of {rows} of op time: " in top
    assert f"take {rows} in all{words}, most in" in sentence(run)
    assert run.profile(by="op")["time_ns"].sum() == 1000 * (980 - own)
    assert "in ops 980.000 us" in said(["idle", str(run.path)], capsys)
    parts = whole_of(run)["columns"]
    assert dict(zip(parts["part"]["texts"], parts["time_ns"], strict=True))["host_ops"] == 980_000


@pytest.mark.parametrize("steps", [[], [step(1, 0, 500)], [step(1, 0, 100), step(2, 110, 390)]])
def test_a_recording_has_one_length(
    steps: list[Event], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mm = op("aten::mm", 10, 9, id=1, dims=[[64, 64], [64, 64]], types=["float", "float"])
    run = load_events(tmp_path, *steps, op("aten::add", 0, 5), mm, *launched(
        12, 1, at=40, dur=360, id=1), op("aten::add", 500, 100),
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3"}])  # fmt: skip
    path, whole = str(run.path), "600.000 us recorded"

    assert whole in said(["prof", path], capsys)
    assert "recorded 600.000 us" in said(["idle", path], capsys)
    change = said(["whatif", path, "--scale", "op=mm=0.5"], capsys)
    assert f"of {whole}, " in change
    assert [each for each in re.findall(r"[\d.]+ us recorded", change) if each != whole] == []
    if not steps:
        assert f"the {whole}" in said(["predict", path, "--on", "T4"], capsys)


def test_costed_means_one_thing(tmp_path: Path) -> None:
    """Exact, assumed and copies: what the column counts, the heading and the page do."""
    mm = op("aten::mm", 0, 9, id=1, dims=[[64, 64], [64, 64]], types=["float", "float"])
    # Without a type its elements are taken for float32.
    index = op("aten::addmm", 20, 9, id=2, dims=[[64], [64, 64], [64, 64]])
    run = load_events(
        tmp_path, mm, *launched(2, 1, at=10, dur=100, id=1), index,
        *launched(22, 2, at=200, dur=60, id=2), op("mine::op", 40, 9, id=3),
        *launched(42, 3, at=300, dur=30, id=3), launch(60, 4, name="cudaMemcpyAsync", id=4),
        copy(400, 10, 4, name="Memcpy HtoD (Pinned -> Device)", bytes=1000),
    )  # fmt: skip
    column = run.profile(by=["rank"])["costed_pct"][0]

    assert column == pytest.approx(100 * 170 / 200)
    assert "costed 85.0 % (" in " ".join(heading(run, 1000))
    assert quality_of(run)["counted_pct"] == column


@pytest.mark.parametrize(
    ("known", "is_marked"), [(1, True), (99, True), (100, False), (300, False)]
)
def test_numbers_of_a_small_part_of_a_row_are_marked(
    known: int, *, is_marked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 us of the row are of calls without shapes."""
    mm = op("aten::mm", 0, 9, id=1, dims=[[64, 64], [64, 64]], types=["float", "float"])
    events = [mm, *launched(2, 1, at=10, dur=known, id=1), op("aten::mm", 20, 9, id=2),
              *launched(22, 2, at=400, dur=100, id=2)]  # fmt: skip
    run = load_events(tmp_path, *events)
    table = said(["prof", str(run.path), "--by", "op", "-w", "300"], capsys)

    note = "* of the costed part alone: less than half of the row's time"
    assert (note in table) == is_marked
    assert bool(re.search(r" \*\d", table)) == is_marked
    bare = said(["prof", str(run.path), "--by", "op", "-c", "op,time_ns"], capsys)
    assert "*" not in bare
