"""Steps on the page: their windows, and the parts that each is made of.

A recording without a device has parts of its steps and lanes of threads.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.chunked import frame_of_parts
from pyprof2.analysis.time.step_parts import BUSY, HOST_INPUT, HOST_PARTS, IDLE, host_parts
from pyprof2.analysis.time.step_times import median_step, outlier_steps, timed_steps
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.api import run_time
from pyprof2.recording import int_column
from pyprof2.reports.page.values import from_zero, table
from pyprof2.reports.steps import outlier_notes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pyprof2.api.run import Run


MOST_STEPS: Final = 40_000
MOST_PARTS: Final = 60_000
_ODD: Final = 5
"""How many unusual steps of a rank stand by themselves."""


def steps_of(
    run: Run, zero: dict[int, int], apart: Mapping[int, Collection[int]]
) -> dict[str, Any]:
    """Return a row for each device and window of a step; see `kept_steps`."""
    steps = kept_steps(run.steps, apart)
    use = run_time.utilization(run.tables)[["rank", "step", "mfu_pct"]].dropna(subset=["step"])
    mfu = steps[["rank", "step"]].merge(
        use.astype({"rank": "int64", "step": "int64"}), on=["rank", "step"], how="left"
    )
    odd = {each.window[:2] for each in outlier_steps(timed_steps(steps))}
    slow = {each[:2] for each in run.tables.slow_starts}
    windows = list(zip(steps["rank"].tolist(), steps["start_ns"].tolist(), strict=True))
    notes = outlier_notes(run)
    frame = pd.DataFrame(
        {
            "rank": steps["rank"],
            "device": steps["device"],
            "step": steps["step"],
            "start_ns": from_zero(steps["rank"], steps["start_ns"], zero),
            "window_ns": steps["dur_ns"],
            "busy_ns": steps["dur_ns"] - steps["idle_ns"],
            "utilization": steps["gpu_utilization_pct"],
            "mfu": mfu["mfu_pct"],
            "outlier": [window in odd for window in windows],
            "left_out": [window in slow for window in windows],
            "note": pd.Series([notes.get(w) for w in windows], dtype=object),
        }
    )
    return table(frame)


def kept_steps(steps: pd.DataFrame, apart: Mapping[int, Collection[int]]) -> pd.DataFrame:
    """Return all steps, of more than `MOST_STEPS` the first of each device and those of `apart`."""
    if len(steps) > MOST_STEPS:
        by = steps.groupby(["rank", "device"], dropna=False, observed=True)
        pairs = zip(steps["rank"].tolist(), steps["step"].tolist(), strict=True)
        is_apart = np.array([step in apart[rank] for rank, step in pairs])
        steps = steps[(by.cumcount() < MOST_STEPS // by.ngroups) | is_apart]
    return steps.reset_index(drop=True)


def steps_notes(run: Run, apart: Mapping[int, Collection[int]]) -> Iterator[str]:
    """Say which steps are left out."""
    whole, kept = len(run.steps), len(kept_steps(run.steps, apart))
    if kept < whole:
        yield f"of {whole} windows of steps {kept} are listed: the first of each device"
    if len(step_parts_of(run)) > MOST_PARTS:
        yield "steps have their parts where they stand by themselves in the tables"


def parts_of(
    run: Run, zero: dict[int, int], apart: Mapping[int, Collection[int]]
) -> dict[str, Any]:
    """Return the parts of each window of a step, for each device: they add up to it.

    Where they are more than `MOST_PARTS`, only those of the steps of `apart`, by rank.
    """
    parts = step_parts_of(run)
    if len(parts) > MOST_PARTS:
        pairs = zip(parts["rank"].tolist(), parts["step"].tolist(), strict=True)
        parts = parts[[step in apart[rank] for rank, step in pairs]]
    frame = parts.assign(
        start_ns=from_zero(parts["rank"], parts["start_ns"], zero),
        label=[part_label(part) for part in parts["part"]],
    )
    names = ["rank", "device", "step", "start_ns", "part", "label", "time_ns"]
    return table(frame[names])


def whole_of(run: Run) -> dict[str, Any]:
    """Return the parts of all that was recorded, for each device: they add up to it."""
    parts = whole_parts_of(run)
    frame = parts.assign(label=[part_label(part) for part in parts["part"]])
    return table(frame[["rank", "device", "part", "label", "time_ns"]])


def whole_parts_of(run: Run) -> pd.DataFrame:
    """Return the parts of all that was recorded, of devices, or of the host without any."""
    host = run.summary["no_gpu"]
    return parts_of_host(run, whole=True) if host else run_time.recorded_parts(run.tables)


def step_parts_of(run: Run) -> pd.DataFrame:
    """Return the parts of the windows of steps: of devices, or of the host where there is none."""
    host = run.summary["no_gpu"]
    return parts_of_host(run, whole=False) if host else run_time.step_parts(run.tables)


def part_label(part: str) -> str:
    """Return a part of a step in words."""
    cause = part.removeprefix(IDLE)
    return (BUSY | HOST_PARTS)[part] if cause == part else f"idle: {cause.replace('_', ' ')}"


def steps_apart(run: Run) -> dict[int, list[int]]:
    """Return the first, the median and the slowest step of each rank, and unusual ones."""
    windows = timed_steps(run.steps)
    odd = [each.window for each in outlier_steps(windows)]
    found = {}
    for rank in sorted({window.rank for window in windows}):
        own = [window for window in windows if window.rank == rank]
        unusual = [window for window in odd if window.rank == rank][:_ODD]
        slowest = max(own, key=attrgetter("dur_ns"))
        apart = (own[0], median_step(own, rank), slowest, *unusual)
        found[rank] = sorted({window.step for window in apart})
    return found


_SHOWN: Final = ("rank", "start_ns", "dur_ns", "tid", "op", "layer", "category")
_LANE: Final = (*_SHOWN, "parent_op_id")


def parts_of_host(run: Run, *, whole: bool) -> pd.DataFrame:
    """Return the parts of the windows of steps, or of all that was recorded.

    Args:
        run: without a device.
        whole: whether of all that was recorded.

    Returns:
        `rank, device` (null), `step, start_ns, part, time_ns`, as `run_time.step_parts`.
    """
    found = []
    for rank in run.tables.ranks:
        ops = rank.read("ops", HOST_INPUT)
        windows = _whole(ops) if whole else StepWindows.of(rank.read("steps"))
        parts = host_parts(ops, windows)
        at = parts["window"].to_numpy("int64")
        found.append(
            parts[["part", "time_ns"]].assign(
                rank=rank.rank, step=windows.step[at], start_ns=windows.start[at]
            )
        )
    rows = pd.concat(found, ignore_index=True)
    rows["device"] = pd.array([None] * len(rows), dtype="Int64")
    return rows[["rank", "device", "step", "start_ns", "part", "time_ns"]]


def _whole(ops: Any) -> StepWindows:
    """Return one window from the first op to the end of the last; none where there is no op."""
    start = int_column(ops, "start_ns", 0)
    end = start + int_column(ops, "dur_ns", 0)
    times = (start.min(), end.max()) if len(start) else ()
    return StepWindows(
        *(np.array(each, np.int64) for each in ([0][: len(times)], times[:1], times[1:]))
    )


def lanes(run: Run) -> pd.DataFrame:
    """Return the ops that are in no other, with the columns that time lines are made of."""
    parts = (part for rank in run.tables.ranks for part in rank.in_parts("ops", _LANE))
    found = frame_of_parts((part.filter(part["parent_op_id"].is_null()) for part in parts), _SHOWN)
    return found.assign(name=found["op"]).rename(columns={"tid": "track"})


def recorded_windows(run: Run) -> Iterator[dict[str, Any]]:
    """Give the window of each rank from its first op to the end of the last."""
    for rank in run.tables.ranks:
        window = _whole(rank.read("ops", HOST_INPUT))
        if len(window.step):
            yield {
                "rank": rank.rank, "device": None, "step": None, "why": "recording",
                "start_ns": int(window.start[0]), "end_ns": int(window.end[0]),
            }  # fmt: skip
