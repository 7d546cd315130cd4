"""Each op at a line of code: the call that it is a part of, its phase, where it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.chunked import RunningCodes, Tail
from pyprof2.analysis.intervals import nearest_marked
from pyprof2.analysis.linking.passes import ENGINE
from pyprof2.columns import lookup, short
from pyprof2.recording import code_column, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.columns import TextColumn

PHASES: Final = (*DIRECTIONS, "recompute")
"""The phases that a line's time is spent in; `recompute`: forward ops run again in backward."""

_RECOMPUTE: Final = len(DIRECTIONS)
INPUT: Final = (
    "op", "parent_op_id", "forward_op_id", "stack_id", "layer", "direction", "recompute",
)  # fmt: skip
"""The columns of `ops` that this is found in."""
OF_NODES: Final = ("op", "forward_op", "call_node", "stack_id", "layer", "direction", "recompute")
"""The columns of `graph_nodes` that this is found in."""


class LineOps(NamedTuple):
    """Ops of a rank, in order of `op_id`; codes and positions are -1 for none.

    Attributes:
        stack: row in `stacks`.
        at: `op_id` of the call at the line that the op is a part of; see `call`.
        call: name of the call at the line that the op is a part of; of an op in backward the one
            whose gradient it computes.
        layer: the layer.
        phase: code into `PHASES`.
        begins: whether the line calls the op itself, not another op.
    """

    stack: Int
    at: Int
    call: TextColumn
    layer: TextColumn
    phase: Int
    begins: Bool


def line_ops(ops: pa.Table) -> LineOps:
    """Return what each op is at its line.

    Args:
        ops: the columns `INPUT` of the canonical table of one rank, in order of `op_id`.
    """
    return OpsAtLines().add(ops)


class _Call(NamedTuple):
    """A call for each op: its position, its name, and its stack; positions are -1 for none."""

    at: Int
    name: Int
    stack: Int

    def where(self, choose: Bool, other: _Call) -> _Call:
        """Return these, or others where they are not chosen."""
        return _Call(*(np.where(choose, a, b) for a, b in zip(self, other, strict=True)))

    def of(self, rows: Int) -> _Call:
        """Return those of some rows."""
        return _Call(*(each[rows] for each in self))


class _Calls:
    """The call of each op so far."""

    def __init__(self) -> None:
        self._columns = [Tail() for _ in _Call._fields]

    def extend(self, calls: _Call) -> None:
        """Add those of the next ops."""
        for column, values in zip(self._columns, calls, strict=True):
            column.extend(values)

    def at(self, rows: Int) -> _Call:
        """Return those of some ops."""
        return _Call(*(column.at(rows) for column in self._columns))

    def forget(self, before: int) -> None:
        """Let go of the ops before this one."""
        for column in self._columns:
            column.forget(before)


class OpsAtLines:
    """Finds what ops are at their lines, from stretch to stretch of the table of ops.

    An op may be a part of one of an earlier stretch, and so may its forward op: of these it is
    known what they are, until they are forgotten.
    """

    def __init__(self) -> None:
        self._count = 0
        # The call that each op is a part of, and that of the forward op of this call.
        self._calls, self._origins = _Calls(), _Calls()
        self._names, self._layers = RunningCodes(), RunningCodes()

    def add(self, ops: pa.Table) -> LineOps:
        """Return what the next ops are.

        Args:
            ops: the columns `INPUT`; none has a forward op after them.
        """
        parent, forward, stack = (
            short(int_column(ops, name, -1))
            for name in ("parent_op_id", "forward_op_id", "stack_id")
        )
        begins, call, origin = self._called(ops, parent, forward, stack)
        # The work of a node belongs to what was called in forward, if that is of the same line.
        call = origin.where((origin.at >= 0) & (origin.stack == stack), call)
        names = [text.removeprefix(ENGINE) for text in self._names.texts]
        layer = self._layers.add(ops, "layer"), self._layers.texts
        return LineOps(stack, short(call.at), (call.name, names), layer, _phases(ops), begins)

    def _called(
        self, ops: pa.Table, parent: Int, forward: Int, stack: Int
    ) -> tuple[Bool, _Call, _Call]:
        """Return which ops begin at their line, the call of each, and that of its forward op."""
        first = self._count
        self._count += len(stack)
        inside = np.where(parent >= first, parent - first, -1)
        outside = np.where(inside < 0, parent, -1)
        around = self._calls.at(outside)
        above = np.where(inside >= 0, lookup(stack, inside, -1), around.stack)
        begins = (parent < 0) | (above != stack)
        own = _Call(first + np.arange(len(stack)), self._names.add(ops, "op"), stack)
        # Up to the op that begins at the line, or to one whose parent is known already.
        top = nearest_marked(inside, begins | (inside < 0))
        call = own.where(begins, around).of(top)
        self._calls.extend(call._replace(stack=stack))
        made = self._calls.at(forward)
        of_call = made.where(begins, self._origins.at(outside)).of(top)
        self._origins.extend(of_call)
        return begins, call, made.where(forward >= 0, of_call)

    def of_nodes(self, nodes: pa.Table, first: int) -> LineOps:
        """Return what the ops of nodes of graphs are; each is a call of its own.

        Args:
            nodes: the columns `OF_NODES`.
            first: the position of the first node; those of ops are below.
        """
        stack, call = (int_column(nodes, name, -1) for name in ("stack_id", "call_node"))
        name, forward = (self._names.add(nodes, each) for each in ("op", "forward_op"))
        names = [text.removeprefix(ENGINE) for text in self._names.texts]
        layer = self._layers.add(nodes, "layer"), self._layers.texts
        return LineOps(
            short(stack), short(np.where(call >= 0, first + call, -1)),
            (np.where(forward >= 0, forward, name), names), layer, _phases(nodes),
            np.zeros(len(stack), bool),
        )  # fmt: skip

    def forget(self, before: int) -> None:
        """Let go of the ops before this one, of which no other is a part, nor the backward."""
        self._calls.forget(before)
        self._origins.forget(before)


def _phases(ops: pa.Table) -> Int:
    code, words = code_column(ops, "direction")
    of_word = [DIRECTIONS.index(word) if word in DIRECTIONS else -1 for word in words]
    again = ops["recompute"].fill_null(False).to_numpy()  # noqa: FBT003
    phase: Int = np.where(again, _RECOMPUTE, np.array([*of_word, -1], np.int32)[code])
    return phase
