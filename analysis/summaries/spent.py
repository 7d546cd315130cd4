"""Where the time of devices went: what the first sentence on a recording rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.time.gaps import NEVER
from pyprof2.recording import int_column
from pyprof2.result_tables import IDLE_SUMS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.time.step_times import TimedStep

IDLE_INPUT: Final = ["cause", "source", "time_ns", "step"]
"""The columns of the table `idle` that `idle_sums` reads."""

LARGE: Final = 0.1
"""The least share of the time from which copies and communication are looked at."""
_NAMED: Final = 0.25
"""A line with less of a cause's time is not named beside it: it would pass for the whole."""

_ALONE: Final = ("copies", "comm_exposed")
_OF_WINDOWS: Final = ("dur_ns", "copy_only_ns", "comm_only_ns")
OF_STEPS: Final = ("idle_ns", *_OF_WINDOWS)
"""The columns of the table `steps` that `spent` reads."""
_KEYS: Final = ["cause", "source", "in_step"]


@dataclass(frozen=True)
class Spent:
    """The time of all devices, added up over them, and what they did in it.

    Their work is that in the windows of steps where there are any, else all that was recorded.
    First steps that took much longer than the others do not count as steps.

    Attributes:
        windows: how many of steps, of all devices; 0: no steps were recorded.
        window_ns: what all of the following is of: these windows, or all that was recorded.
        idle_ns: nothing ran.
        copies_ns: copies ran, and nothing else; None: less than `LARGE` of it.
        comm_ns: communication ran, and nothing else; None: less than `LARGE` of it.
        cause, cause_ns, source: the cause of most of the idle time, how much that is, and the line
            that most of it belongs to, if that is a quarter at least; None, 0, None where there is
            none.
        recorded_ns: all that was recorded.
    """

    windows: int
    window_ns: int
    idle_ns: int
    copies_ns: int | None
    comm_ns: int | None
    cause: str | None
    cause_ns: int
    source: str | None
    recorded_ns: int

    def share(self, time_ns: int | None) -> float:
        """Return a time as a share of the windows."""
        return (time_ns or 0) / max(1, self.window_ns)


def spent(
    summary: Mapping[str, Any],
    steps: Iterable[Mapping[str, Any]],
    idle: Sequence[Mapping[str, Any]],
    recorded_parts: Callable[[], pd.DataFrame],
) -> Spent:
    """Return where the time of devices went.

    Args:
        summary: totals of the run.
        steps: columns `OF_STEPS` of the rows of its table `steps`.
        idle: rows of its table `idle_sums`: those of each rank, which may be in any number of
            parts.
        recorded_parts: returns `part` and `time_ns` of all that was recorded; called only where
            there are no steps, and copies and communication take long enough to matter.
    """
    recorded = _total(idle) + summary["busy_ns"]
    windows = [step for step in steps if step["idle_ns"] is not None]
    sums = [row for row in idle if row["in_step"]] if windows else idle
    if windows:
        whole, *alone = (sum(step[name] or 0 for step in windows) for name in _OF_WINDOWS)
    else:
        whole, alone = recorded, _alone(summary, recorded, recorded_parts)
    copies, comm = (each if each >= LARGE * whole else None for each in alone)
    # The cause of most idle time, and the line that most of that belongs to.
    cause, cause_ns = _most(sums, idle, "cause")
    source = None
    if cause is not None:
        source, source_ns = _most([row for row in sums if row["cause"] == cause], idle, "source")
        if source_ns < _NAMED * cause_ns:
            source = None
    idle_ns = _total(sums)
    return Spent(len(windows), whole, idle_ns, copies, comm, cause, cause_ns, source, recorded)


def idle_sums_without(
    idle: Iterable[pa.Table], steps: Iterable[TimedStep], rank: int
) -> list[dict[str, Any]]:
    """Return the rows of `idle_sums`, where what is in some steps counts as outside of steps.

    Args:
        idle: columns `IDLE_INPUT`, and `start_ns`, of the table `idle` of a rank, in parts.
        steps: those that do not count.
        rank: its number.
    """

    def outside(part: pa.Table) -> pa.Table:
        start, left_out = int_column(part, "start_ns", 0), np.zeros(part.num_rows, bool)
        for each in steps:
            begins = (start >= each.start_ns) & (start < each.start_ns + each.dur_ns)
            left_out |= begins & (int_column(part, "step", NEVER) == each.step)
        step = pc.if_else(pa.array(left_out), pa.scalar(None, part["step"].type), part["step"])
        return part.set_column(part.column_names.index("step"), "step", step)

    found: list[dict[str, Any]] = idle_sums(map(outside, idle), rank).to_pylist()
    return found


def idle_sums(idle: Iterable[pa.Table], rank: int = 0) -> pa.Table:
    """Return the idle time by cause, line, and whether it is in a step, in the order they come.

    Args:
        idle: columns `IDLE_INPUT` of the table `idle`, in any number of parts.
        rank: its number.

    Returns:
        The table `idle_sums`.
    """
    found = _added_up(pa.concat_tables(map(_sums, idle)))
    ranks = pa.array(np.full(found.num_rows, rank, np.int64))
    return IDLE_SUMS.conform(found.append_column("rank", ranks))


def _sums(idle: pa.Table) -> pa.Table:
    rows = idle.append_column("in_step", idle["step"].is_valid())
    return _added_up(rows.select([*_KEYS, "time_ns"]))


def _added_up(rows: pa.Table) -> pa.Table:
    grouped = rows.unify_dictionaries().group_by(_KEYS, use_threads=False)
    found = grouped.aggregate([("time_ns", "sum")])
    # The codes of null that grouping leaves may be anything, and Arrow looks them up to unify them.
    texts = {
        name: found[name].cast(pa.string()).dictionary_encode() for name in ("cause", "source")
    }
    return pa.table(texts | {"in_step": found["in_step"], "time_ns": found["time_ns_sum"]})


def _total(idle: Iterable[Mapping[str, Any]]) -> int:
    return sum(row["time_ns"] for row in idle)


def _alone(
    summary: Mapping[str, Any], recorded: int, recorded_parts: Callable[[], pd.DataFrame]
) -> list[int]:
    """Return how long only copies and only communication ran; 0 where it cannot be much."""
    ledger = summary["ledger"]
    if ledger.get("copy", 0) + ledger.get("comm", 0) < LARGE * recorded:
        return [0, 0]
    parts = recorded_parts()
    times = parts[parts["part"].isin(_ALONE)].groupby("part", observed=True)["time_ns"].sum()
    return [int(times.get(name, 0)) for name in _ALONE]


def _most(
    idle: Sequence[Mapping[str, Any]], every: Sequence[Mapping[str, Any]], column: str
) -> tuple[str | None, int]:
    """Return the text with most of the time, of a tie the first of all there are; and that time."""
    sums: dict[str, int] = {}
    for row in idle:
        if row[column] is not None:
            sums[row[column]] = sums.get(row[column], 0) + row["time_ns"]
    first = dict.fromkeys(row[column] for row in every if row[column] in sums)
    best = max(first, key=sums.__getitem__, default=None)
    return best, sums.get(best or "", 0)
