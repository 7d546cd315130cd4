"""The time of the user's own ranges on the host, of recordings that have neither ops nor GPU work.

They are no rows of the profile, whose times are of work: ranges say how long the host was in them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.axes import SEPARATOR
from pyprof2.analysis.intervals import Nest
from pyprof2.columns import combine_keys, lookup
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import text, whole

INPUT: Final = ("start_ns", "dur_ns", "rank", "pid", "tid", "name", "kind")
USERS_KINDS: Final = ("annotation", "step", "layer")
"""The kinds of ranges that the user's code, or a library of it, marks."""
RANGE_TIMES: Final = (
    text("range", "Names of the ranges, outermost first."),
    whole("count", "How often it was entered."),
    whole("host_ns", "Time on the host from begin to end.", "ns"),
    whole("host_self_ns", "Of it the time in no range inside.", "ns"),
)


def range_times(ranges: pa.Table, depth: int | None = None) -> pd.DataFrame:
    """Return `RANGE_TIMES`, the longest first; no rows where there are no ranges.

    Args:
        ranges: columns `INPUT` of table `ranges`, of all ranks.
        depth: how many names of a path to keep; None: all.
    """
    rows = ranges.filter(pa.array(has_text(ranges, "kind", USERS_KINDS)))
    start, dur, *thread = (int_column(rows, name, 0) for name in INPUT[:5])
    code, names = code_column(rows, "name")
    parent = Nest.of(combine_keys(*thread), start, start + dur).parents()
    inside = np.zeros(len(start), np.int64)
    np.add.at(inside, parent[parent >= 0], dur[parent >= 0])
    paths: list[tuple[str, ...]] = [(names[each] or "",) for each in code.tolist()]
    level = parent
    while (level >= 0).any():
        above = zip(lookup(code, level, -1).tolist(), paths, strict=True)
        paths = [(names[at] or "", *path) if at >= 0 else path for at, path in above]
        level = lookup(parent, level, -1)
    # The time of a range whose path is cut is in that of the range around, and not counted twice.
    is_whole = np.array([depth is None or len(path) <= depth for path in paths], bool)
    found = pd.DataFrame({
        "range": [SEPARATOR.join(path[:depth]) for path in paths],
        "count": is_whole.astype(np.int64),
        "host_ns": np.where(is_whole, dur, 0),
        "host_self_ns": dur - inside,
    }).groupby("range", sort=False, as_index=False, observed=True).sum()  # fmt: skip
    return found.sort_values("host_ns", ascending=False, kind="stable", ignore_index=True)
