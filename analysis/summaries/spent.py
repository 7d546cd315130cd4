"""Where the time of devices went: what the first sentence on a recording rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import pandas as pd

IDLE_INPUT: Final = ["cause", "source", "time_ns", "step"]
"""The columns of the table `idle` that `spent` reads."""

LARGE: Final = 0.1
"""The least share of the time from which copies and communication are looked at."""

_ALONE: Final = ("copies", "comm_exposed")
_OF_WINDOWS: Final = ("dur_ns", "copy_only_ns", "comm_only_ns")


@dataclass(frozen=True)
class Spent:
    """The time of all devices, added up over them, and what they did in it.

    What they did is in the windows of steps where there are any, else in all that was recorded.

    Attributes:
        windows: how many of steps, of all devices; 0: no steps were recorded.
        window_ns: what all of the following is of: these windows, or all that was recorded.
        idle_ns: nothing ran.
        copies_ns: copies ran, and nothing else; None: less than `LARGE` of it.
        comm_ns: communication ran, and nothing else; None: less than `LARGE` of it.
        cause, cause_ns, source: the cause of most of the idle time, how much that is, and the line
            that most of it belongs to; None, 0, None where there is none.
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
    steps: pd.DataFrame,
    idle: Iterable[pa.Table],
    recorded_parts: Callable[[], pd.DataFrame],
) -> Spent:
    """Return where the time of devices went.

    Args:
        summary: totals of the run.
        steps: its table `steps`.
        idle: columns `IDLE_INPUT` of its table `idle`, in any number of parts.
        recorded_parts: returns `part` and `time_ns` of all that was recorded; called only where
            there are no steps, and copies and communication take long enough to matter.
    """
    sums = pa.concat_tables(map(_sums, idle)).unify_dictionaries()
    recorded = _total(sums) + summary["busy_ns"]
    windows = steps[steps["idle_ns"].notna()]
    if len(windows):
        sums = sums.filter(sums["in_step"])
        whole, *alone = (int(windows[name].sum()) for name in _OF_WINDOWS)
    else:
        whole, alone = recorded, _alone(summary, recorded, recorded_parts)
    copies, comm = (each if each >= LARGE * whole else None for each in alone)
    return Spent(len(windows), whole, _total(sums), copies, comm, *_leading(sums), recorded)


def _sums(idle: pa.Table) -> pa.Table:
    """Return the idle time by cause, line, and whether it is in a step."""
    rows = idle.append_column("in_step", idle["step"].is_valid()).unify_dictionaries()
    keys = ["cause", "source", "in_step"]
    found = rows.group_by(keys, use_threads=False).aggregate([("time_ns", "sum")])
    # The codes of null that grouping leaves may be anything, and Arrow looks them up to unify them.
    texts = {
        name: found[name].cast(pa.string()).dictionary_encode() for name in ("cause", "source")
    }
    return pa.table(texts | {"in_step": found["in_step"], "time_ns": found["time_ns_sum"]})


def _total(idle: pa.Table) -> int:
    return int(pc.sum(idle["time_ns"]).as_py() or 0)


def _alone(
    summary: Mapping[str, Any], recorded: int, recorded_parts: Callable[[], pd.DataFrame]
) -> list[int]:
    """Return how long only copies and only communication ran; 0 where it cannot be much."""
    ledger = summary["ledger"]
    if ledger.get("copy", 0) + ledger.get("comm", 0) < LARGE * recorded:
        return [0, 0]
    parts = recorded_parts()
    times = parts[parts["part"].isin(_ALONE)].groupby("part")["time_ns"].sum()
    return [int(times.get(name, 0)) for name in _ALONE]


def _leading(idle: pa.Table) -> tuple[str | None, int, str | None]:
    """Return the cause of most idle time, that time, and the line that most of it belongs to."""
    cause, time_ns = _most(idle, "cause")
    if cause is None:
        return None, 0, None
    source, _ = _most(idle.filter(pc.equal(idle["cause"], cause)), "source")
    return cause, time_ns, source


def _most(idle: pa.Table, column: str) -> tuple[str | None, int]:
    """Return the text with most of the time, the first of a tie, and that time."""
    codes, texts = code_column(idle, column)
    known = codes >= 0
    sums = np.zeros(len(texts), np.int64)
    np.add.at(sums, codes[known], int_column(idle, "time_ns", 0)[known])
    there = np.flatnonzero(np.bincount(codes[known], minlength=len(texts)))
    if not len(there):
        return None, 0
    best = int(there[np.argmax(sums[there])])
    return texts[best], int(sums[best])
