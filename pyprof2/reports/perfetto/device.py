"""Tracks of devices: kernels and copies by stream, rates, queued work, causes of idle time.

Memory that was allocated and reserved, and other samples, are tracks of counters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto import packets
from pyprof2.reports.perfetto.rank import MEMORY, NULL, TIMES, Lookup, Rank, lane_name
from pyprof2.reports.perfetto.slices import (
    SliceStream,
    Span,
    TrackGroups,
    by_time,
    slices_of,
    work_names,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.reports.perfetto.packets import Ints, Slices


_SHOWN: Final = (
    "kernel_id", "kernel", "copy_kind", "signature", "source", "direction", "step", "flops",
    "bytes", "roofline_pct", "bound", "tensor_core",
)  # fmt: skip
_WORK: Final = (
    *TIMES, *_SHOWN, "launch_ns", "launch_id", "device", "stream", "kernel_short", "category",
    "op", "layer",
)  # fmt: skip
_IDLE_SHOWN: Final = ("group", "source", "op", "call", "thread", "note", "step")

_RATES: Final = (("TFLOP/s", 1e12), ("GB/s", 1e9), ("% of roof", 1e4))
"""The counters of a device, and the divisors of their sums of whole numbers."""
_LARGEST_RATE: Final = 1e18
_STEPS, _IDLE, _STREAMS, _COUNTERS = range(4)


def write_work(rank: Rank) -> None:
    """Write kernels and copies, how fast they were, and how many waited."""
    work = _WorkTracks(rank)
    for span in by_time([rank.parts("kernels"), rank.parts("copies")], _WORK, "kernel_id"):
        work.add(span)


class _WorkTracks:
    """The tracks of work, and their state between spans."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._streams, self._devices = TrackGroups(), TrackGroups()
        self._slices = SliceStream(rank.writer, self._stream, nested=False)
        self._calls = Lookup(rank.parts("launches"), TIMES)
        self._queue = RunningSums()
        self._rates = [RunningSums() for _ in _RATES]

    def add(self, span: Span) -> None:
        """Write the work of a span, and counters as far as they are certain by its end."""
        device, stream = (int_column(span.rows, name, NULL) for name in ("device", "stream"))
        of_stream, of_device = self._streams.number(device, stream), self._devices.number(device)
        until = span.until + self._rank.shift
        self._slices.add(of_stream, _slices(self._rank, span.rows), until)
        # Work is queued from the end of its launch to its start.
        start, launch = int_column(span.rows, "start_ns", 0), int_column(span.rows, "launch_id", -1)
        called, duration = self._calls.values(launch)
        since = np.where(launch >= 0, np.minimum(start, called + np.maximum(0, duration)), start)
        self._queue.add(since, start, of_stream, np.ones_like(start))
        tracks = [
            self._counter(f"queued, {_stream_name(stream)}", packets.COUNT, device)
            for device, stream in self._streams.keys
        ]
        self._count(self._queue.until(min(span.until, span.floor)), tracks, 1.0)
        _add_rates(self._rates, span.rows, of_device)
        for (name, unit), sums in zip(_RATES, self._rates, strict=True):
            tracks = [self._counter(name, name, device) for (device,) in self._devices.keys]
            self._count(sums.until(span.until), tracks, unit)

    def _stream(self, group: int, lane: int) -> int:
        device, stream = self._streams.keys[group]
        parent = self._rank.device(device)
        return self._rank.writer.track(
            lane_name(_stream_name(stream), lane), parent, place=_STREAMS
        )

    def _counter(self, name: str, unit: int | str, device: int) -> int:
        parent = self._rank.device(device)
        return self._rank.writer.track(name, parent, place=_COUNTERS, counter=unit)

    def _count(self, changes: Changes, tracks: list[int], unit: float) -> None:
        track = np.array(tracks, np.int64)[changes.key]
        time = changes.time + self._rank.shift
        self._rank.writer.counters(time, track, changes.value / unit)


def _stream_name(stream: int) -> str:
    return "no stream" if stream == NULL else f"stream {stream}"


def _slices(rank: Rank, found: pa.Table) -> Slices:
    category = code_column(found, "category")
    names = work_names(found)
    slices = slices_of(rank.writer, found, names, category, _SHOWN, rank.shift)
    flow = rank.launch_flow + int_column(found, "kernel_id", 0)
    slices.flow_to = np.where(int_column(found, "launch_id", -1) >= 0, flow, 0)
    return slices


def _add_rates(rates: list[RunningSums], found: pa.Table, device: Ints) -> None:
    """Count the known work of kernels while they run; whole numbers add up exactly."""
    start, duration = int_column(found, "start_ns", 0), int_column(found, "dur_ns", 0)
    seconds = np.maximum(duration, 1) / 1e9
    values = (
        int_column(found, "flops", 0) / seconds,
        int_column(found, "bytes", 0) / seconds,
        np.nan_to_num(found["roofline_pct"].fill_null(0).to_numpy()) * _RATES[2][1],
    )
    for sums, value in zip(rates, values, strict=True):
        whole = np.rint(np.clip(value, 0, _LARGEST_RATE)).astype(np.int64)
        sums.add(start, start + duration, device, whole)


def write_idle(rank: Rank) -> None:
    """Write why each device did nothing: a slice for each part of a gap."""
    table = rank.parts("idle")
    names = ["start_ns", "time_ns", "device", "cause", *_IDLE_SHOWN]
    for part in range(len(table)):
        found = table.read(part, names).rename_columns({"time_ns": "dur_ns"})
        causes, group = code_column(found, "cause"), code_column(found, "group")
        slices = slices_of(rank.writer, found, causes, group, _IDLE_SHOWN, rank.shift)
        devices = TrackGroups()
        number = devices.number(int_column(found, "device", NULL))
        parents = [rank.device(device) for (device,) in devices.keys]
        tracks = [rank.writer.track("idle", parent, place=_IDLE) for parent in parents]
        slices.track = np.array(tracks, np.int64)[number]
        # They come device by device, and of each one after another.
        is_end = np.tile([False, True], found.num_rows)
        rank.writer.slices(slices, (slices.end, slices.track), is_end)


def write_steps(rank: Rank) -> None:
    """Write the windows of the steps on each device."""
    found = rank.tables.read("steps", ["device", "step", *TIMES])
    groups = TrackGroups()
    group = groups.number(int_column(found, "device", NULL))

    def track(number: int, lane: int) -> int:
        (device,) = groups.keys[number]
        parent = rank.root if device == NULL else rank.device(device)
        return rank.writer.track(lane_name("steps", lane), parent, place=_STEPS)

    steps, codes = np.unique(int_column(found, "step", NULL), return_inverse=True)
    names = [f"step {step}" for step in steps.tolist()]
    rank.write_slices(found, (codes, names), group, track)


class Changes(NamedTuple):
    """New values of sums, in order of time for each key.

    Attributes:
        time: from when on.
        key: of which sum.
        value: the sum.
    """

    time: Ints
    key: Ints
    value: Ints


class RunningSums:
    """Sums, one for each key, of whole numbers that are added and taken away as time goes on."""

    def __init__(self) -> None:
        self._pending = np.empty((3, 0), np.int64)  # time, key, change
        self._sums = np.zeros(0, np.int64)

    def add(self, start: Ints, end: Ints, key: Ints, value: Ints) -> None:
        """Have `value` count from `start` to `end` in the sum of `key`, a number of 0 or more."""
        counts = end > start
        both = [np.concatenate((each[counts], each[counts])) for each in (key, value)]
        time = np.concatenate((start[counts], end[counts]))
        both[1][len(time) // 2 :] *= -1
        self._pending = np.concatenate((self._pending, np.stack((time, *both))), axis=1)

    def until(self, time: int) -> Changes:
        """Return how the sums change before `time`; nothing is added that starts earlier."""
        is_due = self._pending[0] < time
        due, self._pending = self._pending[:, is_due], self._pending[:, ~is_due]
        when, key, change = due[:, np.lexsort((due[0], due[1]))]
        if not len(key):
            return Changes(when, key, change)
        self._sums = np.r_[self._sums, np.zeros(max(0, key[-1] + 1 - len(self._sums)), np.int64)]
        is_first = np.r_[True, key[1:] != key[:-1]]
        first = np.flatnonzero(is_first)[np.cumsum(is_first) - 1]
        total = np.cumsum(change)
        value = total - (total - change)[first] + self._sums[key]
        last = np.r_[(when[1:] != when[:-1]) | is_first[1:], True]
        when, key, value = when[last], key[last], value[last]
        # A value that is added and taken away at one instant changes nothing.
        starts = np.r_[True, key[1:] != key[:-1]]
        before = np.where(starts, self._sums[key], np.r_[0, value[:-1]])
        self._sums[key] = value  # the last one of each key stays
        changed = value != before
        return Changes(when[changed], key[changed], value[changed])


_TOTALS: Final = {"allocated_bytes": "allocated", "reserved_bytes": "reserved"}
_CHANGE: Final = "allocated, change since the start"


def write_memory(rank: Rank) -> None:
    """Write the memory that was in use, at each change.

    Where the recorder does not say how much that was, the changes are added up: what was in use
    before it is not known then.
    """
    table = rank.parts("memory")
    columns = ["time_ns", "device_type", "device", "bytes", *_TOTALS]
    sums: dict[str, int] = {}
    for part in range(len(table)):
        found = table.read(part, columns)
        names, group = _places(found)
        for name, what in _TOTALS.items():
            _write(rank, found, [f"{each} {what}" for each in names], group, name)
        unknown = found["allocated_bytes"].is_null().to_numpy()
        time, change = int_column(found, "time_ns", 0), int_column(found, "bytes", 0)
        for at, name in enumerate(names):
            rows = np.flatnonzero(unknown & (group == at))
            if len(rows):
                value = sums.get(name, 0) + np.cumsum(change[rows])
                sums[name] = int(value[-1])
                _count(rank, time[rows], [f"{name} {_CHANGE}"], np.zeros_like(rows), value)


def write_samples(rank: Rank) -> None:
    """Write the samples of the recorder's other counters; counts over ranges are no samples."""
    table = rank.parts("counters")
    for part in range(len(table)):
        found = table.read(part, ["time_ns", "dur_ns", "device", "pid", "name", "series", "value"])
        found = found.filter(found["dur_ns"].is_null())
        named, series = code_column(found, "name"), code_column(found, "series")
        groups = TrackGroups()
        ids = (int_column(found, each, NULL) for each in ("device", "pid"))
        group = groups.number(*ids, named[0].astype(np.int64), series[0].astype(np.int64))
        tracks = []
        for device, pid, name, code in groups.keys:
            parent = rank.writer.track("counters", rank.root, place=MEMORY)
            parent = parent if device == NULL else rank.device(device)
            of = "" if pid == NULL else f"process {pid}"
            words = filter(None, [of, (*named[1], "")[name], (*series[1], "")[code]])
            tracks.append(rank.writer.track(" · ".join(words), parent, counter=""))
        time = int_column(found, "time_ns", 0) + rank.shift
        rank.writer.counters(time, np.array(tracks, np.int64)[group], found["value"].to_numpy())


def _places(found: pa.Table) -> tuple[list[str], Ints]:
    """Return the names of the memories, and of each row which one it is in."""
    kind, kinds = code_column(found, "device_type")
    groups = TrackGroups()
    group = groups.number(kind.astype(np.int64), int_column(found, "device", NULL))
    names = [
        (kinds[code] if code >= 0 else "memory") + ("" if device == NULL else f" {device}")
        for code, device in groups.keys
    ]
    return names, group


def _write(rank: Rank, found: pa.Table, names: list[str], group: Ints, column: str) -> None:
    known = found[column].is_valid().to_numpy()
    value = int_column(found, column, 0)[known]
    _count(rank, int_column(found, "time_ns", 0)[known], names, group[known], value)


def _count(rank: Rank, time: Ints, names: list[str], group: Ints, value: Ints) -> None:
    parent = rank.writer.track("memory", rank.root, place=MEMORY)
    tracks = [rank.writer.track(names[each], parent, counter=packets.BYTES)
              if each in group else 0 for each in range(len(names))]  # fmt: skip
    rank.writer.counters(
        time + rank.shift, np.array(tracks, np.int64)[group], value.astype(np.float64)
    )
