"""Kernels of replayed graphs: templates out of a recording, and its replays explained by them.

What is found of the nodes is a row each of table `graph_nodes`; kernels name theirs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.categories import OTHER
from pyprof2.analysis.costs.attention import has_lengths_of_its_own
from pyprof2.analysis.costs.attribute import COUNTS, STATUSES, UNKNOWN, owned_work
from pyprof2.analysis.graphs.agreement import OTHER_SHAPES, Agreed, agreement
from pyprof2.analysis.graphs.captures import (
    Calls,
    captured_batch,
    find_captures,
    node_word,
    replayed_batch,
    with_warm_up_names,
)
from pyprof2.analysis.graphs.choice import Choice
from pyprof2.analysis.graphs.matching import BY_ORDER, Matcher, Replayed
from pyprof2.analysis.graphs.nodes import (
    CALLS,
    COPY_WORD,
    IDS,
    OP_NUMBERS,
    OP_TEXTS,
    Template,
    Templates,
)
from pyprof2.analysis.graphs.sequences import (
    UNKNOWN_WORD,
    group_equal,
    mixed,
    ordered_hashes,
)
from pyprof2.analysis.linking.kernels import LINKS
from pyprof2.analysis.linking.ops import DIRECTIONS
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import combine_keys, int_array, lookup, text_array
from pyprof2.recording import TextCodes, code_column, int_column
from pyprof2.signatures import Scalar, format_signature, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.assembly.linked import Linked, SharedFindings
    from pyprof2.analysis.graphs.choice import Chosen
    from pyprof2.analysis.graphs.matching import Match
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.kernels import LinkedActivities
    from pyprof2.columns import TextColumn
    from pyprof2.recording import Recording

_REPLAYS: Final = "GraphLaunch"
_LAUNCHED: Final = ("name", "kernel", "grid", "block")
_ACTIVE: Final = ("kernel", "kind", "grid", "block", "bytes", "stream")
_OWN_LENGTHS: Final = (
    "the lengths of its sequences are in a tensor: those of the capture are not the replay's"
)
_BY_ORDER: Final = "order only, names were not recorded at capture:"
_UNSURE_NODE: Final = "which of the graph's equal nodes it is cannot be told"
_NOTHING_KNOWN: Final = "one launch replays a whole graph: its ops ran when it was captured"


def has_replays(recording: Recording) -> bool:
    """Return whether graphs are replayed in a recording."""
    return any(_REPLAYS in name for name in recording.spool.texts["launches"]["name"])


def has_captures(recording: Recording) -> bool:
    """Return whether graphs are captured in a recording."""
    return any("StreamBeginCapture" in name for name in recording.spool.texts["launches"]["name"])


class _Work(NamedTuple):
    """Columns of launches or activities: their words, sizes, and whether they are copies."""

    word: TextColumn
    size: TextColumn
    is_copy: Bool


def _work_of(table: pa.Table, is_copy: Bool, nbytes: Int | None = None) -> _Work:
    """Return words and sizes of rows that have `kernel`, `grid` and `block`."""
    kernel, kernels = code_column(table, "kernel")
    words: list[str | None] = [node_word(text) for text in kernels]
    word = np.where(is_copy, len(words), kernel), [*words, COPY_WORD]
    grid, grids = code_column(table, "grid")
    block, blocks = code_column(table, "block")
    pair = np.where((grid < 0) | (block < 0) | is_copy, -1, grid * max(1, len(blocks)) + block)
    used, size = np.unique(pair, return_inverse=True)
    sizes: list[str | None] = [
        None if each < 0 else f"{grids[each // len(blocks)]} {blocks[each % len(blocks)]}"
        for each in used.tolist()
    ]
    if nbytes is not None:
        moved, at = np.unique(np.where(is_copy, nbytes, -1), return_inverse=True)
        size = np.where(is_copy, len(sizes) + at, size)
        sizes += [None if each < 0 else f"{each} B" for each in moved.tolist()]
    # A blit kernel is a copy by its word, and has the grid of a kernel.
    return _Work(word, (size.reshape(-1), sizes), is_copy)


class _OpFacts:
    """What is known of ops, for their nodes."""

    def __init__(self, recording: Recording, linked: Linked, shared: SharedFindings) -> None:
        self._linked, self._shared = linked, shared
        self._signatures = recording.signatures
        self._recording = recording

    def texts(self, op: Int) -> dict[str, TextColumn]:
        """Return the columns `OP_TEXTS` of ops by position, -1 for none."""
        linked, costs = self._linked, self._linked.costs
        own = lookup(costs.owner, op, -1)
        counted = np.where(own >= 0, own, op)
        estimate = lookup(costs.estimate, counted, -1)
        status = lookup(costs.status, counted, STATUSES.index("no_op"))
        note, notes = costs.note
        cut = self._has_lengths(own)
        category = lookup(costs.category, op, -1)
        by_estimate = costs.estimate_categories()
        categories = [*costs.categories, *by_estimate]
        category = np.where(
            category >= 0, category, np.where(estimate >= 0, len(costs.categories) + estimate, -1)
        )
        forward = lookup(linked.pairs.forward, op, -1)
        return {
            "op": (lookup(linked.ops.name, op, -1), linked.ops.names),
            "signature": self._signature(op),
            "stack": self._shared.stacks.lines_of(lookup(linked.stack, op, -1)),
            "direction": (lookup(linked.direction, op, -1), DIRECTIONS),
            "forward_op": (lookup(linked.ops.name, forward, -1), linked.ops.names),
            "params": (estimate, costs.texts("params")),
            "category": (category, [None if text == OTHER else text for text in categories]),
            "compute_dtype": (estimate, costs.texts("dtype")),
            "cost_status": (np.where(cut, STATUSES.index("no_shapes"), status), STATUSES),
            "cost_note": (
                np.where(cut, len(notes), lookup(note, counted, -1)), [*notes, _OWN_LENGTHS]
            ),
            **{
                name: (lookup(codes, op, -1), words)
                for name, (codes, words) in (
                    ("layer", linked.layer), ("source", linked.source),
                    ("library_source", linked.library_source),
                )
            },
        }  # fmt: skip

    def numbers(self, op: Int) -> dict[str, Int]:
        """Return the columns of numbers of ops by position, -1 for none."""
        linked, costs = self._linked, self._linked.costs
        work = owned_work(costs, op)
        own, cut = work.owner, self._has_lengths(work.owner)
        counts = {
            name: np.where(cut | (count == UNKNOWN), NO_ID, count)
            for name, count in work.totals.items()
        }
        sequence = lookup(linked.ops.sequence, lookup(linked.ops.marked, op, -1), -1)

        def numbered(at: Int) -> Int:
            return np.where(at >= 0, at + self._shared.first_op, NO_ID)

        return counts | {
            "recompute": np.where(op >= 0, lookup(linked.ops.recompute, op, 0), NO_ID),
            "is_nested": work.is_nested.astype(np.int64),
            "in_product": work.in_product.astype(np.int64),
            "op_id": numbered(op),
            "cost_op_id": numbered(own),
            "forward_op_id": numbered(lookup(linked.pairs.forward, op, -1)),
            "sequence_nr": np.where(sequence >= 0, sequence, NO_ID),
            "call": numbered(op),
            "cost_call": numbered(own),
        }

    def _signature(self, op: Int) -> TextColumn:
        """Return signatures with shapes and dtypes alone: numbers are those of the template."""
        signature = lookup(self._linked.signature, op, -1)
        used, code = np.unique(signature, return_inverse=True)
        texts: list[str | None] = []
        for number in used.tolist():
            if number < 0:
                texts.append(None)
                continue
            name, text, inputs, _ = self._signatures[number]
            parsed = parse_inputs(inputs)
            if any(isinstance(each, Scalar) for each in parsed):
                kept = tuple(None if isinstance(each, Scalar) else each for each in parsed)
                text = format_signature(replace(self._call(number), inputs=kept))
            texts.append(text if name else None)
        return code.reshape(-1), texts

    def _call(self, signature: int) -> Any:
        return self._shared.calls[signature]

    def _has_lengths(self, owner: Int) -> Bool:
        """Return of accounting ops whether their counts rest on lengths that are in a tensor."""
        costs = self._linked.costs
        is_attention = np.array([text == "attention" for text in costs.categories] or [False])
        category = lookup(costs.category, owner, -1)
        may_be = (category >= 0) & is_attention[category]
        signature = np.where(may_be, lookup(self._linked.signature, owner, -1), -1)
        used, at = np.unique(signature, return_inverse=True)
        found = [each >= 0 and has_lengths_of_its_own(self._call(each)) for each in used.tolist()]
        return np.array(found or [False])[at.reshape(-1)]


class _Replays(NamedTuple):
    """The replays in a window: rows of its activities, replay by replay, each stream by stream.

    Attributes:
        rows: positions of activities.
        first, length: where the rows of each replay are among these.
        launch: of each replay.
        word, size: of each row, as codes of the table of nodes.
        is_copy: of each row.
        stream: of each row, from 0 in order of their begin.
    """

    rows: Int
    first: Int
    length: Int
    launch: Int
    word: Int
    size: Int
    is_copy: Bool
    stream: Int

    def at(self, number: int) -> Replayed:
        """Return the nodes of one replay."""
        rows = slice(self.first[number], self.first[number] + self.length[number])
        stream, place = self.stream[rows], self.rows[rows]
        ends = np.flatnonzero(np.r_[stream[1:] != stream[:-1], True]) + 1
        order = np.empty(len(place), np.int64)
        order[np.argsort(place, kind="stable")] = np.arange(len(place))
        return Replayed(
            self.word[rows], self.size[rows], self.is_copy[rows].astype(np.int64), order,
            tuple(ends.tolist()),
        )  # fmt: skip


class _Explained(NamedTuple):
    """What was found of a replay: the first of its rows of `graph_nodes`, -1 for none.

    Attributes:
        is_known: of each node.
        link: as a code into `LINKS`.
        note: as a code.
    """

    first: int
    is_known: Bool
    link: int
    note: int


class GraphLinks:
    """Explains the replays of a recording, window by window; each has the captures before it.

    Attributes:
        facts: how many replays and kernels there are of each kind: nodes, link, note.
    """

    def __init__(self, recording: Recording, given: Sequence[Templates], rank: int | None) -> None:
        self._rank, self._file = rank, recording.trace["source"]
        self.templates = Templates()
        self.templates.extend(given)
        self.notes = TextCodes()
        self.facts: Counter[tuple[int, str, str]] = Counter()
        self._kernels: Counter[tuple[int, str, str]] = Counter()
        self._columns: dict[str, list[Int]] = {name: [] for name in _NODE_COLUMNS}
        self._files = TextCodes()
        self._count = 0
        self._turns = 0
        self._captures = 0
        self._known: dict[tuple[Any, ...], _Explained] = {}

    # ------------------------------------------------------------------ templates

    def learn(
        self, recording: Recording, linked: Linked, shared: SharedFindings, *, eager: bool = True
    ) -> None:
        """Take up the captures and the eager launches of a window of the recording itself."""
        launches, found = linked.launches, linked.activities
        if not len(launches.row):
            return
        table = recording.read("launches", _LAUNCHED, launches.row)
        name, names = code_column(table, "name")
        calls = Calls.of(name, names)
        has_work = np.zeros(len(launches.row), bool)
        has_work[found.launch[found.launch >= 0]] = True
        facts = _OpFacts(recording, linked, shared)
        captures = find_captures(launches, linked.threads, calls, has_work)
        if captures:
            self._add_captures(recording, linked, facts, captures, (table, calls, has_work))
        if eager:
            self._add_eager(recording, linked, facts)

    def _add_captures(
        self,
        recording: Recording,
        linked: Linked,
        facts: _OpFacts,
        captures: Sequence[Any],
        about: tuple[pa.Table, Calls, Bool],
    ) -> None:
        table, calls, has_work = about
        launches, nodes = linked.launches, self.templates.nodes
        work = _work_of(table, calls.is_copy)
        words = nodes.codes("kernel", work.word)
        if any((words[each.launches] == UNKNOWN_WORD).any() for each in captures):
            words = self._with_names(recording, linked, captures, words, (calls, table, has_work))
        rows = np.concatenate([each.launches for each in captures])
        op = launches.op[rows]
        known = nodes.words("kernel")
        first = nodes.append(
            len(rows),
            facts.texts(op)
            | {"kernel": (words[rows], known), "size": (work.size[0][rows], work.size[1])},
            facts.numbers(op) | {"is_copy": calls.is_copy[rows].astype(np.int64)},
        )
        paths = linked.paths
        last: tuple[int, int] | None = None
        for each in captures:
            path = int(linked.launch_ranges.path[each.begin])
            batch = captured_batch(paths[path]) if path >= 0 else None
            key = (int(launches.thread[each.begin]), path)
            if batch is not None and key != last:
                self._turns = 1 + max((t.turn for t in self.templates.each), default=-1)
            last = key if batch is not None else None
            self._captures += 1
            self.templates.each.append(
                Template(
                    first, first + len(each.launches), self._file, is_capture=True, own=True,
                    number=self._captures, rank=self._rank,
                    turn=self._turns if batch is not None else -1, batch=batch,
                )
            )  # fmt: skip
            first += len(each.launches)

    def _with_names(
        self,
        recording: Recording,
        linked: Linked,
        captures: Sequence[Any],
        words: Int,
        about: tuple[Calls, pa.Table, Bool],
    ) -> Int:
        """Return the words of launches, with those of a warm-up where captures lack them."""
        calls, table, has_work = about
        launches, found = linked.launches, linked.activities
        ran = self._words_of_work(recording, found)
        one = found.launch >= 0
        count = np.bincount(found.launch[one], minlength=len(words))
        of_work = np.full(len(words), UNKNOWN_WORD)
        of_work[found.launch[one]] = ran[one]
        eager = np.flatnonzero(
            (count == 1) & has_work & ~launches.is_graph & (calls.is_kernel | calls.is_copy)
        )
        op = lookup(linked.ops.name, launches.op, -1)
        keys = mixed(op, code_column(table, "name")[0], calls.is_copy.astype(np.int64))
        known = np.where(words == UNKNOWN_WORD, of_work, words)
        return with_warm_up_names(
            [each.launches for each in captures], keys.view(np.int64), eager, known
        )

    def _words_of_work(self, recording: Recording, found: LinkedActivities) -> Int:
        table = recording.read("activities", _ACTIVE, found.row)
        return self.templates.nodes.codes("kernel", _work_of(table, ~found.is_kernel).word)

    def _add_eager(self, recording: Recording, linked: Linked, facts: _OpFacts) -> None:
        """Take up what ran outside of graphs, process by process, in the order of its launches."""
        launches, found = linked.launches, linked.activities
        is_eager = (found.launch >= 0) & ~launches.is_graph[np.maximum(found.launch, 0)]
        rows = np.flatnonzero(is_eager)
        rows = rows[np.argsort(found.launch[rows], kind="stable")]
        process = linked.threads.process(launches.thread[found.launch[rows]])
        for number in np.unique(process).tolist():
            own = rows[process == number]
            table = recording.read("activities", _ACTIVE, found.row[own])
            work = _work_of(table, ~found.is_kernel[own], int_column(table, "bytes", -1))
            op = found.op[own]
            first = self.templates.nodes.append(
                len(own),
                facts.texts(op) | {"kernel": work.word, "size": work.size},
                facts.numbers(op)
                | {
                    "is_copy": work.is_copy.astype(np.int64),
                    "stream": int_column(table, "stream", NO_ID),
                },
            )
            self.templates.each.append(
                Template(
                    first, first + len(own), self._file, is_capture=False, own=True, rank=self._rank
                )
            )

    # ------------------------------------------------------------------ replays

    def linked(self, recording: Recording, linked: Linked, shared: SharedFindings) -> Linked:
        """Return what is linked of a window, with what is found of its replays."""
        self.learn(recording, linked, shared)
        found = self._explain(recording, linked, shared)
        return replace(linked, activities=found, graphs=self)

    def _explain(
        self, recording: Recording, linked: Linked, shared: SharedFindings
    ) -> LinkedActivities:
        """Return the activities of a window, those of replays with what was found of them."""
        found = linked.activities
        replays = self._replays(recording, linked)
        if not len(replays.first):
            return found
        hashes = ordered_hashes(
            mixed(replays.word, replays.size, replays.stream), replays.first, replays.length
        )
        groups = group_equal(hashes, replays.length)
        distinct = [replays.at(number) for number in groups.first.tolist()]
        matches = Matcher(self.templates).match(distinct)
        choice = Choice(self.templates, distinct, matches, self._rank)
        batch = self._batches(linked, replays.launch)
        process = linked.threads.process(linked.launches.thread[replays.launch])
        chosen: list[Chosen | None] = [None] * len(replays.first)
        for number in np.unique(process).tolist():
            own = np.flatnonzero(process == number)
            left = choice.choose(groups.which[own], [batch[at] for at in own.tolist()])
            for at, each in zip(own.tolist(), left, strict=True):
                chosen[at] = each
        known: dict[tuple[int, Chosen], _Explained] = {}
        explained = []
        for which, each in zip(groups.which.tolist(), chosen, strict=True):
            assert each is not None  # noqa: S101 - each is of some process
            if (which, each) not in known:
                known[which, each] = self._explained(
                    distinct[which], matches[which], each, choice.reasons[which], shared
                )
            explained.append(known[which, each])
        return self._spread(found, replays, explained)

    def _replays(self, recording: Recording, linked: Linked) -> _Replays:
        launches, found = linked.launches, linked.activities
        rows = np.empty(0, np.int64)
        if len(launches.is_graph):
            is_replayed = (found.launch >= 0) & launches.is_graph[found.launch]
            rows = np.flatnonzero(is_replayed & ~found.is_whole_graph)
        rows = rows[np.argsort(found.launch[rows], kind="stable")]
        table = recording.read("activities", _ACTIVE, found.row[rows])
        stream = int_column(table, "stream", NO_ID)
        launch = found.launch[rows]
        if len(rows) and stream.min() != stream.max():
            key = combine_keys(launch, stream)
            _, begin, which = np.unique(key, return_index=True, return_inverse=True)
            order = np.argsort(begin[which], kind="stable")
            rows, stream, table = rows[order], begin[which][order], table.take(order)
        else:
            stream = np.zeros(len(rows), np.int64)
        first = np.flatnonzero(np.r_[True, launch[1:] != launch[:-1]][: len(launch)])
        length = np.diff(np.r_[first, len(rows)])
        new = np.r_[False, stream[1:] != stream[:-1]][: len(stream)]
        new[first] = False
        count = np.cumsum(new)
        work = _work_of(table, ~found.is_kernel[rows], int_column(table, "bytes", -1))
        nodes = self.templates.nodes
        return _Replays(
            rows, first, length, launch[first], nodes.codes("kernel", work.word),
            nodes.codes("size", work.size), work.is_copy, count - np.repeat(count[first], length),
        )  # fmt: skip

    @staticmethod
    def _batches(linked: Linked, launch: Int) -> list[int | None]:
        """Return the size of the batch that the ranges around each launch say."""
        path = linked.launch_ranges.path[launch]
        steps, thread = linked.steps, linked.launches.thread[launch]
        step = lookup(steps.name, steps.nest().innermost(thread, linked.launches.start[launch]), -1)
        said: dict[tuple[int, int], int | None] = {}
        for own, name in dict.fromkeys(zip(path.tolist(), step.tolist(), strict=True)):
            texts = [linked.paths[own] if own >= 0 else "", steps.names[name] if name >= 0 else ""]
            said[own, name] = replayed_batch(" / ".join(texts))
        return [said[each] for each in zip(path.tolist(), step.tolist(), strict=True)]

    def _explained(
        self,
        replay: Replayed,
        match: Match,
        chosen: Chosen,
        reason: str,
        shared: SharedFindings,
    ) -> _Explained:
        if not chosen.candidates:
            nothing = np.zeros(len(replay), bool)
            note = self.notes[reason or _NOTHING_KNOWN]
            return _Explained(-1, nothing, LINKS.index("graph"), note)
        candidates = [match.candidates[at] for at in chosen.candidates]
        agreed = agreement(self.templates.nodes, replay, candidates, chosen.batch_agrees)
        note = self._note(agreed)
        first = self._add_rows(replay, agreed, shared)
        return _Explained(first, agreed.is_known, LINKS.index(candidates[0].link), self.notes[note])

    def _note(self, agreed: Agreed) -> str:
        """Return how the nodes of a replay were found, in words."""
        used = agreed.used
        template, lost = used[0].template, used[0].lost
        known, count = int(agreed.is_known.sum()), len(agreed.is_known)
        files = ", ".join(sorted({each.template.file for each in used}))
        if not template.is_capture:
            what = "launches outside of graphs"
        elif len(used) == 1:
            of = self._captures_in(template.file)
            what = f"capture {template.number} of {of}"
        else:
            of = sum(self._captures_in(file) for file in {e.template.file for e in used})
            what = f"{len(used)} of {of} captures, as far as they agree,"
        how = _BY_ORDER if used[0].link == BY_ORDER else "names and order of"
        text = f"{how} {what} in {files}, {known:,} of {count:,} nodes"
        if lost:
            text += f"; the recording lacks {lost} node{'s' * (lost > 1)} of the graph"
        if template.rank is not None and template.rank != self._rank:
            text += f"; capture of rank {template.rank}"
        if not agreed.has_shapes:
            text += "; its shapes may be others"
        return text

    def _captures_in(self, file: str) -> int:
        return sum(each.is_capture and each.file == file for each in self.templates.each)

    def _add_rows(self, replay: Replayed, agreed: Agreed, shared: SharedFindings) -> int:
        """Append what was found to `graph_nodes`; return the number of the first row."""
        first, count = self._count, len(replay)
        columns = dict(agreed.columns)
        for name in CALLS:
            columns[name] = np.where(columns[name] == NO_ID, NO_ID, columns[name] + first)
        for name in IDS[:3]:
            own = columns[name] != NO_ID
            columns[name] = np.where(own, columns[name] - shared.first_op, NO_ID)
        stacks = self.templates.nodes.words("stack")
        stack = shared.stacks.of_texts((columns.pop("stack"), stacks))
        columns["stack_id"] = np.where(stack >= 0, stack, NO_ID)
        if not agreed.has_shapes:
            columns |= self._without_shapes(columns)
        templates = [each.template for each in agreed.used]
        alone = templates[0] if len(templates) == 1 else None
        rows = agreed.used[0].rows
        node = np.where(agreed.is_known, rows - templates[0].first, NO_ID)
        files = {each.file for each in templates}
        columns |= {
            "kernel": replay.words,
            "file": np.full(count, self._files[files.pop()] if len(files) == 1 else -1),
            "capture": np.full(
                count, alone.number if alone is not None and alone.is_capture else NO_ID
            ),
            "node": node,
            "candidates": np.full(count, len(templates)),
            "sizes_equal": np.full(count, agreed.sizes[0]),
            "sizes_known": np.full(count, agreed.sizes[1]),
        }
        for name in _NODE_COLUMNS:
            self._columns[name].append(columns[name])
        self._count += count
        return first

    def _without_shapes(self, columns: dict[str, Int]) -> dict[str, Int]:
        """Return status and note of nodes whose shapes are not known to be the template's."""
        texts = self.templates.nodes.texts
        status, note = texts["cost_status"], texts["cost_note"]
        lacks = np.isin(
            columns["cost_status"],
            [status.get(word, -2) for word in ("ok", "assumed", "no_shapes")],
        )
        return {
            "cost_status": np.where(lacks, status["no_shapes"], columns["cost_status"]),
            "cost_note": np.where(lacks, note[OTHER_SHAPES], columns["cost_note"]),
        }

    def _spread(
        self, found: LinkedActivities, replays: _Replays, explained: Sequence[_Explained]
    ) -> LinkedActivities:
        """Return the activities with what was found of the replays that they are of."""
        first, link, note = (
            np.array([getattr(each, name) for each in explained], np.int64)
            for name in ("first", "link", "note")
        )
        known = np.concatenate([each.is_known for each in explained])
        length = replays.length
        place = np.arange(len(replays.rows)) - np.repeat(replays.first, length)
        node = np.where(known, np.repeat(first, length) + place, -1)
        links, notes = np.repeat(link, length), np.repeat(note, length)
        unsure = ~known & (np.repeat(first, length) >= 0)
        links[unsure], notes[unsure] = LINKS.index("graph"), self.notes[_UNSURE_NODE]
        self._count_facts(length, link, note, known)
        columns = {}
        for name, values, default in (
            ("node", node, found.node), ("link", links, found.link),
            ("replay_note", notes, found.replay_note),
        ):  # fmt: skip
            column = default.astype(np.int64)
            column[replays.rows] = values
            columns[name] = column
        for name, called in zip(CALLS, ("call", "cost_call"), strict=True):
            call = lookup(self.numbers(name), node, NO_ID)
            has = call != NO_ID
            launch = np.repeat(replays.launch, length)
            ids = np.full(len(found), -1, np.int64)
            rows = replays.rows[has]
            key = combine_keys(launch[has], call[has])
            least = np.full(int(key.max(initial=-1)) + 1, len(found))
            np.minimum.at(least, key, rows)
            ids[rows] = least[key]
            columns[called] = ids
        return replace(found, **columns)

    def _count_facts(self, length: Int, link: Int, note: Int, known: Bool) -> None:
        words = list(self.notes)
        kinds, at, counts = np.unique(
            np.stack((length, link, note)), axis=1, return_inverse=True, return_counts=True
        )
        explained = np.bincount(
            at.reshape(-1), np.add.reduceat(known, np.cumsum(np.r_[0, length[:-1]])), len(counts)
        )
        for (nodes, code, text), count, nodes_known in zip(
            kinds.T.tolist(), counts.tolist(), explained.tolist(), strict=True
        ):
            key = (nodes, LINKS[code], words[text])
            self.facts[key] += count
            self._kernels[key] += int(nodes_known)

    def found(self) -> list[dict[str, Any]]:
        """Return what the manifest says of the replays, by nodes, link and note."""
        return [
            {"nodes": nodes, "link": link, "note": note, "replays": count,
             "linked": self._kernels[nodes, link, note]}
            for (nodes, link, note), count in sorted(self.facts.items())
        ]  # fmt: skip

    # ------------------------------------------------------------------ columns

    def text(self, name: str, node: Int) -> TextColumn:
        """Return a column of text of nodes by row of `graph_nodes`, -1 for none."""
        words = self._files if name == "file" else self.templates.nodes.texts[name]
        return lookup(self.numbers(name), node, -1), list(words)

    def number(self, name: str, node: Int) -> Int:
        """Return a column of numbers of nodes by row of `graph_nodes`; `NO_ID` for null."""
        return lookup(self.numbers(name), node, NO_ID)

    def numbers(self, name: str) -> Int:
        """Return a column of all rows of `graph_nodes`, texts as codes; `NO_ID` for null."""
        parts = self._columns[name]
        if len(parts) != 1:
            parts[:] = [np.concatenate(parts)] if parts else [np.empty(0, np.int64)]
        return parts[0]

    def table(self) -> pa.Table:
        """Return the canonical table `graph_nodes`, without the column `rank`."""
        every = np.arange(self._count)
        columns: dict[str, Any] = {"graph_node": pa.array(every)}
        for name in ("file", *(name for name in ("kernel", *OP_TEXTS) if name != "stack")):
            columns[name] = text_array(self.text(name, every))
        for name in _NODE_NUMBERS:
            columns[name] = int_array(self.numbers(name), NO_ID)
        for name, called in (("call", "call_node"), ("cost_call", "cost_call_node")):
            columns[called] = int_array(self.numbers(name), NO_ID)
        recompute = self.numbers("recompute")
        columns["recompute"] = pa.array(recompute > 0, mask=recompute == NO_ID)
        columns["stack_id"] = int_array(self.numbers("stack_id"), NO_ID)
        return pa.table(columns)


_NODE_NUMBERS: Final = (
    "capture", "node", "candidates", "sizes_equal", "sizes_known", *COUNTS, "recorded_id",
)  # fmt: skip
_NODE_COLUMNS: Final = (
    "kernel", "file", "stack_id", *(name for name in OP_TEXTS if name != "stack"), *OP_NUMBERS,
    *IDS, *CALLS, *(name for name in _NODE_NUMBERS if name not in OP_NUMBERS),
)  # fmt: skip
