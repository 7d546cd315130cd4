"""Protobuf's wire format, for whole columns: one message per row, encoded by NumPy.

A field of all rows is a `FieldColumn`: a matrix of bytes with a row for each message, in which
only the first bytes count, as many as `length` says. Columns side by side are a message: its bytes
are those that count, row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes: TypeAlias = NDArray[np.uint8]
    Bools: TypeAlias = NDArray[np.bool_]
    Ints: TypeAlias = NDArray[np.int64]

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_NARROW: Final = 4
"""Numbers of so many bytes fit into 32 bits."""
_SHORT: Final = 0x80


class FieldColumn(NamedTuple):
    """One field of many messages.

    Attributes:
        data: a row of bytes for each message.
        length: how many of them count; 0 where the message lacks the field.
    """

    data: Bytes
    length: Ints


class Chunks(NamedTuple):
    """Bytes of several rows, one row after another.

    Attributes:
        data: all bytes.
        length: of each row.
    """

    data: Bytes
    length: Ints


def tag(number: int, wire_type: int) -> bytes:
    """Return the bytes before the value of a field."""
    return scalar_varint(number << 3 | wire_type)


def scalar_varint(value: int) -> bytes:
    """Return one number, of 0 or more, as a varint."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def scalar_field(number: int, value: int | str | bytes) -> bytes:
    """Return a field of a single message: a number of 0 or more, a text, or a message."""
    if isinstance(value, int):
        return tag(number, _VARINT) + scalar_varint(value)
    content = value.encode() if isinstance(value, str) else value
    return tag(number, _LENGTH_DELIMITED) + scalar_varint(len(content)) + content


def varint(values: Ints) -> FieldColumn:
    """Return numbers as varints; a negative one as protobuf has it, in ten bytes."""
    plain: NDArray[np.unsignedinteger[Any]] = values.astype(np.int64).view(np.uint64)
    width = max(1, -(-int(plain.max(initial=0)).bit_length() // 7))
    if width <= _NARROW:
        plain = plain.astype(np.uint32)
    length = np.ones(len(plain), np.int64)
    data = np.empty((len(plain), width), np.uint8)
    for at in range(width):
        # Higher bits are cut off: each byte holds seven.
        data[:, at] = (plain & 0x7F) | 0x80
        plain = plain >> np.uint8(7)
        if at + 1 < width:
            length += plain > 0
    data[np.arange(len(data)), length - 1] &= 0x7F
    return FieldColumn(data, length)


def varint_field(number: int, values: Ints, present: Bools | None = None) -> FieldColumn:
    """Return a field of whole numbers; of those rows that have it."""
    return _after(tag(number, _VARINT), varint(values), present)


def fixed64_field(number: int, values: NDArray[Any], present: Bools | None = None) -> FieldColumn:
    """Return a field of eight bytes: a `double`, or a number of 64 bits as it is."""
    data = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("<"), copy=False)
    plain = data.view(np.uint8).reshape(-1, 8)
    return _after(tag(number, _FIXED64), FieldColumn(plain, np.full(len(plain), 8)), present)


def constant(content: bytes, count: int) -> FieldColumn:
    """Return the same bytes in every row."""
    data = np.broadcast_to(np.frombuffer(content, np.uint8), (count, len(content)))
    return FieldColumn(data, np.full(count, len(content)))


def message_field(
    number: int,
    blocks: Sequence[FieldColumn],
    present: Bools | None = None,
    after: Ints | None = None,
) -> list[FieldColumn]:
    """Return a field that holds a message.

    Args:
        number: of the field.
        blocks: the fields of the message.
        present: which rows have it; None: all.
        after: of each row, how many bytes of the message are to follow after the blocks.
    """
    size = np.sum([block.length for block in blocks], axis=0)
    size = size if after is None else size + after
    head = _after(tag(number, _LENGTH_DELIMITED), varint(size), present)
    if present is None:
        return [head, *blocks]
    return [head, *(FieldColumn(b.data, np.where(present, b.length, 0)) for b in blocks)]


def short_message_field(
    number: int, before: bytes, block: FieldColumn, present: Bools
) -> FieldColumn:
    """Return a field that holds a message of one field of each row, shorter than 128 bytes.

    Args:
        number: of the field.
        before: fields of the message that are the same in all rows.
        block: the last field of it.
        present: which rows have it.
    """
    head = tag(number, _LENGTH_DELIMITED)
    size = len(before) + block.length
    if size.max(initial=0) >= _SHORT:
        msg = "a message of 128 bytes has a length of two"
        raise ValueError(msg)
    found = _after(head + b"\0" + before, block, present)
    found.data[:, len(head)] = size
    return found


def join(blocks: Sequence[FieldColumn]) -> Chunks:
    """Return the blocks side by side, row by row."""
    data = np.concatenate([block.data for block in blocks], axis=1)
    counts = np.concatenate(
        [np.arange(b.data.shape[1]) < b.length[:, None] for b in blocks], axis=1
    )
    return Chunks(data[counts], np.sum([block.length for block in blocks], axis=0))


def weave(first: Chunks, second: Chunks, is_second: Bools) -> bytes:
    """Return the bytes of two sequences of chunks, woven into one.

    Args:
        first: chunks in their order.
        second: the same.
        is_second: for each chunk of the result, whether it is the next one of `second`.
    """
    length = np.empty(len(is_second), np.int64)
    length[~is_second], length[is_second] = first.length, second.length
    of_second = np.repeat(is_second, length)
    data = np.empty(len(of_second), np.uint8)
    data[~of_second], data[of_second] = first.data, second.data
    return data.tobytes()


def append(heads: Chunks, tails: Chunks) -> Chunks:
    """Return each chunk of `heads` with that of `tails` behind it."""
    is_tail = np.tile([False, True], len(heads.length))
    data = np.frombuffer(weave(heads, tails, is_tail), np.uint8)
    return Chunks(data, heads.length + tails.length)


def _after(before: bytes, block: FieldColumn, present: Bools | None) -> FieldColumn:
    """Return a block with constant bytes before it, empty where it is not present."""
    lead = constant(before, len(block.length)).data
    length = block.length + len(before)
    return FieldColumn(
        np.concatenate((lead, block.data), axis=1),
        length if present is None else np.where(present, length, 0),
    )
