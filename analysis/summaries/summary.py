"""Totals: how much, how busy, how well linked and costed; of each rank, and of all together."""

from __future__ import annotations

import re
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.chunked import chunks_of, in_time_order, stretches, whole
from pyprof2.analysis.intervals import Covered
from pyprof2.analysis.linking.kernels import UNSURE
from pyprof2.analysis.summaries.range_times import USERS_KINDS
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.analysis.summaries.totals import Totals
from pyprof2.analysis.time.recordings import recorded_span
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool

NEEDED: Final = {
    "kernels": ("start_ns", "dur_ns", "pid", "tid", "span", "device", "stream", "device_name", "op",
                "shared_op", "op_id", "layer", "source", "direction", "recompute", "forward_op_id",
                "flops", "link", "link_note", "launch_id", "graph_node"),
    "copies": ("start_ns", "dur_ns", "device"),
    "ops": ("start_ns", "dur_ns", "self_ns", "pid", "tid", "op", "signature_id", "layer", "source",
            "sequence_nr", "flops", "cost_status"),
    "signatures": ("has_shapes",),
    "ranges": ("kind",),
    "launches": ("name",),
    "devices": ("name", "device_type"),
    "trace": ("start_ns", "profiler"),
}  # fmt: skip
"""The columns that `totals` reads of each table."""

_GIVES_WORK: Final = re.compile(r"Launch|Memcpy|Memset")
"""Calls of CUDA and HIP, and of their drivers, after which a device has work."""
_SPAN: Final = ("start_ns", "dur_ns")
_BUSY: Final = ("device", *_SPAN)
_THREAD: Final = ["pid", "tid"]
_OF_OPS: Final = tuple(name for name in NEEDED["ops"] if name not in _SPAN)


def totals(tables: Mapping[str, ChunkedTable], rank: int = 0) -> Totals:
    """Return the totals of a rank.

    Busy time is the union of intervals per device, so work that overlaps counts once.

    Args:
        tables: columns `NEEDED` of the rank's canonical tables.
        rank: its number.
    """
    trace = whole(tables["trace"], NEEDED["trace"])
    ops, kernels = _OpTotals(tables), _KernelTotals()
    for stretch in stretches(tables["kernels"], NEEDED["kernels"]):
        kernels.add(stretch.rows, ops)
    names = sorted(kernels.names) or _texts(whole(tables["devices"], ["name"])["name"])
    facts: dict[str, Any] = {
        "profiler": next(iter(_texts(trace["profiler"])), None),
        "devices": [name for name in names if name],
        "copy_count": tables["copies"].row_count,
        "copy_time_ns": sum(_sum(p["dur_ns"]) for p in chunks_of(tables["copies"], ["dur_ns"])),
        "other_threads_count": kernels.on_other_threads(ops),
        **_busy(tables),
        **_range_counts(tables["ranges"]),
        "listed_gpu_count": _count_of(
            whole(tables["devices"], ["device_type"])["device_type"], lambda kind: kind != "cpu"
        ),
        "gpu_call_count": sum(
            _count_of(part["name"], _GIVES_WORK.search)
            for part in chunks_of(tables["launches"], NEEDED["launches"])
        ),
        **ops.counts,
        **kernels.counts,
    }
    has_gpu = kernels.counts["kernel_count"] or facts["copy_count"]
    of = ("kernels", "copies") if has_gpu else ("ops",)
    spans = chain.from_iterable(chunks_of(tables[name], _SPAN) for name in of)
    return Totals(rank, span_ns=recorded_span(spans, trace), **facts)


def _range_counts(ranges: ChunkedTable) -> dict[str, int]:
    """Return how many ranges there are, and how many calls of Python functions and modules."""
    kinds = {"range_count": USERS_KINDS, "frame_count": ("python", "module")}
    found = dict.fromkeys(kinds, 0)
    for part in chunks_of(ranges, NEEDED["ranges"]):
        for name, own in kinds.items():
            found[name] += _count_of(part["kind"], own.__contains__)
    return found


def _count_of(column: pa.ChunkedArray, fits: Callable[[str], Any]) -> int:
    """Return how many texts fit; each distinct one is looked at once."""
    code, texts = code_column(pa.table([column], ["text"]), "text")
    return int(np.array([*(bool(fits(text)) for text in texts), False])[code].sum())


def with_source(kernels: pa.Table, ops: pa.Table) -> dict[str, Any]:
    """Return how many kernels and ops have a line of the user's own, from column `source`."""
    return {
        "ops_with_source_count": _sum(pc.is_valid(ops["source"])),
        "source_count": _sum(pc.is_valid(kernels["source"])),
    }


def _busy(tables: Mapping[str, ChunkedTable]) -> dict[str, int]:
    """Return how many devices there are, and the time in which each did anything, added up."""
    devices, busy, covered = set(), 0, Covered()
    activities = [tables["kernels"], tables["copies"]]
    for parts, _ in in_time_order(activities, [_BUSY, _BUSY]):
        both = pa.concat_tables([part.select(_BUSY) for part in parts])
        devices.update(pc.unique(both["device"]).to_pylist())
        busy += _alone(both, covered)
    return {"gpu_count": len(devices), "busy_ns": busy}


def _alone(rows: pa.Table, covered: Covered) -> int:
    """Return the time in which each device did anything that it did not before, added up."""
    start = int_column(rows, "start_ns", 0)
    end = start + int_column(rows, "dur_ns", 0)
    return int((end - covered.add(int_column(rows, "device", -1), start, end)).sum())


class _OpTotals:
    """The part of the ops of a rank in its totals.

    Attributes:
        counts: added up.
        is_shaped: whether each has a recorded shape of its own; the last of what is none.
        threads: on which there are any, each once.
    """

    def __init__(self, tables: Mapping[str, ChunkedTable]) -> None:
        signatures = whole(tables["signatures"], ["has_shapes"])["has_shapes"]
        shaped = np.append(signatures.to_numpy(zero_copy_only=False), values=False).astype(bool)
        self.counts: Counter[str] = Counter()
        is_shaped, threads = [], []
        for ops in chunks_of(tables["ops"], _OF_OPS):
            self.counts.update(_op_counts(ops))
            is_shaped.append(shaped[int_column(ops, "signature_id", -1)])
            threads.append(_distinct(ops))
        self.is_shaped = np.concatenate([*is_shaped, np.zeros(1, bool)])
        self.threads = pa.concat_tables(threads).group_by(_THREAD).aggregate([])


def _op_counts(ops: pa.Table) -> dict[str, int]:
    names = ("signature_id", "sequence_nr", "layer", "source")
    signature, sequence, layer, source = (_sum(pc.is_valid(ops[name])) for name in names)
    is_work = pa.array(~is_engine(ops["op"]))
    status, known = _is(ops["cost_status"], "in_parent"), pc.is_valid(ops["flops"])
    return {
        "op_count": ops.num_rows,
        "op_time_ns": _sum(ops["self_ns"]),
        "ops_with_shapes_count": signature,
        "ops_with_sequence_count": sequence,
        "ops_with_layer_count": layer,
        "ops_with_source_count": source,
        "op_row_time_ns": _sum(ops["self_ns"].filter(is_work)),
        "costed_op_ns": _sum(ops["self_ns"].filter(pc.and_(is_work, pc.or_(known, status)))),
    }


def _distinct(rows: pa.Table) -> pa.Table:
    return rows.select(_THREAD).group_by(_THREAD, use_threads=False).aggregate([])


class _KernelTotals:
    """The part of the kernels of a rank in its totals.

    Attributes:
        counts: added up.
        names: of their devices.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.names: set[str] = set()
        self._covered = Covered()
        # By device and stream how many are without a launch so far; None: one has a launch.
        self._unlaunched: dict[tuple[int, ...], int | None] = {}
        self._unlinked: list[pa.Table] = []

    def add(self, kernels: pa.Table, ops: _OpTotals) -> None:
        """Add kernels, in order of time."""
        self.counts.update(_links(kernels) | _shapes(kernels, ops.is_shaped))
        self.counts["busy_kernels_ns"] += _alone(kernels, self._covered)
        self.counts.update(self._without_launch(kernels))
        self.names.update(_texts(kernels["device_name"]))
        is_known = pc.or_(pc.is_valid(kernels["op"]), _is(kernels["link"], "compiled"))
        is_known = pc.or_(is_known, _is(kernels["link"], "graph"))
        loose = pc.and_not(pc.is_valid(kernels["launch_id"]), is_known)
        launched = kernels.select(_THREAD).filter(loose).group_by(_THREAD, use_threads=False)
        self._unlinked.append(launched.aggregate([([], "count_all")]))

    def _without_launch(self, kernels: pa.Table) -> dict[str, int]:
        """Return how many have no launch, before and behind the first of their stream that has."""
        keys = np.stack([int_column(kernels, name, -1) for name in ("span", "device", "stream")])
        streams, stream = np.unique(keys, axis=1, return_inverse=True)
        stream, at, end = stream.ravel(), np.arange(kernels.num_rows), kernels.num_rows
        is_launched = kernels["launch_id"].is_valid().to_numpy()
        lacks = ~is_launched & ~_is(kernels["link_note"], UNSURE).to_numpy()
        lacks &= kernels["stream"].is_valid().to_numpy()
        own = [tuple(key) for key in streams.T.tolist()]
        first = np.array([-1 if self._unlaunched.get(key, 0) is None else end for key in own])
        np.minimum.at(first, stream[is_launched], at[is_launched])
        before = np.bincount(stream[lacks & (at < first[stream])], minlength=len(own)).tolist()
        early = 0
        for key, row, count in zip(own, first.tolist(), before, strict=True):
            waiting = self._unlaunched.get(key, 0)
            if waiting is not None:
                early += (waiting + count) * (row < end)
                self._unlaunched[key] = None if row < end else waiting + count
        lost = int((lacks & (at > first[stream])).sum())
        return {"early_launch_count": early, "lost_launch_count": lost}

    def on_other_threads(self, ops: _OpTotals) -> int:
        """Return how many were launched on threads that have no op, where others have some."""
        if not ops.counts["op_count"]:
            return 0
        launched = pa.concat_tables(self._unlinked)
        return _sum(launched.join(ops.threads, _THREAD, join_type="left anti")["count_all"])


def _links(kernels: pa.Table) -> dict[str, int]:
    """Return how many kernels have a launch, an op, a forward op, and what is known of others."""
    op, is_graph = pc.is_valid(kernels["op"]), _is(kernels["link"], "graph")
    # One that does the work of several ops is linked to all of them; in a replay that nothing
    # explains the op is that of the launch of its graph.
    linked = pc.or_(op, pc.and_(pc.is_valid(kernels["shared_op"]), pc.invert(is_graph)))
    backward, time = _is(kernels["direction"], "backward"), kernels["dur_ns"]
    replayed = {
        link: time.filter(_is(kernels["link"], link))
        for link in ("graph_id", "graph_names", "graph_order")
    }
    return {
        "kernel_count": kernels.num_rows,
        "kernel_time_ns": _sum(time),
        "launched_count": _sum(pc.is_valid(kernels["launch_id"])),
        "unsure_count": _sum(_is(kernels["link_note"], UNSURE)),
        "linked_count": _sum(linked),
        "linked_ns": _sum(time.filter(linked)),
        "backward_count": _sum(backward),
        "backward_paired_count": _sum(pc.and_(backward, pc.is_valid(kernels["forward_op_id"]))),
        "recompute_count": _sum(kernels["recompute"]),
        "graph_count": _sum(pc.and_not(is_graph, op)),
        "fused_count": _sum(pc.and_not(_is(kernels["link"], "compiled"), op)),
        **{f"{link}_count": len(times) for link, times in replayed.items()},
        **{f"{link}_ns": _sum(times) for link, times in replayed.items()},
        "layer_count": _sum(pc.is_valid(kernels["layer"])),
        "source_count": _sum(pc.is_valid(kernels["source"])),
        "costed_ns": _sum(time.filter(pc.is_valid(kernels["flops"]))),
    }


def _shapes(kernels: pa.Table, is_shaped: Bool) -> dict[str, int]:
    """Return how many kernels have an op with a shape, and without; those of graphs left out."""
    op = int_column(kernels, "op_id", -1)
    shaped = is_shaped[op]
    is_own = kernels["graph_node"].is_null().to_numpy()
    return {
        "shapes_count": int((is_own & shaped).sum()),
        "shapeless_count": int((is_own & (op >= 0) & ~shaped).sum()),
    }


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return the distinct texts, sorted."""
    return sorted(pc.unique(column.cast(pa.string()).drop_null()).to_pylist())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _is(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    code, texts = code_column(pa.table([column], ["text"]), "text")
    return pa.chunked_array([code == (texts.index(text) if text in texts else -2)])
