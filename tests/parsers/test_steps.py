"""What a step is does not depend on the profiler: the same ranges give the same steps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.api import run_time
from pyprof2.cli import main
from pyprof2.markers import Marker, format_marker, parse_marker
from pyprof2.units import format_time
from tests.kineto_events import (
    annotation,
    complete,
    kernel,
    launch,
    launched,
    load_events,
    op,
    rows,
)
from tests.nsight_exports import ENGINE, MAIN, PID, Export

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run
    from tests.kineto_events import Event

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
    assert run_time.utilization(run.tables)["step"].dropna().tolist() == steps


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


class Loop:
    """A program that calls an op every 10 us, each of which launches a kernel of 4 us.

    It is written as either profiler does. Times are us.
    """

    def __init__(self) -> None:
        self.ranges: list[tuple[str, int, int, int]] = []
        self.ops: list[tuple[int, int]] = []

    def range(self, text: str, begin: int, end: int, tid: int = MAIN) -> Loop:
        """Add a range."""
        self.ranges.append((text, begin, end, tid))
        return self

    def work(self, begin: int, end: int, tid: int = MAIN) -> Loop:
        """Add ops from a time to another."""
        self.ops += [(at, tid) for at in range(begin, end, 10)]
        return self

    def kineto(self, folder: Path) -> Run:
        """Write and load a Kineto trace."""
        events = [annotation(text, at, end - at, tid=tid) for text, at, end, tid in self.ranges]
        for number, (at, tid) in enumerate(self.ops, 1):
            events += [op("aten::relu", at, 8, tid=tid), launch(at + 1, number, tid=tid)]
            events.append(kernel(at + 3, 4, number))
        return load_events(folder, *events)

    def nsight(self, folder: Path) -> Run:
        """Write and load an export of Nsight Systems."""
        export = Export()
        for text, at, end, tid in self.ranges:
            export.range(text, at * 1000, end * 1000, tid=tid)
        for number, (at, tid) in enumerate(self.ops, 1):
            export.range("aten::relu, op_id = 1", at * 1000, at * 1000 + 8000, tid=tid)
            export.call("cudaLaunchKernel_v7000", at * 1000 + 1000, 1000, number, tid=tid)
            export.kernel("k", at * 1000 + 3000, 4000, number)
        return export.load(folder)


WRITERS: Final = [
    pytest.param(Loop.kineto, id="kineto"), pytest.param(Loop.nsight, id="nsight"),
]  # fmt: skip


def kernels_of(run: Run) -> dict[int | None, int]:
    return dict(Counter(rows(run.table("kernels"), "step")))


def mean_us(run: Run) -> float:
    return float(run.table("steps")["dur_ns"].to_pandas().mean()) / 1000


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("loop", "kernels", "mean"),
    [
        pytest.param(
            Loop().work(0, 90).range("ProfilerStep#1", 0, 40).range("ProfilerStep#2", 40, 80)
            .range("ProfilerStep#3", 80, 80),
            {1: 4, 2: 4, None: 1}, 40, id="open",
        ),
        pytest.param(
            Loop().work(0, 90).range("iter 1", 0, 40).range("iter 2", 40, 80)
            .range("iter 3", 80, 80),
            {1: 4, 2: 4, None: 1}, 40, id="open, called like a step",
        ),
        pytest.param(
            Loop().work(0, 80).range("ProfilerStep#1", 0, 40).range("ProfilerStep#2", 40, 80)
            .range("ProfilerStep#3", 80, 82),
            {1: 4, 2: 4}, 40, id="nothing begins in the last",
        ),
        pytest.param(
            Loop().work(0, 40).range("ProfilerStep#1", 0, 40).range("ProfilerStep#2", 40, 80)
            .range("ProfilerStep#3", 80, 120).work(80, 120),
            {1: 4, 3: 4}, 40, id="nothing begins in the middle",
        ),
    ],
)  # fmt: skip
def test_a_step_that_is_open_is_none(
    write: Any, loop: Loop, kernels: dict[int | None, int], mean: float, tmp_path: Path,
) -> None:  # fmt: skip
    run = write(loop, tmp_path)

    assert kernels_of(run) == kernels
    assert mean_us(run) == mean
    said = " ".join(run.check()["finding"])
    is_open = sum(name.endswith("3") for name, *_ in loop.ranges) and 3 not in kernels
    assert ("it is open" in said) == is_open
    assert ("steps in which no op begins" in said) == (2 not in kernels)
    assert ("open step" in rows(run.table("ranges"), "kind")) == is_open


def micro(loop: Loop, begin: int, number: int) -> Loop:
    """Add an iteration of two micro steps of 40 us."""
    loop.work(begin, begin + 80).range(f"iteration {number}", begin, begin + 90)
    return loop.range("step 0", begin, begin + 40).range("step 1", begin + 40, begin + 80)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(
    ("loop", "kernels", "epochs"),
    [
        pytest.param(micro(micro(Loop(), 0, 7), 100, 8), {7: 8, 8: 8}, None, id="nested"),
        pytest.param(
            Loop().work(0, 80).range("step 3", 0, 40).range("step 4", 40, 80)
            .range("step 9", 10, 70, tid=ENGINE),
            {3: 4, 4: 4}, None, id="of another thread",
        ),
        pytest.param(
            Loop().work(0, 80).range("step 3", 0, 40).range("step 4", 40, 80)
            .work(100, 110, tid=ENGINE).range("step 9", 0, 2000, tid=ENGINE),
            {3: 4, 4: 4, None: 1}, None, id="of another thread, that does less",
        ),
        pytest.param(
            Loop().work(0, 80).range("step 3", 0, 40).range("step 4", 40, 80)
            .range("step 3", 5, 30, tid=ENGINE).range("step 4", 45, 75, tid=ENGINE),
            {3: 4, 4: 4}, None, id="the same steps on two threads",
        ),
        pytest.param(
            Loop().work(0, 160).range("step 0", 0, 40).range("step 1", 40, 80)
            .range("step 0", 80, 120).range("step 1", 120, 160),
            {0: 4, 1: 4, 2: 4, 3: 4}, [0, 0, 1, 1], id="two epochs",
        ),
        pytest.param(
            Loop().work(0, 120).range("ProfilerStep#5", 0, 40).range("ProfilerStep#5", 40, 80)
            .range("ProfilerStep#5", 80, 120),
            {5: 4, 6: 4, 7: 4}, [0, 1, 2], id="always one number",
        ),
        pytest.param(
            Loop().work(0, 80).range("step 9", 0, 40).range("step 3", 40, 80), {9: 4, 3: 4}, None,
            id="numbers that fall",
        ),
    ],
)  # fmt: skip
def test_steps_are_the_outermost_of_the_thread_that_works_and_have_numbers_of_their_own(
    write: Any,
    loop: Loop,
    kernels: dict[int | None, int],
    epochs: list[int] | None,
    tmp_path: Path,
) -> None:
    run = write(loop, tmp_path)

    assert kernels_of(run) == kernels
    steps = run.table("steps")
    assert rows(steps, "step") == [step for step in kernels if step is not None]
    assert rows(steps, "epoch") == ([None] * steps.num_rows if epochs is None else epochs)
    if any(name == "step 0" for name, *_ in loop.ranges) and 7 in kernels:
        assert set(rows(run.table("kernels"), "range")) == {"step 0", "step 1"}


def gpu_step(text: str, ts: int, dur: int, stream: int = 7, number: int | None = None) -> Event:
    """Return a range as a stream of the GPU saw it."""
    args = {} if number is None else {"External id": number}
    return complete("gpu_user_annotation", text, ts, dur, pid=0, tid=stream, args=args)


GPU_KERNELS: Final = [kernel(at, 8, 0) for at in range(0, 100, 10)]


@pytest.mark.parametrize(
    ("events", "kernels"),
    [
        pytest.param(
            [gpu_step("ProfilerStep#5", 0, 50), gpu_step("ProfilerStep#6", 50, 48)],
            {5: 5, 6: 5}, id="one stream",
        ),
        pytest.param(
            [gpu_step("ProfilerStep#5", 0, 30, number=1), gpu_step("ProfilerStep#5", 35, 15, 8, 1),
             gpu_step("ProfilerStep#6", 48, 50, number=2)],
            {5: 5, 6: 5}, id="two streams, the next step begins early",
        ),
        pytest.param(
            [gpu_step("iteration 0", 0, 48), gpu_step("step 0", 0, 20), gpu_step("step 1", 20, 20),
             gpu_step("iteration 1", 50, 48)],
            {0: 5, 1: 5}, id="nested",
        ),
        pytest.param([gpu_step("forward", 0, 48)], {None: 10}, id="no step"),
    ],
)  # fmt: skip
def test_steps_that_devices_alone_saw_are_steps(
    tmp_path: Path, events: list[Event], kernels: dict[int | None, int]
) -> None:
    run = load_events(tmp_path, *GPU_KERNELS, *events)

    assert kernels_of(run) == kernels
    assert run.summary["steps"] == [step for step in kernels if step is not None]
    assert (None in kernels) == ("no steps" in set(run.check()["finding"]))


def test_check_says_where_only_devices_saw_steps_beside_launches(tmp_path: Path) -> None:
    seen = [gpu_step("ProfilerStep#5", 0, 50)]
    run = load_events(tmp_path, op("aten::a", 0, 9), *launched(1, 1, at=20, dur=8), *seen)

    assert "only the GPU's annotations name" in " ".join(run.check()["finding"])
    again = load_events(
        tmp_path,
        op("aten::a", 0, 9),
        *launched(1, 1, at=20, dur=8),
        *seen,
        annotation("step 5", 0, 50),
    )
    assert "only the GPU's annotations name" not in " ".join(again.check()["finding"])


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(Loop().work(0, 90).range("step 1", 0, 40).range("step 2", 40, 90), id="plain"),
        pytest.param(
            Loop().work(0, 80).range("step 1", 0, 40).range("step 2", 40, 80)
            .range("step 3", 80, 81),
            id="an empty last one",
        ),
        pytest.param(micro(micro(Loop(), 0, 7), 100, 8), id="nested"),
        pytest.param(
            Loop().work(0, 150).range("step 0", 0, 50).range("step 1", 50, 80)
            .range("step 0", 80, 120).range("step 1", 120, 150),
            id="two epochs",
        ),
    ],
)  # fmt: skip
def test_every_screen_has_one_mean_of_steps(
    loop: Loop, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = loop.kineto(tmp_path)
    mean = format_time(round(1000 * mean_us(run)))

    for command in (["prof"], ["prof", "--by", "step"], ["advise"]):
        assert main([*command, str(tmp_path / "trace.json")]) == 0
        assert f"{mean} per step" in " ".join(capsys.readouterr().out.split())
    assert main(["prof", "--by", "step", str(tmp_path / "trace.json")]) == 0
    assert f"a step takes {mean} on average" in capsys.readouterr().out
