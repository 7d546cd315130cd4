"""The replays of graphs in a recording, explained by captures and eager launches.

What is found of the nodes is a row each of table `graph_nodes`; kernels name theirs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.assembly.graph_templates import ACTIVE, TemplateFinder, work_of
from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.costs.attribute import COUNTS, UNKNOWN, count_of
from pyprof2.analysis.graphs.agreement import OTHER_SHAPES, Agreed, agreement, first_of_call
from pyprof2.analysis.graphs.captures import (
    replayed_batch,
)
from pyprof2.analysis.graphs.choice import Choice
from pyprof2.analysis.graphs.matching import BY_NAMES, BY_ORDER, Matcher, ReplayedGraph
from pyprof2.analysis.graphs.nodes import (
    CALLS,
    COPY_WORD,
    IDS,
    OP_IDS,
    OP_NUMBERS,
    OP_TEXTS,
    Templates,
)
from pyprof2.analysis.graphs.sequences import (
    NO_PLACE,
    group_equal,
    mixed,
    ordered_hashes,
)
from pyprof2.analysis.linking.kernels import LINKS
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.columns import combine_keys, int_array, lookup, text_array
from pyprof2.recording import TextCodes, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.assembly.linked import Linked, ReplaysOfCode, SharedFindings
    from pyprof2.analysis.graphs.choice import Chosen
    from pyprof2.analysis.graphs.matching import Fit
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.linking.kernels import LinkedActivities
    from pyprof2.columns import TextColumn
    from pyprof2.recording import Recording

_BY_ORDER: Final = "order only, names were not recorded at capture:"
_BY_ID: Final = "the id of the node leads to the launch that was captured"
_SEVERAL_STREAMS: Final = "the order of kernels on several streams is not that of the code"
_UNSURE_NODE: Final = "which of the graph's equal nodes it is is not known"
_UNSURE_KIND: Final = "order only, and neither its kind of work nor a call like it is a witness"
_NOTHING_KNOWN: Final = "one launch replays a whole graph: its ops ran when it was captured"


class _Replays(NamedTuple):
    """The replays in a window: rows of its activities, replay by replay, each stream by stream.

    Attributes:
        rows: positions of activities.
        first, length: where the rows of each replay are among these.
        launch: of each replay.
        word, size: of each row, as codes of the table of nodes.
        is_copy: of each row: 1 of a copy, 2 of a fill.
        stream: of each row, from 0 in order of their begin.
        node_id: of each row, the number of its node in its graph, from 1; 0: not recorded.
    """

    rows: Int
    first: Int
    length: Int
    launch: Int
    word: Int
    size: Int
    is_copy: Int
    stream: Int
    node_id: Int

    def at(self, number: int) -> ReplayedGraph:
        """Return the nodes of one replay."""
        rows = slice(self.first[number], self.first[number] + self.length[number])
        stream, place = self.stream[rows], self.rows[rows]
        ends = np.flatnonzero(np.r_[stream[1:] != stream[:-1], True]) + 1
        order = np.empty(len(place), np.int64)
        order[np.argsort(place, kind="stable")] = np.arange(len(place))
        ids = self.node_id[rows]
        by_id = np.argsort(ids, kind="stable")
        grows = np.diff(ids) > 0
        grows[ends[:-1] - 1] = True
        if (ids <= 0).any() or not grows.all() or (np.diff(ids[by_id]) == 0).any():
            by_id = by_id[:0]
        return ReplayedGraph(
            self.word[rows], self.size[rows], self.is_copy[rows], order, by_id,
            tuple(ends.tolist()),
        )  # fmt: skip


class _Explained(NamedTuple):
    """The findings on a replay: the first of its rows of `graph_nodes`, -1 for none.

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
        self._rank = rank
        self._finder = TemplateFinder(recording, rank)
        self.templates = self._finder.templates
        self.templates.extend(given)
        self.notes = TextCodes()
        self.facts: Counter[tuple[int, str, str]] = Counter()
        self._kernels: Counter[tuple[int, str, str]] = Counter()
        self._columns: dict[str, list[Int]] = {name: [] for name in _NODE_COLUMNS}
        self._files = TextCodes()
        self._count = self._first_op = 0
        # Rows of `graph_nodes` by replay and templates: other windows have the same replays.
        self._firsts: dict[tuple[Any, ...], int] = {}
        self.owners: list[Any] = []

    def linked(self, recording: Recording, linked: Linked, shared: SharedFindings) -> Linked:
        """Return what is linked of a window, with what is found of its replays."""
        self._first_op = shared.first_op
        self._finder.learn(recording, linked, shared)
        found = self._explain(recording, linked, shared)
        return replace(linked, activities=found, graphs=self)

    def _explain(
        self, recording: Recording, linked: Linked, shared: SharedFindings
    ) -> LinkedActivities:
        """Return the activities of a window, those of replays with what was found of them."""
        found = self._identified(recording, linked, shared)
        replays = self._replays(recording, found, linked)
        if not len(replays.first):
            return found
        hashes = ordered_hashes(
            mixed(replays.word, replays.size, replays.stream, replays.node_id, replays.is_copy),
            replays.first,
            replays.length,
        )
        groups = group_equal(hashes, replays.length)
        distinct = [replays.at(number) for number in groups.first.tolist()]
        matches = Matcher(self.templates).match(distinct)
        counts = np.bincount(groups.which)
        choice = Choice(self.templates, distinct, matches, counts, self._rank)
        batch = self._batches(linked, replays.launch)
        process = linked.threads.process(linked.launches.thread[replays.launch])
        chosen: dict[int, Chosen] = {}
        for number in np.unique(process).tolist():
            own = np.flatnonzero(process == number)
            left = choice.choose(groups.which[own], [batch[at] for at in own.tolist()])
            chosen |= zip(own.tolist(), left, strict=True)
        known: dict[Any, _Explained] = {}
        explained = []
        code = None if linked.compiled is None else linked.compiled.replays
        for at, which in enumerate(groups.which.tolist()):
            each, launch = chosen[at], int(replays.launch[at])
            kind = None if code is None else code.kind(launch)
            key = (which, each, kind)
            if key not in known and code is not None and kind is not None:
                known[key] = self._by_code(distinct[which], code, launch, shared)
            if key not in known or (known[key].first < 0 and each.candidates):
                fits = [choice.fit(which, place) for place in each.candidates]
                known[key] = self._explained(
                    distinct[which], fits, each, choice.reasons[which],
                    int(hashes[groups.first[which]]), shared,
                )  # fmt: skip
            explained.append(known[key])
        return self._spread(found, replays, explained)

    def _identified(
        self, recording: Recording, linked: Linked, shared: SharedFindings
    ) -> LinkedActivities:
        """Return the activities, those with what is known by the ids of their nodes."""
        found = linked.activities
        if not recording.spool.counts["created_nodes"]:
            return found
        table = recording.read("activities", ["graph_node_id"], found.row)
        pid = linked.threads.pid(lookup(linked.launches.thread, found.launch, 0))
        ids = int_column(table, "graph_node_id", NO_ID)
        known = self._finder.identified(pid, np.where(ids > 0, ids, NO_ID))
        rows = np.flatnonzero((known >= 0) & (found.launch >= 0))
        used, at = np.unique(known[rows], return_inverse=True)
        count, nodes = len(used), self.templates.nodes
        if not count:
            return found
        columns = {
            name: nodes.at(name, used)
            for name in (*OP_TEXTS, *OP_NUMBERS, *IDS, "recorded_id", "kernel")
        }
        for name in CALLS:
            columns[name] = first_of_call(nodes.at(name, used), np.ones(count, bool))
        columns |= {
            "candidates": np.ones(count, np.int64),
            "file": np.full(count, self._files[self._finder.file]),
            **dict.fromkeys(("capture", "node", "lost_after"), np.full(count, NO_ID)),
            **dict.fromkeys(("sizes_equal", "sizes_known"), np.zeros(count, np.int64)),
        }
        node = self._append(columns, count, shared) + at.reshape(-1)
        link, note = LINKS.index("graph_id"), self.notes[_BY_ID]
        length = np.bincount(found.launch[rows])
        sizes, times = np.unique(length[length > 0], return_counts=True)
        for size, replays in zip(sizes.tolist(), times.tolist(), strict=True):
            self.facts[size, "graph_id", _BY_ID] += replays
            self._kernels[size, "graph_id", _BY_ID] += size * replays
        return self._with_nodes(
            found, rows, node, np.full(len(rows), link), np.full(len(rows), note)
        )

    def _replays(self, recording: Recording, found: LinkedActivities, linked: Linked) -> _Replays:
        launches = linked.launches
        rows = np.empty(0, np.int64)
        if len(launches.is_graph):
            is_replayed = (found.launch >= 0) & launches.is_graph[found.launch]
            # No other evidence is looked at for a replay with ids of nodes.
            has_ids = np.zeros(len(launches.is_graph), bool)
            has_ids[found.launch[found.node >= 0]] = True
            is_replayed &= ~has_ids[found.launch]
            rows = np.flatnonzero(is_replayed & ~found.is_whole_graph)
        rows = rows[np.argsort(found.launch[rows], kind="stable")]
        table = recording.read("activities", (*ACTIVE, "graph_node_id"), found.row[rows])
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
        work = work_of(table, ~found.is_kernel[rows], int_column(table, "bytes", -1))
        nodes = self.templates.nodes
        # The number of the graph, above that of the node in it, is another one for each executable;
        # 0: no id is recorded.
        node_id = int_column(table, "graph_node_id", 0)
        return _Replays(
            rows, first, length, launch[first], nodes.codes("kernel", work.word),
            nodes.codes("size", work.size), work.is_copy, count - np.repeat(count[first], length),
            np.where(node_id > 0, (node_id & 0xFFFF_FFFF) + 1, 0),
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
        replay: ReplayedGraph,
        candidates: Sequence[Fit],
        chosen: Chosen,
        reason: str,
        replay_hash: int,
        shared: SharedFindings,
    ) -> _Explained:
        if not candidates:
            nothing = np.zeros(len(replay), bool)
            why = self.notes[reason or _NOTHING_KNOWN]
            return _Explained(-1, nothing, LINKS.index("graph"), why)
        agreed = agreement(self.templates.nodes, replay, candidates, chosen.batch_agrees)
        note = self._note(agreed)
        same = (replay_hash, note, *((e.template.first, e.rows.tobytes()) for e in agreed.used))
        if same not in self._firsts:
            self._firsts[same] = self._add_rows(replay, agreed, shared)
        first = self._firsts[same]
        return _Explained(first, agreed.is_known, LINKS.index(candidates[0].link), self.notes[note])

    def _by_code(
        self, replay: ReplayedGraph, code: ReplaysOfCode, launch: int, shared: SharedFindings
    ) -> _Explained:
        """Return what the code of the compiled graph says whose call replays a graph."""
        nothing = np.zeros(len(replay), bool)
        words = self.templates.nodes.words("kernel")
        by_time = np.argsort(replay.order, kind="stable")
        names = ["" if words[word] == COPY_WORD else words[word] for word in replay.words[by_time]]
        found = _SEVERAL_STREAMS if len(replay.ends) > 1 else code.explain(launch, tuple(names))
        if isinstance(found, str):
            return _Explained(-1, nothing, LINKS.index("graph"), self.notes[found])
        owned = [found[at] for at in np.argsort(by_time, kind="stable").tolist()]
        known = sum(bool(each.parts) for each in owned)
        note = f"{code.note(launch)}, {known:,} of {len(replay):,} nodes"
        first = self._add_owned(replay, owned, shared)
        return _Explained(first, ~nothing, LINKS.index(BY_NAMES), self.notes[note])

    def _add_owned(
        self, replay: ReplayedGraph, owned: Sequence[Any], shared: SharedFindings
    ) -> int:
        """Append what is known of the kernels of a replay; return the number of the first row."""
        count, nodes = len(replay), self.templates.nodes
        costs = [each.estimate for each in owned]

        said: dict[str, list[str | None]] = {
            name: [each.owner(name) for each in owned] for name in ("op", "layer", "source")
        }
        # As of a launch: of a kernel whose ops are not known the name stays.
        words = [nodes.words("kernel")[word] for word in replay.words.tolist()]
        said["op"] = [
            word if each.parts and not each.all("op") else op
            for op, word, each in zip(said["op"], words, owned, strict=True)
        ]
        said |= {
            "library_source": said["source"],
            "direction": [
                DIRECTIONS[each.direction] if each.direction >= 0 else None for each in owned
            ],
            "params": [each and each.cost and (each.cost.params or None) for each in costs],
            "category": [(each and each.category) or None for each in costs],
            "compute_dtype": [each and each.cost and each.cost.dtype for each in costs],
            "cost_status": [
                each.status if each else "no_formula" if own.parts else None
                for own, each in zip(owned, costs, strict=True)
            ],
            "cost_note": [each and each.note for each in costs],
        }
        every = np.arange(count)
        columns = {
            name: nodes.codes(name, (every, said.get(name, [None] * count))) for name in OP_TEXTS
        }
        for name in COUNTS:
            counts = [None if e is None or e.cost is None else count_of(e, name) for e in costs]
            columns[name] = np.array([NO_ID if c in (None, UNKNOWN) else c for c in counts])
        again = [NO_ID if each.recompute < 0 else each.recompute for each in owned]
        products = [each is not None and each.category in MATRIX_WORK for each in costs]
        codes = np.arange(len(self.owners), len(self.owners) + count)
        self.owners += owned
        # Several kernels of one launch, or of several that cannot be distinguished, share the work.
        begun: dict[int, int] = {}
        call = np.array([
            begun.setdefault(id(each), at) if each.estimate and each.estimate.cost else at
            for at, each in enumerate(owned)
        ])  # fmt: skip
        columns |= {
            "kernel": replay.words,
            "recompute": np.array(again),
            "is_nested": np.zeros(count, np.int64),
            "in_product": np.array(products, np.int64),
            "owned": codes,
            "candidates": np.ones(count, np.int64),
            "file": np.full(count, self._files[self._finder.file]),
            **dict.fromkeys(
                (*IDS, "capture", "node", "lost_after", "recorded_id"), np.full(count, NO_ID)
            ),
            **dict.fromkeys(("sizes_equal", "sizes_known"), np.zeros(count, np.int64)),
            **dict.fromkeys(CALLS, call),
        }
        return self._append(columns, count, shared)

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

    def _add_rows(self, replay: ReplayedGraph, agreed: Agreed, shared: SharedFindings) -> int:
        """Append what was found to `graph_nodes`; return the number of the first row."""
        count, columns = len(replay), dict(agreed.columns)
        if not agreed.has_shapes:
            # The counts that there would be, if the shapes were known.
            texts = self.templates.nodes.texts
            status, note = texts["cost_status"], texts["cost_note"]
            without = [status.get(word, -2) for word in ("ok", "assumed", "no_shapes")]
            lacks = np.isin(columns["cost_status"], without)
            for name, code in (
                ("cost_status", status["no_shapes"]), ("cost_note", note[OTHER_SHAPES]),
            ):  # fmt: skip
                columns[name] = np.where(lacks, code, columns[name])
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
            "lost_after": _lost_after(agreed),
            "candidates": np.full(count, len(templates)),
            "sizes_equal": np.full(count, agreed.sizes[0]),
            "sizes_known": np.full(count, agreed.sizes[1]),
        }
        return self._append(columns, count, shared)

    def _append(self, columns: dict[str, Int], count: int, shared: SharedFindings) -> int:
        """Append rows to `graph_nodes`, whose calls name rows among these; return the first."""
        first = self._count
        for name in CALLS:
            columns[name] = np.where(columns[name] == NO_ID, NO_ID, columns[name] + first)
        columns.setdefault("owned", np.full(count, NO_ID))
        stacks = self.templates.nodes.words("stack")
        stack = shared.stacks.of_texts((columns.pop("stack"), stacks))
        columns["stack_id"] = np.where(stack >= 0, stack, NO_ID)
        for name in _NODE_COLUMNS:
            self._columns[name].append(columns[name])
        self._count += count
        return first

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
        by_order = links == LINKS.index(BY_ORDER)
        notes[unsure & ~by_order] = self.notes[_UNSURE_NODE]
        notes[unsure & by_order] = self.notes[_UNSURE_KIND]
        links[unsure] = LINKS.index("graph")
        self._count_facts(length, link, note, known)
        return self._with_nodes(found, replays.rows, node, links, notes)

    def _with_nodes(
        self, found: LinkedActivities, rows: Int, node: Int, link: Int, note: Int
    ) -> LinkedActivities:
        """Return the activities, those at these rows with their nodes and the calls of their ops.

        A call is named by the first activity of it in its replay.
        """
        columns = {}
        for name, values in (("node", node), ("link", link), ("replay_note", note)):
            column = getattr(found, name).astype(np.int64)
            column[rows] = values
            columns[name] = column
        for name in CALLS:
            calls, call = self.numbers(name), self.number(name, node)
            size = np.bincount(calls[calls != NO_ID], minlength=self._count)
            nodes = lookup(size, np.maximum(call, -1), 0)
            column = getattr(found, name).astype(np.int64)
            column[rows[nodes == 1]] = rows[nodes == 1]
            several = nodes > 1
            key = combine_keys(found.launch[rows[several]], call[several])
            least = np.full(int(key.max(initial=-1)) + 1, len(found))
            np.minimum.at(least, key, rows[several])
            column[rows[several]] = least[key]
            columns[name] = column
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
        """Return a column of numbers of nodes by row of `graph_nodes`; `NO_ID` for null.

        Ids of ops count from the first op of the window that is being linked.
        """
        found = lookup(self.numbers(name), node, NO_ID)
        return np.where(found == NO_ID, NO_ID, found - self._first_op) if name in OP_IDS else found

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


def _lost_after(agreed: Agreed) -> Int:
    """Return how many nodes are lacking after each node of a replay; `NO_ID`: not known."""
    found = []
    for each in agreed.used:
        if not each.lost:
            return np.zeros(len(each.rows), np.int64)
        following = np.r_[each.rows[1:], each.template.end]
        known = (each.rows != NO_PLACE) & (following != NO_PLACE)
        found.append(np.where(known, following - each.rows - 1, NO_ID))
    agrees = np.all([other == found[0] for other in found], axis=0)
    return np.where(agrees, found[0], NO_ID)


_NODE_NUMBERS: Final = (
    "capture", "node", "lost_after", "candidates", "sizes_equal", "sizes_known", *COUNTS,
    "recorded_id",
)  # fmt: skip
_NODE_COLUMNS: Final = (
    "kernel", "file", "stack_id", "owned", *(name for name in OP_TEXTS if name != "stack"),
    *OP_NUMBERS, *IDS, *CALLS, *(name for name in _NODE_NUMBERS if name not in OP_NUMBERS),
)  # fmt: skip
