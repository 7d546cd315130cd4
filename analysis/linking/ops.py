"""The ops of a recording, nested, with what autograd's numbers say of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from pyprof2.analysis.intervals import (
    Bool,
    Int,
    Nest,
    depths,
    innermost_time,
    time_without_children,
)
from pyprof2.analysis.linking.passes import ENGINE, NestedCalls, find_passes
from pyprof2.analysis.linking.ranges import ranges_at
from pyprof2.analysis.linking.threads import NO_ID, Threads
from pyprof2.columns import order_of
from pyprof2.problems import TRACED_OPS
from pyprof2.recording import Recording, code_column, int_column
from pyprof2.signatures import DIRECTIONS

_COMPILING: Final = " (dynamo_timed)"
"""How the names of the ranges end in which torch.compile compiles."""


def is_envelope(op: str) -> bool:
    """Return whether an op only holds what autograd's engine runs: its range, or a node."""
    return op.startswith(("autograd::engine::", "torch::autograd::")) or (
        "::" not in op and op.rstrip("0123456789").endswith("Backward")
    )


@dataclass(frozen=True)
class Annotated:
    """Facts that an annotation states of each op itself; -1 and False where there is none.

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
        if not any(recording.spool.known[("ops", name)] for name in names):
            return cls.none(len(row))
        table = recording.read("ops", names, row)
        code, words = code_column(table, "direction")
        of_code = np.array(
            [*(DIRECTIONS.index(word) if word in DIRECTIONS else -1 for word in words), -1]
        )
        recompute, accumulate = (
            table[name].fill_null(False).to_numpy()  # noqa: FBT003
            for name in ("recompute", "accumulate")
        )
        return cls(of_code[code], recompute, accumulate, int_column(table, "thread_nr", -1))

    @classmethod
    def none(cls, count: int) -> Annotated:
        """Return that nothing is said of so many ops, in columns that take no memory."""
        no_code: Int = np.broadcast_to(np.array(-1, np.int64), count)
        no_flag: Bool = np.broadcast_to(np.array([False]), count)
        return cls(no_code, no_flag, no_flag, no_code)


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
    """Return the ops in start order, nested, with direction as far as it follows from autograd."""
    start, dur, recorded = (
        int_column(recording.read("ops", [name]), name, missing)
        for name, missing in (("start_ns", 0), ("dur_ns", 0), ("recorded_id", NO_ID))
    )
    row = _rows_that_ran(recording, threads, order_of(start, -dur, recorded), start)
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
    # The engine's range has the numbers of the node in it: Kineto gives them to both only
    # where nothing runs in between, such as hooks.
    codes = {text: code for code, text in enumerate(names)}
    evaluated = [codes.get(text.removeprefix(ENGINE), -1) for text in names]
    inner = np.array([-1 if code == at else code for at, code in enumerate(evaluated)] or [-1])
    node = np.flatnonzero((parent >= 0) & (numbers[0] >= 0))
    outer = parent[node]
    lacks = (inner[name[outer]] == name[node]) & (numbers[0][outer] < 0)
    numbers[:, outer[lacks]] = numbers[:, node[lacks]]
    sequence, forward_thread = numbers
    annotated = Annotated.of(recording, row)
    backward, forward = (DIRECTIONS.index(word) for word in ("backward", "forward"))
    passes = find_passes(
        NestedCalls(
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
    texts = recording.spool.texts["ranges"]["name"]
    compiles = any(str(text).endswith(_COMPILING) for text in texts)
    if not compiles or recording.spool.known["activities", "start_ns"]:
        return row
    # An older torch records them like ranges of the user's.
    name, names = code_column(recording.read("ranges", ["name"]), "name")
    is_own = np.array([*(text.endswith(_COMPILING) for text in names), False])
    ranges = ranges_at(recording, threads, np.flatnonzero(is_own[name]))
    thread = threads.number(recording.read("ops", ["pid", "tid"], row))
    traced = ranges.nest().holds(thread, start[row])
    if traced.any():
        recording.skipped[TRACED_OPS] += int(traced.sum())
    return row[~traced]
