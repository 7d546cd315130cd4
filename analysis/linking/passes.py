"""The work of a pass of backward: nodes, ops that they run again, and the engine's own work.

While autograd records, every op that it has a part in has a sequence number. Inside a node that
separates two cases. Activation checkpointing runs forward ops again: they have numbers, the
node's own ops beside them have none. A pass that is itself recorded (`create_graph=True`) numbers
the node's own ops too: they are backward, and make the nodes of the second derivative.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import nearest_marked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyprof2.analysis.intervals import Bool, Int

ENGINE: Final = "autograd::engine::evaluate_function: "
"""How the engine calls its range around a node; the node's name follows."""
_NODE_NAME: Final = re.compile(
    ENGINE + r"|.*Backward\d*\Z"
    r"|(?:torch::autograd::)?(?:AccumulateGrad|CopySlices|CopyBackwards|CppNode<.*>)\Z",
    re.DOTALL,
)
_NO_NODE_NAME: Final = re.compile(r"RegisterPostBackwardFunction\Z")
_NEVER_NUMBERED: Final = re.compile(
    r"aten::(?:_efficientzerotensor|arange|empty|eye|from_file|full|lift_fresh|linspace|logspace"
    r"|ones|rand|range|scalar_tensor|to\Z|tri[lu]_indices|zeros)"
)
"""Ops of ATen that autograd has no part in, or not always: they make tensors from nothing."""
_FIRST_GRADIENT: Final = "aten::ones_like"
"""The op by which the thread that calls backward begins."""


@dataclass(frozen=True)
class Passes:
    """The part of each op in backward, as far as it is known; rows by position, -1 for none.

    Attributes:
        node: the ops that are nodes of autograd, or the engine's ranges around them.
        marked: the op around it, or itself, that decides its direction: a node, or a forward op
            with a sequence number.
        backward: whether it runs inside a node, and not again.
        recompute: whether it is part of a forward op that checkpointing runs again.
        between: whether it is the engine's own work outside of nodes, such as adding gradients.
    """

    node: Bool
    marked: Int
    backward: Bool
    recompute: Bool
    between: Bool


@dataclass(frozen=True)
class NestedCalls:
    """The ops as they are nested.

    Attributes:
        process, thread: numbers of where each runs.
        parent: position of the op directly around each, -1 for none.
        name: code into `names`.
        sequence: sequence number, -1 for none.
        is_node, is_forward, is_again: what a number of the recorder's or an annotation says.
    """

    process: Int
    thread: Int
    parent: Int
    name: Int
    names: Sequence[str]
    sequence: Int
    is_node: Bool
    is_forward: Bool
    is_again: Bool

    def named(self, wanted: Callable[[str], bool]) -> Bool:
        """Return which ops have a wanted name; asked once per distinct name."""
        return np.array([wanted(text) for text in self.names] or [False])[self.name]


def find_passes(calls: NestedCalls) -> Passes:
    """Return what is a node, what a node runs again, and what the engine does by itself."""
    node = _nodes(calls)
    within = nearest_marked(calls.parent, node)
    numbered = ~node & (calls.sequence >= 0)
    repeats = _nodes_that_repeat(calls, node, within, numbered)
    marked = nearest_marked(calls.parent, node | numbered)
    recompute = np.zeros(len(node), bool)
    rows = np.flatnonzero((marked >= 0) & (within >= 0))
    rows = rows[numbered[marked[rows]]]
    recompute[rows] = repeats[within[marked[rows]]]
    recompute |= calls.is_again
    backward = (within >= 0) & ~recompute
    marked = np.where(backward, within, marked)
    return Passes(node, marked, backward, recompute, _between(calls, node, within))


def _nodes(calls: NestedCalls) -> Bool:
    node = calls.named(is_node_name) | calls.is_node
    # Whatever its name is: the op of that name inside the engine's range is the node.
    code = {text: number for number, text in enumerate(calls.names)}
    inside = [
        code.get(text.removeprefix(ENGINE), -1) if text.startswith(ENGINE) else -1
        for text in calls.names
    ]
    rows = np.flatnonzero(calls.parent >= 0)
    wanted = np.array(inside or [-1])[calls.name[calls.parent[rows]]]
    node[rows] |= wanted == calls.name[rows]
    return node


def is_node_name(name: str) -> bool:
    """Whether a name alone says that an op is a node of autograd."""
    return bool(_NODE_NAME.match(name)) and not _NO_NODE_NAME.search(name)


def _nodes_that_repeat(calls: NestedCalls, node: Bool, within: Int, numbered: Bool) -> Bool:
    """Return the nodes in which an op with a number is a forward op that runs again.

    Those are: the pass around it is not recorded, since an op of the node's own, or of a node
    inside of it, has no number though autograd has a part in it; or the node runs a pass of its
    own in which nothing has a number.
    """
    around = np.where(calls.parent >= 0, within[calls.parent], -1)
    is_range = calls.named(lambda text: text.startswith(ENGINE))
    is_own = calls.parent == around
    takes_part = calls.named(
        lambda text: text.startswith("aten::") and not _NEVER_NUMBERED.match(text)
    )
    unrecorded = (around >= 0) & is_own & ~node & (calls.sequence < 0) & takes_part
    plain = _marked_at(around, unrecorded) & ~is_range
    outer = np.where(node, around, -1)
    recorded_below = _marked_at(outer, _with_outer(outer, _marked_at(within, numbered)))
    runs_pass = _marked_at(outer, node) & ~is_range
    return _with_outer(outer, plain | (runs_pass & ~recorded_below))


def _marked_at(target: Int, rows: Bool) -> Bool:
    """Return the targets of the marked rows, as a mark for each row."""
    result = np.zeros(len(target), bool)
    found = target[rows]
    result[found[found >= 0]] = True
    return result


def _with_outer(outer: Int, marked: Bool) -> Bool:
    """Return the marked nodes with all nodes around them."""
    result = marked.copy()
    rows = np.flatnonzero(marked)
    while len(rows):
        rows = np.unique(outer[rows])
        rows = rows[rows >= 0]
        rows = rows[~result[rows]]
        result[rows] = True
    return result


def _between(calls: NestedCalls, node: Bool, within: Int) -> Bool:
    """Return what runs outside of nodes on threads that are the engine's own.

    These run nodes, no forward op, and do not call backward; the forward ops run on others.
    """
    outside = within < 0
    forward = outside & ((calls.sequence >= 0) | calls.is_forward)
    calling = outside & calls.named(lambda text: text == _FIRST_GRADIENT)
    engine = np.setdiff1d(calls.thread[node], calls.thread[forward | calling])
    own = np.isin(calls.thread, engine) & outside
    return own & np.isin(calls.process, calls.process[forward])
