"""Find the op that made each node of autograd: by its number, on the thread that ran forward.

The recorder numbers the forward threads by itself, so which thread a number means is found out:
on the right one most nodes are named after the op that they find. Where several threads run the
same code, the recorder's own flows tell them apart, else time: threads get their numbers in the
order of their first ops, and a node belongs to what ran last before it. Where no thread agrees,
the forward thread was not recorded, and nothing is paired: better none than a stranger.
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
"""Nodes that need not be named after their op: these names speak neither for it nor against."""
_THREADS_MAX: Final = 32
"""A number is tried with no more threads than that: those that ran last before its nodes."""


class Makers(NamedTuple):
    """What made the nodes.

    Attributes:
        forward: for each op that is a node the op that made it by position, else -1.
        lost: the nodes whose forward thread was not found.
    """

    forward: Int
    lost: Bool


def find_makers(ops: Ops, threads: Threads, flow: Int, is_node: Bool) -> Makers:
    """Return the op that made each node with a sequence number.

    Args:
        ops: the nested ops.
        threads: the numbers of their threads.
        flow: for each op the one that the recorder itself says made it, -1 for none.
        is_node: the nodes that an op made.
    """
    forward, lost = np.full(len(ops), -1, np.int64), np.zeros(len(ops), bool)
    is_node = is_node & (ops.sequence >= 0)
    is_made = ~ops.node & (ops.sequence >= 0)
    process = threads.process(ops.thread)
    annotated = ops.annotated.thread >= 0
    numbered = ops.forward_thread > 0
    of_thread, first = np.unique(ops.thread, return_index=True)
    order = dict(zip(of_thread.tolist(), first.tolist(), strict=True))
    search = _Search(ops, _stems(ops), _may_have_any_name(ops), flow, order)
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
                forward[rows], lost[rows] = find(made, rows)
    return Makers(forward, lost)


def _stems(ops: Ops) -> Int:
    """Return one number for `aten::native_layer_norm` and its `NativeLayerNormBackward0`."""
    stems = [_stem(name.rpartition(": ")[2]) for name in ops.names]
    code = {stem: number for number, stem in enumerate(dict.fromkeys(stems))}
    return np.array([code[stem] for stem in stems] or [-1], np.int64)[ops.name]


def _stem(name: str) -> str:
    cpp = _CPP_NODE.search(name)
    short = cpp[1] if cpp else _NODE_END.sub("", name.rpartition("::")[2])
    return short.replace("_", "").lower()


def _may_have_any_name(ops: Ops) -> Bool:
    return np.array([bool(_ANY_NAME.search(name)) for name in ops.names] or [False])[ops.name]


class _Trial(NamedTuple):
    """A thread that a number may mean, with what speaks for it.

    Attributes:
        agreement: how many nodes agree with their op by name; by flow; and with one outside of
            backward.
        latest_ns: when the last of their ops starts.
        order: of the threads' first ops.
        node, forward: the nodes of the number and their ops by position, -1 for none.
    """

    agreement: tuple[int, int, int]
    latest_ns: int
    order: int
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
        order: of the threads, by their first ops.
    """

    ops: Ops
    stem: Int
    any_name: Bool
    flow: Int
    order: dict[int, int]

    def last(self, made: Int, place: Int, node: Int, node_place: Int) -> Int:
        """Return for each node the op of its number and place that starts last but not after it.

        What checkpointing runs again inside backward makes nodes, with numbers of their own, only
        where the first run made none.
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

    def by_thread_number(self, made: Int, node: Int) -> tuple[Int, Bool]:
        """Return the makers of nodes that have the recorder's number of their forward thread."""
        forward = np.full(len(self.ops), -1, np.int64)
        lost, claimed = np.ones(len(self.ops), bool), np.zeros(len(self.ops), bool)
        number = self.ops.forward_thread[node]
        trials = {n: self._trials(made, node[number == n]) for n in np.unique(number).tolist()}
        for trial in _one_for_each_number(trials):
            found = np.unique(trial.forward[trial.forward >= 0])
            # An op makes one node: two numbers share a thread only if its id was used again.
            if 2 * int(claimed[found].sum()) < len(found):
                forward[trial.node], lost[trial.node] = self._or_in_backward(made, trial), False
                claimed[found] = True
        return forward[node], lost[node]

    def _trials(self, made: Int, node: Int) -> list[_Trial]:
        """Return the threads with which most nodes of a number agree, by name or flow."""
        ops = self.ops
        before = made[ops.start[made] <= ops.start[node].max()]
        tried, latest = np.unique(ops.thread[before][::-1], return_index=True)
        tried = tried[np.argsort(latest)][:_THREADS_MAX]
        found = (self._trial(thread, made, node) for thread in tried.tolist())
        return [trial for trial in found if trial is not None]

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
        latest = int(self.ops.start[forward[known]].max())
        return _Trial(agreement, latest, self.order[thread], node, forward)

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

    def by_name(self, made: Int, node: Int) -> tuple[Int, Bool]:
        """Return the makers of nodes that do not say which thread they are from.

        By number and name first: of several threads, or iterations, the op that ran last belongs
        to the node that runs first. What no op is named after has the same thread as others.
        """
        ops = self.ops
        forward = self._by_number_and_stem(made, node)
        named = forward >= 0
        # One op of a number and thread makes a node: where it has one, the others made none.
        place = combine_keys(ops.thread[made], ops.sequence[made])
        spent = np.unique(place[np.isin(made, forward[named])])
        on_thread = np.isin(ops.thread[made], np.unique(ops.thread[forward[named]]))
        left = made[~np.isin(place, spent) & on_thread]
        forward[~named] = self._last_in_first_out(left, ops.sequence, node[~named])
        rest = np.flatnonzero(forward < 0)
        forward[rest] = self.last(left, np.zeros_like(left), node[rest], np.zeros_like(rest))
        lost = self._disagree(node, named, forward >= 0)
        return np.where(lost, -1, forward), lost

    def _by_number_and_stem(self, made: Int, node: Int) -> Int:
        first = made[~self.ops.recompute[made]]
        key = combine_keys(self.stem, self.ops.sequence)
        forward = self._last_in_first_out(first, key, node)
        again = forward < 0
        forward[again] = self.last(made, self.stem[made], node[again], self.stem[node[again]])
        return forward

    def _disagree(self, node: Int, named: Bool, found: Bool) -> Bool:
        """Return the nodes of threads on which not most of them are named after their op."""
        _, thread = np.unique(self.ops.thread[node], return_inverse=True)
        against = found & ~named & ~self.any_name[node]
        counts = (np.bincount(thread, what, len(node)) for what in (named, against, found))
        return ~np.asarray(_most_agree(*counts))[thread]

    def _last_in_first_out(self, made: Int, key: Int, node: Int) -> Int:
        """Return for each node the op of its key that ran last and has no node yet, or -1.

        The engine's range around a node is that node too.
        """
        ops = self.ops
        parent = ops.parent[node]
        inner = (parent >= 0) & ops.node[parent] & (key[parent] == key[node])
        rows = np.concatenate((made, node[~inner]))
        is_op = np.arange(len(rows)) < len(made)
        order = np.lexsort((rows, ~is_op, ops.start[rows], key[rows]))
        # Ops are put onto a stack and nodes take them off: the two of a pair have one height.
        height = np.cumsum(np.where(is_op[order], 1, -1)) + ~is_op[order]
        by_height = np.lexsort((height, key[rows][order]))
        order, height = order[by_height], height[by_height]
        op, taker = order[:-1], order[1:]
        fits = is_op[op] & ~is_op[taker] & (height[:-1] == height[1:])
        fits &= key[rows[op]] == key[rows[taker]]
        forward = np.full(len(ops), -1, np.int64)
        forward[rows[taker[fits]]] = rows[op[fits]]
        forward[node[inner]] = forward[parent[inner]]
        return forward[node]


def _most_agree(agree: Any, others: Any, found: Any) -> Any:
    """Whether there are nodes that have an op, and most that could be named after it are."""
    return (found > 0) & ((agree > others) | (others == 0))


def _that_agree_most(trials: list[_Trial]) -> list[_Trial]:
    top = max((t.agreement for t in trials), default=None)
    return [t for t in trials if t.agreement == top]


def _one_for_each_number(trials: dict[int, list[_Trial]]) -> list[_Trial]:
    """Return the best trial of each number that has one, the surest first.

    Where names and flows are alike, numbers and first ops of threads go up together, and of what
    that leaves the latest is taken: a thread is alive when its nodes run.
    """
    best = {number: _that_agree_most(found) for number, found in trials.items()}
    taken = {found[0].order for found in best.values() if len(found) == 1}
    chosen, above = [], max((t.order for found in best.values() for t in found), default=0) + 1
    for number in sorted((number for number, found in best.items() if found), reverse=True):
        found = best[number]
        if len(found) > 1:
            free = [t for t in found if t.order not in taken] or found
            found = [t for t in free if t.order < above] or free
        trial = max(found, key=lambda t: t.latest_ns)
        chosen.append(trial)
        taken.add(trial.order)
        above = min(above, trial.order)
    return sorted(chosen, key=lambda t: t.agreement, reverse=True)
