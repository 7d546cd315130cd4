"""Which template's launches the kernels of each replay are: never by length alone.

Candidates of the best kind count: captures whose words are the replay's, in order or in each
stream; captures of which the recording lacks some nodes; eager stretches of the same words;
captures that know no names, judged by the kinds of work of their ops. What all of them say of a
node holds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.graphs.nodes import OP_NUMBERS, OP_TEXTS
from pyprof2.analysis.graphs.sequences import (
    LOST_SHARE,
    NO_PLACE,
    UNKNOWN_WORD,
    WordWindows,
    by_stream,
    embedded,
    equal_stretches,
    mixed,
    sum_of,
    walked,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.analysis.graphs.nodes import Template, Templates
    from pyprof2.analysis.intervals import Int

LEAST_NODES: Final = 16
LEAST_WORDS: Final = 3
"""An eager stretch of fewer nodes, or words, may be that of other ops."""
MOST_WALKED: Final = 1_000_000
"""Nodes that may be fitted one by one; beyond, replays of several streams stay unexplained."""

BY_NAMES, BY_ORDER = "graph_names", "graph_order"


@dataclass(frozen=True)
class ReplayedGraph:
    """The nodes of a replay, stream by stream, each in order of time.

    Attributes:
        words: of each node.
        sizes: grid and block, or bytes, as a code; -1 where not recorded.
        is_copy: 1 of a copy, 2 of a fill, else 0.
        order: the place of each among all in order of time.
        by_id: the places in the order of the ids of nodes, where that contradicts no stream; else
            none.
        ends: where each stream ends.
    """

    words: Int
    sizes: Int
    is_copy: Int
    order: Int
    by_id: Int
    ends: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.words)

    def in_streams(self, column: Int) -> list[Int]:
        """Return the values of each stream."""
        return np.split(column, self.ends[:-1])


class Fit(NamedTuple):
    """Launches that a replay may come from.

    Attributes:
        template: they are of.
        rows: of each node of the replay, among the nodes of templates; `NO_PLACE`: not known.
        link: how it was found.
        lost: how many nodes of the graph the recording lacks.
    """

    template: Template
    rows: Int
    link: str = BY_NAMES
    lost: int = 0


class Match(NamedTuple):
    """The candidates of a replay, or why there are none."""

    candidates: list[Fit]
    reason: str = ""


class Matcher:
    """Finds the candidates of replays among templates."""

    def __init__(self, templates: Templates) -> None:
        self._nodes, self._known = templates.nodes, templates.windows
        self._captures = [each for each in templates.each if each.is_capture and len(each)]
        self._eager = [each for each in templates.each if not each.is_capture]
        self._words = self._nodes.column("kernel")
        self._is_copy = self._nodes.column("is_copy")
        self._walked = 0

    @cached_property
    def _named(self) -> dict[int, bool]:
        known = np.r_[0, np.cumsum(self._words == UNKNOWN_WORD)]
        return {each.first: known[each.end] == known[each.first] for each in self._captures}

    @cached_property
    def _by_length(self) -> dict[int, list[Template]]:
        found = defaultdict(list)
        for each in self._captures:
            found[len(each)].append(each)
        return found

    def _windows(self, eager: Template) -> tuple[WordWindows, Int]:
        """Return the sums of an eager stretch, and hashes of all that is known of its nodes."""
        if eager.first not in self._known:
            rows = slice(eager.first, eager.end)
            names = ("kernel", "size", "stream", *OP_TEXTS, *OP_NUMBERS)
            hashes = mixed(*(self._nodes.at(name, rows) for name in names)).view(np.int64)
            self._known[eager.first] = WordWindows(self._words[rows]), hashes
        return self._known[eager.first]

    def match(self, replays: Sequence[ReplayedGraph]) -> list[Match]:
        """Return the candidates of each of these distinct replays."""
        found = [self._of_captures(each) for each in replays]
        todo = [at for at, match in enumerate(found) if not match.candidates]
        eager = self._of_eager([replays[at] for at in todo])
        for at, candidates in zip(todo, eager, strict=True):
            if candidates:
                found[at] = Match(candidates)
            elif ordered := self._by_order(replays[at]):
                found[at] = Match(ordered)
        return [
            match._replace(candidates=[self._by_kind(replay, each) for each in match.candidates])
            for replay, match in zip(replays, found, strict=True)
        ]

    def _by_kind(self, replay: ReplayedGraph, fit: Fit) -> Fit:
        """Return a fit without copies in the place of fills: both have one word.

        Where one of each changed places, each has its own; else which is which is not known.
        """
        kind = np.where(fit.rows == NO_PLACE, 0, self._is_copy[fit.rows])
        differs = (kind > 0) & (replay.is_copy > 0) & (kind != replay.is_copy)
        if not differs.any():
            return fit
        rows = np.where(differs, NO_PLACE, fit.rows)
        for each in (1, 2):
            place = np.flatnonzero(differs & (replay.is_copy == each))
            own = fit.rows[differs & (kind == each)]
            if len(place) == len(own) == 1:
                rows[place] = own
        return fit._replace(rows=rows)

    def _of_captures(self, replay: ReplayedGraph) -> Match:
        """Return captures of the best source: other recordings, then this one."""
        same = [c for c in self._by_length.get(len(replay), ()) if self._named[c.first]]
        for own in (False, True):
            fits = [self._equal(replay, each) for each in same if each.own == own]
            if candidates := [each for each in fits if each is not None]:
                return Match(candidates)
        if len(replay.ends) == 1:
            longer = [
                each
                for length, captures in self._by_length.items()
                if 0 < length - len(replay) <= max(1, int(length * LOST_SHARE))
                for each in captures
                if self._named[each.first]
            ]
            for own in (False, True):
                fits = [self._with_lost(replay, each) for each in longer if each.own == own]
                if candidates := [each for each in fits if each is not None]:
                    return Match(candidates)
        return Match([], self._reason(replay, same))

    def _equal(self, replay: ReplayedGraph, capture: Template) -> Fit | None:
        words = self._words[capture.first : capture.end]
        if len(replay.by_id) and np.array_equal(words, replay.words[replay.by_id]):
            # Nothing promises that ids grow as nodes are captured: so names must be equal, too.
            rows = np.empty(len(replay), np.int64)
            rows[replay.by_id] = np.arange(capture.first, capture.end)
            return Fit(capture, rows)
        if len(replay.ends) == 1:
            if not np.array_equal(words, replay.words):
                return None
            return Fit(capture, np.arange(capture.first, capture.end))
        if sum_of(words) != sum_of(replay.words) or self._walked + len(replay) > MOST_WALKED:
            return None
        self._walked += len(replay)
        found = walked(replay.in_streams(replay.words), replay.in_streams(replay.order), words)
        return None if found is None else Fit(capture, _moved(found, capture.first))

    def _with_lost(self, replay: ReplayedGraph, capture: Template) -> Fit | None:
        if self._walked + len(replay) > MOST_WALKED:
            return None
        self._walked += len(replay)
        words = self._words[capture.first : capture.end]
        places = embedded(replay.words.tolist(), words.tolist())
        if places is None:
            return None
        found = _moved([np.array(places, np.int64)], capture.first)
        return Fit(capture, found, lost=len(capture) - len(replay))

    def _of_eager(self, replays: Sequence[ReplayedGraph]) -> list[list[Fit]]:
        found: list[list[Fit]] = [[] for _ in replays]
        if not self._eager:
            return found
        by_length = defaultdict(list)
        for at, replay in enumerate(replays):
            if len(replay) >= LEAST_NODES and len(np.unique(replay.words)) >= LEAST_WORDS:
                by_length[len(replay)].append(at)
        for length, places in by_length.items():
            wanted = np.array([sum_of(replays[at].words) for at in places], np.uint64)
            for template in self._eager:
                windows, hashes = self._windows(template)
                for number, begins in windows.of_sum(length, wanted):
                    distinct = equal_stretches(hashes.view(np.uint64), begins, length)
                    at = places[number]
                    found[at] += self._stretches(replays[at], template, distinct.tolist())
        return found

    def _stretches(
        self, replay: ReplayedGraph, template: Template, begins: Iterable[int]
    ) -> list[Fit]:
        streams = replay.in_streams(replay.words)
        candidates = []
        for begin in begins:
            rows = np.arange(template.first + begin, template.first + begin + len(replay))
            found = by_stream(streams, rows, self._nodes.at("stream", rows), self._words[rows])
            if found is not None:
                candidates.append(Fit(template, np.concatenate(found)))
        return candidates

    def _by_order(self, replay: ReplayedGraph) -> list[Fit]:
        """Return captures that lack names, but have as many nodes of the same kinds."""
        if len(replay.ends) > 1:
            return []
        for own in (False, True):
            candidates = []
            for each in self._by_length.get(len(replay), ()):
                rows = np.arange(each.first, each.end)
                known = self._words[rows] != UNKNOWN_WORD
                if each.own != own or known.all():
                    continue
                if not np.array_equal(self._is_copy[rows], replay.is_copy):
                    continue
                if np.array_equal(self._words[rows][known], replay.words[known]):
                    candidates.append(Fit(each, rows, BY_ORDER))
            if candidates:
                return candidates
        return []

    def _reason(self, replay: ReplayedGraph, same: Sequence[Template]) -> str:
        if not self._captures:
            eager = f"no stretch of launches outside of graphs is its {len(replay):,} nodes"
            return eager if self._eager else ""
        if same:
            if self._walked + len(replay) > MOST_WALKED:
                return f"more than {MOST_WALKED:,} nodes of graphs with several streams"
            if len(replay.ends) > 1:
                return "its streams are not those of any capture of its length"
            first = max(
                int((self._words[each.first : each.end] != replay.words).argmax()) for each in same
            )
            return f"names differ first at node {first}"
        lengths = sorted(self._by_length)
        shown = ", ".join(f"{length:,}" for length in lengths[:4])
        more = ", …" if len(lengths) > len(lengths[:4]) else ""
        if len(replay) in self._by_length:
            return "names were not recorded at capture, and the order of its kinds of work differs"
        return f"no capture has its {len(replay):,} nodes (captures have {shown}{more})"


def _moved(found: Sequence[Int], first: int) -> Int:
    rows = np.concatenate(list(found))
    return np.where(rows == NO_PLACE, NO_PLACE, rows + first)
