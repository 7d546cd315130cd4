"""Where the shapes behind an op's counts are from, found out by doing the estimate again."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from pyprof2.analysis.costs import NOTHING_KNOWN, Context, Estimate, estimate, told
from pyprof2.analysis.hardware.kernel_names import elements_of
from pyprof2.recording import code_column, int_column
from pyprof2.signatures import OpCall, Tensor, format_signature, format_text, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from pyprof2.analysis.intervals import Int

_NODE_NAME: Final = re.compile(r"\w*Backward\d*|.*CppNode<.*")


@dataclass(frozen=True)
class Calls:
    """The ops of one rank and what they were called with, by id."""

    ops: pa.Table
    parent: Int
    forward: Int
    signature: Int
    inputs: list[str | None]
    kernels: pa.Table

    @classmethod
    def of(cls, ops: pa.Table, signatures: pa.Table, kernels: pa.Table) -> Calls:
        """Take the tables of one rank, in order of their ids."""
        return cls(
            ops,
            int_column(ops, "parent_op_id", -1),
            int_column(ops, "forward_op_id", -1),
            int_column(ops, "signature_id", -1),
            signatures["inputs"].to_pylist(),
            kernels.select(["cost_op_id", "kernel"]),
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

    def after(self, op: int) -> int:
        """Return the op that follows inside the same op, -1 for none."""
        siblings = np.flatnonzero(self.parent == self.parent[op])
        following = siblings[siblings > op]
        return int(following[0]) if len(following) and self.parent[op] >= 0 else -1

    def next_top(self, op: int) -> int:
        """Return the op outside of any that follows such a one on its thread, -1 for none."""
        tops = np.flatnonzero(self.parent < 0)
        for name in ("pid", "tid"):
            column = int_column(self.ops, name, -1)
            tops = tops[column[tops] == column[op]]
        tops = tops[tops > op]
        return int(tops[0]) if len(tops) and self.parent[op] < 0 else -1

    def elements(self, op: int) -> Iterator[tuple[tuple[str, ...], str]]:
        """Give the element types that kernels of the op work on, and the kernels' names."""
        own = self.kernels.filter(pc.equal(self.kernels["cost_op_id"], op))
        for kernel in dict.fromkeys(own["kernel"].to_pylist()):
            if elements := elements_of(kernel or ""):
                yield elements, kernel


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
    for context, words in _contexts(calls, op, call):
        found = estimate(call, context)
        if _agrees(found, row):
            return Source(found, words)
    return None


def _contexts(calls: Calls, op: int, call: OpCall) -> Iterator[tuple[Context, str]]:
    """Give what may be known of a call from elsewhere, the least first."""
    yield NOTHING_KNOWN, "the inputs recorded with the op"
    forward = int(calls.forward[op])
    context = Context(forward=calls.call(forward) if forward >= 0 else None)
    if context.forward is not None:
        text = format_signature(context.forward)
        yield context, f"its inputs, and those of its forward op op:{forward}: {text}"
    for more, words in _told(calls, op, call):
        yield replace(more, forward=context.forward), f"its inputs, and {words}"


def _told(calls: Calls, op: int, call: OpCall) -> Iterator[tuple[Context, str]]:
    for outer in calls.around(op):
        if nodes := calls.nodes_of(outer):
            gradient = calls.call(nodes[-1])
            first = gradient.inputs[0] if gradient and gradient.inputs else None
            if isinstance(first, Tensor):
                words = f"the gradient that {calls.name(nodes[-1])} got (op:{nodes[-1]})"
                yield Context(output=first), f"{_shape_text(first)}: {words}"
            break
    following = calls.next_top(op)
    other = calls.call(following) if following >= 0 else None
    seen = other.inputs[0] if other and other.inputs else None
    if isinstance(seen, Tensor):
        words = f"{_shape_text(seen)}: the input of the next call (op:{following})"
        yield Context(following=seen), words
    inside = [calls.call(row) for row in np.flatnonzero(calls.parent == op).tolist()]
    others = [other for other in inside if other is not None]
    found = told(call, others)
    parts = [_shape_text(found.output)] if found.output is not None else []
    parts += [f"the index {format_text(item)}" for item in found.indices]
    if parts:
        yield found, f"{', '.join(parts)}: an op inside makes a view of it"
    following = calls.after(op)
    found = told(call, others, calls.call(following) if following >= 0 else None)
    if found.output is not None:
        view = f"{calls.name(following)} (op:{following}) makes a view of it"
        yield found, f"{_shape_text(found.output)}: {view}"
    node = calls.call(int(calls.parent[op])) if calls.parent[op] >= 0 else None
    repeated = node.inputs[0] if node and node.inputs else None
    if node and isinstance(repeated, Tensor):
        words = f"its node's gradient, {format_text(repeated)}, which {node.op} repeats"
        yield Context(repeated=repeated), words
    for elements, kernel in calls.elements(op):
        types = " and ".join(elements)
        yield Context(elements=elements), f"elements of {types}, as the kernel says: {kernel}"


def _shape_text(result: Tensor) -> str:
    return f"the shape of its result, [{','.join(map(str, result.shape))}]"


def _agrees(found: Estimate, row: dict[str, Any]) -> bool:
    cost = found.cost
    if cost is None:
        return False
    return (cost.flops, cost.bytes, cost.params or None, found.status) == tuple(
        row[name] for name in ("flops", "bytes", "params", "cost_status")
    )
