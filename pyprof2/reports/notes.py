"""What is said below a profile: why its rows are what they are, and where to look next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.summaries.profile import AXES, MORE_COLUMNS, NONE
from pyprof2.frames import shown_line
from pyprof2.reports.heading import share_text
from pyprof2.reports.query import FINER_AXES
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyprof2.run import Run

_ONE_LINE_PCT: Final = 50
_STEPS_SHOWN: Final = 10


def known_share(rows: pd.DataFrame, axis: str) -> float:
    """Return the share of the time of the rows that have a key along the axis."""
    time = rows["dur_ns"]
    return float(time[rows[AXES[axis]].notna()].sum() / (time.sum() or 1))


def overview_notes(run: Run, rows: pd.DataFrame, axis: str) -> Iterator[str]:
    """Say why the rows are what they are, and how to see more."""
    if axis != "op":
        what = "the kernels' names" if axis == "name" else "your ranges"
        share = f"{100 * known_share(rows, 'op'):.1f} %"
        yield f"by {what}: only {share} of the time belongs to an op; see 'check'"
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield f"other sums: --by layer, source, direction, step, …; all {what} in order: --by kernel"


def none_note(
    run: Run, sums: pd.DataFrame, axes: Sequence[str], shares: Callable[[], dict[str, float]]
) -> Iterator[str]:
    """Where no row has a key, name the axes that have some; `shares`: of the time, by axis."""
    keys = sums[[AXES[axis] for axis in axes]]
    if len(keys) != 1 or not all(pd.isna(key) or key == NONE for key in keys.iloc[0]):
        return
    known = shares()
    best = sorted((a for a in known if known[a] > 0), key=known.__getitem__, reverse=True)
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield (
        f"no {' or '.join(axes)} is known of these {what} (see 'check'); "
        f"there is --by {', '.join(best)}"
    )


def one_line_note(
    run: Run, rows: pd.DataFrame, sums: pd.DataFrame, axes: Sequence[str]
) -> Iterator[str]:
    """Where one line has more than half of the time, name axes that take it apart."""
    if tuple(axes) != ("source",):
        return
    top = sums[(sums["source"] != NONE) & (sums["share_pct"] > _ONE_LINE_PCT)]
    for line, share in zip(top["source"], top["share_pct"], strict=True):
        of_line = rows[rows["source"] == line]
        finer = [a for a in FINER_AXES if len(of_line[AXES[a]].unique()) > 1]
        if finer:
            shown = shown_line(line, run.source_roots)
            yield (
                f"one line of yours, {shown}, has {share:.1f} % of the time: "
                f"--by {' or '.join(finer)} takes it apart"
            )


def missed_note(sums: pd.DataFrame, by: Sequence[str]) -> Iterator[str]:
    """Say how much time could have been on Tensor Cores and was not, if that is anything."""
    missed = sums.groupby("tensor_core_missed")["tensor_core_missed_ns"].sum()
    time = int(missed.sum())
    if time:
        share = share_text(time, int(sums["time_ns"].sum()))
        columns = ",".join(
            [*(AXES[axis] for axis in by), *(c.name for c in MORE_COLUMNS if "missed" in c.name)]
        )
        yield (
            f"could have used Tensor Cores and did not: {format_time(time)}, {share} of the time, "
            f"most for: {missed.idxmax()}; where: -c {columns}"
        )


def step_notes(run: Run) -> Iterator[str]:
    """Give the time of a step, how busy the GPU is in it, and MFU, step by step."""
    steps = run.utilization[run.utilization["step"].notna()]
    if steps.empty:
        return
    wall, busy = (steps[name].astype("float64").mean() for name in ("wall_ns", "busy_ns"))
    is_one = run.summary["gpu_count"] == len(run.summary["ranks"])
    share = f", {share_text(int(busy), int(wall))} of it busy" if is_one and pd.notna(busy) else ""
    ends = "" if run.summary["no_gpu"] else ", until the last work that it launched ends"
    yield f"a step takes {format_time(int(wall))} on average{ends}{share}"
    steps = steps[steps["mfu_pct"].notna()]
    if len(steps):
        shares = steps.groupby("step")["mfu_pct"].mean()
        shown = [f"{step}: {format_rate(mfu)} %" for step, mfu in shares.head(_STEPS_SHOWN).items()]
        more = ", …" if len(shares) > len(shown) else ""
        peak = f"{steps['peak_flop_per_s'].mean() / 1e12:g} TFLOP/s, {steps['peak'].iloc[0]}"
        yield f"MFU by step: {', '.join(shown)}{more} (of that time at {peak})"
