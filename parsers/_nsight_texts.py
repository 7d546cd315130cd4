"""What the text of an NVTX range says: whose it is, and which op, layer or step it marks.

Three grammars. Our own markers, in our own domain. What PyTorch writes, in `emit_nvtx` and for
`nsys --pytorch`; all but the name may be missing::

    NAME, seq = N, op_id = N, sizes = [[2, 3], [], [4]], input_op_ids = [(1,0), (2,0)]

And everything else, which is text. Nothing is evaluated; what fits no grammar is text as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.markers import VERSION, Marker, parse_marker, parse_version
from pyprof2.recording import Signature
from pyprof2.signatures import Input, OpCall, Tensor, format_inputs, format_signature

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Label:
    """What a text says.

    Attributes:
        what: an op; a range of another kind; an instant at which a step begins, or which says
            who the process is; or nothing that we know how to use.
        name: of the op, or the range's text.
        kind: of a range, as in the canonical table `ranges`.
        signature: of an op, if its inputs are known.
        layer, source, direction, recompute, accumulate: of an op, as our marker says them.
        marker: the marker itself, if it is one.
        problem: what is wrong with the text, in words.
    """

    what: Literal["op", "range", "step", "process", "nothing"]
    name: str
    kind: str | None = None
    signature: Signature | None = None
    layer: str | None = None
    source: str | None = None
    direction: str | None = None
    recompute: bool = False
    accumulate: bool = False
    marker: Marker | None = None
    problem: str | None = None


# Ranges of user code, which PyTorch writes like ops.
_ANNOTATION: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#|FSDP::|\S+\s"
)
_NODE: Final = "autograd::engine::evaluate_function: "
_QUALIFIED: Final = re.compile(r"[A-Za-z_]\w*(?:::[\w.~<>*&]+)+")
_UNQUALIFIED: Final = re.compile(
    r"detach_?|record_param_comms|(?:nccl|gloo|mpi|ucc|xccl):\w+|triton_\w+"
)
_STEP: Final = re.compile(
    r"(?:profiler|train(?:ing)?[ _-]?)?(?:step|iteration|iter)[ _:#=-]{0,2}\d{1,18}", re.IGNORECASE
)
_LAYER_PREFIX: Final = "layer:"
_WORK_NAMES: Final = {
    "optimizer": "Optimizer.step",
    "zero_grad": "Optimizer.zero_grad",
    "dataloader": "enumerate(DataLoader)",
}
"""How PyTorch names the ranges that our markers of these kinds stand for."""
_SIZES_PREFIX: Final = "sizes = "
_SIZES: Final = msgspec.json.Decoder(list[list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]]])
_EDGES_PREFIX: Final = "input_op_ids = ["
_LIST_OPS: Final = ("aten::cat", "aten::stack")
_DIGITS: Final = 18


@dataclass(frozen=True)
class Parts:
    """The texts of some ranges, cut as PyTorch's grammar has it.

    Attributes:
        names: the text up to the first part that is cut off.
        sizes: the part that begins with `sizes = `; null where there is none.
        sequence, op_id: the numbers, null where there are none.
    """

    names: pa.DictionaryArray
    sizes: pa.StringArray
    sequence: pa.Int64Array
    op_id: pa.Int64Array


def cut_texts(texts: pa.StringArray) -> Parts:
    """Cut texts as PyTorch's grammar has it; what does not fit it stays whole."""
    head, op_id = _cut(texts, ", op_id = ")
    sizes = _nothing(texts)
    if not _all(_are_numbers(op_id)):
        op_id, rest = _cut(op_id, ", ")
        sizes = _without_edges(rest)
    # Without numbers in them, few heads are different.
    heads = head.dictionary_encode()
    names, sequence = _cut(heads.dictionary, ", seq = ")
    sequence, old_sizes = _cut(sequence, ", ")
    if old_sizes.null_count < len(old_sizes):
        sizes = pc.coalesce(sizes, old_sizes.take(heads.indices))
    sequence = sequence.take(heads.indices)
    fits = pc.and_(_are_numbers(op_id), pc.and_(_are_numbers(sequence), _are_sizes(sizes)))
    if not _all(fits):
        names = pc.if_else(fits, names.take(heads.indices), texts)
        sizes, sequence, op_id = (pc.if_else(fits, part, None) for part in (sizes, sequence, op_id))
        encoded = names.dictionary_encode()
    else:
        unique = names.dictionary_encode()
        place = unique.indices.take(heads.indices)
        encoded = pa.DictionaryArray.from_arrays(place, unique.dictionary)
    return Parts(encoded, sizes, sequence.cast(pa.int64()), op_id.cast(pa.int64()))


def _without_edges(rest: pa.StringArray) -> pa.StringArray:
    """Return `sizes = …` of `sizes = …, input_op_ids = …`, where either may be missing."""
    if rest.null_count == len(rest):
        return rest
    sizes, _ = _cut(rest, f", {_EDGES_PREFIX}")
    return pc.if_else(pc.starts_with(sizes, _EDGES_PREFIX), None, sizes)


def _cut(texts: pa.StringArray, separator: str) -> tuple[pa.StringArray, pa.StringArray]:
    """Return what stands before the first separator, and after it; null where there is none."""
    if not pc.any(pc.match_substring(texts, separator)).as_py():
        return texts, _nothing(texts)
    lists = pc.split_pattern(texts, separator, max_splits=1)
    offsets = lists.offsets.to_numpy()
    begin, count = offsets[:-1], np.diff(offsets)
    before = lists.values.take(pa.array(begin, mask=count < 1))
    return before, lists.values.take(pa.array(begin + 1, mask=count < 2))


def _nothing(texts: pa.StringArray) -> pa.StringArray:
    return pa.nulls(len(texts), pa.string())


def _all(flags: pa.BooleanArray) -> bool:
    return bool(pc.all(flags).as_py())


def _are_numbers(texts: pa.StringArray) -> pa.BooleanArray:
    is_short = pc.less_equal(pc.binary_length(texts), _DIGITS)
    return pc.fill_null(pc.and_(pc.ascii_is_decimal(texts), is_short), True)  # noqa: FBT003


def _are_sizes(texts: pa.StringArray) -> pa.BooleanArray:
    return pc.fill_null(pc.starts_with(texts, _SIZES_PREFIX), True)  # noqa: FBT003


def label_parts(name: str, sizes: str | None, *, numbered: bool, has_id: bool) -> Label:
    """Return what a cut text says.

    Args:
        name: its first part.
        sizes: the part that begins with `sizes = `.
        numbered: whether it has a sequence number: then it is an op.
        has_id: whether it has an `op_id`: then PyTorch wrote it, but perhaps for user code.
    """
    if not _is_op(name, numbered=numbered, has_id=has_id):
        return label_text(name)
    signature = None if sizes is None else _signature(name, sizes.removeprefix(_SIZES_PREFIX))
    return Label("op", name, signature=signature)


def _is_op(name: str, *, numbered: bool, has_id: bool) -> bool:
    if name.startswith(_NODE):
        return True
    if _ANNOTATION.match(name) and not numbered:
        return False
    if not (numbered or has_id):
        return name.startswith("aten::") and bool(_QUALIFIED.fullmatch(name))
    return numbered or bool(_QUALIFIED.fullmatch(name) or _UNQUALIFIED.fullmatch(name))


def _signature(op: str, text: str) -> Signature | None:
    """Return the signature of sizes alone; what has none is a scalar, or was not given."""
    try:
        sizes = _SIZES.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
    tensors = [Tensor(tuple(size)) if size else None for size in sizes]
    inputs: Sequence[Input] = tensors
    if op in _LIST_OPS and len(tensors) > 1:
        # PyTorch writes the tensors of a list one by one; the last argument is the dimension.
        inputs = (tuple(tensor for tensor in tensors[:-1] if tensor), None)
    return _format(op, inputs)


def _format(op: str, inputs: Sequence[Input]) -> Signature:
    call = OpCall(op, tuple(inputs))
    has_shapes = any(_has_shape(item) for item in inputs)
    return Signature(op, format_signature(call), format_inputs(call.inputs), has_shapes)


def _has_shape(item: Input) -> bool:
    parts = item if isinstance(item, tuple) else (item,)
    return any(isinstance(part, Tensor) and len(part.shape) > 0 for part in parts)


def label_text(text: str) -> Label:
    """Return what a text says that is neither an op nor a marker."""
    if _STEP.fullmatch(text):
        return Label("range", text, "step")
    if text.startswith(_LAYER_PREFIX):
        return Label("range", text.removeprefix(_LAYER_PREFIX), "layer")
    return Label("range", text, "annotation")


def label_marker(text: str) -> Label:
    """Return what a text of our own domain says: a marker, or a range of the user's own."""
    marker = parse_marker(text)
    if marker is not None:
        return _label_marker(marker)
    version = parse_version(text)
    if version is None:
        return label_text(text)
    problem = "a broken marker" if version == VERSION else "a marker of another version of pyprof2"
    return Label("nothing", text, problem=f"{problem}: dropped")


def _label_marker(marker: Marker) -> Label:
    if marker.kind == "op":
        return _label_op(marker)
    if marker.kind in ("step", "process"):
        return Label(marker.kind, "", marker=marker)
    if marker.kind in _WORK_NAMES:
        return Label("range", f"{_WORK_NAMES[marker.kind]}#{marker.name or ''}", "annotation")
    if marker.kind == "layer" and marker.layer:
        return Label("range", marker.layer, "layer")
    return Label("nothing", "")


def _label_op(marker: Marker) -> Label:
    if not marker.op:
        return Label("nothing", "", problem="a broken marker: dropped")
    return Label(
        "op",
        marker.op,
        signature=None if marker.inputs is None else _format(marker.op, marker.inputs),
        layer=marker.layer or None,
        source=marker.source or None,
        direction=marker.direction,
        recompute=marker.recompute,
        accumulate=marker.accumulate,
        marker=marker,
    )
