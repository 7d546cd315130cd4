"""Idle time of devices: a table with one cause for every nanosecond of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.time.causes import CAUSES, HOST_CAUSES, NAMES
from pyprof2.analysis.time.gaps import (
    NEVER,
    Activities,
    Gaps,
    find_gaps,
    read_activities,
    recording_window,
)
from pyprof2.analysis.time.host_state import Host
from pyprof2.analysis.time.idle_causes import (
    INFLATED,
    LATE_LAUNCH,
    NORMAL_GAP_NS,
    NOTES,
    THREADS,
    Causes,
    idle_causes,
)
from pyprof2.analysis.time.pieces import Bounds, Pieces
from pyprof2.analysis.time.stalls import Stalls
from pyprof2.analysis.time.step_windows import StepWindows, step_windows
from pyprof2.columns import int_array, lookup, merge_texts, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from pyprof2.analysis.intervals import Int
    from pyprof2.columns import TextColumn

_EVENT: Final = ("rank", "start_ns", "dur_ns", "pid", "tid")
_WORK: Final = (
    "rank", "kernel_id", "start_ns", "dur_ns", "device", "stream", "launch_id", "op_id",
    "launch_ns",
)  # fmt: skip
INPUT: Final = {
    "kernels": _WORK,
    "copies": _WORK,
    "launches": (*_EVENT, "launch_id", "name", "op_id"),
    "ops": (*_EVENT, "op_id", "op", "source", "layer"),
    "ranges": (*_EVENT, "name", "kind"),
    "stalls": (*_EVENT, "device", "stream", "kind"),
    "trace": ("rank", "start_ns", "end_ns", "source_root"),
}
"""The columns of the canonical tables that idle time is found in."""

_KEYS: Final = {"launches": "launch_id", "ops": "op_id"}
"""The tables that are looked up by their key."""


def idle_time(
    tables: Mapping[str, pa.Table], root: str | None = None, normal_ns: int = NORMAL_GAP_NS
) -> pa.Table:
    """Return why the devices of one recording were idle, without the column `rank`.

    Args:
        tables: the canonical `kernels`, `copies`, `launches`, `ops`, `ranges`, `stalls` and
            `trace` of one recording, their rows in any order.
        root: the folder of the user's own code.
        normal_ns: how long a gap or a latency may be that needs no other reason.

    Returns:
        One row for each piece of a gap with one cause, see the table `idle`. Their times and the
        time in which the device was busy add up to its recording window.
    """
    tables = dict(tables) | {n: _in_order(tables[n], key) for n, key in _KEYS.items()}
    host = Host(tables, root)
    activities = read_activities(
        tables["kernels"], tables["copies"], host.calls.launch_id, host.calls.start
    )
    gaps = find_gaps(activities, _recorded(tables["trace"]))
    causes = idle_causes(gaps, activities, host, Stalls(tables["stalls"], host.threads), normal_ns)
    windows = step_windows(tables["ranges"], [tables["kernels"], tables["copies"]])
    causes, step = _by_step(causes, windows)
    return _table(causes, step, gaps, activities, host, tables["ops"])


def _in_order(table: pa.Table, key: str) -> pa.Table:
    ids = int_column(table, key, NEVER)
    return table if (ids[1:] > ids[:-1]).all() else table.sort_by(key)


def _recorded(trace: pa.Table) -> tuple[int, int] | None:
    start, end = (int_column(trace, name, NEVER) for name in ("start_ns", "end_ns"))
    known = start > NEVER
    return (int(start[known].min()), int(end[known].max())) if known.any() else None


def _by_step(causes: Causes, windows: StepWindows) -> tuple[Causes, Int]:
    """Return the causes, cut where the window of a step begins or ends, and the step of each."""
    bounds = np.concatenate((windows.start, windows.end))
    row = np.arange(len(causes.gap))
    cut = Pieces(row, causes.start, causes.end).cut(
        Bounds(np.zeros_like(bounds), bounds), np.zeros_like(row)
    )
    order = np.argsort(cut.of, kind="stable")
    of, start, end = cut.of[order], cut.start[order], cut.end[order]
    at = np.searchsorted(windows.start, start, "right") - 1
    inside = (at >= 0) & (start < lookup(windows.end, at, NEVER))
    step = lookup(windows.step, np.where(inside, at, -1), NEVER)
    gap, _, _, *columns = causes
    return Causes(gap[of], start, end, *(column[of] for column in columns)), step


def _table(
    causes: Causes, step: Int, gaps: Gaps, activities: Activities, host: Host, ops: pa.Table
) -> pa.Table:
    cause, calls, gap = causes.cause, host.calls, causes.gap
    line = (causes.line, host.lines.texts)
    source, layer, op = (_of_op(ops, name, causes.op) for name in ("source", "layer", "op"))
    following = gaps.next[gap]
    return pa.table(
        {
            "gap_id": pa.array(gap),
            "device": int_array(gaps.device[gap], NEVER),
            "start_ns": pa.array(causes.start),
            "time_ns": pa.array(causes.end - causes.start),
            "count": pa.array(np.ones_like(gap)),
            "step": int_array(step, NEVER),
            "group": text_array((cause, [each.group for each in CAUSES])),
            "cause": text_array((cause, NAMES)),
            "op": text_array(op),
            "source": text_array(merge_texts(source, line)),
            "layer": text_array(layer),
            "call": text_array((lookup(calls.name[0], causes.call, -1), calls.name[1])),
            "thread": text_array((causes.thread, THREADS)),
            "note": text_array((_notes(causes, gaps, activities, host), NOTES)),
            "drained": pa.array(causes.drained > 0),
            "op_id": int_array(lookup(int_column(ops, "op_id", -1), causes.op, -1), -1),
            "launch_id": int_array(lookup(calls.launch_id, causes.call, -1), -1),
            "kernel_id": int_array(lookup(activities.kernel_id, following, -1), -1),
        }
    )


def _of_op(ops: pa.Table, name: str, row: Int) -> TextColumn:
    code, texts = code_column(ops, name)
    return lookup(code, row, -1), texts


def _notes(causes: Causes, gaps: Gaps, activities: Activities, host: Host) -> Int:
    """Return the notes, with what is to be said of the times of the host."""
    on_host = np.isin(causes.cause, HOST_CAUSES)
    following = gaps.next[causes.gap]
    launched = lookup(activities.launched, following, NEVER)
    is_late = on_host & (launched > gaps.end[causes.gap])
    inflated = on_host & host.has_stacks
    free = causes.note < 0
    return np.select([free & is_late, free & inflated], [LATE_LAUNCH, INFLATED], causes.note)


class Window(NamedTuple):
    """A device in one recording: the recorded window, first to last activity, and the busy time."""

    device: int | None
    start_ns: int
    end_ns: int
    span_ns: int
    busy_ns: int


def device_windows(kernels: pa.Table, copies: pa.Table, trace: pa.Table) -> list[Window]:
    """Return the windows of the devices that did anything in one recording."""
    names = ["device", "start_ns", "dur_ns"]
    both = pa.concat_tables([table.select(names) for table in (kernels, copies)])
    device, start = int_column(both, "device", NEVER), int_column(both, "start_ns", 0)
    end = start + np.maximum(0, int_column(both, "dur_ns", 0))
    found = []
    for each in np.unique(device).tolist():
        own = device == each
        first, last = recording_window(start[own], end[own], _recorded(trace))
        span = int(end[own].max() - start[own].min())
        busy = union_length(start[own], end[own])
        found.append(Window(None if each == NEVER else each, first, last, span, busy))
    return found


def idle_of_ranks(
    tables: Mapping[str, pa.Table], root: str | None = None, normal_ns: int = NORMAL_GAP_NS
) -> pa.Table:
    """Return the table `idle` of all ranks, each of its recordings by itself.

    Args:
        tables: the columns `INPUT` of the canonical tables of all ranks.
        root: the folder of the user's own code; None: that which each recording names.
        normal_ns: see `idle_time`.
    """
    parts = [IDLE.empty()]
    for rank, own in recordings(tables):
        folder = root or own_root(own["trace"])
        part = idle_time(own, folder, normal_ns)
        seen = sum(each.num_rows for each in parts if each["rank"].to_pylist()[:1] == [rank])
        gap = pc.add(part["gap_id"], seen)
        part = part.set_column(0, "gap_id", gap).append_column(
            "rank", pa.array(np.full(part.num_rows, rank))
        )
        parts.append(IDLE.conform(part))
    return pa.concat_tables(parts).unify_dictionaries()


def windows_of_ranks(tables: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Return how long each device was recorded, active and busy, summed over recordings.

    Args:
        tables: the columns `INPUT` of `kernels`, `copies` and `trace` of all ranks.

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
    frame = pd.DataFrame(rows, columns=names).astype(
        dict.fromkeys(names, "int64") | {"device": "Int64"}
    )
    frame = frame.groupby(["rank", "device"], dropna=False, as_index=False).sum()
    frame["idle_ns"] = frame["window_ns"] - frame["busy_ns"]
    frame["span_idle_ns"] = frame["span_ns"] - frame["busy_ns"]
    return frame


def recordings(tables: Mapping[str, pa.Table]) -> Iterator[tuple[int, dict[str, pa.Table]]]:
    """Yield each rank with the tables of each of its recordings, in order."""
    ranks = tables["trace"]["rank"].unique().to_pylist()
    for rank in ranks:
        # Of one rank all rows are, and no copy of them is made.
        own = dict(tables) if len(ranks) == 1 else _of_rank(tables, rank)
        begins = np.sort(int_column(own["trace"], "start_ns", NEVER))
        if len(begins) == 1:
            yield rank, own
            continue
        for at in range(len(begins)):
            yield rank, {name: _of_recording(table, begins, at) for name, table in own.items()}


def own_root(trace: pa.Table) -> str | None:
    """Return the folder of the user's own code that a recording names."""
    return next((root for root in trace["source_root"].to_pylist() if root), None)


def _of_rank(tables: Mapping[str, pa.Table], rank: int) -> dict[str, pa.Table]:
    return {name: table.filter(pc.equal(table["rank"], rank)) for name, table in tables.items()}


def _of_recording(table: pa.Table, begins: Int, at: int) -> pa.Table:
    start = int_column(table, "start_ns", NEVER)
    place = np.maximum(np.searchsorted(begins, start, "right") - 1, 0)
    return table.filter(pa.array(place == at))
