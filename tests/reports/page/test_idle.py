"""Idle time on the page where it is too much: folded, with times by cause and step that stay."""

from __future__ import annotations

import pandas as pd
import pytest

from pyprof2.analysis.summaries.cube import OTHER_STEPS, SMALL
from pyprof2.reports.page.idle import AXES, folded

STEPS, LINES = 10, 40


def idle_rows() -> pd.DataFrame:
    """Return idle time of two causes, in ten steps and outside of them, on forty lines."""
    rows = [
        {
            "rank": 0, "device": 0, "step": step, "group": "host late", "cause": cause,
            "source": f"a.py:{line}", "time_ns": 100 * line + number, "count": 1,
        }
        for number, step in enumerate([*range(STEPS), None])
        for cause in ("host_op", "host_python")
        for line in range(LINES)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=[*AXES, "time_ns", "count"])


def times(rows: pd.DataFrame, *names: str) -> dict[object, int]:
    sums = rows.astype(object).groupby(list(names), dropna=False)["time_ns"].sum()
    return {None if key != key else key: int(sum_) for key, sum_ in sums.items()}  # noqa: PLR0124


def test_what_fits_stays_as_it_is() -> None:
    rows = idle_rows()

    assert folded(rows, {0: [3]}, 10_000)["time_ns"].tolist() == rows["time_ns"].tolist()


def test_steps_that_do_not_tell_are_one() -> None:
    rows = idle_rows()

    found = folded(rows, {0: [3]}, 300)

    assert len(found) == 3 * 2 * LINES
    by_step = times(rows, "step")
    rest = sum(time for step, time in by_step.items() if step not in {3, None})
    assert times(found, "step") == {3: by_step[3], None: by_step[None], OTHER_STEPS: rest}
    assert times(found, "source") == times(rows, "source")
    assert found["count"].sum() == rows["count"].sum()


@pytest.mark.parametrize("most", [50, 10, 1])
def test_the_least_lose_their_lines_and_keep_their_cause(most: int) -> None:
    rows = idle_rows()

    found = folded(rows, {0: [3]}, most)

    assert len(found) <= max(most, 3 * 2)
    assert times(found, "cause") == times(rows, "cause")
    small = found[found["source"] == SMALL]
    assert set(small["op"]) == {SMALL}
    named = found.loc[found["source"] != SMALL, "time_ns"]
    assert most < 10 or len(named) == most - 6
