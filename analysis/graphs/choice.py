"""The choice among candidates: by rank, by the batch's size, by turn, by kinds of work.

Captures that one range encloses are replayed in their order, over and over: their turn. Where the
recording says how large the batches are, of the capture and of the replay, the smallest captured
one that is not smaller than the replay's was replayed, padded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.graphs.matching import BY_ORDER
from pyprof2.analysis.graphs.nodes import COPY_WORD
from pyprof2.analysis.graphs.sequences import NO_PLACE
from pyprof2.analysis.hardware.kernel_names import category_by_name
from pyprof2.columns import combine_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.graphs.matching import Fit, Match, ReplayedGraph
    from pyprof2.analysis.graphs.nodes import Template, Templates
    from pyprof2.analysis.intervals import Bool, Int

LEAST_JUDGED: Final = 10
"""So many nodes whose kind of work is known on both sides decide by themselves."""
LEAST_SCORE: Final = 0.5
LEAST_LEAD: Final = 0.05
SHIFTS: Final = (-3, -2, -1, 1, 2, 3)
RARE_SHARE: Final = 0.25
"""Calls that are alike run each of their kernels at least as often."""
NEARBY: Final = 32
OTHER_LEAD: Final = 0.25
"""Among so many nodes no shift may fit by this much better."""

_OTHER_ORDER: Final = "the kinds of work of its kernels are not those of a capture's ops"


class Guard:
    """Judges whether nodes in order are a capture's, by what kinds of work they are."""

    def __init__(self, templates: Templates) -> None:
        nodes = templates.nodes
        self._of_op = nodes.column("category")
        known = nodes.texts["category"]
        of_word = [
            -1 if word == COPY_WORD else known.get(category_by_name(word) or "", -1)
            for word in nodes.words("kernel")
        ]
        self._of_word = np.array([*of_word, -1], np.int64)

    def tally(self, words: Int, rows: Int) -> Int:
        """Return how many nodes are of one kind on both sides, and of how many both are known.

        Returns:
            A row for no shift, then one for each of `SHIFTS`.
        """
        ops, words = self._of_op[rows], self._of_word[words]
        found = []
        for shift in (0, *SHIFTS):
            own = ops[max(0, shift) : len(ops) + min(0, shift)]
            other = words[max(0, -shift) : len(words) - max(0, shift)]
            judged = (own >= 0) & (other >= 0)
            found.append((int((judged & (own == other)).sum()), int(judged.sum())))
        return np.array(found, np.int64)

    def agrees(self, words: Int, rows: Int) -> Bool:
        """Return which nodes are of one kind on both sides, that is known."""
        of_op = self._of_op[rows]
        found: Bool = (of_op >= 0) & (of_op == self._of_word[words])
        return found

    @staticmethod
    def accepts(tally: Int) -> bool:
        """Whether the order fits, and fits better than any shift of it."""
        scores = tally[:, 0] / np.maximum(1, tally[:, 1])
        return bool(scores[0] >= LEAST_SCORE and (scores[0] - scores[1:] >= LEAST_LEAD).all())


class Regularity:
    """Whether one op with one kind of inputs always runs one kernel, as far as order says.

    A node that is replaced, or lost and another one added, keeps the length of a graph: what is
    between them is moved. Then calls that were alike seem to run kernels of which one is rare, and
    nearby the kinds of work fit better one node further on.

    What a call runs that no other call is like may be another kernel, and nothing speaks against
    it: it is known where its kind of work is that of the op.
    """

    def __init__(self, templates: Templates, guard: Guard) -> None:
        nodes = templates.nodes
        self._signature, self._call = nodes.column("signature"), nodes.column("call")
        self._guard = guard
        self._times: dict[tuple[int, int, int], int] = defaultdict(int)

    def learn(self, replay: ReplayedGraph, fits: Sequence[Fit], count: int) -> None:
        """Take up which kernels the calls of a replay run.

        Args:
            replay: its words.
            fits: its captures that lack names.
            count: how many replays are equal to it.
        """
        # Each capture is one witness, however often it is replayed.
        for pair in self._pairs(replay, fits[0].rows):
            self._times[pair] += min(len(fits), count)

    def known(self, replay: ReplayedGraph, rows: Int) -> Bool:
        """Return of which nodes the kind of work, or another call that is like it, is a witness."""
        again = [pair[0] >= 0 and self._times[pair] > 1 for pair in self._pairs(replay, rows)]
        found: Bool = self._guard.agrees(replay.words, rows) | np.array(again, bool)
        return found

    def _pairs(self, replay: ReplayedGraph, rows: Int) -> list[tuple[int, int, int]]:
        """Return of each node the inputs of its call, its place in the call, and its word."""
        columns = self._signature[rows], self._places(rows), replay.words
        return list(zip(*(each.tolist() for each in columns), strict=True))

    def _places(self, rows: Int) -> Int:
        call = self._call[rows]
        begins = np.r_[True, call[1:] != call[:-1]][: len(call)]
        found: Int = np.arange(len(call)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
        return found

    def holds(self, replay: ReplayedGraph, rows: Int) -> bool:
        """Return whether nothing speaks against the order."""
        signature, place = self._signature[rows], self._places(rows)
        known = signature >= 0
        kind = combine_keys(signature[known], place[known])
        _, first, pair = np.unique(
            combine_keys(kind, replay.words[known]), return_index=True, return_inverse=True
        )
        count = np.bincount(pair)
        if (count < RARE_SHARE * np.bincount(kind)[kind[first]]).any():
            return False
        for begin in range(0, len(rows), NEARBY // 2):
            part = slice(begin, begin + NEARBY)
            tally = self._guard.tally(replay.words[part], rows[part])
            scores = tally[:, 0] / np.maximum(1, tally[:, 1])
            if tally[0, 1] >= LEAST_JUDGED and scores[1:].max() >= scores[0] + OTHER_LEAD:
                return False
        return True


class Chosen(NamedTuple):
    """Candidates of a replay that are left.

    Attributes:
        candidates: by their places in the match.
        batch_agrees: whether the size of the batch that was captured is the replay's; None: one
            of them is not known.
    """

    candidates: tuple[int, ...]
    batch_agrees: bool | None


class Choice:
    """Chooses among the candidates of the distinct replays.

    Attributes:
        reasons: of each distinct replay, why it has no candidate.
    """

    def __init__(
        self,
        templates: Templates,
        replays: Sequence[ReplayedGraph],
        matches: Sequence[Match],
        counts: Int,
        rank: int | None,
    ) -> None:
        """Look at all distinct replays.

        Args:
            templates: with all nodes.
            replays: the distinct ones.
            matches: of each.
            counts: how many replays are equal to each.
            rank: whose.
        """
        self._templates, self._replays, self._matches = templates, replays, matches
        self._rank, self._guard = rank, Guard(templates)
        self._regularity = Regularity(templates, self._guard)
        self._batches = sorted({t.batch for t in templates.each if t.batch is not None})
        self._tallies: dict[tuple[int, int], Int] = {}
        self._pooled: set[tuple[int, int]] = set()
        self.reasons = [match.reason for match in matches]
        for replay, match, count in zip(replays, matches, counts.tolist(), strict=True):
            if match.candidates and match.candidates[0].link == BY_ORDER:
                self._regularity.learn(replay, match.candidates, count)

    def fit(self, replay: int, at: int) -> Fit:
        """Return a candidate of a replay, as far as it is known which nodes these are."""
        found = self._candidate(replay, at)
        if found.link != BY_ORDER:
            return found
        known = self._regularity.known(self._replays[replay], found.rows)
        return found._replace(rows=np.where(known, found.rows, NO_PLACE))

    def choose(self, which: Int, batch: Sequence[int | None]) -> list[Chosen]:
        """Return what is left for each replay of a process, in order of their launches.

        Args:
            which: of each replay, the distinct one that it is.
            batch: the size of its batch that the range around it says.
        """
        options: dict[tuple[int, int | None], Chosen] = {}
        keys = list(zip(which.tolist(), batch, strict=True))
        for key in dict.fromkeys(keys):
            options[key] = self._of_batch(*key)
        chosen = [options[key] for key in keys]
        turns = {
            self._template(replay, at).turn
            for (replay, _), option in options.items()
            for at in option.candidates
        }
        for turn in sorted(turns - {-1}):
            self._take_turn(turn, which, chosen)
        final: dict[tuple[int, Chosen], Chosen] = {}
        for each in dict.fromkeys(zip(which.tolist(), chosen, strict=True)):
            final[each] = self._judged(*each)
        return [final[each] for each in zip(which.tolist(), chosen, strict=True)]

    def _candidate(self, replay: int, at: int) -> Fit:
        return self._matches[replay].candidates[at]

    def _template(self, replay: int, at: int) -> Template:
        return self._candidate(replay, at).template

    def _of_batch(self, replay: int, batch: int | None) -> Chosen:
        """Return the candidates of this rank, else of others, and those of the batch's size."""
        every = range(len(self._matches[replay].candidates))
        places = [at for at in every if self._may_be(replay, at)]
        ranks = [self._template(replay, at).rank for at in places]
        same = [at for at in places if ranks[at] == self._rank]
        left = same or places
        sizes = {at: self._template(replay, at).batch for at in left}
        if batch is None or all(size is None for size in sizes.values()):
            return Chosen(tuple(left), None)
        padded = next((size for size in self._batches if size >= batch), None)
        fitting = tuple(at for at in left if padded is not None and sizes[at] == padded)
        return Chosen(fitting or tuple(left), batch_agrees=bool(fitting))

    def _take_turn(self, turn: int, which: Int, chosen: list[Chosen]) -> None:
        """Leave of the captures of a turn those that come at the replays, where all fit."""
        captures = [each.first for each in self._templates.each if each.turn == turn]
        place = {first: at for at, first in enumerate(captures)}
        if len(captures) < 2:
            return
        options: dict[tuple[int, tuple[int, ...]], dict[int, int]] = {}
        replays = []
        for at, (replay, option) in enumerate(zip(which.tolist(), chosen, strict=True)):
            key = (replay, option.candidates)
            if key not in options:
                options[key] = {
                    place[self._template(replay, c).first]: c
                    for c in option.candidates
                    if self._template(replay, c).first in place
                }
            if options[key]:
                replays.append((at, key))
        fits = np.zeros((len(options), len(captures)), bool)
        numbers = {key: number for number, key in enumerate(options)}
        for key, number in numbers.items():
            fits[number, list(options[key])] = True
        row = np.array([numbers[key] for _, key in replays], np.int64)
        steps = np.arange(len(row))
        offsets = [
            offset
            for offset in range(len(captures))
            if fits[row, (steps + offset) % len(captures)].all()
        ]
        own = list(options.values())
        offsets = [
            offset
            for offset in offsets
            if self._in_order([*options], own, row, (steps + offset) % len(captures))
        ]
        if not offsets:
            return
        known: dict[tuple[int, int], Chosen] = {}
        for step, (at, key) in enumerate(replays):
            case = (numbers[key], step % len(captures))
            if case not in known:
                places = options[key]
                others = {c for c in key[1] if c not in places.values()}
                coming = {places[(offset + step) % len(captures)] for offset in offsets}
                known[case] = chosen[at]._replace(candidates=tuple(sorted(others | coming)))
            chosen[at] = known[case]._replace(batch_agrees=chosen[at].batch_agrees)

    def _in_order(
        self,
        options: Sequence[tuple[int, tuple[int, ...]]],
        own: Sequence[dict[int, int]],
        which: Int,
        place: Int,
    ) -> bool:
        """Return whether captures without names, judged together, are the replays in this order.

        Args:
            options: distinct replays, with their candidates.
            own: the candidates of each that are in turn, by their place in it.
            which: of each replay, which of these it is.
            place: of each replay, at which place in turn it comes.
        """
        pairs, counts = np.unique(np.stack((which, place), axis=1), axis=0, return_counts=True)
        total, pooled = np.zeros((1 + len(SHIFTS), 2), np.int64), []
        for (number, turn), count in zip(pairs.tolist(), counts.tolist(), strict=True):
            replay, at = options[number][0], own[number][turn]
            if self._candidate(replay, at).link == BY_ORDER:
                pooled.append((replay, at))
                total += count * self._tally(replay, at)
        if not pooled:
            return True
        accepted = total[0, 1] >= LEAST_JUDGED and Guard.accepts(total)
        if accepted:
            self._pooled.update(pooled)
        return bool(accepted)

    def _tally(self, replay: int, at: int) -> Int:
        if (replay, at) not in self._tallies:
            rows = self._candidate(replay, at).rows
            self._tallies[replay, at] = self._guard.tally(self._replays[replay].words, rows)
        return self._tallies[replay, at]

    def _may_be(self, replay: int, at: int) -> bool:
        """Whether a candidate has names, or its own nodes do not show that it does not fit."""
        if self._candidate(replay, at).link != BY_ORDER:
            return True
        tally = self._tally(replay, at)
        if tally[0, 1] >= LEAST_JUDGED and not Guard.accepts(tally):
            return False
        return self._regularity.holds(self._replays[replay], self._candidate(replay, at).rows)

    def _judged(self, replay: int, chosen: Chosen) -> Chosen:
        """Leave out captures without names of which too few nodes show that they fit."""
        left = tuple(
            at
            for at in chosen.candidates
            if self._candidate(replay, at).link != BY_ORDER
            or (replay, at) in self._pooled
            or self._tally(replay, at)[0, 1] >= LEAST_JUDGED
        )
        if not left and self._matches[replay].candidates:
            self.reasons[replay] = _OTHER_ORDER
        return chosen._replace(candidates=left)
