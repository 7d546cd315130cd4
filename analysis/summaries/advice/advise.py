"""Findings of all rules, and the joint bound on what their remedies can gain."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import merged, time_within, union_length
from pyprof2.analysis.summaries.advice.device import OF_KERNELS
from pyprof2.analysis.summaries.advice.facts import (
    TIMES,
    RankFacts,
    by_device,
    ends,
    int_values,
)
from pyprof2.analysis.summaries.advice.findings import (
    FIRES,
    SILENT,
    UNKNOWN,
    Rule,
    RuleFinding,
    evidence_text,
)
from pyprof2.analysis.summaries.advice.floors import (
    COVERED,
    best_peak,
    floor_ns,
    half_peak,
    known_share,
)
from pyprof2.analysis.summaries.advice.job import exposed_ns
from pyprof2.analysis.summaries.advice.recording import affected_steps, full_queue, stalls_of
from pyprof2.analysis.summaries.advice.rules import CONTEXT, ON_THE_HOST, RULES
from pyprof2.analysis.summaries.findings import Finding
from pyprof2.columns import combinations, combine_keys, values_of
from pyprof2.recording import int_column
from pyprof2.result_tables import ADVICE
from pyprof2.tables import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

LEAST_PCT: Final = 1
_HIGH_PCT: Final = 10
_MEDIUM_PCT: Final = 3
_ORDER: Final = (FIRES, UNKNOWN, SILENT)
_TYPES: Final = {
    column.name: "string" if column.type == TEXT else "Int64" if column.nullable else "int64"
    for column in ADVICE.columns
}
"""The pandas types of the columns of findings, also of empty ones."""
_RECORD_LATER: Final = "steps after warm-up: without step {steps} nothing of it is left"


def advice_of_facts(facts_of_each: Iterable[RankFacts]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what all rules find.

    Args:
        facts_of_each: what was recorded of each rank; looked at one after another.

    Returns:
        The table `ADVICE`: one row per rank and rule; those that fire, the largest gain first,
        then the unknown and the silent ones. And the joint bounds, see `gain_bound`, a row per
        rank.
    """
    rows, bounds = [], []
    for facts in facts_of_each:
        found = find(facts)
        rows += [_row(facts, rule, each) for rule, each in found]
        bounds.append(gain_bound(facts, found))
    frame = pd.DataFrame(rows, columns=ADVICE.names).astype(_TYPES)
    worth = frame["expected_ns"].fillna(frame["at_stake_hi_ns"]).fillna(-1)
    order = frame.assign(status=frame["status"].map(_ORDER.index), worth=-worth).sort_values(
        ["rank", "status", "worth"], kind="stable"
    )
    columns = [
        "rank", "devices", "window_ns", "host_ns", "device_ns", "comm_ns", "bound_ns", "known_pct",
    ]  # fmt: skip
    whole = dict.fromkeys(("device_ns", "bound_ns"), "Int64")
    joint = pd.DataFrame(bounds, columns=columns).astype(whole)
    return frame.loc[order.index].reset_index(drop=True), joint


def find_pollution(facts_of_each: Iterable[RankFacts]) -> Iterator[Finding]:
    """Yield what makes parts of recordings unlike the program.

    Args:
        facts_of_each: as for `advice_of_facts`; of those without a device it says nothing.
    """
    for facts in facts_of_each:
        for rule in RULES if not facts.is_cpu else ():
            if rule.pollutes and (each := rule.ask(facts)) is not None:
                text = f"polluted: {each.text}"
                remedy = each.remedy or rule.remedy
                yield Finding("lack", text, None, None, remedy, facts.rank)


def noting_pollution(
    facts_of_each: Iterable[RankFacts], polluted: list[Finding]
) -> Iterator[RankFacts]:
    """Yield the same facts, and put what `find_pollution` finds in them into `polluted`."""
    for facts in facts_of_each:
        facts.tables.for_all_rules = True
        # This one takes most memory: it comes first, when there is nothing else to hold.
        for rule in RULES:
            if rule.slug == "memory-growth" and rule.holds(facts):
                rule.ask(facts)
        polluted += find_pollution([facts])
        yield facts


def find(facts: RankFacts) -> list[tuple[Rule, RuleFinding | None]]:
    """Return what each rule finds in a rank; None where it is silent."""
    affected = affected_steps(facts) if facts.has_steps else set()
    whole = len(affected) == len(set(facts.steps.step.tolist()))
    rest = facts.without(affected) if affected and not whole else None
    rules = [rule for rule in RULES if rule.holds(facts)]
    found = [(rule, _found(rule, facts, rest, affected)) for rule in rules]
    on_host = any(
        each is not None and each.status == FIRES and rule.slug in ON_THE_HOST
        for rule, each in found
    )
    return [(rule, None if rule.slug in CONTEXT and not on_host else each) for rule, each in found]


def _found(
    rule: Rule, facts: RankFacts, rest: RankFacts | None, affected: set[int]
) -> RuleFinding | None:
    """Return what a rule finds, unknown if it is in steps alone that only a start has."""
    found = _at_stake(rule.ask(facts), facts)
    if found is None or found.status != FIRES or rest is None or found.hi_ns is None:
        return found
    left = _at_stake(rule.ask(rest), rest)
    if left is not None and left.status == FIRES:
        return found
    steps = ", ".join(map(str, sorted(affected)))
    needs = _RECORD_LATER.format(steps=steps)
    return replace(found, status=UNKNOWN, needs=needs)


def _at_stake(found: RuleFinding | None, facts: RankFacts) -> RuleFinding | None:
    """Return what was found, None where too little is at stake."""
    if found is None or found.hi_ns is None or facts.share(found.hi_ns) >= LEAST_PCT:
        return found
    return None


def _row(facts: RankFacts, rule: Rule, found: RuleFinding | None) -> dict[str, Any]:
    if found is None:
        return {"rank": facts.rank, "rule": rule.slug, "status": SILENT}
    severity = "info"
    worth_ns = found.hi_ns if found.expected_ns is None else found.expected_ns
    if worth_ns is not None:
        share = facts.share(worth_ns)
        severity = "high" if share >= _HIGH_PCT else "medium" if share >= _MEDIUM_PCT else "low"
    return {
        "rank": facts.rank,
        "rule": rule.slug,
        "severity": severity,
        "status": found.status,
        "finding": found.text,
        "at_stake_lo_ns": found.lo_ns,
        "at_stake_hi_ns": found.hi_ns,
        "expected_ns": found.expected_ns,
        "limit": found.limit,
        "evidence": evidence_text(found.evidence),
        "source": found.source,
        "remedy": found.remedy or rule.remedy,
        "needs": found.needs,
    }


def gain_bound(
    facts: RankFacts, found: Sequence[tuple[Rule, RuleFinding | None]]
) -> dict[str, int | float | None]:
    """Return what all remedies together can gain at most, and the times that it rests on.

    The recorded time cannot become shorter than the longest of three: what the busiest thread
    still does in ops and GPU calls when the remedies have taken theirs off it (calls that wait
    for the device are none of its work); what the kernels of the busiest stream need for their
    FLOPs and bytes at the peak rates; and the communication as it was recorded, without what was
    exposed if that is a finding. Waits among several ranks are no communication that must stay,
    and neither is the work of a host whose rank is to be as the others.

    Where FLOPs and bytes are known of less than half of the kernels' time (`known_pct`), what the
    device needs is not known, and neither is the bound, unless host or communication need longer.
    """
    fires = [each for _, each in found if each is not None and each.status == FIRES]
    removed = [each.removed for each in fires if each.removed is not None]
    slugs = {rule.slug for rule, each in found if each is not None and each.status == FIRES}
    host, device = _host_ns(facts, removed), _device_ns(facts, slugs)
    host *= "host-pause" not in slugs
    own = facts.rows("kernels", *TIMES, where=facts.comm("kernels"))
    every = np.ones(len(own), bool)
    times = [union_length(*ends(rows)) for rows, _ in by_device(own, every)]
    comm = max(times, default=0) - ("exposed-communication" in slugs) * exposed_ns(facts)
    if facts.job is not None:
        members = facts.job.members
        comm -= int(members.loc[members["rank"] == facts.rank, "wait_ns"].sum())
    comm = max(0, comm)
    devices = facts.devices_count
    bound = max(0, facts.window_ns // devices - max(host, device, comm))
    work = facts.rows("kernels", *OF_KERNELS, where=~facts.comm("kernels"))
    known = known_share(facts, work)
    # However fast the device is, a host or communication that takes as long has to stay.
    unknown_ns = (1 - known) * float(work["dur_ns"].sum())
    is_known = known >= COVERED or max(host, comm) >= device + unknown_ns
    return {
        "rank": facts.rank, "devices": devices, "window_ns": facts.window_ns // devices,
        "host_ns": host, "device_ns": device if is_known else None, "comm_ns": comm,
        "bound_ns": bound if is_known else None, "known_pct": 100 * known,
    }  # fmt: skip


def _host_ns(facts: RankFacts, removed: Sequence[Any]) -> int:
    """Return how long the busiest thread worked in ops and calls outside of what is removed."""
    waits = [facts.calls_of("sync", "allocator", "copy_call"), full_queue(facts)]
    waits.append(stalls_of(facts, "queue_full"))
    off = [*removed, *map(ends, waits)]
    off_start, off_end = (np.concatenate(column) for column in zip(*off, strict=True))
    off_start, off_end = merged(off_start, off_end)
    columns = ("pid", "tid", "start_ns", "dur_ns")
    times: Counter[tuple[int, int]] = Counter()
    until: dict[tuple[int, int], int] = {}
    for parts in facts.tables.in_time(("ops", "launches"), columns):
        pid, tid, start, length = (int_column(parts, each, -1) for each in columns)
        thread = combine_keys(pid, tid)
        for each in values_of(thread).tolist():
            own = np.flatnonzero(thread == each)
            key = int(pid[own[0]]), int(tid[own[0]])
            begin, end = merged(start[own], start[own] + length[own])
            # An op that began before may go on.
            begin = np.maximum(begin, until.get(key, begin[0]))
            end = np.maximum(begin, end)
            until[key] = int(end[-1])
            near = slice(np.searchsorted(off_end, begin[0]), np.searchsorted(off_start, end[-1]))
            removed_ns = time_within(begin, end, off_start[near], off_end[near]).sum()
            times[key] += int((end - begin).sum() - removed_ns)
    return max(times.values(), default=0)


def _device_ns(facts: RankFacts, slugs: set[str]) -> int:
    """Return what the kernels of the busiest stream need; those that may go away need nothing."""
    kernels = facts.rows("kernels", *OF_KERNELS, "device", "stream")
    is_half = "half-precision" in slugs
    floor = floor_ns(facts, kernels, half_peak if is_half else best_peak, 2 if is_half else 1)
    np.minimum(floor, kernels["dur_ns"].to_numpy(), out=floor)
    if slugs & {"elementwise-chains", "layout-and-casts", "unfused-optimizer"}:
        floor[~facts.are("kernels", "category", ("matmul", "conv", "attention"))] = 0.0
    stream = combinations([int_values(kernels[name]) for name in ("device", "stream")])[1]
    return int(pd.Series(floor).groupby(stream, observed=True).sum().max()) if len(kernels) else 0


_SAME: Final = ("status", "rule", "source", "needs")


def alike(findings: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the findings, those of several ranks that are alike as one.

    They are alike if they are of one rule and line, and need the same to be recorded. The
    one with the largest stake stands for all: times of ranks are never added up.

    Args:
        findings: of `advice_of_facts`, in their order.

    Returns:
        Its rows as objects, null as None, with `ranks`, who has it, `rank` among them; and
        `least_ns`, the smallest of their largest stakes. In this order in each status.
    """
    statuses = list(dict.fromkeys(findings["status"]))
    found = sorted(_groups(findings), key=_greatest_first)
    return sorted(found, key=lambda row: statuses.index(row["status"]))


def _greatest_first(row: Mapping[str, Any]) -> int:
    """Order by the expected gain of a remedy, the greatest possible where none is expected."""
    expected_ns = row["expected_ns"]
    return -((row["at_stake_hi_ns"] if expected_ns is None else expected_ns) or 0)


def _groups(findings: pd.DataFrame) -> Iterator[dict[str, Any]]:
    plain = findings.astype(object)
    rows = plain.where(plain.notna(), None).to_dict("records")
    groups: dict[tuple[Any, ...], list[dict[Any, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in _SAME), []).append(row)
    for own in groups.values():
        stakes = [row["at_stake_hi_ns"] or 0 for row in own]
        most = own[stakes.index(max(stakes))]
        ranks = sorted({row["rank"] for row in own})
        yield {str(name): value for name, value in most.items()} | {
            "ranks": ranks, "least_ns": min(stakes) if most["at_stake_hi_ns"] else None
        }  # fmt: skip
