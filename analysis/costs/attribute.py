"""Give every op its cost, and every kernel its share of it, so that nothing counts twice.

One op accounts for each call tree: the outermost one with a formula. An op that only calls other
ops (`aten::linear`) accounts for itself only where none of those has a formula; one that multiplies
matrices also where those with one only move its operands or its result. The counts of an
accounting op are shared among its kernels in proportion to their time; kernels that only help
(split-K reductions, layout changes, a bias that is copied or added) get nothing where there is a
main kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from pyprof2.analysis.categories import MATRIX_WORK, OTHER
from pyprof2.analysis.costs import Cost, Estimate, category_of, estimate, is_composite, is_view
from pyprof2.analysis.costs.evidence import needed_clues, put_together
from pyprof2.analysis.intervals import holds_marked, nearest_marked
from pyprof2.columns import distinct, lookup, sum_at
from pyprof2.recording import TextCodes
from pyprof2.signatures import OpCall

if TYPE_CHECKING:
    from pyprof2.analysis.costs.evidence import Clue, OpEvidence
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.columns import TextColumn

UNKNOWN: Final = -1
"""Stands for null in columns of counts."""

FILLING_OPS: Final = frozenset({"aten::fill_", "aten::zero_", "aten::fill", "aten::zeros"})
"""Ops that fill memory with a number: inside another op they prepare a buffer for its work."""

ROLES: Final = ["main", "helper", "nested"]
"""The part of a kernel in its op's cost: main kernels do the work and share the counts; helpers by
their name, and kernels of an op inside that does another kind of work, get nothing."""

STATUSES: Final = ["ok", "assumed", "no_formula", "no_shapes", "no_op", "in_parent"]

_COUNTED_INSIDE: Final = "counted at the ops inside"


class CostDescription(NamedTuple):
    """How the counts of an estimate came about; None where the formula does not say."""

    flops_formula: str | None
    flops_numbers: str | None
    bytes_read: int | None
    bytes_written: int | None

    @classmethod
    def of(cls, cost: Cost) -> CostDescription:
        """Take what is to be shown of a cost."""
        return cls(
            cost.flops_formula or None,
            cost.flops_numbers or None,
            cost.bytes_read,
            cost.bytes_written,
        )


@dataclass(frozen=True)
class OpCosts:
    """The cost of each op, and which op accounts for it.

    Attributes:
        estimate: for each op the position of its estimate in `estimates`.
        estimates: one per distinct op, inputs, and what is known of these from elsewhere.
        shapes_from: for each estimate where the shapes behind it are from; None for no inputs.
        shapes_op: for each op the position of the other op that gave shapes, -1 for none.
        owner: for each op the position of the op that accounts for it, -1 for none.
        category: for each op its category as a code into `categories`, -1 for none.
        fills: for each op whether it only fills memory with a number.
        descriptions: the distinct descriptions of estimates that are known so far.
    """

    estimate: Int
    estimates: list[Estimate]
    shapes_from: list[str | None]
    shapes_op: Int
    owner: Int
    category: Int
    categories: list[str]
    fills: Bool
    descriptions: TextCodes

    @cached_property
    def counts(self) -> dict[str, Int]:
        """Each of `COUNTS` of each estimate."""
        return {
            name: np.array([count_of(e, name) for e in self.estimates] or [UNKNOWN], np.int64)
            for name in COUNTS
        }

    @cached_property
    def status(self) -> Int:
        """The status of each op as a code into `STATUSES`.

        An op that accounts for itself is `ok` or `assumed`, and only such a one. An op that is
        counted at another one, around it or inside, is `in_parent`.
        """
        codes = [STATUSES.index(e.status) for e in self.estimates]
        of_estimate = np.array(codes or [-1], np.int8)[self.estimate]
        has_counts = np.array([e.cost is not None for e in self.estimates] or [False])
        elsewhere = (self.owner >= 0) | has_counts[self.estimate]
        elsewhere &= self.owner != np.arange(len(self.owner))
        return np.where(elsewhere, STATUSES.index("in_parent"), of_estimate).astype(np.int64)

    @cached_property
    def note(self) -> TextColumn:
        """The note of each op on its status: that of its estimate, or where it is counted."""
        notes = [*(e.note for e in self.estimates), _COUNTED_INSIDE]
        where = np.where(self.owner >= 0, -1, len(notes) - 1)
        is_elsewhere = self.status == STATUSES.index("in_parent")
        return np.where(is_elsewhere, where, self.estimate), notes

    def estimate_categories(self) -> list[str]:
        """Return the category of each estimate."""
        return [e.category for e in self.estimates]

    def texts(self, field: str) -> list[str | None]:
        """Return `params` or `dtype` of each estimate."""
        return [None if e.cost is None else getattr(e.cost, field) or None for e in self.estimates]

    @cached_property
    def described(self) -> Int:
        """The number of each estimate's description, -1 for none.

        Estimates of ops that account for nothing have none.
        """
        accounts = np.unique(self.estimate[self.owner == np.arange(len(self.owner))])
        number = np.full(max(1, len(self.estimates)), -1, np.int64)
        for at in accounts.tolist():
            cost = self.estimates[at].cost
            if cost is not None:
                number[at] = self.descriptions[CostDescription.of(cost)]
        return number

    def is_matrix_work(self, op: Int) -> Bool:
        """Return of ops by position, -1 for none, which are matrix products."""
        return self._has_category(op, [text in MATRIX_WORK for text in self.categories])

    def is_other_work(self, op: Int) -> Bool:
        """Return of ops by position, -1 for none, which are known not to be matrix products."""
        return self._has_category(
            op, [text not in (*MATRIX_WORK, OTHER) for text in self.categories]
        )

    def _has_category(self, op: Int, wanted: list[bool]) -> Bool:
        found: Bool = np.array([*wanted, False])[lookup(self.category, op, -1)]
        return found


def count_of(found: Estimate, field: str) -> int:
    """Return one of `COUNTS` of an estimate, `UNKNOWN` for null."""
    if found.cost is None:
        return UNKNOWN
    value = getattr(found.cost, field)
    if value is None and field[-3:] in ("_lo", "_hi"):
        # Without any bounds the count is both; where only one is known, the other is open.
        other = f"{field[:-3]}{'_hi' if field.endswith('_lo') else '_lo'}"
        value = getattr(found.cost, field[:-3]) if getattr(found.cost, other) is None else None
    return UNKNOWN if value is None else int(value)


def cost_ops(ops: Ops, evidence: OpEvidence, descriptions: TextCodes | None = None) -> OpCosts:
    """Estimate every op, once per distinct call, and find out which op accounts for which.

    Args:
        ops: the nested ops.
        evidence: their calls, and what is known of each from elsewhere.
        descriptions: those of earlier estimates, to which are added those of these.
    """
    of_name = [category_of(name) for name in ops.names]
    categories = sorted({text for text in of_name if text})
    code = {text: number for number, text in enumerate(categories)}
    category = np.array([code[text] if text else -1 for text in of_name] or [-1])[ops.name]
    which, estimates, needed = _estimate_distinct(ops, evidence)
    fills = np.array([text in FILLING_OPS for text in ops.names] or [False])[ops.name]
    owners = _owners(ops, which, estimates)
    words = [None if clues is None else [clue.words for clue in clues.values()] for clues in needed]
    shapes_from = [
        None
        if said is None
        else f"its inputs, and {' and '.join(said)}"
        if said
        else "the inputs recorded with the op"
        for said in words
    ]
    # The op that the last clue behind an estimate is from gave the shapes.
    last = np.array([max(clues or (), default=-1) for clues in needed] or [-1])[which]
    shapes_op = np.full(len(which), -1, np.int64)
    for place, origin in enumerate(evidence.origins):
        shapes_op = np.where(last == place, origin, shapes_op)
    return OpCosts(
        which, estimates, shapes_from, shapes_op, owners, category, categories, fills,
        TextCodes() if descriptions is None else descriptions,
    )  # fmt: skip


_Needed: TypeAlias = "dict[int, Clue] | None"
"""The clues that an estimate rests on besides its inputs, by place; None: it has no inputs."""


def _estimate_distinct(ops: Ops, evidence: OpEvidence) -> tuple[Int, list[Estimate], list[_Needed]]:
    """Return an estimate per distinct call and what is known of it, and what each rests on."""
    calls, width = evidence.calls, len(evidence.distinct)
    # An op without a signature counts as a call without inputs: one key per name.
    call = np.where(evidence.signature >= 0, evidence.signature, len(calls) + ops.name)
    keys, which = distinct(call * width + evidence.which)
    estimates: list[Estimate] = []
    needed: list[_Needed] = []
    for key in keys.tolist():
        of_call, of_evidence = divmod(key, width)
        if of_call < len(calls):
            # Found once for each call and clues.
            clues, at = evidence.distinct[of_evidence], (of_call, evidence.keys[of_evidence])
            if at not in calls.estimated:
                own = estimate(calls[of_call], put_together(clues))
                rests_on = needed_clues(calls[of_call], clues, own)
                calls.estimated[at] = own, {place: clues[place] for place in rests_on}
            found = calls.estimated[at]
        else:
            found = estimate(OpCall(ops.names[of_call - len(calls)], ())), None
            if found[0].status != "no_formula" and not is_view(ops.names[of_call - len(calls)]):
                found = Estimate(None, found[0].category, "no_shapes", ""), None
        estimates.append(found[0])
        needed.append(found[1])
    return which, estimates, needed


def _owners(ops: Ops, which: Int, estimates: list[Estimate]) -> Int:
    """Return for each op the one that accounts for it, or -1."""
    usable = np.array([e.cost is not None for e in estimates] or [False])[which]
    view = np.array([is_view(text) for text in ops.names] or [False])[ops.name]
    composite = np.array([is_composite(text) for text in ops.names] or [False])[ops.name]
    multiplies = np.array([e.category in MATRIX_WORK for e in estimates] or [False])[which]
    does_work = usable & ~view & ~composite
    inside, products = (
        holds_marked(ops.parent, marked) for marked in (does_work, does_work & multiplies)
    )
    # A view that does work all the same, because it had to copy, calls others to do it; what only
    # copies inside of a product has not multiplied.
    accounts = usable & (~(composite | view) | ~np.where(multiplies, products, inside))
    within = lookup(nearest_marked(ops.parent, accounts), ops.parent, -1)
    return nearest_marked(ops.parent, accounts & (within < 0))


def share(total: Int, group: Int, weight: Int) -> Int:
    """Split each group's total among its members in proportion to their weights, exactly.

    Largest remainder: the shares of a group add up to its total.

    Args:
        total: by group; `UNKNOWN` gives every member `UNKNOWN`.
        group: the group of each member, dense from 0.
        weight: of each member, not negative; a group of zeros is split evenly.
    """
    found = total[group]
    several = np.bincount(group, minlength=len(total))[group] > 1
    if several.any():
        which, group = np.unique(group[several], return_inverse=True)
        found[several] = _split(total[which], group, weight[several])
    return found


def _split(total: Int, group: Int, weight: Int) -> Int:
    """Split as `share` does; no group is empty."""
    sums = sum_at(group, weight, len(total))
    weight = np.where(sums[group] > 0, weight, 1)
    sums = np.maximum(1, sum_at(group, weight, len(total)))
    # The whole multiples of the weights are exact; only the rest needs a fraction, of a
    # number that is not above the weight.
    times, over = np.divmod(total, sums)
    exact = over[group].astype(np.longdouble) * weight / sums[group]
    floor = times[group] * weight + np.floor(exact).astype(np.int64)
    rest = total - sum_at(group, floor, len(total))
    order = np.lexsort((np.floor(exact) - exact, group))
    first = np.searchsorted(group[order], np.arange(len(total)))
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first[group[order]]
    size = np.maximum(1, np.bincount(group, minlength=len(total)))
    each, extra = np.divmod(rest, size)
    floor += each[group] + (place < extra[group])
    return np.where(total[group] == UNKNOWN, UNKNOWN, floor)


@dataclass(frozen=True)
class Shares:
    """The work of each kernel: its part of the counts of the op that accounts for it.

    Attributes:
        owner: the accounting op of each kernel by position, -1 for none.
        op_time: summed time of all kernels of that op, the base of its rates; 0 for none.
        op_flops, op_bytes: the counts of that op as a whole, `UNKNOWN` for null.
        role: of each kernel in that cost, as a code into `ROLES`, -1 for none.
        counts: by name, `UNKNOWN` for null.
    """

    owner: Int
    op_time: Int
    op_flops: Int
    op_bytes: Int
    role: Int
    counts: dict[str, Int]


COUNTS: Final = ("flops", "bytes", "flops_lo", "flops_hi", "bytes_lo", "bytes_hi")


class OwnedWork(NamedTuple):
    """The work that each kernel has a part in.

    Attributes:
        owner: the number of what accounts for it, -1 for none.
        totals: by name in `COUNTS`, the counts of that as a whole; `UNKNOWN` for null.
        is_nested: whether the kernel is of an op inside that does another kind of work.
        in_product: whether that is a matrix product.
    """

    owner: Int
    totals: dict[str, Int]
    is_nested: Bool
    in_product: Bool


def owned_work(costs: OpCosts, op: Int) -> OwnedWork:
    """Return the work of the ops that account for these; -1 for no op.

    Another kind of work is that of an op inside which fills a buffer, and in a matrix product of an
    op of another kind (`aten::sum` of a bias' gradient, `aten::copy_` of an operand).
    """
    owner = lookup(costs.owner, op, -1)
    estimate = lookup(costs.estimate, owner, -1)
    totals = {name: lookup(costs.counts[name], estimate, UNKNOWN) for name in COUNTS}
    fills = lookup(costs.fills.astype(np.int64), op, 0) > 0
    in_product = costs.is_matrix_work(owner)
    nested = (owner != op) & (fills | (in_product & costs.is_other_work(op)))
    return OwnedWork(owner, totals, nested, in_product)


def share_costs(work: OwnedWork, dur: Int, helper: Bool, moves: Bool) -> Shares:
    """Share counts among the kernels that have a part in them.

    In a matrix product a kernel whose name can only move or add helps too (the bias that
    `aten::addmm` copies into its result).

    Args:
        work: of each kernel.
        dur: of each kernel its time.
        helper: of each kernel whether its name says that it is one.
        moves: of each kernel whether its name says that it can only copy, add, fill or sum.
    """
    owner = work.owner
    rows = np.flatnonzero(owner >= 0)
    owners, first, group = np.unique(owner[rows], return_index=True, return_inverse=True)
    role = np.full(len(owner), -1, np.int64)
    by_name = np.where(helper | (work.in_product & moves), _HELPER, _MAIN)
    role[rows] = np.where(work.is_nested, _NESTED, by_name)[rows]
    has_main = np.bincount(group, role[rows] == _MAIN, len(owners)) > 0
    role[rows[~has_main[group]]] = _MAIN
    working = role[rows] == _MAIN
    op_time = np.zeros(len(owner), np.int64)
    op_time[rows] = sum_at(group, dur[rows], len(owners))[group]
    counts, whole = {}, {}
    for name in COUNTS:
        total = work.totals[name][rows[first]]
        whole[name] = work.totals[name]
        part = np.full(len(owner), UNKNOWN, np.int64)
        part[rows] = np.where(total[group] == UNKNOWN, UNKNOWN, 0)
        part[rows[working]] = share(total, group[working], dur[rows[working]])
        counts[name] = part
    return Shares(owner, op_time, whole["flops"], whole["bytes"], role, counts)


_MAIN, _HELPER, _NESTED = range(len(ROLES))
