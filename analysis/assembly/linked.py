"""All that the analyses find of ops and GPU activities, each from the ones before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pyprof2.analysis.costs import load_extensions
from pyprof2.analysis.costs.attribute import OpCosts, cost_ops
from pyprof2.analysis.costs.evidence import DistinctCalls, find_evidence
from pyprof2.analysis.intervals import Nest, nearest_marked
from pyprof2.analysis.linking.directions import link_directions
from pyprof2.analysis.linking.kernels import (
    Launches,
    LinkedActivities,
    link_activities,
    link_launches,
)
from pyprof2.analysis.linking.layers import link_layers, link_sharded
from pyprof2.analysis.linking.ops import Ops, link_ops
from pyprof2.analysis.linking.pair import Pairs, pair
from pyprof2.analysis.linking.places import FORWARD, FRAMES, RANGE, OwnCalls
from pyprof2.analysis.linking.ranges import NO_RANGES, Ranges, link_steps, read_ranges
from pyprof2.analysis.linking.stacks import Around, Stacks, choose_lines
from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.analysis.linking.user_ranges import RangePaths, UserRanges, choose_users, node_threads
from pyprof2.columns import TextColumn, combine_keys, lookup, merge_texts
from pyprof2.recording import LostTime, Recording, TextCodes, code_column, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Bool, Int


class ExplainedReplays(Protocol):
    """Facts about the nodes of the graphs that a recording replays.

    Attributes:
        notes: on how they were found.
        owners: what is known of nodes of compiled code; `number` of `owned` is a place in them.
    """

    notes: TextCodes
    owners: list[Any]

    def linked(self, recording: Recording, linked: Linked, shared: SharedFindings) -> Linked:
        """Return what is linked of a window, with what is found of its replays."""

    def text(self, name: str, node: Int) -> TextColumn:
        """Return a column of text of nodes by row of `graph_nodes`, -1 for none."""

    def number(self, name: str, node: Int) -> Int:
        """Return a column of numbers of nodes by row of `graph_nodes`; `NO_ID` for null."""


class ExplainedOps(Protocol):
    """Facts about the ops of a window that are of compiled code."""

    def text(self, name: str, op: Int) -> TextColumn:
        """Return the one `op`, `layer` or `source` of ops by position, -1 for none or several."""

    def several(self, name: str, op: Int) -> TextColumn:
        """Return the sets of those that have several."""

    def note(self, op: Int) -> TextColumn:
        """Return how they were found, or why not."""

    def are_known(self, op: Int) -> Bool:
        """Return which are found."""

    def are_written(self, op: Int) -> Bool:
        """Return which are kernels that the compiler wrote."""

    def parts(self, op: Int, kernel_id: Int) -> pa.Table:
        """Return the rows of `kernel_parts` of kernels by their ops."""

    @property
    def first_row(self) -> int:
        """How many rows of calls of ops there are in the windows before."""

    @property
    def replays(self) -> ReplaysOfCode:
        """Explains the graphs of the device that calls of compiled graphs replay."""


class ReplaysOfCode(Protocol):
    """Facts about the kernels of replays in calls of compiled graphs."""

    def kind(self, launch: int) -> Any:
        """Return what decides on a replay's work, beside its names; None: nothing is known."""

    def note(self, launch: int) -> str:
        """Return how the kernels of a replay are found."""

    def explain(self, launch: int, names: tuple[str, ...]) -> list[Any] | str:
        """Return what each of its kernels does the work of, or why that is not known."""


class ExplainedCode(Protocol):
    """Facts about the compiled code in a recording."""

    def linked(
        self, recording: Recording, linked: Linked, shared: SharedFindings, root: str | None
    ) -> Linked:
        """Return what is linked of a window, with what is found of its compiled code."""


@dataclass(frozen=True)
class Linked:
    """The ops in the order of their ids, with all that was found for each.

    Attributes:
        threads: the numbers of the threads.
        ops, pairs, costs: nesting, forward ops, and costs.
        launches, activities: of the GPU's work, linked with the ops.
        signature: row in the recording's signatures, -1 for none.
        texts: the signatures as text.
        layer: as text codes; ops in backward have that of their forward op.
        launch_layer: around launches of graphs, as text codes; -1 for other launches.
        stack: of the frames around, number in `SharedFindings.stacks`, -1 for none; see `layer`.
        rests_on: evidence of the stack, as a code into `EVIDENCE`, -1 for none.
        source, library_source: the innermost line of the user's own, and outside of torch.
        step: number of the step, `NO_ID` for none.
        direction: code into `DIRECTIONS`.
        steps: the step ranges, for launches on other threads.
        paths: of the user's own ranges.
        op_ranges, launch_ranges: those around each op and each launch, as codes into `paths`.
        graphs: what is known of the nodes of replayed graphs; None: none is replayed.
        compiled: what is known of the ops of compiled code; None: there is none.
    """

    threads: Threads
    ops: Ops
    pairs: Pairs
    launches: Launches
    activities: LinkedActivities
    costs: OpCosts
    signature: Int
    texts: Sequence[str]
    layer: TextColumn
    launch_layer: TextColumn
    stack: Int
    rests_on: Int
    source: TextColumn
    library_source: TextColumn
    step: Int
    direction: Int
    steps: Ranges
    paths: Sequence[str]
    op_ranges: RangePaths
    launch_ranges: RangePaths
    graphs: ExplainedReplays | None = None
    compiled: ExplainedOps | None = None


class SharedFindings:
    """Findings that the windows of a recording have in common.

    Attributes:
        stacks: the distinct stacks.
        calls: the distinct calls.
        descriptions: those of the estimates.
        graphs: explains replays of graphs; None: none are to be explained.
        compiled: explains compiled code; None: nothing is known of any.
        first_op: how many ops the windows before have.
    """

    def __init__(
        self,
        recording: Recording,
        graphs: ExplainedReplays | None = None,
        compiled: ExplainedCode | None = None,
    ) -> None:
        self.graphs, self.compiled, self.first_op = graphs, compiled, 0
        self.stacks = Stacks()
        self.calls = DistinctCalls(recording.signatures)
        self.descriptions: TextCodes = TextCodes()
        self._recording = recording

    @cached_property
    def node_threads(self) -> set[tuple[int, int]]:
        """Process and thread id of the threads that run nodes, in whatever window."""
        return node_threads(self._recording)


class _Around(NamedTuple):
    """The surroundings of ops: stacks and layers by op, and the ranges that linking needs later.

    What was recorded of ops themselves is `called`; `evidence` is that of `stack`; `of_launches`
    are the layers around launches.
    """

    stack: Int
    evidence: Int
    called: OwnCalls
    layer: TextColumn
    sharded: TextColumn
    of_launches: TextColumn
    steps: Ranges
    annotations: Ranges
    modules: list[Ranges]


def _look_around(
    recording: Recording,
    ops: Ops,
    pairs: Pairs,
    threads: Threads,
    stacks: Stacks,
    launches: Launches,
) -> _Around:
    called = OwnCalls.of(recording, ops)
    # There may be more frames than ops: they are let go with this function.
    ranges = read_ranges(recording, threads)
    stack, evidence = _stacks_of(stacks, ops, ranges, called)
    modules, layers = (ranges.get(kind, NO_RANGES) for kind in ("module", "layer"))
    # The layers around launches of graphs are needed: their kernels may have no op.
    graph = np.flatnonzero(launches.is_graph[: len(launches.row)])
    thread = np.concatenate((ops.thread, launches.thread[graph]))
    start = np.concatenate((ops.start, launches.start[graph]))
    codes, names = link_layers(modules, layers, ops, pairs.forward, (thread, start))
    of_launches = np.full(len(launches.row), -1)
    of_launches[graph], codes = codes[len(ops) :], codes[: len(ops)]
    if recording.lost_times:
        is_lost = _are_lost(recording, ops, threads)
        codes = np.where(is_lost, -1, codes)
        is_lost &= evidence == FRAMES
        stack, evidence = (np.where(is_lost, -1, each) for each in (stack, evidence))
    layer = merge_texts(called.layer, (codes, names))
    steps, annotations = (ranges.get(kind, NO_RANGES) for kind in ("step", "annotation"))
    # A name that FSDP gives a layer may mean any layer that is known at all.
    known = [*recording.spool.texts["ops"]["layer"], *layer[1]]
    sharded = link_sharded(annotations, known, ops.thread, ops.start, layer)
    modules_called = [modules, layers]
    return _Around(
        stack, evidence, called, layer, sharded, (of_launches, names), steps, annotations,
        modules_called,
    )  # fmt: skip


def _are_lost(recording: Recording, ops: Ops, threads: Threads) -> Bool:
    """Return which ops begin where it is not known what their thread runs."""
    columns = zip(*recording.lost_times, strict=True)
    table = pa.table(dict(zip(LostTime._fields, columns, strict=True)))
    start, end = (int_column(table, name, 0) for name in ("start_ns", "end_ns"))
    known = np.isin(int_column(table, "pid", 0), threads.pids)
    known &= np.isin(int_column(table, "tid", 0), threads.tids)
    thread = threads.number(table.filter(pa.array(known)))
    return Nest.of(thread, start[known], end[known]).holds(ops.thread, ops.start)


def link_recording(
    recording: Recording, source_root: str | None = None, shared: SharedFindings | None = None
) -> Linked:
    """Return all that is found of the recording's ops and GPU activities.

    Args:
        recording: the raw tables.
        source_root: the folder of the user's own code.
        shared: what earlier windows of it have found; it is extended.
    """
    load_extensions()
    shared = shared or SharedFindings(recording)
    tables = ("ops", "launches", "ranges", "flows", "memory", "created_nodes")
    threads = Threads.of(recording.read(name, ["pid", "tid"]) for name in tables)
    ops = link_ops(recording, threads)
    pairs = pair(ops, recording, threads)
    launches = link_launches(recording, ops, threads)
    activities = link_activities(recording, launches, ops, threads)
    signature = int_column(recording.read("ops", ["signature_id"], ops.row), "signature_id", -1)
    around = _look_around(recording, ops, pairs, threads, shared.stacks, launches)
    annotations = around.annotations
    own = choose_users(recording, annotations)
    users = UserRanges.of(own, threads, shared.node_threads if len(own.name) else ())
    direction = link_directions(ops, threads, annotations, around.modules)
    # An optimizer may step inside of backward: its work belongs to no layer.
    inherits = ops.backward & (direction == DIRECTIONS.index("backward"))
    origin = _origins(ops, pairs)
    stack = _within(ops, direction, around.modules, _stack_of(ops, around, origin, inherits))
    own_layer = _inherit(around.layer, origin, inherits & ~around.called.is_placed, ops)
    layer, layers = merge_texts(around.sharded, own_layer)
    line = around.called.line[0]
    changed = (stack != around.stack) & ~((line >= 0) & (lookup(line, origin, -1) == line))
    rests_on = np.where(stack < 0, -1, np.where(changed, FORWARD, around.evidence))
    # The innermost line of the user's own, and outside of torch.
    source, library_source = (
        (lookup(codes, stack, -1), texts)
        for codes, texts in choose_lines(shared.stacks.table(), source_root)
    )
    # Evidence of the inputs of ops elsewhere in the recording.
    names = code_column(recording.read("activities", ["kernel"], activities.row), "kernel")
    evidence = find_evidence(ops, pairs, signature, shared.calls, (activities.op, names))
    linked = Linked(
        threads=threads,
        ops=ops,
        pairs=pairs,
        launches=launches,
        activities=activities,
        costs=cost_ops(ops, evidence, shared.descriptions),
        signature=signature,
        texts=[text for _, text, _, _ in recording.signatures],
        layer=(_within(ops, direction, around.modules, layer), layers),
        launch_layer=around.of_launches,
        stack=stack,
        rests_on=rests_on,
        source=source,
        library_source=library_source,
        step=link_steps(around.steps, threads, ops.thread, ops.start),
        direction=direction,
        steps=around.steps,
        paths=users.paths,
        op_ranges=users.at(ops.thread, ops.start),
        launch_ranges=users.at(launches.thread, launches.start),
    )
    if shared.compiled is not None:
        linked = shared.compiled.linked(recording, linked, shared, source_root)
    return linked if shared.graphs is None else shared.graphs.linked(recording, linked, shared)


def _stack_of(ops: Ops, around: _Around, origin: Int, inherits: Bool) -> Int:
    """Return the stack of each op; in backward that of its forward op."""
    line = around.called.line[0]
    placed = around.called.is_placed & (line >= 0)
    stack = _inherit((around.stack, []), origin, inherits & ~placed, ops)[0]
    # An op in backward names the line of its forward op: its callers are known in forward.
    named = inherits & (line >= 0) & (lookup(line, origin, -1) == line)
    stack = np.where(named, lookup(around.stack, origin, -1), stack)
    return _stacks_again(ops, stack, around.layer[0])


def _stacks_of(
    stacks: Stacks, ops: Ops, ranges: dict[str, Ranges], called: OwnCalls
) -> tuple[Int, Int]:
    """Return the stack of each op: as recorded of it, else of the frames or the range around it.

    And what it rests on.
    """
    frames, lines = (ranges.get(kind, NO_RANGES) for kind in ("python", "source"))
    around = stacks.at(frames, ops.thread, ops.start)
    nest = lines.nest()
    line = nest.innermost(ops.thread, ops.start)
    marked = lookup(stacks.of_calls(lines, nest), line, -1)
    own = stacks.called(called.line, Around(marked, (lookup(lines.name, line, -1), lines.names)))
    if called.is_all:
        return own, called.evidence
    known = [own >= 0, around >= 0, marked >= 0]
    return (
        np.select(known, [own, around, marked], -1),
        np.select(known, [called.evidence, FRAMES, RANGE], -1),
    )


def _stacks_again(ops: Ops, stack: Int, layer: Int) -> Int:
    """Return the stacks of ops; those that checkpointing runs again have that of their forward op.

    Around ops that run again are the frames of backward, if any. Their forward op is one of the
    same name in the same layer; where these are called from one place, that is the place.
    """
    again = ops.recompute & (layer >= 0)
    if not again.any():
        return stack
    first = ~ops.recompute & ~ops.backward & (layer >= 0) & (stack >= 0)
    outermost = again & ~lookup(again, ops.parent, 0).astype(bool)
    rows = np.flatnonzero(outermost | first)
    _, kind = np.unique(combine_keys(layer[rows], ops.name[rows]), return_inverse=True)
    least, most = np.full(len(rows), 1 << 62), np.full(len(rows), -1)
    known = first[rows]
    np.minimum.at(least, kind[known], stack[rows[known]])
    np.maximum.at(most, kind[known], stack[rows[known]])
    place = np.where(least == most, most, -1)[kind]
    found = stack.copy()
    found[rows] = np.where(known | (place < 0), stack[rows], place)
    caller = nearest_marked(ops.parent, outermost)
    return np.where(again & (caller >= 0), lookup(found, caller, -1), stack)


def _origins(ops: Ops, pairs: Pairs) -> Int:
    """Return for each op in backward the op outside of it whose layer it has, or -1.

    The op that made a node of a second derivative is in backward itself, and has the layer of its
    own forward op in turn.
    """
    origin = np.where(pairs.forward >= 0, pairs.forward, pairs.accumulate)
    todo = np.flatnonzero(origin >= 0)
    while len(todo):
        todo = todo[ops.backward[origin[todo]]]
        origin[todo] = origin[origin[todo]]
        todo = todo[origin[todo] >= 0]
    return origin


def _within(ops: Ops, direction: Int, modules: Sequence[Ranges], codes: Int) -> Int:
    """Give ops without a layer or stack that of the nearest node of autograd around them.

    A node may run autograd by itself, of ops whose layer nothing else in the recording says. The
    work of an optimizer that steps inside of it is not the node's, nor that of a module that is
    called there.

    Args:
        ops: the ops.
        direction: of each, as a code into `DIRECTIONS`.
        modules: the calls of modules.
        codes: of the layers or stacks, -1 for none.
    """
    holder = nearest_marked(ops.parent, ops.node & (codes >= 0))
    is_own = np.isin(direction, [DIRECTIONS.index(name) for name in ("forward", "backward")])
    rows = np.flatnonzero((codes < 0) & (holder >= 0) & is_own)
    for calls in modules if len(rows) else ():
        call = calls.nest().innermost(ops.thread[rows], ops.start[rows])
        rows = rows[lookup(calls.start, call, NO_ID) < ops.start[holder[rows]]]
    found = codes.copy()
    found[rows] = codes[holder[rows]]
    return found


def _inherit(texts: TextColumn, origin: Int, inherits: Bool, ops: Ops) -> TextColumn:
    """Give ops in backward the text of their forward op, where the annotation does not say it."""
    codes, words = texts
    annotated = (ops.annotated.direction >= 0) & (codes >= 0)
    return np.where(inherits & ~annotated, lookup(codes, origin, -1), codes), words
