"""Peaks of phases, counted by hand from a few events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.summaries.batch.recorded import Memory, memory_peaks
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa


def event(time: int, size: int, **fields: Any) -> Mapping[str, Any]:
    given = {"time_ns": time, "bytes": size, "device_type": "cpu", "phase": "forward"}
    return given | fields


EVENTS = [
    (5, 7, None),
    (11, 100, "forward"),
    (15, -30, "forward"),
    (21, 50, "backward"),
    (26, 3, "backward"),
    (35, -130, "optimizer"),
    (36, 10, "optimizer"),
]
"""Times, sizes, phases; live after each: 7, 107, 77, 127, 130, 0, 10."""


UNTOLD = canonical("memory_tags")


def events() -> pa.Table:
    return canonical("memory", *(event(time, size, phase=phase) for time, size, phase in EVENTS))


def test_each_phase_has_the_most_that_is_live_in_it() -> None:
    peaks = {"other": 7, "forward": 107, "backward": 130, "optimizer": 10}

    assert memory_peaks(events(), UNTOLD) == Memory(peaks, over_base=True, reserved_ratio=1.0)


def test_only_the_steps_that_count_do() -> None:
    found = memory_peaks(events(), UNTOLD, (20, 30))

    assert found is not None
    assert found.peaks == {"backward": 130}


def test_of_a_gpu_the_recorders_total_counts_with_what_was_there_before() -> None:
    gpu = {"device_type": "cuda", "device": 0}
    memory = canonical(
        "memory",
        event(11, 100, **gpu, allocated_bytes=1100, reserved_bytes=2000),
        event(12, 9000),
        event(13, 50, **gpu, allocated_bytes=1150, reserved_bytes=2300),
        event(14, 10, device_type="cuda", device=1, allocated_bytes=10, reserved_bytes=50),
    )

    found = memory_peaks(memory, UNTOLD)

    # Before the first of them 1000 were.
    assert found == Memory({"forward": 1150}, over_base=False, reserved_ratio=2.0, always=1000)


def test_without_totals_what_was_there_before_is_not_known() -> None:
    memory = canonical("memory", event(11, 100, device_type="cuda", device=0))

    found = memory_peaks(memory, UNTOLD)

    assert found == Memory({"forward": 100}, over_base=True, reserved_ratio=1.0)


def test_what_was_allocated_before_and_is_released_leaves_the_rest_as_it_is() -> None:
    sizes = [(1, 100), (1, -100), (2, -70), (1, 50), (2, 30), (2, -30), (2, -30)]
    memory = canonical(
        "memory", *(event(11 + at, size, address=a) for at, (a, size) in enumerate(sizes))
    )

    found = memory_peaks(memory, UNTOLD, (13, 17))

    # 70 and the last 30 are not from here: 0, 50, 80, 50, 50 are live from the third event on.
    assert found is not None
    assert found.peaks == {"forward": 80}


@pytest.mark.parametrize(
    ("told", "always"),
    [pytest.param(1007, 1000, id="fits"), pytest.param(1008, None, id="does not")],
)
def test_what_the_program_told_of_the_cpu_counts_unless_totals_contradict(
    told: int, always: int | None
) -> None:
    totals = [1007, 1107, 1077, 1127, 1130, 1000, 1010]
    memory = canonical(
        "memory",
        *(
            event(time, size, phase=phase, address=at, allocated_bytes=total)
            for at, ((time, size, phase), total) in enumerate(zip(EVENTS, totals, strict=True))
        ),
    )
    tag = {"rank": 0, "time_ns": 6, "moment": "begins", "device_type": "cpu", "bytes": told}

    found = memory_peaks(memory, canonical("memory_tags", tag))

    assert found is not None
    assert found.over_base == (always is None)
    if always is not None:
        peaks = {"other": 1007, "forward": 1107, "backward": 1130, "optimizer": 1010}
        assert (found.peaks, found.always) == (peaks, always)


@pytest.mark.parametrize("span", [None, (0, 10)])
def test_without_events_nothing_is_known(span: tuple[int, int] | None) -> None:
    assert memory_peaks(canonical("memory"), UNTOLD, span) is None
