"""Profiles of real recordings add up, along every axis."""

from __future__ import annotations

import io
import json
import zlib
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.summaries.profile_columns import AXES
from pyprof2.api import run_profile
from pyprof2.cli import demo
from pyprof2.reports.files import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def test_columns_add_up_to_the_total_along_every_axis(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)
    total = run_profile.sums_of(run.tables, ()).total()

    for axis in AXES:
        sums = run.profile(by=axis)
        assert sums["share_pct"].sum() == pytest.approx(100), axis
        for column in ("count", "time_ns", "flops", "bytes"):
            whole = 0 if pd.isna(total[column]) else total[column]
            assert sums[column].sum() == whole, (axis, column)


def test_kernels_and_copies_are_all_the_time_there_is(kineto_trace: Path) -> None:
    run = pyprof2.load(kineto_trace)

    assert run_profile.rows_of(run.tables)["dur_ns"].sum() == (
        run.summary["kernel_time_ns"] + run.summary["copy_time_ns"]
    )


def check_axes(
    trace: Path,
    tmp_path: Path,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    forms: Callable[[int], Sequence[str]],
) -> None:
    """Each file that `prof` writes has all the time; the table says so on its last rows.

    Args:
        trace: what is shown.
        tmp_path: where files are written.
        invoke: runs the command line.
        monkeypatch: lets the trace be loaded once.
        forms: the formats to write the axis of a number in.
    """
    run = pyprof2.load(trace)
    monkeypatch.setattr("pyprof2.api.run.load", lambda *_, **__: run)
    rows = run_profile.rows_of(run.tables)
    chosen = lambda _, columns: rows[[n for n in rows if n in columns]]  # noqa: E731
    monkeypatch.setattr(run_profile, "rows_of", chosen)
    for number, axis in enumerate(("kernel", *AXES)):
        for form in forms(number):
            path = tmp_path / f"{axis}.{form}"
            result = invoke("-q", "prof", trace, "--by", axis, "--format", form, "-o", path)
            assert (result.code, result.err) == (0, ""), (axis, form)
            if form in ("table", "markdown"):
                assert "total" in path.read_text(), (axis, form)
            else:
                times = read_column(path, "dur_ns" if axis == "kernel" else "time_ns")
                assert sum(times) == rows["dur_ns"].sum(), (axis, form)


def read_column(path: Path, name: str) -> list[int]:
    """Return a column of whole numbers of a file that `prof` wrote, without pyprof2."""
    if path.suffix == ".json":
        return [record[name] for record in json.loads(path.read_bytes())]
    if path.suffix == ".csv":
        return [int(time) for time in pd.read_csv(io.BytesIO(path.read_bytes()))[name]]
    return [int(time) for time in pd.read_parquet(path, columns=[name])[name]]


def test_every_axis_can_be_had(
    real_trace: Path,
    tmp_path: Path,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each trace in one format by turns, so that the traces together have each axis in each."""
    first = zlib.crc32(real_trace.name.encode())
    every = list(FORMATS)
    check_axes(
        real_trace, tmp_path, invoke, monkeypatch, lambda at: [every[(first + at) % len(every)]]
    )


@pytest.mark.parametrize("name", ["kineto/rn50_v100_w0.json.gz", "nsight/h100_2gpu_1s.sqlite"])
def test_every_axis_can_be_had_in_every_format(
    name: str,
    shared_trace: Callable[[str], Path],
    tmp_path: Path,
    invoke: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_axes(shared_trace(name), tmp_path, invoke, monkeypatch, lambda _: list(FORMATS))


def test_every_axis_can_be_had_in_every_format_without_a_gpu(
    tmp_path: Path, invoke: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = demo._DATA / demo._RECORDING
    check_axes(trace, tmp_path, invoke, monkeypatch, lambda _: list(FORMATS))


def test_steps_of_a_recording_without_a_gpu_have_a_time_and_none_on_a_gpu(
    invoke: Callable[..., Any],
) -> None:
    result = invoke("prof", demo._DATA / demo._RECORDING, "--by", "step")

    assert result.code == 0
    assert "a step takes " in result.out
    assert "on the GPU" not in result.out
