"""The gaps of devices: when no kernel and no copy ran, and what ended each gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.columns import combine_keys, lookup, row_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int

NEVER: Final = -(1 << 62)
"""A time before everything, and what stands for null."""
_LATER: Final = 1 << 62


class Activities(NamedTuple):
    """Kernels and copies, in order of start.

    Of those that start together, the one whose launch began first comes first, then that of the
    smaller stream.

    Attributes:
        kernel_id, device, stream: as in the canonical tables; `NEVER` for null.
        start, end: in ns.
        launch: row of the call that launched it, -1 where that was not recorded.
        launched: when that call began; `NEVER` for none.
        op_id: as in the canonical tables; -1 for null.
        is_copy: 1 if it is a memcpy or a memset.
    """

    kernel_id: Int
    device: Int
    stream: Int
    start: Int
    end: Int
    launch: Int
    launched: Int
    op_id: Int
    is_copy: Int


_COLUMNS: Final = ("kernel_id", "device", "stream", "start_ns", "dur_ns", "launch_id", "op_id")


def read_activities(
    kernels: pa.Table, copies: pa.Table, launch_id: Int, launch_start: Int
) -> Activities:
    """Return the activities of one rank.

    Args:
        kernels: columns of the canonical table.
        copies: the same.
        launch_id: of the calls that were recorded, in ascending order.
        launch_start: of each.
    """
    both = pa.concat_tables([table.select(_COLUMNS) for table in (kernels, copies)])
    kernel_id, device, stream, start = (int_column(both, name, NEVER) for name in _COLUMNS[:4])
    end = start + np.maximum(0, int_column(both, "dur_ns", 0))
    launch = row_of(launch_id, int_column(both, "launch_id", -1))
    launched = lookup(launch_start, launch, NEVER)
    is_copy = (np.arange(len(start)) >= kernels.num_rows).astype(np.int64)
    order = np.lexsort((kernel_id, stream, np.where(launch >= 0, launched, _LATER), start))
    op_id = int_column(both, "op_id", -1)
    columns = (kernel_id, device, stream, start, end, launch, launched, op_id, is_copy)
    return Activities(*(column[order] for column in columns))


class Gaps(NamedTuple):
    """The gaps, by device and in order of time.

    Attributes:
        device: of the gap.
        start, end: in ns, never equal.
        next: the row of the activity that ends the gap; -1: the recording ends with it.
        is_first: 1 if nothing ran before it.
        before: when the last activity before on the stream of `next` ended; `NEVER`: none did.
        previous_launch: when the call began that launched that one; `NEVER` where not recorded.
        later_launch: the first start of a launch of later work of that stream; far off: of none.
        latest_launch: row of the latest call that launched work of the device; -1 for none.
    """

    device: Int
    start: Int
    end: Int
    next: Int
    is_first: Int
    before: Int
    previous_launch: Int
    later_launch: Int
    latest_launch: Int

    def __len__(self) -> int:
        return len(self.device)


def find_gaps(activities: Activities, window: tuple[int, int] | None) -> Gaps:
    """Return the gaps of all devices that did anything.

    Args:
        activities: of one recording.
        window: start and end of the recording; a device's reaches further where its work does.
    """
    a = activities
    group = combine_keys(a.device, a.stream)
    on_stream = (
        _before(group, a.end, NEVER),
        _before(group, a.launched, NEVER),
        -_before(group[::-1], -np.where(a.launch >= 0, a.launched, _LATER)[::-1], -_LATER)[::-1],
    )
    devices = np.unique(a.device).tolist()
    parts = [_of_device(a, np.flatnonzero(a.device == each), window, on_stream) for each in devices]
    none = (np.empty(0, np.int64),) * len(Gaps._fields)
    return Gaps(*(np.concatenate(column) for column in zip(none, *parts, strict=True)))


def _of_device(
    a: Activities, rows: Int, window: tuple[int, int] | None, on_stream: Sequence[Int]
) -> Gaps:
    start, end = a.start[rows], a.end[rows]
    first, last = recording_window(start, end, window)
    latest = np.maximum.accumulate(np.r_[first, end])
    begin, finish = latest, np.r_[start, last]
    at = np.flatnonzero(finish > begin)
    following = np.r_[rows, -1][at]
    launching = rows[np.argmax(a.launched[rows])]
    before, previous, later = (
        np.where(following >= 0, column[following], missing)
        for column, missing in zip(on_stream, (NEVER, NEVER, _LATER), strict=True)
    )
    is_first = (at == 0).astype(np.int64)
    device, latest_launch = (
        np.full(len(at), value) for value in (a.device[rows[0]], a.launch[launching])
    )
    return Gaps(
        device, begin[at], finish[at], following, is_first, before, previous, later, latest_launch
    )


def recording_window(start: Int, end: Int, window: tuple[int, int] | None) -> tuple[int, int]:
    """Return when the recording of a device's work began and ended.

    Args:
        start: of each piece of work; there is at least one.
        end: of each.
        window: of what the recording says of itself; None: nothing.
    """
    first, last = int(start.min()), int(end.max())
    if window is None:
        return first, last
    return min(first, window[0]), max(last, window[1])


def _before(group: Int, value: Int, none: int) -> Int:
    """Return for each row the greatest value of the rows before it of its group; else `none`."""
    order = np.argsort(group, kind="stable")
    values, rank = np.unique(value[order], return_inverse=True)
    # Groups come one after another, so the key's maximum is that of the row's own group.
    highest = np.maximum.accumulate(group[order] * (len(values) + 1) + rank)
    before = np.r_[-1, highest[:-1]][: len(order)] - group[order] * (len(values) + 1)
    result = np.empty(len(group), np.int64)
    result[order] = np.where(before >= 0, values[np.maximum(before, 0)], none) if len(order) else 0
    return result
