"""The gaps of devices: when no kernel and no copy ran, and what ended each gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import ENDLESS
from pyprof2.columns import combine_keys, distinct, groups_of, lookup, order_of, row_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyprof2.analysis.intervals import Int

NEVER: Final = -ENDLESS
"""A time before everything, and what stands for null."""


class DeviceActivities(NamedTuple):
    """Kernels and copies, in order of start.

    Where several start together, the one whose launch began first comes first, then that of the
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
) -> DeviceActivities:
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
    order = order_of(start, np.where(launch >= 0, launched, ENDLESS), stream, kernel_id)
    op_id = int_column(both, "op_id", -1)
    columns = (kernel_id, device, stream, start, end, launch, launched, op_id, is_copy)
    return DeviceActivities(*(column[order] for column in columns))


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
        latest_launch: of the gap at the end, the latest call that launched work of the device; -1
            for none.
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

    def with_others(self, others: Gaps) -> Gaps:
        """Return these gaps, and then the others."""
        return Gaps(*(np.concatenate(both) for both in zip(self, others, strict=True)))

    def with_late_host(self, activities: DeviceActivities) -> Gaps:
        """Return the gaps in which the host may not have handed over yet what comes next.

        Of the others nothing rests on what else the host did: mostly they are the most.
        """
        launched = lookup(activities.launched, self.next, ENDLESS)
        return Gaps(*(column[launched > self.start] for column in self))


class GapFinder:
    """Finds the gaps of one device, from windows of its activities in order of time.

    Attributes:
        device: the ordinal.
        until: the time up to which gaps are found: no later one begins before it.
        count: the number of gaps so far.
        latest_launch: the id of the latest call so far that launched work of the device, or -1.
    """

    def __init__(self, device: int, window: tuple[int, int]) -> None:
        """Begin at the start of the recording.

        Args:
            device: the ordinal, `NEVER` for null.
            window: when the recording of its work began and ended, see `recordings.window_with`.
        """
        self.device = device
        self.until, self._last = window
        self.count = 0
        self._is_first = True
        self._ended: dict[int, int] = {}
        self._launched: dict[int, int] = {}
        self._latest = NEVER
        self.latest_launch = -1

    def next(self, a: DeviceActivities, later: Mapping[int, int]) -> Gaps:
        """Return the gaps that activities end.

        Args:
            a: those of a window; `launch` is a row of `launch_id`.
            later: by stream the first start of a launch of work in later windows.
        """
        latest = np.maximum.accumulate(np.r_[self.until, a.end])
        following = np.flatnonzero(a.start > latest[:-1])
        found = self._gaps(
            latest[:-1][following], a.start[following], following, self._on_stream(a, later)
        )
        found.is_first[(following == 0) & self._is_first] = 1
        self._is_first, self.until = self._is_first and not len(a.start), int(latest[-1])
        return found

    def take_launches(self, a: DeviceActivities, launch_id: Int) -> None:
        """Remember the latest call so far that launched any of these activities."""
        at = int(np.argmax(a.launched)) if len(a.launched) else -1
        if at >= 0 and a.launched[at] > self._latest:
            self._latest = int(a.launched[at])
            self.latest_launch = int(launch_id[a.launch[at]])

    def end(self) -> Gaps:
        """Return the gap at the end of the recording, if there is one."""
        is_one = self._last > self.until
        begin, finish = (np.full(int(is_one), t) for t in (self.until, self._last))
        none = (np.empty(0, np.int64),) * 3
        return self._gaps(begin, finish, np.full(int(is_one), -1), none)

    def _on_stream(self, a: DeviceActivities, later: Mapping[int, int]) -> tuple[Int, Int, Int]:
        """Return for each activity the columns `before`, `previous_launch`, `later_launch`."""
        streams, group = distinct(a.stream)
        names = streams.tolist()
        ended, launched, coming = (
            np.array([known.get(each, none) for each in names], np.int64)[group]
            for known, none in (
                (self._ended, NEVER), (self._launched, NEVER), (later, ENDLESS)
            )
        )  # fmt: skip
        launch = np.where(a.launch >= 0, a.launched, ENDLESS)
        found = (
            np.maximum(_before(group, a.end, NEVER), ended),
            np.maximum(_before(group, a.launched, NEVER), launched),
            np.minimum(-_before(group[::-1], -launch[::-1], -ENDLESS)[::-1], coming),
        )
        for known, values in ((self._ended, a.end), (self._launched, a.launched)):
            most = np.full(len(names), NEVER)
            np.maximum.at(most, group, values)
            for each, value in zip(names, most.tolist(), strict=True):
                known[each] = max(known.get(each, NEVER), value)
        return found

    def _gaps(self, start: Int, end: Int, following: Int, on_stream: Sequence[Int]) -> Gaps:
        before, previous, later = (
            lookup(column, following, missing)
            for column, missing in zip(on_stream, (NEVER, NEVER, ENDLESS), strict=True)
        )
        device = np.full(len(start), self.device)
        launch = np.where(following < 0, self.latest_launch, -1)
        is_first = np.zeros(len(start), np.int64)
        self.count += len(start)
        return Gaps(device, start, end, following, is_first, before, previous, later, launch)


def later_launches(windows: Iterable[DeviceActivities]) -> list[dict[tuple[int, int], int]]:
    """Return for each window the first start of a launch of work in any later one.

    It is by device and stream; streams without such are left out.
    """
    first = []
    for a in windows:
        launched = a.launch >= 0
        group = combine_keys(a.device[launched], a.stream[launched])
        rows, place = groups_of(group)
        least = np.full(len(rows), ENDLESS)
        np.minimum.at(least, place, a.launched[launched])
        places = zip(
            a.device[launched][rows].tolist(), a.stream[launched][rows].tolist(), strict=True
        )
        first.append(dict(zip(places, least.tolist(), strict=True)))
    known: dict[tuple[int, int], int] = {}
    found = []
    for of_window in reversed(first):
        found.append(dict(known))
        known |= {k: min(v, known.get(k, ENDLESS)) for k, v in of_window.items()}
    return found[::-1]


def _before(group: Int, value: Int, none: int) -> Int:
    """Return for each row the greatest value of the rows before it of its group; else `none`."""
    if not len(group):
        return value.copy()
    order = np.argsort(group, kind="stable")
    values, known = value[order], value[order] != none
    least = int(values[known].min(initial=ENDLESS)) - 1
    code = np.where(known, values - least, 0)
    codes: Int | None = None
    if int(code.max() + 1) * int(group.max() + 1) > ENDLESS:  # years apart, in many groups
        codes, code = np.unique(np.append(code, 0), return_inverse=True)
        code = code[:-1]
    # Groups come one after another, so the key's maximum is that of the row's own group.
    first = group[order] * (code.max() + 1)
    highest = np.maximum.accumulate(first + code)
    before = np.maximum(np.r_[-1, highest[:-1]] - first, 0)
    found = before if codes is None else codes[before]
    result = np.empty(len(group), np.int64)
    result[order] = np.where(before > 0, found + least, none)
    return result
