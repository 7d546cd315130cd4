"""Pair backward with forward: each autograd node with the op that made it.

Autograd numbers the ops of a forward thread; the node of an op carries its number and the thread.
Where numbers repeat, in a later iteration, time decides: the forward op is the one of that number
outside of backward that starts last but not after the node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pyprof2.analysis.intervals import Int, combine_keys, last_not_after
from pyprof2.recording import Recording, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.link import Ops, Threads


@dataclass(frozen=True)
class Pairs:
    """The forward op of each backward op, by position, -1 for none; and how sure that is.

    Attributes:
        forward: for every op in backward the forward op of its node.
        accumulate: for ops under `AccumulateGrad`, which has no forward op, the forward op of the
            node that ran before it on its thread: it made the gradient that is accumulated.
        flow_count: forward-backward pairs that the recorder itself wrote.
        flow_agree_count: those of them that name the same two ops.
    """

    forward: Int
    accumulate: Int
    flow_count: int
    flow_agree_count: int


def pair(ops: Ops, recording: Recording, threads: Threads) -> Pairs:
    """Return the forward op of each op that runs in backward."""
    node_forward = _forward_of_nodes(ops, threads)
    decides = np.where(ops.backward, ops.marked, -1)
    forward = np.where(decides >= 0, node_forward[decides], -1) if len(ops) else decides
    flow_count, agree = _check_flows(ops, node_forward, recording, threads)
    return Pairs(forward, _before_accumulate(ops, forward), flow_count, agree)


def _forward_of_nodes(ops: Ops, threads: Threads) -> Int:
    """Return for each backward op with a sequence number its forward op, else -1."""
    result = np.full(len(ops), -1, np.int64)
    node = np.flatnonzero(ops.node & (ops.sequence >= 0))
    made = np.flatnonzero(~ops.node & ~ops.backward & ~ops.recompute & (ops.sequence >= 0))
    if not len(node) or not len(made):
        return result
    thread = _forward_threads(ops, threads, node, made)
    keys = combine_keys(
        np.concatenate((ops.thread[made], thread)),
        np.concatenate((ops.sequence[made], ops.sequence[node])),
    )
    key, node_key = keys[: len(made)], keys[len(made) :]
    order = np.lexsort((made, ops.start[made], key))
    found = last_not_after(key[order], ops.start[made][order], node_key, ops.start[node])
    result[node[found >= 0]] = made[order][found[found >= 0]]
    return result


def _forward_threads(ops: Ops, threads: Threads, node: Int, made: Int) -> Int:
    """Return the thread on which the forward op of each node ran.

    The recorder numbers forward threads by itself; which number is which thread is found out by
    counting whose sequence numbers fit. One thread fits all in most recordings.
    """
    made_threads = np.unique(ops.thread[made])
    numbers = np.stack((threads.process(ops.thread[node]), ops.forward_thread[node]))
    groups, group = np.unique(numbers, axis=1, return_inverse=True)
    group = group.reshape(-1)
    chosen = np.empty(groups.shape[1], np.int64)
    free = list(made_threads)
    for index, (process, _) in enumerate(groups.T.tolist()):
        wanted = ops.sequence[node[group == index]]
        same = [t for t in made_threads if threads.process(t) == process] or list(made_threads)
        fit = [np.isin(wanted, ops.sequence[made[ops.thread[made] == t]]).sum() for t in same]
        best = [t for t, count in zip(same, fit, strict=True) if count == max(fit)]
        chosen[index] = next((t for t in best if t in free), best[0])
        if chosen[index] in free:
            free.remove(chosen[index])
    return chosen[group]


def _before_accumulate(ops: Ops, forward: Int) -> Int:
    """Return for ops under AccumulateGrad the forward op of the node before it on the thread."""
    is_name = np.array(["AccumulateGrad" in text for text in ops.names] or [False])
    is_accumulate = is_name[ops.name] & ops.node
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
    ids = int_column(flows, "flow_id", -1)
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
