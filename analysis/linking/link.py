"""Link what a recording holds: op to op, op to layer and line and step, launch to op.

Everything here rests on time and thread: what encloses a launch on its thread caused it. The
definitions are those of docs/how-it-works.rst; ties are broken by the recorder's own numbering,
so the order of events in the file does not matter.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from pyprof2.analysis.intervals import (
    Bool,
    Int,
    Nest,
    depths,
    innermost_time,
    last_not_after,
    nearest_marked,
    time_without_children,
)
from pyprof2.analysis.linking.module_paths import ModulePaths
from pyprof2.analysis.linking.passes import Calls, find_passes
from pyprof2.columns import lookup
from pyprof2.recording import Recording, code_column, int_column
from pyprof2.skipped import TRACED_OPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from pyprof2.columns import TextColumn

NO_ID: Final = -(1 << 62)
"""Stands for null in int64 columns."""

_EVALUATED: Final = "autograd::engine::evaluate_function: "
_OPTIMIZER_OP: Final = re.compile(r"aten::_fused_(?:adam|adamw|sgd|adagrad)")
_STEP_NUMBER: Final = re.compile(r"(?<!\d)\d{1,18}(?!\d)")
_COMPILING: Final = " (dynamo_timed)"
"""How the names of the ranges end in which torch.compile compiles."""
_SHARDED: Final = re.compile(r"FSDP::\w+ (?:\((?P<layer>.+)\)|for (?P<next>.+))")
"""Work that FSDP does for a module, which it names from the outermost one that is sharded."""


def _distinct(table: pa.Table, names: Sequence[str]) -> list[Int]:
    return [
        pc.unique(table[name]).fill_null(NO_ID).to_numpy(zero_copy_only=False) for name in names
    ]


@dataclass(frozen=True)
class Threads:
    """Gives each (process, thread) of a recording a small number."""

    pids: Int
    tids: Int

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> Threads:
        """Number the threads that occur in the tables' `pid` and `tid`."""
        pids, tids = zip(*(_distinct(table, ("pid", "tid")) for table in tables), strict=True)
        return cls(np.unique(np.concatenate(pids)), np.unique(np.concatenate(tids)))

    def number(self, table: pa.Table) -> Int:
        """Return the number of each row's thread."""
        pid = np.searchsorted(self.pids, int_column(table, "pid", NO_ID))
        tid = np.searchsorted(self.tids, int_column(table, "tid", NO_ID))
        return pid * len(self.tids) + tid

    def process(self, thread: Int) -> Int:
        """Return the number of the process of each thread."""
        return thread // max(1, len(self.tids))

    def pid(self, thread: Int) -> Int:
        """Return the process id of each thread; `NO_ID` for null."""
        return lookup(self.pids, self.process(thread), NO_ID)

    def tid(self, thread: Int) -> Int:
        """Return the thread id of each thread; `NO_ID` for null."""
        return lookup(self.tids, thread % max(1, len(self.tids)), NO_ID)


@dataclass(frozen=True)
class Annotated:
    """What an annotation says of each op itself; -1 and False where there is none.

    Attributes:
        direction: as a code into `DIRECTIONS`.
        recompute, accumulate: as in `Recording`.
        thread: the annotation's number of the thread that counted the sequence number.
    """

    direction: Int
    recompute: Bool
    accumulate: Bool
    thread: Int

    @classmethod
    def of(cls, recording: Recording, row: Int) -> Annotated:
        """Read the columns, in the order that `row` gives."""
        names = ("direction", "recompute", "accumulate", "thread_nr")
        table = recording.read("ops", names, row)
        code, words = code_column(table, "direction")
        of_code = np.array([*(_direction_code(word) for word in words), -1])
        recompute, accumulate = (
            table[name].fill_null(False).to_numpy()  # noqa: FBT003
            for name in ("recompute", "accumulate")
        )
        return cls(of_code[code], recompute, accumulate, int_column(table, "thread_nr", -1))


def _direction_code(word: str) -> int:
    return DIRECTIONS.index(word) if word in DIRECTIONS else -1


@dataclass
class Ops:
    """The ops of a recording, in the order of their ids, and what is known of each.

    Rows refer to each other by position, -1 for none. `node`, `marked`, `backward`, `recompute` and
    `between` are as in `Passes`.
    """

    row: Int
    thread: Int
    start: Int
    end: Int
    name: Int
    names: list[str]
    sequence: Int
    forward_thread: Int
    parent: Int
    depth: Int
    self_ns: Int
    node: Bool
    marked: Int
    backward: Bool
    recompute: Bool
    between: Bool
    nest: Nest
    annotated: Annotated

    def __len__(self) -> int:
        return len(self.start)


def link_ops(recording: Recording, threads: Threads) -> Ops:
    """Return the ops in start order, nested, with direction as far as autograd tells it."""
    start, dur, recorded = (
        int_column(recording.read("ops", [name]), name, missing)
        for name, missing in (("start_ns", 0), ("dur_ns", 0), ("recorded_id", NO_ID))
    )
    row = _rows_that_ran(recording, threads, np.lexsort((recorded, -dur, start)), start)
    start, end = start[row], start[row] + dur[row]
    del recorded, dur
    table = recording.read("ops", ["pid", "tid", "op", "sequence_nr", "forward_thread"], row)
    thread = threads.number(table)
    name, names = code_column(table, "op")
    numbers = np.stack(
        (int_column(table, "sequence_nr", -1), int_column(table, "forward_thread", 0))
    )
    del table
    nest = Nest.of(thread, start, end)
    parent = nest.parents()
    sequence, forward_thread = _plumb_numbers(numbers, parent, name, names)
    annotated = Annotated.of(recording, row)
    backward, forward = (DIRECTIONS.index(word) for word in ("backward", "forward"))
    passes = find_passes(
        Calls(
            threads.process(thread), thread, parent, name, names, sequence,
            is_node=(forward_thread > 0) | (annotated.direction == backward),
            is_forward=annotated.direction == forward,
            is_again=annotated.recompute,
        )
    )  # fmt: skip
    self_ns = (
        innermost_time(thread, start, end)
        if nest.overlaps()
        else time_without_children(parent, end - start)
    )
    return Ops(
        row, thread, start, end, name, names, sequence, forward_thread, parent, depths(parent),
        self_ns, passes.node, passes.marked, passes.backward, passes.recompute, passes.between,
        nest, annotated,
    )  # fmt: skip


def _rows_that_ran(recording: Recording, threads: Threads, row: Int, start: Int) -> Int:
    """Return the rows of ops without those that torch.compile only traced, with made-up tensors.

    Where there are GPU activities all stay: what was only traced has none, and what the compiler
    tries out, or runs to capture it, has.
    """
    kind, kinds = code_column(recording.read("ranges", ["kind"]), "kind")
    if "internal" not in kinds or recording.spool.counts["activities"]:
        return row
    rows = np.flatnonzero(kind == kinds.index("internal"))
    ranges = _ranges_at(recording, threads, rows).named(lambda text: text.endswith(_COMPILING))
    thread = threads.number(recording.read("ops", ["pid", "tid"], row))
    traced = ranges.nest().holds(thread, start[row])
    recording.skipped[TRACED_OPS] += int(traced.sum())
    return row[~traced]


def _plumb_numbers(numbers: Int, parent: Int, name: Int, names: list[str]) -> Int:
    """Return numbers of ops, where what the engine evaluates has those of the node in it.

    Kineto gives them to both only where nothing runs in between, such as hooks.

    Args:
        numbers: a row of sequence numbers, -1 for none, and one of the threads that counted them.
        parent: of each op, -1 for none.
        name: of each op, as a code into `names`.
        names: the names.
    """
    codes = {text: code for code, text in enumerate(names)}
    evaluated = [codes.get(text.removeprefix(_EVALUATED), -1) for text in names]
    inner = np.array([-1 if code == at else code for at, code in enumerate(evaluated)] or [-1])
    node = np.flatnonzero((parent >= 0) & (numbers[0] >= 0))
    outer = parent[node]
    lacks = (inner[name[outer]] == name[node]) & (numbers[0][outer] < 0)
    numbers[:, outer[lacks]] = numbers[:, node[lacks]]
    return numbers


@dataclass(frozen=True)
class Ranges:
    """The ranges of one kind: where they are, and their texts as codes."""

    thread: Int
    start: Int
    end: Int
    name: Int
    names: list[str]

    def where(self, keep: Bool) -> Ranges:
        """Return the ranges that `keep` marks."""
        return Ranges(
            self.thread[keep], self.start[keep], self.end[keep], self.name[keep], self.names
        )

    def named(self, wanted: Callable[[str], bool]) -> Ranges:
        """Return the ranges whose text is wanted; asked once per distinct text."""
        return self.where(np.array([wanted(text) for text in self.names] or [False])[self.name])

    def nest(self) -> Nest:
        """Sort them for look-ups."""
        return Nest.of(self.thread, self.start, self.end)


def read_ranges(recording: Recording, threads: Threads) -> dict[str, Ranges]:
    """Return the ranges by kind."""
    kind, kinds = code_column(recording.read("ranges", ["kind"]), "kind")
    return {
        text: _ranges_at(recording, threads, np.flatnonzero(kind == code))
        for code, text in enumerate(kinds)
    }


def _ranges_at(recording: Recording, threads: Threads, rows: Int) -> Ranges:
    thread = threads.number(recording.read("ranges", ["pid", "tid"], rows))
    start, dur = (
        int_column(recording.read("ranges", [name], rows), name, 0)
        for name in ("start_ns", "dur_ns")
    )
    name, names = code_column(recording.read("ranges", ["name"], rows), "name")
    return Ranges(thread, start, start + dur, name, names)


NO_RANGES: Final = Ranges(
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    [],
)


def step_number(name: str) -> int | None:
    """Return the number of a step by the text of its range: the first number in it."""
    match = _STEP_NUMBER.search(name)
    return int(match[0]) if match else None


def link_steps(steps: Ranges, threads: Threads, thread: Int, time: Int) -> Int:
    """Return the number of the step range, on any thread of the process, that holds each time."""
    numbers = [step_number(text) for text in steps.names]
    number_of = np.array([NO_ID if n is None else n for n in numbers] or [NO_ID], np.int64)
    process = threads.process(steps.thread)
    found = Nest.of(process, steps.start, steps.end).innermost(threads.process(thread), time)
    return _pick(number_of[steps.name], found)


def _pick(values: Int, found: Int) -> Int:
    if not len(values):
        return np.full(len(found), NO_ID, np.int64)
    return np.where(found >= 0, values[found], NO_ID)


def link_layers(modules: Ranges, layers: Ranges, ops: Ops, forward: Int) -> tuple[Int, list[str]]:
    """Return the layer of each op as a code, -1 for none, and the layers.

    The innermost of the ranges whose text is the whole layer, else the texts of the module frames
    around it, outermost first, joined by dots.

    Args:
        modules: the module frames.
        layers: the ranges whose text is the whole layer.
        ops: the nested ops.
        forward: of each op in backward its forward op, -1 for none.
    """
    paths = ModulePaths(modules, ops, forward)
    layer = paths.at(ops.thread, ops.start)
    named = layers.nest().innermost(ops.thread, ops.start)
    if len(layers.name):
        named = np.where(named >= 0, len(paths.texts) + layers.name[named], -1)
    return np.where(named >= 0, named, layer), paths.texts + layers.names


def link_sharded(
    annotations: Ranges, layers: Sequence[str | None], thread: Int, time: Int
) -> TextColumn:
    """Return the layer that FSDP works for at each (thread, time), as codes.

    Args:
        annotations: the ranges that FSDP's are among.
        layers: the paths of the layers that are known; what FSDP calls one may lack the beginning.
        thread: of each op.
        time: its start.
    """
    layer_of = [_sharded_layer(text, layers) for text in annotations.names]
    has_one = np.array([text is not None for text in layer_of] or [False])
    ranges = annotations.where(has_one[annotations.name])
    found = ranges.nest().innermost(thread, time)
    return lookup(ranges.name, found, -1), [text or "" for text in layer_of]


def _sharded_layer(text: str, layers: Sequence[str | None]) -> str | None:
    match = _SHARDED.fullmatch(text)
    if match is None:
        return None
    path = match["layer"] or match["next"]
    fitting = {layer for layer in layers if layer and f".{layer}".endswith(f".{path}")}
    return path if path in fitting else fitting.pop() if len(fitting) == 1 else None


def is_sharded_backward(name: str) -> bool:
    """Whether a range is work that FSDP does in backward, which need not be inside a node."""
    return name.startswith("FSDP::") and "backward" in name


def is_optimizer_step(name: str) -> bool:
    """Whether a range is an optimizer's step."""
    return name.startswith("Optimizer.step#")


def is_other_work(name: str) -> bool:
    """Whether a range is work around the step: zeroing gradients, loading data."""
    return name.startswith(("Optimizer.zero_grad#", "enumerate(DataLoader)#"))


DIRECTIONS: Final = ["forward", "backward", "optimizer", "other"]


_FORWARD, _BACKWARD, _OPTIMIZER, _OTHER = range(len(DIRECTIONS))


@dataclass(frozen=True)
class Surroundings:
    """Where the innermost of each kind begins that is around an op; `NO_ID` for none.

    Attributes:
        step: the step of an optimizer.
        other: work around it.
        module: the call of a module.
        node: a backward node.
    """

    step: Int
    other: Int
    module: Int
    node: Int

    @classmethod
    def of(cls, ops: Ops, step: Ranges, other: Ranges, modules: Sequence[Ranges]) -> Surroundings:
        """Look for what is around the ops."""
        node = nearest_marked(ops.parent, ops.node)
        return cls(
            _innermost_start(step, ops),
            _innermost_start(other, ops),
            np.maximum.reduce([_innermost_start(m, ops) for m in (*modules, NO_RANGES)]),
            _pick(ops.start, node),
        )

    def is_deepest(self, starts: Int, ops: Ops) -> Bool:
        """Return which ops have one of these as the innermost of all."""
        # In a backward node, numbers tell what a module runs again, not its call.
        module = np.where(ops.backward, NO_ID, self.module)
        deepest = np.maximum.reduce([self.step, self.other, module, self.node])
        found: Bool = (starts == deepest) & (deepest > NO_ID)
        return found


def link_directions(
    ops: Ops, threads: Threads, annotations: Ranges, modules: Sequence[Ranges] = ()
) -> Int:
    """Return the direction of each op as a code into `DIRECTIONS`.

    Of an optimizer's step, other work, a module call and a backward node, what begins last around
    an op decides. In the step of an optimizer that was given a closure, ops with an autograd number
    outside of backward are the closure's: forward. What runs between backward and the optimizer's
    step outside of modules, such as clipping gradients, is other work.

    Args:
        ops: the ops.
        threads: the numbers of their threads.
        annotations: ranges, among them the steps of optimizers and the work around them.
        modules: ranges of module calls, of any kinds.
    """
    step, other = (annotations.named(is_kind) for is_kind in (is_optimizer_step, is_other_work))
    around = Surroundings.of(ops, step, other, modules)
    fused = np.array([bool(_OPTIMIZER_OP.match(text)) for text in ops.names] or [False])[ops.name]
    sharded = annotations.named(is_sharded_backward).nest().holds(ops.thread, ops.start)
    direction = np.where(ops.backward | ops.between | sharded, _BACKWARD, _FORWARD)
    direction[around.is_deepest(around.other, ops)] = _OTHER
    direction[nearest_marked(ops.parent, fused) >= 0] = _OPTIMIZER
    direction = np.where(ops.annotated.direction >= 0, ops.annotated.direction, direction)
    stepping = around.is_deepest(around.step, ops)
    has_closure = stepping & _has_closure(ops, threads, step)
    in_closure = has_closure & _is_numbered(ops, around)
    direction[stepping] = np.where(in_closure[stepping], _FORWARD, _OPTIMIZER)
    # The gradient that backward starts from has no number.
    root = has_closure & _between(_FORWARD, _BACKWARD, ops, threads, direction)
    direction[root] = _FORWARD
    loose = (direction == _FORWARD) & ~stepping & ~ops.recompute & (around.module == NO_ID)
    direction[loose & _between(_BACKWARD, _OPTIMIZER, ops, threads, direction)] = _OTHER
    return direction


def _innermost_start(ranges: Ranges, ops: Ops) -> Int:
    return _pick(ranges.start, ranges.nest().innermost(ops.thread, ops.start))


def _has_closure(ops: Ops, threads: Threads, step: Ranges) -> Bool:
    """Return which ops are in optimizers' steps that run backward, on any thread of the process.

    Some optimizers compute with gradients themselves: without backward in it, a step has no
    closure.
    """
    rows = np.flatnonzero(ops.node)
    node = Nest.of(threads.process(ops.thread[rows]), ops.start[rows], ops.start[rows])
    last = last_not_after(node.thread, node.start, threads.process(step.thread), step.end)
    has_closure = (_pick(node.start, last) >= step.start).astype(np.int64)
    return _pick(has_closure, step.nest().innermost(ops.thread, ops.start)) > 0


def _is_numbered(ops: Ops, around: Surroundings) -> Bool:
    """Return which ops outside of nodes have an autograd number, or one around them in the step."""
    marked = ops.marked
    numbered = (_pick(ops.sequence, marked) >= 0) & (_pick(ops.start, marked) >= around.step)
    found: Bool = (numbered | (ops.annotated.direction == _FORWARD)) & (around.node == NO_ID)
    return found


def _between(first: int, then: int, ops: Ops, threads: Threads, direction: Int) -> Bool:
    """Return which ops come between ops of two directions, of all in their process with either.

    Backward may run on other threads; the others are on the thread of the op itself.
    """
    work = np.flatnonzero((direction == first) | (direction == then))
    process = threads.process(ops.thread)
    nest = Nest.of(process[work], ops.start[work], ops.start[work])
    work = work[nest.order]
    before = last_not_after(nest.thread, nest.start, process, ops.start)
    between: Bool = (before >= 0) & (before + 1 < len(work))
    rows = np.flatnonzero(between)
    for code, at in ((first, work[before[rows]]), (then, work[before[rows] + 1])):
        on_thread = (ops.thread[at] == ops.thread[rows]) | (code == _BACKWARD)
        here = on_thread & (process[at] == process[rows])
        between[rows] &= here & (direction[at] == code)
    return between
