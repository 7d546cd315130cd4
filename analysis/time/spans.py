"""The time from first to last, without what lies between recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

_EARLIEST = -(1 << 62)


def recorded_span(tables: Iterable[pa.Table], trace: pa.Table | None) -> int:
    """Return the time from the first start to the last end, added up over the recordings.

    Args:
        tables: columns `start_ns` and `dur_ns`, of one rank: ranks may have clocks of their own;
            whole or in parts.
        trace: the rank's rows of the canonical table `trace`; None: it is one recording.
    """
    begins = np.array([_EARLIEST])
    if trace is not None and trace.num_rows:
        begins = np.sort(int_column(trace, "start_ns", _EARLIEST))
    first = np.full(len(begins), np.iinfo(np.int64).max)
    last = np.full(len(begins), np.iinfo(np.int64).min)
    for table in tables:
        start = int_column(table, "start_ns", 0)
        place = np.maximum(np.searchsorted(begins, start, "right") - 1, 0)
        np.minimum.at(first, place, start)
        np.maximum.at(last, place, start + int_column(table, "dur_ns", 0))
    used = last > first
    return int((last[used] - first[used]).sum())
