"""Lines on steps below a profile: their times, the work of devices in them, outliers."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.summaries.compared_calls import NEEDED
from pyprof2.analysis.summaries.compared_sides import largest_terms, step_difference
from pyprof2.analysis.time.step_times import (
    median_interval,
    median_step,
    outlier_steps,
    step_times,
    step_windows_of,
)
from pyprof2.analysis.time.steps import SHARES
from pyprof2.reports.heading import share_text
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping
    from fractions import Fraction
    from typing import Any

    from pyprof2.api.run import Run

_RANKS_SHOWN: Final = 8
_OUTLIERS_SHOWN: Final = 5
_NARROW_PCT: Final = 2.0
_STATES: Final = {
    "compute_only_ns": "computing",
    "comm_only_ns": "exposed communication",
    "comp_comm_overlap_ns": "communication beside computing",
    "copy_only_ns": "copying",
    "copy_overlap_ns": "copying beside kernels",
    "idle_ns": "idle",
}
_SHARE_NAMES: Final = ("GPU utilization", "SM efficiency", "occupancy")


def step_lines(run: Run, ranks: list[int]) -> Iterator[str]:
    """Give the times of steps, the work of devices in them, and those unusually long or short.

    Args:
        run: the run.
        ranks: those to speak of.
    """
    steps = run.steps[run.steps["rank"].isin(ranks)]
    if steps.empty:
        return
    windows = step_windows_of(steps)
    yield from _times(windows)
    yield from energy_lines(run, ranks)
    yield from _devices(run, steps)
    yield from _outliers(run, windows)


def energy_lines(run: Run, ranks: list[int]) -> Iterator[str]:
    """Give for each counter the energy of a step; nothing where none was read.

    Args:
        run: the run.
        ranks: those to speak of.
    """
    found = run.energy
    rows = found[found["rank"].isin(ranks)].to_dict("records")
    several = len({row["rank"] for row in rows}) > 1
    for row in rows:
        place = (f"rank {row['rank']}, " if several else "") + row["counter"]
        if pd.isna(row["joules_per_step"]):
            yield f"{place}: no energy of a step: {row['note']}"
            continue
        idle = ""
        if pd.notna(row["idle_joules"]):
            names = ("idle_joules", "idle_lo", "idle_hi")
            each, low, high = (format_rate(row[name]) for name in names)
            idle = f"; of them {each} J ({low} to {high}) as before the program began"
        each, low, high = (format_rate(row[name]) for name in ("joules_per_step", "lo", "hi"))
        yield (
            f"{place}: {each} J in a step ({low} to {high}; {format_rate(row['joules'])} J in "
            f"{row['seconds']:.1f} s, {counted(row['steps'], 'step')}; {row['method']})"
            f"{idle}"
        )


def _times(windows: pd.DataFrame) -> Iterator[str]:
    """Give median and quartiles of each rank that has several steps."""
    times = step_times(windows).reset_index()
    for row in times[times["count"] > 1].head(_RANKS_SHOWN).to_dict("records"):
        median, low, high = (_time(row[name]) for name in ("median_ns", "q1_ns", "q3_ns"))
        place = _of_rank(row["rank"], len(times))
        own = windows.loc[windows["rank"] == row["rank"], "dur_ns"]
        between = median_interval(own.tolist())
        sure = ""
        if between is not None:
            first, last = between
            half_pct = 50 * (last - first) / row["median_ns"] if row["median_ns"] else 0.0
            more = f" (± {format_rate(half_pct)} %: record more)" if half_pct > _NARROW_PCT else ""
            sure = f"; the median of all such steps {_time(first)} to {_time(last)} at 95 %{more}"
        yield f"{place}{row['count']} steps, median {median}, the middle half {low} to {high}{sure}"


def _devices(run: Run, steps: pd.DataFrame) -> Iterator[str]:
    """Give the states of each device, on average over steps, and how well it was used."""
    used = steps[steps["idle_ns"].notna()]
    keys = ["rank", "device"]
    means = used.groupby(keys, dropna=False)[["dur_ns", *_STATES]].mean().reset_index()
    for row in means.merge(run.use_over_steps, on=keys).head(_RANKS_SHOWN).to_dict("records"):
        place = f"rank {row['rank']}, device {row['device']}: " if len(means) > 1 else ""
        states = [
            f"{words} {_time(row[name])} ({share_text(round(row[name]), round(row['dur_ns']))})"
            for name, words in _STATES.items()
            if row[name] > 0
        ]
        yield f"{place}in a step, on average: {', '.join(states)}"
        shares = [
            f"{words} {row[name]:.1f} %"
            for name, words in zip(SHARES, _SHARE_NAMES, strict=True)
            if pd.notna(row[name])
        ]
        yield f"{place}from the first step to the last: {', '.join(shares)}"


def _outliers(run: Run, windows: pd.DataFrame) -> Iterator[str]:
    """Name the steps that took unusually long or short, and how they differ."""
    odd = outlier_steps(windows)
    ranks = windows["rank"].nunique()
    shown = odd.head(_OUTLIERS_SHOWN)
    for window, note in zip(shown.to_dict("records"), _notes(run, windows, shown), strict=True):
        yield f"{_of_rank(window['rank'], ranks)}step {window['step']} {note}"
    if len(odd) > _OUTLIERS_SHOWN:
        more = counted(len(odd) - _OUTLIERS_SHOWN, "more step is", "more steps are")
        yield f"{more} unusually long or short"


def outlier_notes(run: Run) -> dict[tuple[int, int], str]:
    """Return how far off the odd steps are, by rank and start.

    For those furthest off the largest differences are named, too.
    """
    windows = step_windows_of(run.steps)
    odd = outlier_steps(windows)
    keys = zip(odd["rank"].tolist(), odd["start_ns"].tolist(), strict=True)
    explained = _notes(run, windows, odd.head(_OUTLIERS_SHOWN))
    others = map(_over, odd.iloc[_OUTLIERS_SHOWN:].to_dict("records"))
    return dict(zip(keys, chain(explained, others), strict=True))


def _notes(run: Run, windows: pd.DataFrame, odd: pd.DataFrame) -> Iterator[str]:
    """Say how much longer each of these windows takes, and how it differs."""
    if odd.empty:
        return
    rows = run.rows(NEEDED)
    for window in odd.to_dict("records"):
        usual = median_step(windows, window["rank"])
        yield f"{_over(window)}{_difference(run, rows, usual, window)}"


def _over(window: Mapping[Hashable, Any]) -> str:
    more = "more" if window["over_ns"] > 0 else "less"
    return f"takes {_time(abs(window['over_ns']))} {more} than the median"


def _difference(
    run: Run, rows: pd.DataFrame, usual: Mapping[Hashable, Any], odd: Mapping[Hashable, Any]
) -> str:
    """Return the largest terms of the difference; nothing where no device was recorded."""
    steps = run.steps[run.steps["idle_ns"].notna() & (run.steps["rank"] == odd["rank"])]
    if steps.empty:
        return ""
    before, after = (
        steps[(steps["start_ns"] == each["start_ns"]) & (steps["step"] == each["step"])]
        for each in (usual, odd)
    )
    terms = largest_terms(step_difference(rows, run.idle, before, after))
    words = [f"{term} {'+' if delta > 0 else '-'}{_time(abs(delta))}" for term, delta in terms]
    return f"; against step {usual['step']}: {', '.join(words)}"


def _time(time_ns: float | Fraction) -> str:
    return format_time(round(time_ns))


def _of_rank(rank: object, ranks: int) -> str:
    return f"rank {rank}: " if ranks > 1 else ""
