"""Pair backward with forward: each autograd node with the op that made it.

Autograd numbers the ops of a forward thread; the node of an op carries its number and the thread.
Where numbers repeat, in a later iteration, time decides: the forward op is the one of that number
that starts last but not after the node. If there is none outside of backward, it is the one that
checkpointing ran again inside. A node of a second derivative belongs to the op of the first pass of
backward that made it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, last_not_after, nearest_marked
from pyprof2.analysis.linking.forward_ops import find_forward_ops
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import combine_keys, lookup
from pyprof2.recording import Recording, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.threads import Threads

_CPP_NODES: Final = (
    (
        re.compile(r"\A.*CppNode<SplitLookupFunction_Dense_Op>\Z"),
        r"dense_embedding_codegen_lookup_function",
    ),
    (
        re.compile(r"\A.*CppNode<SplitLookupFunction_(\w+)_Op>\Z"),
        r"split_embedding_codegen_lookup_\1_function",
    ),
    (
        re.compile(r"\A.*CppNode<(?:\w*+::)?PermutePooledEmbsFunction\w*+>\Z"),
        r"permute_pooled_embs_auto_grad",
    ),
)
"""Nodes of C++ functions, and the ops that make them, which recordings show without a number."""


TIED: Final = "no forward op: several forward threads fit its node equally well"
"""The `link_note` of such a row."""


@dataclass(frozen=True)
class Pairs:
    """The forward op of each backward op, by position, -1 for none; and how sure that is.

    Attributes:
        forward: for every op in backward the forward op of its node.
        accumulate: for ops under `AccumulateGrad`, which has no forward op, the forward op of the
            node that ran before it, beside it: it made the gradient that is accumulated.
        unsure: whether the forward op was found by number alone, which nodes of C++ functions
            share with helper ops.
        tied: whether it has none because several forward threads fit its node equally well.
        flow_count: forward-backward pairs that the recorder itself wrote.
        flow_agree_count: those of them that name the same two ops.
        lost_count: nodes whose forward thread is not in the recording: they have no forward op.
    """

    forward: Int
    accumulate: Int
    unsure: Bool
    tied: Bool
    flow_count: int
    flow_agree_count: int
    lost_count: int


def pair(ops: Ops, recording: Recording, threads: Threads) -> Pairs:
    """Return the forward op of each op that runs in backward."""
    begin, end = _recorded_pairs(ops, recording, threads)
    # Nodes directly inside of the engine's range around them.
    inside_itself = ops.node & (ops.parent >= 0)
    if len(ops):
        inside_itself &= ops.node[ops.parent] & (ops.sequence == ops.sequence[ops.parent])
    flow = np.full(len(ops), -1, np.int64)
    flow[end] = begin
    flow = np.where(inside_itself, np.maximum(flow, flow[ops.parent]), flow) if len(ops) else flow
    outer = ops.parent[inside_itself]
    flow[outer] = np.maximum(flow[outer], flow[inside_itself])
    # The nodes that add up the gradient of a parameter.
    adds_up = np.array(["AccumulateGrad" in text for text in ops.names] or [False])[ops.name]
    accumulates = np.asarray(adds_up & ops.node | ops.annotated.accumulate, bool)
    by_number, lost, tied = find_forward_ops(ops, threads, flow, ops.node & ~accumulates)
    node_forward, by_name = _forward_by_name(ops, by_number)
    decides = np.where(ops.backward, ops.marked, -1)
    forward = np.where(decides >= 0, node_forward[decides], -1) if len(ops) else decides
    is_cpp = np.array(["CppNode<" in text for text in ops.names] or [False])[ops.name]
    unsure = is_cpp & ~by_name & (by_number >= 0)
    unsure, tied = (
        ((decides >= 0) & of_node[decides]) if len(ops) else of_node for of_node in (unsure, tied)
    )
    agree = int((node_forward[end] == begin).sum())
    lost_count = int((lost & ~inside_itself).sum())
    accumulate = _before_accumulate(ops, forward, accumulates, inside_itself)
    return Pairs(forward, accumulate, unsure, tied, len(begin), agree, lost_count)


def _forward_by_name(ops: Ops, forward: Int) -> tuple[Int, Bool]:
    """Return the forward op of each node, of a C++ function the op that is known to make it.

    By number it is found only what ran shortly before: a helper that made no node of its own. The
    op that made the node is the one of its name that holds that helper, or is the next to start.

    Returns:
        The forward ops, and for which nodes they were found so.
    """
    result, is_found = forward.copy(), np.zeros(len(ops), bool)
    codes = {text.rpartition("::")[2]: code for code, text in enumerate(ops.names)}
    for code, text in enumerate(ops.names):
        found = (name.expand(op) for node, op in _CPP_NODES if (name := node.search(text)))
        code_of_op = codes.get(next(found, ""))
        made = np.flatnonzero(ops.name == (-1 if code_of_op is None else code_of_op))
        if not len(made):
            continue
        made = made[np.lexsort((ops.start[made], ops.thread[made]))]
        nodes = np.flatnonzero((ops.name == code) & (forward >= 0))
        helper = forward[nodes]
        thread, start = ops.thread[made], ops.start[made]
        before = last_not_after(thread, start, ops.thread[helper], ops.start[helper])
        holds = (before >= 0) & (ops.end[made[before]] > ops.start[helper])
        # The first of the thread comes after the last of the threads before it.
        first = np.searchsorted(thread, ops.thread[helper])
        at = np.where(holds, before, np.where(before >= 0, before + 1, first))
        fits = at < len(made)
        fits[fits] &= thread[at[fits]] == ops.thread[helper[fits]]
        fits[fits] &= start[at[fits]] < ops.start[nodes[fits]]
        result[nodes[fits]], is_found[nodes[fits]] = made[at[fits]], True
    return result, is_found


def _before_accumulate(ops: Ops, forward: Int, accumulates: Bool, inside_itself: Bool) -> Int:
    """Return for ops under AccumulateGrad the forward op of the node before it, or -1.

    The node before it has the same node around it, or none as well: what ran inside of the node
    before, if that ran autograd itself, is not before it.
    """
    result = np.full(len(ops), -1, np.int64)
    under = np.where(ops.backward & (forward < 0), ops.marked, -1)
    rows = np.flatnonzero(under >= 0)
    rows = rows[accumulates[under[rows]]]
    # Ops that an annotation calls backward are in a node, but may have no forward op.
    is_node = ops.node & ((forward >= 0) | (ops.annotated.direction < 0))
    before = np.flatnonzero(is_node & ~accumulates & ~inside_itself)
    if not len(rows) or not len(before):
        return result
    node = under[rows]
    node = np.where(inside_itself[node], ops.parent[node], node)
    within = nearest_marked(ops.parent, ops.node)
    around = np.where(ops.parent >= 0, within[ops.parent], -1)
    place = combine_keys(ops.thread, around)
    before = before[np.lexsort((before, ops.start[before], place[before]))]
    found = last_not_after(place[before], ops.start[before], place[node], ops.start[node])
    result[rows[found >= 0]] = forward[before[found[found >= 0]]]
    return result


def _recorded_pairs(ops: Ops, recording: Recording, threads: Threads) -> tuple[Int, Int]:
    """Return the forward ops and the nodes that the recorder itself tied to each other."""
    flows = recording.read("flows")
    if not flows.num_rows or not len(ops):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    # The op that starts exactly at the time of the flow, the innermost if several do.
    order = np.lexsort((np.arange(len(ops)), ops.start, ops.thread))
    thread, time = threads.number(flows), int_column(flows, "time_ns", -1)
    op = lookup(order, last_not_after(ops.thread[order], ops.start[order], thread, time), -1)
    op = np.where((op >= 0) & (ops.start[op] == time), op, -1)
    is_end = flows["end"].to_numpy()
    ids = int_column(flows, "flow_id", NO_ID)
    op = np.where(ids == NO_ID, -1, op)
    begin = dict(zip(ids[~is_end].tolist(), op[~is_end].tolist(), strict=True))
    pairs = [
        (begin.get(i, -1), e)
        for i, e in zip(ids[is_end].tolist(), op[is_end].tolist(), strict=True)
    ]
    known = np.array([(b, e) for b, e in pairs if b >= 0 and e >= 0], np.int64).reshape(-1, 2)
    return known[:, 0], known[:, 1]
