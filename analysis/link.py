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
    nearest_marked,
    time_without_children,
)
from pyprof2.columns import lookup, merge_texts
from pyprof2.frames import user_source
from pyprof2.recording import Recording, code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from pyprof2.columns import TextColumn

NO_ID: Final = -(1 << 62)
"""Stands for null in int64 columns."""

_BACKWARD_NAME: Final = re.compile(
    r"autograd::engine::evaluate_function: |.*Backward\d*\Z", re.DOTALL
)
_NO_BACKWARD_NAME: Final = re.compile(r"RegisterPostBackwardFunction\Z")
_OPTIMIZER_OP: Final = re.compile(r"aten::_fused_(?:adam|adamw|sgd|adagrad)")
_MODULE_DEPTH_MAX: Final = 200
"""Modules that are nested deeper are damage, and their paths would fill the memory."""
_STEP_NUMBER: Final = re.compile(r"(?<!\d)(\d{1,18})\D*\Z")


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
class Told:
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
    def of(cls, recording: Recording, row: Int) -> Told:
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

    Rows refer to each other by position, -1 for none. `node` marks the ops that are backward by
    name or number; `marked` the nearest op around (or itself) that is one, or has a sequence
    number, which is what decides direction.
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
    nest: Nest
    told: Told

    def __len__(self) -> int:
        return len(self.start)


def link_ops(recording: Recording, threads: Threads) -> Ops:
    """Return the ops in start order, nested, with direction as far as autograd tells it."""
    start, dur, recorded = (
        int_column(recording.read("ops", [name]), name, missing)
        for name, missing in (("start_ns", 0), ("dur_ns", 0), ("recorded_id", NO_ID))
    )
    row = np.lexsort((recorded, -dur, start))
    start, end = start[row], start[row] + dur[row]
    del recorded, dur
    table = recording.read("ops", ["pid", "tid", "op", "sequence_nr", "forward_thread"], row)
    thread = threads.number(table)
    name, names = code_column(table, "op")
    sequence = int_column(table, "sequence_nr", -1)
    forward_thread = int_column(table, "forward_thread", 0)
    del table
    nest = Nest.of(thread, start, end)
    parent = nest.parents()
    is_backward_name = np.array([_is_backward_name(text) for text in names] or [False])
    told = Told.of(recording, row)
    node = is_backward_name[name] | (forward_thread > 0)
    node |= told.direction == DIRECTIONS.index("backward")
    marked = nearest_marked(parent, node | (sequence >= 0))
    inside = nearest_marked(parent, node) >= 0
    # Around what decides the direction there may be a backward op although it is none itself.
    recompute = (marked >= 0) & ~node[marked] & inside[marked] if len(node) else inside
    recompute |= told.recompute
    self_ns = (
        innermost_time(thread, start, end)
        if nest.overlaps()
        else time_without_children(parent, end - start)
    )
    return Ops(
        row, thread, start, end, name, names, sequence, forward_thread, parent, depths(parent),
        self_ns, node, marked, inside & ~recompute, recompute, nest, told,
    )  # fmt: skip


def _is_backward_name(name: str) -> bool:
    return bool(_BACKWARD_NAME.match(name)) and not _NO_BACKWARD_NAME.search(name)


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
    """Return the number of a step that a range is called by: the last one in its text."""
    match = _STEP_NUMBER.search(name)
    return int(match[1]) if match else None


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


def link_layers(modules: Ranges, layers: Ranges, thread: Int, time: Int) -> tuple[Int, list[str]]:
    """Return the layer of each (thread, time) as a code, -1 for none, and the layers.

    The innermost of the ranges whose text is the whole layer, else the texts of the module frames
    around it, outermost first, joined by dots.
    """
    nest = modules.nest()
    path, paths = _module_paths(modules, nest.parents())
    layer = np.where(
        (found := nest.innermost(thread, time)) >= 0, path[found] if len(path) else -1, -1
    )
    named = layers.nest().innermost(thread, time)
    if len(layers.name):
        named = np.where(named >= 0, len(paths) + layers.name[named], -1)
    return np.where(named >= 0, named, layer), paths + layers.names


def _module_paths(modules: Ranges, parent: Int) -> tuple[Int, list[str]]:
    """Return the dotted path of each module range as a code, level by level from the root."""
    depth = depths(parent)
    path = np.full(len(parent), -1, np.int64)
    paths: list[str] = []
    for level in range(min(int(depth.max(initial=-1)) + 1, _MODULE_DEPTH_MAX)):
        rows = np.flatnonzero(depth == level)
        above = path[parent[rows]] if level else np.full(len(rows), -1)
        pairs, inverse = np.unique(
            np.stack((above, modules.name[rows])), axis=1, return_inverse=True
        )
        path[rows] = len(paths) + inverse.reshape(-1)
        paths += [
            f"{paths[a]}.{modules.names[n]}" if a >= 0 else modules.names[n]
            for a, n in pairs.T.tolist()
        ]
    return path, paths


def link_sources(
    frames: Ranges, lines: Ranges, root: str | None, thread: Int, time: Int
) -> TextColumn:
    """Return `path:line` of the innermost frame of user code at each (thread, time), as codes.

    Frames below the folder `root` come first, if there are any around the time. Where there are no
    frames, the innermost of the ranges whose text is the whole line counts.
    """
    line = lines.nest().innermost(thread, time)
    found = merge_texts(
        _innermost_frame(frames, None, thread, time), (lookup(lines.name, line, -1), lines.names)
    )
    if root is None:
        return found
    return merge_texts(_innermost_frame(frames, root, thread, time), found)


def _innermost_frame(
    frames: Ranges, root: str | None, thread: Int, time: Int
) -> tuple[Int, list[str]]:
    texts = [user_source(name, root) for name in frames.names]
    user = frames.where(np.array([text is not None for text in texts] or [False])[frames.name])
    found = user.nest().innermost(thread, time)
    code = np.where(found >= 0, user.name[found], -1) if len(user.name) else found
    return code, [text or "" for text in texts]


def is_optimizer_step(name: str) -> bool:
    """Whether a range is an optimizer's step."""
    return name.startswith("Optimizer.step#")


def is_other_work(name: str) -> bool:
    """Whether a range is work around the step: zeroing gradients, loading data."""
    return name.startswith(("Optimizer.zero_grad#", "enumerate(DataLoader)#"))


DIRECTIONS: Final = ["forward", "backward", "optimizer", "other"]


def link_directions(ops: Ops, annotations: Ranges) -> Int:
    """Return the direction of each op as a code into `DIRECTIONS`."""
    direction = np.zeros(len(ops), np.int64)
    other = annotations.named(is_other_work).nest()
    direction[other.holds(ops.thread, ops.start)] = 3
    step = annotations.named(is_optimizer_step).nest()
    fused = np.array([bool(_OPTIMIZER_OP.match(text)) for text in ops.names] or [False])[ops.name]
    fused = nearest_marked(ops.parent, fused) >= 0
    direction[fused | step.holds(ops.thread, ops.start)] = 2
    direction[ops.backward] = 1
    return np.where(ops.told.direction >= 0, ops.told.direction, direction)
