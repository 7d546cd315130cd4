"""Where the shapes behind an op's counts are from, found out by doing the estimate again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.analysis.costs import Estimate, estimate, result_inside
from pyprof2.recording import code_column, int_column
from pyprof2.signatures import OpCall, Tensor, format_signature, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

_NODE_NAME: Final = re.compile(r"\w*Backward\d*")


@dataclass(frozen=True)
class Calls:
    """The ops of one rank and what they were called with, by id."""

    ops: pa.Table
    parent: Int
    forward: Int
    signature: Int
    inputs: list[str | None]

    @classmethod
    def of(cls, ops: pa.Table, signatures: pa.Table) -> Calls:
        """Take the tables `ops` and `signatures` of one rank, in order of their ids."""
        return cls(
            ops,
            int_column(ops, "parent_op_id", -1),
            int_column(ops, "forward_op_id", -1),
            int_column(ops, "signature_id", -1),
            signatures["inputs"].to_pylist(),
        )

    def name(self, op: int) -> str:
        """Return the name of an op."""
        return str(self.ops["op"][op].as_py())

    def call(self, op: int) -> OpCall | None:
        """Return what an op was called with; None where that was not recorded."""
        inputs = self.inputs[self.signature[op]] if self.signature[op] >= 0 else None
        return None if inputs is None else OpCall(self.name(op), parse_inputs(inputs))

    def around(self, op: int) -> Iterator[int]:
        """Give the op and those around it, the innermost first."""
        while op >= 0:
            yield op
            op = int(self.parent[op])

    def nodes_of(self, op: int) -> list[int]:
        """Return the autograd nodes whose forward op this is."""
        rows = np.flatnonzero(self.forward == op)
        codes, names = code_column(self.ops, "op")
        is_node = [bool(_NODE_NAME.fullmatch(text)) for text in names]
        return [row for row in rows.tolist() if is_node[codes[row]]]


class Source(NamedTuple):
    """The estimate that gives an op's counts, and in words what it rests on."""

    estimate: Estimate
    words: str


def shape_source(calls: Calls, op: int) -> Source | None:
    """Return what an op's counts rest on; None where it has none, or none that can be repeated."""
    call = calls.call(op)
    row = calls.ops.slice(op, 1).to_pylist()[0]
    if call is None or row["cost_status"] not in {"ok", "assumed"}:
        return None
    for forward, output, words in _contexts(calls, op, call):
        found = estimate(call, forward, output)
        if _agrees(found, row):
            return Source(found, words)
    return None


def _contexts(
    calls: Calls, op: int, call: OpCall
) -> Iterator[tuple[OpCall | None, Tensor | None, str]]:
    """Give what may be known of a call from elsewhere, the least first."""
    yield None, None, "the inputs recorded with the op"
    forward = int(calls.forward[op])
    known = calls.call(forward) if forward >= 0 else None
    if known is not None:
        text = f"its inputs, and those of its forward op op:{forward}: {format_signature(known)}"
        yield known, None, text
    for output, words in _outputs(calls, op, call):
        text = f"its inputs, and the shape of its result, [{','.join(map(str, output.shape))}]"
        yield known, output, f"{text}: {words}"


def _outputs(calls: Calls, op: int, call: OpCall) -> Iterator[tuple[Tensor, str]]:
    for outer in calls.around(op):
        if nodes := calls.nodes_of(outer):
            gradient = calls.call(nodes[-1])
            first = gradient.inputs[0] if gradient and gradient.inputs else None
            if isinstance(first, Tensor):
                yield first, f"the gradient that {calls.name(nodes[-1])} got (op:{nodes[-1]})"
            break
    inside = (calls.call(row) for row in np.flatnonzero(calls.parent == op).tolist())
    result = result_inside(call, [other for other in inside if other is not None])
    if result is not None:
        yield result, "an op inside makes a view of it"


def _agrees(found: Estimate, row: dict[str, Any]) -> bool:
    cost = found.cost
    if cost is None:
        return False
    return (cost.flops, cost.bytes, cost.params or None, found.status) == tuple(
        row[name] for name in ("flops", "bytes", "params", "cost_status")
    )
