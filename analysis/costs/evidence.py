"""Evidence for each call from elsewhere in the recording, for the formulas that lack inputs.

Recordings hold inputs only, and of lists of tensors not their element types. The rest is found
where it shows: in the forward op, in the gradient that a node of autograd got first (it has the
shape of its forward op's result), in the calls inside an op and right after it, and in the names
of an op's kernels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.analysis.costs import (
    NO_EVIDENCE,
    REDUCING_OPS,
    VIEWED_OPS,
    Estimate,
    Evidence,
    category_of,
    estimate,
    is_product,
    lacks_types,
    seen_in_views,
    sparse_inputs,
)
from pyprof2.analysis.hardware.kernel_names import element_of, elements_of
from pyprof2.analysis.intervals import Int, nearest_marked
from pyprof2.columns import TextColumn, combine_keys, lookup
from pyprof2.recording import TextCodes
from pyprof2.signatures import OpCall, Tensor, format_text, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.analysis.linking.ops import Ops
    from pyprof2.analysis.linking.pair import Pairs
    from pyprof2.recording import Signature

_WITH_GRADIENT: Final = ("conv", "pool")
_NODE_NAME: Final = re.compile(r"\w*Backward\d*")

_DESCRIPTION: Final = "record_param_comms"

_MEAN_NODE: Final = re.compile(r"MeanBackward\d*")


class DistinctCalls:
    """The calls that signatures describe, parsed when they are first asked for.

    Attributes:
        estimated: for who estimates them, what was found, by call and key of its clues.
    """

    def __init__(self, signatures: Sequence[Signature]) -> None:
        self.estimated: dict[Any, Any] = {}
        self._signatures = signatures
        self._calls: dict[int, OpCall] = {}

    def __len__(self) -> int:
        return len(self._signatures)

    def __getitem__(self, number: int) -> OpCall:
        if number not in self._calls:
            op, _, inputs, _ = self._signatures[number]
            self._calls[number] = OpCall(op, parse_inputs(inputs))
        return self._calls[number]


class Clue(NamedTuple):
    """One finding, and in words what it is and where it was found."""

    words: str
    evidence: Evidence


@dataclass(frozen=True)
class OpEvidence:
    """The calls of a recording and what is known of them from elsewhere.

    Attributes:
        calls: the distinct calls.
        signature: for each op its call, -1 for none.
        which: for each op the position of its clues in `distinct`.
        distinct: the clues of ops: what the forward op, the gradient, the next call, views, the
            node, what is read of sparse inputs, the kernels and the recorder's description say;
            None for what says nothing.
        keys: what distinguishes these from all others of the calls, with the number of the
            forward op.
        origins: for each of these places, by op, the position of the op that said it, or -1.
    """

    calls: DistinctCalls
    signature: Int
    which: Int
    distinct: list[tuple[Clue | None, ...]]
    keys: list[tuple[int | Clue | None, ...]]
    origins: tuple[Int, ...]


def find_evidence(
    ops: Ops, pairs: Pairs, signature: Int, calls: DistinctCalls, kernels: tuple[Int, TextColumn]
) -> OpEvidence:
    """Return what is known of each op.

    Args:
        ops: the nested ops.
        pairs: their forward ops.
        signature: for each op its number in `calls`, -1 for none.
        calls: of the recording.
        kernels: of each kernel its op by position, -1 for none, and its name.
    """
    known: TextCodes = TextCodes()
    nowhere = np.full(len(ops), -1, np.int64)
    forward = np.where(ops.backward, pairs.forward, -1)
    codes, origins = zip(
        (lookup(signature, forward, -1), forward),
        _by_gradient(ops, pairs, signature, calls, known),
        _by_following(ops, signature, calls, known),
        _by_views(ops, signature, calls, known),
        _by_node(ops, signature, calls, known),
        (_by_storage(ops, signature, calls, known), nowhere),
        (_by_kernels(ops, signature, calls, kernels, known), nowhere),
        _by_description(ops, signature, calls, known),
        strict=True,
    )
    distinct, which = _distinct(codes)
    clues = [*known, None]
    keys = [
        (number, *(clues[code] for code in rest))
        for number, *rest in np.stack(distinct, 1).tolist()
    ]
    found = [
        (Clue("those of its forward op", Evidence(forward=calls[number])), *rest)
        if number >= 0
        else (None, *rest)
        for number, *rest in keys
    ]
    return OpEvidence(calls, signature, which, found, keys, origins)


def put_together(clues: Iterable[Clue | None]) -> Evidence:
    """Return all that the clues say; the later one counts."""
    whole = NO_EVIDENCE
    for clue in clues:
        if clue is not None:
            more = clue.evidence
            whole = replace(
                whole,
                forward=more.forward or whole.forward,
                output=more.output or whole.output,
                indices=more.indices or whole.indices,
                elements=more.elements or whole.elements,
                element=more.element or whole.element,
                repeated=more.repeated or whole.repeated,
                following=more.following or whole.following,
                sparse=more.sparse or whole.sparse,
                stored=more.stored or whole.stored,
                described=more.described or whole.described,
            )
    return whole


def needed_clues(call: OpCall, clues: Sequence[Clue | None], found: Estimate) -> list[int]:
    """Return the places of clues without which the estimate `found` would be another one.

    The plainest come first, and are kept where others say the same.
    """
    kept = list(clues)
    for place in reversed(range(len(kept))):
        without = [*kept[:place], None, *kept[place + 1 :]]
        if kept[place] is not None and estimate(call, put_together(without)) == found:
            kept = without
    return [place for place, clue in enumerate(kept) if clue is not None]


def _distinct(columns: Sequence[Int]) -> tuple[list[Int], Int]:
    """Return the distinct rows of some columns, the first of them all -1, and each row's number."""
    rows = np.flatnonzero(np.any([column >= 0 for column in columns], axis=0))
    chosen = [column[rows] for column in columns]
    _, first, inverse = np.unique(combine_keys(*chosen), return_index=True, return_inverse=True)
    number = np.zeros(len(columns[0]), np.int64)
    number[rows] = inverse + 1
    return [np.r_[-1, column[first]] for column in chosen], number


def _result(shape: Tensor, where: str) -> str:
    return f"the shape of its result, {_shape_text(shape)}: {where}"


def _shape_text(item: Tensor) -> str:
    return f"[{','.join(map(str, item.shape))}]"


def _by_following(
    ops: Ops, signature: Int, calls: DistinctCalls, known: TextCodes
) -> tuple[Int, Int]:
    """Return for each convolution outside of any op the code in `known` of what may be its result.

    This is what the bias is added to inside of it, else what the next call got. Additions
    of numbers alone between them, the counter of a batch norm, are passed over.
    """
    category = [category_of(text) for text in ops.names]
    is_conv = np.array([text == "conv" for text in category] or [False])[ops.name]
    is_add = np.array([text == "aten::add_" for text in ops.names] or [False])[ops.name]
    is_add &= signature >= 0
    counts = [
        number
        for number in np.unique(signature[is_add]).tolist()
        if not any(
            isinstance(item, tuple) or (isinstance(item, Tensor) and item.shape)
            for item in calls[number].inputs
        )
    ]
    tops = np.flatnonzero((ops.parent < 0) & ~(is_add & np.isin(signature, counts)))
    tops = tops[np.argsort(ops.thread[tops], kind="stable")]
    pairs = np.flatnonzero(ops.thread[tops[1:]] == ops.thread[tops[:-1]])
    first, after = tops[pairs], tops[pairs + 1]
    is_asked = is_conv & (signature >= 0) & ~ops.backward
    asked = is_asked[first] & (signature[after] >= 0)
    following = np.full(len(ops), -1, np.int64)
    following[first[asked]] = after[asked]
    inside = np.flatnonzero(is_add & (ops.parent >= 0))
    inside = inside[is_conv[ops.parent[inside]]]
    top = nearest_marked(ops.parent, ops.parent < 0)[inside]
    following[top[is_asked[top]]] = inside[is_asked[top]]
    found = np.flatnonzero(following >= 0)
    source = following[found]
    distinct, inverse = np.unique(
        np.stack((signature[source], ops.parent[source] >= 0)), axis=1, return_inverse=True
    )
    codes = []
    for number, is_inside in zip(*distinct.tolist(), strict=True):
        seen_first = _first(calls[number])
        where = "its bias is added to it" if is_inside else "the input of the next call"
        clue = seen_first and Clue(_result(seen_first, where), Evidence(following=seen_first))
        codes.append(known[clue] if clue else -1)
    result, origin = np.full((2, len(ops)), -1, np.int64)
    result[found] = np.array(codes, np.int64)[inverse.ravel()]
    origin[found] = source
    return result, origin


def _by_gradient(
    ops: Ops, pairs: Pairs, signature: Int, calls: DistinctCalls, known: TextCodes
) -> tuple[Int, Int]:
    """Return for each op the code in `known` of its result, which its node's gradient is like."""
    category = [category_of(text) for text in ops.names]
    # Around a convolution are ops with the same result; others may be a part of anything.
    around = np.array([text in _WITH_GRADIENT for text in category] or [False])[ops.name]
    pooling = np.array([text == "embedding" for text in category] or [False])[ops.name]
    reducing = np.array([text in REDUCING_OPS for text in ops.names] or [False])[ops.name]
    is_node = np.array([bool(_NODE_NAME.fullmatch(text)) for text in ops.names] or [False])[
        ops.name
    ]
    # Nodes of C++ functions are paired by number alone.
    is_cpp = np.array(["CppNode<" in text for text in ops.names] or [False])[ops.name]
    is_node |= is_cpp & (pairs.forward >= 0) & pooling[pairs.forward]
    nodes = np.flatnonzero(is_node & (pairs.forward >= 0) & (signature >= 0))
    own = np.full(len(ops), -1, np.int64)
    own[pairs.forward[nodes]] = nodes
    # A function of autograd in Python, such as a whole compiled graph, has another result.
    is_op = np.array(["::" in text for text in ops.names] or [False])[ops.name]
    of = np.where(around, nearest_marked(ops.parent, (own >= 0) | ~is_op), -1)
    own[~is_op] = -1
    of = np.where(reducing | pooling, np.arange(len(ops)), of)
    node = lookup(own, np.where(ops.backward, -1, of), -1)
    code = np.full(len(calls) + 1, -1, np.int64)
    of_node = lookup(signature, node, -1)
    for number in np.unique(of_node[of_node >= 0]).tolist():
        gradient = next(iter(calls[number].inputs), None)
        if isinstance(gradient, Tensor):
            words = _result(gradient, f"the gradient that {calls[number].op} got")
            code[number] = known[Clue(words, Evidence(output=gradient))]
    return lookup(code, of_node, -1), node


def _by_node(ops: Ops, signature: Int, calls: DistinctCalls, known: TextCodes) -> tuple[Int, Int]:
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
        call = calls[int(signature[ops.parent[op]])]
        gradient = next(iter(call.inputs), None)
        if isinstance(gradient, Tensor):
            words = f"its node's gradient, {format_text(gradient)}, which {call.op} repeats"
            result[op] = known[Clue(words, Evidence(repeated=gradient))]
    return result, np.where(result >= 0, ops.parent, -1)


def _by_views(ops: Ops, signature: Int, calls: DistinctCalls, known: TextCodes) -> tuple[Int, Int]:
    """Return for each op the code in `known` of what the calls inside and after it view."""
    result, origin = np.full((2, len(ops)), -1, np.int64)
    is_asked = np.array([text in VIEWED_OPS for text in ops.names] or [False])[ops.name]
    is_asked &= signature >= 0
    asked = np.flatnonzero(is_asked)
    after = _after(ops, asked)
    inside = np.flatnonzero((ops.parent >= 0) & (signature >= 0))
    inside = inside[is_asked[ops.parent[inside]]]
    inside = inside[np.argsort(ops.parent[inside], kind="stable")]
    begin, end = (np.searchsorted(ops.parent[inside], asked, side) for side in ("left", "right"))
    numbers = signature[inside].tolist()
    found: dict[tuple[int, ...], tuple[int, bool]] = {}
    for op, own, following, first, last in zip(
        *(column.tolist() for column in (asked, signature[asked], after, begin, end)), strict=True
    ):
        key = (own, signature[following] if following >= 0 else -1, *numbers[first:last])
        if key not in found:
            others = [calls[number] for number in key[2:]]
            clue, by_next = _viewed(calls[own], others, calls[key[1]] if key[1] >= 0 else None)
            found[key] = (-1 if clue is None else known[clue]), by_next
        result[op], by_next = found[key]
        origin[op] = following if by_next else -1
    return result, origin


def _viewed(
    call: OpCall, inside: Sequence[OpCall], after: OpCall | None
) -> tuple[Clue | None, bool]:
    """Return what views of its result and indices say of a call, and if it is the next call's."""
    found, where, by_next = seen_in_views(call, inside), "an op inside makes a view of it", False
    if after is not None and found.output is None:
        found = seen_in_views(call, inside, after)
        by_next = found.output is not None
    if found == NO_EVIDENCE:
        return None, False
    parts = [f"the index {format_text(item)}" for item in found.indices]
    if found.output is not None:
        parts.insert(0, f"the shape of its result, {_shape_text(found.output)}")
    where = f"{after.op} makes a view of it" if after and by_next else where
    return Clue(f"{', '.join(parts)}: {where}", found), by_next


def _by_storage(ops: Ops, signature: Int, calls: DistinctCalls, known: TextCodes) -> Int:
    """Return for each product the code in `known` of what ops inside read of its sparse inputs."""
    result = np.full(len(ops), -1, np.int64)
    is_read, looks, multiplies = (
        np.array([is_one(text) for text in ops.names] or [False])[ops.name]
        for is_one in (_READS.__contains__, _LOOKS.__contains__, is_product)
    )
    if not is_read.any():
        return result
    rows = np.flatnonzero((is_read | looks) & (signature >= 0) & (ops.parent >= 0))
    aboves, inners = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    around = ops.parent[rows]
    while len(rows):
        aboves.append(around[multiplies[around]])
        inners.append(rows[multiplies[around]])
        around = ops.parent[around]
        rows, around = rows[around >= 0], around[around >= 0]
    above, inner = np.concatenate(aboves), np.concatenate(inners)
    order = np.lexsort((inner, above))
    above, inner = above[order], inner[order]
    asked, first = np.unique(above, return_index=True)
    of_read = np.where(is_read[ops.parent[inner]], signature[ops.parent[inner]], -1)
    pairs_of = np.split(np.stack((signature[inner], of_read), 1), first)[1:]
    codes: dict[tuple[int, ...], int] = {}
    for op, pairs in zip(asked.tolist(), pairs_of, strict=True):
        key = (int(signature[op]), *pairs.ravel().tolist())
        if key[0] >= 0 and key not in codes:
            clue = _stored(
                calls[key[0]], [(calls[a], calls[b] if b >= 0 else None) for a, b in pairs]
            )
            codes[key] = -1 if clue is None else known[clue]
        result[op] = codes.get(key, -1)
    return result


_VALUES: Final = ("aten::values", "aten::_values")
_READS: Final = frozenset({
    *_VALUES, "aten::indices", "aten::_indices", "aten::crow_indices", "aten::col_indices",
    "aten::ccol_indices", "aten::row_indices", "aten::_nnz",
})  # fmt: skip
"""Ops that read the parts of a sparse tensor; an `aten::alias` inside has the part's shape."""
_CUTS: Final = ("aten::select", "aten::slice")
_LOOKS: Final = frozenset({"aten::alias", *_CUTS})
_SPARSE_RESULTS: Final = frozenset({"aten::smm"})
"""Products of a sparse and a dense tensor that are sparse: what is cut inside is the result's."""


def _stored(call: OpCall, inside: Sequence[tuple[OpCall, OpCall | None]]) -> Clue | None:
    """Return what the ops inside, each with the read that it is part of, say of sparse inputs."""
    read = [item for op, _ in inside if op.op in _READS and (item := _first(op)) is not None]
    shapes = tuple(sorted({item.shape for item in read}))
    found = [*sparse_inputs(call, Evidence(sparse=shapes)).values()]
    if not found:
        return None
    words = "ops inside read the parts of a sparse tensor"
    if len(found) > 1:
        return Clue(words, Evidence(sparse=shapes))
    (item,) = found
    may_cut = call.op not in _SPARSE_RESULTS
    parts: dict[str, set[Tensor]] = {}
    for op, of in inside:
        part, whole = _first(op), of and _first(of)
        # The indices of a tensor in coordinates: a row for each dimension.
        rows = part.shape[0] if part and len(part.shape) == 2 and part.dtype == "i64" else 0
        if of and part and whole and whole.shape == item.shape and op.op == "aten::alias":
            parts.setdefault(of.op, set()).add(replace(part, strides=None))
        elif part and op.op in _CUTS and may_cut and rows == len(item.shape) > 1:
            parts.setdefault("coordinates", set()).add(replace(part, strides=None))
    if any(len(each) > 1 for each in parts.values()):
        return Clue(words, Evidence(sparse=shapes))
    one = {name: each.pop() for name, each in parts.items()}
    values = next((one.pop(name) for name in _VALUES if name in one), None)
    if values is None and "coordinates" in one:
        values = Tensor(one["coordinates"].shape[1:], item.dtype)
    if values is None or not one:
        return Clue(words, Evidence(sparse=shapes))
    stored = (*one.values(), values)
    words = f"how much of its sparse input is stored, {_shape_text(values)}: an op inside reads it"
    return Clue(words, Evidence(sparse=shapes, stored=stored))


def _first(call: OpCall) -> Tensor | None:
    first = next(iter(call.inputs), None)
    return first if isinstance(first, Tensor) else None


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


def _by_description(
    ops: Ops, signature: Int, calls: DistinctCalls, known: TextCodes
) -> tuple[Int, Int]:
    """Return for each collective the code in `known` of the recorder's one description inside."""
    result, origin = np.full((2, len(ops)), -1, np.int64)
    is_description = np.array([text == _DESCRIPTION for text in ops.names] or [False])[ops.name]
    is_comm = np.array([category_of(text) == "comm" for text in ops.names] or [False])[ops.name]
    rows = np.flatnonzero(is_description & (signature >= 0) & (ops.parent >= 0))
    codes = {}
    for number in np.unique(signature[rows]).tolist():
        cost = estimate(calls[number]).cost
        is_used = cost and cost.params.startswith("collective=") and not cost.assumed
        clue = Clue("the recorder's description of the collective", Evidence(described=cost))
        codes[number] = known[clue] if is_used else -1
    # The code of several is that of none.
    of_row = np.array([codes[number] for number in signature[rows].tolist()], np.int64)
    around = ops.parent[rows]
    while len(rows):
        count = np.bincount(around, minlength=len(ops))
        keep = is_comm[around] & ~is_description[around] & (count[around] == 1)
        rows, around, of_row = rows[keep], around[keep], of_row[keep]
        result[around], origin[around] = of_row, np.where(of_row >= 0, rows, -1)
        around = ops.parent[around]
        rows, of_row, around = rows[around >= 0], of_row[around >= 0], around[around >= 0]
    return result, origin


def _by_kernels(
    ops: Ops,
    signature: Int,
    calls: DistinctCalls,
    kernels: tuple[Int, TextColumn],
    known: TextCodes,
) -> Int:
    """Return for each op the code in `known` of the element types that its kernels name.

    They are those of ops that have tensors without types, and of those around them: of lists what
    each has, else one type for all tensors.
    """
    op, (name, names) = kernels
    words = "elements of {}, as the kernel's name says"
    of_lists, of_all = [], []
    for text in names:
        elements, element = elements_of(text or ""), element_of(text or "")
        clue = Clue(words.format(" and ".join(elements)), Evidence(elements=elements))
        of_lists.append(known[clue] if elements else -1)
        of_all.append(
            known[Clue(words.format(element), Evidence(element=element))] if element else -1
        )
    result = np.full(len(ops), -1, np.int64)
    for codes, lacks in ((of_all, lacks_types), (of_lists, _lacks_types_of_lists)):
        agreed = _agreed(ops, op, np.array(codes or [-1])[name])
        asked = np.flatnonzero((agreed >= 0) & (signature >= 0))
        numbers, inverse = np.unique(signature[asked], return_inverse=True)
        is_asked = np.array([lacks(calls[number]) for number in numbers.tolist()] or [False])
        asked = asked[is_asked[inverse]] if len(asked) else asked
        result[asked] = agreed[asked]
    return result


def _agreed(ops: Ops, op: Int, code: Int) -> Int:
    """Return for each op the one code of its kernels and of those of the ops inside, or -1."""
    rows = np.flatnonzero((op >= 0) & (code >= 0))
    op, code = op[rows], code[rows]
    lowest = np.full(len(ops), np.iinfo(np.int64).max)
    highest = np.full(len(ops), -1, np.int64)
    while len(op):
        np.minimum.at(lowest, op, code)
        np.maximum.at(highest, op, code)
        op = ops.parent[op]
        op, code = op[op >= 0], code[op >= 0]
    return np.where(lowest == highest, highest, -1)


def _lacks_types_of_lists(call: OpCall) -> bool:
    lists = (item for item in call.inputs if isinstance(item, tuple))
    return any(part.dtype is None for items in lists for part in items)
