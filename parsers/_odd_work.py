"""GPU work whose record cannot be right: counted; repeats are left out, wrong ends are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import combine_keys, order_of
from pyprof2.errors import TraceError
from pyprof2.problems import (
    DEVICE_NUMBER,
    DEVICES_APART,
    WORK_AT_ZERO,
    WORK_OVERRUNS,
    WORK_REPEATED,
    WORK_TOO_LONG,
)
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyprof2.recording import Recording, Rows, Spool

MOST_DEVICES: Final = 1024
"""More than any machine has, shared ones counted by their parts."""
_NUMBER_MAX: Final = (1 << 31) - 1
"""Drivers count devices in 32 bits."""
_HOUR_NS: Final = 3600 * 10**9
_NONE: Final = -(1 << 63)
_SHORT_NS: Final = 1_000
"""Clocks of recorders are not finer."""
_EARLY_NS: Final = 20_000
"""A kernel that may begin before the one before it has ended does so by less than this."""
_LONG_NS: Final = 1_000_000
"""Work that ends inside of the next one of its stream may not overlap it by more."""
_FEW: Final = 0.05
_TELLING: Final = ("correlation_id", "device", "stream", "kernel", "kind", "graph_node_id")
"""Columns that, beside its times, say which kernel or copy a row is of."""


def examine_work(recording: Recording, path: Path) -> None:
    """Count GPU work that is odd among the problems of a recording, drop its repeats, cut its ends.

    Odd is what lasts over an hour, what is at time 0 where all other work is over an hour away, and
    what is of a device whose number no machine has: its device is unknown.
    Devices of several machines may have one number: then the labels before it are looked at. A
    repeat is equal to an earlier row in start, duration and `_TELLING`: a stream does one thing
    at a time. So does what runs on while later work of its stream begins and ends have a wrong end:
    it is cut where that work begins.

    Raises:
        TraceError: there are more devices than any machine has; `path` is the file.
    """
    spool = recording.spool
    _forget_wrong_devices(recording)
    (device,) = _columns(spool, ("device",))
    if (count := len(np.unique(device))) > MOST_DEVICES:
        msg = (
            f"{path}: its GPU work names {count:,} devices, and no machine has more than "
            f"{MOST_DEVICES:,}; the numbers are wrong, or the file holds many jobs: record again, "
            "or split it"
        )
        raise TraceError(msg)
    _separate_devices(recording)
    repeats = _repeats(spool)
    if len(repeats):
        spool.drop("activities", repeats)
        recording.problems[WORK_REPEATED] += len(repeats)
    start, dur = _columns(spool, ("start_ns", "dur_ns"))
    _cut_overruns(recording, start, dur)
    too_long = int((dur > _HOUR_NS).sum())
    others = np.abs(start[start != 0])
    is_far = bool(len(others)) and int(others.min()) > _HOUR_NS
    for problem, count in (
        (WORK_TOO_LONG, too_long),
        (WORK_AT_ZERO, int((start == 0).sum()) if is_far else 0),
    ):
        if count:
            recording.problems[problem] += count


def _forget_wrong_devices(recording: Recording) -> None:
    """Make numbers null that no device has; those of GPU work are counted."""
    for table in ("activities", "stalls", "memory", "counters"):
        device = recording.spool.raw(table, ("device",))["device"].combine_chunks()
        is_wrong = pc.or_(pc.less(device, 0), pc.greater(device, _NUMBER_MAX))
        if count := pc.sum(is_wrong).as_py():
            recording.spool.replace(table, {"device": pc.if_else(is_wrong, None, device)})
            if table == "activities":
                recording.problems[DEVICE_NUMBER] += count


def _separate_devices(recording: Recording) -> None:
    """Give a device another number where the file writes several labels before its own."""
    spool = recording.spool
    labels = list(spool.texts["activities"]["process"])
    if len(labels) < 2:
        return
    pairs = np.unique(np.stack(_columns(spool, ("device", "process"))), axis=1).T.tolist()
    free, taken = max(number for number, _ in pairs) + 1, set[int]()
    moved: dict[tuple[int, str], int] = {}
    for number, code in pairs:
        if number in taken and code >= 0:
            moved[number, labels[code]] = free + len(moved)
        taken.add(number)
    if not moved:
        return
    recording.problems[DEVICES_APART] += len(moved)
    for (number, _), new in moved.items():
        # A file of several machines lists the devices of each.
        same = [each for each in recording.devices if each["device"] == number]
        if len(same) > 1:
            recording.devices.remove(same[1])
        recording.devices.extend(each | {"device": new} for each in same[-1:])
    for table in ("activities", "stalls"):
        _move_devices(
            spool, table, "process", dict(enumerate(spool.texts[table]["process"])), moved
        )
    _move_devices(spool, "memory", "pid", recording.process_labels, moved)


def _move_devices(
    spool: Spool,
    table: str,
    key: str,
    labels: Mapping[int, str],
    moved: Mapping[tuple[int, str], int],
) -> None:
    """Give devices other numbers in a table, whose column `key` says the label of a row."""
    raw = spool.raw(table, ("device", key))
    device, which = (int_column(raw, name, -1) for name in raw.column_names)
    new = device.copy()
    for each in np.unique(which).tolist():
        for (number, label), now in moved.items():
            if labels.get(each) == label:
                new[(which == each) & (device == number)] = now
    if (new != device).any():
        spool.replace(table, {"device": pa.array(new, mask=device == -1)})


def _cut_overruns(recording: Recording, start: Rows, dur: Rows) -> None:
    """Cut the ends of work that runs into later work of its stream, and the span with them."""
    cut = _ends_cut(recording, start, start + dur)
    rows = np.flatnonzero(cut < start + dur)
    if not len(rows):
        return
    spool = recording.spool
    spool.replace("activities", {"dur_ns": cut - start})
    recording.problems[WORK_OVERRUNS] += len(rows)
    if recording.trace.get("end_ns") in (start + dur)[rows].tolist():
        others = (spool.raw(name, ("start_ns", "dur_ns")) for name in ("ops", "launches", "ranges"))
        ends = [int_column(raw, "start_ns", 0) + int_column(raw, "dur_ns", 0) for raw in others]
        recording.trace["end_ns"] = int(np.concatenate([cut, *ends]).max())


def _ends_cut(recording: Recording, start: Rows, end: Rows) -> Rows:
    """Return the ends of GPU work, cut where they cannot be right.

    Nothing is said of graphs, whose branches may share the number of a stream. Kernels may begin a
    little before the one before them has ended. Of several processes, whose streams may share
    their numbers, a stream with many such ends is several.
    """
    spool = recording.spool
    columns = _columns(spool, ("device", "stream", "context", "correlation_id", "graph_node_id"))
    *place, correlation, node = columns
    # Work that was launched with other work, or as a graph, is of a graph.
    raw = spool.raw("launches", ("name", "correlation_id"))
    is_graph = [*("GraphLaunch" in name for name in spool.texts["launches"]["name"]), False]
    launches = np.array(is_graph)[int_column(raw, "name", -1)]
    ids, count = np.unique(correlation[correlation > 0], return_counts=True)
    graphs = np.r_[int_column(raw, "correlation_id", 0)[launches], ids[count > 1]]
    is_plain = (place[1] != -1) & (node == _NONE) & ~np.isin(correlation, graphs)
    plain = np.flatnonzero(is_plain)
    key = combine_keys(*(column[plain] for column in place))
    order = order_of(key, start[plain], end[plain])
    rows, key = plain[order], key[order]
    cut = end.copy()
    overlaps = (key[1:] == key[:-1]) & (end[rows[:-1]] - start[rows[1:]] > _EARLY_NS)
    for each in np.unique(key[:-1][overlaps]).tolist():
        own = rows[key == each]
        begin, stop = start[own], end[own]
        following = np.searchsorted(begin, begin, "right")
        first_end = np.r_[np.minimum.accumulate(stop[::-1])[::-1], 1 << 62][following]
        starts = np.r_[begin, 1 << 62][following]
        over = stop - starts
        wrong = (over > _EARLY_NS) & (first_end < stop - _SHORT_NS) | (over > _LONG_NS)
        if len(recording.pids) == 1 or wrong.sum() <= max(2, _FEW * len(own)):
            cut[own[wrong]] = starts[wrong]
    return cut


def _repeats(spool: Spool) -> Rows:
    """Return the rows that repeat an earlier one."""
    keys = _columns(spool, ("start_ns", "dur_ns", "correlation_id"))
    order = order_of(*keys)
    same = np.ones(max(0, len(order) - 1), bool)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    rows = np.sort(order[np.r_[same, False] | np.r_[False, same]]) if same.any() else order[:0]
    if not len(rows):
        return rows
    columns = (*keys[:2], *_columns(spool, _TELLING))
    distinguishing = np.stack([column[rows] for column in columns])
    _, first = np.unique(distinguishing, axis=1, return_index=True)
    return np.delete(rows, first)


def _columns(spool: Spool, names: tuple[str, ...]) -> list[Rows]:
    """Return columns of the GPU's activities in the order of the file, texts as codes."""
    raw = spool.raw("activities", names)
    return [int_column(raw, name, _NONE if name.endswith("_id") else -1) for name in names]
