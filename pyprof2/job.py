"""The Python API of many ranks: what all ranks of a run together tell."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

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
