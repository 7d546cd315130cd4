"""Idle time of devices: a table with one cause for every nanosecond of it.

A recording is gone through device by device, from one window of time to the next. A window is cut
where activities of the device begin, so a gap is in one window, whole. Only those rows of the host
are read that hold an instant of its gaps, or handed over the work that ends them. Carried on to the
next window are when the work of each stream ended (`GapFinder`), what is still open, and the last
launch of each process.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.chunked import ENDLESS, InMemory, chunks_of
from pyprof2.analysis.time.cause_names import BLOCKING, CODES
from pyprof2.analysis.time.gaps import (
    NEVER,
    DeviceActivities,
    GapFinder,
    Gaps,
    later_launches,
    read_activities,
)
from pyprof2.analysis.time.host_clock import clock_error_ns
from pyprof2.analysis.time.host_ranges import FLAGGED, in_memory, read_host
from pyprof2.analysis.time.host_state import CALL_COLUMNS, Host, RuntimeCalls, Stalls, read_calls
from pyprof2.analysis.time.idle_causes import (
    LOST_NODE,
    NORMAL_GAP_NS,
    idle_causes,
    idle_rows,
    with_doubts,
)
from pyprof2.analysis.time.recordings import recorded_window, recordings, source_root, window_with
from pyprof2.analysis.time.rows_in_time import RowsInTime, cuts, united
from pyprof2.analysis.time.step_windows import step_windows
from pyprof2.columns import lookup, merge_texts, row_of, text_array, values_of
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.host_ranges import HostFacts, Spool
    from pyprof2.analysis.time.host_state import CallFacts
    from pyprof2.analysis.time.step_windows import StepWindows

_EVENT: Final = ("rank", "start_ns", "dur_ns", "pid", "tid")
_WORK: Final = ("kernel_id", "device", "stream", "start_ns", "dur_ns", "launch_id", "op_id")
_NODE: Final = ("kernel_id", "graph_node")
_ENDED: Final = ("graph_node", "device", "start_ns", "dur_ns")
_OPS: Final = ("op_id", "op", "source", "layer", "start_ns", "dur_ns", "pid", "tid")
INPUT: Final = {
    "kernels": ("rank", *_WORK, "launch_ns"),
    "copies": ("rank", *_WORK, "launch_ns"),
    "launches": (*_EVENT, "launch_id", "name", "op_id"),
    "ops": (*_EVENT, "op_id", "op", "source", "layer"),
    "ranges": (*_EVENT, "name", "kind"),
    "stalls": (*_EVENT, "device", "stream", "kind"),
    "trace": ("rank", "start_ns", "end_ns", "source_root", "span"),
}
"""The columns of the canonical tables that idle time is found in."""
GRAPHS: Final = {
    "kernels": (*INPUT["kernels"], "graph_node"),
    "copies": (*INPUT["copies"], "graph_node"),
    "graph_nodes": ("rank", "graph_node", "op", "source", "layer", "lost_after"),
}
"""The same where idle time between nodes of graphs is to have their ops."""
IN_PARTS: Final = ("kernels", "copies", "launches", "ops", "ranges")
"""The tables that are read in parts."""

_KEYS: Final = {"launches": "launch_id", "ops": "op_id"}
"""The tables that are looked up by their key."""
_BLOCKING: Final = [CODES[name] for name in BLOCKING]
_WINDOW: Final = 1 << 15
"""How many kernels, and how many copies, begin in a window."""
_PART: Final = 1 << 16
"""How many rows a part of the table has at least, but for the last."""


def idle_of_ranks(
    tables: Mapping[str, pa.Table], root: str | None = None, normal_ns: int = NORMAL_GAP_NS
) -> pa.Table:
    """Return the table `idle` of all ranks, each of its recordings by itself.

    Args:
        tables: the columns `INPUT` of the canonical tables of all ranks, rows in any order.
        root: the folder of the user's own code; None: that which each recording names.
        normal_ns: see `idle_in_windows`.
    """
    parts = [IDLE.empty()]
    row_count: dict[int, int] = {}
    for rank, recorded in recordings(tables):
        own = in_key_order(recorded)
        in_parts = {name: InMemory(own[name]) for name in IN_PARTS}
        found = pa.concat_tables(idle_of_recording(in_parts, own, rank, root, normal_ns=normal_ns))
        before = row_count.get(rank, 0)
        row_count[rank] = before + found.num_rows
        gap_id = pc.add(found["gap_id"], before)
        at = IDLE.names.index("gap_id")
        parts.append(found.set_column(at, found.schema.field(at), gap_id))
    return pa.concat_tables(parts).unify_dictionaries()


def in_key_order(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the tables, those that are looked up by their key in its order."""
    found = dict(tables)
    for name, key in _KEYS.items():
        ids = int_column(tables[name], key, NEVER)
        if not (ids[1:] > ids[:-1]).all():
            found[name] = tables[name].sort_by(key)
    return found


def idle_of_recording(
    tables: Mapping[str, ChunkedTable],
    whole: Mapping[str, pa.Table],
    rank: int,
    root: str | None = None,
    spool: Spool = in_memory,
    normal_ns: int = NORMAL_GAP_NS,
) -> Iterator[pa.Table]:
    """Yield the table `idle` of a rank with one recording, in parts; there is one at least.

    Args:
        tables: see `idle_in_windows`.
        whole: see `idle_in_windows`.
        rank: the number.
        root: the folder of the user's own code; None: that which the recording names.
        spool: see `idle_in_windows`.
        normal_ns: see `idle_in_windows`.
    """
    waiting, count = [IDLE.empty()], 0
    root = root or source_root(whole["trace"])
    nodes = _GraphNodes.read(tables, whole.get("graph_nodes"))
    for rows in idle_in_windows(tables, whole, root, normal_ns, spool=spool):
        part = rows if nodes is None else nodes.named(rows)
        waiting.append(IDLE.conform(numbered(part, rank, whole["trace"])))
        # Not counted anew for each part: there is one for each device at least.
        count += part.num_rows
        if count >= _PART:
            yield pa.concat_tables(waiting).unify_dictionaries()
            waiting, count = [], 0
    if waiting:
        yield pa.concat_tables(waiting).unify_dictionaries()


class _GraphNodes(NamedTuple):
    """The nodes of graphs that kernels and copies are, by `kernel_id`, and what their ops are.

    Attributes:
        ended: when, and on which device, nodes ended after which the recording lacks one.
    """

    kernel_id: Int
    node: Int
    table: pa.Table
    ended: set[tuple[int, int]]

    @classmethod
    def read(cls, tables: Mapping[str, ChunkedTable], nodes: pa.Table | None) -> _GraphNodes | None:
        """Read them; None without any."""
        if nodes is None or not nodes.num_rows:
            return None
        parts = [part for name in ("kernels", "copies") for part in chunks_of(tables[name], _NODE)]
        known = [part.filter(pc.is_valid(part["graph_node"])) for part in parts]
        ids, node = (
            np.concatenate([int_column(part, name, -1) for part in known]) for name in _NODE
        )
        order = np.argsort(ids)
        return cls(ids[order], node[order], nodes, set(_ended_before_lost(tables, nodes)))

    def named(self, rows: pa.Table) -> pa.Table:
        """Return idle time of a device, before nodes of graphs, with op, source and layer of these.

        The line at which the graph was launched is that of no node.
        """
        at = row_of(self.kernel_id, int_column(rows, "kernel_id", -1))
        may_be = has_text(rows, "cause", _BEFORE_NODES) & rows["op_id"].is_null().to_numpy()
        node = np.where(may_be, lookup(self.node, at, -1), -1)
        for name in ("op", "source", "layer"):
            code, texts = code_column(self.table, name)
            own, known = code_column(rows, name)
            column = merge_texts(
                (lookup(code, node, -1), texts), (np.where(node >= 0, -1, own), known)
            )
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, text_array(column))
        return self._with_lost(rows) if self.ended else rows

    def _with_lost(self, rows: pa.Table) -> pa.Table:
        """Return idle time, noted where a node ran in it that the recording lacks."""
        begin = (int_column(rows, name, -1).tolist() for name in ("device", "start_ns"))
        is_noted = np.array([each in self.ended for each in zip(*begin, strict=True)], bool)
        code, notes = code_column(rows, "note")
        column = text_array((np.where(is_noted, len(notes), code), [*notes, LOST_NODE]))
        return rows.set_column(rows.column_names.index("note"), "note", column)


def _ended_before_lost(
    tables: Mapping[str, ChunkedTable], nodes: pa.Table
) -> Iterator[tuple[int, int]]:
    """Yield on which device, and when, a node ended after which the recording lacks one."""
    is_lost = int_column(nodes, "lost_after", 0) > 0
    parts = (part for name in ("kernels", "copies") for part in chunks_of(tables[name], _ENDED))
    for part in parts if is_lost.any() else ():
        own = part.filter(pa.array(lookup(is_lost, int_column(part, "graph_node", -1), 0) > 0))
        device, start, time = (int_column(own, name, -1) for name in _ENDED[1:])
        yield from zip(device.tolist(), (start + time).tolist(), strict=True)


_BEFORE_NODES: Final = ("graph_gap", "kernel_gap", "stream_wait", "launch_latency")
"""Causes of idle time that belong to what runs next."""


def numbered(rows: pa.Table, rank: int, trace: pa.Table) -> pa.Table:
    """Return rows with the numbers of their rank, and of the span of their recording."""
    span = max(trace["span"].to_pylist(), default=0)
    for name, number in (("rank", rank), ("span", span)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, number)))
    return rows


def idle_in_windows(
    tables: Mapping[str, ChunkedTable],
    whole: Mapping[str, pa.Table],
    root: str | None = None,
    normal_ns: int = NORMAL_GAP_NS,
    *,
    spool: Spool = in_memory,
    window: int = _WINDOW,
) -> Iterator[pa.Table]:
    """Yield why the devices of one recording were idle, without the columns `rank` and `span`.

    Args:
        tables: the canonical tables `IN_PARTS`; `launches` and `ops` in order of their ids.
        whole: the canonical tables `stalls` and `trace`.
        root: the folder of the user's own code.
        normal_ns: how long a gap or a latency may be that needs no other reason.
        spool: keeps what ranges say of the host, which may be as many rows as there are ranges.
        window: how many activities to look at in one go; it changes no row.

    Yields:
        In order a row for each stretch of a gap with one cause, see the table `idle`. Their times
        and the time in which the device was busy add up to its recording window.
    """
    times = cuts([tables[name] for name in ("kernels", "copies")], window)
    devices = _DeviceFacts.read(tables, whole["trace"])
    if not devices.windows:
        return
    host = read_host(tables, whole["stalls"], root, spool)
    columns = ("launch_ns", "start_ns", "dur_ns")
    work = (part for name in ("kernels", "copies") for part in chunks_of(tables[name], columns))
    error_ns = clock_error_ns(np.concatenate([np.zeros(0, np.int64), *_ahead(tables)]))
    finder = _IdleFinder(
        tables, times, host, read_calls(tables["launches"], devices.launching, host),
        Stalls(whole["stalls"], host.threads), step_windows(host.steps, work), normal_ns,
        error_ns,
    )  # fmt: skip
    later = finder.later_launches() if devices.lacks_launches else [{}] * len(times)
    first = 0
    for device, recorded in devices.windows.items():
        gaps = GapFinder(device, recorded)
        coming = [
            {stream: time for (of, stream), time in each.items() if of == device} for each in later
        ]
        yield from finder.of_device(gaps, coming, first)
        first += gaps.count


def _ahead(tables: Mapping[str, ChunkedTable]) -> Iterator[Int]:
    """Yield how long before its launch each kernel and copy begins, of those with a launch."""
    for name in ("kernels", "copies"):
        for part in chunks_of(tables[name], ("launch_ns", "start_ns")):
            launched, start = (int_column(part, each, NEVER) for each in ("launch_ns", "start_ns"))
            yield (launched - start)[launched != NEVER]


class _DeviceFacts(NamedTuple):
    """Facts about the work of all devices that are needed before any of it is looked at.

    Attributes:
        windows: by device, in order, when its recording began and ended.
        launching: by the id of a call whether it launched any work.
        lacks_launches: whether the launch of any work is not recorded.
    """

    windows: dict[int, tuple[int, int]]
    launching: Bool
    lacks_launches: bool

    @classmethod
    def read(cls, tables: Mapping[str, ChunkedTable], trace: pa.Table) -> _DeviceFacts:
        """Read `launches`, `kernels` and `copies`."""
        reach: dict[int, tuple[int, int]] = {}
        there = _recorded_ids(tables["launches"], "launch_id")
        launching, lacks = np.zeros(len(there), bool), False
        columns = ("device", "start_ns", "dur_ns", "launch_id")
        for name in ("kernels", "copies"):
            for part in chunks_of(tables[name], columns):
                launch = int_column(part, "launch_id", -1)
                known = there[np.where(launch < len(there), launch, -1)]
                launching[launch[known]] = True
                lacks |= not known.all()
                device, (start, end) = int_column(part, "device", NEVER), _spans(part, NEVER)
                for each in values_of(device).tolist():
                    own = device == each
                    reach[each] = window_with(start[own], end[own], reach.get(each))
        recorded = recorded_window(trace)
        windows = {
            each: window_with(np.array([first]), np.array([last]), recorded)
            for each, (first, last) in sorted(reach.items())
        }
        return cls(windows, launching, lacks)


def _recorded_ids(parts: ChunkedTable, key: str) -> Bool:
    """Return for each number whether it is a key of the table; the last one is none."""
    columns = [int_column(part, key, -1) for part in chunks_of(parts, [key])]
    there = np.zeros(max((int(ids.max()) for ids in columns if len(ids)), default=-1) + 2, bool)
    for ids in columns:
        there[ids] = True
    return there


@dataclass(frozen=True)
class _IdleFinder:
    """Finds the idle time of one device after another.

    Attributes:
        tables: see `idle_in_windows`.
        times: at which windows end.
        host: what holds of the whole recording.
        calls: of all of it.
        stalls: of all of it.
        steps: their windows.
        normal_ns: see `idle_in_windows`.
        clock_error_ns: how far the clocks of host and device are apart.
    """

    tables: Mapping[str, ChunkedTable]
    times: Sequence[int]
    host: HostFacts
    calls: CallFacts
    stalls: Stalls
    steps: StepWindows
    normal_ns: int
    clock_error_ns: int

    def later_launches(self) -> list[dict[tuple[int, int], int]]:
        """Return for each window when the first launch of later work of each stream began."""
        launches = RowsInTime(self.tables["launches"], CALL_COLUMNS)
        return later_launches(_with_calls(work, launches)[0] for work in self._windows(None))

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
            activities, calls = _with_calls(work, rows.launches)
            finder.take_launches(activities, int_column(calls, "launch_id", -1))
            seen = first + finder.count
            gaps = finder.next(activities, coming)
            if time == self.times[-1]:
                gaps = gaps.with_others(finder.end())
            if len(gaps):
                gaps, activities, launches, ops, ranges = rows.of_gaps(gaps, activities, calls)
                host = Host(self.host, launches, ops, ranges, self.calls)
                causes = idle_causes(gaps, activities, host, self.stalls, self.normal_ns)
                causes = with_doubts(causes, gaps, self.clock_error_ns)
                part = idle_rows(causes, self.steps, gaps, activities, host, ops)
                yield part.set_column(0, "gap_id", pc.add(part["gap_id"], seen))
            rows.drop_before(finder.until)


def _of_device(work: pa.Table, device: int | None) -> pa.Table:
    if device is None:
        return work
    own = int_column(work, "device", NEVER) == device
    return work if own.all() else work.filter(pa.array(own))


def _with_calls(
    work: tuple[pa.Table, pa.Table], launches: RowsInTime
) -> tuple[DeviceActivities, pa.Table]:
    """Return kernels and copies as activities, and the calls that launched them, by their ids."""
    ids = np.concatenate([int_column(table, "launch_id", -1) for table in work])
    calls = launches.with_keys("launch_id", ids[ids >= 0])
    launch_id, start = (int_column(calls, name, -1) for name in ("launch_id", "start_ns"))
    return read_activities(*work, launch_id, start), calls


class _GapWindow(NamedTuple):
    """Gaps, and what holds any of their instants or ends them."""

    gaps: Gaps
    activities: DeviceActivities
    launches: pa.Table
    ops: pa.Table
    ranges: pa.Table


class _HostRows:
    """The rows of the host that gaps from some time on may need."""

    def __init__(
        self, tables: Mapping[str, ChunkedTable], host: HostFacts, launching: Bool
    ) -> None:
        self.launches = RowsInTime(tables["launches"], CALL_COLUMNS)
        self._ops = RowsInTime(tables["ops"], _OPS)
        self._ranges = RowsInTime(host.flagged, FLAGGED.names)
        self._host, self._launching = host, launching

    def of_gaps(self, gaps: Gaps, activities: DeviceActivities, calls: pa.Table) -> _GapWindow:
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
        asked = gaps.with_late_host(activities)
        near |= _holds_any(asked, start, end)
        launches = united(launches.filter(pa.array(near)), calls, "launch_id")
        latest = gaps.latest_launch[gaps.latest_launch >= 0]
        # It may have begun together with one of a greater id: it stands anywhere among them.
        launches = united(launches, self.launches.with_keys("launch_id", latest), "launch_id")
        ids = int_column(launches, "launch_id", -1)
        launch = row_of(ids, lookup(int_column(calls, "launch_id", -1), activities.launch, -1))
        # The ops that hold any instant, launched what ends a gap, or made a call that may block.
        known = RuntimeCalls.of(launches, self._host.threads)
        blocking = known.op_id[np.isin(known.cause, _BLOCKING)]
        named = np.concatenate((lookup(activities.op_id, gaps.next, -1), blocking))
        others = self._ops.with_keys("op_id", named[named >= 0])
        return _GapWindow(
            Gaps(*gaps[:-1], row_of(ids, gaps.latest_launch)),
            activities._replace(launch=launch), launches,
            united(self._near(self._ops, asked), others, "op_id"), self._near(self._ranges, asked),
        )  # fmt: skip

    def _near(self, rows: RowsInTime, gaps: Gaps) -> pa.Table:
        if not len(gaps):
            return rows.rows.slice(0, 0)
        since = int(gaps.start[0])
        held = rows.read_until(int(gaps.end[-1]) + 1, lambda part: _spans(part)[1] >= since)
        return held.filter(pa.array(_holds_any(gaps, *_spans(held))))

    def drop_before(self, time: int) -> None:
        """Hold no longer what ended before a time, but the last launch of each process."""
        for rows in (self._ops, self._ranges):
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


def _spans(rows: pa.Table, missing: int = 0) -> tuple[Int, Int]:
    """Return start and end of rows; `missing` stands for a start that is null."""
    start = int_column(rows, "start_ns", missing)
    return start, start + np.maximum(0, int_column(rows, "dur_ns", 0))


def _holds_any(gaps: Gaps, start: Int, end: Int) -> Bool:
    """Return which intervals have any instant in common with gaps, the bounds of both included."""
    at = np.searchsorted(gaps.end, start)
    found: Bool = np.r_[gaps.start, ENDLESS][at] <= end
    return found
