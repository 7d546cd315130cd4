"""Totals: how much, how busy, how well linked and costed; of each rank, and of all together."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.analysis.time.spans import recorded_span
from pyprof2.recording import code_column
from pyprof2.result_tables import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NEEDED: Final = {
    "kernels": ("start_ns", "dur_ns", "pid", "tid", "device", "device_name", "op_id", "layer",
                "source", "direction", "recompute", "forward_op_id", "flops", "link", "launch_id"),
    "copies": ("start_ns", "dur_ns", "device"),
    "ops": ("start_ns", "dur_ns", "self_ns", "pid", "tid", "op", "signature_id", "layer", "source",
            "sequence_nr", "flops", "cost_status"),
    "signatures": ("has_shapes",),
    "devices": ("name",),
    "trace": ("start_ns", "profiler"),
}  # fmt: skip
"""The columns that `totals` reads of each table."""


@dataclass(frozen=True)
class Totals:
    """The totals of one rank; each field is the column of its name of table `summary`."""

    rank: int
    profiler: str | None
    devices: list[str]
    kernel_count: int
    copy_count: int
    kernel_time_ns: int
    copy_time_ns: int
    gpu_count: int
    busy_ns: int
    busy_kernels_ns: int
    span_ns: int
    op_count: int
    op_time_ns: int
    launched_count: int
    linked_count: int
    other_threads_count: int
    linked_ns: int
    backward_count: int
    backward_paired_count: int
    recompute_count: int
    graph_count: int
    loose_graph_count: int
    shapes_count: int
    shapeless_count: int
    ops_with_shapes_count: int
    ops_with_sequence_count: int
    ops_with_layer_count: int
    ops_with_source_count: int
    layer_count: int
    source_count: int
    costed_ns: int
    op_row_time_ns: int
    costed_op_ns: int

    @property
    def has_gpu(self) -> bool:
        """Whether there is GPU activity."""
        return bool(self.kernel_count or self.copy_count)

    @property
    def work_time_ns(self) -> int:
        """All GPU time; without a GPU the self time of ops."""
        return self.kernel_time_ns + self.copy_time_ns if self.has_gpu else self.op_row_time_ns

    def table(self) -> pa.Table:
        """Return table `summary` of the rank."""
        return pa.Table.from_pylist([asdict(self)], schema=SUMMARY.schema())

    @classmethod
    def of(cls, summary: pa.Table) -> Totals:
        """Return what a rank's table `summary` holds."""
        (row,) = summary.to_pylist()
        return cls(**row)


def totals(tables: Mapping[str, pa.Table], rank: int = 0) -> Totals:
    """Return the totals of a rank.

    Busy time is the union of intervals per device, so work that overlaps counts once.

    Args:
        tables: columns `NEEDED` of the rank's canonical tables.
        rank: its number.
    """
    kernels, ops = tables["kernels"], tables["ops"]
    names = _texts(kernels["device_name"]) or _texts(tables["devices"]["name"])
    facts: dict[str, Any] = {
        "profiler": next(iter(_texts(tables["trace"]["profiler"])), None),
        "devices": [name for name in names if name],
        **_times(kernels, tables["copies"], ops, tables["trace"]),
        **_links(kernels, ops),
        "shapes_count": _with_shapes(kernels, ops, tables["signatures"]),
        "shapeless_count": _without_shapes(kernels, ops, tables["signatures"]),
        "ops_with_shapes_count": _true(pc.is_valid(ops["signature_id"])),
        "ops_with_sequence_count": _true(pc.is_valid(ops["sequence_nr"])),
        "ops_with_layer_count": _true(pc.is_valid(ops["layer"])),
        **with_source(kernels, ops),
        "layer_count": _true(pc.is_valid(kernels["layer"])),
        **_costed(kernels, ops),
    }
    return Totals(rank, **facts)


def with_source(kernels: pa.Table, ops: pa.Table) -> dict[str, Any]:
    """Return how many kernels and ops have a line of the user's own, from column `source`."""
    return {
        "ops_with_source_count": _true(pc.is_valid(ops["source"])),
        "source_count": _true(pc.is_valid(kernels["source"])),
    }


def counted(ranks: Sequence[Totals]) -> list[Totals]:
    """Return the ranks that a profile is of: where any has GPU activity, only those that have."""
    return [each for each in ranks if each.has_gpu] or list(ranks)


def summary(
    ranks: Sequence[Totals], steps: Iterable[int], ledger: Mapping[str, int]
) -> dict[str, Any]:
    """Return the totals of a run, by name.

    Counts end in `_count`, times in `_ns`, shares in `_pct`; a share of nothing is None. The span
    is that of each rank, added up, and `gpu_span_ns` that of each device of each rank;
    `kernel_time_ns` is the sum of durations. `linked`: launched inside a PyTorch op. `costed`:
    share of the kernel time whose FLOPs are known.

    Args:
        ranks: of each rank.
        steps: numbers of the steps.
        ledger: the time in each bin.
    """
    chosen = counted(ranks)
    sums = {
        field.name: sum(getattr(each, field.name) for each in ranks)
        for field in fields(Totals)
        if field.name.endswith(("_count", "_ns"))
    }
    found = {
        "devices": sorted({name for each in chosen for name in each.devices}),
        "profilers": sorted({each.profiler for each in ranks if each.profiler}),
        "ranks": sorted(each.rank for each in ranks),
        "steps": sorted(set(steps)),
        "no_gpu": not any(each.has_gpu for each in ranks),
        **sums,
        "span_ns": sum(each.span_ns for each in chosen),
        "gpu_span_ns": sum(each.span_ns * each.gpu_count for each in ranks),
        "linked_pct": _share(sums["linked_ns"], sums["kernel_time_ns"]),
        "costed_pct": _share(sums["costed_ns"], sums["kernel_time_ns"])
        if sums["kernel_count"]
        else _share(sums["costed_op_ns"], sums["op_row_time_ns"]),
        "ledger": dict(ledger),
    }
    return {name: found[name] for name in _NAMES}


_NAMES: Final = (
    "devices", "profilers", "ranks", "steps", "no_gpu", "kernel_count", "copy_count",
    "kernel_time_ns", "copy_time_ns", "gpu_count", "busy_ns", "busy_kernels_ns", "span_ns",
    "gpu_span_ns", "op_count", "op_time_ns", "launched_count", "linked_count",
    "other_threads_count", "linked_pct", "backward_count", "backward_paired_count",
    "recompute_count", "graph_count", "loose_graph_count", "shapes_count", "shapeless_count",
    "ops_with_shapes_count", "ops_with_sequence_count", "ops_with_layer_count",
    "ops_with_source_count", "layer_count", "source_count", "costed_pct", "ledger",
)  # fmt: skip
"""What a summary holds, in order."""


def _times(kernels: pa.Table, copies: pa.Table, ops: pa.Table, trace: pa.Table) -> dict[str, int]:
    """Return how much there is, and how long it took."""
    both = pa.concat_tables([t.select(["device", "start_ns", "dur_ns"]) for t in (kernels, copies)])
    return {
        "kernel_count": kernels.num_rows,
        "copy_count": copies.num_rows,
        "kernel_time_ns": _sum(kernels["dur_ns"]),
        "copy_time_ns": _sum(copies["dur_ns"]),
        "gpu_count": len(pc.unique(both["device"])),
        "busy_ns": _busy(both),
        "busy_kernels_ns": _busy(kernels),
        "span_ns": recorded_span([both if both.num_rows else ops], trace),
        "op_count": ops.num_rows,
        "op_time_ns": _sum(ops["self_ns"]),
    }


def _links(kernels: pa.Table, ops: pa.Table) -> dict[str, int]:
    """Return how many kernels have a launch, an op, a forward op, and why others have none."""
    op, is_graph = pc.is_valid(kernels["op_id"]), _is(kernels["link"], "graph")
    loose = pc.and_not(pc.invert(op), is_graph)
    backward = _is(kernels["direction"], "backward")
    return {
        "launched_count": _true(pc.is_valid(kernels["launch_id"])),
        "linked_count": _true(op),
        "other_threads_count": _on_other_threads(kernels.filter(loose), ops),
        "linked_ns": _sum(kernels["dur_ns"].filter(op)),
        "backward_count": _true(backward),
        "backward_paired_count": _true(pc.and_(backward, pc.is_valid(kernels["forward_op_id"]))),
        "recompute_count": _true(kernels["recompute"]),
        "graph_count": _true(is_graph),
        "loose_graph_count": _true(pc.and_not(is_graph, op)),
    }


def _on_other_threads(unlinked: pa.Table, ops: pa.Table) -> int:
    """Return how many kernels were launched on threads that have no op, where others have some."""
    if not ops.num_rows:
        return 0
    thread = ["pid", "tid"]
    launched = unlinked.filter(pc.is_valid(unlinked["launch_id"])).select(thread)
    there = ops.select(thread).group_by(thread).aggregate([])
    return int(launched.join(there, thread, join_type="left anti").num_rows)


def _costed(kernels: pa.Table, ops: pa.Table) -> dict[str, int]:
    """Return the time of kernels whose FLOPs are known, and of ops, of which in all how much."""
    ops = ops.select(["self_ns", "flops", "cost_status"]).filter(pa.array(~is_engine(ops["op"])))
    known = pc.or_(pc.is_valid(ops["flops"]), _is(ops["cost_status"], "in_parent"))
    return {
        "costed_ns": _sum(kernels["dur_ns"].filter(pc.is_valid(kernels["flops"]))),
        "op_row_time_ns": _sum(ops["self_ns"]),
        "costed_op_ns": _sum(ops["self_ns"].filter(known)),
    }


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return the distinct texts, sorted."""
    return sorted(pc.unique(column.cast(pa.string()).drop_null()).to_pylist())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _true(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _is(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    code, texts = code_column(pa.table([column], ["text"]), "text")
    return pa.chunked_array([code == (texts.index(text) if text in texts else -2)])


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _busy(rows: pa.Table) -> int:
    """Return the time in which each device did anything, added up."""
    device = rows["device"].fill_null(-1).to_numpy()
    start = rows["start_ns"].to_numpy()
    end = start + rows["dur_ns"].to_numpy()
    of_device = [device == each for each in np.unique(device).tolist()]
    return sum(union_length(start[at], end[at]) for at in of_device)


def _without_shapes(kernels: pa.Table, ops: pa.Table, signatures: pa.Table) -> int:
    """Return how many kernels have an op without a shape; not those that a graph replays."""
    own = kernels.filter(pc.invert(_is(kernels["link"], "graph")))
    return _true(pc.is_valid(own["op_id"])) - _with_shapes(own, ops, signatures)


def _with_shapes(kernels: pa.Table, ops: pa.Table, signatures: pa.Table) -> int:
    """Return how many kernels belong to an op that has a recorded shape of its own."""
    shaped = np.append(signatures["has_shapes"].to_numpy(zero_copy_only=False), values=False)
    signature = np.append(ops["signature_id"].fill_null(-1).to_numpy(), -1)
    return int(shaped[signature[kernels["op_id"].fill_null(-1).to_numpy()]].sum())
