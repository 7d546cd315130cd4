"""Two ledgers of lines: each adds up, to the ns, whatever the intervals are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.chunked import ENDLESS
from pyprof2.analysis.intervals import Covered, innermost_time
from pyprof2.analysis.time.line_steps import HostSteps, HostTimes, StepOps, cut_steps
from tests.kineto_events import ENGINE, copy, frame, launched, load_events, op, step

if TYPE_CHECKING:
    from pathlib import Path

SPAN = 24
OPS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, SPAN), st.integers(0, 12)), max_size=8
).map(lambda ops: sorted(ops, key=lambda op: op[1]))
STEPS = st.lists(st.integers(0, SPAN), min_size=2, max_size=5, unique=True).map(sorted)


def _innermost(ops: list[tuple[int, int, int]], thread: int, time: int) -> int | None:
    """Return the op that a thread runs in [time, time + 1): it began last, and ends first."""
    around = [
        (start, -(start + length), number)
        for number, (own, start, length) in enumerate(ops)
        if own == thread and start <= time and time + 1 <= start + length
    ]
    return max(around)[2] if around else None


@given(OPS, STEPS, st.integers(0, 1))
def test_every_ns_of_a_step_is_that_of_its_innermost_op_or_of_none(
    ops: list[tuple[int, int, int]], bounds: list[int], own: int
) -> None:
    columns = np.array(ops, np.int64).reshape(-1, 3).T
    thread, start, end = columns[0], columns[1], columns[1] + columns[2]
    begin, finish = (np.array(part, np.int64) for part in (bounds[:-1], bounds[1:]))
    steps = HostSteps(np.arange(len(begin)), begin, finish, np.full(len(begin), own))

    times_of = HostTimes(steps, cut_steps(steps, [(thread, start, end)]))
    self_ns, is_new = innermost_time(thread, start, end), np.ones(len(start), bool)
    row, at, took = times_of.add(StepOps(thread, start, end, self_ns, is_new), -ENDLESS, ENDLESS)

    wanted: dict[tuple[int, int | None], int] = {}
    for number, (first, last) in enumerate(zip(begin.tolist(), finish.tolist(), strict=True)):
        for time in range(first, last):
            key = number, _innermost(ops, own, time)
            wanted[key] = wanted.get(key, 0) + 1
    rows = zip(at.tolist(), row.tolist(), took.tolist(), strict=True)
    times = {(number, op_): time for number, op_, time in rows if time}
    times |= {(number, None): time for number, time in enumerate(times_of.between.tolist()) if time}
    assert times == wanted


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, SPAN), st.integers(0, 9)), max_size=8))
def test_time_less_overlap_is_the_time_in_which_a_device_is_busy(
    work: list[tuple[int, int, int]],
) -> None:
    device, start, length = np.array(work, np.int64).reshape(-1, 3).T

    found = Covered().add(device, start, start + length) - start

    busy = {(own, time) for own, begin, long in work for time in range(begin, begin + long)}
    assert (length - found).sum() == len(busy)
    assert ((found >= 0) & (found <= length)).all()


def _rows(folder: Path, *events: object) -> list[dict[str, object]]:
    found: list[dict[str, object]] = load_events(folder, *events).table("lines").to_pylist()  # type: ignore[arg-type]
    return found


STEP = [
    step(4, 0, 100),
    frame("/w/train.py(7): main", 0, 100),
    op("aten::linear", 10, 30),
    op("aten::addmm", 12, 20),
    launched(15, 1, at=50, dur=40),
    op("aten::relu", 60, 10),
    launched(62, 2, at=80, dur=30),
]
"""A line that calls two ops; the second kernel runs beside the first one for 10 us."""


def test_a_call_has_the_time_of_all_that_runs_in_it(tmp_path: Path) -> None:
    rows = _rows(tmp_path, *STEP)

    names = ["ledger", "step", "op", "phase", "calls", "count", "time_ns", "overlap_ns"]
    assert [[row[name] for name in names] for row in rows if row["op"]] == [
        ["device", 4, "aten::linear", "forward", 1, 1, 40_000, 0],
        ["device", 4, "aten::relu", "forward", 1, 1, 30_000, 10_000],
        ["host", 4, "aten::linear", "forward", 1, 2, 30_000, None],
        ["host", 4, "aten::relu", "forward", 1, 1, 10_000, None],
    ]
    assert [row["time_ns"] for row in rows if row["ledger"] == "host" and not row["op"]] == [60_000]


def test_an_op_that_reaches_out_of_its_step_is_cut_and_counts_once(tmp_path: Path) -> None:
    rows = _rows(tmp_path, step(0, 0, 50), step(1, 50, 50), op("aten::mm", 40, 30))

    found = [(r["ledger"], r["step"], r["op"], r["calls"], r["time_ns"]) for r in rows]
    assert sorted(found, key=str) == [
        ("host", 0, "aten::mm", 1, 10_000),
        ("host", 0, None, 0, 40_000),
        ("host", 1, "aten::mm", 0, 20_000),
        ("host", 1, None, 0, 30_000),
    ]


def test_other_threads_are_no_part_of_the_step(tmp_path: Path) -> None:
    rows = _rows(
        tmp_path, step(0, 0, 50), op("aten::mm", 10, 5), op("aten::add", 20, 9, tid=ENGINE)
    )

    found = [(row["ledger"], row["tid"], row["op"], row["time_ns"]) for row in rows]
    assert sorted(found, key=str) == [
        ("host", 101, "aten::mm", 5_000),
        ("host", 101, None, 45_000),
        ("threads", 102, "aten::add", 9_000),
    ]


def test_without_steps_the_recording_is_one(tmp_path: Path) -> None:
    rows = _rows(tmp_path, op("aten::mm", 10, 5), op("aten::mm", 30, 20))

    found = [(row["step"], row["op"], row["calls"], row["time_ns"]) for row in rows]
    assert sorted(found, key=str) == [(None, "aten::mm", 2, 25_000), (None, None, 0, 15_000)]


def test_a_copy_without_launch_is_of_no_step(tmp_path: Path) -> None:
    rows = _rows(tmp_path, *STEP, copy(200, 5, 77, name="Memcpy HtoD"))

    of_none = [row for row in rows if row["ledger"] == "device" and row["step"] is None]
    assert sum(int(str(row["time_ns"])) for row in of_none) == 5_000


@pytest.mark.parametrize("flops", [None, 2 * 8 * 4 * 16])
def test_counts_that_are_unknown_are_null(tmp_path: Path, flops: int | None) -> None:
    shapes = {} if flops is None else {"dims": [[8, 4], [4, 16]], "types": ["float", "float"]}
    rows = _rows(tmp_path, op("aten::mm", 10, 5, **shapes))

    assert [row["flops"] for row in rows if row["op"]] == [flops]
