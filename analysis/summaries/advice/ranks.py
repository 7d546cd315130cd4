"""Rules on many ranks: who is slow, which link, and whether work is uneven, as far as replay shows.

No rule is made of waits: they are what others do to a rank. The stake is what a replay of the
whole job gains, and without a usable replay the verdict is unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.job.slow_ranks import BUSY, GAIN_MIN, blame_words, costly
from pyprof2.analysis.job.what_if import (
    as_the_others,
    evenly_spread,
    links_as_others,
    scale_transfers,
)
from pyprof2.analysis.summaries.advice.facts import ends
from pyprof2.analysis.summaries.advice.findings import RuleFinding, unknown
from pyprof2.units import format_time, longer

if TYPE_CHECKING:
    from pyprof2.analysis.job.slow_ranks import SlowRank
    from pyprof2.analysis.job.what_if import Gain
    from pyprof2.analysis.summaries.advice.facts import RankFacts, Together

IMBALANCE_PCT: Final = 5
ALONE_PCT: Final = 10
RATIO_PCT: Final = 2
_NAMED: Final = 3
_REPLAYED: Final = "by replay of all ranks"
_ALL_RANKS: Final = "all ranks of the job, one file each"
_WAITS: Final = "what streams waited for, which this recording lacks: pyprof2 whatif has the bound"
_MORE_RANKS: Final = "more ranks of the same role: of two nobody knows which one is usual"
_FEWER: Final = "fewer steps, or see pyprof2 ranks and pyprof2 whatif, which replay any size"
_HIDDEN: Final = "nothing to gain yet: queues or other ranks hide it"


def straggler(facts: RankFacts) -> RuleFinding | None:
    """One rank computes longer than others of its role, and all wait for it.

    Compared are busy times of kernels that do not communicate, never waits; what is at stake is
    what a replay gains in which this rank takes as long as the others, call by call. A rank that
    is slow and costs nothing, because queues or others hide it, is reported without a stake. With
    two ranks nobody knows which one is usual; one that was recorded alone says nothing.
    """
    if facts.job is None:
        start, end = ends(facts.rows("kernels", "start_ns", "dur_ns", where=facts.comm("kernels")))
        share = facts.share(int((end - start).sum()))
        if facts.world_size < 2 or share < ALONE_PCT:
            return None
        alone = f"1 of {facts.world_size} ranks was read"
        return unknown(f"collectives take {share:.1f} % of the time, and {alone}", _ALL_RANKS)
    if facts.job.not_one_job is not None:
        return unknown("the ranks are not of one job", facts.job.not_one_job)
    if not facts.job.is_replayed:
        return unknown("there is too much work to replay it here", _FEWER)
    return _slow(facts, facts.job, computes=True) or _one_of_two(facts, facts.job)


def host_pause(facts: RankFacts) -> RuleFinding | None:
    """The host of one rank comes late where those of others do not, and all wait for it.

    As for stragglers, by the idle time that the host is to blame for. Its cause and line are those
    by which its idle time exceeds that of the others most.
    """
    job = facts.job
    return None if job is None or not job.is_replayed else _slow(facts, job, computes=False)


def _slow(facts: RankFacts, job: Together, *, computes: bool) -> RuleFinding | None:
    """Return what is said of a rank that stands out by one of its times; None where it does not."""
    slow = next((each for each in job.slow_ranks if each.rank == facts.rank), None)
    if slow is None or (slow.score == BUSY) != computes:
        return None
    line = slow.place.source if slow.place else None
    gain, evidence = slow.gain, _evidence(facts, slow)
    if gain.gain_ns is None:
        text = f"it {slow.what}; the replay does not show what that costs"
        return unknown(text, _WAITS, hi_ns=gain.bound_ns, lo_ns=0, source=line)
    # Steps in which it costs may be none of those that are looked at.
    steps = slow.steps.loc[costly(slow.steps), "step"]
    is_left = not facts.has_steps or steps.isna().any() or steps.isin(facts.steps.step).any()
    if not slow.is_straggler or not is_left:
        text = f"slow, hidden: it {slow.what}, and no step would be {100 * GAIN_MIN:g} % shorter"
        return RuleFinding(text, evidence=evidence, source=line, remedy=_HIDDEN)
    text = f"{blame_words(slow)}; it {slow.what}"
    return replace(_gained(text, gain, "it takes as long as the others"), evidence=evidence,
                   source=line)  # fmt: skip


def _evidence(facts: RankFacts, slow: SlowRank) -> dict[str, Any]:
    """Return the kernels of the rank that its excess is in, the longest first."""
    place = slow.place
    if place is None or place.op is None or place.kind != "kernel":
        return {}
    wanted = facts.are("kernels", "op", (place.op,))
    own = facts.rows("kernels", "kernel_id", "dur_ns", where=wanted)
    return {"kernels": own.sort_values("dur_ns", ascending=False, kind="stable")["kernel_id"]}


def _gained(text: str, gain: Gain, if_what: str) -> RuleFinding:
    """Return a finding whose stake is what a replay gains; unknown where that is not known."""
    if gain.gain_ns is None or gain.lo_ns is None or gain.hi_ns is None:
        return unknown(text, _WAITS, hi_ns=gain.bound_ns, lo_ns=0)
    lo, hi, expected = (max(0, ns) for ns in (gain.lo_ns, gain.hi_ns, gain.gain_ns))
    note = f"; {gain.note}" if gain.note else ""
    return RuleFinding(text, hi, lo, expected, f"if {if_what}, {_REPLAYED}{note}")


def _one_of_two(facts: RankFacts, job: Together) -> RuleFinding | None:
    """Return what says that one of two ranks computes longer, and that replay gains without it."""
    rank = facts.rank
    both = job.scores[job.scores["score"] == BUSY].set_index("rank")["time_ns"]
    # A rank that did nothing has no score, and is no peer.
    alike = [r for r in both.index if job.roles.get(r) == job.roles.get(rank)]
    if len(alike) != 2 or rank not in alike:
        return None
    other = alike[alike[0] == rank]
    ratio = 100 * (float(both[rank]) / max(1.0, float(both[other])) - 1)
    if ratio < RATIO_PCT or not job.is_matched or not job.is_much(both[rank] - both[other]):
        return None
    gain = job.gain(
        f"rank {rank} as rank {other}", lambda: as_the_others(job.graph, [rank], job.roles)
    )
    text = f"it computes {longer(ratio, f'rank {other}')}"
    if not _pays(gain):
        return None
    return unknown(text, _MORE_RANKS, hi_ns=gain.hi_ns or gain.bound_ns, lo_ns=0)


def slow_link(facts: RankFacts) -> RuleFinding | None:
    """Collectives of one group take longer than the same ones of other groups.

    Compared are medians of transfers, without waits, by kind and bytes, among three groups or more:
    what is at stake is what a replay gains in which this group is as fast as the others. Which of
    its ranks has the slow link follows only from several groups.
    """
    job = facts.job
    if job is None or not job.is_replayed or job.slow_links.empty:
        return None
    links = job.slow_links
    if not any(facts.rank in job.ranks_of(str(key)) for key in links["group_key"].unique()):
        return None
    gain = job.gain(
        "slow links as the others", lambda: links_as_others(job.graph, job.bandwidths, links)
    )
    if not _pays(gain):
        return None
    longest = links.sort_values("transfer_ns", ascending=False, kind="stable").head(_NAMED)
    text = "; ".join(_link_words(job, row) for row in longest.to_dict("records"))
    rank = links["rank"].dropna()
    text += f"; rank {int(rank.iloc[0])} is in all of these groups" if len(rank) else ""
    return _gained(text, gain, "they are as fast as others")


def _link_words(job: Together, row: dict[Any, Any]) -> str:
    ranks = ", ".join(map(str, sorted(job.ranks_of(str(row["group_key"])))[:8]))
    size = "" if pd.isna(row["bytes"]) else f" of {int(row['bytes'])} bytes"
    time = format_time(round(row["transfer_ns"]))
    return (
        f"{row['kind']}{size} among ranks {ranks} transfers in {time}, {row['ratio']:.2f} times "
        "the median of other groups"
    )


def load_imbalance(facts: RankFacts) -> RuleFinding | None:
    """Ranks of one role have unequal work, and none of them all the time: experts, or lengths.

    The largest busy time over the mean, less 1, by step. At stake is what a replay gains in which
    each call takes the mean over the ranks, so that the work stays what it is. Silent where it
    is always the same rank: that is another rule.
    """
    job = facts.job
    if job is None or not job.is_replayed or any(slow.score == BUSY for slow in job.slow_ranks):
        return None
    table = job.imbalance
    uneven = table[table["imbalance_pct"] >= IMBALANCE_PCT]
    count, steps = (each["step"].nunique(dropna=False) for each in (uneven, table))
    longest = set(uneven["rank"])
    if not count or 2 * count < steps or facts.rank not in longest or len(longest) < 2:
        return None
    gain = job.gain("work spread evenly", lambda: evenly_spread(job.graph, job.roles))
    if not _pays(gain):
        return None
    most = uneven.sort_values("imbalance_pct").iloc[-1]
    own = uneven.loc[uneven["rank"] == facts.rank, "step"].nunique(dropna=False)
    text = (
        f"the rank that works longest takes {uneven['imbalance_pct'].mean():.1f} % more than the "
        f"mean of its role, up to {most['imbalance_pct']:.1f} %; this one in {own} of "
        f"{steps} windows of steps"
    )
    return _gained(text, gain, "the work of each call is spread evenly")


def _pays(gain: Gain) -> bool:
    """Return whether a replay gains 1 % for certain, or by an unknown amount."""
    return gain.lo_ns is None or gain.lo_ns >= GAIN_MIN * gain.window_ns


def exposed_with_cause(facts: RankFacts, job: Together, exposed: int) -> RuleFinding | None:
    """Return what exposed communication is of: waits, which other rules look at, and transfers.

    Args:
        facts: of the rank.
        job: all ranks.
        exposed: how long only collectives ran on this rank.

    Returns:
        The gain of a replay in which transfers take no time: with perfect overlap they would hide
        no more. None where most of the exposed time is neither wait nor transfer for certain.
    """
    own = job.parts[job.parts["rank"] == facts.rank]
    names = ("exposed_wait_ns", "exposed_transfer_ns", "exposed_unmatched_ns")
    wait, transfer, rest = (int(own[name].fillna(0).sum()) for name in names)
    if 2 * rest > wait + transfer + rest:
        return None
    gain = job.gain("transfers × 0", lambda: scale_transfers(job.graph, 0.0))
    shares = [100 * ns / max(1, wait + transfer + rest) for ns in (wait, transfer)]
    own = job.members[(job.members["rank"] == facts.rank) & job.members["transfer_ns"].notna()]
    most = ""
    if not own.empty:
        times = own.groupby(["kind", "group_desc"], dropna=False, observed=True)[
            "transfer_ns"
        ].sum()
        kind, group = times.index[int(times.to_numpy(np.int64).argmax())]
        most = f", most in {kind}"
        most += f" of group {group}" if isinstance(group, str) and group else ""
    text = (
        f"{facts.share(exposed):.1f} % of the time only collectives ran: {shares[0]:.1f} % of it "
        f"waits for {_waited_for(facts, job)}, {shares[1]:.1f} % transfers{most}"
    )
    found = _gained(text, gain, "nothing ever waits for a transfer; waits for ranks stay")
    return replace(found, lo_ns=0)


def _waited_for(facts: RankFacts, job: Together) -> str:
    """Return the rank that was last most often where this one waited."""
    own = job.members[(job.members["rank"] == facts.rank) & job.members["last_rank"].notna()]
    others = own.loc[own["last_rank"] != facts.rank, "last_rank"].value_counts()
    if not len(others):
        return "other ranks"
    return f"other ranks, most often rank {others.index[0]} ({others.iloc[0]} of {len(own)})"
