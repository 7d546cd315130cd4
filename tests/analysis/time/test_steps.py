"""What devices did in steps: by hand, as a loop over nanoseconds, and on traces of known use."""

from __future__ import annotations

import gzip
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2.analysis.time.step_times import SHARES, mean_shares
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.analysis.time.steps import (
    COMM,
    COMPUTE,
    COPY,
    STATES,
    DeviceUse,
    DeviceWork,
    steps_and_use,
    use_pct,
)
from tests.builders import canonical, chunked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

ALL_STATES = [*STATES, "copy_overlap_ns"]
UNKNOWN = float("nan")


def kernel(start: int, end: int, **known: Any) -> dict[str, Any]:
    """Return a kernel, launched when it starts, or a copy."""
    return {
        "start_ns": start, "dur_ns": end - start, "launch_ns": start, "device": 0, **known,
    }  # fmt: skip


def step(number: int, start: int, end: int) -> dict[str, Any]:
    """Return the range of a step."""
    return {
        "start_ns": start, "dur_ns": end - start, "kind": "step", "name": f"ProfilerStep#{number}",
    }  # fmt: skip


def tables(
    steps: list[dict[str, Any]],
    kernels: list[dict[str, Any]],
    copies: list[dict[str, Any]] | None = None,
    recordings: tuple[int, ...] = (0,),
) -> dict[str, pa.Table]:
    """Return the tables that steps are found in, of rank 0."""
    return {
        "ranges": canonical("ranges", *steps),
        "kernels": canonical("kernels", *kernels),
        "copies": canonical("copies", *(copies or [])),
        "trace": canonical("trace", *({"rank": 0, "start_ns": start} for start in recordings)),
    }


def found(of: dict[str, pa.Table]) -> pd.DataFrame:
    """Return the table `steps` of rank 0, as pandas has it."""
    rows: pd.DataFrame = both(of)[0].to_pandas()
    return rows


def used(of: dict[str, pa.Table]) -> list[dict[str, Any]]:
    """Return the rows of the table `device_use` of rank 0."""
    rows: list[dict[str, Any]] = both(of)[1].to_pylist()
    return rows


def both(of: dict[str, pa.Table]) -> tuple[pa.Table, pa.Table]:
    windows = step_windows(of["ranges"], [of["kernels"], of["copies"]])
    return steps_and_use(chunked(of), windows, 0)


def test_the_states_of_a_step_by_hand() -> None:
    """Each ten ns is in another state, and 40 ns in none."""
    of = tables(
        [step(5, 0, 100)],
        [
            kernel(0, 30, category="matmul", blocks_per_sm=0.5, occupancy_pct=20.0),
            kernel(20, 50, category="comm", blocks_per_sm=0.75, occupancy_pct=50.0),
        ],
        [kernel(10, 20), kernel(40, 60)],
    )

    (row,) = found(of).to_dict("records")

    assert {name: row[name] for name in ALL_STATES} == {
        "compute_only_ns": 10,  # 0 to 10
        "copy_overlap_ns": 20,  # 10 to 20 with computing, 40 to 50 with communication
        "comp_comm_overlap_ns": 10,  # 20 to 30
        "comm_only_ns": 10,  # 30 to 40
        "copy_only_ns": 10,  # 50 to 60
        "idle_ns": 40,
    }
    assert (row["busy_kernels_ns"], row["gpu_utilization_pct"]) == (50, 50)
    # Half of them for 20 ns, all of them (1.25, at most 1) for 10, three quarters for 20.
    assert row["sm_efficiency_pct"] == pytest.approx(100 * (0.5 * 20 + 1 * 10 + 0.75 * 20) / 100)
    assert row["occupancy_pct"] == pytest.approx((20 * 30 + 50 * 30) / 60)


def test_a_window_has_what_runs_in_it_and_the_host_its_own_times() -> None:
    late = {**kernel(90, 130, category="matmul"), "launch_ns": 50}

    rows = found(tables([step(1, 0, 100), step(2, 100, 200)], [late], [kernel(190, 205)]))

    assert rows["host_start_ns"].tolist() == [0, 100]
    assert rows["host_dur_ns"].tolist() == [100, 100]
    assert rows["start_ns"].tolist() == [0, 130]
    assert rows["dur_ns"].tolist() == [130, 75]
    assert rows["compute_only_ns"].tolist() == [40, 0]
    assert rows["copy_only_ns"].tolist() == [0, 15]
    assert rows["idle_ns"].tolist() == [90, 60]


def test_each_device_has_a_row_for_each_step() -> None:
    of = tables(
        [step(1, 0, 100), step(2, 100, 200)],
        [kernel(0, 60), kernel(50, 70, device=1), kernel(150, 160, device=None)],
    )

    rows = found(of)

    assert rows["device"].fillna(-1).tolist() == [-1, -1, 0, 0, 1, 1]
    assert rows["compute_only_ns"].tolist() == [0, 10, 60, 0, 20, 0]
    assert (rows[ALL_STATES].sum(axis=1) == 100).all()


def test_what_is_not_known_of_one_kernel_is_null_in_its_step_alone() -> None:
    known = {"blocks_per_sm": 1.0, "occupancy_pct": 30.0}
    of = tables(
        [step(1, 0, 100), step(2, 100, 200), step(3, 200, 300)],
        [kernel(0, 50, **known), kernel(100, 110, **known), kernel(120, 130)],
    )

    rows = found(of)

    assert rows["sm_efficiency_pct"].fillna(-1).tolist() == [50, -1, 0]
    # Without kernels there is no occupancy.
    assert rows["occupancy_pct"].fillna(-1).tolist() == [30, -1, -1]
    assert rows["gpu_utilization_pct"].tolist() == [50, 20, 0]


def test_without_a_device_steps_have_windows_and_no_states() -> None:
    rows = found(tables([step(1, 0, 100), step(2, 120, 200)], []))

    assert rows["dur_ns"].tolist() == [100, 80]
    assert rows[["device", *ALL_STATES, "gpu_utilization_pct"]].isna().all(axis=None)


def test_without_steps_there_are_no_rows_and_use_is_from_the_first_activity_to_the_last() -> None:
    of = tables([], [kernel(0, 10), kernel(30, 40)])

    assert len(found(of)) == 0
    (use,) = used(of)
    assert (use["window_ns"], use["gpu_utilization_pct"]) == (40, 50)
    assert used(tables([], [])) == []


@pytest.mark.parametrize(
    ("shares", "mean"),
    [
        pytest.param([(10, 50.0), (30, 90.0)], 80.0, id="weighted by time"),
        pytest.param([(10, 50.0), (30, None)], None, id="one unknown"),
        pytest.param([(10, 50.0), (0, None)], 50.0, id="one without length"),
        pytest.param([(0, None)], None, id="nothing long"),
        pytest.param([], None, id="none"),
    ],
)
def test_the_mean_of_shares_is_over_all_of_the_time(
    shares: list[tuple[int, float | None]], mean: float | None
) -> None:
    rows = [
        {"dur_ns": length, "gpu_utilization_pct": 40.0} | dict.fromkeys(SHARES[1:], share)
        for length, share in shares
    ]

    found = mean_shares(rows, "dur_ns")

    assert [found[name] for name in SHARES[1:]] == [mean] * 2


def test_occupancy_counts_with_the_time_in_which_kernels_ran() -> None:
    rows = [
        {"dur_ns": length, "gpu_utilization_pct": used, "sm_efficiency_pct": 10.0,
         "occupancy_pct": occupancy}
        for length, used, occupancy in ((100, 50.0, 34.0), (100, 75.0, 24.0), (100, 0.0, None))
    ]  # fmt: skip

    found = mean_shares(rows, "dur_ns")

    assert found["gpu_utilization_pct"] == pytest.approx(125 / 3)
    assert found["occupancy_pct"] == pytest.approx((50 * 34 + 75 * 24) / 125)
    assert mean_shares(rows[2:], "dur_ns")["occupancy_pct"] is None


def test_a_step_without_length_hides_no_other() -> None:
    late = {**kernel(10, 90), "launch_ns": 5}

    rows = found(tables([step(1, 0, 20), step(2, 20, 30), step(3, 30, 120)], [late]))

    assert rows["dur_ns"].tolist() == [90, 0, 30]
    assert rows["compute_only_ns"].tolist() == [80, 0, 0]
    assert rows["idle_ns"].tolist() == [10, 0, 30]
    assert rows["gpu_utilization_pct"].isna().tolist() == [False, True, False]


def test_use_over_steps_has_what_lies_between_them_and_not_between_recordings() -> None:
    known = {"blocks_per_sm": 0.5, "occupancy_pct": 40.0}
    of = tables(
        [step(1, 0, 100), step(2, 200, 300), step(1, 9000, 9100)],
        [
            kernel(0, 50, **known),
            kernel(120, 150, **known),  # Between steps.
            kernel(400, 420, **known),  # After the last one.
            kernel(9000, 9020, **known | {"occupancy_pct": 80.0}),
        ],
        recordings=(0, 9000),
    )

    (row,) = used(of)

    assert (row["rank"], row["device"], row["window_ns"]) == (0, 0, 400)
    assert row["gpu_utilization_pct"] == pytest.approx(100 * (50 + 30 + 20) / 400)
    assert row["sm_efficiency_pct"] == pytest.approx(50 * (50 + 30 + 20) / 400)
    assert row["occupancy_pct"] == pytest.approx((40 * 80 + 80 * 20) / 100)


activities = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from((COMPUTE, COMM, COPY)),
        st.sampled_from((0.25, 0.5, 3.0, UNKNOWN)),
        st.sampled_from((10.0, 80.0, UNKNOWN)),
    ),
    max_size=12,
)
bounds = st.lists(st.integers(0, 40), max_size=6).map(
    lambda times: sorted(times)[: len(times) & ~1]
)


@given(activities, bounds)
def test_use_is_that_of_a_loop_over_nanoseconds(
    rows: list[tuple[int, int, int, float, float]], times: list[int]
) -> None:
    start, length, kind = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3).T
    blocks, occupancy = np.array([row[3:] for row in rows], np.float64).reshape(-1, 2).T
    begins, ends = np.array(times[::2], np.int64), np.array(times[1::2], np.int64)

    found = DeviceUse(begins, ends)
    found.add(DeviceWork(start, start + length, kind, blocks, occupancy))
    use = found.use()

    shares = use_pct(use, ends - begins)
    for at, (begin, end) in enumerate(zip(times[::2], times[1::2], strict=True)):
        states, expected = slow_use(rows, begin, end)
        assert {name: use.times[name][at] for name in ALL_STATES} == states
        got = [share[at].as_py() for share in shares.values()]
        assert got == [None if e is None else pytest.approx(e) for e in expected]


def slow_use(
    rows: list[tuple[int, int, int, float, float]], begin: int, end: int
) -> tuple[dict[str, int], list[float | None]]:
    """Return the states of a window, and utilization, efficiency, occupancy, ns by ns."""
    states = dict.fromkeys(ALL_STATES, 0)
    busy, sm, time, occupied, sm_known, known = 0, 0.0, 0, 0.0, True, True
    for now in range(begin, end):
        running = [row for row in rows if row[0] <= now < row[0] + row[1]]
        kinds = {row[2] for row in running}
        if COPY in kinds and len(kinds) > 1:
            states["copy_overlap_ns"] += 1
        else:
            names = {
                (): "idle_ns", (COMPUTE,): "compute_only_ns", (COMM,): "comm_only_ns",
                (COMPUTE, COMM): "comp_comm_overlap_ns", (COPY,): "copy_only_ns",
            }  # fmt: skip
            states[names[tuple(sorted(kinds))]] += 1
        kernels = [row for row in running if row[2] != COPY]
        busy += bool(kernels)
        time += len(kernels)
        sm += min(1, sum(row[3] for row in kernels if row[3] == row[3]))
        occupied += sum(row[4] for row in kernels if row[4] == row[4])
        sm_known &= all(row[3] == row[3] for row in kernels)
        known &= all(row[4] == row[4] for row in kernels)
    length = end - begin
    return states, [
        100 * busy / length if length else None,
        100 * sm / length if length and sm_known else None,
        occupied / time if time and known else None,
    ]


def test_steps_are_those_of_the_tensorboard_plugin(shared_trace: Callable[[str], Path]) -> None:
    """The numbers are those of the plugin's own overview."""
    run = pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz"))

    (use,) = run.tables.frame("device_use").to_dict("records")

    assert run.steps["dur_ns"].mean() / 1000 == pytest.approx(177592.17, abs=0.1)
    assert use["gpu_utilization_pct"] / 100 == pytest.approx(0.55514, abs=5e-6)
    assert use["sm_efficiency_pct"] / 100 == pytest.approx(0.54679, abs=5e-6)
    assert use["occupancy_pct"] == pytest.approx(49.128, abs=5e-4)


def test_times_in_ns_differ_from_the_plugin_by_what_a_double_cannot_hold(
    shared_trace: Callable[[str], Path],
) -> None:
    """The plugin reads µs since 1970 as doubles, which are 0.25 µs apart.

    Its overview says a utilization of .9683, an SM efficiency of .94922 and an occupancy of
    46.450 %. The digits of the file give .96822, .94922 and 46.452 %: the program below, which
    shares nothing with ours, has its numbers from the one and ours from the other.
    """
    trace = shared_trace("kineto/hta_ns_v100.json.gz")
    run = pyprof2.load(trace)
    steps = run.steps
    window = int(steps["start_ns"].min()), int((steps["start_ns"] + steps["dur_ns"]).max())
    (use,) = run.tables.frame("device_use").to_dict("records")
    ours = [use["gpu_utilization_pct"], use["sm_efficiency_pct"], use["occupancy_pct"]]

    assert steps["dur_ns"].mean() / 1000 == pytest.approx(96703.6, abs=0.1)
    by_doubles = _use_of_kernels(trace, window, float)
    assert [round(by_doubles[0] / 100, 4), round(by_doubles[1] / 100, 5)] == [0.9683, 0.94922]
    assert round(by_doubles[2], 3) == 46.450
    assert ours == pytest.approx(_use_of_kernels(trace, window, Decimal), rel=1e-9)
    assert ours[0] / 100 == pytest.approx(0.96822, abs=5e-6)


def _use_of_kernels(
    trace: Path, window: tuple[int, int], number: Callable[[str], Any]
) -> list[float]:
    """Return utilization, SM efficiency and occupancy in %, of kernels none of which overlap.

    Args:
        trace: a Kineto trace.
        window: its start and end, in ns.
        number: makes a number of digits; the arithmetic is that of its type.
    """
    events = json.loads(gzip.decompress(trace.read_bytes()), parse_float=number)["traceEvents"]
    begin, end = (number(str(time)) / 1000 for time in window)
    time = blocks = occupancy = number("0")
    for event in (event for event in events if event.get("cat") == "kernel"):
        last = event["ts"] + event["dur"]
        inside = max(number("0"), min(last, end) - max(event["ts"], begin))
        time += inside
        blocks += min(1, event["args"]["blocks per SM"]) * inside
        occupancy += event["args"]["est. achieved occupancy %"] * inside
    shares = (100 * time / (end - begin), 100 * blocks / (end - begin), occupancy / time)
    return [float(share) for share in shares]


def test_steps_of_a_real_trace_add_up_and_agree_with_idle_time(real_trace: Path) -> None:
    """Idle time is found gap by gap, by code that shares nothing with the states."""
    run = pyprof2.load(real_trace)
    steps = run.steps[run.steps["idle_ns"].notna()]

    assert (steps[ALL_STATES].sum(axis=1) == steps["dur_ns"]).all()
    idle = by_step(run.idle[run.idle["step"].notna()], "time_ns")
    assert idle == {key: time for key, time in by_step(steps, "idle_ns").items() if time}


def by_step(rows: pd.DataFrame, column: str) -> dict[tuple[int, int, int], int]:
    """Return the sum of a column for each rank, device and step."""
    keys = [rows[name].fillna(-1).astype("int64") for name in ("rank", "device", "step")]
    sums: dict[Any, int] = rows.groupby(keys)[column].sum().to_dict()
    return sums
