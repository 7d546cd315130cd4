"""Collectives that a worker thread does, as gloo's: an op only hands them over.

Such an op returns at once, so its time is no collective's: the worker's range `gloo:…` is. Work is
done in the order in which it is handed over, whatever the worker calls it (gloo does a
reduce_scatter as an all_reduce).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.job.descriptions import Described, with_range
from pyprof2.analysis.job.kinds import is_work
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

SAID: Final = ("in_bytes", "out_bytes", "dtype", "bytes_source")
"""The columns of a member that the range of its work may say."""
_HANDED: Final = re.compile(r"c10d::|_c10d_functional(?:_autograd)?::")


def on_workers(
    members: pd.DataFrame, ranges: pa.Table, said: Mapping[int, Described]
) -> pd.DataFrame:
    """Return members of ops with the times of the work that they handed over.

    `issued_ns` stays the start of the op. Where ops and work are not as many, or any work began
    before its op, nothing is known of which is whose: then the times stay those of the ops. Sizes
    that an op does not say are those of its work, where that is of the same kind.

    Args:
        members: without kernel; `op`, `kind`, `group_size`, `start_ns`, `dur_ns`, `transport`, and
            what the work may say: `SAID`.
        ranges: `name`, `start_ns`, `dur_ns` of the rank.
        said: by row of `ranges`, what those say that were called with tensors.
    """
    rows, (work, start, dur) = _handed_over(members), _work(ranges)
    order = rows[np.argsort(members["start_ns"].to_numpy(np.int64)[rows], kind="stable")]
    issued = members["start_ns"].to_numpy(np.int64)[order]
    if not len(order) or len(order) != len(start) or (start < issued).any():
        return members
    place = members.index[order]
    found = members.copy()
    found.loc[place, "start_ns"] = pd.array(start, "Int64")
    found.loc[place, "dur_ns"] = pd.array(dur, "Int64")
    found.loc[place, "transport"] = "gloo"
    found_in = {at: said[row] for at, row in zip(place, work.tolist(), strict=True) if row in said}
    for at, own in found_in.items():
        size = found.loc[at, "group_size"]
        known = Described(found.loc[at, "kind"], size=None if pd.isna(size) else int(size))
        known = with_range(known, str(found.loc[at, "op"]), [own])
        if known.bytes_source and pd.isna(found.loc[at, "bytes_source"]):
            for name in SAID:
                found.loc[at, name] = getattr(known, name)
    return found


def _handed_over(members: pd.DataFrame) -> Int:
    """Return the positions of the ops that may hand work over; no one rank's alone does any."""
    names = members["op"].map(lambda name: bool(_HANDED.match(name or ""))).to_numpy(bool)
    alone = (members["group_size"] == 1).fillna(value=False).to_numpy(bool)
    return np.flatnonzero(names & ~alone)


def _work(ranges: pa.Table) -> tuple[Int, Int, Int]:
    """Return row, start and duration of the ranges in which workers communicate, in order."""
    code, names = code_column(ranges, "name")
    works = np.array([*map(is_work, names), False], bool)[code]
    start, dur = (int_column(ranges, name, 0)[works] for name in ("start_ns", "dur_ns"))
    order = np.lexsort((dur, start))
    return np.flatnonzero(works)[order], start[order], dur[order]
