"""Idle time of devices: a table with one cause for every nanosecond of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.parted import InMemory
from pyprof2.analysis.time.gaps import NEVER, recording_window
from pyprof2.analysis.time.host_facts import in_memory
from pyprof2.analysis.time.idle_causes import NORMAL_GAP_NS
from pyprof2.analysis.time.idle_parts import IN_PARTS, idle_parts, recorded_window
from pyprof2.recording import int_column
from pyprof2.tables import IDLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pandas as pd

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.parted import Parted
    from pyprof2.analysis.time.host_facts import Spool

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
    "trace": ("rank", "start_ns", "end_ns", "source_root", "span"),
}
"""The columns of the canonical tables that idle time is found in."""

_KEYS: Final = {"launches": "launch_id", "ops": "op_id"}
"""The tables that are looked up by their key."""
_PART: Final = 1 << 16
"""How many rows a part of the table has at least, but for the last."""


def idle_time(
    tables: Mapping[str, pa.Table], root: str | None = None, normal_ns: int = NORMAL_GAP_NS
) -> pa.Table:
    """Return why the devices of one recording were idle, without the columns `rank` and `span`.

    Args:
        tables: the canonical `kernels`, `copies`, `launches`, `ops`, `ranges`, `stalls` and
            `trace` of one recording, their rows in any order.
        root: the folder of the user's own code.
        normal_ns: how long a gap or a latency may be that needs no other reason.

    Returns:
        One row for each piece of a gap with one cause, see the table `idle`. Their times and the
        time in which the device was busy add up to its recording window.
    """
    tables = in_order(tables)
    parts = {name: InMemory(tables[name]) for name in IN_PARTS}
    found = idle_parts(parts, tables, root, normal_ns)
    names = [name for name in IDLE.names if name not in ("rank", "span")]
    return _together([IDLE.schema(names).empty_table(), *(IDLE.conform(p, names) for p in found)])


def idle_of_recording(
    tables: Mapping[str, Parted],
    whole: Mapping[str, pa.Table],
    rank: int,
    root: str | None = None,
    spool: Spool = in_memory,
) -> Iterator[pa.Table]:
    """Yield the table `idle` of a rank with one recording, in parts; there is one at least.

    Args:
        tables: the canonical tables `IN_PARTS`.
        whole: the canonical tables `stalls` and `trace`.
        rank: the number.
        root: the folder of the user's own code; None: that which the recording names.
        spool: see `idle_parts`.
    """
    waiting, count = [IDLE.empty()], 0
    for part in idle_parts(tables, whole, root or own_root(whole["trace"]), spool=spool):
        waiting.append(IDLE.conform(numbered(part, rank, whole["trace"])))
        # Not counted anew for each part: there is one for each device at least.
        count += part.num_rows
        if count >= _PART:
            yield _together(waiting)
            waiting, count = [], 0
    if waiting:
        yield _together(waiting)


def numbered(rows: pa.Table, rank: int, trace: pa.Table) -> pa.Table:
    """Return rows with the numbers of their rank, and of the span of their recording."""
    span = max(trace["span"].to_pylist(), default=0)
    for name, number in (("rank", rank), ("span", span)):
        rows = rows.append_column(name, pa.array(np.full(rows.num_rows, number)))
    return rows


def _together(parts: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(parts).unify_dictionaries()


def in_order(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Return the tables, those that are looked up by their key in its order."""
    found = dict(tables)
    for name, key in _KEYS.items():
        ids = int_column(tables[name], key, NEVER)
        if not (ids[1:] > ids[:-1]).all():
            found[name] = tables[name].sort_by(key)
    return found


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
        first, last = recording_window(start[own], end[own], recorded_window(trace))
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
        part = part.set_column(0, "gap_id", gap)
        parts.append(IDLE.conform(numbered(part, rank, own["trace"])))
    return _together(parts)


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
