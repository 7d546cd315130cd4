"""The Python API of many ranks: what all ranks of a run together tell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyprof2.analysis.job.job_graph import JobGraph, job_graph
from pyprof2.analysis.job.rank_graph import INPUT, RankGraph, rank_graph
from pyprof2.analysis.job.reduce import MEMBERS, TRACE, Reduced, reduce_job
from pyprof2.columns import as_pandas
from pyprof2.store import read_table

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from pyprof2.run import Run


def reduce_store(store: Path, *, one_clock: bool = False) -> Reduced:
    """Return what the ranks of a store tell together; only `collectives` and `trace` are read.

    Args:
        store: its folder.
        one_clock: whether the ranks share a clock, where the recordings do not say so.
    """
    members = as_pandas(read_table(store, "collectives", MEMBERS), ("rank", "start_ns", "dur_ns"))
    members = members.astype(dict.fromkeys(("kind", "dtype", "group_key", "group_desc"), object))
    trace = as_pandas(read_table(store, "trace", TRACE))
    return reduce_job(members, trace, one_clock=one_clock)


@dataclass
class JobOfRanks:
    """What all ranks of a run together tell.

    Attributes:
        run: the run.
        one_clock: whether the user says that its ranks share a clock.
    """

    run: Run
    one_clock: bool = False

    @cached_property
    def reduced(self) -> Reduced:
        """Members, clocks, and whether there is one clock."""
        return reduce_store(self.run.path, one_clock=self.one_clock)

    @property
    def members(self) -> pd.DataFrame:
        """The members of all ranks, matched, with wait and transfer."""
        return self.reduced.members

    @cached_property
    def graph(self) -> JobGraph:
        """All events of all ranks, and what each waits for."""
        members = {rank: self._members_of(rank) for rank in self._numbers}
        first = min((self._rank_graph(rank).start[0] for rank in self._numbers), default=0)
        graphs = [self._rank_graph(rank, int(first)) for rank in self._numbers]
        return job_graph(graphs, members)

    @property
    def _numbers(self) -> list[int]:
        return [each.rank for each in self.run.tables_of()]

    def _members_of(self, rank: int) -> pd.DataFrame:
        found = self.members[self.members["rank"] == rank]
        kernels = self.run.collectives
        own = kernels[kernels["rank"] == rank].set_index("collective_id")["kernel_id"]
        rows = found.sort_values("start_ns", kind="stable").reset_index(drop=True)
        return rows.assign(kernel_id=own.reindex(rows["collective_id"]).to_numpy())

    def _rank_graph(self, rank: int, begin: int | None = None) -> RankGraph:
        (tables,) = self.run.tables_of(rank)
        align = self.reduced.align(rank)
        return rank_graph(tables.several(INPUT), self._members_of(rank), rank, align, begin)
