"""The parts of the window of a step; they add up to it.

At every instant the first that holds decides: a kernel runs on matrix units; another kernel
computes; communication runs, alone or beside a copy; a copy runs; nothing does, for a cause.
Without a device a window is time in ops, and the rest.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.chunked import ENDLESS, chunks_of, in_time_order
from pyprof2.analysis.intervals import time_within
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.steps import (
    COMM,
    COMPUTE,
    COPY,
    DeviceWork,
    TimesInWindows,
    device_columns,
)
from pyprof2.columns import combine_keys, groups_of, sum_at
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.time.step_windows import StepWindows
    from pyprof2.analysis.time.steps import WindowSlices

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

_MATRIX: Final = 3
"""The kind of work that computes on matrix units."""


def step_parts(
    tables: Mapping[str, ChunkedTable], windows: StepWindows
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the parts of the windows of a rank's steps, and those of all that was recorded.

    These add up to what was recorded: idle time ends with it, and so does work.

    Args:
        tables: columns `INPUT` of the canonical tables; rows of `idle` are cut at the windows.
        windows: of the rank's steps.

    Returns:
        For each device `device` (`NEVER`: without a number), `window` (its place in `windows`),
        `part` (one of `BUSY`, or `IDLE` and a cause), `time_ns`: more than 0; and the same
        without `window`.
    """
    # Every other window is a step: what is recorded before, between and after them counts too.
    edges = np.stack((windows.start, windows.end), axis=1).ravel()
    start, end = np.r_[-ENDLESS, edges], np.r_[edges, ENDLESS - 1]
    times = _busy(tables, start, end) | _idle(tables["idle"], start)
    whole = {key: time.sum(keepdims=True) for key, time in times.items()}
    of_steps = {key: time[1::2] for key, time in times.items()}
    return _frame(of_steps, len(windows.step)), _frame(whole, 1).drop(columns="window")


class _Busy(TimesInWindows):
    """Adds up the parts in which a device works."""

    def _add(self, slices: WindowSlices, work: DeviceWork) -> None:
        kinds = (COMPUTE, COMM, COPY, _MATRIX)
        other, comm, copy, matrix = (slices.runs(work.kind == k, f"kind {k}") for k in kinds)
        compute = other | matrix
        states = (
            matrix, compute & ~matrix, comm & ~compute & ~copy, comm & ~compute & copy,
            copy & ~compute & ~comm,
        )  # fmt: skip
        for time, state in zip(self.times.values(), states, strict=True):
            np.add(time, slices.time(state), out=time)


def _busy(tables: Mapping[str, ChunkedTable], start: Int, end: Int) -> dict[tuple[int, str], Int]:
    """Return by device and part how long the device worked in each window."""
    found: dict[int, _Busy] = {}
    names = ("kernels", "copies")
    for (kernels, copies), until in in_time_order(
        [tables[name] for name in names], [INPUT[name] for name in names]
    ):
        device, begin, stop, kind = device_columns(kernels, copies)
        on_matrix = has_text(kernels, "tensor_core", ("yes",))
        kind[: len(on_matrix)][on_matrix & (kind[: len(on_matrix)] == COMPUTE)] = _MATRIX
        unknown = np.full(len(kind), np.nan)
        for each in np.unique(device).tolist():
            own = device == each
            work = DeviceWork(*(column[own] for column in (begin, stop, kind, unknown, unknown)))
            found.setdefault(each, _Busy(start, end, BUSY)).add(work, until)
    for of_device in found.values():
        of_device.add(None)
    return {
        (device, part): time for device, own in found.items() for part, time in own.times.items()
    }


def _idle(idle: ChunkedTable, start: Int) -> dict[tuple[int, str], Int]:
    """Return by device and part how long the device was idle in each window, by its beginning."""
    found: defaultdict[tuple[int, str], Int] = defaultdict(lambda: np.zeros(len(start), np.int64))
    for part in chunks_of(idle, INPUT["idle"]):
        rows = part.filter(part["cause"].is_valid())
        device, begin, time = (
            int_column(rows, name, missing)
            for name, missing in (("device", NEVER), ("start_ns", 0), ("time_ns", 0))
        )
        code, causes = code_column(rows, "cause")
        window = np.searchsorted(start, begin, "right") - 1
        first, group = groups_of(combine_keys(device, window, code))
        keys = zip(device[first].tolist(), code[first].tolist(), window[first], strict=True)
        for (each, cause, at), sums in zip(keys, sum_at(group, time, len(first)), strict=True):
            found[each, f"{IDLE}{causes[cause]}"][at] += sums
    return found


def _frame(times: Mapping[tuple[int, str], Int], count: int) -> pd.DataFrame:
    """Return a row for each time in one of so many windows: work by part, idle time by window."""
    if not count or not times:
        return pd.DataFrame(columns=["device", "window", "part", "time_ns"])  # of no type
    names = [*BUSY, *sorted({part for _, part in times}.difference(BUSY))]
    keys = [(device, names.index(part)) for device, part in times]
    time = np.array([*times.values()], np.int64).reshape(len(keys), count)
    at, window = np.nonzero(time > 0)
    device, part = np.array(keys, np.int64).reshape(-1, 2)[at].T
    idle = part >= len(BUSY)
    order = np.lexsort((np.where(idle, part, window), np.where(idle, window, part), device, idle))
    columns = {"device": device, "window": window, "part": np.array(names, object)[part]}
    frame = pd.DataFrame(columns | {"time_ns": time[at, window]})
    return frame.iloc[order].reset_index(drop=True)


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
