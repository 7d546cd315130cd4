"""What is known of each call from elsewhere in the recording, for the formulas that lack it.

Recordings hold inputs only, and of lists of tensors not their element types. The rest is found
where it shows: in the forward op, in the gradient that a node of autograd got first (it has the
shape of its forward op's result), in the calls inside an op and right after it, and in the names
of an op's kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.analysis.costs import (
    NOTHING_KNOWN,
    REDUCING_OPS,
    TELLING_OPS,
    Context,
    category_of,
    told,
)
from pyprof2.analysis.hardware.kernel_names import elements_of
from pyprof2.analysis.intervals import Bool, Int, nearest_marked
from pyprof2.columns import TextColumn, combine_keys, lookup
from pyprof2.recording import TextCodes
from pyprof2.signatures import OpCall, Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.linking.link import Ops
    from pyprof2.analysis.linking.pair import Pairs
    from pyprof2.recording import Signature

_TOLD_BY_GRADIENT: Final = ("conv", "pool")
_NODE_NAME: Final = re.compile(r"\w*Backward\d*")

_MEAN_NODE: Final = re.compile(r"MeanBackward\d*")


class Calls:
    """The calls that signatures describe, parsed when they are first asked for."""

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self._signatures = signatures
        self._calls: dict[int, OpCall] = {}

    def __len__(self) -> int:
        return len(self._signatures)

    def __getitem__(self, number: int) -> OpCall:
        if number not in self._calls:
            op, _, inputs, _ = self._signatures[number]
            self._calls[number] = OpCall(op, parse_inputs(inputs))
        return self._calls[number]


@dataclass(frozen=True)
class Contexts:
    """The calls of a recording and what is known of them.

    Attributes:
        calls: the distinct calls.
        signature: for each op its call, -1 for none.
        which: for each op the position of what is known of it in `distinct`.
    """

    calls: Calls
    signature: Int
    which: Int
    distinct: list[Context]


def find_contexts(
    ops: Ops, pairs: Pairs, signature: Int, calls: Calls, kernels: tuple[Int, TextColumn]
) -> Contexts:
    """Return what is known of each op.

    Args:
        ops: the nested ops.
        pairs: their forward ops.
        signature: for each op its number in `calls`, -1 for none.
        calls: of the recording.
        kernels: of each kernel its op by position, -1 for none, and its name.
    """
    known: TextCodes = TextCodes()
    forward = np.where(ops.backward & (pairs.forward >= 0), signature[pairs.forward], -1)
    others = (
        _by_following(ops, signature, calls, known),
        _by_gradient(ops, pairs, signature, calls, known),
        _by_calls(ops, signature, calls, known),
        _by_node(ops, signature, calls, known),
        _by_kernels(ops, signature, calls, kernels, known),
    )
    more, of_more = _distinct(others)
    key = (forward + 1) * (len(more[0]) + 1) + of_more + 1
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    found = list(known)
    distinct = []
    for at in first.tolist():
        context = Context(forward=calls[forward[at]] if forward[at] >= 0 else None)
        for codes in more if of_more[at] >= 0 else ():
            code = codes[of_more[at]]
            context = _with(context, found[code]) if code >= 0 else context
        distinct.append(context)
    return Contexts(calls, signature, which, distinct)


def _distinct(columns: Sequence[Int]) -> tuple[list[Int], Int]:
    """Return the distinct rows of some columns, and for each row its number; -1: all are -1."""
    rows = np.flatnonzero(np.any([column >= 0 for column in columns], axis=0))
    chosen = [column[rows] for column in columns]
    _, first, inverse = np.unique(combine_keys(*chosen), return_index=True, return_inverse=True)
    number = np.full(len(columns[0]), -1, np.int64)
    number[rows] = inverse
    return [column[first] for column in chosen], number


def _with(context: Context, more: Context) -> Context:
    """Return what both say; the later one counts."""
    return replace(
        context,
        output=more.output or context.output,
        indices=more.indices or context.indices,
        elements=more.elements or context.elements,
        repeated=more.repeated or context.repeated,
        following=more.following or context.following,
    )


def _by_following(ops: Ops, signature: Int, calls: Calls, known: TextCodes) -> Int:
    """Return for each convolution outside of any op the code in `known` of the next such call."""
    category = [category_of(text) for text in ops.names]
    is_conv = np.array([text == "conv" for text in category] or [False])[ops.name]
    tops = np.flatnonzero(ops.parent < 0)
    tops = tops[np.argsort(ops.thread[tops], kind="stable")]
    pairs = np.flatnonzero(ops.thread[tops[1:]] == ops.thread[tops[:-1]])
    first, following = tops[pairs], signature[tops[pairs + 1]]
    asked = is_conv[first] & (signature[first] >= 0) & (following >= 0) & ~ops.backward[first]
    code = np.full(len(calls) + 1, -1, np.int64)
    for number in np.unique(following[asked]).tolist():
        seen = next(iter(calls[number].inputs), None)
        if isinstance(seen, Tensor):
            code[number] = known[Context(following=seen)]
    result = np.full(len(ops), -1, np.int64)
    result[first[asked]] = code[following[asked]]
    return result


def _by_gradient(ops: Ops, pairs: Pairs, signature: Int, calls: Calls, known: TextCodes) -> Int:
    """Return for each op the code in `known` of its result, as the node of autograd tells it."""
    category = [category_of(text) for text in ops.names]
    # Around a convolution are ops with the same result; others may be a part of anything.
    around = np.array([text in _TOLD_BY_GRADIENT for text in category] or [False])[ops.name]
    pooling = np.array([text == "embedding" for text in category] or [False])[ops.name]
    reducing = np.array([text in REDUCING_OPS for text in ops.names] or [False])[ops.name]
    is_node = np.array([bool(_NODE_NAME.fullmatch(text)) for text in ops.names] or [False])[
        ops.name
    ]
    is_node |= _of_cpp(ops) & (pairs.forward >= 0) & pooling[pairs.forward]
    nodes = np.flatnonzero(is_node & (pairs.forward >= 0) & (signature >= 0))
    own = np.full(len(ops), -1, np.int64)
    own[pairs.forward[nodes]] = signature[nodes]
    of = np.where(around, nearest_marked(ops.parent, own >= 0), -1)
    of = np.where(reducing | pooling, np.arange(len(ops)), of)
    node = lookup(own, np.where(ops.backward, -1, of), -1)
    code = np.full(len(calls) + 1, -1, np.int64)
    for number in np.unique(node[node >= 0]).tolist():
        gradient = next(iter(calls[number].inputs), None)
        if isinstance(gradient, Tensor):
            code[number] = known[Context(output=gradient)]
    return lookup(code, node, -1)


def _by_node(ops: Ops, signature: Int, calls: Calls, known: TextCodes) -> Int:
    """Return for each op the code in `known` of what its node of autograd repeats in its input.

    The gradient of a mean is the mean's gradient for every element, divided by how many there are.
    """
    is_mean = np.array([bool(_MEAN_NODE.fullmatch(text)) for text in ops.names] or [False])
    is_div = np.array([text == "aten::div" for text in ops.names] or [False])
    inside = np.flatnonzero(is_div[ops.name] & (ops.parent >= 0) & (signature >= 0))
    node = ops.parent[inside]
    inside = inside[is_mean[ops.name[node]] & (signature[node] >= 0)]
    result = np.full(len(ops), -1, np.int64)
    for op in inside.tolist():
        gradient = next(iter(calls[int(signature[ops.parent[op]])].inputs), None)
        if isinstance(gradient, Tensor):
            result[op] = known[Context(repeated=gradient)]
    return result


def _of_cpp(ops: Ops) -> Bool:
    """Whether each op is a node of a C++ function, which is paired by number alone."""
    return np.array(["CppNode<" in text for text in ops.names] or [False])[ops.name]


def _by_calls(ops: Ops, signature: Int, calls: Calls, known: TextCodes) -> Int:
    """Return for each op the code in `known` of what the calls inside and after it tell."""
    result = np.full(len(ops), -1, np.int64)
    is_asked = np.array([text in TELLING_OPS for text in ops.names] or [False])[ops.name]
    is_asked &= signature >= 0
    asked = np.flatnonzero(is_asked)
    after = _after(ops, asked)
    inside = np.flatnonzero((ops.parent >= 0) & (signature >= 0))
    inside = inside[is_asked[ops.parent[inside]]]
    inside = inside[np.argsort(ops.parent[inside], kind="stable")]
    begin, end = (np.searchsorted(ops.parent[inside], asked, side) for side in ("left", "right"))
    numbers = signature[inside].tolist()
    found: dict[tuple[int, ...], int] = {}
    for op, own, following, first, last in zip(
        *(column.tolist() for column in (asked, signature[asked], after, begin, end)), strict=True
    ):
        key = (own, signature[following] if following >= 0 else -1, *numbers[first:last])
        if key not in found:
            others = [calls[number] for number in key[2:]]
            context = told(calls[own], others, calls[key[1]] if key[1] >= 0 else None)
            found[key] = -1 if context == NOTHING_KNOWN else known[context]
        result[op] = found[key]
    return result


def _after(ops: Ops, asked: Int) -> Int:
    """Return for each of some ops the one that follows it inside the same op, or -1."""
    is_around = np.zeros(len(ops) + 1, bool)
    is_around[ops.parent[asked]] = True
    is_around[-1] = False
    siblings = np.flatnonzero(is_around[ops.parent])
    siblings = siblings[np.argsort(ops.parent[siblings], kind="stable")]
    follows = np.full(len(ops), -1, np.int64)
    same = ops.parent[siblings[1:]] == ops.parent[siblings[:-1]]
    follows[siblings[:-1][same]] = siblings[1:][same]
    return follows[asked]


def _by_kernels(
    ops: Ops, signature: Int, calls: Calls, kernels: tuple[Int, TextColumn], known: TextCodes
) -> Int:
    """Return for each op the code in `known` of the element types that its kernels name.

    They are those of ops that have lists of tensors without types, and of those around them.
    """
    op, (name, names) = kernels
    elements = [elements_of(text or "") for text in names]
    code = np.array([known[Context(elements=e)] if e else -1 for e in elements] or [-1])[name]
    rows = np.flatnonzero((op >= 0) & (code >= 0))
    op, code = op[rows], code[rows]
    lowest = np.full(len(ops), len(known), np.int64)
    highest = np.full(len(ops), -1, np.int64)
    while len(op):
        np.minimum.at(lowest, op, code)
        np.maximum.at(highest, op, code)
        op = ops.parent[op]
        op, code = op[op >= 0], code[op >= 0]
    asked = np.flatnonzero((highest >= 0) & (lowest == highest) & (signature >= 0))
    numbers, inverse = np.unique(signature[asked], return_inverse=True)
    lacks = np.array([_lacks_types(calls[number]) for number in numbers.tolist()] or [False])
    result = np.full(len(ops), -1, np.int64)
    if len(asked):
        result[asked] = np.where(lacks[inverse], highest[asked], -1)
    return result


def _lacks_types(call: OpCall) -> bool:
    """Whether the call has a list of tensors of which a type is not known."""
    lists = (item for item in call.inputs if isinstance(item, tuple))
    return any(part.dtype is None for items in lists for part in items)
