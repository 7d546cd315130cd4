"""The parts of the window of a step; they add up to it.

At every instant the first that holds decides: a kernel runs on matrix units; another kernel
computes; communication runs, alone or beside a copy; a copy runs; nothing does, for a cause.
Without a device a window is time in ops, and the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import time_within
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.analysis.time.steps import (
    COMM,
    COMPUTE,
    COPY,
    DeviceWork,
    WindowSlices,
    device_columns,
)
from pyprof2.columns import combine_keys, sum_at
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

INPUT: Final = {
    "kernels": ("device", "start_ns", "dur_ns", "category", "tensor_core"),
    "copies": ("device", "start_ns", "dur_ns"),
    "idle": ("device", "start_ns", "time_ns", "cause"),
}
"""The columns of the tables that parts are made of."""

BUSY: Final = {
    "compute_matrix": "computing on matrix units",
    "compute_other": "computing without matrix units",
    "comm_exposed": "exposed communication",
    "comm_copy": "communication beside a copy",
    "copies": "copying",
}
"""The parts in which a device works, and what they are called."""

IDLE: Final = "idle:"
"""How the names of the other parts begin; a cause of idle time follows."""

HOST_INPUT: Final = ("start_ns", "dur_ns")
"""The columns of the table `ops` that `host_parts` reads."""

HOST_PARTS: Final = {
    "host_ops": "in ops of PyTorch",
    "host_rest": "outside of ops: Python, loading of data, waiting",
}
"""The parts, which add up to a window."""

_COLUMNS: Final = ("device", "window", "part", "time_ns")


def step_parts(
    kernels: pa.Table, copies: pa.Table, idle: pa.Table, windows: StepWindows
) -> pd.DataFrame:
    """Return the parts of the windows of a rank's steps, for each device.

    Args:
        kernels: columns `INPUT` of the canonical table.
        copies: the same.
        idle: the same; its rows are cut at the windows.
        windows: of the rank's steps.

    Returns:
        `device` (`NEVER`: without a number), `window` (its place in `windows`), `part` (one of
        `BUSY`, or `IDLE` and a cause), `time_ns`: more than 0.
    """
    if not len(windows.step):
        return pd.DataFrame(columns=list(_COLUMNS))
    parts = [*_busy(kernels, copies, windows), _idle(idle, windows)]
    whole = pd.concat(parts, ignore_index=True)
    return whole[whole["time_ns"] > 0].reset_index(drop=True)


def recorded_parts(kernels: pa.Table, copies: pa.Table, idle: pa.Table) -> pd.DataFrame:
    """Return the parts of all that was recorded of a rank, for each device.

    They add up to its window: idle time ends with the recording, and so does work.

    Args:
        kernels: columns `INPUT` of the canonical table.
        copies: the same.
        idle: the same.

    Returns:
        `device`, `part`, `time_ns`, as in `step_parts`.
    """
    rows = ((kernels, "dur_ns"), (copies, "dur_ns"), (idle, "time_ns"))
    times = [(int_column(t, "start_ns", 0), int_column(t, length, 0)) for t, length in rows]
    start, length = (np.concatenate(column) for column in zip(*times, strict=True))
    if not len(start):
        return pd.DataFrame(columns=["device", "part", "time_ns"])
    first, last = int(start.min()), int((start + np.maximum(0, length)).max())
    # Between two recordings there is neither work nor idle time: one window holds them all.
    whole = StepWindows(*(np.array([each], np.int64) for each in (0, first, last)))
    return step_parts(kernels, copies, idle, whole).drop(columns="window")


def _busy(kernels: pa.Table, copies: pa.Table, windows: StepWindows) -> Iterator[pd.DataFrame]:
    device, start, end, kind = device_columns(kernels, copies)
    on_matrix = np.r_[has_text(kernels, "tensor_core", ("yes",)), np.zeros(copies.num_rows, bool)]
    unknown = np.full(len(start), np.nan)
    for each in np.unique(device).tolist():
        own = device == each
        work = DeviceWork(*(column[own] for column in (start, end, kind, unknown, unknown)))
        slices = WindowSlices(work, windows.start, windows.end)
        compute, comm, copy = (slices.runs(work.kind == k) for k in (COMPUTE, COMM, COPY))
        matrix = slices.runs(on_matrix[own] & (work.kind == COMPUTE))
        states = (
            matrix, compute & ~matrix, comm & ~compute & ~copy, comm & ~compute & copy,
            copy & ~compute & ~comm,
        )  # fmt: skip
        for name, state in zip(BUSY, states, strict=True):
            yield _frame(each, np.arange(len(windows.step)), name, slices.time(state))


def _idle(idle: pa.Table, windows: StepWindows) -> pd.DataFrame:
    """Return the idle time of each window by cause."""
    device, start, time = (
        int_column(idle, name, missing)
        for name, missing in (("device", NEVER), ("start_ns", 0), ("time_ns", 0))
    )
    code, causes = code_column(idle, "cause")
    window = np.searchsorted(windows.start, start, "right") - 1
    inside = (window >= 0) & (start < np.r_[windows.end, NEVER][window])
    rows = np.flatnonzero(inside & (code >= 0))
    # Causes are grouped by number, not by name: with a million kernels they are millions.
    by_name = np.argsort(np.argsort(np.array(causes, str), kind="stable"), kind="stable")
    cause = by_name[code[rows]]
    key = combine_keys(device[rows], window[rows], cause)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    sums = sum_at(group, time[rows], len(first))
    names = np.array([f"{IDLE}{name}" for name in sorted(causes)], object)[cause[first]]
    return _frame(device[rows][first], window[rows][first], names, sums)


def _frame(
    device: Int | int, window: Int, part: np.ndarray[tuple[int], np.dtype[np.object_]] | str,
    time: Int,
) -> pd.DataFrame:  # fmt: skip
    columns = zip(_COLUMNS, (device, window, part, time), strict=True)
    return pd.DataFrame(dict(columns), index=range(len(window)))


def host_parts(ops: pa.Table, windows: StepWindows) -> pd.DataFrame:
    """Return the parts of each window: the time in which any thread was in an op, and the rest.

    Args:
        ops: columns `INPUT` of the canonical table.
        windows: of a rank; they do not overlap.

    Returns:
        `window` (its place in `windows`), `part` (one of `HOST_PARTS`), `time_ns`: more than 0.
    """
    start = int_column(ops, "start_ns", 0)
    end = start + int_column(ops, "dur_ns", 0)
    in_ops = time_within(start, end, windows.start, windows.end)
    times = zip(HOST_PARTS, (in_ops, windows.end - windows.start - in_ops), strict=True)
    rows = [
        pd.DataFrame({"window": range(len(time)), "part": part, "time_ns": time})
        for part, time in times
    ]
    found = pd.concat(rows, ignore_index=True)
    return found[found["time_ns"] > 0].reset_index(drop=True)
