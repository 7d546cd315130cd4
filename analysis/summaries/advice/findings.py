"""A rule, and its findings in a rank."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.summaries.advice.facts import RankFacts

FIRES: Final = "fires"
UNKNOWN: Final = "unknown"
SILENT: Final = "silent"

DEVICE: Final = "device"
CPU: Final = "cpu"
BOTH: Final = "both"

_ROWS_NAMED: Final = 8


@dataclass(frozen=True)
class RuleFinding:
    """The finding of a rule in one rank.

    Attributes:
        text: in words, with the numbers.
        hi_ns, lo_ns, expected_ns: what the remedy gains; None: no time that can be named.
        limit: what `hi_ns` is the most of.
        evidence: ids of rows by table, the most telling first.
        source: the line that most of it belongs to.
        status: `FIRES` or `UNKNOWN`.
        needs: what to record, where the verdict is unknown.
        removed: starts and ends of what the remedy takes off the host, for the joint bound.
        remedy: what to do, where what was recorded says better than the rule; None: the rule's.
    """

    text: str
    hi_ns: int | None = None
    lo_ns: int | None = None
    expected_ns: int | None = None
    limit: str | None = None
    evidence: Mapping[str, Collection[int]] = field(default_factory=dict)
    source: str | None = None
    status: str = FIRES
    needs: str | None = None
    removed: tuple[Int, Int] | None = None
    remedy: str | None = None


def unknown(text: str, needs: str, **found: Any) -> RuleFinding:
    """Return a finding whose conditions are not recorded."""
    return RuleFinding(text, status=UNKNOWN, needs=needs, **found)


def most_of(words: str, hi_ns: int, own_ns: int) -> str:
    """Return what the most that a remedy on the host gains is the most of.

    Args:
        words: what it is the most of.
        hi_ns: the most.
        own_ns: the idle time of the cause that the finding names; where the most is more, it says
            why it can be.
    """
    if hi_ns <= own_ns:
        return words
    return (
        f"{words}. More than the {format_time(own_ns)} idle for this cause: where the host is done "
        "sooner, it launches sooner what follows, and idle time of other causes goes, too"
    )


@dataclass(frozen=True)
class Rule:
    """A rule: when it fires, and what to do about it.

    Attributes:
        slug: its name.
        title: what is wrong, in a few words.
        fires: the condition, with its threshold.
        remedy: what to do.
        find: from what was recorded of a rank to what was found; None: silent.
        pollutes: whether it finds work of the recording's, not the program's, in some steps.
        on: where it holds: `DEVICE`, `CPU` (where no device worked), or `BOTH`.
    """

    slug: str
    title: str
    fires: str
    remedy: str
    find: Callable[[RankFacts], RuleFinding | None]
    pollutes: bool = False
    on: str = DEVICE

    def ask(self, facts: RankFacts) -> RuleFinding | None:
        """Return what it finds in what was recorded, which is looked for once."""
        if self.slug not in facts.found:
            facts.found[self.slug] = self.find(facts)
        found: RuleFinding | None = facts.found[self.slug]
        return found

    def holds(self, facts: RankFacts) -> bool:
        """Whether it can be asked of what was recorded."""
        return self.on in (BOTH, CPU if facts.is_cpu else DEVICE)


def evidence_text(evidence: Mapping[str, Collection[int]]) -> str | None:
    """Return ids of rows as text: the first ones, and how many there are more."""
    parts = []
    for table, rows in evidence.items():
        # There may be as many as there are kernels.
        named = ",".join(str(int(each)) for each in islice(rows, _ROWS_NAMED))
        more = len(rows) - _ROWS_NAMED
        parts += [f"{table}:{named}" + (f" (+{more})" if more > 0 else "")] if named else []
    return "; ".join(parts) or None
