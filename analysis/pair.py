"""Pair backward with forward: each autograd node with the op that made it.

Autograd numbers the ops of a forward thread; the node of an op carries its number and the thread.
Where numbers repeat, in a later iteration, time decides: the forward op is the one of that number
outside of backward that starts last but not after the node. If there is none, it is the one that
checkpointing ran again inside backward.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, last_not_after
from pyprof2.analysis.link import NO_ID
from pyprof2.recording import Recording, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.link import Ops, Threads

_NODE_END: Final = re.compile(r"Backward\d*\Z")
_CPP_NODES: Final = (
    (r".*CppNode<SplitLookupFunction_Dense_Op>", r"dense_embedding_codegen_lookup_function"),
    (r".*CppNode<SplitLookupFunction_(\w+)_Op>", r"split_embedding_codegen_lookup_\1_function"),
    (r".*CppNode<\w*(?:::)?PermutePooledEmbsFunction\w*>", r"permute_pooled_embs_auto_grad"),
)
"""Nodes of C++ functions, and the ops that make them, which recordings show without a number."""


@dataclass(frozen=True)
class Pairs:
    """The forward op of each backward op, by position, -1 for none; and how sure that is.

    Attributes:
        forward: for every op in backward the forward op of its node.
        accumulate: for ops under `AccumulateGrad`, which has no forward op, the forward op of the
            node that ran before it on its thread: it made the gradient that is accumulated.
        unsure: whether the forward op was found by number alone, which nodes of C++ functions
            share with helper ops.
        flow_count: forward-backward pairs that the recorder itself wrote.
        flow_agree_count: those of them that name the same two ops.
    """

    forward: Int
    accumulate: Int
    unsure: Bool
    flow_count: int
    flow_agree_count: int


def pair(ops: Ops, recording: Recording, threads: Threads) -> Pairs:
    """Return the forward op of each op that runs in backward."""
    by_number = _forward_of_nodes(ops, threads)
    node_forward, by_name = _made_by_named(ops, by_number)
    decides = np.where(ops.backward, ops.marked, -1)
    forward = np.where(decides >= 0, node_forward[decides], -1) if len(ops) else decides
    is_cpp = np.array(["CppNode<" in text for text in ops.names] or [False])[ops.name]
    unsure = is_cpp & ~by_name & (by_number >= 0)
    unsure = (decides >= 0) & unsure[decides] if len(ops) else unsure
    flow_count, agree = _check_flows(ops, node_forward, recording, threads)
    return Pairs(forward, _before_accumulate(ops, forward), unsure, flow_count, agree)


class _Trial(NamedTuple):
    """The forward ops of the nodes of one number, if that number means one thread.

    Attributes:
        agree_count: how many nodes are named after their op.
        found_count: how many nodes have an op.
        number: the recorder's number of the thread, which its nodes share.
        thread: the thread that is tried.
        node, forward: the nodes and their ops by position, -1 for none.
    """

    agree_count: int
    found_count: int
    number: tuple[int, ...]
    thread: int
    node: Int
    forward: Int


def _forward_of_nodes(ops: Ops, threads: Threads) -> Int:
    """Return for each backward op with a sequence number its forward op, else -1.

    The recorder numbers forward threads by itself; which number is which thread is found out by
    trying. A thread that has a number already gets another one only if most names agree: other
    such nodes were made in backward, and have no forward op outside of it.
    """
    result = np.full(len(ops), -1, np.int64)
    trials: dict[tuple[int, ...], list[_Trial]] = {}
    for trial in _trials(ops, threads):
        trials.setdefault(trial.number, []).append(trial)
    taken: set[int] = set()
    for of_number in sorted(trials.values(), key=lambda each: -max(t.agree_count for t in each)):
        best = max(of_number, key=lambda t: (t.agree_count, t.found_count, t.thread not in taken))
        if best.thread not in taken or 2 * best.agree_count > best.found_count:
            result[best.node] = best.forward
            taken.add(best.thread)
    return result


def _trials(ops: Ops, threads: Threads) -> Iterator[_Trial]:
    """Yield for each number of a forward thread the threads that it may mean."""
    node = np.flatnonzero(ops.node & (ops.sequence >= 0))
    made = np.flatnonzero(~ops.node & ~ops.backward & (ops.sequence >= 0))
    stems = _stems(ops)
    numbers = np.stack(
        (threads.process(ops.thread[node]), ops.forward_thread[node], ops.told.thread[node])
    )
    groups, group = np.unique(numbers, axis=1, return_inverse=True)
    for index, number in enumerate(groups.T.tolist()):
        rows = node[group.reshape(-1) == index]
        for thread, ops_there in _made_by_thread(ops, made, threads, number):
            # What checkpointing runs again inside backward makes nodes, with numbers of their own,
            # only where the first run made none.
            again = ops.recompute[ops_there]
            found = _last_made(ops, ops_there[~again], rows)
            found = np.where(found >= 0, found, _last_made(ops, ops_there[again], rows))
            agree = (found >= 0) & (stems[rows] == stems[found])
            count = int((found >= 0).sum())
            yield _Trial(int(agree.sum()), count, tuple(number), thread, rows, found)


def _made_by_thread(
    ops: Ops, made: Int, threads: Threads, number: list[int]
) -> Iterator[tuple[int, Int]]:
    """Yield the threads that a number may mean, the first to begin first, with their ops.

    Where an annotation numbers the thread, of forward ops as well, these are the ops: the system
    may give a thread the id of an earlier one.
    """
    process, _, told = number
    thread = ops.thread[made]
    own = made[threads.process(thread) == process]
    own = own if len(own) else made
    if told >= 0:
        yield -1 - told, own[ops.told.thread[own] == told]
        return
    for each in dict.fromkeys(ops.thread[own].tolist()):
        yield each, own[ops.thread[own] == each]


def _made_by_named(ops: Ops, forward: Int) -> tuple[Int, Bool]:
    """Return the forward op of each node, of a C++ function's the op that is known to make it.

    By number it is found only what ran shortly before: a helper that made no node of its own. The
    op that made the node is the one of its name that holds that helper, or is the next to start.

    Returns:
        The forward ops, and for which nodes they were found so.
    """
    result, is_found = forward.copy(), np.zeros(len(ops), bool)
    makers = {text.rpartition("::")[2]: code for code, text in enumerate(ops.names)}
    for code, text in enumerate(ops.names):
        found = (re.sub(node, op, text) for node, op in _CPP_NODES if re.fullmatch(node, text))
        maker = makers.get(next(found, ""))
        made = np.flatnonzero(ops.name == (-1 if maker is None else maker))
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


def _last_made(ops: Ops, made: Int, node: Int) -> Int:
    """Return for each node the op of its number that starts last but not after it, or -1."""
    order = np.lexsort((made, ops.start[made], ops.sequence[made]))
    made = made[order]
    found = last_not_after(ops.sequence[made], ops.start[made], ops.sequence[node], ops.start[node])
    return np.where(found >= 0, made[found], -1) if len(made) else found


def _stems(ops: Ops) -> Int:
    """Return one number for `aten::native_layer_norm` and its `NativeLayerNormBackward0`."""
    stems = [
        _NODE_END.sub("", name.rpartition("::")[2].rpartition(": ")[2]).replace("_", "").lower()
        for name in ops.names
    ]
    code = {stem: number for number, stem in enumerate(dict.fromkeys(stems))}
    return np.array([code[stem] for stem in stems] or [-1], np.int64)[ops.name]


def _before_accumulate(ops: Ops, forward: Int) -> Int:
    """Return for ops under AccumulateGrad the forward op of the node before it on the thread."""
    is_name = np.array(["AccumulateGrad" in text for text in ops.names] or [False])
    is_accumulate = is_name[ops.name] & ops.node | ops.told.accumulate
    result = np.full(len(ops), -1, np.int64)
    under = np.where(ops.backward & (forward < 0), ops.marked, -1)
    rows = np.flatnonzero(under >= 0)
    rows = rows[is_accumulate[under[rows]]]
    paired = np.flatnonzero(ops.node & (forward >= 0))
    if not len(rows) or not len(paired):
        return result
    order = np.lexsort((paired, ops.start[paired], ops.thread[paired]))
    paired = paired[order]
    found = last_not_after(ops.thread[paired], ops.start[paired], ops.thread[rows], ops.start[rows])
    result[rows[found >= 0]] = forward[paired[found[found >= 0]]]
    return result


def _check_flows(
    ops: Ops, node_forward: Int, recording: Recording, threads: Threads
) -> tuple[int, int]:
    """Return how many pairs the recorder wrote, and with how many of them ours agree."""
    flows = recording.read("flows")
    if not flows.num_rows or not len(ops):
        return 0, 0
    thread, time = threads.number(flows), int_column(flows, "time_ns", -1)
    op = _op_at(ops, thread, time)
    is_end = flows["end"].to_numpy()
    ids = int_column(flows, "flow_id", NO_ID)
    op = np.where(ids == NO_ID, -1, op)
    begin = dict(zip(ids[~is_end].tolist(), op[~is_end].tolist(), strict=True))
    pairs = [
        (begin.get(i, -1), e)
        for i, e in zip(ids[is_end].tolist(), op[is_end].tolist(), strict=True)
    ]
    pairs = [(b, e) for b, e in pairs if b >= 0 and e >= 0]
    agree = sum(int(node_forward[e]) == b for b, e in pairs)
    return len(pairs), agree


def _op_at(ops: Ops, thread: Int, time: Int) -> Int:
    """Return the op that starts exactly at a time on a thread, the innermost if several do."""
    order = np.lexsort((np.arange(len(ops)), ops.start, ops.thread))
    found = last_not_after(ops.thread[order], ops.start[order], thread, time)
    op = np.where(found >= 0, order[found], -1)
    return np.where((op >= 0) & (ops.start[op] == time), op, -1)
