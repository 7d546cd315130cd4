"""Tracks of counters: memory that was allocated and reserved, and other samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto import packets
from pyprof2.reports.perfetto.rank import MEMORY, NULL, Rank
from pyprof2.reports.perfetto.slices import TrackGroups

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.reports.perfetto.wire import Ints

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
