"""The packets of a trace of Perfetto's: tracks, slices, counters, texts, each written once.

The numbers of the fields are those of Perfetto's `trace_packet.proto` and what it includes.

Below is protobuf's wire format, for whole columns: one message per row, encoded by NumPy. A field
of all rows is a `FieldColumn`: a matrix of bytes with a row for each message, in which only the
first bytes count, as many as `length` says. Columns side by side are a message: its bytes are those
that count, row by row. Where `_packets.c` is built it writes the packets of events, in a tenth of
the time; what is here in NumPy gives the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from pyprof2 import is_pure
from pyprof2.reports.cells import clean

_packets: Any = None
with contextlib.suppress(ImportError):  # it was not built
    from pyprof2.reports.perfetto import _packets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pyprof2.columns import TextColumn

    Bytes: TypeAlias = NDArray[np.uint8]
    Bools: TypeAlias = NDArray[np.bool_]
    Ints: TypeAlias = NDArray[np.int64]

CATEGORY: Final = 1
NAME: Final = 2
ARGUMENT: Final = 3
VALUE: Final = 29
"""The kinds of text that are written once: the fields of `InternedData`."""

INT: Final = 4
DOUBLE: Final = 5
TEXT: Final = 17
"""The kinds of values of arguments: the fields of `DebugAnnotation`."""

BYTES: Final = 3
COUNT: Final = 2
"""Units of counters that Perfetto has a word for."""

_PACKET, _SEQUENCE, _FLAGS, _TIMESTAMP = 1, 10, 13, 8
_INTERNED, _EVENT, _DESCRIPTOR = 12, 11, 60
_CLEARED, _NEEDS_TEXTS = 1, 2
_TYPE, _TRACK, _EVENT_NAME, _EVENT_CATEGORY, _EVENT_ARGUMENT = 9, 11, 10, 3, 4
_FLOW_FROM, _FLOW_TO, _COUNTER_VALUE = 47, 48, 44
_BEGIN, _END, _COUNTER = 1, 2, 4
_UUID, _TRACK_NAME, _PARENT, _TRACK_COUNTER, _ORDERING, _RANK = 1, 2, 5, 8, 11, 12
_EXPLICIT: Final = 3
_UNIT, _UNIT_NAME = 3, 6
_THE_SEQUENCE: Final = 1
_ARGUMENT_NAME: Final = 1
_FLOW_BYTES: Final = 10  # a tag of two bytes, and eight of the id
AT_A_TIME: Final = 1 << 14
_PLACES: Final = 1 << 20


class SliceArgument(NamedTuple):
    """An argument of slices, which Perfetto shows beside the one that is selected.

    Attributes:
        name: what it is.
        kind: `INT`, `DOUBLE`, or `TEXT`, whose values are numbers of texts.
        values: of each slice.
        present: which slices have it.
    """

    name: str
    kind: int
    values: NDArray[Any]
    present: Bools


@dataclass
class Slices:
    """Slices in order of start, of equal ones the longer first.

    Attributes:
        start, end: in ns.
        name, category: numbers of texts; 0 for none.
        arguments: what else there is to say of them.
        flow_to: the flow that ends in each slice; 0 for none.
        flows: the flows that begin in slices, one slice after another.
        flow_offsets: of each slice the position of its first one in `flows`, and their number.
        track: of each, once it is known.
    """

    start: Ints
    end: Ints
    name: Ints
    category: Ints
    arguments: Sequence[SliceArgument] = ()
    flow_to: Ints | None = None
    flows: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    flow_offsets: Ints | None = None
    track: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.start)


class Writer:
    """Writes packets one after another; tracks and texts before the packets that name them."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._tracks: dict[tuple[int, str], int] = {}
        self._texts: dict[int, dict[str, int]] = {
            kind: {} for kind in (CATEGORY, NAME, ARGUMENT, VALUE)
        }
        self._begin()

    def _begin(self) -> None:
        self._write_one(scalar_field(_FLAGS, _CLEARED))

    def close(self) -> None:
        """Write the end of the file: there is none."""

    def track(
        self,
        name: str,
        parent: int = 0,
        *,
        place: int = 0,
        counter: int | str | None = None,
    ) -> int:
        """Return the number of a track, which is described when it is first asked for.

        Args:
            name: to be shown; below one parent each is another track.
            parent: the track that it is shown below; 0: none.
            place: among those of the parent; of those in one place the first one comes first.
            counter: the unit, where it is a counter: `BYTES`, `COUNT`, or a text.
        """
        key = (parent, name)
        number = self._tracks.get(key)
        if number is None:
            number = self._tracks[key] = len(self._tracks) + 1
            order = place * _PLACES + min(number, _PLACES - 1)
            self._describe(number, order, name, parent, counter)
        return number

    def _describe(
        self, number: int, order: int, name: str, parent: int, counter: int | str | None
    ) -> None:
        content = scalar_field(_UUID, number) + scalar_field(_TRACK_NAME, clean(name))
        content += scalar_field(_ORDERING, _EXPLICIT) + scalar_field(_RANK, order)
        if parent:
            content += scalar_field(_PARENT, parent)
        if counter is not None:
            unit = _UNIT if isinstance(counter, int) else _UNIT_NAME
            content += scalar_field(_TRACK_COUNTER, scalar_field(unit, counter))
        self._write_one(scalar_field(_DESCRIPTOR, content))

    def texts(self, kind: int, column: TextColumn) -> Ints:
        """Return a number for each text of a column, 0 for null; new ones are written first."""
        codes, texts = column
        used = np.unique(codes[codes >= 0]).tolist()
        numbers = np.zeros(len(texts) + 1, np.int64)  # the code of a null is -1: the last one
        known, new = self._texts[kind], []
        for code in used:
            text = clean(texts[code] or "")
            number = known.get(text)
            if number is None:
                number = known[text] = len(known) + 1
                new.append((number, text))
            numbers[code] = number
        self._write_texts(kind, new)
        return numbers[codes]

    def text(self, kind: int, text: str) -> int:
        """Return the number of one text."""
        return int(self.texts(kind, (np.zeros(1, np.int64), [text]))[0])

    def _write_texts(self, kind: int, new: Sequence[tuple[int, str]]) -> None:
        entries = [
            scalar_field(kind, scalar_field(1, number) + scalar_field(2, text))
            for number, text in new
        ]
        if entries:
            self._write_one(scalar_field(_INTERNED, b"".join(entries)))

    def _write_one(self, content: bytes) -> None:
        head = scalar_field(_SEQUENCE, _THE_SEQUENCE)
        self._write(scalar_field(_PACKET, head + content))

    def slices(self, begins: Slices, ends: tuple[Ints, Ints], is_end: Bools) -> None:
        """Write begins and ends of slices, in the order that is given.

        Args:
            begins: the slices that begin.
            ends: time and track of what ends.
            is_end: of each event in order, which of the two the next one is of.
        """
        arguments = [(self.text(ARGUMENT, each.name), each) for each in begins.arguments]
        for first in range(0, len(is_end), AT_A_TIME):
            part = is_end[first : first + AT_A_TIME]
            before = int(is_end[:first].sum())
            of_ends = slice(before, before + int(part.sum()))
            of_begins = slice(first - before, first - before + int((~part).sum()))
            time, track = (column[of_ends] for column in ends)
            ended = PacketColumns(time, scalar_field(_TYPE, _END), (varint_field(_TRACK, track),))
            self._write(packets(_begins(begins, of_begins, arguments), ended, part))

    def counters(self, time: Ints, track: Ints, value: NDArray[np.float64]) -> None:
        """Write values of counters, from these instants on."""
        for first in range(0, len(time), AT_A_TIME):
            part = slice(first, first + AT_A_TIME)
            fields = varint_field(_TRACK, track[part]), fixed64_field(_COUNTER_VALUE, value[part])
            events = PacketColumns(time[part], scalar_field(_TYPE, _COUNTER), fields)
            self._write(packets(events, _NO_EVENTS, np.zeros(len(events.time), np.bool_)))


def _begins(
    slices: Slices, rows: slice, arguments: Sequence[tuple[int, SliceArgument]]
) -> PacketColumns:
    name, category = slices.name[rows], slices.category[rows]
    fields = [
        varint_field(_TRACK, slices.track[rows]),
        varint_field(_EVENT_CATEGORY, category, category > 0),
        varint_field(_EVENT_NAME, name, name > 0),
    ]
    for number, argument in arguments:
        encode = fixed64_field if argument.kind == DOUBLE else varint_field
        value = encode(argument.kind, argument.values[rows], argument.present[rows])
        fields.append(short_message_field(scalar_field(_ARGUMENT_NAME, number), value))
    if slices.flow_to is not None:
        fields.append(fixed64_field(_FLOW_TO, slices.flow_to[rows], slices.flow_to[rows] > 0))
    events = PacketColumns(slices.start[rows], scalar_field(_TYPE, _BEGIN), tuple(fields))
    if slices.flow_offsets is None:
        return events
    offsets = slices.flow_offsets[rows.start : rows.start + len(events.time) + 1]
    return events._replace(flows=slices.flows[offsets[0] : offsets[-1]], offsets=offsets)


_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH_DELIMITED: Final = 2
_LONGEST: Final = 10
"""Bytes of a varint."""
_SHORT: Final = 0x80
_NONE: Final = np.empty(0, np.int64)


class Field(NamedTuple):
    """One field of events: constant bytes, and behind them a value of each row.

    Attributes:
        before: the constant bytes.
        values: of eight bytes each.
        present: which rows have it; None: all.
        is_fixed: whether the values are written as they are, else as varints.
        size_at: where in `before` the number of the bytes behind it is to stand; 0: nowhere.
    """

    before: bytes
    values: NDArray[Any]
    present: Bools | None
    is_fixed: bool
    size_at: int = 0


class PacketColumns(NamedTuple):
    """Events of one kind, a packet each.

    Attributes:
        time: in ns.
        kind: the field that says what they are.
        fields: the others.
        flows, offsets: as `flows` and `flow_offsets` of `Slices`, but that `flows` begins with
            those of the first event; where it is empty nothing is asked of `offsets`.
    """

    time: Ints
    kind: bytes
    fields: tuple[Field, ...]
    flows: Ints = _NONE
    offsets: Ints = _NONE


_NO_EVENTS: Final = PacketColumns(_NONE, b"", ())


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
    plain = values.astype(np.int64).view(np.uint64)
    width = max(1, -(-int(plain.max(initial=0)).bit_length() // 7))
    length = np.ones(len(plain), np.int64)
    data = np.empty((len(plain), width), np.uint8)
    for at in range(width):
        # Higher bits are cut off: each byte holds seven.
        data[:, at] = (plain & 0x7F) | 0x80
        plain = plain >> np.uint8(7)
        length += plain > 0
    data[np.arange(len(data)), length - 1] &= 0x7F
    return FieldColumn(data, length)


def varint_field(number: int, values: Ints, present: Bools | None = None) -> Field:
    """Return a field of whole numbers; of those rows that have it."""
    plain = np.ascontiguousarray(values, np.int64)
    return Field(tag(number, _VARINT), plain, present, is_fixed=False)


def fixed64_field(number: int, values: NDArray[Any], present: Bools | None = None) -> Field:
    """Return a field of eight bytes: a `double`, or a number of 64 bits as it is."""
    return Field(tag(number, _FIXED64), np.ascontiguousarray(values), present, is_fixed=True)


def column(field: Field) -> FieldColumn:
    """Return the bytes of a field."""
    values = field.values.astype(field.values.dtype.newbyteorder("<"), copy=False)
    fixed = FieldColumn(values.view(np.uint8).reshape(-1, 8), np.full(len(values), 8))
    block = fixed if field.is_fixed else varint(values)
    found = _after(field.before, block, field.present)
    if field.size_at:
        found.data[:, field.size_at] = len(field.before) - field.size_at - 1 + block.length
    return found


def constant(content: bytes, count: int) -> FieldColumn:
    """Return the same bytes in every row."""
    data = np.broadcast_to(np.frombuffer(content, np.uint8), (count, len(content)))
    return FieldColumn(data, np.full(count, len(content)))


def message_field(
    number: int, blocks: Sequence[FieldColumn], after: Ints | None = None
) -> list[FieldColumn]:
    """Return a field that holds a message.

    Args:
        number: of the field.
        blocks: the fields of the message.
        after: of each row, how many bytes of the message are to follow after the blocks.
    """
    size = np.sum([block.length for block in blocks], axis=0)
    size = size if after is None else size + after
    return [_after(tag(number, _LENGTH_DELIMITED), varint(size)), *blocks]


def short_message_field(before: bytes, last: Field) -> Field:
    """Return an argument: a message of one field of each row, shorter than 128 bytes.

    Args:
        before: fields of the message that are the same in all rows.
        last: the last field of it.
    """
    before += last.before
    if len(before) + _LONGEST >= _SHORT:
        msg = "a message of 128 bytes has a length of two"
        raise ValueError(msg)
    head = tag(_EVENT_ARGUMENT, _LENGTH_DELIMITED)
    return last._replace(before=head + b"\0" + before, size_at=len(head))


_HEAD: Final = scalar_field(_SEQUENCE, _THE_SEQUENCE) + scalar_field(_FLAGS, _NEEDS_TEXTS)
_HEADS: Final = (
    tag(_PACKET, _LENGTH_DELIMITED), _HEAD + tag(_TIMESTAMP, _VARINT),
    tag(_EVENT, _LENGTH_DELIMITED), tag(_FLOW_FROM, _FIXED64),
)  # fmt: skip
"""The bytes before a packet, before its time, before its event, and before each flow."""


def packets(first: PacketColumns, second: PacketColumns, is_second: Bools) -> bytes:
    """Return packets of events of two kinds, woven into one sequence.

    Args:
        first: events in their order.
        second: the same.
        is_second: for each packet, whether it is of the next one of `second`.
    """
    if _packets is not None and not is_pure():
        return bytes(_packets.packets(_HEADS, first, second, is_second))
    return weave(_chunks(first), _chunks(second), is_second)


def _chunks(events: PacketColumns) -> Chunks:
    """Return the packets of events."""
    count = len(events.time)
    after = _FLOW_BYTES * np.diff(events.offsets) if len(events.flows) else None
    flows = column(fixed64_field(_FLOW_FROM, events.flows)).data.ravel()
    fields = [constant(events.kind, count), *map(column, events.fields)]
    time = column(varint_field(_TIMESTAMP, events.time))
    content = [constant(_HEAD, count), time, *message_field(_EVENT, fields, after)]
    heads = join(message_field(_PACKET, content, after))
    return heads if after is None else append(heads, Chunks(flows, after))


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


def _after(before: bytes, block: FieldColumn, present: Bools | None = None) -> FieldColumn:
    """Return a block with constant bytes before it, empty where it is not present."""
    lead = constant(before, len(block.length)).data
    length = block.length + len(before)
    return FieldColumn(
        np.concatenate((lead, block.data), axis=1),
        length if present is None else np.where(present, length, 0),
    )
