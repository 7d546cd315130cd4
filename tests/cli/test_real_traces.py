"""Profiles of real recordings add up, along every axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.profile import AXES, total_row

if TYPE_CHECKING:
    from pathlib import Path


def test_columns_add_up_to_the_total_along_every_axis(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)
    (total,) = total_row(run.rows()).to_dict("records")

    for axis in AXES:
        sums = run.profile(by=axis)
        assert sums["share_pct"].sum() == pytest.approx(100), axis
        for column in ("count", "time_ns", "flops", "bytes"):
            whole = 0 if pd.isna(total[column]) else total[column]
            assert sums[column].sum() == whole, (axis, column)


def test_kernels_and_copies_are_all_the_time_there_is(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)

    assert run.rows()["dur_ns"].sum() == (
        run.summary["kernel_time_ns"] + run.summary["copy_time_ns"]
    )
