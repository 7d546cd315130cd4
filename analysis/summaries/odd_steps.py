"""What was different in one step: the terms of its difference from another step."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.compare import Side, compare_sides
from pyprof2.analysis.summaries.compared_calls import NEEDED, cut_at_windows

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from fractions import Fraction

MOST_TERMS: Final = 3
_NO_NUMBER: Final = -1
"""Stands for a device that has no ordinal."""


def one_step(rows: pd.DataFrame, idle: pd.DataFrame, step: Mapping[Hashable, Any]) -> Side:
    """Return one step on one device, to be compared.

    Args:
        rows: of the profile.
        idle: rows of the table `idle`.
        step: a row of the table `steps`; its times are known.
    """
    device = _NO_NUMBER if pd.isna(step["device"]) else step["device"]
    begin, end = step["start_ns"], step["start_ns"] + step["dur_ns"]
    own, spent = (
        frame[(frame["rank"] == step["rank"]) & (frame["device"].fillna(_NO_NUMBER) == device)]
        for frame in (rows, idle)
    )
    window = pd.DataFrame(
        [
            {
                "rank": step["rank"], "device": device, "devices": 1, "step": step["step"],
                "start_ns": begin, "end_ns": end, "busy_ns": step["dur_ns"] - step["idle_ns"],
            }
        ]
    )  # fmt: skip
    pieces = cut_at_windows(own[list(NEEDED)].assign(device=device), window)
    # By time: a number comes again where a rank has several recordings.
    return Side(pieces, window, spent[spent["start_ns"].between(begin, end - 1)])


def step_difference(
    rows: pd.DataFrame, idle: pd.DataFrame, before: pd.DataFrame, after: pd.DataFrame
) -> dict[str, Fraction]:
    """Return the terms of the difference of two steps of a rank; they add up to it exactly.

    Args:
        rows: of the profile.
        idle: rows of the table `idle`.
        before: rows of the table `steps` of one step, one for each device.
        after: those of another step, of the same devices.

    Returns:
        Terms and ns, the means over devices.
    """
    devices = [frame.sort_values("device").to_dict("records") for frame in (before, after)]
    terms: defaultdict[str, Any] = defaultdict(int)
    for pair in zip(*devices, strict=True):
        one, other = (one_step(rows, idle, step) for step in pair)
        found = compare_sides(one, other).terms
        for term, delta in zip(found["term"], found["delta_ns"], strict=True):
            terms[term] += delta / len(before)
    return dict(terms)


def largest_terms(terms: Mapping[str, Fraction]) -> list[tuple[str, Fraction]]:
    """Return the largest terms that are not 0, the largest first."""
    found = sorted(terms.items(), key=lambda term: abs(term[1]), reverse=True)
    return [(term, delta) for term, delta in found[:MOST_TERMS] if delta]
