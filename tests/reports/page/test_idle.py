"""Idle time on the page where it is too much: folded, with times by cause and step that stay."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from pyprof2.analysis.summaries.cube import OTHER_STEPS, SMALL
from pyprof2.analysis.summaries.idle_profile import added_up
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


@pytest.mark.parametrize("rows_of_part", [1, 7, 300])
def test_rows_that_come_in_parts_are_added_up_as_those_that_do_not(rows_of_part: int) -> None:
    rows = idle_rows().assign(step=lambda each: each["step"].astype("Int64"))
    axes = ["source", "step", "cause"][: 1 + rows_of_part % 3]
    whole = pa.Table.from_pandas(rows[["source", "step", "cause", "count", "time_ns"]])
    for at, name in ((0, "source"), (2, "cause")):
        whole = whole.set_column(at, name, whole[name].dictionary_encode())
    parts = (whole.slice(at, rows_of_part) for at in range(0, len(rows), rows_of_part))

    found = added_up(parts, axes)

    by = rows.groupby(axes, sort=False, dropna=False)
    assert found["count"].to_pylist() == by["count"].sum().tolist()
    assert found["time_ns"].to_pylist() == by["time_ns"].sum().tolist()
    assert found["max_ns"].to_pylist() == by["time_ns"].max().tolist()
    assert found[axes[0]].to_pylist() == by[axes[0]].first().tolist()


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
