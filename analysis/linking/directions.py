"""The direction of each op: forward, backward, the optimizer's, or other work around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, Nest, last_not_after, nearest_marked
from pyprof2.analysis.linking.ranges import NO_RANGES, Ranges
from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.columns import lookup
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.linking.ops import Ops

_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(len(DIRECTIONS))
_OPTIMIZER_OP: Final = re.compile(r"aten::_fused_(?:adam|adamw|sgd|adagrad)")


def is_sharded_backward(name: str) -> bool:
    """Whether a range is work that FSDP does in backward, which need not be inside a node."""
    return name.startswith("FSDP::") and "backward" in name


def is_optimizer_op(name: str) -> bool:
    """Whether an op is the work of an optimizer's step, wherever it is called."""
    return bool(_OPTIMIZER_OP.match(name))


def is_optimizer_step(name: str) -> bool:
    """Whether a range is an optimizer's step."""
    return name.startswith("Optimizer.step#")


def is_other_work(name: str) -> bool:
    """Whether a range is work around the step: zeroing gradients, loading data."""
    return name.startswith(("Optimizer.zero_grad#", "enumerate(DataLoader)#"))


@dataclass(frozen=True)
class Surroundings:
    """Where the innermost of each kind begins that is around an op; `NO_ID` for none.

    Attributes:
        step: the step of an optimizer.
        other: work around it.
        module: the call of a module.
        node: a backward node.
    """

    step: Int
    other: Int
    module: Int
    node: Int

    @classmethod
    def of(cls, ops: Ops, step: Ranges, other: Ranges, modules: Sequence[Ranges]) -> Surroundings:
        """Look for what is around the ops."""
        node = nearest_marked(ops.parent, ops.node)
        return cls(
            _innermost_start(step, ops),
            _innermost_start(other, ops),
            np.maximum.reduce([_innermost_start(m, ops) for m in (*modules, NO_RANGES)]),
            lookup(ops.start, node, NO_ID),
        )

    def is_deepest(self, starts: Int, ops: Ops) -> Bool:
        """Return which ops have one of these as the innermost of all."""
        # In a backward node, numbers say what a module runs again, not its call.
        module = np.where(ops.backward, NO_ID, self.module)
        deepest = np.maximum.reduce([self.step, self.other, module, self.node])
        found: Bool = (starts == deepest) & (deepest > NO_ID)
        return found


def link_directions(
    ops: Ops, threads: Threads, annotations: Ranges, modules: Sequence[Ranges] = ()
) -> Int:
    """Return the direction of each op as a code into `DIRECTIONS`.

    An optimizer's step, other work, a module call or a backward node: the one that begins last
    around an op decides. In the step of an optimizer that was given a closure, ops with an autograd
    number outside of backward are the closure's: forward. Work between backward and the
    optimizer's step outside of modules, such as clipping gradients, is other work.

    Args:
        ops: the ops.
        threads: the numbers of their threads.
        annotations: ranges, among them the steps of optimizers and the work around them.
        modules: ranges of module calls, of any kinds.
    """
    step, other = (annotations.named(is_kind) for is_kind in (is_optimizer_step, is_other_work))
    around = Surroundings.of(ops, step, other, modules)
    fused = np.array([*map(is_optimizer_op, ops.names)] or [False])[ops.name]
    sharded = annotations.named(is_sharded_backward).nest().holds(ops.thread, ops.start)
    direction = np.where(ops.backward | ops.between | sharded, _BACKWARD, _FORWARD)
    direction[around.is_deepest(around.other, ops)] = _OTHER
    direction[nearest_marked(ops.parent, fused) >= 0] = _OPTIMIZER
    direction = np.where(ops.annotated.direction >= 0, ops.annotated.direction, direction)
    stepping = around.is_deepest(around.step, ops)
    # Some optimizers compute with gradients themselves: without backward in it, on any thread of
    # the process, a step has no closure.
    nodes = np.flatnonzero(ops.node)
    node = Nest.of(threads.process(ops.thread[nodes]), ops.start[nodes], ops.start[nodes])
    last = last_not_after(node.thread, node.start, threads.process(step.thread), step.end - 1)
    runs_backward = (lookup(node.start, last, NO_ID) >= step.start).astype(np.int64)
    around_op = step.nest().innermost(ops.thread, ops.start)
    has_closure = stepping & (lookup(runs_backward, around_op, NO_ID) > 0)
    # Outside of nodes, with an autograd number, or one around them in the step.
    numbered = lookup(ops.sequence, ops.marked, NO_ID) >= 0
    numbered &= lookup(ops.start, ops.marked, NO_ID) >= around.step
    numbered |= ops.annotated.direction == _FORWARD
    in_closure = has_closure & numbered & (around.node == NO_ID)
    direction[stepping] = np.where(in_closure[stepping], _FORWARD, _OPTIMIZER)
    # The gradient that backward starts from has no number.
    rows = np.flatnonzero(has_closure)
    direction[_between(_FORWARD, _BACKWARD, rows, ops, threads, direction)] = _FORWARD
    loose = (direction == _FORWARD) & ~stepping & ~ops.recompute & (around.module == NO_ID)
    rows = np.flatnonzero(loose)
    direction[_between(_BACKWARD, _OPTIMIZER, rows, ops, threads, direction)] = _OTHER
    return direction


def _innermost_start(ranges: Ranges, ops: Ops) -> Int:
    return lookup(ranges.start, ranges.nest().innermost(ops.thread, ops.start), NO_ID)


def _between(first: int, then: int, rows: Int, ops: Ops, threads: Threads, direction: Int) -> Int:
    """Return which of some ops come between ops of two directions, of all in their process.

    Backward may run on other threads; the others are on the thread of the op itself.
    """
    if not (direction == first).any() or not (direction == then).any():
        return rows[:0]
    work = np.flatnonzero((direction == first) | (direction == then))
    process = threads.process(ops.thread)
    nest = Nest.of(process[work], ops.start[work], ops.start[work])
    work = work[nest.order]
    before = last_not_after(nest.thread, nest.start, process[rows], ops.start[rows])
    has_both = (before >= 0) & (before + 1 < len(work))
    rows, before = rows[has_both], before[has_both]
    between = np.ones(len(rows), bool)
    for code, at in ((first, work[before]), (then, work[before + 1])):
        on_thread = (ops.thread[at] == ops.thread[rows]) | (code == _BACKWARD)
        here = on_thread & (process[at] == process[rows])
        between &= here & (direction[at] == code)
    found: Int = rows[between]
    return found
