"""The op calls of compiled code in a recording, with the lines, layers and ops that they work for.

A kernel that was fused does the work of several: it has what all of it has in common, a set where
that differs, and its parts, a row each of table `kernel_parts`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.axes import OWNED, join_owners
from pyprof2.analysis.compiled.calls import called_name, find_calls
from pyprof2.analysis.compiled.costs import SIZES_FROM, GraphWork, bound_sizes, has_open_sizes
from pyprof2.analysis.compiled.joining import NO_GRAPH, Joined, choose_graph, is_written, join
from pyprof2.analysis.compiled.replays import COPIES, launches_replayed
from pyprof2.analysis.costs import Cost, Estimate
from pyprof2.analysis.graphs.sequences import group_equal, mixed, ordered_hashes
from pyprof2.analysis.linking.ops import is_envelope
from pyprof2.analysis.linking.stacks import choose_lines
from pyprof2.columns import int_array, lookup, merge_texts, text_array
from pyprof2.recording import TextCodes
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.assembly.linked import Linked, SharedFindings
    from pyprof2.analysis.compiled.calls import GraphCalls
    from pyprof2.analysis.costs.attribute import OpCosts
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.columns import TextColumn
    from pyprof2.recording import CodeLaunch, CodeNode, CodeTensor, CompiledGraph, Recording
    from pyprof2.signatures import OpCall

_OF_GRAPH: Final = "of the compiled graph as a whole: it prepares inputs"
_SLICE: Final = 1 << 16
_SHARED: Final = "; which of the modules that share this code is called is not known"
_NO_NODE: Final = "; the compiler names no op that it works for"
_TEXTS: Final = (
    "node", "op", "source", "layer", "direction", "evidence", "code", "reads", "writes",
    "generated",
)  # fmt: skip
"""The columns of parts that are texts."""
_HOLDS: Final = re.compile(r"Torch-Compiled Region: |CompiledFunction(?:Backward)?\Z")
_FORWARD, _BACKWARD = DIRECTIONS.index("forward"), DIRECTIONS.index("backward")


class _Part(NamedTuple):
    """A part of what a kernel does, as a row of `kernel_parts`; None for null."""

    node: str
    op: str | None
    source: str | None
    layer: str | None
    direction: str | None
    recompute: bool | None
    evidence: str
    flops: int | None
    bytes: int | None
    code: str | None
    reads: str | None
    writes: str | None
    generated: str | None


class _PartPlace(NamedTuple):
    """Where a part is in the program: the number of its stack, and the code of its lines."""

    stack: int
    texts: dict[str, str]


class _Owned(NamedTuple):
    """All that is known of a launch in its place: its parts, and what they have in common.

    Numbers of stacks are -1, those of directions too, where there is none.
    """

    parts: tuple[_Part, ...]
    stack: int
    direction: int
    recompute: int
    note: str
    is_written: bool
    estimate: Estimate | None = None

    def owner(self, name: str) -> str | None:
        """Return the one op, layer or source of the parts; None: none or several."""
        found = self.all(name)
        return found[0] if len(found) == 1 else None

    def all(self, name: str) -> list[str]:
        """Return the distinct ones, in the order of the code."""
        if name == "op" and any(part.op is None and part.flops for part in self.parts):
            # Logs do not say what a node was before it was taken apart.
            return []
        found = (getattr(part, name) for part in self.parts)
        return list(dict.fromkeys(text for text in found if text is not None))


class _Key(NamedTuple):
    """A launch in its place, with all that decides on what is known of it.

    Attributes:
        graph: None: it is in no code that is known.
        launch: its place in the code.
        note: how it was found.
        layer, stack: of the call, as codes.
        sizes: those that the call decides on, by name.
        call: as it was recorded, of a kernel that the compiler wrote.
    """

    graph: CompiledGraph | None
    launch: int
    note: str
    layer: int
    stack: int
    sizes: tuple[tuple[str, int], ...]
    call: OpCall | None


_NOTHING: Final = _Owned((), -1, -1, -1, _OF_GRAPH, is_written=False)


@dataclass(frozen=True)
class CompiledOps:
    """Facts about the ops of a window that are of compiled code.

    Attributes:
        owned: of each op a code into `each`; -1: it is not of compiled code.
        each: distinct findings.
        first_row: how many rows of calls of ops there are in the windows before.
        replays: explains the graphs of the device that calls replay.
    """

    owned: Int
    each: Sequence[_Owned]
    first_row: int
    replays: _ReplayedCode

    def text(self, name: str, op: Int) -> TextColumn:
        """Return the one `op`, `layer` or `source` of ops by position."""
        return lookup(self.owned, op, -1), [each.owner(name) for each in self.each]

    def several(self, name: str, op: Int) -> TextColumn:
        """Return the sets of those that have several, see `pyprof2.analysis.axes.join_owners`."""
        # An op that is called has its own name.
        own = (each if name != "op" or each.is_written else _NOTHING for each in self.each)
        return lookup(self.owned, op, -1), [join_owners(each.all(name)) for each in own]

    def note(self, op: Int) -> TextColumn:
        """Return how they were found."""
        return lookup(self.owned, op, -1), [each.note for each in self.each]

    def are_known(self, op: Int) -> Any:
        """Return which ops are found in the code of a graph."""
        known = np.array([*(bool(each.parts) for each in self.each), False])
        return known[lookup(self.owned, op, -1)]

    def are_written(self, op: Int) -> Any:
        """Return which ops are kernels that the compiler wrote, for ops that are known.

        The names of the others say more than nothing.
        """
        known = (each.is_written and bool(each.all("op")) for each in self.each)
        written = np.array([*known, False])
        return written[lookup(self.owned, op, -1)]

    def parts(self, op: Int, kernel_id: Int) -> pa.Table:
        """Return the rows of `kernel_parts` of kernels by their ops."""
        return _part_rows(lookup(self.owned, op, -1), self.each, kernel_id)


def _part_rows(owned: Int, found: Sequence[_Owned], kernel_id: Int) -> pa.Table:
    """Return the rows of `kernel_parts` of kernels by codes of what is known of them."""
    count = np.array([*(len(each.parts) for each in found), 0])
    first = np.cumsum(count) - count
    length = count[owned]
    begin = np.cumsum(length) - length
    row = np.arange(int(length.sum())) - np.repeat(begin, length) + np.repeat(first[owned], length)
    every = [part for each in found for part in each.parts]
    columns: dict[str, Any] = {"kernel_id": pa.array(np.repeat(kernel_id, length))}
    for name in _TEXTS:
        codes = TextCodes()
        values = [getattr(part, name) for part in every]
        code = np.array([-1 if v is None else codes[v] for v in values] or [-1], np.int64)
        columns[name] = text_array((code[row], list(codes)))
    for name in ("flops", "bytes"):
        counts = [getattr(part, name) for part in every]
        known = np.array([-1 if count is None else count for count in counts] or [-1])
        columns[name] = int_array(known[row], -1)
    again = np.array([-1 if p.recompute is None else p.recompute for p in every] or [-1])[row]
    columns["recompute"] = pa.array(again > 0, mask=again < 0)
    return pa.table(columns)


def shared_columns(linked: Linked, op: Int, node: Int | None = None) -> dict[str, pa.Array]:
    """Return the columns of what kernels of compiled code have several of; none without such code.

    Args:
        linked: what is known of the window.
        op: of each kernel.
        node: of each of a replay its row of `graph_nodes`.
    """
    compiled, graphs = linked.compiled, linked.graphs
    if compiled is None:
        return {}
    columns = {name: compiled.several(name, op) for name in OWNED}
    if graphs is not None and node is not None:
        for name in OWNED:
            words = [join_owners(each.all(name)) for each in graphs.owners]
            columns[name] = merge_texts((graphs.number("owned", node), words), columns[name])
    return {f"shared_{name}": text_array(column) for name, column in columns.items()}


def op_names(linked: Linked, op: Int) -> TextColumn:
    """Return the names of ops by position; of a kernel that a compiler wrote its one op's."""
    name = (lookup(linked.ops.name, op, -1), linked.ops.names)
    if linked.compiled is None:
        return name
    return _instead(linked.compiled.text("op", op), name, linked.compiled.are_written(op))


def part_tables(recording: Recording, linked: Linked, activity_id: Int) -> Iterator[pa.Table]:
    """Yield the rows of `kernel_parts` of a window, without the column `rank`.

    Args:
        recording: the raw tables.
        linked: what was found in them.
        activity_id: of each GPU activity its id; without any, op calls are rows.
    """
    compiled, found = linked.compiled, linked.activities
    if compiled is None:
        return
    if recording.spool.counts["activities"]:
        order = np.argsort(activity_id, kind="stable")
        rows = [(found.op[order], activity_id[order])]
        if linked.graphs is not None:
            owned = linked.graphs.number("owned", found.node[order])
            known = np.flatnonzero(owned >= 0)
            for at in range(0, len(known), _SLICE):
                some = known[at : at + _SLICE]
                yield _part_rows(owned[some], linked.graphs.owners, activity_id[order][some])
    else:
        is_row = ~np.array([is_envelope(text) for text in linked.ops.names] or [True])
        op = np.flatnonzero(is_row[linked.ops.name])
        rows = [(op, compiled.first_row + np.arange(len(op)))]
    for op, kernel_id in rows:
        for at in range(0, len(op), _SLICE):
            own = slice(at, at + _SLICE)
            yield compiled.parts(op[own], kernel_id[own])


class _ReplayedCode(NamedTuple):
    """Explains the kernels of graphs of the device that calls of compiled graphs replay.

    Attributes:
        links: of the recording.
        graphs: of each launch the graph whose call it is in; None: it is in none.
        linked, shared, root: what is known of the window, and of the recording.
        found: what was explained, by graph, layer and stack of the call, and names.
    """

    links: CompiledLinks
    graphs: Sequence[CompiledGraph | None]
    linked: Linked
    shared: SharedFindings
    root: str | None
    found: dict[Any, list[_Owned] | str]

    def kind(self, launch: int) -> tuple[int, int, int] | None:
        """Return what decides on the work of a replay, beside its names; None: nothing is known."""
        graph, op = self.graphs[launch], int(self.linked.launches.op[launch])
        if graph is None or graph.launches is None:
            return None
        layer = int(self.linked.layer[0][op]) if op >= 0 else -1
        return id(graph), layer, int(self.linked.stack[op]) if op >= 0 else -1

    def note(self, launch: int) -> str:
        """Return how the kernels of a replay are found."""
        graph = self.graphs[launch]
        count = len(graph.launches or ()) if graph is not None else 0
        return f"{count:,} launches of the compiled graph's code, by names"

    def explain(self, launch: int, names: tuple[str, ...]) -> list[_Owned] | str:
        """Return what the kernels of a replay do the work of, or why that is not known."""
        key = (self.kind(launch), names)
        if key not in self.found:
            self.found[key] = self._explained(launch, names)
        return self.found[key]

    def _explained(self, launch: int, names: tuple[str, ...]) -> list[_Owned] | str:
        graph, kind = self.graphs[launch], self.kind(launch)
        if graph is None or kind is None:
            return NO_GRAPH
        places = launches_replayed(graph.launches or (), names)
        if isinstance(places, str):
            return places
        distinct = list(dict.fromkeys(each for each in places if each))
        about = (self.note(launch), *kind[1:])
        found = [
            self.links.together(graph, each, about, self.linked, self.shared) for each in distinct
        ]
        owned = dict(zip(distinct, _with_sources(found, self.shared, self.root), strict=True))
        return [owned.get(each, _NOTHING) for each in places]


class CompiledLinks:
    """Explains the calls of compiled graphs of a recording, window by window.

    Attributes:
        facts: how many calls there are by whether their launches are known, and the note.
    """

    def __init__(self, graphs: Sequence[CompiledGraph]) -> None:
        self._by_key: dict[str | None, list[CompiledGraph]] = {}
        for graph in graphs:
            self._by_key.setdefault(graph.key, []).append(graph)
        self._work: dict[tuple[int, tuple[tuple[str, int], ...]], GraphWork] = {}
        self._row = 0
        self._callers: dict[str, bool] = {}
        self.facts: Counter[tuple[bool, str]] = Counter()
        self.launches: Counter[str] = Counter()

    def linked(
        self, recording: Recording, linked: Linked, shared: SharedFindings, root: str | None
    ) -> Linked:
        """Return what is linked of a window, with what is found of its compiled code."""
        first_row = self._row
        is_row = ~np.array([is_envelope(text) for text in linked.ops.names] or [True])
        self._row += int(is_row[linked.ops.name].sum())
        about = linked.threads, linked.ops, linked.pairs, linked.launches
        calls = find_calls(recording, *about)
        if calls is None:
            return linked
        owned, keys, called = self._owned(linked, calls, shared)
        explained = [self._explained(key, linked, shared) for key in keys]
        each = _with_sources(explained, shared, root)
        graphs = [called[at] if at >= 0 else None for at in calls.launch.tolist()]
        replays = _ReplayedCode(self, graphs, linked, shared, root, {})
        return _applied(linked, CompiledOps(owned, each, first_row, replays), shared)

    def _owned(
        self, linked: Linked, calls: GraphCalls, shared: SharedFindings
    ) -> tuple[Int, list[_Key], list[CompiledGraph | None]]:
        """Return of each op the number of what it is in its place, these, and calls' graphs."""
        kinds = [self._joined(linked, calls, kind) for kind in range(len(calls.example))]
        # Calls of one key may be of several graphs, by the region around them.
        graphs: list[CompiledGraph] = []
        place = np.full(len(calls.made), -1)
        which = np.full(len(calls.made), -1)
        notes = TextCodes()
        note = np.full(len(calls.made), -1)
        found = TextCodes()
        called: list[CompiledGraph | None] = [None] * len(calls.key)
        region = np.stack((calls.kind, calls.compile_id, calls.is_backward.astype(np.int64)))
        pairs, at = np.unique(region, axis=1, return_inverse=True)
        at = at.reshape(-1)
        for number, (kind, region_id, backward) in enumerate(pairs.T.tolist()):
            graph, joined = kinds[kind](region_id, bool(backward))
            own = np.flatnonzero(at == number)
            for call in own.tolist():
                called[call] = graph
            if not joined.launches:
                # Replays are looked for by their kernels.
                self.facts[False, joined.note] -= int(calls.replays[own].sum())
            rows = (calls.first[own][:, None] + np.arange(calls.length[own[0]])).reshape(-1)
            self.facts[bool(joined.launches), joined.note] += len(own)
            note[rows] = notes[joined.note]
            if joined.launches and graph is not None:
                code = found[id(graph)]
                if code == len(graphs):
                    graphs.append(graph)
                which[rows] = code
                place[rows] = np.tile(np.array(joined.launches), len(own))
                which[rows[place[rows] < 0]] = -1
        self._callers = find_callers(linked, calls, called)
        made = calls.made
        signature = np.where(_are_written(graphs, which, place), linked.signature[made], -1)
        sizes, bound = self._bound(linked, calls, shared, graphs, (which, place))
        columns = (which, place, note, linked.layer[0][made], linked.stack[made], sizes, signature)
        distinct, own = np.unique(np.stack(columns), axis=1, return_inverse=True)
        owned = lookup(own.reshape(-1), calls.owner, -1)
        words = list(notes)
        keys = [
            _Key(
                graphs[g] if g >= 0 else None, launch, words[text], layer, stack,
                bound[at], shared.calls[called] if called >= 0 else None,
            )
            for g, launch, text, layer, stack, at, called in distinct.T.tolist()
        ]  # fmt: skip
        return owned, keys, called

    @staticmethod
    def _bound(
        linked: Linked,
        calls: GraphCalls,
        shared: SharedFindings,
        graphs: Sequence[CompiledGraph],
        at: tuple[Int, Int],
    ) -> tuple[Int, list[tuple[tuple[str, int], ...]]]:
        """Return of each op that a call makes the sizes that the call decides on, as a code."""
        which, place = at
        found: TextCodes = TextCodes()
        sizes = np.full(len(calls.made), found[()])
        are_open = np.array([*map(has_open_sizes, graphs), False])
        if not are_open.any():
            return sizes, list(found)
        signature = linked.signature[calls.made]
        hashes = ordered_hashes(mixed(signature, which), calls.first, calls.length)
        groups = group_equal(hashes, calls.length)
        for number, example in enumerate(groups.first.tolist()):
            begin = int(calls.first[example])
            rows = np.arange(begin, begin + int(calls.length[example]))
            rows = rows[are_open[which[rows]] & (signature[rows] >= 0)]
            if len(rows):
                launches = graphs[int(which[rows[0]])].launches or ()
                known = bound_sizes(
                    [(launches[place[row]], shared.calls[int(signature[row])]) for row in rows]
                )
                own = np.flatnonzero(groups.which == number)
                every = calls.first[own][:, None] + np.arange(calls.length[example])
                sizes[every.reshape(-1)] = found[known]
        return sizes, list(found)

    def _joined(self, linked: Linked, calls: GraphCalls, kind: int) -> Any:
        """Return what joins the calls of a kind, by the region around and the direction."""
        example = int(calls.example[kind])
        key = calls.keys[int(calls.key[example])]
        rows = slice(
            int(calls.first[example]), int(calls.first[example]) + int(calls.length[example])
        )
        names = linked.ops.names
        made = [called_name(names[code]) for code in linked.ops.name[calls.made[rows]].tolist()]
        known = self._by_key.get(key, self._by_key.get(None, []) if key == "None" else [])
        if not known:
            # Folders of the compiler say no key: the code must fit in full.
            without = (each for each in self._by_key.get(None, ()) if each.compile_id is None)
            known = [graph for graph in without if join(graph, made).launches]

        def found(region: int, backward: bool) -> tuple[CompiledGraph | None, Joined]:  # noqa: FBT001
            compile_id = calls.ids[region] if region >= 0 else None
            graph = choose_graph(known, compile_id, is_backward=backward)
            if isinstance(graph, str):
                return None, Joined((), graph)
            return graph, join(graph, made)

        return found

    def together(
        self,
        graph: CompiledGraph,
        places: Sequence[int],
        about: tuple[str, int, int],
        linked: Linked,
        shared: SharedFindings,
    ) -> tuple[_Owned, tuple[_PartPlace, ...]]:
        """Return what is known of a kernel of a replay that is one of some launches.

        Args:
            graph: whose code it is.
            places: of the launches in it.
            about: note, layer and stack of the call.
            linked: what is known of the window.
            shared: of the recording.
        """
        note, layer, stack = about
        keys = [_Key(graph, at, note, layer, stack, (), None) for at in places]
        found = [self._explained(key, linked, shared) for key in keys]
        first, parts = found[0]
        if len(found) == 1:
            work = self._work[id(graph), ()]
            return first._replace(estimate=first.estimate or work.called(places[0])), parts
        every = [owned for owned, _ in found]
        same = len({each.direction for each in every}) == 1
        work = self._work[id(graph), ()]
        estimates = [
            each.estimate or work.called(at) for each, at in zip(every, places, strict=True)
        ]
        names = [(graph.launches or ())[at].name for at in places]
        return first._replace(
            parts=tuple(part for each in every for part in each.parts),
            direction=first.direction if same else -1,
            recompute=int(all(each.recompute > 0 for each in every)),
            note=f"{note}; which one of {len(places)} calls it is is not known",
            is_written=True,
            estimate=_together(names, estimates),
        ), tuple(place for _, each in found for place in each)

    def _explained(
        self,
        key: _Key,
        linked: Linked,
        shared: SharedFindings,
    ) -> tuple[_Owned, tuple[_PartPlace, ...]]:
        """Return what is known of a launch, and where each of its parts is."""
        graph, place, note, layer, stack, sizes, call = key
        if graph is None:
            is_input = note.endswith("code") and note[0].isdigit()
            return _NOTHING._replace(note=_OF_GRAPH if is_input else note), ()
        if (id(graph), sizes) not in self._work:
            self._work[id(graph), sizes] = GraphWork(graph, sizes)
        work = self._work[id(graph), sizes].of(place, call)
        nodes = [graph.nodes[name] for name in work.nodes]
        open_layer = linked.layer[1][layer] if layer >= 0 else None
        # The module around is that which calls it.
        is_shared = self._callers.get(graph.layer or "")
        open_layer = open_layer if is_shared is None else None
        launch = (graph.launches or ())[place]
        parts, places = [], []
        for name, node, flops, size in zip(work.nodes, nodes, work.flops, work.bytes, strict=True):
            below = stack
            for line in reversed(node.lines):
                below = shared.stacks.add(below, line)
            texts = dict(zip(node.lines, node.texts, strict=False))
            places.append(_PartPlace(below if node.lines else -1, texts))
            again = bool(graph.is_backward) and node.is_backward is False
            backward = graph.is_backward if node.is_backward is None else node.is_backward
            parts.append(
                _Part(
                    name,
                    _op(node, launch),
                    None,
                    None if is_shared else _layer(node, graph, open_layer),
                    None if backward is None else DIRECTIONS[_BACKWARD if backward else _FORWARD],
                    again if node.is_backward is not None else None,
                    work.evidence,
                    flops,
                    size,
                    None,
                    *_buffers(launch),
                    None if graph.file is None else f"{graph.file}:{launch.line}",
                )
            )
        directions = {part.direction for part in parts}
        # It runs in the pass of its graph; all of it may be work of the other one.
        of_graph = "backward" if graph.is_backward else "forward"
        direction = directions.pop() if len(directions) == 1 else of_graph
        again = bool(parts) and all(part.recompute for part in parts)
        note = (note if parts else note + _NO_NODE) + (_SHARED if is_shared else "")
        return _Owned(
            tuple(parts), -1, -1 if direction is None else DIRECTIONS.index(direction),
            int(again), note, is_written(launch), work.estimate,
        ), tuple(places)  # fmt: skip

    def found(self) -> list[dict[str, Any]]:
        """Return what the manifest says of the calls, by whether they are known and the note."""
        return [
            {"known": known, "note": note, "calls": count}
            for (known, note), count in sorted(self.facts.items())
            if count
        ]


def find_callers(
    linked: Linked, calls: GraphCalls, called: Sequence[CompiledGraph | None]
) -> dict[str, bool]:
    """Return graphs, by their layers, whose calls are in the layers of their callers.

    A module that was compiled in its place opens no layer: what is open is the module around. Where
    no call of a graph is in the layer that it was compiled for, layers name callers.

    Returns:
        Whether a caller calls the code several times: then several modules may share it.
    """
    codes, texts = linked.layer
    opened: dict[str, set[str | None]] = {}
    count: Counter[tuple[str, int, bool]] = Counter()
    rows = zip(
        called, calls.first.tolist(), calls.held.tolist(), calls.length.tolist(), strict=True
    )
    for graph, first, held, length in rows:
        if graph is not None and graph.layer is not None and length:
            code = int(codes[calls.made[first]])
            opened.setdefault(graph.layer, set()).add(texts[code] if code >= 0 else None)
            count[graph.layer, held, bool(graph.is_backward)] += not graph.is_backward
    several = {layer for (layer, _, _), number in count.items() if number > 1}
    return {
        layer: layer in several
        for layer, own in opened.items()
        if layer not in own and own != {None}
    }


def _together(names: Sequence[str], estimates: Sequence[Estimate | None]) -> Estimate:
    """Return the work of all of some calls, of one of which each of their kernels is."""
    costs = [
        Cost(0, None, None) if name in COPIES else None if each is None else each.cost
        for name, each in zip(names, estimates, strict=True)
    ]
    known = [cost for cost in costs if cost is not None]
    kinds = {each.category for each in estimates if each is not None and each.cost is not None}
    kind = kinds.pop() if len(kinds) == 1 else ""
    if len(known) < len(costs):
        lacks = {name for name, cost in zip(names, costs, strict=True) if cost is None}
        note = f"one of {len(names)} calls: the work of {', '.join(sorted(lacks))} is not known"
        return Estimate(None, kind, "no_formula", note)
    types = {cost.dtype for cost in known if cost.flops}
    read = [cost.bytes_read for cost in known if cost.bytes_read is not None]
    written = [cost.bytes_written for cost in known if cost.bytes_written is not None]
    is_whole = len(read) == len(written) == len(known)
    cost = Cost(
        sum(cost.flops for cost in known),
        sum(read) if is_whole else None,
        sum(written) if is_whole else None,
        types.pop() if len(types) == 1 else None,
        assumed=f"of {len(names)} calls together, shared by time: which one is whose is not known",
    )
    return Estimate(cost, kind, "assumed", cost.assumed)


def _buffers(launch: CodeLaunch) -> tuple[str | None, str | None]:
    """Return in words what a launch reads and writes: `buf0 f32[64,32], primals_1`."""
    read = [_tensor_text(each) for each in launch.tensors if each.is_read]
    known = {each.name: _tensor_text(each) for each in launch.tensors if each.is_written}
    written = [known.get(name, name) for name in launch.writes or ()]
    return ", ".join(read) or None, ", ".join(written) or None


def _tensor_text(tensor: CodeTensor) -> str:
    if tensor.sizes is None:
        return tensor.name
    return f"{tensor.name} {tensor.dtype or ''}[{','.join(map(str, tensor.sizes))}]"


def _are_written(graphs: Sequence[CompiledGraph], which: Int, place: Int) -> Bool:
    """Return of launches by their graphs and places which are kernels that the compiler wrote."""
    launches = [graph.launches or () for graph in graphs]
    first = np.cumsum([0, *map(len, launches)])
    written = np.array([*(is_written(each) for own in launches for each in own), False])
    found: Bool = written[np.where(which >= 0, first[which] + place, -1)]
    return found


def _op(node: CodeNode, launch: CodeLaunch) -> str | None:
    """Return the op of the program that a node is of."""
    if node.original is not None or not is_written(launch):
        return node.original or node.op or launch.name
    if len(launch.originals) == 1:
        return launch.originals[0]
    return node.op if node.op in launch.originals else None


def _layer(node: CodeNode, graph: CompiledGraph, open_layer: str | None) -> str | None:
    """Return the layer of a node in a call that is made in a layer.

    Modules that are compiled one by one may share a graph: what is called is what is open.
    """
    if node.layer is None or graph.layer is None or open_layer in (None, graph.layer):
        return node.layer
    if node.layer == graph.layer:
        return open_layer
    below = node.layer.removeprefix(f"{graph.layer}.")
    return None if below == node.layer else f"{open_layer}.{below}"


def _with_sources(
    found: Sequence[tuple[_Owned, tuple[_PartPlace, ...]]], shared: SharedFindings, root: str | None
) -> list[_Owned]:
    """Return the findings with the lines of their parts, by the rule for all stacks."""
    (own, lines), _ = choose_lines(shared.stacks.table(), root)
    result = []
    for owned, places in found:
        stacks = [place.stack for place in places]
        at = lookup(own, np.array(stacks, np.int64), -1).tolist()
        parts = tuple(
            part._replace(source=lines[line], code=place.texts.get(lines[line]))
            if line >= 0
            else part
            for part, line, place in zip(owned.parts, at, places, strict=True)
        )
        known = {stack for stack in stacks if stack >= 0}
        same = {lines[line] for line in at if line >= 0}
        if len(same) == 1 < len(known):
            # One line, called from several places.
            stack = shared.stacks.add(-1, same.pop())
        else:
            stack = shared.stacks.common(sorted(known))
        result.append(owned._replace(parts=parts, stack=stack))
    return result


def _applied(linked: Linked, compiled: CompiledOps, shared: SharedFindings) -> Linked:
    """Return what is linked, the ops of compiled code with what is found of them."""
    owned = compiled.owned
    is_own = owned >= 0
    every = np.arange(len(owned))

    def of_each(name: str, missing: Int) -> Int:
        """Return a number of each finding by op; `missing` where there is none."""
        values = np.array([getattr(each, name) for each in compiled.each] or [-1])
        return np.where(is_own, lookup(values, owned, -1), missing)

    stack = of_each("stack", linked.stack)
    direction, again = (of_each(name, every * 0 - 1) for name in ("direction", "recompute"))
    _, (code, lines) = choose_lines(shared.stacks.table(), None)
    has_one = np.array([*(len(each.all("source")) == 1 for each in compiled.each), False])
    innermost = np.where(has_one[owned], lookup(code, stack, -1), -1)
    return replace(
        linked,
        costs=_with_work(linked, compiled),
        ops=replace(linked.ops, recompute=np.where(again >= 0, again > 0, linked.ops.recompute)),
        stack=stack,
        layer=_instead(compiled.text("layer", every), linked.layer, is_own),
        source=_instead(compiled.text("source", every), linked.source, is_own),
        library_source=_instead((innermost, lines), linked.library_source, is_own),
        direction=np.where(direction >= 0, direction, linked.direction),
        compiled=compiled,
    )


def _with_work(linked: Linked, compiled: CompiledOps) -> OpCosts:
    """Return the costs, those of kernels that the compiler wrote by the nodes of their graph."""
    costs = linked.costs
    estimates = [each.estimate for each in compiled.each]
    known = [each for each in estimates if each is not None]
    number = np.array([*(-1 if each is None else 0 for each in estimates), -1])
    number[number >= 0] = len(costs.estimates) + np.arange(len(known))
    own = number[compiled.owned]
    every = np.arange(len(own))
    around = len(costs.estimates) + len(known)
    new = np.where(_are_around(linked, compiled), around, own)
    # A name lists what a kernel may compute: of a graph that is not known, nothing is known.
    guessed = (compiled.owned >= 0) & ~compiled.are_known(every) & (costs.owner == every)
    guessed &= np.array(["::" not in text for text in linked.ops.names] or [True])[linked.ops.name]
    new = np.where(guessed, around + 1 + compiled.owned, new)
    unknown = [Estimate(None, "", "no_formula", each.note) for each in compiled.each]
    return replace(
        costs,
        estimate=np.where(new >= 0, new, costs.estimate),
        estimates=[*costs.estimates, *known, Estimate(Cost(0, 0, 0), "other", "ok"), *unknown],
        shapes_from=[
            *costs.shapes_from,
            *([SIZES_FROM] * len(known)),
            *([None] * (1 + len(unknown))),
        ],
        shapes_op=np.where(own >= 0, -1, costs.shapes_op),
        # Its name says less of what it does.
        category=np.where(own >= 0, -1, costs.category),
        owner=np.where(own >= 0, every, np.where(guessed, -1, costs.owner)),
    )


def _are_around(linked: Linked, compiled: CompiledOps) -> Bool:
    """Return which ops only hold the calls of graphs that are known: the work is inside."""
    ops = linked.ops
    inside: Bool = np.zeros(len(ops), bool)
    rows = np.flatnonzero(compiled.are_known(np.arange(len(ops))))
    while len(rows):
        rows = np.unique(ops.parent[rows])
        rows = rows[rows >= 0]
        inside[rows] = True
    holds = np.array([bool(_HOLDS.match(text)) for text in ops.names] or [False])[ops.name]
    own = linked.activities.op
    inside[own[own >= 0]] = False
    found: Bool = inside & holds & (linked.costs.owner < 0)
    return found


def _instead(own: TextColumn, column: TextColumn, is_own: Bool) -> TextColumn:
    """Return a column with other texts, null too, in some rows."""
    codes, words = own
    has_text = np.array([*(text is not None for text in words), False])
    codes = np.where(has_text[codes], codes, -1)
    moved = np.where(codes >= 0, codes + len(column[1]), -1)
    return np.where(is_own, moved, column[0]), [*column[1], *words]
