"""GPU work whose record cannot be right: counted, and what is there again is left out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.columns import order_of
from pyprof2.errors import TraceError
from pyprof2.problems import WORK_AT_ZERO, WORK_REPEATED, WORK_TOO_LONG
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.recording import Recording, Rows, Spool

MOST_DEVICES: Final = 1024
"""More than any machine has, shared ones counted by their parts."""
_HOUR_NS: Final = 3600 * 10**9
_NONE: Final = -(1 << 63)
_TELLING: Final = ("correlation_id", "device", "stream", "kernel", "kind", "graph_node_id")
"""Columns that, beside its times, say which kernel or copy a row is of."""


def examine_work(recording: Recording, path: Path) -> None:
    """Count GPU work that is odd among the problems of a recording, and drop its repeats.

    Odd is what lasts over an hour, and what is at time 0 where all other work is over an hour away.
    A repeat is equal to an earlier row in start, duration and `_TELLING`: a stream does one thing
    at a time.

    Raises:
        TraceError: there are more devices than any machine has; `path` is the file.
    """
    spool = recording.spool
    (device,) = _columns(spool, ("device",))
    if (count := len(np.unique(device))) > MOST_DEVICES:
        msg = (
            f"{path}: its GPU work names {count:,} devices, and no machine has more than "
            f"{MOST_DEVICES:,}; the numbers are wrong, or the file holds many jobs: record again, "
            "or split it"
        )
        raise TraceError(msg)
    repeats = _repeats(spool)
    if len(repeats):
        spool.drop("activities", repeats)
        recording.problems[WORK_REPEATED] += len(repeats)
    start, dur = _columns(spool, ("start_ns", "dur_ns"))
    too_long = int((dur > _HOUR_NS).sum())
    others = np.abs(start[start != 0])
    is_far = bool(len(others)) and int(others.min()) > _HOUR_NS
    for problem, count in (
        (WORK_TOO_LONG, too_long),
        (WORK_AT_ZERO, int((start == 0).sum()) if is_far else 0),
    ):
        if count:
            recording.problems[problem] += count


def _repeats(spool: Spool) -> Rows:
    """Return the rows that repeat an earlier one."""
    keys = _columns(spool, ("start_ns", "dur_ns", "correlation_id"))
    order = order_of(*keys)
    same = np.ones(max(0, len(order) - 1), bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    rows = np.sort(order[np.r_[same, False] | np.r_[False, same]]) if same.any() else order[:0]
    if not len(rows):
        return rows
    columns = (*keys[:2], *_columns(spool, _TELLING))
    distinguishing = np.stack([column[rows] for column in columns])
    _, first = np.unique(distinguishing, axis=1, return_index=True)
    return np.delete(rows, first)


def _columns(spool: Spool, names: tuple[str, ...]) -> list[Rows]:
    """Return columns of the GPU's activities in the order of the file, texts as codes."""
    raw = spool.raw("activities", names)
    return [int_column(raw, name, _NONE if name.endswith("_id") else -1) for name in names]
