"""Rules on code that torch.compile compiled: what breaks it up, and what it does not speed up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.summaries.advice.device import OF_KERNELS, of_floors, of_kernels, top_line
from pyprof2.analysis.summaries.advice.findings import RuleFinding
from pyprof2.analysis.summaries.advice.floors import above_floor, best_peak, floor_ns, plain_peak
from pyprof2.units import counted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pyprof2.analysis.summaries.advice.facts import RankFacts

LOW_ROOF: Final = 0.3
LOW_ROOF_PCT: Final = 5
ISLANDS_PCT: Final = 5
SHORT_NS: Final = 10_000
_FUSED: Final = ("elementwise", "reduce", "copy")
_SHOWN: Final = 2


def noted(facts: RankFacts, kind: str) -> list[Mapping[str, Any]]:
    """Return the noted breaks of one kind, the most frequent first."""
    return [each for each in facts.compile_events if each["kind"] == kind]


def reasons(events: list[Mapping[str, Any]]) -> str:
    """Return the places and reasons of the first breaks in words."""
    words = [f"{each['place'] or 'an unknown line'}: {each['reason']}" for each in events[:_SHOWN]]
    more = len(events) - _SHOWN
    return "; ".join(words) + (f"; {counted(more, 'other reason')}" if more > 0 else "")


def graph_breaks(facts: RankFacts) -> RuleFinding | None:
    """A graph ends where the compiler cannot follow: tensors go through memory, ops run one by one.

    The reasons are the compiler's own words, noted while it compiled, also before the recording.
    What a break costs is not known: `uncompiled` counts the time of ops outside of graphs.
    """
    events = noted(facts, "graph break")
    if not events:
        return None
    count = sum(each["count"] for each in events)
    return RuleFinding(
        f"{counted(count, 'graph break')}, {reasons(events)}", source=events[0]["place"]
    )


def uncompiled(facts: RankFacts) -> RuleFinding | None:
    """Ops of forward and backward run one by one, beside code that is compiled.

    They are in no graph: what breaks one is between two, or the compiled function ends before.
    """
    is_compiled = facts.are("kernels", "link", ("compiled",))
    if not is_compiled.any():
        return None
    inside = facts.are("kernels", "direction", ("forward", "backward"))
    is_op = facts.rows("kernels", "op_id")["op_id"].notna().to_numpy(bool)
    wanted = inside & is_op & ~is_compiled & ~facts.comm("kernels")
    own = facts.rows("kernels", *OF_KERNELS, where=wanted)
    share = facts.kernel_share(own["dur_ns"].sum())
    if share < ISLANDS_PCT:
        return None
    text = f"{share:.1f} % of the kernels' time, in {counted(len(own), 'kernel')} outside of graphs"
    if line := top_line(own):
        text += f"; most at {line}"
    return of_floors(facts, own, best_peak, text, "their time less what their FLOPs and bytes need")


def slow_fused(facts: RankFacts) -> RuleFinding | None:
    """Kernels that the compiler wrote take much longer than their FLOPs and bytes need.

    Their bytes are an estimate: what is read in part counts no more than the kernel runs over.
    Kernels of 10 us or less, whose start takes longer than their work, do not count.
    """
    own = facts.rows(
        "kernels",
        *OF_KERNELS,
        where=facts.are("kernels", "link", ("compiled",))
        & facts.are("kernels", "category", _FUSED),
    )
    own = own[own["bytes"].notna().to_numpy(bool) & (own["dur_ns"] > SHORT_NS).to_numpy(bool)]
    floor = floor_ns(facts, own, plain_peak)
    slow = own[(floor > 0) & (floor < LOW_ROOF * own["dur_ns"].to_numpy(float))]
    share = facts.kernel_share(slow["dur_ns"].sum())
    if share < LOW_ROOF_PCT:
        return None
    of_roof = 100 * np.sum(floor_ns(facts, slow, plain_peak)) / slow["dur_ns"].sum()
    text = (
        f"{share:.1f} % of the kernels' time, in {counted(len(slow), 'kernel')} at {of_roof:.0f} % "
        "of their roof"
    )
    saved = above_floor(facts, slow, plain_peak)
    return of_kernels(facts, slow, saved, text, "their time less what their FLOPs and bytes need")
