"""Two runs compared: the difference of their steps, as terms that add up to it exactly.

The time of a step is what its GPU activities take, less what overlaps, plus what is idle:
W = S - O + Σ I. So ΔW = ΔS - ΔO + Σ ΔI, and ΔS is split up by `difference`. All of it is per step
and device, in fractions over whole nanoseconds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.compared_calls import (
    CASTS,
    COMMUNICATION,
    COMPUTE,
    COPIES,
    GROUP,
    CallSums,
)
from pyprof2.analysis.summaries.difference import TERMS, Leaves, difference, exact, jackknife
from pyprof2.columns import sum_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.summaries.difference import Numbers

Floats: TypeAlias = "NDArray[np.float64]"
REPLACED: Final = "replaced"
PRECISION: Final = "precision"
OVERLAP: Final = "overlap"
IDLE: Final = "idle: "
_ERRORS: Final = 2
"""Standard errors on either side of a value."""


@dataclass(frozen=True)
class Side:
    """One run, as it is compared: its selected steps.

    Attributes:
        calls: the distinct ones, see `CallSums.sums`, with the columns to group by.
        counts, sums_ns: how many there are of each by block of steps, and their time.
        blocks: the block of each step.
        times: of its GPU activities, all that are alike as one: `op`, `signature`, `category`,
            `time_ns`.
        windows: of the selected steps: `rank`, `device`, `step`, `start_ns`, `end_ns`, `busy_ns`.
        idle: `step`, `cause`, `time_ns`.
    """

    calls: pd.DataFrame
    counts: Int
    sums_ns: Int
    blocks: dict[int, int]
    times: pd.DataFrame
    windows: pd.DataFrame
    idle: pd.DataFrame

    @classmethod
    def of(cls, calls: CallSums, windows: pd.DataFrame, idle: pd.DataFrame) -> Side:
        """Return the side of some calls; see the attributes for the others."""
        return cls(*calls.sums(), calls.blocks, calls.times(), windows, idle)


@dataclass(frozen=True)
class Comparison:
    """The difference of two runs' steps.

    Attributes:
        steps: how many steps, over all ranks and devices, each side's figures are means of.
        step_ns: the mean time of a step on each side.
        terms: one row per term: `term`, `delta_ns` (a `Fraction`), `lo_ns` and `hi_ns` (two
            standard errors around it; null without an interval), by the size of the difference.
        details: the parts of the terms of calls: `term`, the columns of their groups, `signature`,
            `delta_ns`.
        totals: `metric` (`time`, `busy`, `idle`, `idle.CAUSE`), `a_ns`, `b_ns`, `lo_ns`, `hi_ns`
            (of the difference).
        layers_match: whether layers of one path are taken for the same.
    """

    steps: tuple[int, int]
    step_ns: tuple[Fraction, Fraction]
    terms: pd.DataFrame
    details: pd.DataFrame
    totals: pd.DataFrame
    layers_match: bool


def compare_sides(a: Side, b: Side, by: Sequence[str] = ()) -> Comparison:
    """Return what became slower and faster from `a` to `b`.

    Args:
        a: the run before.
        b: the run after.
        by: further columns that separate groups of calls.
    """
    sides = (a, b)
    times = [each.sums_ns.sum(axis=1) for each in sides]
    own = [each.calls.assign(side=at, time_ns=times[at]) for at, each in enumerate(sides)]
    calls = pd.concat(own, ignore_index=True)
    # Layers of both sides hold at least half of the time of either's layers.
    time = calls.pivot_table("time_ns", "layer", "side", "sum", fill_value=0)
    time = time.reindex(columns=[0, 1], fill_value=0)
    common = time[(time > 0).all(axis=1)].sum()
    layers_match = all(2 * int(common[side]) >= int(time[side].sum()) for side in time.columns)
    calls = calls if layers_match else calls.assign(layer=None)
    groups = _Groups.of(calls, [*GROUP, *by], sides)
    return _compared(groups, (_Steps.of(a), _Steps.of(b)), layers_match=layers_match)


def _compared(groups: _Groups, steps: tuple[_Steps, _Steps], *, layers_match: bool) -> Comparison:
    def estimate(
        weights: tuple[Floats | None, Floats | None],
    ) -> tuple[dict[str, Numbers], dict[str, Any], dict[str, tuple[Any, Any]], list[Any]]:
        """Return parts, terms and totals, and both's differences; of blocks with these weights."""
        a, b = (own.summed(weight) for own, weight in zip(steps, weights, strict=True))
        parts = difference(groups.leaves(weights), (a.steps, b.steps))
        terms, totals = groups.by_term(parts), _totals(a, b)
        # Terms that are of no call: overlap, and idle time by cause.
        terms[OVERLAP] = (a.work - a.busy) / a.steps - (b.work - b.busy) / b.steps
        terms |= {
            f"{IDLE}{cause}": after - before for cause, (before, after) in _idle_per_step(a, b)
        }
        return parts, terms, totals, [*terms.values(), *(b - a for a, b in totals.values())]

    parts, terms, totals, values = estimate((None, None))
    blocks = (len(steps[0].count), len(steps[1].count))
    errors = jackknife(lambda weights: np.array(estimate(weights)[-1], np.float64), blocks)
    half = [None] * len(values) if errors is None else (_ERRORS * errors).tolist()
    table = pd.DataFrame({"term": list(terms), "delta_ns": list(terms.values())})
    return Comparison(
        steps=(int(steps[0].count.sum()), int(steps[1].count.sum())),
        step_ns=totals["time"],
        terms=_with_interval(table, values[: len(terms)], half[: len(terms)]),
        details=groups.details(parts),
        totals=_with_interval(
            pd.DataFrame([(k, *v) for k, v in totals.items()], columns=["metric", "a_ns", "b_ns"]),
            values[len(terms) :], half[len(terms) :],
        ),
        layers_match=layers_match,
    )  # fmt: skip


def _with_interval(table: pd.DataFrame, values: list[Any], half: list[Any]) -> pd.DataFrame:
    ends = [
        (None, None) if h is None else (float(v) - h, float(v) + h)
        for v, h in zip(values, half, strict=True)
    ]
    lo, hi = zip(*ends, strict=True) if ends else ((), ())
    return table.assign(lo_ns=pd.array(lo, "Float64"), hi_ns=pd.array(hi, "Float64"))


@dataclass(frozen=True)
class _Groups:
    """Groups of calls: their counts and times by leaf and block of steps, and where they belong."""

    signature: Int
    dims: Int
    group: Int
    counts: tuple[Int, Int]
    times: tuple[Int, Int]
    keys: pd.DataFrame
    term: dict[str, list[str]]

    @classmethod
    def of(cls, calls: pd.DataFrame, columns: list[str], sides: Sequence[Side]) -> _Groups:
        """Return the groups by these columns of the calls of both sides, one after another."""
        further = ("dims", "signature", "kernels")
        levels = [[*columns, *further[:count]] for count in range(len(further) + 1)]
        group, dims, signature, leaf = (
            calls.groupby(level, dropna=False, observed=True).ngroup().to_numpy(np.int64)
            for level in levels
        )
        first = np.unique(leaf, return_index=True)[1]
        leaves: list[Int] = np.split(leaf, [len(sides[0].calls)])
        first_of_signature = np.unique(signature, return_index=True)[1]
        counts, times = (
            tuple(sum_at(own, each, len(first)) for own, each in zip(leaves, sums, strict=True))
            for sums in ([a.counts for a in sides], [a.sums_ns for a in sides])
        )
        keys = calls.iloc[first_of_signature][[*columns, "signature"]].reset_index(drop=True)
        places = (signature[first], dims[first_of_signature], group[first_of_signature])
        found = cls(*places, counts, times, keys, term={})  # type: ignore[arg-type]
        found.term.update(found._terms())
        return found

    def leaves(self, weights: tuple[Floats | None, Floats | None]) -> Leaves:
        """Return the sums over the blocks: exact, or with these weights."""
        counts, times = (
            tuple(
                exact(each.sum(axis=1)) if weight is None else each @ weight
                for each, weight in zip(both, weights, strict=True)
            )
            for both in (self.counts, self.times)
        )
        return Leaves(self.signature, self.dims, self.group, counts, times)  # type: ignore[arg-type]

    def _terms(self) -> dict[str, list[str]]:
        """Return for each part of a signature's difference the name of the term it belongs to."""
        kind = self.keys["kind"].tolist()
        replaced = self._replaced()
        words: dict[str, list[str]] = {}
        for part in TERMS:
            swapped, more = part in ("new", "gone"), part in ("new", "gone", "calls")
            words[part] = [
                COMMUNICATION if k == COMMUNICATION
                else f"{COPIES}: {part}" if k == COPIES
                else PRECISION if more and k == CASTS
                else REPLACED if swapped and r
                else part
                for k, r in zip(kind, replaced, strict=True)
            ]  # fmt: skip
        return words

    def _replaced(self) -> list[bool]:
        """Return whether the layer and direction of a signature has both new and gone groups."""
        count = [np.bincount(self.group[self.signature], c.sum(axis=1)) for c in self.counts]
        has = [(each > 0)[self.group] for each in count]
        computes = (self.keys["kind"] == COMPUTE).to_numpy()
        places = self.keys.assign(new=computes & ~has[0], gone=computes & ~has[1])
        found = places.groupby(["layer", "direction"], dropna=False, observed=True)[["new", "gone"]]
        return list(found.transform("any").all(axis=1))

    def by_term(self, parts: dict[str, Numbers]) -> dict[str, Any]:
        """Return the sum of each term."""
        sums: dict[str, Any] = defaultdict(int)
        for part, values in parts.items():
            for term, value in zip(self.term[part], values, strict=True):
                sums[term] = sums[term] + value
        return dict(sums)

    def details(self, parts: dict[str, Numbers]) -> pd.DataFrame:
        """Return a row for each part of a term that is not 0."""
        rows = [
            self.keys.assign(term=self.term[part], delta_ns=values)[values != 0]
            for part, values in parts.items()
        ]
        whole: pd.DataFrame = pd.concat(rows, ignore_index=True).drop(columns="kind")
        return whole


class _StepSums(NamedTuple):
    """Sums over the steps of one side: how many steps of devices, and times."""

    steps: Any
    window: Any
    busy: Any
    work: Any
    idle: dict[str, Any]


@dataclass(frozen=True)
class _Steps:
    """The steps of one side, by block."""

    count: Int
    window: Int
    busy: Int
    work: Int
    idle: dict[str, Int]

    @classmethod
    def of(cls, side: Side) -> _Steps:
        """Return the sums by block of a side's windows, idle time and calls."""
        blocks = side.blocks

        def summed(steps: pd.Series, values: pd.Series) -> Int:
            sums = np.zeros(max(blocks.values(), default=0) + 1, np.int64)
            np.add.at(sums, steps.map(blocks).to_numpy(np.int64), values.to_numpy(np.int64))
            return sums

        windows = side.windows
        length = windows["end_ns"] - windows["start_ns"]
        idle = side.idle[side.idle["step"].isin(list(blocks))]
        return cls(
            count=summed(windows["step"], pd.Series(1, windows.index)),
            window=summed(windows["step"], length),
            busy=summed(windows["step"], windows["busy_ns"]),
            work=side.sums_ns.sum(axis=0),
            idle={
                str(cause): summed(own["step"], own["time_ns"])
                for cause, own in idle.groupby("cause", observed=True)
            },
        )

    def summed(self, weights: Floats | None) -> _StepSums:
        """Return the sums over the blocks: exact, or with these weights."""

        def total(values: Int) -> Any:
            return Fraction(int(values.sum())) if weights is None else values @ weights

        idle = {cause: total(values) for cause, values in self.idle.items()}
        steps, window, busy, work = map(total, (self.count, self.window, self.busy, self.work))
        return _StepSums(steps, window, busy, work, idle)


def _idle_per_step(a: _StepSums, b: _StepSums) -> list[tuple[str, tuple[Any, Any]]]:
    """Return the idle time per step of both sides, by cause."""
    none = a.window - a.window  # a fraction where the others are
    return [
        (cause, (a.idle.get(cause, none) / a.steps, b.idle.get(cause, none) / b.steps))
        for cause in sorted({*a.idle, *b.idle})
    ]


def _totals(a: _StepSums, b: _StepSums) -> dict[str, tuple[Any, Any]]:
    """Return per step, for both sides: its time, busy and idle, and idle by cause."""
    found = {
        "time": (a.window / a.steps, b.window / b.steps),
        "busy": (a.busy / a.steps, b.busy / b.steps),
        "idle": ((a.window - a.busy) / a.steps, (b.window - b.busy) / b.steps),
    }
    found |= {f"idle.{cause}": sides for cause, sides in _idle_per_step(a, b)}
    return found
