"""The steps of a run as one side of a comparison."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.axes import COARSE
from pyprof2.analysis.summaries.compare import Side, compare_sides
from pyprof2.analysis.summaries.compared_calls import NEEDED, CallSums
from pyprof2.analysis.time.recordings import device_windows, recordings
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.columns import combinations, sum_at
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction

    from pyprof2.analysis.summaries.compared_calls import Activities


RANGES: Final = ("rank", "start_ns", "dur_ns", "name", "kind")
STEPS: Final = ("rank", "device", "step", "start_ns", "dur_ns", "idle_ns")
IDLE: Final = ("step", "cause", "time_ns")
WORK: Final = ("rank", "device", "start_ns", "dur_ns")
TRACE: Final = ("rank", "start_ns", "end_ns")
"""The columns that are needed of these tables."""
WINDOW: Final = ["rank", "device", "step", "start_ns", "end_ns"]
OUTSIDE_OPS: Final = "outside_ops"
"""The only cause in a recording of the CPU alone; less than 0 where threads work at once."""
_NONE: Final = -1
"""Stands for null in whole numbers: a device without an ordinal, and no step."""


Chosen: TypeAlias = "tuple[int, int] | None"
"""First and last step to compare; None: all, but the first of each rank where there are more."""


def activity_columns(names: Sequence[str], by: Sequence[str]) -> list[str]:
    """Return which of a table's columns are needed: of `kernels` and `copies`."""
    wanted = {*NEEDED, *by}
    wanted |= {f"shared_{name}" for name in wanted & {*COARSE}}
    return [name for name in names if name in wanted]


def windows_of_steps(steps: pa.Table, chosen: Chosen) -> pd.DataFrame:
    """Return the windows of the chosen steps of devices: `WINDOW`, and `busy_ns`.

    Args:
        steps: columns `STEPS`.
        chosen: which steps.
    """
    # A rank that did nothing has no idle time.
    known = steps.filter(pc.and_(pc.is_valid(steps["idle_ns"]), pc.is_valid(steps["step"])))
    found = pd.DataFrame({name: int_column(known, name, _NONE) for name in STEPS})
    length, idle = found.pop("dur_ns"), found.pop("idle_ns")
    return _choose(found.assign(end_ns=found["start_ns"] + length, busy_ns=length - idle), chosen)


def recorded_windows(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Return what was recorded of each device of a rank, as a step 0: `WINDOW`, and `busy_ns`.

    Args:
        tables: `kernels` and `copies`, columns `WORK`, and `trace`, columns `TRACE`.
    """
    found = [
        (rank, _NONE if own.device is None else own.device, 0, *own[1:3], own.busy_ns)
        for rank, each in recordings(tables)
        for own in device_windows(each["kernels"], each["copies"], each["trace"])
    ]
    return pd.DataFrame(found, columns=[*WINDOW, "busy_ns"])


def idle_by_step(parts: Iterable[pa.Table]) -> pd.DataFrame:
    """Return the idle time by step, -1 for none, and cause; parts have the columns `IDLE`."""
    sums: Counter[tuple[int, str]] = Counter()
    for part in parts:
        step, (code, causes) = int_column(part, "step", _NONE), code_column(part, "cause")
        first, place = combinations([step, code])
        times = sum_at(place, int_column(part, "time_ns", 0), len(first))
        for at, time in zip(first.tolist(), times.tolist(), strict=True):
            sums[int(step[at]), causes[code[at]]] += time
    rows = [(*key, time) for key, time in sums.items()]
    return pd.DataFrame(rows, columns=list(IDLE)).astype({"step": "int64", "time_ns": "int64"})


def device_side(
    parts: Iterable[tuple[int, pa.Table]],
    windows: pd.DataFrame,
    idle: pd.DataFrame,
    by: Sequence[str] = (),
) -> Side:
    """Return windows of a recording with GPU work as a side.

    Args:
        parts: of kernels and of copies, each a table by its number: `activity_columns`.
        windows: of steps, or of all that was recorded.
        idle: of these steps, see `idle_by_step`.
        by: what else calls are grouped by.
    """
    calls = CallSums(windows, by)
    for table, part in parts:
        columns = {
            field.name: code_column(part, field.name)
            if pa.types.is_dictionary(field.type)
            else int_column(part, field.name, _NONE)
            for field in part.schema
        }
        calls.add(columns, table)
    return Side.of(calls, windows, idle)


def columns_of(rows: pd.DataFrame, by: Sequence[str] = ()) -> Activities:
    """Return the columns of rows that are needed to compare calls, and `self_ns`."""
    found: dict[str, Any] = {}
    for name in activity_columns([*rows.columns], (*by, "self_ns")):
        if pd.api.types.is_integer_dtype(rows[name].dtype):
            found[name] = rows[name].fillna(_NONE).to_numpy(np.int64)
        else:
            texts = pd.Categorical(rows[name])
            found[name] = texts.codes, texts.categories.tolist()
    return found


def _choose(windows: pd.DataFrame, chosen: Chosen) -> pd.DataFrame:
    step = windows["step"]
    if chosen is not None:
        return windows[step.between(*chosen)].reset_index(drop=True)
    later = step != step.groupby(windows["rank"], observed=True).transform("first")
    has_later = later.groupby(windows["rank"], observed=True).transform("any")
    return windows[later | ~has_later].reset_index(drop=True)


def cpu_side(rows: pd.DataFrame, ranges: pa.Table, chosen: Chosen, by: Sequence[str] = ()) -> Side:
    """Return the chosen steps of a recording without GPU work: the time of ops themselves.

    Args:
        rows: op calls, as the profile has them.
        ranges: with the columns `RANGES`.
        chosen: which steps; without any, all from the first op to the end of the last is one.
        by: what else calls are grouped by.
    """
    found = [pd.DataFrame(columns=WINDOW, dtype=np.int64)]
    for rank, own in rows.groupby("rank", observed=True):
        begins = pa.table({"launch_ns": own["start_ns"], "start_ns": own["start_ns"]})
        begins = begins.append_column("dur_ns", pa.array(np.zeros(len(own), np.int64)))
        step, start, end = step_windows(ranges.filter(pc.equal(ranges["rank"], rank)), [begins])
        times = {"step": step, "start_ns": start, "end_ns": end}
        found.append(pd.DataFrame({"rank": rank, "device": _NONE} | times))
    steps = _choose(pd.concat(found, ignore_index=True), chosen)
    if steps.empty and chosen is None:
        ends = rows.assign(end_ns=rows["start_ns"] + rows["dur_ns"]).groupby("rank", observed=True)
        whole = ends.agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max")).reset_index()
        steps = whole.assign(device=_NONE, step=0)[WINDOW]
    # The self time of a call is no interval: it counts where the call begins.
    calls = CallSums(steps, by)
    calls.add(columns_of(rows.assign(device=_NONE, self_ns=rows["dur_ns"], dur_ns=0), by))
    windows = steps.assign(busy_ns=calls.work_ns)
    rest = windows["end_ns"] - windows["start_ns"] - windows["busy_ns"]
    idle = pd.DataFrame({"step": windows["step"], "cause": OUTSIDE_OPS, "time_ns": rest})
    return Side.of(calls, windows, idle)


MOST_TERMS: Final = 3


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
        frame.assign(device=frame["device"].fillna(_NONE).astype("int64")) for frame in (own, step)
    )
    ends = windows["start_ns"] + windows["dur_ns"]
    windows = windows.assign(end_ns=ends, busy_ns=windows["dur_ns"] - windows["idle_ns"])
    # By time: a number comes again where a rank has several recordings.
    inside = idle["start_ns"].between(begin, begin + length, inclusive="left")
    calls = CallSums(windows)
    calls.add(columns_of(own))
    return Side.of(calls, windows, idle[inside & (idle["rank"] == rank)])


def largest_terms(terms: Mapping[str, Fraction]) -> list[tuple[str, Fraction]]:
    """Return the largest terms that are not 0, the largest first."""
    found = sorted(terms.items(), key=lambda term: abs(term[1]), reverse=True)
    return [(term, delta) for term, delta in found[:MOST_TERMS] if delta]
