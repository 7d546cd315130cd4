"""What was different in one step: the terms of its difference from another step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.compare import Side, compare_sides
from pyprof2.analysis.summaries.compared_calls import NEEDED, cut_at_windows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    import pandas as pd

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
    pieces = cut_at_windows(own, windows)
    return Side(pieces, windows, idle[inside & (idle["rank"] == rank)])


def largest_terms(terms: Mapping[str, Fraction]) -> list[tuple[str, Fraction]]:
    """Return the largest terms that are not 0, the largest first."""
    found = sorted(terms.items(), key=lambda term: abs(term[1]), reverse=True)
    return [(term, delta) for term, delta in found[:MOST_TERMS] if delta]
