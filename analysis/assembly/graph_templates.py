"""Templates out of a recording: its captures and its eager launches, with what is known of each."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.analysis.categories import OTHER
from pyprof2.analysis.costs.attention import has_lengths_of_its_own
from pyprof2.analysis.costs.attribute import STATUSES, UNKNOWN, owned_work
from pyprof2.analysis.graphs.captures import (
    Calls,
    captured_batch,
    find_captures,
    node_word,
    with_warm_up_names,
)
from pyprof2.analysis.graphs.created_nodes import CreatedNodes
from pyprof2.analysis.graphs.nodes import COPY_WORD, Template, Templates
from pyprof2.analysis.graphs.sequences import UNKNOWN_WORD, mixed
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import lookup
from pyprof2.recording import code_column, int_column
from pyprof2.signatures import DIRECTIONS, Scalar, format_signature, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from pyprof2.analysis.assembly.linked import Linked, SharedFindings
    from pyprof2.analysis.graphs.captures import CapturedGraph
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.columns import TextColumn
    from pyprof2.recording import Recording

_LAUNCHED: Final = ("name", "kernel", "grid", "block")
ACTIVE: Final = ("kernel", "kind", "grid", "block", "bytes", "stream")
"""The columns of activities that words and sizes of nodes are made of."""
_OWN_LENGTHS: Final = (
    "the lengths of its sequences are in a tensor: those of the capture are not the replay's"
)


def has_replays(recording: Recording) -> bool:
    """Return whether graphs are replayed in a recording."""
    return any("GraphLaunch" in name for name in recording.spool.texts["launches"]["name"])


class NodeWork(NamedTuple):
    """Columns of launches or activities: words, sizes, and 1 of copies, 2 of fills, else 0."""

    word: TextColumn
    size: TextColumn
    is_copy: Int


def work_of(table: pa.Table, is_copy: Bool, nbytes: Int | None = None) -> NodeWork:
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
    name, names = code_column(table, "kind" if "kind" in table.column_names else "name")
    fills = np.array([*("memset" in (text or "").lower() for text in names), False])[name]
    # A blit kernel is a copy by its word, and has the grid of a kernel.
    return NodeWork(word, (size.reshape(-1), sizes), is_copy.astype(np.int64) * (1 + fills))


class _OpFacts:
    """The facts about ops that their nodes have."""

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


class TemplateFinder:
    """Finds the captures and the eager launches in a recording, window by window.

    Attributes:
        templates: those found, and others.
        file: the name of the recording.
    """

    def __init__(self, recording: Recording, rank: int | None) -> None:
        self.templates = Templates()
        self._rank, self.file = rank, recording.trace["source"]
        self._turns = 0
        self._captures = 0
        self._created: list[CreatedNodes] = []

    def learn(
        self, recording: Recording, linked: Linked, shared: SharedFindings, *, eager: bool = True
    ) -> None:
        """Take up the captures and the eager launches of a window of the recording itself."""
        launches, found = linked.launches, linked.activities
        if not len(launches.row):
            return
        if recording.spool.counts["created_nodes"]:
            self._add_created(recording, linked, shared)
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

    def _add_created(self, recording: Recording, linked: Linked, shared: SharedFindings) -> None:
        """Take up when nodes were made: in the op around that moment they were captured."""
        table = recording.read("created_nodes")
        time = int_column(table, "time_ns", 0)
        op = linked.ops.nest.innermost(linked.threads.number(table), time)
        node, original = (int_column(table, name, NO_ID) for name in ("node_id", "original_id"))
        facts = _OpFacts(recording, linked, shared)
        numbers = facts.numbers(op) | {"recorded_id": node}
        first = self.templates.nodes.append(len(op), facts.texts(op), numbers)
        row = np.arange(first, first + len(op))
        self._created.append(CreatedNodes(int_column(table, "pid", NO_ID), node, original, row))

    def identified(self, pid: Int, node_id: Int) -> Int:
        """Return of nodes by process and recorded id the rows of their originals; -1: not known."""
        if not self._created:
            return np.full(len(node_id), -1)
        columns = zip(*self._created, strict=True)
        return CreatedNodes(*(np.concatenate(each) for each in columns)).originals(pid, node_id)

    def _add_captures(
        self,
        recording: Recording,
        linked: Linked,
        facts: _OpFacts,
        captures: Sequence[CapturedGraph],
        about: tuple[pa.Table, Calls, Bool],
    ) -> None:
        table, calls, has_work = about
        launches, nodes = linked.launches, self.templates.nodes
        work = work_of(table, calls.is_copy)
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
            facts.numbers(op) | {"is_copy": work.is_copy[rows]},
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
                    first, first + len(each.launches), self.file, is_capture=True, own=True,
                    number=self._captures, rank=self._rank,
                    turn=self._turns if batch is not None else -1, batch=batch,
                )
            )  # fmt: skip
            first += len(each.launches)

    def _with_names(
        self,
        recording: Recording,
        linked: Linked,
        captures: Sequence[CapturedGraph],
        words: Int,
        about: tuple[Calls, pa.Table, Bool],
    ) -> Int:
        """Return the words of launches, with those of a warm-up where captures lack them."""
        calls, table, has_work = about
        launches, found = linked.launches, linked.activities
        active = recording.read("activities", ACTIVE, found.row)
        ran = self.templates.nodes.codes("kernel", work_of(active, ~found.is_kernel).word)
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

    def _add_eager(self, recording: Recording, linked: Linked, facts: _OpFacts) -> None:
        """Take up what ran outside of graphs, process by process, in the order of its launches."""
        launches, found = linked.launches, linked.activities
        is_eager = (found.launch >= 0) & ~launches.is_graph[np.maximum(found.launch, 0)]
        rows = np.flatnonzero(is_eager)
        rows = rows[np.argsort(found.launch[rows], kind="stable")]
        process = linked.threads.process(launches.thread[found.launch[rows]])
        for number in np.unique(process).tolist():
            own = rows[process == number]
            table = recording.read("activities", ACTIVE, found.row[own])
            work = work_of(table, ~found.is_kernel[own], int_column(table, "bytes", -1))
            op = found.op[own]
            first = self.templates.nodes.append(
                len(own),
                facts.texts(op) | {"kernel": work.word, "size": work.size},
                facts.numbers(op)
                | {
                    "is_copy": work.is_copy,
                    "stream": int_column(table, "stream", NO_ID),
                },
            )
            self.templates.each.append(
                Template(
                    first, first + len(own), self.file, is_capture=False, own=True, rank=self._rank
                )
            )
