"""The packets of a trace of Perfetto's: tracks, slices, counters, texts, each written once.

The numbers of the fields are those of Perfetto's `trace_packet.proto` and what it includes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.reports.cells import clean
from pyprof2.reports.perfetto import wire
from pyprof2.reports.perfetto.wire import Chunks, FieldColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pyprof2.columns import TextColumn
    from pyprof2.reports.perfetto.wire import Bools, Ints

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
        self._write_one(wire.scalar_field(_FLAGS, _CLEARED))

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
        content = wire.scalar_field(_UUID, number) + wire.scalar_field(_TRACK_NAME, clean(name))
        content += wire.scalar_field(_ORDERING, _EXPLICIT) + wire.scalar_field(_RANK, order)
        if parent:
            content += wire.scalar_field(_PARENT, parent)
        if counter is not None:
            unit = _UNIT if isinstance(counter, int) else _UNIT_NAME
            content += wire.scalar_field(_TRACK_COUNTER, wire.scalar_field(unit, counter))
        self._write_one(wire.scalar_field(_DESCRIPTOR, content))

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
            wire.scalar_field(kind, wire.scalar_field(1, number) + wire.scalar_field(2, text))
            for number, text in new
        ]
        if entries:
            self._write_one(wire.scalar_field(_INTERNED, b"".join(entries)))

    def _write_one(self, content: bytes) -> None:
        head = wire.scalar_field(_SEQUENCE, _THE_SEQUENCE)
        self._write(wire.scalar_field(_PACKET, head + content))

    def slices(self, begins: Slices, ends: tuple[Ints, Ints], is_end: Bools) -> None:
        """Write begins and ends of slices, in the order that is given.

        Args:
            begins: the slices that begin.
            ends: time and track of what ends.
            is_end: of each event in order, which of the two the next one is of.
        """
        arguments = [
            (self.text(ARGUMENT, argument.name), argument) for argument in begins.arguments
        ]
        for first in range(0, len(is_end), AT_A_TIME):
            part = is_end[first : first + AT_A_TIME]
            before = int(is_end[:first].sum())
            of_ends = slice(before, before + int(part.sum()))
            of_begins = slice(first - before, first - before + int((~part).sum()))
            begun = _begin_packets(begins, of_begins, arguments)
            time, track = (column[of_ends] for column in ends)
            event = [
                wire.constant(wire.scalar_field(_TYPE, _END), len(time)),
                wire.varint_field(_TRACK, track),
            ]
            self._write(wire.weave(begun, wire.join(_packets(time, event)), part))

    def counters(self, time: Ints, track: Ints, value: NDArray[np.float64]) -> None:
        """Write values of counters, from these instants on."""
        for first in range(0, len(time), AT_A_TIME):
            part = slice(first, first + AT_A_TIME)
            event = [
                wire.constant(wire.scalar_field(_TYPE, _COUNTER), len(time[part])),
                wire.varint_field(_TRACK, track[part]),
                wire.fixed64_field(_COUNTER_VALUE, value[part]),
            ]
            self._write(wire.join(_packets(time[part], event)).data.tobytes())


def _packets(time: Ints, event: list[FieldColumn], after: Ints | None = None) -> list[FieldColumn]:
    """Return packets of events; bytes that follow their blocks are the last field of each."""
    head = wire.scalar_field(_SEQUENCE, _THE_SEQUENCE) + wire.scalar_field(_FLAGS, _NEEDS_TEXTS)
    content = [
        wire.constant(head, len(time)),
        wire.varint_field(_TIMESTAMP, time),
        *wire.message_field(_EVENT, event, after=after),
    ]
    return wire.message_field(_PACKET, content, after=after)


def _begin_packets(
    slices: Slices, rows: slice, arguments: Sequence[tuple[int, SliceArgument]]
) -> Chunks:
    count = len(slices.start[rows])
    name, category = slices.name[rows], slices.category[rows]
    event = [
        wire.constant(wire.scalar_field(_TYPE, _BEGIN), count),
        wire.varint_field(_TRACK, slices.track[rows]),
        wire.varint_field(_EVENT_CATEGORY, category, category > 0),
        wire.varint_field(_EVENT_NAME, name, name > 0),
    ]
    for number, argument in arguments:
        event.append(_argument(number, argument, rows))
    if slices.flow_to is not None:
        flow = slices.flow_to[rows]
        event.append(wire.fixed64_field(_FLOW_TO, flow, flow > 0))
    if slices.flow_offsets is None:
        return wire.join(_packets(slices.start[rows], event))
    offsets = slices.flow_offsets[rows.start : rows.start + count + 1]
    flows = wire.fixed64_field(_FLOW_FROM, slices.flows[offsets[0] : offsets[-1]])
    after = _FLOW_BYTES * np.diff(offsets)
    heads = wire.join(_packets(slices.start[rows], event, after))
    return wire.append(heads, Chunks(flows.data.ravel(), after))


def _argument(number: int, argument: SliceArgument, rows: slice) -> FieldColumn:
    encode = wire.fixed64_field if argument.kind == DOUBLE else wire.varint_field
    value = encode(argument.kind, argument.values[rows])
    name = wire.scalar_field(_ARGUMENT_NAME, number)
    return wire.short_message_field(_EVENT_ARGUMENT, name, value, argument.present[rows])
