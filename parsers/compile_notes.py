"""The notes that our annotation takes of compiled graphs; see `pyprof2.nvtx.compile_notes`."""

from __future__ import annotations

import base64
import binascii
import zlib
from math import prod
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pyprof2.markers import COMPILED_VERSION
from pyprof2.parsers._generated_code import read_code
from pyprof2.recording import PRODUCT, CodeNode, CompiledGraph, CompileEvent
from pyprof2.signatures import TORCH_DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.recording import Sizes

NOTES_BYTES_MAX: Final = 256 << 20
"""Notes of more bytes are damage, or meant to fill memory."""
_FROM_CACHE: Final = "it came from a cache of torch: its lines are not known; record without it"

VIEWS: Final = frozenset({
    "alias", "as_strided", "detach", "diagonal", "expand", "getitem", "permute", "reshape",
    "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind",
    "unsqueeze", "view", "view_as", "_unsafe_view", "_reshape_alias",
})  # fmt: skip
"""Nodes that only look at a tensor in another way: no kernel does anything for them."""


_HEADS: Final = ("Graph break in user code at", "Graph Break Reason:", "User code traceback:")
_EXPLAINS: Final = "Explanation: "
_REASON_MAX: Final = 240


class _First(msgspec.Struct):
    version: int
    events: list[tuple[str, str | None, str]] = []


class _NotedNode(msgspec.Struct):
    name: str
    kind: str
    target: str = ""
    original: str | None = None
    inputs: list[str] = []
    frames: list[tuple[str, int, str, str]] = []
    is_backward: bool | None = None
    seq: int | None = None
    tensor: Any = None
    module: Any = None
    layer: tuple[str, str | None, bool] | None = None


class _Buffer(msgspec.Struct):
    name: str
    node: str | None = None
    origins: list[str] = []


class _Graph(msgspec.Struct):
    key: str | None = None
    compile_id: str | None = None
    backward: bool = False
    layer: tuple[str, str | None, bool] | None = None
    nodes: list[_NotedNode] = []
    kernels: dict[str, list[str]] = {}
    buffers: list[_Buffer] = []
    code: str = ""
    file: str | None = None
    lacks: str | None = None


def read_notes(
    text: str,
    name_layer: Callable[[str, str | None, bool], str],
    events: list[CompileEvent] | None = None,
) -> list[CompiledGraph] | None:
    """Return the graphs that notes in a trace are of; None: they cannot be read.

    Args:
        text: as the trace has it.
        name_layer: names a layer by its path, its root, and whether it is the root itself.
        events: takes what the notes say of why graphs are not fewer.
    """
    try:
        packed = base64.b64decode(text, validate=True)
        stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
        content = stream.decompress(packed, NOTES_BYTES_MAX)
        if not stream.eof:
            return None
        begin, *lines = content.split(b"\n")
        first = msgspec.json.decode(begin, type=_First)
        if first.version != COMPILED_VERSION:
            return None
        decoder = msgspec.json.Decoder(_Graph)
        graphs = [decoder.decode(line) for line in lines]
    except (binascii.Error, zlib.error, msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if events is not None:
        events += [CompileEvent(kind, place, one_line(why)) for kind, place, why in first.events]
    outside: dict[str | None, set[int | None]] = {}
    for graph in graphs:
        if not graph.backward:
            own = outside.setdefault(graph.compile_id, set())
            own.update(n.seq for n in graph.nodes if n.layer is None and n.seq is not None)
    try:
        return [_graph(each, name_layer, outside.get(each.compile_id, set())) for each in graphs]
    except RecursionError:  # nested deeper than any real one
        return None


def _graph(
    found: _Graph,
    name_layer: Callable[[str, str | None, bool], str],
    outside: set[int | None],
) -> CompiledGraph:
    """Return what a note says.

    Args:
        found: the note.
        name_layer: see `read_notes`.
        outside: autograd's numbers of forward ops that are in no module inside of the one that was
            called: what backward does for them is the work of that one.
    """
    layer = None if found.layer is None else name_layer(*found.layer)
    _give_layers(found.nodes)
    separate_products(found.nodes)
    code = read_code(found.code, found.kernels)
    every = {
        node.name: _node(
            node, layer if not node.is_backward or node.seq in outside else None, name_layer
        )
        for node in found.nodes
    }
    called = {node.name for node in found.nodes if node.kind.startswith("call_")}
    nodes = {name: node for name, node in every.items() if name in called}
    return CompiledGraph(
        found.key,
        found.compile_id,
        found.backward,
        layer,
        nodes,
        {name: node for name, node in every.items() if name not in called},
        code.launches,
        {buffer.name: node for buffer in found.buffers if (node := _held(buffer, nodes))},
        _FROM_CACHE if found.lacks == "cache" else found.lacks or code.note,
        found.file,
    )


def _give_layers(nodes: Sequence[_NotedNode]) -> None:
    """Give nodes that the compiler put together in backward the layer of the operands they view.

    A product and the sum after it become one node, which no module is noted of. The weight that it
    multiplies with is transposed for it alone, on the same line.
    """
    known = {node.name: node for node in nodes}
    for node in reversed(nodes):
        # One of several results is noted with the line of their op; so is one of one of them.
        several = known.get(node.inputs[0]) if node.inputs else None
        if several is not None and node.frames and not several.frames and node.target == "getitem":
            several.frames, several.module, several.layer = node.frames, node.module, node.layer
            several.original, several.is_backward = node.original, node.is_backward
    for node in nodes:
        if node.is_backward and node.module is None and node.frames:
            inputs = [known[name] for name in node.inputs if name in known]
            layers = {
                each.layer
                for each in inputs
                if is_view(op_name(each.target)) and each.layer and each.frames == node.frames
            }
            if len(layers) == 1:
                node.layer = layers.pop()


def separate_products(nodes: list[_NotedNode]) -> None:
    """Note the product by itself where the compiler put it together with the sum after it.

    The node of both has line and layer of the sum. The weight that the product multiplies with is
    transposed for it alone: that view has line and layer of the product.
    """
    known = {node.name: node for node in nodes}
    for node in known.values():
        if (op_name(node.target), op_name(node.original or "")) != ("aten::addmm", "aten::add"):
            continue
        views = [known[each] for each in node.inputs[1:] if each in known]
        places = [each for each in views if each.frames and is_view(op_name(each.target))]
        # The last one: the first may view what the line before made.
        place = places[-1] if places and places[-1] is views[-1] else None
        if place is None or (place.frames, place.layer) == (node.frames, node.layer):
            continue
        product = msgspec.structs.replace(
            node, name=f"{node.name}{PRODUCT}", target=PRODUCT, original="aten.mm.default",
            inputs=node.inputs[1:], frames=place.frames, module=place.module, layer=place.layer,
        )  # fmt: skip
        nodes.append(product)


def _held(buffer: _Buffer, nodes: Mapping[str, CodeNode]) -> str | None:
    """Return the node whose result a buffer holds."""
    if buffer.node is not None:
        return buffer.node
    # One of several results of a node: of all that it comes from that is what nothing else takes.
    taken: set[str] = set()
    todo = [name for each in buffer.origins if each in nodes for name in nodes[each].inputs]
    while todo:
        name = todo.pop()
        if name not in taken and name in nodes and nodes[name].op == "getitem":
            todo.extend(nodes[name].inputs)
        taken.add(name)
    last = [name for name in buffer.origins if name not in taken]
    return last[0] if len(last) == 1 else None


def _node(
    node: _NotedNode, layer: str | None, name_layer: Callable[[str, str | None, bool], str]
) -> CodeNode:
    op = op_name(node.target)
    return CodeNode(
        op,
        None if node.original is None else op_name(node.original),
        node.seq,
        tuple(node.inputs),
        tuple(f"{path}:{line}" for path, line, _, _ in node.frames),
        tuple(text for *_, text in node.frames),
        _layer(node, layer, name_layer),
        node.is_backward,
        is_view(op),
        *(_sizes(node.tensor) or (None, None)),
    )


def _layer(
    node: _NotedNode, layer: str | None, name_layer: Callable[[str, str | None, bool], str]
) -> str | None:
    """Return the layer of a node; what is in no module is the work of the one that was called."""
    if node.layer is None:
        return layer if node.module is None and node.frames else None
    return name_layer(*node.layer)


def one_line(reason: str) -> str:
    """Return what the compiler says of a break on one line: what it is, and its explanation."""
    lines = [line.strip() for line in reason.split("\n") if line.strip()]
    said = [line for line in lines if not line.startswith(_HEADS)] or lines or [""]
    why = next((line for line in said[1:] if line.startswith(_EXPLAINS)), "")
    text = f"{said[0]}: {why.removeprefix(_EXPLAINS)}" if why else said[0]
    return text if len(text) <= _REASON_MAX else f"{text[: _REASON_MAX - 1]}…"


def op_name(target: str) -> str:
    """Return the name of an op by that of its overload: `aten::mm` for `aten.mm.default`."""
    space, dot, rest = target.removeprefix("torch.ops.").partition(".")
    return f"{space}::{rest.partition('.')[0]}" if dot else target


def is_view(op: str) -> bool:
    """Return whether a node only looks at a tensor in another way."""
    return op.removeprefix("aten::") in VIEWS


def _sizes(tensor: Any) -> tuple[Sizes, str | None] | None:
    """Return sizes and element type of a tensor, of the largest one of several; None: not known."""
    if not isinstance(tensor, list) or len(tensor) == 0:
        return None
    if len(tensor) == 2 and isinstance(tensor[0], list) and isinstance(tensor[1], str):
        if any(type(each) not in (int, str) for each in tensor[0]):
            return None
        return tuple(tensor[0]), TORCH_DTYPES.get(tensor[1])
    found = [_sizes(each) for each in tensor]
    known = [each for each in found if each is not None]
    # Sizes that a call decides are those of each of several.
    return max(known, key=lambda each: prod(n for n in each[0] if isinstance(n, int)), default=None)
