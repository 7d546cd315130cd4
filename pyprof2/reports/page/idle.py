"""Idle time on the page: summed along all that `pyprof2 idle` can sum along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.summaries.cube import OTHER_STEPS, SMALL
from pyprof2.analysis.summaries.idle_profile import ADDED, added_up
from pyprof2.api import run_time
from pyprof2.columns import as_pandas
from pyprof2.frames import shown_line
from pyprof2.reports.page.values import numbers, records, table
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import pandas as pd

    from pyprof2.api.run import Run

AXES: Final = (
    "rank", "device", "step", "group", "cause", "op", "layer", "source", "call", "thread", "note",
)  # fmt: skip
MOST_ROWS: Final = 20_000
_COARSE: Final = ("rank", "device", "step", "group", "cause")
_FOLDED: Final = ("op", "layer", "source", "call", "thread", "note")


def idle_of(run: Run, apart: Mapping[int, Collection[int]]) -> dict[str, Any]:
    """Return the rows of table `idle`, summed along `AXES`; see `folded`."""
    # A long table is summed part by part.
    parts = run_time.idle_parts(run.tables, (*AXES, *ADDED))
    roots = run.tables.source_roots
    sums = as_pandas(added_up(parts, AXES), IDLE.never_null)
    frame = folded(sums[[*AXES, "time_ns", "count"]], apart, MOST_ROWS)
    made = table(frame.drop(columns="step"), {"source": lambda line: shown_line(line, roots)})
    return {"rows": len(frame), "columns": {"step": numbers(frame["step"])} | made["columns"]}


def folded(sums: pd.DataFrame, apart: Mapping[int, Collection[int]], most: int) -> pd.DataFrame:
    """Return idle time in about `most` rows or fewer, as the profile is folded.

    Args:
        sums: by `AXES`.
        apart: the steps to keep where there are too many rows, by rank.
        most: see above; time by rank, device, step, group and cause stays exact in any case.
    """
    sums = _plain(sums)
    if len(sums) > most:
        pairs = zip(sums["rank"], sums["step"], strict=True)
        other = [step is not None and step not in apart.get(rank, ()) for rank, step in pairs]
        sums.loc[np.array(other), "step"] = OTHER_STEPS
        sums = _plain(_summed(sums))
    if len(sums) > most:
        room = max(0, most - len(sums[list(_COARSE)].drop_duplicates()))
        small = sums["time_ns"].sort_values(ascending=False, kind="stable").index[room:]
        sums.loc[small, list(_FOLDED)] = SMALL
        sums = _summed(sums)
    return sums


def _plain(sums: pd.DataFrame) -> pd.DataFrame:
    """Return the sums with keys that may be replaced by a text, null as None."""
    plain = sums.astype(dict.fromkeys(AXES, object))
    return plain.where(plain.notna(), None)


def _summed(idle: pd.DataFrame) -> pd.DataFrame:
    by = idle.groupby(list(AXES), dropna=False, observed=True, sort=False)
    sums: pd.DataFrame = by[["time_ns", "count"]].sum().reset_index()
    return sums


def windows_of(run: Run) -> list[dict[str, Any]]:
    """Return how long each device was recorded, active, busy and idle."""
    return records(run_time.idle_windows(run.tables))
