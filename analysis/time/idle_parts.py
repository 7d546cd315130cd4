"""Idle time of one recording, part by part: a window of time after another, device by device.

A window is cut where activities of the device begin, so a gap is in one window, whole. Of the host
what holds any instant of its gaps is read, and what handed over the work that ends them. From one
window to the next go when the work of each stream ended (`GapFinder`), what is still open, and the
last launch of each process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.parted import ENDLESS, Parted
from pyprof2.analysis.time.call_facts import CALL_COLUMNS, read_calls
from pyprof2.analysis.time.causes import BLOCKING, CODES
from pyprof2.analysis.time.gaps import (
    NEVER,
    Activities,
    GapFinder,
    Gaps,
    later_launches,
    read_activities,
    recording_window,
)
from pyprof2.analysis.time.host_facts import in_memory, read_host
from pyprof2.analysis.time.host_ranges import TOLD
from pyprof2.analysis.time.host_state import Calls, Host
from pyprof2.analysis.time.idle_causes import NORMAL_GAP_NS, idle_causes
from pyprof2.analysis.time.idle_rows import idle_rows
from pyprof2.analysis.time.rows_in_time import RowsInTime, cuts, united
from pyprof2.analysis.time.stalls import Stalls
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.columns import lookup, row_of, values_of
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.call_facts import CallFacts
    from pyprof2.analysis.time.host_facts import HostFacts, Spool
    from pyprof2.analysis.time.step_windows import StepWindows

_WORK: Final = ("kernel_id", "device", "stream", "start_ns", "dur_ns", "launch_id", "op_id")
_OPS: Final = ("op_id", "op", "source", "layer", "start_ns", "dur_ns", "pid", "tid")
_BLOCKING: Final = [CODES[name] for name in BLOCKING]
IN_PARTS: Final = ("kernels", "copies", "launches", "ops", "ranges")
"""The tables that are read in parts."""
_WINDOW: Final = 1 << 15
"""How many kernels, and how many copies, begin in a window."""


def idle_parts(
    tables: Mapping[str, Parted],
    whole: Mapping[str, pa.Table],
    root: str | None = None,
    normal_ns: int = NORMAL_GAP_NS,
    *,
    spool: Spool = in_memory,
    window: int = _WINDOW,
) -> Iterator[pa.Table]:
    """Yield why the devices of one recording were idle, without the column `rank`.

    Args:
        tables: the canonical tables `IN_PARTS`; `launches` and `ops` in order of their ids.
        whole: the canonical tables `stalls` and `trace`.
        root: the folder of the user's own code.
        normal_ns: how long a gap or a latency may be that needs no other reason.
        spool: keeps what ranges tell, which may be as many rows as there are ranges.
        window: how many activities to look at in one go; it changes no row.

    Yields:
        The rows of `idle_time`, in order.
    """
    times = cuts([tables[name] for name in ("kernels", "copies")], window)
    work = _read_work(tables, whole["trace"])
    if not work.windows:
        return
    host = read_host(tables, whole["stalls"], root, spool)
    case = _Case(
        tables, times, host, read_calls(tables["launches"], work.launching, host),
        Stalls(whole["stalls"], host.threads), _steps(tables, host), normal_ns,
    )  # fmt: skip
    later = case.later_launches() if work.lacks_launches else [{}] * len(times)
    first = 0
    for device, of_device in work.windows.items():
        finder = GapFinder(device, of_device)
        yield from case.of_device(finder, [_of(device, each) for each in later], first)
        first += finder.count


def _of(device: int, places: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Return by stream what is known by device and stream."""
    return {stream: value for (each, stream), value in places.items() if each == device}


def _steps(tables: Mapping[str, Parted], host: HostFacts) -> StepWindows:
    columns = ("launch_ns", "start_ns", "dur_ns")
    parts = [tables[name] for name in ("kernels", "copies")]
    return step_windows(host.steps, (p.read(at, columns) for p in parts for at in range(len(p))))


class _Work(NamedTuple):
    """What is to be known of all activities before any of them is looked at.

    Attributes:
        windows: by device, in order, when its recording began and ended.
        launching: by the id of a call whether it launched any.
        lacks_launches: whether the launch of any is not recorded.
    """

    windows: dict[int, tuple[int, int]]
    launching: Bool
    lacks_launches: bool


def _read_work(tables: Mapping[str, Parted], trace: pa.Table) -> _Work:
    reach: dict[int, tuple[int, int]] = {}
    there = _numbers(tables["launches"], "launch_id")
    launching, lacks = np.zeros(len(there), bool), False
    for parts in (tables["kernels"], tables["copies"]):
        for number in range(len(parts)):
            part = parts.read(number, ("device", "start_ns", "dur_ns", "launch_id"))
            launch = int_column(part, "launch_id", -1)
            known = there[np.where(launch < len(there), launch, -1)]
            launching[launch[known]] = True
            lacks |= not known.all()
            device, start = (int_column(part, name, NEVER) for name in ("device", "start_ns"))
            end = start + np.maximum(0, int_column(part, "dur_ns", 0))
            for each in values_of(device).tolist():
                own = device == each
                reach[each] = recording_window(start[own], end[own], reach.get(each))
    recorded = recorded_window(trace)
    windows = {
        each: recording_window(np.array([first]), np.array([last]), recorded)
        for each, (first, last) in sorted(reach.items())
    }
    return _Work(windows, launching, lacks)


def recorded_window(trace: pa.Table) -> tuple[int, int] | None:
    """Return when a recording began and ended, as it says of itself; None: it does not."""
    start, end = (int_column(trace, name, NEVER) for name in ("start_ns", "end_ns"))
    known = start > NEVER
    return (int(start[known].min()), int(end[known].max())) if known.any() else None


def _numbers(parts: Parted, key: str) -> Bool:
    """Return for each number whether it is a key of the table; the last one is none."""
    columns = [int_column(parts.read(number, [key]), key, -1) for number in range(len(parts))]
    there = np.zeros(max((int(ids.max()) for ids in columns if len(ids)), default=-1) + 2, bool)
    for ids in columns:
        there[ids] = True
    return there


@dataclass(frozen=True)
class _Case:
    """What the windows of all devices share.

    Attributes:
        tables: see `idle_parts`.
        times: at which windows end.
        host: what holds of the whole recording.
        calls: of all of it.
        stalls: of all of it.
        steps: their windows.
        normal_ns: see `idle_parts`.
    """

    tables: Mapping[str, Parted]
    times: Sequence[int]
    host: HostFacts
    calls: CallFacts
    stalls: Stalls
    steps: StepWindows
    normal_ns: int

    def later_launches(self) -> list[dict[tuple[int, int], int]]:
        """Return for each window when the first launch of later work of each stream began."""
        launches = RowsInTime(self.tables["launches"], CALL_COLUMNS)
        return later_launches(
            read_activities(*work, *_starts(_calls_of(launches, work)))
            for work in self._windows(None)
        )

    def _windows(self, device: int | None) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield the kernels and copies of each window, of one device or all."""
        if len(self.times) == 1 and device is not None:
            yield self._by_device[device]
            return
        both = [RowsInTime(self.tables[name], _WORK) for name in ("kernels", "copies")]
        for time in self.times:
            kernels, copies = (_of_device(rows.take_until(time), device) for rows in both)
            yield kernels, copies

    @cached_property
    def _by_device(self) -> dict[int, tuple[pa.Table, pa.Table]]:
        """The kernels and copies of the only window, by device: it is read once for all."""
        ((*both,),) = self._windows(None)
        found: dict[int, list[pa.Table]] = {}
        for at, work in enumerate(both):
            device = int_column(work, "device", NEVER)
            order = np.argsort(device, kind="stable")
            rows = work.take(pa.array(order))
            numbers, first = np.unique(device[order], return_index=True)
            bounds = pairwise([*first.tolist(), len(order)])
            for number, (begin, end) in zip(numbers.tolist(), bounds, strict=True):
                pair = found.setdefault(number, [each.slice(0, 0) for each in both])
                pair[at] = rows.slice(begin, end - begin)
        return {number: (kernels, copies) for number, (kernels, copies) in found.items()}

    def of_device(
        self, finder: GapFinder, later: Sequence[Mapping[int, int]], first: int
    ) -> Iterator[pa.Table]:
        """Yield the idle time of a device.

        Args:
            finder: of its gaps.
            later: of each window, see `GapFinder.next`.
            first: the number of its first gap.
        """
        rows = _HostRows(self.tables, self.host, self.calls.launching)
        for work, time, coming in zip(self._windows(finder.device), self.times, later, strict=True):
            calls = _calls_of(rows.launches, work)
            activities = read_activities(*work, *_starts(calls))
            finder.take_launches(activities, int_column(calls, "launch_id", -1))
            seen = first + finder.count
            gaps = finder.next(activities, coming)
            if time == self.times[-1]:
                gaps = gaps.with_others(finder.end())
            if len(gaps):
                part = self._of_window(rows.of_gaps(gaps, activities, calls))
                yield part.set_column(0, "gap_id", pc.add(part["gap_id"], seen))
            rows.drop_before(finder.until)

    def _of_window(self, window: _Window) -> pa.Table:
        gaps, activities = window.gaps, window.activities
        host = Host(self.host, window.launches, window.ops, window.told, self.calls)
        causes = idle_causes(gaps, activities, host, self.stalls, self.normal_ns)
        return idle_rows(causes, self.steps, gaps, activities, host, window.ops)


def _of_device(work: pa.Table, device: int | None) -> pa.Table:
    if device is None:
        return work
    own = int_column(work, "device", NEVER) == device
    return work if own.all() else work.filter(pa.array(own))


def _calls_of(launches: RowsInTime, work: Sequence[pa.Table]) -> pa.Table:
    """Return the calls that launched these activities, in order of their ids."""
    ids = np.concatenate([int_column(table, "launch_id", -1) for table in work])
    return launches.with_keys("launch_id", ids[ids >= 0])


def _starts(calls: pa.Table) -> tuple[Int, Int]:
    return int_column(calls, "launch_id", -1), int_column(calls, "start_ns", 0)


class _Window(NamedTuple):
    """Gaps, and what holds any of their instants or ends them."""

    gaps: Gaps
    activities: Activities
    launches: pa.Table
    ops: pa.Table
    told: pa.Table


class _HostRows:
    """The rows of the host that gaps from some time on may need."""

    def __init__(self, tables: Mapping[str, Parted], host: HostFacts, launching: Bool) -> None:
        self.launches = RowsInTime(tables["launches"], CALL_COLUMNS)
        self._ops = RowsInTime(tables["ops"], _OPS)
        self._told = RowsInTime(host.told, TOLD.names)
        self._host, self._launching = host, launching

    def of_gaps(self, gaps: Gaps, activities: Activities, calls: pa.Table) -> _Window:
        """Return what gaps need.

        Args:
            gaps: of one device, in order of time.
            activities: those that end them.
            calls: that launched these, in order of their ids.
        """
        until = int(gaps.end[-1])
        launches = self.launches.read_until(until + 1, self._calls_from(int(gaps.start[0])))
        start, end = _spans(launches)
        near = self._launching[int_column(launches, "launch_id", -1)] & (start <= until)
        near |= _holds_any(gaps, start, end)
        launches = united(launches.filter(pa.array(near)), calls, "launch_id")
        latest = gaps.latest_launch[gaps.latest_launch >= 0]
        # It may have begun together with one of a greater id: it stands anywhere among them.
        launches = united(launches, self.launches.with_keys("launch_id", latest), "launch_id")
        ids = int_column(launches, "launch_id", -1)
        launch = row_of(ids, lookup(int_column(calls, "launch_id", -1), activities.launch, -1))
        return _Window(
            Gaps(*gaps[:-1], row_of(ids, gaps.latest_launch)),
            activities._replace(launch=launch), launches,
            self._ops_of(gaps, activities, launches), self._near(self._told, gaps),
        )  # fmt: skip

    def _ops_of(self, gaps: Gaps, activities: Activities, launches: pa.Table) -> pa.Table:
        """Return the ops that hold any instant, launched what ends a gap, or may have blocked."""
        calls = Calls.of(launches, self._host.threads)
        blocking = calls.op_id[np.isin(calls.cause, _BLOCKING)]
        named = np.concatenate((lookup(activities.op_id, gaps.next, -1), blocking))
        others = self._ops.with_keys("op_id", named[named >= 0])
        return united(self._near(self._ops, gaps), others, "op_id")

    def _near(self, rows: RowsInTime, gaps: Gaps) -> pa.Table:
        since = int(gaps.start[0])
        held = rows.read_until(int(gaps.end[-1]) + 1, lambda part: _spans(part)[1] >= since)
        return held.filter(pa.array(_holds_any(gaps, *_spans(held))))

    def drop_before(self, time: int) -> None:
        """Hold no longer what ended before a time, but the last launch of each process."""
        for rows in (self._ops, self._told):
            rows.keep(_spans(rows.rows)[1] >= time)
        self.launches.keep(self._calls_from(time)(self.launches.rows))

    def _calls_from(self, time: int) -> Callable[[pa.Table], Bool]:
        """Return what marks the calls that end after a time, and last launches before it."""
        threads = self._host.threads

        def wanted(calls: pa.Table) -> Bool:
            start, end = _spans(calls)
            process = threads.process(threads.number(calls))
            launching = self._launching[int_column(calls, "launch_id", -1)]
            early = np.flatnonzero(launching & (start < time))
            early = early[np.lexsort((start[early], process[early]))]
            last = np.flatnonzero(np.diff(process[early], append=-1) != 0)
            found: Bool = end >= time
            found[early[last]] = True
            return found

        return wanted


def _spans(rows: pa.Table) -> tuple[Int, Int]:
    """Return start and end of rows."""
    start = int_column(rows, "start_ns", 0)
    return start, start + np.maximum(0, int_column(rows, "dur_ns", 0))


def _holds_any(gaps: Gaps, start: Int, end: Int) -> Bool:
    """Return which intervals have any instant in common with gaps, the bounds of both included."""
    at = np.searchsorted(gaps.end, start)
    found: Bool = np.r_[gaps.start, ENDLESS][at] <= end
    return found
