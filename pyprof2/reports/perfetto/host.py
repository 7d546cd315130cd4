"""Tracks of the host's threads: ops, calls of the GPU runtime, ranges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.recording import code_column, int_column
from pyprof2.reports.perfetto.rank import NULL, PROCESSES, TIMES, NamedBy, Rank, lane_name
from pyprof2.reports.perfetto.slices import (
    SliceStream,
    TrackGroups,
    by_time,
    constant,
    flows_from,
    slices_of,
)

if TYPE_CHECKING:
    from pyprof2.reports.perfetto.packets import Ints, Slices

_OPS_SHOWN: Final = ("op_id", "layer", "source", "direction", "sequence_nr")
_OPS: Final = (*TIMES, *_OPS_SHOWN, "op", "category", "pid", "tid", "forward_op_id")
_LAUNCHES_SHOWN: Final = ("launch_id", "correlation_id")
_LAUNCHES: Final = (*TIMES, *_LAUNCHES_SHOWN, "name", "pid", "tid")
_RANGES: Final = (*TIMES, "range_id", "name", "kind", "pid", "tid")

_OF_KIND: Final = {
    "step": "steps", "annotation": "ranges", "layer": "layers", "module": "layers",
    "python": "Python", "internal": "internal",
}  # fmt: skip
"""The track below its thread that a range is on, by its kind; markers for programs have none."""
_CALLS: Final = "GPU calls"
_BELOW: Final = (_CALLS, *dict.fromkeys(_OF_KIND.values()))


class _Threads:
    """The tracks of threads: their ops, and below them one for each other thing."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._groups = TrackGroups()
        self._slices = SliceStream(rank.writer, self._track)

    def add(self, found: pa.Table, slices: Slices, until: int, below: Ints | int) -> None:
        """Write slices.

        Args:
            found: their rows, with `pid` and `tid`.
            slices: as in `SliceStream`.
            until: what comes later starts no earlier.
            below: of each row its place in `_BELOW`; -1: the thread's own track.
        """
        pid, tid = (int_column(found, name, NULL) for name in ("pid", "tid"))
        group = self._groups.number(pid, tid, np.broadcast_to(below, pid.shape))
        self._slices.add(group, slices, until + self._rank.shift)

    def _track(self, group: int, lane: int) -> int:
        pid, tid, below = self._groups.keys[group]
        writer = self._rank.writer
        process = "a process" if pid == NULL else f"process {pid}"
        thread = "a thread" if tid == NULL else f"thread {tid}"
        parent = writer.track(process, self._rank.root, place=PROCESSES)
        parent = writer.track(thread, parent)
        if below < 0 and lane == 0:
            return parent
        name = "ops" if below < 0 else _BELOW[below]
        return writer.track(lane_name(name, lane), parent, place=1 + below)


def write_ops(rank: Rank) -> None:
    """Write op calls, with a flow from each forward op to those of its backward."""
    threads = _Threads(rank)
    pairs = NamedBy(rank.parts("ops"), "forward_op_id", "op_id")
    for span in by_time([rank.parts("ops")], _OPS, "op_id"):
        op, category = (code_column(span.rows, name) for name in ("op", "category"))
        slices = slices_of(rank.writer, span.rows, op, category, _OPS_SHOWN, rank.shift)
        number, forward = (int_column(span.rows, n, -1) for n in ("op_id", "forward_op_id"))
        slices.flow_to = np.where(forward >= 0, rank.pair_flow + number, 0)
        named, backward = pairs.rows(int(number.min()), int(number.max()))
        flows = flows_from(number, named, rank.pair_flow + backward)
        slices.flows, slices.flow_offsets = flows
        threads.add(span.rows, slices, span.until, -1)


def write_launches(rank: Rank) -> None:
    """Write calls of the GPU runtime, with a flow to each kernel and copy."""
    threads = _Threads(rank)
    work = [NamedBy(rank.parts(name), "launch_id", "kernel_id") for name in ("kernels", "copies")]
    for span in by_time([rank.parts("launches")], _LAUNCHES, "launch_id"):
        name = code_column(span.rows, "name")
        kind = constant("launch", span.rows.num_rows)
        slices = slices_of(rank.writer, span.rows, name, kind, _LAUNCHES_SHOWN, rank.shift)
        number = int_column(span.rows, "launch_id", -1)
        found = [each.rows(int(number.min()), int(number.max())) for each in work]
        named, kernel = (np.concatenate(columns) for columns in zip(*found, strict=True))
        order = np.argsort(named, kind="stable")
        flows = flows_from(number, named[order], rank.launch_flow + kernel[order])
        slices.flows, slices.flow_offsets = flows
        threads.add(span.rows, slices, span.until, _BELOW.index(_CALLS))


def write_ranges(rank: Rank) -> None:
    """Write ranges of the host: steps, the user's own, layers, Python frames."""
    threads = _Threads(rank)
    for span in by_time([rank.parts("ranges")], _RANGES, "range_id"):
        kind, kinds = code_column(span.rows, "kind")
        places = [_BELOW.index(_OF_KIND[each]) if each in _OF_KIND else -1 for each in kinds]
        below = np.array([*places, -1], np.int64)[kind]
        shown = span.rows.filter(pa.array(below >= 0))
        name, category = (code_column(shown, column) for column in ("name", "kind"))
        slices = slices_of(rank.writer, shown, name, category, (), rank.shift)
        threads.add(shown, slices, span.until, below[below >= 0])
