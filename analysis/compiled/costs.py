"""The work of kernels that a compiler wrote: FLOPs by their nodes, bytes by their arguments.

FLOPs: each node that a kernel computes is an elementary op or a reduction, and counts what it does
for each element, of its result or, as a reduction, of its input. A product counts where it is
computed: another kernel that prepares its inputs may list it too. Nodes that only the compiler
lists count as well, with nothing as lower bound.

Bytes: each argument once, one that is read and written twice. A kernel may read only a part of one
(a slice, rows of a table): no more than it has elements to run over. That is an estimate.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.compiled.joining import is_written, worked_on
from pyprof2.analysis.costs import Cost, Estimate, Evidence, category_of, estimate
from pyprof2.analysis.costs.registry import FormulaText
from pyprof2.analysis.costs.sizes import Size, plain
from pyprof2.analysis.costs.triton import WEIGHTS
from pyprof2.signatures import OpCall, Scalar, Tensor, nbytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.recording import CodeLaunch, CodeTensor, CompiledGraph, Sizes

_ADDS: Final = frozenset({
    "aten::embedding_dense_backward", "aten::index_add", "aten::scatter_add",
    "aten::scatter_reduce",
})  # fmt: skip
"""Ops that become a node which writes to places by an index: one addition for each value."""
_ACCUMULATES: Final = frozenset({"_unsafe_masked_index_put_accumulate"})
_WEIGHTS: Final = WEIGHTS | {
    "fma": 2, "convert_element_type": 0, "inductor_random": 0, "inductor_randint": 0,
    "inductor_lookup_seed": 0, "inductor_seed": 0, "inductor_seeds": 0, "device_put": 0,
    "_unsafe_masked_index": 0, "empty_strided": 0, "new_full": 0, "new_empty": 0,
    "broadcast_in_dim": 0, "scatter_upon_const_tensor": 0,
}  # fmt: skip
"""By name without what is before its colons; of nodes that only a compiler makes too."""
_TEMPLATES: Final = ("triton_tem_", "cpp_CppMicroGemm", "cpp_CppGroupedGemm", "cpp_CppBmm")
_COMPUTED: Final = "FLOPs of the graph's nodes that it computes"
_LISTED: Final = "FLOPs of the graph's nodes that the compiler lists for it, at the most"
_BYTES: Final = (
    "bytes of its arguments, each once, at most as many elements as it runs over: an estimate"
)
_OF_CODE: Final = "inputs not recorded: those in the code of the compiled graph"
_NO_BYTES: Final = "bytes unknown: the sizes of its arguments are not known"
SIZES_FROM: Final = "the sizes in the compiled graph"
FORMULA: Final = FormulaText("compiled.costs", (__doc__ or "").partition("\n\n")[2].strip())
"""The text that `explain` shows of it."""


class LaunchWork(NamedTuple):
    """The work of a launch.

    Attributes:
        nodes: those that it computes.
        evidence: of these, `computed` or `listed`.
        flops: of each node, None: not known, or that of an op that is called.
        bytes: of each node, of its inputs and result.
        estimate: None for an op that is called, or where the FLOPs of a node are not known.
    """

    nodes: tuple[str, ...]
    evidence: str
    flops: tuple[int | None, ...]
    bytes: tuple[int | None, ...]
    estimate: Estimate | None


def has_open_sizes(graph: CompiledGraph) -> bool:
    """Return whether a call decides on sizes of a graph."""
    sizes = [node.sizes for node in (*graph.nodes.values(), *graph.inputs.values())]
    return any(isinstance(size, str) for each in sizes for size in each or ())


def bound_sizes(
    launches: Sequence[tuple[CodeLaunch, OpCall | None]],
) -> tuple[tuple[str, int], ...]:
    """Return the sizes that a call of a graph decided on, by the inputs recorded of its launches.

    A name that would have two values has none.
    """
    found: dict[str, set[int]] = {}
    for launch, call in launches:
        for item in launch.tensors if call is not None else ():
            recorded = call.inputs[item.at] if call and item.at < len(call.inputs) else None
            if not isinstance(recorded, Tensor) or len(recorded.shape) != len(item.sizes or ()):
                continue
            for size, value in zip(item.sizes or (), recorded.shape, strict=True):
                if isinstance(size, str) and size.isidentifier():
                    found.setdefault(size, set()).add(value)
    return tuple(sorted((name, *values) for name, values in found.items() if len(values) == 1))  # type: ignore[misc]


class GraphWork:
    """The work of the launches of a graph, in a call with given sizes."""

    def __init__(self, graph: CompiledGraph, bound: Sequence[tuple[str, int]] = ()) -> None:
        self._graph, self._bound = graph, dict(bound)
        self._launches = graph.launches or ()
        self._work = worked_on(graph)
        self._called = {launch.name for launch in self._launches if not is_written(launch)}
        self._begun: dict[str, int] = {}
        for place, (nodes, _) in enumerate(self._work):
            for name in filter(self._reduces, nodes):
                self._begun.setdefault(name, place)
        self._products = {
            name
            for launch, (nodes, _) in zip(self._launches, self._work, strict=True)
            if not is_written(launch) or launch.name.startswith(_TEMPLATES)
            for name in nodes
            if self._is_product(name)
        }

    def of(self, place: int, call: OpCall | None) -> LaunchWork:
        """Return the work of a launch.

        Args:
            place: in the code.
            call: as it was recorded; None: it was not.
        """
        nodes, evidence = self._work[place]
        launch = self._launches[place]
        flops = tuple(self._flops(name, place, launch) for name in nodes)
        sizes = tuple(self._node_bytes(name) for name in nodes)
        if not is_written(launch):
            return LaunchWork(nodes, evidence, (None,) * len(nodes), sizes, None)
        found = self._estimate(launch, call, nodes, flops, evidence)
        return LaunchWork(nodes, evidence, flops, sizes, found)

    def called(self, place: int) -> Estimate | None:
        """Return the cost of a product that a launch calls, by the inputs in the code."""
        launch = self._launches[place]
        if is_written(launch) or category_of(launch.name) not in MATRIX_WORK:
            return None
        inputs = []
        for at, item in enumerate(launch.tensors):
            shape = self._numbers(item.sizes)
            if item.at != at or shape is None:
                break
            node = self._graph.nodes.get(item.name) or self._graph.inputs.get(item.name)
            inputs.append(Tensor(shape, item.dtype or (node and node.dtype)))
        found = estimate(OpCall(launch.name, tuple(inputs)))
        if found.cost is None:
            return None
        return replace(found, status="assumed", note=_OF_CODE)

    def _estimate(
        self,
        launch: CodeLaunch,
        call: OpCall | None,
        nodes: Sequence[str],
        flops: Sequence[int | None],
        evidence: str,
    ) -> Estimate | None:
        if not nodes or any(each is None for each in flops):
            return None
        by_size: dict[int, int] = {}
        others = 0
        for name, count in zip(nodes, flops, strict=True):
            elements = self._elements(name)
            if count and elements and count % elements == 0 and not self._is_product(name):
                by_size[elements] = by_size.get(elements, 0) + count // elements
            else:
                others += count or 0
        total: int = others
        for number, (elements, each) in enumerate(sorted(by_size.items(), reverse=True), 1):
            total = total + each * Size(elements, f"N{number}" if len(by_size) > 1 else "N")
        # A small reduction is written out: the kernel runs over its result, and reads all inputs.
        over = [self._elements(name) or 0 for name in nodes if self._reduces(name)]
        read, written, most = self._bytes(launch, call, max(over, default=0))
        types = [
            (count, self._graph.nodes[name].dtype) for name, count in zip(nodes, flops, strict=True)
        ]
        dtype = max((each for each in types if each[1]), default=(0, None))[1]
        is_known = read is not None and written is not None
        how = _COMPUTED if evidence == "computed" else _LISTED
        cost = Cost(
            plain(total), read, written, dtype,
            params=",".join(f"N={n}" for n in sorted(by_size, reverse=True)[:1]),
            assumed=f"{how}; {_BYTES if is_known else _NO_BYTES}",
            flops_lo=plain(total) if evidence == "computed" else 0, flops_hi=plain(total),
            bytes_lo=written if is_known else None, bytes_hi=most if is_known else None,
            flops_formula=total.formula if isinstance(total, Size) else "",
            flops_numbers=total.numbers if isinstance(total, Size) else "",
        )  # fmt: skip
        return Estimate(cost, self._category(launch, nodes, plain(total)), "assumed", cost.assumed)

    def _category(self, launch: CodeLaunch, nodes: Sequence[str], flops: int) -> str:
        products = [name for name in nodes if self._is_product(name) and name in self._products]
        if products and launch.name.startswith(_TEMPLATES):
            return category_of(self._graph.nodes[products[0]].op) or "other"
        if any(self._reduces(name) for name in nodes):
            return "reduce"
        return "elementwise" if flops else "copy"

    # -- FLOPs ---------------------------------------------------------------------------------

    def _flops(self, name: str, place: int, launch: CodeLaunch) -> int | None:
        node = self._graph.nodes[name]
        if self._is_product(name):
            # Another launch computes it: this one only prepares its inputs.
            is_own = launch.name.startswith(_TEMPLATES) or (
                name not in self._products and node.op not in self._called
            )
            return self._product(name) if is_own else 0
        short = node.op.rpartition("::")[2].removesuffix("_")
        if (node.original in _ADDS and short == "index_put") or short in _ACCUMULATES:
            return self._count(node.inputs[-1]) if node.inputs else None
        weight = 0 if node.takes_view else _WEIGHTS.get(short)
        if not weight:
            return weight
        # Where an earlier kernel has reduced parts of it, this one reduces what that left.
        is_rest = self._begun.get(name, place) < place
        elements = self._read(launch) if is_rest else self._elements(name)
        return None if elements is None else weight * elements

    def _read(self, launch: CodeLaunch) -> int | None:
        """Return how many numbers the largest tensor has that a launch reads."""
        counts = [self._number(each.sizes) for each in launch.tensors if each.is_read]
        known = [count for count in counts if count is not None]
        return max(known) if known and len(known) == len(counts) else None

    def _product(self, name: str) -> int | None:
        node = self._graph.nodes[name]
        inputs = [self._tensor(each) for each in node.inputs]
        output = self._tensor(name)
        if output is None or any(each is None for each in inputs):
            return None
        evidence = Evidence(output=output)
        if category_of(node.op) == "conv" and len(inputs) > 1 and node.op == "aten::convolution":
            weight = inputs[1]
            return 2 * prod(output.shape) * prod(weight.shape[1:]) if weight else None
        found = estimate(OpCall(node.op, tuple(inputs)), evidence)
        return None if found.cost is None else found.cost.flops

    def _is_product(self, name: str) -> bool:
        return category_of(self._graph.nodes[name].op) in MATRIX_WORK

    def _reduces(self, name: str) -> bool:
        """Return whether a node makes fewer numbers than it takes."""
        own = self._count(name)
        elements = self._elements(name)
        weight = _WEIGHTS.get(self._graph.nodes[name].op.rpartition("::")[2], 0)
        return weight > 0 and elements is not None and (own is None or own < elements)

    def _elements(self, name: str) -> int | None:
        """Return how many numbers a node runs over: the most of its result and its inputs."""
        own, *inputs = map(self._count, (name, *self._graph.nodes[name].inputs))
        known = [count for count in inputs if count is not None]
        if len(known) < len(inputs) or not (known or own is not None):
            return None
        # One with several results, whose sizes are not known, reduces its input.
        return max(known) if own is None else max([own, *known])

    # -- sizes ---------------------------------------------------------------------------------

    def _tensor(self, name: str) -> Tensor | None:
        node = self._graph.nodes.get(name) or self._graph.inputs.get(name)
        shape = self._numbers(node.sizes) if node is not None else None
        if node is None or shape is None or self._number(shape) is None:
            return None
        return Tensor(shape, node.dtype)

    def _count(self, name: str) -> int | None:
        """Return how many numbers a node makes, 1 for a number that is given to the graph."""
        node = self._graph.nodes.get(name) or self._graph.inputs.get(name)
        if node is None:
            return None
        return 1 if node.sizes is None and name in self._graph.inputs else self._number(node.sizes)

    def _number(self, sizes: Sizes | None) -> int | None:
        numbers = self._numbers(sizes)
        # Sizes come from a file, which may say anything.
        if numbers is None or any(number < 0 for number in numbers):
            return None
        return found if (found := prod(numbers)) <= _COUNT_MAX else None

    def _numbers(self, sizes: Sizes | None) -> tuple[int, ...] | None:
        if sizes is None:
            return None
        numbers = [each if isinstance(each, int) else _value(each, self._bound) for each in sizes]
        known = [each for each in numbers if each is not None]
        return tuple(known) if len(known) == len(numbers) else None

    def _node_bytes(self, name: str) -> int | None:
        tensors = [self._tensor(each) for each in (name, *self._graph.nodes[name].inputs)]
        sizes = [nbytes(prod(each.shape), each.dtype) for each in tensors if each is not None]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(tensors) else None

    # -- bytes ---------------------------------------------------------------------------------

    def _bytes(
        self, launch: CodeLaunch, call: OpCall | None, least: int = 0
    ) -> tuple[int | None, int | None, int | None]:
        """Return the bytes read, written, and both without the limit of what is run over."""
        limit = self._limit(launch, call)
        limit = None if limit is None or limit < 0 else max(limit, least)
        read = written = most = 0
        for item in launch.tensors:
            recorded = call.inputs[item.at] if call and item.at < len(call.inputs) else None
            count = self._stored(item, recorded if isinstance(recorded, Tensor) else None)
            dtype = recorded.dtype if isinstance(recorded, Tensor) else item.dtype
            whole = None if count is None else nbytes(count, dtype or item.dtype)
            if count is None or whole is None:
                return None, None, None
            size = whole if limit is None else nbytes(min(count, limit), dtype or item.dtype) or 0
            read += size * item.is_read
            written += size * item.is_written
            most += whole * (item.is_read + item.is_written)
        return (read, written, most) if launch.tensors else (None, None, None)

    def _limit(self, launch: CodeLaunch, call: OpCall | None) -> int | None:
        known = self._numbers(launch.elements) if launch.elements else None
        if known is None and launch.elements and call is not None:
            last = [each.value for each in call.inputs if isinstance(each, Scalar)]
            numbers = [each for each in last if type(each) is int]
            if len(numbers) == len(launch.elements):
                known = tuple(numbers)
        return None if known is None else prod(known)

    def _stored(self, item: CodeTensor, recorded: Tensor | None) -> int | None:
        """Return how many numbers of a tensor there are in memory: what is repeated counts once."""
        sizes = recorded.shape if recorded is not None else self._numbers(item.sizes)
        strides = recorded.strides if recorded is not None else self._numbers(item.strides)
        if sizes is None:
            return None
        if strides is None or len(strides) != len(sizes):
            return self._number(sizes)
        pairs = zip(sizes, strides, strict=True)
        return self._number(tuple(1 if not stride else size for size, stride in pairs))


_SIGNS: Final[dict[type[Any], Callable[[int, int], int]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
_TEXT_MAX: Final = 500
_VALUE_MAX: Final = 1 << 62
_COUNT_MAX: Final = 1 << 48
"""No tensor has more elements: sums of bytes and of FLOPs stay within 64 bits."""


def _value(text: str, known: Mapping[str, int]) -> int | None:
    """Return the value of the text of a size, `8*s0 + 1`; None: a name is not known."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body if len(text) <= _TEXT_MAX else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _computed(tree, known)


def _computed(tree: ast.AST | None, known: Mapping[str, int]) -> int | None:
    match tree:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _SIGNS:
            one, other = _computed(left, known), _computed(right, known)
            if one is None or other is None:
                return None
            if not other and isinstance(sign, ast.FloorDiv | ast.Mod):
                return None
            found = _SIGNS[type(sign)](one, other)
            return found if abs(found) <= _VALUE_MAX else None
        case _:
            return None
