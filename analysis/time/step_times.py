"""How long steps take: median and quartiles, and which steps took unusually long or short."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

_MADS: Final = 3 * 1.4826
"""Three standard deviations of normal data, in median absolute deviations."""
_LEAST_SHARE: Final = 0.02
_SURE: Final = 0.95


def step_windows_of(steps: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank and window, in order of time.

    Args:
        steps: rows of the table `steps`, one for each device.

    Returns:
        Columns `rank`, `start_ns`, `step`, `dur_ns`.
    """
    names = ["rank", "start_ns", "step", "dur_ns"]
    return steps[names].drop_duplicates().sort_values(names, ignore_index=True)


def step_times(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the distribution of the steps' times, by rank.

    Args:
        windows: see `step_windows_of`.

    Returns:
        `rank` as index; `count`, `mean_ns`, `q1_ns`, `median_ns`, `q3_ns` (interpolated where they
        lie between two steps), and `mad_ns`, the median of the distances from the median.
    """
    by = windows.groupby("rank")["dur_ns"]
    far = (windows["dur_ns"] - by.transform("median")).abs()
    return pd.DataFrame(
        {
            "count": by.size(),
            "mean_ns": by.mean(),
            "q1_ns": by.quantile(0.25),
            "median_ns": by.median(),
            "q3_ns": by.quantile(0.75),
            "mad_ns": far.groupby(windows["rank"]).median(),
        }
    )


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


def outlier_steps(windows: pd.DataFrame) -> pd.DataFrame:
    """Return the windows that took unusually long or short, those furthest off first.

    These are further from the median of their rank than three standard deviations, estimated as
    1.4826 times the median distance, and than 2 % of the median.

    Args:
        windows: see `step_windows_of`.

    Returns:
        Their rows, with `median_ns` and `over_ns`, how much longer than that they are.
    """
    times = step_times(windows).loc[windows["rank"]].set_index(windows.index)
    over = windows["dur_ns"] - times["median_ns"]
    least = (_MADS * times["mad_ns"]).clip(lower=_LEAST_SHARE * times["median_ns"])
    found = windows.assign(median_ns=times["median_ns"], over_ns=over)[over.abs() > least]
    return found.sort_values("over_ns", key=abs, ascending=False, kind="stable")


def median_step(windows: pd.DataFrame, rank: int) -> dict[Hashable, Any]:
    """Return the window of the rank whose time is nearest to the median, of several the first."""
    own = windows[windows["rank"] == rank].sort_values("start_ns")
    far = (own["dur_ns"] - own["dur_ns"].median()).abs()
    nearest: list[dict[Hashable, Any]] = own[far == far.min()].to_dict("records")
    return nearest[0]
