"""Median, quartiles and outliers of the times of steps, worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from pyprof2.analysis.time.step_times import (
    TimedStep,
    median_step,
    outlier_steps,
    starts_slowly,
    step_times,
    timed_steps,
)


def windows(*times: int, rank: int = 0) -> list[TimedStep]:
    """Return windows of these lengths, one after another; steps count from 1."""
    starts = [sum(times[:at]) for at in range(len(times))]
    return [TimedStep(rank, *each) for each in zip(starts, range(1, len(times) + 1), times)]  # noqa: B905


def test_median_and_quartiles_are_by_rank() -> None:
    found = step_times([*windows(10, 40, 20, 30), *windows(7, rank=1)])

    assert found == {0: (4, 17.5, 25, 32.5, 10), 1: (1, 7, 7, 7, 0)}


@pytest.mark.parametrize(
    ("times", "odd"),
    [
        # Median 100, distances 4 2 0 2 4 60: MAD 3, so 13.34 is too far.
        ((96, 98, 100, 102, 104, 160), [6]),
        ((986, 998, 1000, 1002, 1022), [5]),  # MAD 2: 8.9 is far, but 14 is no 2 %.
        ((1000, 1000, 1000, 980, 1021), [5]),  # 20 is 2 % exactly, not more.
        ((80, 90, 100, 110, 120), []),  # MAD 10: 44.5 is far.
        ((100, 100, 100, 30), [4]),  # Short ones, too.
        ((200, 100, 100, 100, 50), [1, 5]),  # Furthest first.
        ((100,), []),
        ((), []),
    ],
)
def test_outliers_are_far_in_deviations_and_in_share(
    times: tuple[int, ...], odd: list[int]
) -> None:
    assert [each.window.step for each in outlier_steps(windows(*times))] == odd


def test_the_bound_is_three_normal_deviations() -> None:
    """Median 1000 and MAD 10: 3 * 1.4826 * 10 = 44.478."""
    near, far = (windows(990, 990, 1000, 1000, 1010, 1010, 1000 + over) for over in (44, 45))

    assert step_times(near)[0].mad_ns == 10
    assert outlier_steps(near) == []
    assert outlier_steps(far) == [(far[6], 45)]


def test_outliers_are_judged_by_their_own_rank() -> None:
    both = [*windows(100, 100, 100, 100), *windows(300, 300, 300, 390, rank=3)]

    assert outlier_steps(both) == [(both[-1], 90)]


def test_the_median_step_is_the_one_nearest_to_the_median() -> None:
    both = [*windows(5, rank=1), *windows(10, 90, 28, 30)]

    # The median is 29: both 28 and 30 are as near, and 28 comes first.
    assert median_step(both, 0).step == 3


def test_windows_of_several_devices_count_once() -> None:
    steps = pd.DataFrame(
        {
            "rank": [0, 0, 0, 0, 0],
            "device": [0, 1, 0, 1, 0],
            "step": [1, 1, 2, 2, 1],
            "start_ns": [0, 0, 10, 10, 90],
            "dur_ns": [10, 10, 5, 5, 7],
        }
    )

    assert timed_steps(steps) == [(0, 0, 1, 10), (0, 10, 2, 5), (0, 90, 1, 7)]


def test_a_first_step_that_is_one_of_several_long_ones_is_like_them() -> None:
    assert starts_slowly([9, 1, 1, 1, 1])
    assert not starts_slowly([9, 1, 1, 1, 8, 1, 1, 1])
