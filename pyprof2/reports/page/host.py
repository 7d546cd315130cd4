"""The page of a recording without a device: parts of its steps, lanes of threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.time.step_parts import HOST_INPUT, host_parts
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.api.run import Run

_LANE: Final = ("start_ns", "dur_ns", "tid", "op", "layer", "category", "parent_op_id")


def parts_of_host(run: Run, *, whole: bool) -> pd.DataFrame:
    """Return the parts of the windows of steps, or of all that was recorded.

    Args:
        run: without a device.
        whole: whether of all that was recorded.

    Returns:
        `rank, device` (null), `step, start_ns, part, time_ns`, as `run.step_parts`.
    """
    found = []
    for rank in run.tables_of():
        ops = rank.read("ops", HOST_INPUT)
        windows = _whole(ops) if whole else StepWindows.of(rank.read("steps"))
        parts = host_parts(ops, windows)
        at = parts["window"].to_numpy("int64")
        found.append(
            parts[["part", "time_ns"]].assign(
                rank=rank.rank, step=windows.step[at], start_ns=windows.start[at]
            )
        )
    rows = pd.concat(found, ignore_index=True)
    rows["device"] = pd.array([None] * len(rows), dtype="Int64")
    return rows[["rank", "device", "step", "start_ns", "part", "time_ns"]]


def _whole(ops: Any) -> StepWindows:
    """Return one window from the first op to the end of the last; none where there is no op."""
    start = int_column(ops, "start_ns", 0)
    end = start + int_column(ops, "dur_ns", 0)
    times = (start.min(), end.max()) if len(start) else ()
    return StepWindows(
        *(np.array(each, np.int64) for each in ([0][: len(times)], times[:1], times[1:]))
    )


def lanes(run: Run) -> pd.DataFrame:
    """Return the ops that are in no other, with the columns that time lines are made of."""
    return pd.concat(list(_lanes(run)), ignore_index=True)


def _lanes(run: Run) -> Iterator[pd.DataFrame]:
    for rank in run.tables_of():
        ops = rank.read("ops", _LANE).to_pandas()
        own = ops[ops["parent_op_id"].isna()]
        yield own.assign(rank=rank.rank, name=own["op"], track=own["tid"], device=None)


def recorded_windows(run: Run) -> Iterator[dict[str, Any]]:
    """Give the window of each rank from its first op to the end of the last."""
    for rank in run.tables_of():
        window = _whole(rank.read("ops", HOST_INPUT))
        if len(window.step):
            yield {
                "rank": rank.rank, "device": None, "step": None, "why": "recording",
                "start_ns": int(window.start[0]), "end_ns": int(window.end[0]),
            }  # fmt: skip
