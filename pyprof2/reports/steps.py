"""Lines on steps below a profile: their times, the work of devices in them, outliers."""

from __future__ import annotations

from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.time.step_times import (
    SHARES,
    OddStep,
    TimedStep,
    median_interval,
    median_step,
    outlier_steps,
    step_times,
)
from pyprof2.api import run_profile
from pyprof2.reports.heading import share_text
from pyprof2.tables import ENERGY_KIND
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from fractions import Fraction

    import pandas as pd

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
    windows = [window for window in run.tables.windows if window.rank in ranks]
    if not windows:
        return
    usual = [window for window in windows if window not in run.tables.slow_starts]
    yield from _times(windows)
    yield from energy_lines(run, ranks)
    of_mean, rows = {window[:3] for window in usual}, run.table("steps").to_pylist()
    yield from _devices(
        run, [row for row in rows if (row["rank"], row["start_ns"], row["step"]) in of_mean]
    )
    yield from _outliers(run, windows)


def energy_lines(run: Run, ranks: list[int]) -> Iterator[str]:
    """Give for each counter the energy of a step; nothing where none was read.

    Args:
        run: the run.
        ranks: those to speak of.
    """
    if not run.tables.with_ranges(ENERGY_KIND):
        return
    import pandas as pd

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


def _times(windows: Sequence[TimedStep]) -> Iterator[str]:
    """Give median and quartiles of each rank that has several steps."""
    times = step_times(windows)
    several = [rank for rank, own in times.items() if own.steps > 1]
    for rank in several[:_RANKS_SHOWN]:
        own = times[rank]
        median, low, high = map(_time, (own.median_ns, own.q1_ns, own.q3_ns))
        between = median_interval([each.dur_ns for each in windows if each.rank == rank])
        sure = ""
        if between is not None:
            first, last = between
            half_pct = 50 * (last - first) / own.median_ns if own.median_ns else 0.0
            more = f" (± {format_rate(half_pct)} %: record more)" if half_pct > _NARROW_PCT else ""
            sure = f"; the median of all such steps {_time(first)} to {_time(last)} at 95 %{more}"
        place = _of_rank(rank, len(times))
        yield f"{place}{own.steps} steps, median {median}, the middle half {low} to {high}{sure}"


def _devices(run: Run, steps: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Give the states of each device, on average over steps, and how well it was used."""
    used: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for row in steps:
        if row["idle_ns"] is not None:
            used.setdefault((row["rank"], row["device"]), []).append(row)
    of_use = {(row["rank"], row["device"]): row for row in run.table("device_use").to_pylist()}
    devices = sorted(used.keys() & of_use.keys(), key=lambda key: (key[0], key[1] is None, key[1]))
    for key in devices[:_RANKS_SHOWN]:
        place = f"rank {key[0]}, device {key[1]}: " if len(used) > 1 else ""
        mean = {name: fmean(row[name] for row in used[key]) for name in ("dur_ns", *_STATES)}
        states = [
            f"{words} {_time(mean[name])} ({share_text(round(mean[name]), round(mean['dur_ns']))})"
            for name, words in _STATES.items()
            if mean[name] > 0
        ]
        yield f"{place}in a step, on average: {', '.join(states)}"
        shares = [
            f"{words} {of_use[key][name]:.1f} %"
            for name, words in zip(SHARES, _SHARE_NAMES, strict=True)
            if of_use[key][name] is not None
        ]
        yield f"{place}from the first step to the last: {', '.join(shares)}"


def _outliers(run: Run, windows: Sequence[TimedStep]) -> Iterator[str]:
    """Name the steps that took unusually long or short, and how they differ."""
    odd = outlier_steps(windows)
    ranks = len({window.rank for window in windows})
    shown = odd[:_OUTLIERS_SHOWN]
    for (window, _), note in zip(shown, _notes(run, windows, shown), strict=True):
        yield f"{_of_rank(window.rank, ranks)}step {window.step} {note}"
    if len(odd) > _OUTLIERS_SHOWN:
        more = counted(len(odd) - _OUTLIERS_SHOWN, "more step is", "more steps are")
        yield f"{more} unusually long or short"


def outlier_notes(run: Run) -> dict[tuple[int, int], str]:
    """Return how far off the odd steps are, by rank and start.

    For those furthest off the largest differences are named, too.
    """
    windows = run.tables.windows
    odd = outlier_steps(windows)
    keys = (each.window[:2] for each in odd)
    explained = _notes(run, windows, odd[:_OUTLIERS_SHOWN])
    others = map(_over, odd[_OUTLIERS_SHOWN:])
    return dict(zip(keys, chain(explained, others), strict=True))


def _notes(run: Run, windows: Sequence[TimedStep], odd: Sequence[OddStep]) -> Iterator[str]:
    """Say how much longer each of these windows takes, and how it differs."""
    if not odd:
        return
    from pyprof2.analysis.summaries.compared_calls import NEEDED

    rows = run_profile.rows_of(run.tables, NEEDED)
    for each in odd:
        usual = median_step(windows, each.window.rank)
        yield f"{_over(each)}{_difference(run, rows, usual, each.window)}"


def _over(odd: OddStep) -> str:
    more = "more" if odd.over_ns > 0 else "less"
    return f"takes {_time(abs(odd.over_ns))} {more} than the median"


def _difference(run: Run, rows: pd.DataFrame, usual: TimedStep, odd: TimedStep) -> str:
    """Return the largest terms of the difference; nothing where no device was recorded."""
    from pyprof2.analysis.summaries.compared_sides import largest_terms, step_difference

    steps = run.steps[run.steps["idle_ns"].notna() & (run.steps["rank"] == odd.rank)]
    if steps.empty:
        return ""
    before, after = (
        steps[(steps["start_ns"] == each.start_ns) & (steps["step"] == each.step)]
        for each in (usual, odd)
    )
    terms = largest_terms(step_difference(rows, run.idle, before, after))
    words = [f"{term} {'+' if delta > 0 else '-'}{_time(abs(delta))}" for term, delta in terms]
    return f"; against step {usual.step}: {', '.join(words)}"


def _time(time_ns: float | Fraction) -> str:
    return format_time(round(time_ns))


def _of_rank(rank: object, ranks: int) -> str:
    return f"rank {rank}: " if ranks > 1 else ""
