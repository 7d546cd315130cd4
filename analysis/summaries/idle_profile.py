"""Idle time summed along axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.errors import UsageError
from pyprof2.tables import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

AXES: Final = (
    "cause", "group", "source", "op", "layer", "call", "step", "thread", "device", "rank", "note",
)  # fmt: skip
"""What idle time may be summed along: columns of the table `idle`."""

SUMMARY_COLUMNS: Final = (
    Column("count", pa.int64(), "Pieces of gaps."),
    Column("time_ns", pa.int64(), "Their time.", "ns"),
    Column("share_pct", pa.float64(), "Share of the idle time.", "%"),
    Column("window_pct", pa.float64(), "Share of the time that was recorded.", "%"),
    Column("mean_ns", pa.float64(), "Mean time of a piece.", "ns"),
    Column("max_ns", pa.int64(), "Time of the longest piece.", "ns"),
)


def check_axes(axes: Sequence[str]) -> None:
    """Raise UsageError for an axis that there is not, or that is named twice."""
    for at, axis in enumerate(axes):
        if axis not in AXES:
            msg = f"no axis {axis!r} of idle time; there are {', '.join(AXES)}"
            raise UsageError(msg)
        if axis in axes[:at]:
            msg = f"axis {axis!r} is named twice; name it once"
            raise UsageError(msg)


def select_rank(
    idle: pd.DataFrame, windows: pd.DataFrame, rank: int | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of a rank, of all by default.

    Raises:
        UsageError: none of its devices did anything.
    """
    if rank is None:
        return idle, windows
    ranks = sorted(set(windows["rank"].tolist()))
    if rank not in ranks:
        there = ", ".join(map(str, ranks)) or "none"
        msg = f"rank {rank}: no device of such a rank was recorded; ranks with one: {there}"
        raise UsageError(msg)
    return idle[idle["rank"] == rank], windows[windows["rank"] == rank]


def summarize_idle(idle: pd.DataFrame, axes: Sequence[str], window_ns: int) -> pd.DataFrame:
    """Return idle time summed along axes, the longest first.

    Args:
        idle: rows of the table `idle`.
        axes: some of `AXES`.
        window_ns: the time that was recorded, of all devices.

    Returns:
        The axes, and `SUMMARY_COLUMNS`. Rows whose value of an axis is null are summed, too.
    """
    import pandas as pd

    check_axes(axes)
    by = idle.groupby(list(axes), dropna=False, observed=True, sort=True)
    pieces = by["time_ns"]
    sums = pd.DataFrame({"count": by["count"].sum(), "time_ns": pieces.sum()})
    sums["share_pct"] = 100 * sums["time_ns"] / max(1, int(idle["time_ns"].sum()))
    sums["window_pct"] = 100 * sums["time_ns"] / max(1, window_ns)
    sums["mean_ns"] = sums["time_ns"] / sums["count"].clip(lower=1)
    sums["max_ns"] = pieces.max()
    return sums.reset_index().sort_values(
        "time_ns", ascending=False, kind="stable", ignore_index=True
    )
