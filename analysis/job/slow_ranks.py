"""What a rank that stands out costs, where it is slow, and how many others it made wait."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.job.scores import STRAGGLER, costly
from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from pyprof2.analysis.job.what_if import Gain

BUSY: Final = "busy_ns"
"""The score of a rank that computes longer; that of a late host is `host_ns`."""
OWN: Final = "own_ns"
"""That of a rank without device: what its host does itself between collectives."""
_DOES: Final = {BUSY: "computes", OWN: "works between collectives"}
ON_HOST: Final = ("host", "sync", "launch")
"""Kinds of stretches that are a host's."""
_STEPS_SAID: Final = 8
_TIMES_PCT: Final = 200
"""More is said as a factor."""
VAGUE: Final = ("host_python", "host_unrecorded", "host_op")
"""Causes of idle time that say less than the op that came late."""


class Place(NamedTuple):
    """Where most of a rank's excess on the critical path is.

    Attributes:
        kind: of the stretch, as `critical_path` has it.
        op, source: of the stretch, null where not recorded; of a late host those of its idle time.
        cause: of a late host why it was late, as in table `idle`; None where that is not known.
        excess_ns: of such stretches over the medians of other ranks.
    """

    kind: str
    op: str | None
    source: str | None
    cause: str | None
    excess_ns: float


class SlowRank(NamedTuple):
    """A rank whose own times stand out among those of its role.

    Attributes:
        rank: its number.
        score: `busy_ns` (it computes longer) or `host_ns` (its host is late).
        excess_pct: of that time over the median of its role; NaN where that is 0.
        z: the same in spreads of the others.
        peers: how many other ranks have its role.
        verdict: `straggler`, `straggler in steps …`, `slow, hidden`; None where the replay is too
            far from the recording to tell.
        gain: what the job gains if it takes as long as the others.
        steps: the same by step, as `what_if.step_gains` returns it.
        place: where most of its excess is; None where no stretch of the path has any.
        waiting: how many ranks waited in collectives that it was the last to reach.
        excess_ns: of that time of a step over the median of its role.
        other: the one other rank of its role, which it is compared with; None where there are more.
        when: in which steps its times are those, where they are not the means of all.
    """

    rank: int
    score: str
    excess_pct: float
    z: float
    peers: int
    verdict: str | None
    gain: Gain
    steps: pd.DataFrame
    place: Place | None
    waiting: int
    excess_ns: float
    other: int | None = None
    when: str = ""

    @property
    def is_straggler(self) -> bool:
        """Whether it costs 1 % or more of any step for certain."""
        return self.verdict is not None and self.verdict.startswith(STRAGGLER)

    @property
    def what(self) -> str:
        """What it does longer than others, in words."""
        done = _DOES.get(self.score, "waits for its host") + self.when
        if math.isnan(self.excess_pct):
            time = format_time(round(self.excess_ns))
            whom = "the median rank of its role" if self.other is None else f"rank {self.other}"
            each = "" if self.when else " of every step"
            return f"{done} for {time}{each}, {whom} not at all"
        whom = "the ranks of its role" if self.other is None else f"rank {self.other}"
        if self.excess_pct > _TIMES_PCT:
            return f"{done} {1 + self.excess_pct / 100:.1f} times as long as {whom}"
        return f"{done} {self.excess_pct:.1f} % longer than {whom}"


def worst_place(
    path: pd.DataFrame, idle: pd.DataFrame, rank: int, others: Sequence[int]
) -> Place | None:
    """Return where a rank has most of its excess on the critical path; None where it has none.

    Args:
        path: `rank`, `kind`, `op`, `source`, `excess_ns` of each stretch.
        idle: idle time of late hosts: `rank`, `cause`, `op`, `source`, `time_ns`, of all ranks.
        rank: which one.
        others: the other ranks of its role.
    """
    own = path[(path["rank"] == rank) & path["excess_ns"].notna()]
    sums = own.groupby(["kind", "op", "source"], dropna=False)["excess_ns"].sum().reset_index()
    if sums.empty or sums["excess_ns"].max() <= 0:
        return None
    kind, op, source, excess = sums.iloc[int(sums["excess_ns"].to_numpy(float).argmax())]
    place = Place(kind, _text(op), _text(source), None, float(excess))
    return _with_cause(place, idle, rank, others) if kind in ON_HOST else place


def _with_cause(place: Place, idle: pd.DataFrame, rank: int, others: Sequence[int]) -> Place:
    """Return the place of a late host with what it did while its devices were idle."""
    if not len(others):
        return place
    keys = ["cause", "op", "source"]
    sums = idle.groupby([*keys, "rank"], dropna=False, observed=True)["time_ns"].sum().reset_index()
    table = sums.pivot_table("time_ns", keys, "rank", "sum", dropna=False, observed=True)
    table = table.reindex(columns=[rank, *others]).fillna(0)
    excess = table[rank] - table[list(others)].median(axis=1)
    if not len(excess) or excess.max() <= 0:
        return place
    cause, op, source = (_text(word) for word in excess.index[int(excess.to_numpy().argmax())])
    known = place if cause in VAGUE and op is None else place._replace(op=op)
    return known._replace(cause=cause, source=source or place.source)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def ranks_made_to_wait(members: pd.DataFrame, rank: int) -> int:
    """Return how many ranks waited in collectives that a rank was the last to reach.

    Args:
        members: `rank`, `last_rank`, `wait_ns` of all ranks.
        rank: which one.
    """
    late = (members["last_rank"] == rank).fillna(value=False)
    waited = (members["wait_ns"] > 0).fillna(value=False) & (members["rank"] != rank)
    return int(members.loc[late & waited, "rank"].nunique())


def blame_words(slow: SlowRank, line: str | None = None) -> str:
    """Return in words what a slow rank did to the others, and what that costs by replay.

    Args:
        slow: the rank.
        line: its line of code, as to be shown.
    """
    others = "1 rank" if slow.waiting == 1 else f"{slow.waiting} ranks"
    head = f"made {others} wait" if slow.waiting and slow.is_straggler else "is slow"
    where = ", ".join(word for word in (_did(slow), line) if word)
    return f"rank {slow.rank} {head}: {where}, {cost_words(slow)}"


def _did(slow: SlowRank) -> str:
    place = slow.place
    if place is None:
        return "its kernels" if slow.score == BUSY else "its host"
    if place.cause is not None and (place.cause not in VAGUE or place.op is None):
        return f"its {place.cause.replace('_', ' ')}"
    late = "its host before " if place.kind in ON_HOST else "its "
    return f"{late}{place.op}" if place.op is not None else f"{late}kernels".replace("before ", "")


def cost_words(slow: SlowRank) -> str:
    """Return what a slow rank costs by step, with the interval; that a hidden one costs nothing."""
    gain = slow.gain
    if gain.gain_ns is None or gain.lo_ns is None or gain.hi_ns is None:
        return f"at most {format_time(gain.bound_ns)} of the recording"
    if not slow.is_straggler:
        return "hidden: no step would be 1 % shorter"
    count, words = _per(slow)
    mean, lo, hi = (format_time(round(ns / count)) for ns in (gain.gain_ns, gain.lo_ns, gain.hi_ns))
    return f"{mean} {words} (by replay{'' if lo == hi else f', {lo} to {hi}'})"


def _per(slow: SlowRank) -> tuple[int, str]:
    """Return what a cost is to be divided by, and what that makes it the cost of."""
    if not slow.steps["step"].notna().any():
        return 1, "of the recording"
    found = slow.steps.loc[costly(slow.steps), "step"].tolist()
    if slow.verdict == STRAGGLER:
        every = len(found) == len(slow.steps)
        return len(slow.steps), "of every step" if every else "per step on average"
    return 1, f"of {step_words(found)}"


def step_words(steps: Sequence[int]) -> str:
    """Return the numbers of steps in words, at most eight of them."""
    more = f" and {len(steps) - _STEPS_SAID} more" if len(steps) > _STEPS_SAID else ""
    numbers = ", ".join(map(str, steps[:_STEPS_SAID]))
    return f"step{'s' * (len(steps) > 1)} {numbers}{more}"
