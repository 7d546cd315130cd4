"""What each op is at a line of code: the call that it is a part of, its phase, where it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pyprof2.analysis.intervals import nearest_marked
from pyprof2.analysis.linking.link import DIRECTIONS
from pyprof2.analysis.linking.passes import ENGINE
from pyprof2.columns import lookup, short
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.columns import TextColumn

PHASES: Final = (*DIRECTIONS, "recompute")
"""What a line's time is spent in: a direction, or a forward op that runs again in backward."""

_RECOMPUTE: Final = len(DIRECTIONS)
INPUT: Final = (
    "op", "parent_op_id", "forward_op_id", "stack_id", "layer", "direction", "recompute",
)  # fmt: skip
"""The columns of `ops` that this is found in."""


class LineOps(NamedTuple):
    """The ops of a rank, in order of `op_id`; codes and positions are -1 for none.

    Attributes:
        stack: row in `stacks`.
        at: position of the call at the line that the op is a part of; see `call`.
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
    parent, forward, stack = (
        short(int_column(ops, name, -1)) for name in ("parent_op_id", "forward_op_id", "stack_id")
    )
    begins = (parent < 0) | (lookup(stack, parent, -1) != stack)
    call = nearest_marked(parent, begins)
    # What a node does belongs to what was called in forward, if that is of the same line.
    origin = np.where(forward >= 0, forward, lookup(forward, call, -1))
    same = (origin >= 0) & (lookup(stack, origin, -1) == stack)
    call = np.where(same, lookup(call, origin, -1), call)
    name, names = code_column(ops, "op")
    called = (lookup(name, call, -1), [text.removeprefix(ENGINE) for text in names])
    return LineOps(stack, short(call), called, code_column(ops, "layer"), _phases(ops), begins)


def _phases(ops: pa.Table) -> Int:
    code, words = code_column(ops, "direction")
    of_word = [DIRECTIONS.index(word) if word in DIRECTIONS else -1 for word in words]
    again = ops["recompute"].fill_null(False).to_numpy()  # noqa: FBT003
    phase: Int = np.where(again, _RECOMPUTE, np.array([*of_word, -1], np.int32)[code])
    return phase
