"""The totals of ranks, and of all of them together: what is stored of a profile's heading."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyprof2.result_tables import SUMMARY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
    range_count: int
    frame_count: int
    gpu_call_count: int
    listed_gpu_count: int
    op_time_ns: int
    launched_count: int
    early_launch_count: int
    lost_launch_count: int
    unsure_count: int
    linked_count: int
    other_threads_count: int
    linked_ns: int
    backward_count: int
    backward_paired_count: int
    recompute_count: int
    graph_count: int
    fused_count: int
    graph_id_count: int
    graph_id_ns: int
    graph_names_count: int
    graph_names_ns: int
    graph_order_count: int
    graph_order_ns: int
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
    "gpu_span_ns", "op_count", "range_count", "frame_count", "gpu_call_count", "listed_gpu_count",
    "op_time_ns", "launched_count", "early_launch_count",
    "lost_launch_count", "unsure_count",
    "linked_count", "other_threads_count", "linked_pct", "backward_count", "backward_paired_count",
    "recompute_count", "graph_count", "fused_count", "graph_id_count", "graph_id_ns",
    "graph_names_count", "graph_names_ns", "graph_order_count", "graph_order_ns", "shapes_count",
    "shapeless_count", "ops_with_shapes_count", "ops_with_sequence_count", "ops_with_layer_count",
    "ops_with_source_count", "layer_count", "source_count", "costed_pct", "ledger",
)  # fmt: skip
"""The names in a summary, in order."""


def _share(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def total_utilization(rows: Sequence[Mapping[Any, Any]]) -> dict[str, float | None]:
    """Return `mfu_pct` and `hfu_pct` of all rows together, None where not all know theirs.

    Args:
        rows: of the table `utilization`, null as None.
    """
    if not rows or any(row["mfu_pct"] is None for row in rows):
        return {"mfu_pct": None, "hfu_pct": None}
    could = sum((row["wall_ns"] or 0) / 1e9 * (row["peak_flop_per_s"] or 0) for row in rows)
    return {
        share: 100 * float(sum(row[count] or 0 for row in rows)) / could if could else None
        for share, count in (("mfu_pct", "model_flops"), ("hfu_pct", "hardware_flops"))
    }
