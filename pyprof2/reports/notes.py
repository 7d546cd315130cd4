"""Notes below a profile: why its rows are what they are, and where to look next."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.profile_columns import AXES, MORE_COLUMNS, NONE, UNSTORED
from pyprof2.analysis.time.step_times import timed_steps
from pyprof2.frames import shown_line
from pyprof2.reports.heading import share_text
from pyprof2.reports.listings import length
from pyprof2.reports.query import FINER_AXES
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyprof2.api.run import Run
    from pyprof2.reports.listings import Listed

_ONE_LINE_PCT: Final = 50
_STEPS_SHOWN: Final = 10

NOT_PROPOSED: Final = ("rank", "stream", *UNSTORED)
"""The axes that no note proposes."""


def overview_notes(run: Run, axis: str, known_share: Callable[[str], float]) -> Iterator[str]:
    """Say why the rows are what they are, and how to see more."""
    if axis != "op":
        what = "the kernels' names" if axis == "name" else "your ranges"
        share = f"{100 * known_share('op'):.1f} %"
        yield f"by {what}: only {share} of the time belongs to an op; see 'check'"
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield f"other sums: --by layer, source, direction, step, …; all {what} in order: --by kernel"


def none_note(
    run: Run, sums: Listed, axes: Sequence[str], known_share: Callable[[str], float]
) -> Iterator[str]:
    """Where no row has a key, name the axes that have some of the time."""
    keys = [sums[AXES[axis]].cells for axis in axes]
    if length(sums) != 1 or not all(key[0] is None or key[0] == NONE for key in keys):
        return
    known = {axis: known_share(axis) for axis in AXES if axis not in NOT_PROPOSED}
    best = sorted((a for a in known if known[a] > 0), key=known.__getitem__, reverse=True)
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield (
        f"no {' or '.join(axes)} is known of these {what} (see 'check'); "
        f"there is --by {', '.join(best)}"
    )


def one_line_note(
    run: Run, sums: Listed, axes: Sequence[str], has_several: Callable[[str, str], bool]
) -> Iterator[str]:
    """Where one line has more than half of the time, name axes that take it apart.

    Args:
        run: the run.
        sums: along the axes.
        axes: their names.
        has_several: whether a line has more than one key along an axis.
    """
    if tuple(axes) != ("source",):
        return
    for line, share in zip(sums["source"].cells, sums["share_pct"].cells, strict=True):
        if line == NONE or not (share or 0) > _ONE_LINE_PCT:
            continue
        finer = [axis for axis in FINER_AXES if has_several(axis, line)]
        if finer:
            shown = shown_line(line, run.source_roots)
            yield (
                f"one line of yours, {shown}, has {share:.1f} % of the time: "
                f"--by {' or '.join(finer)} takes it apart"
            )


def missed_note(sums: Listed, by: Sequence[str]) -> Iterator[str]:
    """Say how much time could have been on Tensor Cores and was not, if that is anything."""
    missed: dict[str, int] = {}
    reasons, times = (sums[n].cells for n in ("tensor_core_missed", "tensor_core_missed_ns"))
    for reason, missed_ns in zip(reasons, times, strict=True):
        if reason is not None:
            missed[reason] = missed.get(reason, 0) + missed_ns
    time = sum(missed.values())
    if time:
        share = share_text(time, sum(sums["time_ns"].cells))
        columns = ",".join(
            [*(AXES[axis] for axis in by), *(c.name for c in MORE_COLUMNS if "missed" in c.name)]
        )
        most = min(missed, key=lambda reason: (-missed[reason], reason))
        yield (
            f"could have used Tensor Cores and did not: {format_time(time)}, {share} of the time, "
            f"most for: {most}; where: -c {columns}"
        )


def step_notes(run: Run) -> Iterator[str]:
    """Give the time of a step, how busy the GPU is in it, and MFU, step by step."""
    steps = [row for row in run.utilization_rows if row["step"] is not None]
    if not steps:
        return
    # A number comes again in another span.
    count = len({window[:2] for window in timed_steps(run.table("steps"))}) or len(steps)
    wall = sum(row["wall_ns"] for row in steps) / count
    busy = [row["busy_ns"] for row in steps if row["busy_ns"] is not None]
    is_one = run.summary["gpu_count"] == len(run.summary["ranks"])
    of_busy = share_text(int(sum(busy) / count), int(wall))
    share = f", {of_busy} of it busy" if is_one and busy else ""
    ends = "" if run.summary["no_gpu"] else ", until the last work that it launched ends"
    yield f"a step takes {format_time(int(wall))} on average{ends}{share}"
    shares: dict[int, list[float]] = {}
    rated = [row for row in steps if row["mfu_pct"] is not None]
    for row in rated:
        shares.setdefault(row["step"], []).append(row["mfu_pct"])
    if shares:
        first = sorted(shares)[:_STEPS_SHOWN]
        shown = ", ".join(f"{step}: {format_rate(fmean(shares[step]))} %" for step in first)
        more = ", …" if len(shares) > len(first) else ""
        mean = fmean(row["peak_flop_per_s"] for row in rated) / 1e12
        peak = f"{mean:g} TFLOP/s, {rated[0]['peak']}"
        yield f"MFU by step: {shown}{more} (of that time at {peak})"
