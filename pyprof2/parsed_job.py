"""What a store has of all ranks together, and what that tells of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyprof2.analysis.job.clocks import clock_frame, whole_ns
from pyprof2.analysis.job.collectives import as_table, with_found
from pyprof2.job import reduce_store
from pyprof2.many_ranks import MANY_RANKS, legs_table, parts_of_rank, with_kernels
from pyprof2.rank_tables import RankTables
from pyprof2.result_tables import CLOCKS, LEGS, PARTS
from pyprof2.store import write_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pandas as pd


def write_job(folder: Path, ranks: Sequence[int], on_workers: Callable[..., Iterable[Any]]) -> None:
    """Write the tables that need all ranks.

    Args:
        folder: the store, whose ranks are written.
        ranks: their numbers.
        on_workers: as `map`: has a function called for each rank.
    """
    found = reduce_store(folder)
    clocks = whole_ns(clock_frame(found.clocks))
    tasks = (
        [folder] * len(ranks),
        ranks,
        [clocks[clocks["rank"] == rank] for rank in ranks],
        [found.members[found.members["rank"] == rank] for rank in ranks],
        [len(ranks) >= MANY_RANKS] * len(ranks),
    )
    for _ in on_workers(_write_rank_of_job, *tasks):
        pass


def _write_rank_of_job(
    folder: Path,
    rank: int,
    clock: pd.DataFrame,
    members: pd.DataFrame,
    many: bool,  # noqa: FBT001
) -> None:
    """Write what all ranks together tell of one; of many ranks also what they are compared by."""
    write_table(folder, "clocks", rank, [as_table(CLOCKS, clock)])
    tables = RankTables(folder, rank)
    if len(members):
        own = tables.read("collectives")
        write_table(folder, "collectives", rank, [with_found(own, members)])
        members = with_kernels(members, own)
    frames = {"parts": PARTS.empty(), "legs": LEGS.empty()}
    if many:
        frames = {
            "parts": as_table(PARTS, parts_of_rank(tables, members).astype({"step": "Int64"})),
            "legs": legs_table(tables, members),
        }
    for name, table in frames.items():
        write_table(folder, name, rank, [table])
