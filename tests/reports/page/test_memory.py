"""Memory on the page: a thinned curve, and what was live at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pyprof2
import pyprof2.api.run
from pyprof2.api import run_memory
from pyprof2.reports.page.memory import MOST_POINTS, memory_of, shown_events
from pyprof2.reports.page.values import zeros
from tests.kineto_events import load_events, op
from tests.kineto_events import memory as event
from tests.reports.page.reader import rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_thinned_curve_keeps_ends_and_extremes() -> None:
    generator = np.random.default_rng(7)
    values = generator.integers(1, 1000, 30_000)
    values[12_345], values[20_001] = 5000, 0
    time = 10 * np.arange(30_000)

    kept = shown_events(time, values).tolist()

    assert len(kept) <= MOST_POINTS
    assert {0, 12_345, 20_001, 29_999} <= set(kept)
    assert kept == sorted(set(kept))


def test_of_equal_extremes_the_first_least_and_the_last_greatest_are_kept() -> None:
    time = np.arange(50 * MOST_POINTS)
    values = np.random.default_rng(3).integers(0, 4, len(time))
    size = 4 * 50

    kept = shown_events(time, values).tolist()

    for begin in range(0, len(time), size):
        own = values[begin : begin + size].tolist()
        most = size - 1 - own[::-1].index(max(own))
        wanted = {0, size - 1, own.index(min(own)), most}
        assert {each - begin for each in kept if begin <= each < begin + size} == wanted


def test_a_short_curve_is_whole() -> None:
    assert shown_events(np.array([1, 5, 5]), np.array([3, 4, 2])).tolist() == [0, 1, 2]


def test_what_was_there_before_the_recording_is_live_too(tmp_path: Path) -> None:
    def allocation(at: int, address: int, size: int, total: int) -> Any:
        return event(at, **{"Addr": address, "Bytes": size, "Device Type": 1, "Device Id": 0,
                            "Total Allocated": total, "Total Reserved": 1000})  # fmt: skip

    run = load_events(
        tmp_path, op("aten::mm", 10, 20), allocation(11, 1, 70, 170), allocation(13, 2, 50, 220),
        allocation(40, 1, -70, 150),
    )  # fmt: skip

    (found,) = memory_of(run, {0: 0}) or []

    assert (found["base"], found["allocated"], found["reserved"]) == (
        100, [170, 220, 150], [1000] * 3,
    )  # fmt: skip
    assert (found["peak"]["t_ns"], found["peak"]["allocated"]) == (13_000, 220)
    live = [(row["op"], row["bytes"], row["count"]) for row in rows_of(found["peak"]["live"])]
    assert {row["layer"] for row in rows_of(found["peak"]["live"])} == {None}
    # One block of the op is released later, the other is not: they are of two categories.
    assert live == [
        ("(before the recording)", 100, None), ("aten::mm", 70, 1), ("aten::mm", 50, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["part_a100_b16", "part_a100_b64"])
def test_memory_is_that_of_pyprof2_memory(name: str, shared_trace: Callable[[str], Path]) -> None:
    run = pyprof2.api.run.load(shared_trace(f"more/kineto/{name}.json.gz"))
    wanted = run_memory.memory_by_device(run.tables).devices.to_dict("records")

    found = memory_of(run, zeros(run)) or []

    for device, row in zip(found, wanted, strict=True):
        peak = device["peak"]["allocated"]
        assert peak == row["peak_over_base_bytes"] + (device["base"] or 0)
        assert peak == max(device["allocated"])
        assert sum(each["bytes"] for each in rows_of(device["peak"]["live"])) == peak
