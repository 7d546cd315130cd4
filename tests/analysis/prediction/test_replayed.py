"""A step with other durations: what its host, its device and its copies make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyprof2.api.prediction import PredictedStep
from tests.kineto_events import copy, kernel, launch, load_events, step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyprof2.analysis.prediction.replayed import StepGraph
    from tests.kineto_events import Event

DEVICE = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
LAUNCHES, EVERY, CALL, TOOK = 10, 100, 10, 200


def _steps(count: int) -> Iterator[Event]:
    """Yield steps whose host launches a kernel each 100 µs; each takes 200 µs on the device."""
    free = 0
    for number in range(count):
        begin = number * LAUNCHES * EVERY
        yield step(number, begin, LAUNCHES * EVERY)
        for at in range(LAUNCHES):
            called = begin + at * EVERY
            yield launch(called, 1 + number * LAUNCHES + at, dur=CALL)
            free = max(free, called + CALL + 2)
            yield kernel(free, TOOK, 1 + number * LAUNCHES + at)
            free += TOOK


@pytest.fixture
def ahead(tmp_path: Path) -> StepGraph:
    prediction = PredictedStep(load_events(tmp_path, *_steps(3), deviceProperties=DEVICE).tables, 2)
    return prediction.graph


def lasts(graph: StepGraph, took: int, factor: float, gap: float = 1.0) -> float:
    times = np.full(LAUNCHES, float(took * 1000))
    return graph.lasts(graph.ends(times, factor, gap), gap) / 1000


def test_a_step_as_recorded_is_as_recorded(ahead: StepGraph) -> None:
    assert ahead.recorded_ns == LAUNCHES * TOOK * 1000
    assert lasts(ahead, TOOK, 1.0) == LAUNCHES * TOOK


def test_a_slower_device_takes_as_much_longer(ahead: StepGraph) -> None:
    assert lasts(ahead, 3 * TOOK, 3.0) == 3 * LAUNCHES * TOOK


def test_a_host_that_ran_ahead_is_no_faster_for_it(ahead: StepGraph) -> None:
    # The device would take 100 µs for the step, and all was launched before it began.
    assert lasts(ahead, TOOK // 20, 0.05) == pytest.approx(LAUNCHES * EVERY, rel=0.02)
    assert lasts(ahead, TOOK // 20, 0.05, 2.0) == pytest.approx(2 * LAUNCHES * EVERY, rel=0.02)


def test_a_copy_that_waits_for_the_device_waits_less_for_a_faster_one(tmp_path: Path) -> None:
    events = [
        step(1, 0, 1200),
        launch(0, 1, dur=10),
        kernel(20, 1000, 1),
        launch(50, 2, name="cudaMemcpyAsync", dur=980),
        copy(1021, 5, 2, name="Memcpy DtoH (Device -> Pageable)"),
        launch(1040, 3, dur=10),
        kernel(1060, 100, 3),
    ]
    graph = PredictedStep(load_events(tmp_path, *events, deviceProperties=DEVICE).tables).graph
    recorded = graph.lasts(graph.ends(np.array([1000e3, 5e3, 100e3]), 1.0))
    faster = graph.lasts(graph.ends(np.array([100e3, 5e3, 10e3]), 0.1))

    assert recorded == graph.recorded_ns
    # The call returns when its copy is done: 900 µs earlier, as the kernel before it.
    assert recorded - faster == 900e3 + 90e3
