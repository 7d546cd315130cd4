"""How long steps take, which took unusually long or short, and how well devices were used."""

from __future__ import annotations

from itertools import groupby
from math import comb
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd
    import pyarrow as pa

_MADS: Final = 3 * 1.4826
"""Three standard deviations of normal data, in median absolute deviations."""
_LEAST_SHARE: Final = 0.02
_SURE: Final = 0.95
SLOW_START: Final = 1.5
"""A first step that takes more times the median than this compiles, loads code or fills caches."""
_OTHERS: Final = 1.2
"""Such a step is as much longer than any other; else it is one of the long ones that come again."""
_FEWEST: Final = 3
"""With fewer steps none is called unusual."""
SHARES: Final = ("gpu_utilization_pct", "sm_efficiency_pct", "occupancy_pct")
"""How well devices were used: columns of tables `steps` and `device_use`."""


class TimedStep(NamedTuple):
    """The window of a step of a rank."""

    rank: int
    start_ns: int
    step: int
    dur_ns: int


class StepTimes(NamedTuple):
    """The distribution of the times of a rank's steps.

    Attributes:
        steps: how many there are.
        q1_ns, median_ns, q3_ns: interpolated where they lie between two steps.
        mad_ns: the median of the distances from the median.
    """

    steps: int
    q1_ns: float
    median_ns: float
    q3_ns: float
    mad_ns: float


class OddStep(NamedTuple):
    """A step that took unusually long or short, and how much longer than the median that is."""

    window: TimedStep
    over_ns: float


def timed_steps(steps: pd.DataFrame | pa.Table) -> list[TimedStep]:
    """Return the window of each step once, in order of rank and time.

    Args:
        steps: the table `steps`, a row for each device, of which the columns are needed that are
            named as the attributes of `TimedStep`.
    """
    columns = [np.asarray(steps[name]).tolist() for name in TimedStep._fields]
    return sorted(map(TimedStep._make, set(zip(*columns, strict=True))))


def step_times(windows: Iterable[TimedStep]) -> dict[int, StepTimes]:
    """Return the distribution of the steps' times, by rank; `windows` as of `timed_steps`."""
    found = {}
    for rank, own in groupby(windows, itemgetter(0)):
        times = sorted(window.dur_ns for window in own)
        middle = median(times)
        found[rank] = StepTimes(
            len(times), _quantile(times, 0.25), middle, _quantile(times, 0.75),
            median(abs(time - middle) for time in times),
        )  # fmt: skip
    return found


def _quantile(ordered: Sequence[int], share: float) -> float:
    at, rest = divmod(share * (len(ordered) - 1), 1)
    low, high = ordered[int(at)], ordered[min(int(at) + 1, len(ordered) - 1)]
    return low + rest * (high - low)


def starts_slowly(times: Sequence[int]) -> bool:
    """Whether the first of these steps, in order of time, took much longer than they usually do."""
    if len(times) < _FEWEST:
        return False
    # Most steps may be without any work. Where a long one comes again, the first is one of these.
    return 0 < SLOW_START * median(times) < times[0] and times[0] > _OTHERS * max(times[1:])


def slow_starts(windows: Iterable[TimedStep]) -> set[TimedStep]:
    """Return the first steps of ranks that took much longer than the others: no mean has them.

    Args:
        windows: see `timed_steps`.
    """
    ranks = (list(own) for _, own in groupby(windows, itemgetter(0)))
    return {own[0] for own in ranks if starts_slowly([window.dur_ns for window in own])}


def median_interval(times: Sequence[int]) -> tuple[int, int] | None:
    """Return between which times the median of all such steps is, at 95 % or more.

    No distribution is assumed: each step is above the median or below it as a coin falls, so it is
    between the k-th shortest and the k-th longest with 1 - 2 * P(fewer than k of n coins). Steps
    that slow down or speed up together are not such coins.

    Returns:
        The shortest such interval; None: there is none of fewer than six steps.
    """
    count, left_out, outside = len(times), 0, 0
    while 2 * (outside + comb(count, left_out)) <= (1 - _SURE) * 2**count:
        outside += comb(count, left_out)
        left_out += 1
    if not left_out:
        return None
    ordered = sorted(times)
    return ordered[left_out - 1], ordered[-left_out]


def outlier_steps(windows: Sequence[TimedStep]) -> list[OddStep]:
    """Return the windows that took unusually long or short, those furthest off first.

    These are further from the median of their rank than three standard deviations, estimated as
    1.4826 times the median distance, and than 2 % of the median.

    Args:
        windows: see `timed_steps`.
    """
    times = step_times(windows)
    found = [OddStep(each, each.dur_ns - times[each.rank].median_ns) for each in windows]
    least = {r: max(_MADS * t.mad_ns, _LEAST_SHARE * t.median_ns) for r, t in times.items()}
    odd = [each for each in found if abs(each.over_ns) > least[each.window.rank]]
    return sorted(odd, key=lambda each: -abs(each.over_ns))


def median_step(windows: Iterable[TimedStep], rank: int) -> TimedStep:
    """Return the window of the rank whose time is nearest to the median, of several the first."""
    own = [window for window in windows if window.rank == rank]
    middle = median(window.dur_ns for window in own)
    return min(own, key=lambda window: (abs(window.dur_ns - middle), window.start_ns))


def mean_shares(rows: Sequence[Mapping[str, Any]], length: str) -> dict[str, float | None]:
    """Return the shares of devices over all rows, null where one of them does not know its own.

    Each counts with what it is a share of: occupancy, which is one of kernels, with the time in
    which a kernel ran, so that a row without any has no part in it.

    Args:
        rows: of the table `steps`, or of `device_use`; null as None.
        length: the column of their lengths.
    """
    utilization, efficiency, occupancy = SHARES
    whole = [row[length] for row in rows]
    ran = [row[length] * (row[utilization] or 0.0) for row in rows]
    shares = ((utilization, whole), (efficiency, whole), (occupancy, ran))
    return {name: _mean([row[name] for row in rows], weights) for name, weights in shares}


def _mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Return the weighted mean, None where one that has a weight is not known, or none has one."""
    pairs = [(value, weight) for value, weight in zip(values, weights, strict=True) if weight]
    total = sum(weight for _, weight in pairs)
    found = 0.0
    for value, weight in pairs:
        if value is None:
            return None
        found += value * weight
    return found / total if total else None
