"""The windows of steps, on rows whose times the eye can check, and on a trace of known windows."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.intervals import merged, union_length
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.api import run_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def ranges(*rows: tuple[str, int, int]) -> pa.Table:
    """Return step ranges from name, start and end."""
    names, starts, ends = zip(*rows, strict=True)
    return pa.table(
        {
            "name": pa.array(names).dictionary_encode(),
            "kind": pa.array(["step"] * len(rows)).dictionary_encode(),
            "start_ns": starts,
            "dur_ns": [end - start for start, end in zip(starts, ends, strict=True)],
        }
    )


def work(*rows: tuple[int | None, int, int], device: int = 0) -> pa.Table:
    """Return activities from launch, start and end."""
    launches, starts, ends = zip(*rows, strict=True)
    return pa.table(
        {
            "launch_ns": pa.array(launches, pa.int64()),
            "start_ns": starts,
            "dur_ns": [end - start for start, end in zip(starts, ends, strict=True)],
            "device": [device] * len(rows),
        }
    )


STEPS = ranges(
    ("ProfilerStep#3", 0, 100), ("ProfilerStep#4", 100, 200), ("ProfilerStep#5", 210, 300)
)
LATE = work((10, 50, 90), (90, 100, 150), (120, 150, 180), (None, 500, 600), (310, 320, 330))


def test_a_window_ends_with_the_work_that_the_step_launched() -> None:
    found = step_windows(STEPS, [LATE])

    assert found.step.tolist() == [3, 4, 5]
    assert found.start.tolist() == [0, 150, 210]
    assert found.end.tolist() == [150, 200, 300]
    assert found.time_by_step() == {3: 150, 4: 50, 5: 90}


def test_the_first_step_begins_with_its_own_work_where_that_of_before_runs_into_it() -> None:
    before = work((None, -20, 5), (-9, 5, 30))

    found = step_windows(STEPS, [before, LATE])

    assert found.start.tolist() == [50, 150, 210]
    assert found.time_by_step() == {3: 100, 4: 50, 5: 90}


@pytest.mark.parametrize(
    ("steps", "activities", "starts"),
    [
        pytest.param(STEPS, work((-9, -8, 0)), [0, 150, 210], id="ended before"),
        pytest.param(STEPS, work((None, 60, 70)), [0, 150, 210], id="after its own began"),
        pytest.param(STEPS, work((205, 206, 220)), [0, 150, 210], id="between recorded steps"),
        pytest.param(
            ranges(("step#3", 0, 100), ("step#9", 305, 400)),
            work((None, 300, 308), (306, 320, 330)), [0, 320], id="another recording",
        ),
        pytest.param(ranges(("step#3", 0, 100)), work((None, -5, 20)), [0], id="no own work"),
    ],
)  # fmt: skip
def test_work_of_others_moves_only_steps_that_it_runs_into(
    steps: pa.Table, activities: pa.Table, starts: list[int]
) -> None:
    own = [] if len(steps) == 1 else [LATE.slice(0, 3)]

    assert step_windows(steps, [activities, *own]).start.tolist() == starts


def test_a_step_is_busy_while_a_device_works_in_its_window() -> None:
    other = work((20, 140, 160), (220, 205, 215), device=1)

    found = step_windows(STEPS, [LATE, other])

    assert found.end.tolist() == [160, 200, 300]
    assert found.busy_by_step([InMemory.cut(LATE, 1)]) == {3: 100, 4: 20, 5: 0}
    assert found.busy_by_step([InMemory.cut(LATE, 1), InMemory.cut(other, 1)]) == {
        3: 120,
        4: 20,
        5: 5,
    }


def test_ranges_of_one_step_that_overlap_are_one_and_others_are_apart() -> None:
    steps = ranges(
        ("step#1", 0, 50), ("step#1", 40, 80), ("step#2", 100, 120), ("step#1", 900, 950)
    )

    found = step_windows(steps, [work((0, 0, 1))])

    assert found.step.tolist() == [1, 2, 1]
    assert found.time_by_step() == {1: 130, 2: 20}


def test_no_steps_have_no_windows() -> None:
    found = step_windows(ranges(("warm-up", 0, 9)), [LATE])

    assert (len(found.step), found.time_by_step(), found.busy_by_step([InMemory.cut(LATE, 1)])) == (
        0,
        {},
        {},
    )


def test_windows_of_a_real_trace_are_those_of_the_tensorboard_plugin(
    shared_trace: Callable[[str], Path],
) -> None:
    """The mean step of this trace, in the plugin's own overview: 177,592.17 us."""
    steps = run_time.utilization(pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz")).tables)

    assert round(steps["wall_ns"].mean() / 1000, 2) == 177592.17
    assert steps["wall_ns"].tolist() == windows_one_by_one(
        shared_trace("kineto/rn50_v100_w0.json.gz")
    )


def windows_one_by_one(path: Path) -> list[int]:
    """Return the lengths of the windows in ns, read event by event."""
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]
    steps, launches, work = [], {}, []
    for event in events:
        correlation = event.get("args", {}).get("correlation")
        if event.get("name", "").startswith("ProfilerStep#"):
            steps.append((event["ts"], event["ts"] + event["dur"]))
        elif event.get("cat") in ("Kernel", "Memcpy", "Memset"):
            work.append((correlation, event["ts"] + event["dur"]))
        elif event.get("cat") == "Runtime" and correlation:
            launches[correlation] = event["ts"]
    found, before = [], Decimal(0)
    for start, end in sorted(steps):
        ends = [e for c, e in work if c in launches and start <= launches[c] <= end]
        last = max([end, *ends])
        found.append(int((last - max(start, before)) * 1000))
        before = last
    return found


interval = st.tuples(st.integers(0, 50), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(interval))
def test_merged_pieces_are_apart_and_cover_what_the_intervals_do(
    intervals: list[tuple[int, int]],
) -> None:
    start, end = np.array(intervals, np.int64).reshape(-1, 2).T

    begins, ends = merged(start, end)

    covered = {t for s, e in intervals for t in range(s, e)}
    assert {t for s, e in zip(begins, ends, strict=True) for t in range(s, e)} == covered
    assert (begins[1:] > ends[:-1]).all()
    assert int((ends - begins).sum()) == union_length(start, end) == len(covered)
