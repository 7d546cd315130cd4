"""The memory of a run: all devices over time, and what each op allocated."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables


def memory_by_device(tables: RunTables) -> MemoryProfile:
    """Return the memory of all devices over time, as `pyprof2.memory` does of a path."""
    from pyprof2.analysis.memory.curves import EVENTS_NEEDED, curves_of_rank
    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.analysis.memory.tags import last_weights

    tags = tables.table("memory_tags")
    curves = [
        curve
        for rank in tables.ranks
        for curve in curves_of_rank(rank.in_parts("memory", EVENTS_NEEDED), tags, rank.rank)
    ]
    curves.sort(key=lambda curve: (curve.rank, curve.device_type == "cpu", curve.device or 0))
    weights = last_weights(tables.table("weights"))
    begins = _begins(tables)
    # It keeps the tables, with which a store that is a temporary one goes away.
    forward_times = partial(forward_times_of, tables)
    return MemoryProfile(tables.path, curves, {}, tags, weights, forward_times, begins)


def forward_times_of(tables: RunTables, rank: int) -> pd.DataFrame:
    """Return the times of forward of a rank's layers."""
    from pyprof2.analysis.memory.retained import forward_times

    (own,) = tables.of(rank)
    name, time = ("kernels", "dur_ns") if own.parts("kernels").row_count else ("ops", "self_ns")
    columns = ("layer", "direction", "recompute", "step", time)
    return forward_times(own.in_parts(name, columns), time)


def memory_by_op(tables: RunTables, window_ms: tuple[float, float] | None) -> pd.DataFrame:
    """Return what each op allocated and released, its own and with the ops inside of it.

    Args:
        tables: of the run.
        window_ms: first and last moment since the recording of the rank began, both included;
            None: the whole recording.

    Returns:
        A row per rank, device and op, with
        `pyprof2.analysis.memory.op_memory.STATISTICS_COLUMNS`.
    """
    from pyprof2.analysis.memory.op_memory import MEMORY_NEEDED, OPS_NEEDED, memory_by_op

    begins = _begins(tables)

    def of_rank(rank: RankTables) -> pd.DataFrame:
        window = None
        if window_ms is not None:
            first, last = (begins[rank.rank] + round(ms * 1e6) for ms in window_ms)
            window = first, last
        memory, ops = rank.read("memory", MEMORY_NEEDED), rank.read("ops", OPS_NEEDED)
        return memory_by_op(memory, ops, rank.rank, window)

    return tables.of_each(of_rank)


def _begins(tables: RunTables) -> dict[int, int]:
    """Return when the recording of each rank began, where that is known."""
    starts = tables.frame("trace").groupby("rank", observed=True)["start_ns"].min().dropna()
    return {int(str(rank)): int(start) for rank, start in starts.items()}
