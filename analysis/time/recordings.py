"""The recordings of a rank, one after another: their tables, when they ran, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.columns import values_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pandas as pd

    from pyprof2.analysis.intervals import Bool, Int


def recordings(tables: Mapping[str, pa.Table]) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """Yield each rank with the tables of each of its recordings, in order."""
    ranks = tables["trace"]["rank"].unique().to_pylist()
    for rank in ranks:
        own = dict(tables)
        # With one rank all rows are its own, and no copy of them is made.
        if len(ranks) > 1:
            own = {name: t.filter(pc.equal(t["rank"], rank)) for name, t in tables.items()}
        begins = np.sort(int_column(own["trace"], "start_ns", NEVER))
        if len(begins) == 1:
            yield rank, own
            continue
        for at in range(len(begins)):
            yield (
                rank,
                {
                    name: table
                    if "start_ns" not in table.column_names
                    else table.filter(
                        pa.array(recording_at(int_column(table, "start_ns", NEVER), begins) == at)
                    )
                    for name, table in own.items()
                },
            )


def recording_at(start: Int, begins: Int) -> Int:
    """Return the recording that each start is in: the last one to begin before it, or the first."""
    return np.maximum(np.searchsorted(begins, start, "right") - 1, 0)


def source_root(trace: pa.Table) -> str | None:
    """Return the folder of the user's own code that a recording names."""
    return next((root for root in trace["source_root"].to_pylist() if root), None)


def recorded_span(tables: Iterable[pa.Table], trace: pa.Table | None) -> int:
    """Return the time from the first start to the last end, added up over the recordings.

    Args:
        tables: columns `start_ns` and `dur_ns`, of one rank: ranks may have clocks of their own;
            whole or in parts.
        trace: the rank's rows of the canonical table `trace`; None: it is one recording.
    """
    begins = np.array([NEVER])
    if trace is not None and trace.num_rows:
        begins = np.sort(int_column(trace, "start_ns", NEVER))
    first, last = extents(tables, begins)
    used = last > first
    return int((last[used] - first[used]).sum())


def extents(tables: Iterable[pa.Table], begins: Int) -> tuple[Int, Int]:
    """Return the first start and the last end in each recording.

    Where there is none they are the largest and the least int64.

    Args:
        tables: columns `start_ns` and `dur_ns`.
        begins: when the recordings begin.
    """
    first = np.full(len(begins), np.iinfo(np.int64).max)
    last = np.full(len(begins), np.iinfo(np.int64).min)
    for table in tables:
        start = int_column(table, "start_ns", 0)
        place = recording_at(start, begins)
        np.minimum.at(first, place, start)
        np.maximum.at(last, place, start + int_column(table, "dur_ns", 0))
    return first, last


def recorded_window(trace: pa.Table) -> tuple[int, int] | None:
    """Return when a recording began and ended, as it says of itself; None: it does not."""
    start, end = (int_column(trace, name, NEVER) for name in ("start_ns", "end_ns"))
    known = start > NEVER
    return (int(start[known].min()), int(end[known].max())) if known.any() else None


def window_with(start: Int, end: Int, window: tuple[int, int] | None) -> tuple[int, int]:
    """Return a window, extended to what ran in it.

    Args:
        start: of what ran; there is at least one.
        end: of each.
        window: when the recording says it began and ended; None: it does not say.
    """
    first, last = int(start.min()), int(end.max())
    if window is None:
        return first, last
    return min(first, window[0]), max(last, window[1])


class DeviceWindow(NamedTuple):
    """A device in one recording: the recorded window, first to last activity, and the busy time."""

    device: int | None
    start_ns: int
    end_ns: int
    span_ns: int
    busy_ns: int


def device_windows(kernels: pa.Table, copies: pa.Table, trace: pa.Table) -> list[DeviceWindow]:
    """Return the windows of the devices that did anything in one recording."""
    names = ["device", "start_ns", "dur_ns"]
    both = pa.concat_tables([table.select(names) for table in (kernels, copies)])
    device, start = int_column(both, "device", NEVER), int_column(both, "start_ns", 0)
    end = start + np.maximum(0, int_column(both, "dur_ns", 0))
    devices, found = values_of(device).tolist(), []
    for each in devices:
        own: Bool | slice = device == each if len(devices) > 1 else slice(None)
        first, last = window_with(start[own], end[own], recorded_window(trace))
        span = int(end[own].max() - start[own].min())
        busy = union_length(start[own], end[own])
        found.append(DeviceWindow(None if each == NEVER else each, first, last, span, busy))
    return found


def windows_of_ranks(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Return how long each device was recorded, active and busy, summed over recordings.

    Args:
        tables: the columns `idle.INPUT` of `kernels`, `copies` and `trace` of all ranks.

    Returns:
        One row per rank and device: `rank, device, window_ns, span_ns, busy_ns, idle_ns`, and
        `span_idle_ns`, what is idle between the first activity and the last one.
    """
    import pandas as pd

    rows = [
        (rank, w.device, w.end_ns - w.start_ns, w.span_ns, w.busy_ns)
        for rank, own in recordings(tables)
        for w in device_windows(own["kernels"], own["copies"], own["trace"])
    ]
    names = ["rank", "device", "window_ns", "span_ns", "busy_ns"]
    # Beside a null, pandas would make a number a float, and another number.
    frame = pd.DataFrame(rows, columns=names, dtype=object).astype(
        dict.fromkeys(names, "int64") | {"device": "Int64"}
    )
    frame = frame.groupby(["rank", "device"], dropna=False, as_index=False, observed=True).sum()
    frame["idle_ns"] = frame["window_ns"] - frame["busy_ns"]
    frame["span_idle_ns"] = frame["span_ns"] - frame["busy_ns"]
    return frame
