"""Median, quartiles and outliers of the times of steps, worked out by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from pyprof2.analysis.time.step_times import (
    median_step,
    outlier_steps,
    step_times,
    step_windows_of,
)


def windows(*times: int, rank: int = 0) -> pd.DataFrame:
    """Return windows of these lengths, one after another; steps count from 1."""
    dur = pd.Series(times, dtype="int64")
    return pd.DataFrame(
        {
            "rank": rank,
            "start_ns": dur.cumsum() - dur,
            "step": range(1, len(times) + 1),
            "dur_ns": dur,
        }
    )


def test_median_and_quartiles_are_by_rank() -> None:
    both = pd.concat([windows(10, 40, 20, 30), windows(7, rank=1)], ignore_index=True)

    found = step_times(both)

    assert found.to_dict("index")[0] == {
        "count": 4, "mean_ns": 25, "q1_ns": 17.5, "median_ns": 25, "q3_ns": 32.5, "mad_ns": 10,
    }  # fmt: skip
    assert found["median_ns"].tolist() == [25, 7]
    assert found["mad_ns"].tolist() == [10, 0]


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
    assert outlier_steps(windows(*times))["step"].tolist() == odd


def test_the_bound_is_three_normal_deviations() -> None:
    """Median 1000 and MAD 10: 3 * 1.4826 * 10 = 44.478."""
    near, far = (windows(990, 990, 1000, 1000, 1010, 1010, 1000 + over) for over in (44, 45))

    assert step_times(near)["mad_ns"].tolist() == [10]
    assert outlier_steps(near).empty
    assert outlier_steps(far)[["step", "over_ns"]].to_numpy().tolist() == [[7, 45]]


def test_outliers_are_judged_by_their_own_rank() -> None:
    both = pd.concat(
        [windows(100, 100, 100, 100), windows(300, 300, 300, 390, rank=3)], ignore_index=True
    )

    found = outlier_steps(both)

    assert found[["rank", "step", "over_ns"]].to_numpy().tolist() == [[3, 4, 90]]


def test_the_median_step_is_the_one_nearest_to_the_median() -> None:
    both = pd.concat([windows(5, rank=1), windows(10, 90, 28, 30)], ignore_index=True)

    # The median is 29: both 28 and 30 are as near, and 28 comes first.
    assert median_step(both, 0)["step"] == 3


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

    found = step_windows_of(steps)

    assert found[["step", "start_ns", "dur_ns"]].to_numpy().tolist() == [
        [1, 0, 10], [2, 10, 5], [1, 90, 7],
    ]  # fmt: skip
