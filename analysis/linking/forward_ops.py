"""Find the op that made each node of autograd: by its number, on the thread that ran forward.

The recorder numbers the forward threads by itself, so which thread a number means is found out:
on the right one most nodes are named after the op that they find. Where several threads run the
same code, the recorder's own flows say which it is, or that a thread has another number. Where
several still fit equally well, or none agrees since the forward thread was not recorded, nothing is
paired rather than guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, last_not_after
from pyprof2.columns import combine_keys

if TYPE_CHECKING:
    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.threads import Threads

_NODE_END: Final = re.compile(r"Backward\d*\Z")
_CPP_NODE: Final = re.compile(r"\A(?>.*?CppNode<)(?>(?:.*::)?)(.*)>\Z", re.DOTALL)
_ANY_NAME: Final = re.compile(r"\A(?>.*?CppNode<).*>\Z|Copy(?:Slices|Backwards)\Z", re.DOTALL)
"""Nodes that need not be named after their op: these names say nothing for or against it."""
_THREADS_MAX: Final = 32
"""A number is tried with no more threads than that: those that ran last before its nodes."""


class ForwardOps(NamedTuple):
    """The ops that made the nodes.

    Attributes:
        forward: for each op that is a node the op that made it by position, else -1.
        lost: the nodes whose forward thread was not found.
        tied: those of them that several threads fit equally well.
    """

    forward: Int
    lost: Bool
    tied: Bool


def find_forward_ops(ops: Ops, threads: Threads, flow: Int, is_node: Bool) -> ForwardOps:
    """Return the op that made each node with a sequence number.

    Args:
        ops: the nested ops.
        threads: the numbers of their threads.
        flow: for each op the one that the recorder itself says made it, -1 for none.
        is_node: the nodes that an op made.
    """
    forward = np.full(len(ops), -1, np.int64)
    lost, tied = np.zeros(len(ops), bool), np.zeros(len(ops), bool)
    is_node = is_node & (ops.sequence >= 0)
    is_made = ~ops.node & (ops.sequence >= 0)
    process = threads.process(ops.thread)
    annotated = ops.annotated.thread >= 0
    numbered = ops.forward_thread > 0
    # One number for `aten::native_layer_norm` and its `NativeLayerNormBackward0`.
    stems = [_stem(name.rpartition(": ")[2]) for name in ops.names]
    code = {stem: number for number, stem in enumerate(dict.fromkeys(stems))}
    stem = np.array([code[each] for each in stems] or [-1], np.int64)[ops.name]
    any_name = np.array([bool(_ANY_NAME.search(name)) for name in ops.names] or [False])[ops.name]
    search = _Search(ops, stem, any_name, flow)
    for each in np.unique(process[is_node]).tolist():
        node, made = (np.flatnonzero(what & (process == each)) for what in (is_node, is_made))
        by_annotation, by_number = annotated[node], numbered[node] & ~annotated[node]
        rows = node[by_annotation]
        forward[rows] = search.last(
            made, ops.annotated.thread[made], rows, ops.annotated.thread[rows]
        )
        for rows, find in (
            (node[by_number], search.by_thread_number),
            (node[~by_annotation & ~by_number], search.by_name),
        ):
            if len(rows):
                forward[rows], lost[rows], tied[rows] = find(made, rows)
    return ForwardOps(forward, lost, tied)


def _stem(name: str) -> str:
    cpp = _CPP_NODE.search(name)
    short = cpp[1] if cpp else _NODE_END.sub("", name.rpartition("::")[2])
    return short.replace("_", "").lower()


class _Trial(NamedTuple):
    """A thread that a number may mean, with what speaks for it.

    Attributes:
        agreement: how many nodes agree with their op by name; by flow; and with one outside of
            backward.
        thread: its number.
        node, forward: the nodes of the number and their ops by position, -1 for none.
    """

    agreement: tuple[int, int, int]
    thread: int
    node: Int
    forward: Int


@dataclass(frozen=True)
class _Search:
    """Searches among the ops of a process for those that made its nodes.

    Attributes:
        ops: the nested ops.
        stem: of the name of each.
        any_name: whether it may be named after anything.
        flow: for each op the one that the recorder says made it, -1 for none.
    """

    ops: Ops
    stem: Int
    any_name: Bool
    flow: Int

    def last(self, made: Int, place: Int, node: Int, node_place: Int) -> Int:
        """Return for each node the op of its number and place that starts last but not after it.

        Ops that checkpointing runs again inside backward make nodes, with numbers of their own,
        only where the first run made none.
        """
        ops = self.ops
        key = combine_keys(
            np.concatenate((place, node_place)),
            np.concatenate((ops.sequence[made], ops.sequence[node])),
        )
        key, wanted = key[: len(made)], key[len(made) :]
        result = np.full(len(node), -1, np.int64)
        for again in (True, False):
            rows = np.flatnonzero(ops.recompute[made] == again)
            rows = rows[np.lexsort((made[rows], ops.start[made[rows]], key[rows]))]
            at = last_not_after(key[rows], ops.start[made[rows]], wanted, ops.start[node])
            result[at >= 0] = made[rows[at[at >= 0]]]
        return result

    def by_thread_number(self, made: Int, node: Int) -> tuple[Int, Bool, Bool]:
        """Return the forward ops of nodes that have the recorder's number of their forward thread.

        And which nodes are lost, and which of them are tied.
        """
        forward = np.full(len(self.ops), -1, np.int64)
        lost, taken = np.ones(len(self.ops), bool), np.zeros(len(self.ops), bool)
        number = self.ops.forward_thread[node]
        trials = {}
        for each in np.unique(number).tolist():
            own = node[number == each]
            before = made[self.ops.start[made] <= self.ops.start[own].max()]
            tried, latest = np.unique(self.ops.thread[before][::-1], return_index=True)
            tried = tried[np.argsort(latest)][:_THREADS_MAX]
            found_on = (self._trial(thread, made, own) for thread in tried.tolist())
            trials[each] = [trial for trial in found_on if trial is not None]
        chosen, left = _one_for_each_number(trials)
        for trial in chosen:
            found = np.unique(trial.forward[trial.forward >= 0])
            # An op makes one node: two numbers share a thread only if its id was used again.
            if 2 * int(taken[found].sum()) < len(found):
                forward[trial.node], lost[trial.node] = self._or_in_backward(made, trial), False
                taken[found] = True
        return forward[node], lost[node], np.isin(number, left)

    def _trial(self, thread: int, made: Int, node: Int) -> _Trial | None:
        """Return what speaks for a thread; None if less than most of the nodes agree."""
        made = made[self.ops.thread[made] == thread]
        forward = self.last(made, np.zeros_like(made), node, np.zeros_like(node))
        known = forward >= 0
        named = known & (self.stem[node] == self.stem[forward])
        flows = known & (self.flow[node] == forward)
        against = known & ~named & ~flows & ~self.any_name[node]
        if not _most_agree((named | flows).sum(), against.sum(), known.sum()):
            return None
        outside = known & ~self.ops.backward[forward]
        agreement = int(named.sum()), int(flows.sum()), int(outside.sum())
        return _Trial(agreement, thread, node, forward)

    def _or_in_backward(self, made: Int, trial: _Trial) -> Int:
        """Return the ops of a number's nodes; for those without one, a named op of the first pass.

        A pass of backward that is recorded makes nodes on the engine's thread.
        """
        forward, ops = trial.forward.copy(), self.ops
        rest = np.flatnonzero(forward < 0)
        formula = made[ops.backward[made]]
        found = self.last(
            formula, ops.thread[formula], trial.node[rest], ops.thread[trial.node[rest]]
        )
        named = (found >= 0) & (self.stem[found] == self.stem[trial.node[rest]])
        forward[rest[named]] = found[named]
        return forward

    def by_name(self, made: Int, node: Int) -> tuple[Int, Bool, Bool]:
        """Return the forward ops of nodes that do not say which thread they are from.

        By number and name first: of several iterations, the op that ran last belongs to the node
        that runs first; of several threads, whose node it is cannot be known. Nodes that no op is
        named after have the same thread as others.

        And which nodes are lost, and which of them are tied.
        """
        ops = self.ops
        first, key = made[~ops.recompute[made]], combine_keys(self.stem, ops.sequence)
        forward, tied = self._last_in_first_out(first, key, node)
        again = (forward < 0) & ~tied
        forward[again] = self.last(made, self.stem[made], node[again], self.stem[node[again]])
        named = forward >= 0
        # One op of a number and thread makes a node: where it has one, the others made none.
        place = combine_keys(ops.thread[made], ops.sequence[made])
        spent = np.unique(place[np.isin(made, forward[named])])
        on_thread = np.isin(ops.thread[made], np.unique(ops.thread[forward[named]]))
        left = made[~np.isin(place, spent) & on_thread]
        rest = np.flatnonzero(~named & ~tied)
        forward[rest], tied[rest] = self._last_in_first_out(left, ops.sequence, node[rest])
        rest = np.flatnonzero((forward < 0) & ~tied)
        forward[rest] = self.last(left, np.zeros_like(left), node[rest], np.zeros_like(rest))
        # On their threads not most nodes are named after their op.
        _, thread = np.unique(ops.thread[node], return_inverse=True)
        found = forward >= 0
        against = found & ~named & ~self.any_name[node]
        counts = (np.bincount(thread, what, len(node)) for what in (named, against, found))
        lost = ~np.asarray(_most_agree(*counts))[thread] | tied
        return np.where(lost, -1, forward), lost, tied

    def _last_in_first_out(self, made: Int, key: Int, node: Int) -> tuple[Int, Bool]:
        """Return for each node the op of its key that ran last and has no node yet, or -1.

        The engine's range around a node is that node too. And for which nodes ops of several
        threads wait: they have none.
        """
        ops = self.ops
        parent = ops.parent[node]
        inner = (parent >= 0) & ops.node[parent] & (key[parent] == key[node])
        rows = np.concatenate((made, node[~inner]))
        is_op = np.arange(len(rows)) < len(made)
        order = np.lexsort((rows, ~is_op, ops.start[rows], key[rows]))
        # Ops are put onto a stack and nodes take them off: the two of a pair have one height.
        height = np.cumsum(np.where(is_op[order], 1, -1)) + ~is_op[order]
        tied = np.zeros(len(ops), bool)
        tied[rows[order]] = _of_several(key[rows][order], ops.thread[rows][order], is_op[order])
        by_height = np.lexsort((height, key[rows][order]))
        order, height = order[by_height], height[by_height]
        op, taker = order[:-1], order[1:]
        fits = is_op[op] & ~is_op[taker] & (height[:-1] == height[1:])
        fits &= key[rows[op]] == key[rows[taker]]
        forward = np.full(len(ops), -1, np.int64)
        forward[rows[taker[fits]]] = rows[op[fits]]
        forward[node[inner]], tied[node[inner]] = forward[parent[inner]], tied[parent[inner]]
        return np.where(tied[node], -1, forward[node]), tied[node]


def _most_agree(agree: Any, others: Any, found: Any) -> Any:
    """Whether there are nodes that have an op, and most that could be named after it are."""
    return (found > 0) & ((agree > others) | (others == 0))


def _of_several(key: Int, thread: Int, is_op: Bool) -> Bool:
    """Return which ops and nodes, by key and time, wait where ops of several threads do.

    Such a group begins with an op before which all ops have their nodes, and ends with the next
    such op.
    """
    new = np.r_[True, key[1:] != key[:-1]][: len(key)]
    after = np.cumsum(np.where(is_op, 1, -1))
    before = after - np.where(is_op, 1, -1)
    # Each key begins deeper than any before it came: so the least is that since it began.
    before -= np.cumsum(new) * (2 * len(key) + 1)
    wait = np.cumsum(new | (is_op & (before == np.minimum.accumulate(before)))) - 1
    least, most = np.full(len(key), np.iinfo(np.int64).max), np.full(len(key), -1)
    np.minimum.at(least, wait[is_op], thread[is_op])
    np.maximum.at(most, wait[is_op], thread[is_op])
    found: Bool = (least < most)[wait]
    return found


def _one_for_each_number(trials: dict[int, list[_Trial]]) -> tuple[list[_Trial], list[int]]:
    """Return the best trial of each number that has one, the surest first; and what is tied.

    A thread that only one number fits belongs to that number. Numbers that several threads still
    fit are tied.
    """
    best = {}
    for number, found in trials.items():
        top = max((t.agreement for t in found), default=None)
        best[number] = [t for t in found if t.agreement == top]
    left = {number: found for number, found in best.items() if len(found) > 1}
    chosen = [found[0] for found in best.values() if len(found) == 1]
    taken = {trial.thread for trial in chosen}
    while sure := [
        (number, free[0])
        for number, found in left.items()
        if len(free := [trial for trial in found if trial.thread not in taken]) == 1
    ]:
        number, trial = sure[0]
        del left[number]
        chosen.append(trial)
        taken.add(trial.thread)
    return sorted(chosen, key=lambda t: t.agreement, reverse=True), list(left)
