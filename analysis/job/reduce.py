"""The step of all ranks together: match members, align clocks, find who waited for whom.

It reads only `collectives` and `trace`, whose rows are few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pandas as pd

from pyprof2.analysis.job.clocks import clocks_of_job
from pyprof2.analysis.job.instances import COLUMNS, Recordings, match_members
from pyprof2.analysis.job.waits import with_waits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.job.clocks import Clock

TRACE: Final = ("rank", "source", "profiler", "world_size", "host", "start_ns", "end_ns", "unix_ns")
"""The columns of table `trace` that are read."""
MEMBERS: Final = COLUMNS
_SINCE_1970: Final = 10**18
"""Smaller times are not since 1970."""
_APART_NS: Final = 60 * 10**9
"""Recordings of one job that are further apart in time are of different starts of it."""


class Reduced(NamedTuple):
    """The members and clocks of all ranks.

    Attributes:
        members: the members of all ranks with `FOUND` of `collectives.py`, and `aligned_ns`.
        clocks: by rank.
        one_clock: whether the ranks' times are of one clock.
        shifts: added to the times of each rank before clocks are compared.
        not_one_job: why the recordings are not of one job; None where they may be.
    """

    members: pd.DataFrame
    clocks: dict[int, Clock]
    one_clock: bool
    shifts: Mapping[int, int]
    not_one_job: str | None = None

    def align(self, rank: int) -> Callable[[Int], Int]:
        """Return the function from times of a rank to those on the clock of its reference."""
        clock, shift = self.clocks[rank], self.shifts.get(rank, 0)
        return lambda time: clock.aligned(time + shift)


def reduce_job(
    members: pd.DataFrame,
    trace: pd.DataFrame,
    sessions: Collection[str] = (),
    *,
    one_clock: bool = False,
) -> Reduced:
    """Match the members of all ranks, and find clocks and waits.

    Args:
        members: the columns `MEMBERS` of all ranks, on the ranks' own clocks.
        trace: the columns `TRACE`.
        sessions: the profilers whose files are sessions of several processes, on one clock.
        one_clock: whether the user says that the ranks share a clock.
    """
    machine = machines(trace, sessions, one_clock=one_clock)
    shared = None not in machine.values() and len(set(machine.values())) == 1
    others = ranks_of_other_job(trace)
    job = Recordings(shared or len(machine) == 1, frozenset(others))
    based = members.reset_index(drop=True)
    # The shift of each rank's times to one common origin, 0 where that is not known.
    rows = trace.drop_duplicates("rank")
    known = bool(rows["unix_ns"].notna().all())
    base = int(rows["unix_ns"].iloc[0]) if known and len(rows) else 0
    values = (rows["unix_ns"].astype("int64") - base) if known else pd.Series(0, rows.index)
    shifts = dict(zip(rows["rank"].astype(int), values.tolist(), strict=True))
    for name in ("start_ns", "issued_ns"):
        moved = based[name].astype("Int64") + based["rank"].map(shifts).astype("Int64")
        based = based.assign(**{name: moved if name == "issued_ns" else moved.astype("int64")})
    matched = match_members(based, job)
    clocks = clocks_of_job(matched, machine)
    found = with_waits(matched, clocks)
    own = {name: members[name].to_numpy() for name in ("start_ns", "issued_ns")}
    why = f"{'; '.join(others.values())}: name recordings of one job" if others else None
    return Reduced(found.assign(**own), clocks, job.one_clock, shifts, why)


def machines(
    trace: pd.DataFrame, sessions: Collection[str], *, one_clock: bool
) -> dict[int, object]:
    """Return by rank a value that is equal for one clock: a session, or a host; None: unknown."""
    found: dict[int, object] = {}
    for row in trace.drop_duplicates("rank").to_dict("records"):
        host = row["host"] if isinstance(row["host"], str) else None
        name = row["source"] if row["profiler"] in sessions and host is None else host
        found[int(row["rank"])] = "said" if one_clock else name
    return found


def ranks_of_other_job(trace: pd.DataFrame) -> dict[int, str]:
    """Return the ranks that are not of the job that most are of, and why, in words.

    They name another number of ranks, or were recorded more than a minute before or after.
    """
    rows = trace.drop_duplicates("rank").set_index("rank")
    found: dict[int, str] = {}
    if len(rows) < 2:
        return found
    first, last = (rows[c] + rows["unix_ns"] for c in ("start_ns", "end_ns"))
    if bool((first > _SINCE_1970).fillna(value=False).all()) and bool(last.notna().all()):
        middle = (first + (last - first) // 2).astype("int64").sort_values(kind="stable")
        typical = middle.iloc[(len(middle) - 1) // 2]
        usual = middle.index[(len(middle) - 1) // 2]
        for rank in rows.index:
            apart = max(int(first[rank]) - typical, typical - int(last[rank]))
            if apart > _APART_NS:
                when = "after" if first[rank] > typical else "before"
                minutes = apart / _APART_NS
                far = f"{minutes:.2g} minutes" if minutes < 60 else f"{minutes / 60:.2g} hours"
                found[int(rank)] = (
                    f"rank {rank} was recorded {far} {when} rank {usual}, or its clock is wrong"
                )
    sizes = rows["world_size"].dropna()
    for rank, size in sizes[sizes != sizes.mode().iloc[0]].items() if len(sizes) else ():
        of = f"rank {rank} is of a job of {size} ranks, and others of {sizes.mode().iloc[0]}"
        found.setdefault(int(str(rank)), of)
    return found
