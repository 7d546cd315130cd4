"""What the windows of a recording without a device are made of: time in ops, and outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.intervals import merged, time_within
from pyprof2.recording import int_column

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.time.step_windows import StepWindows

INPUT: Final = ("start_ns", "dur_ns")
"""The columns of the table `ops` that are read."""

PARTS: Final = {
    "host_ops": "in ops of PyTorch",
    "host_rest": "outside of ops: Python, loading of data, waiting",
}
"""The parts, which add up to a window."""


def host_parts(ops: pa.Table, windows: StepWindows) -> pd.DataFrame:
    """Return the parts of each window: the time in which any thread was in an op, and the rest.

    Args:
        ops: columns `INPUT` of the canonical table.
        windows: of a rank; they do not overlap.

    Returns:
        `window` (its place in `windows`), `part` (one of `PARTS`), `time_ns`: more than 0.
    """
    start = int_column(ops, "start_ns", 0)
    in_ops = time_within(
        *merged(start, start + int_column(ops, "dur_ns", 0)), windows.start, windows.end
    )
    times = zip(PARTS, (in_ops, windows.end - windows.start - in_ops), strict=True)
    rows = [
        pd.DataFrame({"window": range(len(time)), "part": part, "time_ns": time})
        for part, time in times
    ]
    found = pd.concat(rows, ignore_index=True)
    return found[found["time_ns"] > 0].reset_index(drop=True)
