"""What a first-time reader of the page sees: of what each figure is, and nothing twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import pyprof2
from pyprof2 import cli
from tests.kineto_events import op, step, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]


@pytest.fixture
def two_gpus(real_page: Callable[[str], Path]) -> Path:
    """Return the page of a recording of two ranks without steps, which copies."""
    return real_page("nsight/h100_2gpu_1s.sqlite")


def parts(opened: Opened) -> dict[str, int]:
    found: dict[str, int] = opened.ask(
        "Object.fromEntries([...document.querySelectorAll('.parts [data-part]')]"
        ".map(({dataset}) => [dataset.part, Number(dataset.ns)]))"
    )
    return found


def test_without_steps_the_bar_is_of_all_that_was_recorded(open_page: Open, two_gpus: Path) -> None:
    opened = open_page(two_gpus)
    text = " ".join(opened.page.inner_text("#panel").split())

    # 969,447,605 and 969,258,578 ns, of which 962,890,247 and 962,810,705 busy.
    found = parts(opened)
    assert sum(found.values()) == 969_447_605 + 969_258_578
    idle = sum(time for part, time in found.items() if part.startswith("idle:"))
    assert idle == 6_557_358 + 6_447_873
    assert "All that was recorded mean of 2 devices: 969.353 ms" in text
    assert "busy 1925.701 ms of 1938.706 ms recorded, sum of 2 devices" in text
    assert "profiler.step" not in text
    assert "prof.step" not in text


def test_a_finding_of_two_ranks_stands_once_and_says_of_what_its_gain_is(
    open_page: Open, two_gpus: Path
) -> None:
    opened = open_page(two_gpus)

    first = opened.page.locator(".finding").first.inner_text()
    titles = opened.page.locator(".finding strong").all_inner_texts()

    assert len(titles) == len(set(titles))
    assert first.startswith("Ranks 0-1, most in 0: Nothing runs beside copies")
    assert "at most 921 ms (95.0 %), of the 969 ms recorded" in first
    assert "gains 0" not in first
    # They are pinned already: 1,841,627,438 of 1,841,630,798 ns.
    assert "pin_memory" not in first


def test_lines_are_those_of_lines(open_page: Open, reported: Reported) -> None:
    expected = pyprof2.load(reported.store).lines()
    expected = expected[expected["time_ns"] + expected["idle_caused_ns"].fillna(0) > 0]
    opened = open_page(reported.page, "page=tree")

    rows = opened.rows()

    names = ["time_ns", "own_ns", "forward_ns", "backward_ns", "idle_caused_ns", "calls"]
    assert len(expected) > 5
    assert expected["idle_caused_ns"].sum() > 0
    assert [row["name"] for row in rows] == expected["name"].tolist()
    for name in names:
        wanted = [None if pd.isna(value) else int(value) for value in expected[name]]
        assert [int(row[name]) if row[name] else None for row in rows] == wanted, name


def test_memory_is_that_of_memory(open_page: Open, reported: Reported) -> None:
    axes = ["op", "layer", "line", "category", "certainty"]
    expected = pyprof2.load(reported.store).memory_profile(axes, rank=0)

    rows = open_page(reported.page, "page=memory&rank=0").rows()

    found = sorted((row["category"], row["certainty"], int(row["bytes"])) for row in rows)
    wanted = zip(expected["category"], expected["certainty"], expected["bytes"], strict=True)
    assert found == sorted(wanted)
    assert {row["layer"] for row in rows} - {""} == {
        layer for layer in expected["layer"] if not str(layer).startswith("(")
    }


def test_without_a_gpu_there_are_parts_and_lanes_of_threads(
    open_page: Open, tmp_path: Path
) -> None:
    # Two steps of 100 us: 70 us in ops on one thread, 20 of these beside another one's 30.
    events = [
        each
        for at in (0, 100)
        for each in (
            step(at // 100, at, 100), op("aten::mm", at + 10, 60), op("aten::t", at + 20, 5),
            op("aten::add", at + 80, 10), op("aten::copy_", at + 50, 30, tid=9),
        )
    ]  # fmt: skip
    page = tmp_path / "cpu.html"
    assert cli.main(["report", str(trace(tmp_path, *events)), "-o", str(page)]) == 0
    opened = open_page(page)

    # The union of [10, 70], [80, 90] and [50, 80] is 80 us of 100.
    assert parts(opened) == {"host_ops": 160_000, "host_rest": 40_000}
    assert "mean of 2 steps: 100.000 us" in opened.page.inner_text("#panel")
    opened.turn_to("Timeline")
    opened.page.locator("summary").click()
    boxes = {(row["track"], row["name"], int(row["dur_ns"])) for row in opened.rows()}
    assert {(name, dur) for _, name, dur in boxes} == {
        ("aten::mm", 60_000), ("aten::add", 10_000), ("aten::copy_", 30_000)
    }  # fmt: skip
    assert len({track for track, *_ in boxes}) == 2
    assert opened.faults == []
