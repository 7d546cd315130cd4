"""Totals of a run: how much, how busy, how well linked and costed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.linking.link import step_number
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.analysis.time.spans import recorded_span

if TYPE_CHECKING:
    from collections.abc import Mapping


def summarise(tables: Mapping[str, pa.Table], ranges: pa.Table) -> dict[str, Any]:
    """Return the totals of a run, by name.

    Counts end in `_count`, times in `_ns`, shares in `_pct`; a share of nothing is None. Busy
    time is the union of intervals per rank and device, so work that overlaps counts once; the
    span is that of each rank, added up, and `gpu_span_ns` that of each device of each rank;
    `kernel_time_ns` is the sum of durations. `linked`: launched inside a PyTorch op. `costed`:
    share of the kernel time whose FLOPs are known.

    Args:
        tables: the canonical tables `kernels`, `copies`, `ops`, `signatures`, `devices`, `trace`.
        ranges: columns `name` and `kind` of table `ranges`.
    """
    kernels, ops = tables["kernels"], tables["ops"]
    names = pc.unique(kernels["device_name"].cast(pa.string())).to_pylist()
    listed = tables["devices"]["name"].cast(pa.string()).to_pylist()
    return {
        "devices": sorted({name for name in names if name} or {name for name in listed if name}),
        "profilers": _texts(tables["trace"]["profiler"]),
        "ranks": sorted(pc.unique(tables["trace"]["rank"]).to_pylist()),
        "steps": _steps(ranges),
        **_times(kernels, tables["copies"], ops, tables["trace"]),
        **_links(kernels, ops),
        "shapes_count": _with_shapes(kernels, ops, tables["signatures"]),
        "shapeless_count": _without_shapes(kernels, ops, tables["signatures"]),
        "ops_with_shapes_count": _true(pc.is_valid(ops["signature_id"])),
        "ops_with_sequence_count": _true(pc.is_valid(ops["sequence_nr"])),
        "ops_with_layer_count": _true(pc.is_valid(ops["layer"])),
        "ops_with_source_count": _true(pc.is_valid(ops["source"])),
        "layer_count": _true(pc.is_valid(kernels["layer"])),
        "source_count": _true(pc.is_valid(kernels["source"])),
        "costed_pct": _costed(kernels, ops),
    }


def _times(kernels: pa.Table, copies: pa.Table, ops: pa.Table, trace: pa.Table) -> dict[str, Any]:
    """Return how much there is, and how long it took."""
    both = pa.concat_tables(
        [t.select(["rank", "device", "start_ns", "dur_ns"]) for t in (kernels, copies)]
    )
    gpus = both.group_by(["rank", "device"]).aggregate([])
    spans = _spans(both if both.num_rows else ops, trace)
    return {
        "no_gpu": not both.num_rows,
        "kernel_count": kernels.num_rows,
        "copy_count": copies.num_rows,
        "kernel_time_ns": _sum(kernels["dur_ns"]),
        "copy_time_ns": _sum(copies["dur_ns"]),
        "gpu_count": gpus.num_rows,
        "busy_ns": _busy(both),
        "busy_kernels_ns": _busy(kernels),
        "span_ns": sum(spans.values()),
        "gpu_span_ns": sum(spans[rank] for rank in gpus["rank"].to_pylist()),
        "op_count": ops.num_rows,
        "op_time_ns": _sum(ops["self_ns"]),
    }


def _links(kernels: pa.Table, ops: pa.Table) -> dict[str, Any]:
    """Return how many kernels have a launch, an op, a forward op, and why others have none."""
    op, is_graph = pc.is_valid(kernels["op_id"]), _is(kernels["link"], "graph")
    loose = pc.and_not(pc.invert(op), is_graph)
    backward = _is(kernels["direction"], "backward")
    return {
        "launched_count": _true(pc.is_valid(kernels["launch_id"])),
        "linked_count": _true(op),
        "other_threads_count": _on_other_threads(kernels.filter(loose), ops),
        "linked_pct": _share(_sum(kernels["dur_ns"].filter(op)), _sum(kernels["dur_ns"])),
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
    thread = ["rank", "pid", "tid"]
    launched = unlinked.filter(pc.is_valid(unlinked["launch_id"])).select(thread)
    there = ops.select(thread).group_by(thread).aggregate([])
    return int(launched.join(there, thread, join_type="left anti").num_rows)


def _costed(kernels: pa.Table, ops: pa.Table) -> float | None:
    """Return the share of kernel time, without a GPU of op time, whose FLOPs are known."""
    if kernels.num_rows:
        known = pc.is_valid(kernels["flops"])
        return _share(_sum(kernels["dur_ns"].filter(known)), _sum(kernels["dur_ns"]))
    ops = ops.filter(pa.array(~is_engine(ops["op"])))
    known = pc.or_(pc.is_valid(ops["flops"]), _is(ops["cost_status"], "in_parent"))
    return _share(_sum(ops["self_ns"].filter(known)), _sum(ops["self_ns"]))


def _texts(column: pa.ChunkedArray) -> list[str]:
    """Return the distinct texts, sorted."""
    return sorted(pc.unique(column.cast(pa.string()).drop_null()).to_pylist())


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _true(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


def _is(column: pa.ChunkedArray, text: str) -> pa.ChunkedArray:
    return pc.fill_null(pc.equal(column.cast(pa.string()), text), False)  # noqa: FBT003


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _steps(ranges: pa.Table) -> list[int]:
    names = pc.unique(
        ranges["name"].filter(_is(ranges["kind"], "step")).cast(pa.string())
    ).to_pylist()
    numbers = {step_number(name) for name in names if name}
    return sorted(number for number in numbers if number is not None)


def _busy(rows: pa.Table) -> int:
    """Return the time in which each device of each rank did anything, added up."""
    rank, device = rows["rank"].to_numpy(), rows["device"].fill_null(-1).to_numpy()
    start = rows["start_ns"].to_numpy()
    end = start + rows["dur_ns"].to_numpy()
    groups = np.unique(np.stack((rank, device)), axis=1).T.tolist() if len(rank) else []
    return sum(
        union_length(start[at], end[at]) for r, d in groups for at in [(rank == r) & (device == d)]
    )


def _spans(rows: pa.Table, trace: pa.Table) -> dict[int, int]:
    """Return the span of each rank: their clocks may be others."""
    return {
        rank: recorded_span([_of_rank(rows, rank)], _of_rank(trace, rank))
        for rank in pc.unique(rows["rank"]).to_pylist()
    }


def _of_rank(table: pa.Table, rank: int) -> pa.Table:
    return table.filter(pc.equal(table["rank"], rank))


def _without_shapes(kernels: pa.Table, ops: pa.Table, signatures: pa.Table) -> int:
    """Return how many kernels have an op without a shape; not those that a graph replays."""
    own = kernels.filter(pc.invert(_is(kernels["link"], "graph")))
    return _true(pc.is_valid(own["op_id"])) - _with_shapes(own, ops, signatures)


def _with_shapes(kernels: pa.Table, ops: pa.Table, signatures: pa.Table) -> int:
    """Return how many kernels belong to an op that has a recorded shape of its own."""
    total = 0
    for rank in pc.unique(kernels["rank"]).to_pylist():
        of_rank = [t.filter(pc.equal(t["rank"], rank)) for t in (kernels, ops, signatures)]
        shaped = np.append(of_rank[2]["has_shapes"].to_numpy(zero_copy_only=False), values=False)
        signature = np.append(of_rank[1]["signature_id"].fill_null(-1).to_numpy(), -1)
        op = of_rank[0]["op_id"].fill_null(-1).to_numpy()
        total += int(shaped[signature[op]].sum())
    return total
