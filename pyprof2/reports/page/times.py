"""Times on the page: in ns from the first that was recorded of each rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.run import Run


def zeros(run: Run) -> dict[int, int]:
    """Return the first time that was recorded of each rank, on the clock of the trace."""
    trace = run.trace[["rank", "start_ns"]].dropna()
    found = trace.groupby("rank")["start_ns"].min()
    known = dict(zip(found.index.tolist(), found.astype("int64").tolist(), strict=True))
    return {rank: known.get(rank, 0) for rank in run.summary["ranks"]}


def from_zero(rank: pd.Series, time: pd.Series, zero: dict[int, int]) -> pd.Series:
    """Return times of these ranks from the first that was recorded of each."""
    return time - np.array([zero[each] for each in rank.tolist()] or [0], np.int64)[: len(time)]
