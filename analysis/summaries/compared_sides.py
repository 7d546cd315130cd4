"""The steps of a run as one side of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.axes import OWNED, owners_in_words
from pyprof2.analysis.intervals import time_within
from pyprof2.analysis.summaries.compare import Side, compare_sides
from pyprof2.analysis.summaries.compared_calls import NEEDED, cut_at_windows
from pyprof2.analysis.time.recordings import device_windows, recordings
from pyprof2.analysis.time.step_windows import OF_WINDOWS, StepWindows, step_windows
from pyprof2.columns import combine_keys, groups_of, narrow, values_of
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction


RANGES: Final = ("rank", "start_ns", "dur_ns", "name", "kind")
STEPS: Final = ("rank", *OF_WINDOWS)
IDLE: Final = ("step", "cause")
"""The columns that idle time is summed along."""
TRACE: Final = ("rank", "start_ns", "end_ns")
WINDOW: Final = ["rank", "device", "step", "start_ns", "end_ns"]
OUTSIDE_OPS: Final = "outside_ops"
"""The only cause in a recording of the CPU alone; less than 0 where threads work at once."""
_NO_DEVICE: Final = -1


Chosen: TypeAlias = "tuple[int, int] | None"
"""First and last step to compare; None: all, but the first of each rank where there are more."""


def activity_columns(names: Sequence[str], by: Sequence[str]) -> list[str]:
    """Return which of a table's columns are needed: of `kernels` and `copies`."""
    wanted = {*NEEDED, *by}
    wanted |= {f"shared_{name}" for name in wanted & {*OWNED}}
    return [name for name in names if name in wanted]


def recorded_windows(rows: pd.DataFrame, trace: pa.Table) -> pd.DataFrame:
    """Return what was recorded of each device: `rank`, `device`, `start_ns`, `end_ns`.

    Args:
        rows: of `activities`.
        trace: columns `TRACE`.
    """
    names = ("rank", "device", "start_ns", "dur_ns")
    work = pa.table({name: rows[name].to_numpy(np.int64) for name in names})
    found = [
        (rank, *window[:3])
        for rank, own in recordings({"work": work, "trace": trace})
        for window in device_windows(own["work"], own["work"].slice(0, 0), own["trace"])
    ]
    return pd.DataFrame(found, columns=["rank", "device", "start_ns", "end_ns"])


def device_side(
    rows: pd.DataFrame,
    tables: Mapping[str, pa.Table],
    idle: pd.DataFrame,
    chosen: Chosen,
    by: Sequence[str] = (),
) -> Side:
    """Return the chosen steps of a recording with GPU work, or all of one without steps.

    Args:
        rows: of `activities`.
        tables: `steps` and `trace` with the columns `STEPS` and `TRACE`.
        idle: sums of the table `idle`: `step`, `cause`, `time_ns`.
        chosen: which steps.
        by: what else calls are grouped by.
    """
    of_device = combine_keys(*(rows[name].to_numpy(np.int64) for name in ("rank", "device")))
    devices = rows[["rank", "device"]].iloc[groups_of(of_device)[0]].astype("int64")
    found = {
        rank: StepWindows.of(tables["steps"].filter(pc.equal(tables["steps"]["rank"], rank)))
        for rank in devices["rank"].unique().tolist()
    }
    steps = _steps(found, devices, chosen)
    if steps.empty and chosen is None:
        steps = recorded_windows(rows, tables["trace"]).assign(step=0)[WINDOW].astype("int64")
        idle = idle.assign(step=0)
    slices = cut_at_windows(rows, steps)
    del rows
    # How long each device was busy in each window.
    keys = [steps[name].to_numpy(np.int64) for name in ("rank", "device")]
    own = combine_keys(*(np.r_[slices[n].to_numpy(np.int64), key] for n, key in zip(
        ("rank", "device"), keys, strict=True)))  # fmt: skip
    start, busy = slices["start_ns"].to_numpy(np.int64), np.zeros(len(steps), np.int64)
    end = start + slices["time_ns"].to_numpy(np.int64)
    begin, finish = (steps[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    of_slice, of_step = own[: len(slices)], own[len(slices) :]
    for each in values_of(of_step).tolist():
        at, here = of_slice == each, of_step == each
        busy[here] = time_within(start[at], end[at], begin[here], finish[here])
    return Side.of(slices, steps.assign(busy_ns=busy), idle.dropna(subset="step"), by)


def activities(tables: Iterable[pa.Table]) -> pd.DataFrame:
    """Return kernels and copies, with `activity_columns`; -1 stands for no device, op or call."""
    both = pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
    columns: dict[str, Any] = {}
    for field in both.schema:
        if pa.types.is_dictionary(field.type):
            code, texts = code_column(both, field.name)
            words = pd.Index(texts, dtype=object)
            columns[field.name] = pd.Categorical.from_codes(narrow(code), words)
        else:
            columns[field.name] = narrow(int_column(both, field.name, -1))
        both = both.drop_columns(field.name)
    return _in_words(pd.DataFrame(columns, copy=False))


def _in_words(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in which kernels that have several ops, layers or lines name all of them."""
    return rows.assign(**{n: owners_in_words(rows, n) for n in OWNED if f"shared_{n}" in rows})


def _steps(found: Mapping[int, StepWindows], devices: pd.DataFrame, chosen: Chosen) -> pd.DataFrame:
    """Return the windows of the chosen steps, for each device of each rank."""
    parts = []
    for rank in sorted(found):
        own = devices[devices["rank"] == rank]
        step, start, end = found[rank]
        frame = pd.DataFrame({"rank": rank, "step": step, "start_ns": start, "end_ns": end})
        frame = _choose(frame, chosen)
        parts.append(frame.merge(own[["device"]].drop_duplicates(), how="cross"))
    return pd.concat(parts, ignore_index=True)[WINDOW] if parts else pd.DataFrame(columns=WINDOW)


def _choose(windows: pd.DataFrame, chosen: Chosen) -> pd.DataFrame:
    if chosen is not None:
        return windows[windows["step"].between(*chosen)]
    steps = windows["step"].to_numpy(np.int64)
    rest: pd.DataFrame = windows[steps != (steps[0] if len(steps) else 0)]
    return rest if len(rest) else windows


def cpu_side(rows: pd.DataFrame, ranges: pa.Table, chosen: Chosen, by: Sequence[str] = ()) -> Side:
    """Return the chosen steps of a recording without GPU work: the time of ops themselves.

    Args:
        rows: op calls, as the profile has them.
        ranges: with the columns `RANGES`.
        chosen: which steps; without any, all from the first op to the end of the last is one.
        by: what else calls are grouped by.
    """
    ranks = pd.DataFrame({"rank": rows["rank"].unique(), "device": _NO_DEVICE})
    begins = pa.table({"rank": rows["rank"], "launch_ns": rows["start_ns"]})
    begins = begins.append_column("start_ns", begins["launch_ns"])
    begins = begins.append_column("dur_ns", pa.array(np.zeros(len(rows), np.int64)))
    found = {}
    for rank in ranks["rank"].tolist():
        of_rank = [t.filter(pc.equal(t["rank"], rank)) for t in (ranges, begins)]
        found[rank] = step_windows(of_rank[0], [of_rank[1]])
    steps = _steps(found, ranks, chosen)
    if steps.empty and chosen is None:
        ends = rows.assign(end_ns=rows["start_ns"] + rows["dur_ns"]).groupby("rank")
        whole = ends.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max")).reset_index()
        steps = whole.assign(device=_NO_DEVICE, step=0)[WINDOW]
    # The self time of a call is no interval: it counts where the call begins.
    starts = _in_words(rows).assign(device=_NO_DEVICE, time_ns=rows["dur_ns"], dur_ns=0)
    slices = cut_at_windows(starts.rename(columns={"time_ns": "self_ns"}), steps)
    slices = slices.assign(time_ns=slices["self_ns"])
    busy = slices.groupby(["rank", "step"])["time_ns"].sum()
    of_window = [busy.get(key, 0) for key in zip(steps["rank"], steps["step"], strict=True)]
    windows = steps.assign(busy_ns=np.array(of_window, np.int64))
    rest = windows["end_ns"] - windows["start_ns"] - windows["busy_ns"]
    idle = pd.DataFrame({"step": windows["step"], "cause": OUTSIDE_OPS, "time_ns": rest})
    return Side.of(slices, windows, idle, by)


MOST_TERMS: Final = 3
_NO_NUMBER: Final = -1
"""Stands for a device that has no ordinal."""


def step_difference(
    rows: pd.DataFrame, idle: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame
) -> dict[str, Fraction]:
    """Return the terms of the difference of two steps of a rank; they add up to it exactly.

    Args:
        rows: of the profile.
        idle: rows of the table `idle`.
        before: rows of the table `steps` of one step, one for each device; their times are known.
        after: those of another step, of the same devices.

    Returns:
        Terms and ns, the means over devices.
    """
    found = compare_sides(_side(rows, idle, before), _side(rows, idle, after)).terms
    return dict(zip(found["term"], found["delta_ns"], strict=True))


def _side(rows: pd.DataFrame, idle: pd.DataFrame, step: pd.DataFrame) -> Side:
    rank, begin, length = (step[name].iloc[0] for name in ("rank", "start_ns", "dur_ns"))
    own = rows.loc[rows["rank"] == rank, list(NEEDED)]
    own, windows = (
        frame.assign(device=frame["device"].fillna(_NO_NUMBER).astype("int64"))
        for frame in (own, step)
    )
    ends = windows["start_ns"] + windows["dur_ns"]
    windows = windows.assign(end_ns=ends, busy_ns=windows["dur_ns"] - windows["idle_ns"])
    # By time: a number comes again where a rank has several recordings.
    inside = idle["start_ns"].between(begin, begin + length, inclusive="left")
    slices = cut_at_windows(own, windows)
    return Side.of(slices, windows, idle[inside & (idle["rank"] == rank)])


def largest_terms(terms: Mapping[str, Fraction]) -> list[tuple[str, Fraction]]:
    """Return the largest terms that are not 0, the largest first."""
    found = sorted(terms.items(), key=lambda term: abs(term[1]), reverse=True)
    return [(term, delta) for term, delta in found[:MOST_TERMS] if delta]
