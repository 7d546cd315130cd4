"""The meaning of texts of NVTX ranges that are not ours: which op, layer or step each marks.

The grammar is that of `emit_nvtx` and of `nsys --pytorch`; all but the name may be missing::

    NAME, seq = N, op_id = N, sizes = [[2, 3], [], [4]], input_op_ids = [(1,0), (2,0)]

What does not fit it is text. Nothing is evaluated.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.parsers._labels import Label, label_text, new_signature
from pyprof2.parsers._names import NODE_PREFIX, REGION_PREFIX, is_unqualified_op
from pyprof2.signatures import Input, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.recording import Signature


# Ranges of user code, which PyTorch writes like ops.
_ANNOTATION: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#|FSDP::|\S+\s"
)
_QUALIFIED: Final = re.compile(r"[A-Za-z_]\w*(?:::[\w.~<>*&]+)+")
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
        sizes = rest
        if rest.null_count < len(rest):  # `sizes = …, input_op_ids = …`; either may be missing
            sizes, _ = _cut(rest, f", {_EDGES_PREFIX}")
            sizes = pc.if_else(pc.starts_with(sizes, _EDGES_PREFIX), None, sizes)
    # Without numbers in them, few heads are different.
    heads = head.dictionary_encode()
    names, sequence = _cut(heads.dictionary, ", seq = ")
    sequence, old_sizes = _cut(sequence, ", ")
    if old_sizes.null_count < len(old_sizes):
        sizes = pc.coalesce(sizes, old_sizes.take(heads.indices))
    sequence = sequence.take(heads.indices)
    are_sizes = pc.fill_null(pc.starts_with(sizes, _SIZES_PREFIX), True)  # noqa: FBT003
    fits = pc.and_(_are_numbers(op_id), pc.and_(_are_numbers(sequence), are_sizes))
    if not _all(fits):
        names = pc.if_else(fits, names.take(heads.indices), texts)
        sizes, sequence, op_id = (pc.if_else(fits, part, None) for part in (sizes, sequence, op_id))
        encoded = names.dictionary_encode()
    else:
        unique = names.dictionary_encode()
        place = unique.indices.take(heads.indices)
        encoded = pa.DictionaryArray.from_arrays(place, unique.dictionary)
    return Parts(encoded, sizes, sequence.cast(pa.int64()), op_id.cast(pa.int64()))


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


def label_parts(name: str, sizes: str | None, *, numbered: bool, has_id: bool) -> Label:
    """Return what a cut text says.

    Args:
        name: its first part.
        sizes: the part that begins with `sizes = `.
        numbered: whether it has a sequence number: then it is an op.
        has_id: whether it has an `op_id`: then PyTorch wrote it, but perhaps for user code.
    """
    if name.startswith((NODE_PREFIX, REGION_PREFIX)):
        is_op = True
    elif _ANNOTATION.match(name) and not numbered:
        is_op = False
    elif numbered or has_id:
        is_op = numbered or bool(_QUALIFIED.fullmatch(name)) or is_unqualified_op(name)
    else:
        is_op = name.startswith("aten::") and bool(_QUALIFIED.fullmatch(name))
    if not is_op:
        return label_text(name)
    signature = None if sizes is None else _signature(name, sizes.removeprefix(_SIZES_PREFIX))
    return Label("op", name, signature=signature)


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
    return new_signature(op, inputs)
