"""What a step is does not depend on the profiler: the same ranges give the same steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.markers import Marker, format_marker, parse_marker
from tests.kineto_events import annotation, launched, load_events, op, rows
from tests.nsight_exports import MAIN, PID, Export

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

OTHER: Final = 300
"""Another process."""

Range = tuple[str, int, int]
"""Text, start and end in us."""


def kineto(folder: Path, *ranges: Range) -> Run:
    """Return a Kineto trace with the ranges, and a kernel that is launched at 12 us."""
    events = [
        op(text, at, 1) if parse_marker(text) else annotation(text, at, end - at)
        for text, at, end in ranges
    ]
    return load_events(
        folder, [*events, op("aten::relu", 10, 8), *launched(12, 1, at=60, dur=5)],
        deviceProperties=[{"id": 0, "name": "NVIDIA A100-SXM4-40GB"}],
    )  # fmt: skip


def nsight(folder: Path, *ranges: Range) -> Run:
    """Return an export of the same."""
    export = Export().gpu().domain()
    for text, at, end in ranges:
        marker = parse_marker(text)
        if marker is not None:
            export.marker(marker, at * 1000, None)
        else:
            export.range(text, at * 1000, end * 1000)
    export.range("aten::relu, op_id = 1", 10_000, 18_000)
    export.call("cudaLaunchKernel_v7000", 12_000, 1000, 1)
    return export.kernel("k", 60_000, 5000, 1).load(folder)


def mark(number: int, at: int) -> Range:
    """Return our mark of the beginning of a step."""
    return format_marker(Marker("step", step=number)), at, at


RECORDERS: Final = [pytest.param(kineto, id="kineto"), pytest.param(nsight, id="nsight")]


@pytest.mark.parametrize("record", RECORDERS)
@pytest.mark.parametrize(
    ("ranges", "steps", "kinds"),
    [
        pytest.param([("iteration 5", 0, 50)], [5], ["step"], id="called like a step"),
        pytest.param([("train_step:7", 0, 50)], [7], ["step"], id="in other words"),
        pytest.param([("Warm-up Step 3", 0, 50)], [], ["annotation"], id="more than a step"),
        pytest.param([("ProfilerStep#4", 0, 50)], [4], ["step"], id="scheduled"),
        pytest.param([("ProfilerStep#4 (warm) 9", 0, 50)], [4], ["step"], id="scheduled, and more"),
        pytest.param(
            [("iteration 5", 0, 50), ("ProfilerStep#4", 1, 49)],
            [4], ["annotation", "step"],
            id="the schedule is better",
        ),
    ],
)  # fmt: skip
def test_a_range_is_a_step_whichever_profiler_recorded_it(
    record: Any, ranges: list[Range], steps: list[int], kinds: list[str], tmp_path: Path
) -> None:
    run = record(tmp_path, *ranges)

    assert run.summary["steps"] == steps
    assert rows(run.table("ranges"), "kind") == kinds
    assert rows(run.table("kernels"), "step") == [*steps, None][:1]
    assert run.utilization["step"].dropna().tolist() == steps


@pytest.mark.parametrize("record", RECORDERS)
def test_where_our_marks_begin_the_steps_a_range_called_like_one_is_the_users(
    record: Any, tmp_path: Path
) -> None:
    run = record(tmp_path, ("iteration 5", 0, 50), mark(2, 5))

    assert run.summary["steps"] == [2]
    assert rows(run.table("kernels"), "step") == [2]
    assert rows(run.table("ranges"), "name", "kind") == [
        ("iteration 5", "annotation"), ("step#2", "step"),
    ]  # fmt: skip


def test_each_process_of_a_file_has_its_own_kind_of_steps(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        annotation("ProfilerStep#4", 0, 50), annotation("iteration 5", 1, 40),
        annotation("iteration 6", 0, 50, pid=OTHER),
    )  # fmt: skip

    assert rows(run.table("ranges"), "name", "kind", "pid") == [
        ("ProfilerStep#4", "step", PID), ("iteration 6", "step", OTHER),
        ("iteration 5", "annotation", PID),
    ]  # fmt: skip


def test_steps_of_one_process_stay_where_they_were_recorded(tmp_path: Path) -> None:
    run = kineto(tmp_path, ("iteration 5", 0, 50))

    assert rows(run.table("ranges"), "start_ns", "dur_ns", "pid", "tid") == [(0, 50_000, PID, MAIN)]
