"""The time from first to last, without what lies between recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_EARLIEST = -(1 << 62)


def recorded_span(tables: Sequence[pa.Table], trace: pa.Table | None) -> int:
    """Return the time from the first start to the last end, added up over the recordings.

    Args:
        tables: columns `start_ns` and `dur_ns`, of one rank: ranks may have clocks of their own.
        trace: the rank's rows of the canonical table `trace`; None: it is one recording.
    """
    start = np.concatenate([int_column(table, "start_ns", 0) for table in tables])
    if not len(start):
        return 0
    end = start + np.concatenate([int_column(table, "dur_ns", 0) for table in tables])
    begins = np.array([_EARLIEST])
    if trace is not None and trace.num_rows:
        begins = np.sort(int_column(trace, "start_ns", _EARLIEST))
    place = np.maximum(np.searchsorted(begins, start, "right") - 1, 0)
    first = np.full(len(begins), np.iinfo(np.int64).max)
    last = np.full(len(begins), np.iinfo(np.int64).min)
    np.minimum.at(first, place, start)
    np.maximum.at(last, place, end)
    used = last > first
    return int((last[used] - first[used]).sum())
