"""Which forward op each autograd node belongs to.

When an op gets to the annotation, its autograd node was just made: the number that the next node
of the thread gets has grown, and the op's node has the number before it. In backward the node that
runs has its number. Three things are not so simple:

- A write into a view makes more nodes *after* the op; the next op finds them.
- The forward of an autograd function runs without gradients, after its node was made.
- Numbers count on each thread by itself, and a node does not say whose number it has. Nearly
  always it is that of the thread which called backward.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Final

from pyprof2.markers import NO_SEQUENCE
from pyprof2.nvtx.internals import grad_enabled, in_function, next_sequence_nr
from pyprof2.nvtx.threads import UNKNOWN_NR

if TYPE_CHECKING:
    from pyprof2.nvtx.calls import ForwardOp
    from pyprof2.nvtx.internals import Node
    from pyprof2.nvtx.threads import ThreadState

NODES_AT_MOST: Final = 1 << 19
"""Nodes that a thread remembers; a graph of more than that loses its oldest."""

_CLONE: Final = "aten::clone"

_LOOK_AFTER: Final = 1 << 12
"""Nodes between two looks at how many there are."""

_NODES_PER_OP: Final = 16
"""Nodes that one op makes at most; where there are more, something was not seen."""


def note_nodes(state: ThreadState, forward: ForwardOp) -> int:
    """Note which nodes were made since the last op, and return the payload of this one.

    Args:
        state: of the thread.
        forward: the op that runs now.
    """
    number, first = next_sequence_nr(), state.next_nr
    if state.unsure is None and state.function is None:
        if number == first:
            return NO_SEQUENCE
        if number == first + 1 and grad_enabled():
            # One new node, and it is this op's: so it is nearly always.
            state.next_nr = number
            if not state.nodes or first % _LOOK_AFTER == 0:
                _look_after(state)
            state.nodes[first] = state.last_forward = forward
            return state.payload_base + first
    if number == first:
        return _payload_without_node(state, forward, first - 1)
    return _note_odd_nodes(state, forward, number - 1)


def _note_odd_nodes(state: ThreadState, forward: ForwardOp, own: int) -> int:
    first, last, with_grad = state.next_nr, state.last_forward, grad_enabled()
    state.next_nr, state.unsure = own + 1, None
    before = last if last is not None and last.mutates and first != UNKNOWN_NR else None
    if before is not None and not with_grad and not in_function():
        _add_nodes(state, before, first, own + 1, first - 1)
        return NO_SEQUENCE
    if first not in (UNKNOWN_NR, own):
        _add_nodes(state, before or forward, first, own, own if before is None else first - 1)
        if forward.op == _CLONE and first == own - 1:
            state.unsure = first
    _look_after(state)
    state.nodes[own] = state.last_forward = forward
    state.function = None if with_grad else state.scope
    return state.payload_base + own


def _payload_without_node(state: ThreadState, forward: ForwardOp, last: int) -> int:
    """Return the payload of an op that made no node: that of the node which it belongs to."""
    clone, unsure, state.unsure = state.last_forward, state.unsure, None
    if unsure is not None and clone is not None:
        here = clone.layer == forward.layer and clone.source == forward.source
        node = unsure if forward.mutates and here else None
    else:
        inside = state.scope is state.function and not grad_enabled()
        node = last if inside and in_function() else None
        state.function = None if node is None else state.function
    if node is None:
        return NO_SEQUENCE
    # As for other ops, the one that begins last is the forward op.
    state.nodes[node] = forward
    state.last_forward = forward
    state.aliases.pop(node, None)
    return state.payload_base + node


def _add_nodes(state: ThreadState, owner: ForwardOp, first: int, end: int, alias: int) -> None:
    """Note that the nodes from `first` on belong to `owner`, whose last own node is `alias`."""
    for number in range(max(first, end - _NODES_PER_OP), end):
        state.nodes[number] = owner
        state.aliases[number] = alias


def note_nodes_in_backward(state: ThreadState, owner: ForwardOp, node: int) -> None:
    """Note nodes that backward made, to run backward again; they belong to what `node` does."""
    number = next_sequence_nr()
    if state.next_nr not in (number, UNKNOWN_NR):
        _add_nodes(state, owner, state.next_nr, number, state.aliases.get(node, node))
    state.next_nr = number


def note_function(state: ThreadState, forward: ForwardOp) -> None:
    """Note the node of an autograd function in whose forward a module is called.

    Ops in the module have layers of their own, so they say nothing of the function.
    """
    if grad_enabled() or next_sequence_nr() == state.next_nr:
        return
    if in_function():
        note_nodes(state, forward)
        state.function = None


def _look_after(state: ThreadState) -> None:
    """Become known to other threads, in which nodes of this one may run; forget the older half."""
    if state not in state.peers:
        state.join_peers()
    if len(state.nodes) > NODES_AT_MOST:
        for number in list(itertools.islice(state.nodes, len(state.nodes) // 2)):
            del state.nodes[number]
            state.aliases.pop(number, None)


def find_owner(node: Node, number: int, home: ThreadState) -> tuple[ForwardOp | None, int]:
    """Return what a node belongs to, and the payload of that; (None, no payload) if not known.

    Args:
        node: the node that runs.
        number: its sequence number.
        home: the thread that called backward. Another one has to fit better.
    """
    name = node.name()
    found = _owner_at_home(home, name, number)
    least = 0 if found is None else _fit(found[0].op, name) + 1
    fitting: dict[int, list[tuple[ForwardOp, int]]] = {}
    for state in list(home.peers) if least <= _SAME else ():
        owner = None if state is home else state.nodes.get(number)
        if owner is not None and (fit := _fit(owner.op, name)) >= least:
            payload = state.payload_base + state.aliases.get(number, number)
            fitting.setdefault(fit, []).append((owner, payload))
    best = fitting[max(fitting)] if fitting else [found or (None, NO_SEQUENCE)]
    # Where several fit equally well, it is left unpaired rather than guessed.
    return best[0] if len(best) == 1 else (None, NO_SEQUENCE)


def _owner_at_home(home: ThreadState, name: str, number: int) -> tuple[ForwardOp, int] | None:
    """Return what a node belongs to, if it was made on that thread, and the payload of that."""
    owner, own = home.nodes.get(number), home.aliases.get(number, number)
    last = home.last_forward
    if owner is None and last is not None and last.mutates:
        # Made by the last op before backward, after it got to us.
        if home.next_nr <= number < home.next_nr + _NODES_PER_OP and home.next_nr != UNKNOWN_NR:
            owner, own = last, home.next_nr - 1
    elif owner is not None and home.transforms and not _fit(owner.op, name):
        # The op of the node's own name, among those that it was broken up into.
        for later in range(number + 1, number + _NODES_PER_OP):
            other = home.nodes.get(later)
            if other is not None and _fit(other.op, name) == _SAME:
                owner, own = other, later
                break
    return None if owner is None else (owner, home.payload_base + own)


_SAME: Final = 2


def _fit(op: str | None, node: str) -> int:
    """Return how well the names of an op and of a node go together: 0 not, 1 alike, 2 the same."""
    op_name = (op or "").rpartition("::")[2].replace("_", "").lower()
    node_name = re.sub(r"Backward\d*$", "", node.rpartition("::")[2]).lower()
    if op_name == node_name:
        return _SAME
    short, long = sorted((op_name, node_name), key=len)
    return int(len(short) > 2 and long.startswith(short))
