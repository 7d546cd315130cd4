"""Which rank is slow, where, and what that costs: scores by busy and host time, and a replay.

A wait is caused by other ranks, so no score is made of waits. A rank is called a straggler only if
its own time stands out among ranks of its role, and a replay without it gains.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.clocks import MAD_TO_SIGMA
from pyprof2.units import format_time, longer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.job.what_if import Gain


Z_MIN: Final = 3.0
EXCESS_MIN: Final = 0.02
"""Share of the median below which an excess is not called slow."""
GAIN_MIN: Final = 0.01
"""Share of the step below which a slow rank is hidden."""
LEAST_NS: Final = 10_000
LEAST_SHARE: Final = 0.001
"""A rank that takes less longer in a step than either of these, of the step, is not slow."""
_SPREAD_MIN: Final = 0.01
_ENOUGH: Final = 3
_Z_OF_STEP: Final = 6.0
"""One step among many must stand out more than the mean of all."""

STRAGGLER: Final = "straggler"
"""The verdict on a rank that costs time, or its beginning where it does so only in some steps."""
HIDDEN: Final = "slow, hidden"
"""The verdict on a rank that stands out and costs nothing."""

COLUMNS: Final = ("rank", "score", "time_ns", "excess_ns", "excess_pct", "z", "peers")
"""The columns of the table of scores."""

SCORES: Final = ("busy_ns", "host_ns")
"""Time in kernels that do not communicate; idle time that the host caused."""


def roles_of(members: pd.DataFrame) -> dict[int, Any]:
    """Return the role of each rank: the kinds and sizes of groups that it communicates in.

    Ranks of one pipeline stage and expert group have one; those at the ends of a pipeline, which
    only send or only receive, have others.

    Args:
        members: columns `rank`, `kind`, `group_size` of all ranks.
    """
    pairs = members[["rank", "kind", "group_size"]].drop_duplicates()
    size = pairs["group_size"].astype(object).where(pairs["group_size"].notna(), None)
    found: dict[int, set[Any]] = {}
    for rank, kind, n in zip(pairs["rank"].tolist(), pairs["kind"].tolist(), size, strict=True):
        found.setdefault(rank, set()).add((str(kind), n))
    return {rank: frozenset(own) for rank, own in found.items()}


def scores(times: pd.DataFrame, roles: Mapping[int, Any]) -> pd.DataFrame:
    """Return how far each rank's times are from those of the ranks of its role.

    Args:
        times: `rank`, `step`, and `SCORES` of each; ranks and steps once. `window_ns`, if known,
            is the measure where most ranks of a role have no such time at all.
        roles: of the ranks.

    Returns:
        `rank`, `score` (one of `SCORES`), `time_ns` (mean of the steps), `excess_ns` over the
        median of the role, `excess_pct`, `z` (null with fewer than three ranks of a role), `peers`.
    """
    whole = times.groupby("rank", observed=True)[list(SCORES)].mean()
    least = _SPREAD_MIN * float(times["window_ns"].median()) if "window_ns" in times else 0.0
    rows = []
    for role in dict.fromkeys(roles.get(rank) for rank in whole.index):
        same = whole[[roles.get(rank) == role for rank in whole.index]]
        rows += [_scored(same[name], name, least) for name in SCORES]
    return pd.concat(rows, ignore_index=True).sort_values(["rank", "score"], ignore_index=True)


def _scored(values: pd.Series, name: str, least: float = 0.0) -> pd.DataFrame:
    middle = float(values.median())
    excess = values - middle
    spread = MAD_TO_SIGMA * float(excess.abs().median())
    base = max(spread, _SPREAD_MIN * middle) or least
    z = excess / base if base > 0 else excess * 0
    if len(values) < _ENOUGH:
        z = z * np.nan
    return pd.DataFrame(
        {
            "rank": values.index,
            "score": name,
            "time_ns": values.to_numpy(),
            "excess_ns": excess.to_numpy(),
            "excess_pct": (100 * excess / middle if middle > 0 else excess * np.nan).to_numpy(),
            "z": pd.Series(z.to_numpy(), dtype="Float64"),
            "peers": len(values) - 1,
        }
    )


def standing_out(found: pd.DataFrame) -> pd.DataFrame:
    """Return the scores by which ranks stand out: z above 3 and more than 2 % of the median.

    A median of 0 has no share; z is in units of a hundredth of the step there.
    """
    share = found["excess_pct"].isna() | (found["excess_pct"] > 100 * EXCESS_MIN)
    return found[(found["z"] > Z_MIN).fillna(value=False) & share]


def step_scores(times: pd.DataFrame, roles: Mapping[int, Any]) -> pd.DataFrame:
    """Return how far each rank is in each step from the ranks of its role in that step.

    The spread is that of all ranks of the role over all steps, so that two ranks, or a step in
    which all differ, have one too.

    Args:
        times: as of `scores`, with `window_ns`.
        roles: of the ranks.

    Returns:
        `rank`, `step`, `score`, `excess_ns` over the median of the role, `middle_ns` (that
        median), `z`, `share` of the step's window.
    """
    role = times["rank"].map({rank: str(each) for rank, each in roles.items()})
    found = []
    for name in SCORES:
        value = times[name].astype("float64")
        middle = value.groupby([role, times["step"]], dropna=False, observed=True).transform(
            "median"
        )
        excess = value - middle
        spread = MAD_TO_SIGMA * excess.abs().groupby(role, observed=True).transform("median")
        window = times["window_ns"].astype("float64").clip(lower=1)
        base = np.maximum(spread, _SPREAD_MIN * middle.where(middle > 0, window))
        frame = times[["rank", "step"]].assign(score=name, excess_ns=excess, middle_ns=middle)
        found.append(frame.assign(z=excess / base, share=excess / window))
    return pd.concat(found, ignore_index=True)


def slow_at_times(found: pd.DataFrame) -> list[int]:
    """Return the ranks that are slow in few steps, and far more than others, the worst first.

    In such a step a rank takes longer by six spreads, and by 2 % of the step; over the recording
    three times as much as the median of the others: hosts are late now and then on all ranks.

    Args:
        found: as `step_scores` returns it.
    """
    odd = (found["z"] > _Z_OF_STEP) & (found["share"] > EXCESS_MIN)
    sums = found["excess_ns"].where(odd, 0).groupby(found["rank"], observed=True).sum()
    others = {rank: float(sums.drop(rank).median()) for rank in sums.index}
    ranks = [rank for rank in sums.index if sums[rank] > _ENOUGH * max(1.0, others[rank])]
    return sorted(ranks, key=lambda rank: -sums[rank])


class Difference(NamedTuple):
    """By how much one of two ranks, alone with their role, takes longer than the other."""

    rank: int
    other: int
    score: str
    excess_ns: float
    excess_pct: float


def differences(found: pd.DataFrame, roles: Mapping[int, Any]) -> list[Difference]:
    """Return the slower one of each two ranks that are alone with their role, by 2 % or more.

    Args:
        found: their scores.
        roles: of the ranks.
    """
    pairs: dict[Any, Difference] = {}
    for (role, name), own in found[found["peers"] == 1].groupby(
        [found["rank"].map(roles).map(str), "score"], observed=True
    ):
        (other, less), (rank, more) = own.sort_values("time_ns")[["rank", "time_ns"]].itertuples(
            index=False, name=None
        )
        over = more - less
        share = 100 * over / less if less > 0 else float("nan")
        known = pairs.get(role)
        if share <= 100 * EXCESS_MIN or over <= (known.excess_ns if known else 0):
            continue
        pairs[role] = Difference(int(rank), int(other), str(name), float(over), float(share))
    return list(pairs.values())


def host_is_slow(times: pd.Series, rank: int, window_ns: int) -> bool:
    """Return whether a rank's host itself takes longer than others', by 1 % of the window or more.

    A host that got behind once stays behind for as long as hosts do not wait for one another: then
    its device idles after each collective anew, which says nothing of how fast the host is.

    Args:
        times: how long the host of each rank was at work, of it and the others of its role.
        rank: which one.
        window_ns: of the recording.
    """
    excess = float(times[rank]) - float(times.drop(rank).median())
    return excess >= GAIN_MIN * window_ns


def verdict(gains: pd.DataFrame) -> str:
    """Return the verdict on a rank that stands out.

    Args:
        gains: of each step: `step`, `lo_ns` that the replay without it gains at least, `step_ns`,
            and if the rank is slow only at times whether it `stands_out` in it.

    Returns:
        `straggler` (in at least half of the steps), `straggler in steps …`, or `slow, hidden`.
    """
    costs = costly(gains)
    if costs.any() and 2 * costs.sum() >= len(costs):
        return STRAGGLER
    if costs.any():
        return f"{STRAGGLER} in steps {', '.join(map(str, gains.loc[costs, 'step']))}"
    return HIDDEN


def costly(gains: pd.DataFrame) -> pd.Series:
    """Return for each step whether a rank costs 1 % of it or more, for certain."""
    found: pd.Series = gains["lo_ns"] >= GAIN_MIN * gains["step_ns"]
    return found & gains["stands_out"] if "stands_out" in gains else found


def imbalance(times: pd.DataFrame, roles: Mapping[int, Any]) -> pd.DataFrame:
    """Return the load imbalance of each step and role: the largest busy time over the mean, less 1.

    Returns:
        `step`, `ranks`, `imbalance_pct`, `rank` (that worked longest); roles of one rank have none.
    """
    numbers = {role: at for at, role in enumerate(dict.fromkeys(roles.values()))}
    frame = times.assign(_role=times["rank"].map({r: numbers[role] for r, role in roles.items()}))
    rows = []
    for (step, _), part in frame.groupby(["step", "_role"], dropna=False, observed=True):
        if len(part) < 2 or part["busy_ns"].mean() <= 0:
            continue
        busy = part["busy_ns"].astype("float64")
        rows.append(
            {
                "step": step,
                "ranks": len(part),
                "imbalance_pct": 100 * (busy.max() / busy.mean() - 1),
                "rank": int(part["rank"].to_numpy()[busy.to_numpy().argmax()]),
            }
        )
    return pd.DataFrame(rows, columns=["step", "ranks", "imbalance_pct", "rank"])


def slow_links(rates: pd.DataFrame, ranks_of: Mapping[str, frozenset[int]]) -> pd.DataFrame:
    """Return the groups whose transfers take longer than those of other groups of their class.

    Args:
        rates: one row per instance: `kind`, `bytes`, `group_size`, `group_key`, `transfer_ns`.
        ranks_of: the ranks of each group.

    Returns:
        `group_key`, `kind`, `bytes`, `transfer_ns` (its median), `ratio` to the median of the
        groups of its class, `z`, `rank`: the one that all slow groups, two or more, have and no
        other group has; null otherwise.
    """
    known = rates[rates["group_key"].notna()]
    keys = ["kind", "bytes", "group_size"]
    by = (
        known.groupby([*keys, "group_key"], dropna=False, observed=True)["transfer_ns"]
        .median()
        .reset_index()
    )
    rows = []
    for _, part in by.groupby(keys, dropna=False, observed=True):
        if len(part) < _ENOUGH:
            continue
        time = part["transfer_ns"].astype("float64")
        scored = _scored(time.set_axis(part.index), "transfer")
        slow = (scored["z"] > Z_MIN) & (scored["excess_pct"] > 100 * EXCESS_MIN)
        ratio = (time / time.median()).to_numpy()
        chosen = part.assign(ratio=ratio, z=scored["z"].to_numpy())[slow.to_numpy(bool)]
        healthy = set(part["group_key"]) - set(chosen["group_key"])
        rows.append(chosen.assign(rank=_common(chosen["group_key"], healthy, ranks_of)))
    columns = ["group_key", "kind", "bytes", "transfer_ns", "ratio", "z", "rank"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)


def slower_of_two_groups(rates: pd.DataFrame) -> pd.DataFrame:
    """Return, where two groups have transfers of one class, the one that takes longer.

    It does by more than three spreads of the transfers within the groups, and by 2 %. With two it
    is not known which one is usual.

    Args:
        rates: as of `slow_links`.

    Returns:
        `group_key`, `other_key`, `kind`, `bytes`, `transfer_ns` and `other_ns` (medians), `ratio`.
    """
    known = rates[rates["group_key"].notna()]
    rows = []
    for (kind, size, _), own in known.groupby(
        ["kind", "bytes", "group_size"], dropna=False, observed=True
    ):
        time = own["transfer_ns"].astype("float64")
        middle = time.groupby(own["group_key"], observed=True).median().sort_values()
        if len(middle) != 2 or middle.iloc[0] <= 0:
            continue
        within = (time - own["group_key"].map(middle)).abs().median()
        (other, less), (key, more) = middle.items()
        if more - less > max(Z_MIN * MAD_TO_SIGMA * within, EXCESS_MIN * less):
            rows.append((key, other, kind, size, more, less, more / less))
    names = ["group_key", "other_key", "kind", "bytes", "transfer_ns", "other_ns", "ratio"]
    return pd.DataFrame(rows, columns=names)


def _common(
    slow: pd.Series, healthy: set[str], ranks_of: Mapping[str, frozenset[int]]
) -> int | None:
    groups = [ranks_of.get(key, frozenset()) for key in slow.unique()]
    if len(groups) < 2:
        return None
    shared = frozenset.intersection(*groups)
    shared -= frozenset().union(*(ranks_of.get(key, frozenset()) for key in healthy))
    return next(iter(shared)) if len(shared) == 1 else None


def bubbles(parts: pd.DataFrame) -> pd.DataFrame:
    """Return the time in each window in which a rank's device neither computed nor communicated.

    Args:
        parts: as `five_parts` returns them, with `rank`.

    Returns:
        `rank`, `device`, `step`, `bubble_ns`, `bubble_pct` of the window.
    """
    covered = parts["compute_ns"] + parts["comm_ns"] - parts["comp_comm_ns"]
    bubble = parts["window_ns"] - covered
    return parts[["rank", "device", "step"]].assign(
        bubble_ns=bubble, bubble_pct=100 * bubble / parts["window_ns"].clip(lower=1)
    )


BUSY: Final = "busy_ns"
"""The score of a rank that computes longer; a late host has `host_ns`."""
OWN: Final = "own_ns"
"""The score of a rank without device: the own work of its host between collectives."""
_DOES: Final = {BUSY: "computes", OWN: "works between collectives"}
ON_HOST: Final = ("host", "sync", "launch")
"""Kinds of stretches of a host."""
_STEPS_SAID: Final = 8
VAGUE: Final = ("host_python", "host_unrecorded", "host_op")
"""Causes of idle time that explain less than the op that came late."""


class WorstPlace(NamedTuple):
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
            far from the recording.
        gain: what the job gains if it takes as long as the others.
        steps: the same by step, as `what_if.step_gains` returns it.
        place: where most of its excess is; None where no stretch of the path has any.
        waiting: how many ranks waited in collectives that it was the last to reach.
        excess_ns: of that time of a step over the median of its role.
        other: the one other rank of its role, which it is compared with; None where there are more.
        when: in which steps its times are those, where they are not the means of all.
        together: the ranks that are late together, of which each hides what the others cost; the
            gain is that of all of them as the others.
    """

    rank: int
    score: str
    excess_pct: float
    z: float
    peers: int
    verdict: str | None
    gain: Gain
    steps: pd.DataFrame
    place: WorstPlace | None
    waiting: int
    excess_ns: float
    other: int | None = None
    when: str = ""
    together: tuple[int, ...] = ()

    @property
    def is_straggler(self) -> bool:
        """Whether it costs 1 % or more of any step for certain."""
        return self.verdict is not None and self.verdict.startswith(STRAGGLER)

    @property
    def what(self) -> str:
        """The work that takes it longer than others, in words."""
        done = _DOES.get(self.score, "waits for its host") + self.when
        if math.isnan(self.excess_pct):
            time = format_time(round(self.excess_ns))
            whom = "the median rank of its role" if self.other is None else f"rank {self.other}"
            each = "" if self.when else " of every step"
            return f"{done} for {time}{each}, {whom} not at all"
        whom = "the ranks of its role" if self.other is None else f"rank {self.other}"
        return f"{done} {longer(self.excess_pct, whom)}"


def worst_place(
    path: pd.DataFrame, idle: pd.DataFrame, rank: int, others: Sequence[int]
) -> WorstPlace | None:
    """Return where a rank has most of its excess on the critical path; None where it has none.

    Args:
        path: `rank`, `kind`, `op`, `source`, `excess_ns` of each stretch.
        idle: idle time of late hosts: `rank`, `cause`, `op`, `source`, `time_ns`, of all ranks.
        rank: which one.
        others: the other ranks of its role.
    """
    own = path[(path["rank"] == rank) & path["excess_ns"].notna()]
    sums = (
        own.groupby(["kind", "op", "source"], dropna=False, observed=True)["excess_ns"]
        .sum()
        .reset_index()
    )
    if sums.empty or sums["excess_ns"].max() <= 0:
        return None
    kind, op, source, excess = sums.iloc[int(sums["excess_ns"].to_numpy(float).argmax())]
    place = WorstPlace(kind, _text(op), _text(source), None, float(excess))
    if kind not in ON_HOST or not len(others):
        return place
    # The work of a late host while its devices were idle.
    keys = ["cause", "op", "source"]
    sums = idle.groupby([*keys, "rank"], dropna=False, observed=True)["time_ns"].sum().reset_index()
    table = sums.pivot_table("time_ns", keys, "rank", "sum", dropna=False, observed=True)
    table = table.reindex(columns=[rank, *others]).fillna(0)
    later = table[rank] - table[list(others)].median(axis=1)
    if not len(later) or later.max() <= 0:
        return place
    cause, op, source = (_text(word) for word in later.index[int(later.to_numpy().argmax())])
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
    """Return in words how a slow rank affects the others, and the cost of that by replay.

    Args:
        slow: the rank.
        line: its line of code, as to be shown.
    """
    others = "1 rank" if slow.waiting == 1 else f"{slow.waiting} ranks"
    head = f"made {others} wait" if slow.waiting and slow.is_straggler else "is slow"
    place = slow.place
    if place is None:
        did = "its kernels" if slow.score == BUSY else "its host"
    elif place.cause is not None and (place.cause not in VAGUE or place.op is None):
        did = f"its {place.cause.replace('_', ' ')}"
    else:
        late = "its host" if place.kind in ON_HOST else "its"
        before = "before " if place.kind in ON_HOST and place.op is not None else ""
        did = f"{late} {before}{place.op or 'kernels'}"
    where = f"{did}, {line}" if line else did
    others = ", ".join(str(rank) for rank in slow.together if rank != slow.rank)
    both = f", with rank{'s' * (len(slow.together) > 2)} {others}" if others else ""
    return f"rank {slow.rank} {head}: {where}{both}, {cost_words(slow)}"


def cost_words(slow: SlowRank) -> str:
    """Return the cost of a slow rank by step, with the interval; a hidden one costs nothing."""
    gain = slow.gain
    if gain.gain_ns is None or gain.lo_ns is None or gain.hi_ns is None:
        return f"at most {format_time(gain.bound_ns)} of the recording"
    if not slow.is_straggler:
        return "hidden: no step would be 1 % shorter"
    count, words = 1, "of the recording"
    if slow.steps["step"].notna().any():
        found = slow.steps.loc[costly(slow.steps), "step"].tolist()
        words = f"of {step_words(found)}"
        if slow.verdict == STRAGGLER:
            every = len(found) == len(slow.steps)
            count, words = len(slow.steps), "of every step" if every else "per step on average"
    mean, lo, hi = (format_time(round(ns / count)) for ns in (gain.gain_ns, gain.lo_ns, gain.hi_ns))
    between = f", {lo} to {hi}" if gain.lo_ns else f", at most {hi}"
    return f"{mean} {words} (by replay{'' if lo == hi else between})"


def step_words(steps: Sequence[int]) -> str:
    """Return the numbers of steps in words, at most eight of them."""
    more = f" and {len(steps) - _STEPS_SAID} more" if len(steps) > _STEPS_SAID else ""
    numbers = ", ".join(map(str, steps[:_STEPS_SAID]))
    return f"step{'s' * (len(steps) > 1)} {numbers}{more}"
