"""What no recording can be: a police for what is said of each real one."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.api.run import Run, load
from pyprof2.cli import main
from pyprof2.lsp.costs import costs_of
from pyprof2.lsp.shown import milliseconds, recording
from pyprof2.problems import STEPS_EMPTY, WORK_OVERRUNS, look_up
from pyprof2.reports.heading import sentence
from pyprof2.reports.page.overview import heading_of
from pyprof2.reports.page.steps import parts_of, steps_apart, steps_of
from pyprof2.reports.page.values import zeros
from pyprof2.reports.profile import step_notes
from tests.kineto_events import launched, load_events, op, rows, step
from tests.reports.page.reader import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from _pytest.monkeypatch import MonkeyPatch

CLOCK_NS: Final = 1_000
EARLY_NS: Final = 20_000
"""A dependent kernel may begin so much before the one before it ends, and ends after it."""

pytestmark = pytest.mark.slow


def overlaps(run: Run) -> list[tuple[int, int]]:
    """The ids of kernels of one stream that overlap for no reason."""
    table = run.table("kernels")
    names = ("rank", "device", "stream", "start_ns", "dur_ns", "kernel_id", "link",
             "graph_node_id", "launch_id")  # fmt: skip
    found = rows(table, *names)
    calls = Counter((row[0], row[-1]) for row in found if row[-1] is not None)
    graphs = {
        (rank, number)
        for rank, number, name in rows(run.table("launches"), "rank", "launch_id", "name")
        if "GraphLaunch" in name
    }
    plain = sorted(
        row[:6]
        for row in found
        if row[7] is None
        and not (row[6] or "").startswith("graph")
        and calls[row[0], row[8]] < 2
        and (row[0], row[8]) not in graphs
        and row[2] is not None
    )
    bad = []
    for before, after in pairwise(plain):
        end, other = before[3] + before[4], after[3] + after[4]
        over = end - after[3] if before[:3] == after[:3] else 0
        if over > CLOCK_NS and not (over < EARLY_NS and other > end):
            bad.append((before[5], after[5]))
    return bad


def foreign_links(run: Run) -> list[int]:
    """The kernels whose launch, or op, is in another process than they are said to be."""
    launches = {
        (rank, number): (pid, tid)
        for rank, number, pid, tid in rows(run.table("launches"), "rank", "launch_id", "pid", "tid")
    }
    ops = {(r, n): pid for r, n, pid in rows(run.table("ops"), "rank", "op_id", "pid")}
    names = ("rank", "kernel_id", "launch_id", "op_id", "pid", "tid", "graph_node")
    return [
        number
        for rank, number, launch, own, pid, tid, node in rows(run.table("kernels"), *names)
        if (launch is not None and launches[rank, launch] != (pid, tid))
        or (own is not None and node is None and ops[rank, own] != pid)
    ]


def idle_steps(run: Run) -> set[tuple[int, int]]:
    """The steps in which nothing begins, and no work is launched."""
    steps = set(rows(run.table("steps"), "rank", "step"))
    for name in ("kernels", "copies", "ops"):
        steps -= set(rows(run.table(name), "rank", "step"))
    return steps


def means(run: Run, folder: Path) -> set[str]:
    """The mean time of a step, as each screen says it."""
    assert main(["lines", str(run.path), "-o", str(folder / "lines.txt"), "--force"]) == 0
    lines = " ".join((folder / "lines.txt").read_text().split())
    tiles = heading_of(run, None)["figures"]
    said = [tiles[0]["value"] or "", sentence(run), *step_notes(run), lines]
    pattern = re.compile(
        r"^([\d.,]+ (?:us|ms|s))(?= per step|$)|(?<=a step takes )[\d.,]+ (?:us|ms|s)"
        r"|(?<= of )[\d.,]+ (?:us|ms|s)(?=(?: each)?; [\d.,]+ (?:us|ms|s) in all)"
    )
    return {match[0] for text in said if (match := pattern.search(text))}


def bar_ns(run: Run) -> float:
    """The mean time of a step as the bar of the page has it: of its parts."""
    zero = zeros(run)
    apart = steps_apart(run)
    steps = rows_of(steps_of(run, zero, apart))
    left_out = {(row["rank"], row["start_ns"]) for row in steps if row["left_out"]}
    parts = [
        row
        for row in rows_of(parts_of(run, zero, apart))
        if (row["rank"], row["start_ns"]) not in left_out
    ]
    windows = {(row["rank"], row["device"], row["step"], row["start_ns"]) for row in parts}
    return float(sum(row["time_ns"] for row in parts) / len(windows))


def test_what_no_recording_can_be(real_trace: Path, tmp_path: Path) -> None:
    run = load(real_trace)
    findings = set(run.check()["finding"])

    assert overlaps(run) == []
    assert look_up(WORK_OVERRUNS).text not in findings
    assert foreign_links(run) == []
    assert not idle_steps(run) or look_up(STEPS_EMPTY).text in findings
    if run.summary["steps"]:
        assert len(means(run, tmp_path)) == 1
        assert run.tables.mean_step_ns is not None
        assert f"step {milliseconds(run.tables.mean_step_ns, 1)}" in recording(
            costs_of(run.path), "", ""
        )
        assert round(bar_ns(run)) == round(run.tables.mean_step_ns)


def test_the_police_finds_what_it_looks_for(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr("pyprof2.parsers._odd_work._cut_overruns", lambda *_: None)
    over = [*launched(1, 1, at=10, dur=500), *launched(3, 2, at=20, dur=5)]
    run = load_events(
        tmp_path, op("aten::a", 0, 9), *over, step(1, 0, 9), step(2, 20, 5), step(3, 30, 5)
    )

    assert overlaps(run) == [(0, 1)]
    assert len(means(run, tmp_path)) == 1
    assert foreign_links(run) == []
    assert idle_steps(run) == {(0, 2)}
