"""The scanner in Python: msgspec decodes the events, and their fields become columns.

Events are decoded all at once, and field by field where one is broken.
"""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Raw

from pyprof2.parsers._columns import Texts, Values, Words, flags
from pyprof2.parsers._json import CHUNK_BYTES, DECODE_ERRORS
from pyprof2.parsers._kineto_columns import (
    ARGUMENTS,
    CALL,
    COLLECTIVE,
    INPUTS,
    MOMENTS,
    PHASE_OF_END,
    WITH_CALLS,
    Call,
    EventArgument,
    EventColumns,
    Scan,
    Takes,
    finished,
    group_of,
)
from pyprof2.parsers._kineto_values import filled, parse_us
from pyprof2.parsers._names import NAME_MAX, cut_name
from pyprof2.problems import NO_EVENT, NOT_UTF8, WRONG_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.parsers._json import JsonStream

_NO_BYTES: Final = b""
_TYPES: Final[Mapping[Takes, tuple[Any, Any]]] = {
    "number": (int | float | str | None, None),
    "id": (int | str | None, None),
    "text": (str | None, None),
    "json": (Raw, Raw(_NO_BYTES)),
    "all": (Raw, Raw(_NO_BYTES)),
}
"""The type of a field, and what it is where there is none."""


class Event(msgspec.Struct, gc=False):
    """An event; what the file has besides is not read."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = Raw(_NO_BYTES)
    dur: Raw = Raw(_NO_BYTES)
    id: int | str | None = None
    args: Raw = Raw(_NO_BYTES)


class _Named(Event, gc=False):
    """An event whose name is not too long: nearly all are."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_MAX)] = ""


class RecordedJob(msgspec.Struct):
    """The job, as the file describes it."""

    rank: Any = None
    world_size: Any = None


_NAMED: Final = msgspec.json.Decoder(list[_Named])
_EVENTS: Final = msgspec.json.Decoder(list[Event])
_EVENT: Final = msgspec.json.Decoder(Event)
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])


def _struct(columns: Mapping[str, EventArgument]) -> type[msgspec.Struct]:
    """Return a struct with a field for each key of columns of arguments."""
    fields = []
    for name, argument in columns.items():
        for field, key in zip(fields_of(name, argument), argument.keys, strict=True):
            kind, empty = _TYPES[argument.takes]
            fields.append((field, kind, msgspec.field(default=empty, name=key)))
    return msgspec.defstruct("Args", fields, gc=False)


def fields_of(name: str, argument: EventArgument) -> list[str]:
    """Return the names of the fields that a column of arguments comes from."""
    return [f"{name}_{at}" for at in range(len(argument.keys))]


_STRUCTS: Final = {
    group: _struct({**columns, **CALL} if group in WITH_CALLS else columns)
    for group, columns in ARGUMENTS.items()
    if columns
}
_ARGS: Final[dict[str, msgspec.json.Decoder[Any]]] = {
    group: msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    for group, kind in _STRUCTS.items()
}


class EventDecoder:
    """Decodes the events of a stream, and counts what was wrong with them in its problems."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._problems = stream.problems

    def events(self, text: bytes) -> list[Event]:
        """Return the events of one JSON array; what is no event is dropped."""
        with contextlib.suppress(msgspec.ValidationError, *DECODE_ERRORS):
            return list(_NAMED.decode(text))
        try:
            events = _EVENTS.decode(text)
        except UnicodeDecodeError:
            events = self._singly(self._stream.salvage(text))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            events = self._singly(self._raws(text))
        for event in events:
            event.name = cut_name(event.name, self._problems)
        return events

    def _raws(self, text: bytes) -> list[Raw]:
        if len(text) > 3 * CHUNK_BYTES // 2:  # no list of events: these are never that long
            return self._stream.salvage(text)
        try:
            return _RAWS.decode(text)
        except DECODE_ERRORS:
            return self._stream.salvage(text)

    def _singly(self, raws: list[Raw]) -> list[Event]:
        events = []
        for raw in raws:
            try:
                events.append(_EVENT.decode(raw))
            except (msgspec.ValidationError, *DECODE_ERRORS):
                event = _coerce(bytes(raw), Event)
                if event is None:
                    self._problems[NO_EVENT] += 1
                    self._stream.count_damaged()
                    if self._stream.is_given_up:
                        break
                else:
                    self._problems[WRONG_TYPE] += 1
                    events.append(event)
        return events

    def args(self, events: Sequence[Event], group: str) -> list[Any]:
        """Return the arguments of each event of a group; what does not decode is left out."""
        raws = [e.args or b"{}" for e in events]
        try:
            return list(_ARGS[group].decode(b"[" + b",".join(raws) + b"]"))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return [self._coerce_args(bytes(raw), _STRUCTS[group]) for raw in raws]

    def _coerce_args(self, raw: bytes, kind: Any) -> Any:
        text = raw.decode("utf-8", "replace").encode()
        if text != raw:
            self._problems[NOT_UTF8] += 1
            raw = text
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.ValidationError, *DECODE_ERRORS):
            self._problems[WRONG_TYPE] += 1
            return _coerce(raw, kind) or kind()


def _coerce(raw: bytes, kind: Any) -> Any:
    """Return a struct with the fields that have the right type; None if `raw` is no object."""
    try:
        fields = _FIELDS.decode(raw)
    except (msgspec.ValidationError, *DECODE_ERRORS):
        return None
    found = kind()
    for key, (name, decoder) in _decoders(kind).items():
        if key in fields:
            with contextlib.suppress(msgspec.ValidationError, *DECODE_ERRORS):
                setattr(found, name, decoder.decode(fields[key]))
    return found


@cache
def _decoders(kind: type[Any]) -> dict[str, tuple[str, msgspec.json.Decoder[Any]]]:
    """Return name and decoder of each field, by its key in the file."""
    return {
        info.encode_name: (info.name, msgspec.json.Decoder(info.type))
        for info in msgspec.structs.fields(kind)
    }


class EventScanner:
    """Scans by making an object of each event; see `Scanner`."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._decoder = EventDecoder(stream)
        self._known: dict[tuple[str, str], str | None] = {}
        self._words = Words()
        self._raws = Words()
        self._calls = Words(Call._make)

    def scan(self, text: bytes) -> Scan:
        """Return the events of one JSON array."""
        events = self._decoder.events(text)
        known = self._known
        members: defaultdict[Any, list[Event]] = defaultdict(list)
        for event in events:
            key = (event.ph, event.cat)
            try:
                group = known[key]
            except KeyError:
                group = known[key] = group_of(*key)
            members[group or key].append(event)
        skipped = Counter(
            {key: len(members.pop(key)) for key in [*members] if key not in ARGUMENTS}
        )
        groups = [self._columns(group, found) for group, found in members.items()]
        return finished(self._stream, Scan(groups, skipped, len(events), "python"))

    def _columns(self, group: str, events: list[Event]) -> EventColumns:
        start_ns, timed = parse_us([e.ts for e in events])
        dur_ns = np.zeros(len(events), np.int64)
        if group not in MOMENTS:
            dur_ns, is_number = parse_us([e.dur for e in events])
            timed &= is_number
        return EventColumns(
            group,
            Texts.of([e.name for e in events], self._words),
            Values.of([e.pid for e in events], self._words),
            Values.of([e.tid for e in events], self._words),
            start_ns,
            dur_ns,
            timed,
            self._args(group, events),
        )

    def _args(self, group: str, events: list[Event]) -> dict[str, Any]:
        if group == "flow":
            ends = flags(e.ph == PHASE_OF_END for e in events)
            return {"flow_id": Values.of([e.id for e in events], self._words), "end": ends}
        if not ARGUMENTS[group]:
            return {}
        if "series" in ARGUMENTS[group]:
            return {"series": Texts.each([bytes(e.args) for e in events])}
        args = self._decoder.args(events, group)
        columns: dict[str, Any] = {}
        for name, argument in ARGUMENTS[group].items():
            column = Texts if argument.takes in ("text", "json") else Values
            words = self._raws if argument.takes == "json" else self._words
            columns[name] = column.of(_values(args, name, argument), words)
        if group in WITH_CALLS:
            columns["call"] = Texts.of(_calls(events, args), self._calls)
        return columns


def _values(args: Sequence[Any], name: str, argument: EventArgument) -> Sequence[Any]:
    """Return a column of arguments: of each event the value of the first key that has one."""
    first, *others = (attrgetter(field) for field in fields_of(name, argument))
    values: Sequence[Any] = list(map(first, args))
    if argument.takes == "json":
        values = [bytes(value) if value else None for value in values]
        for other in others:
            values = filled(values, (bytes(raw) or None for raw in map(other, args)))
        return values
    for other in others:
        values = filled(values, map(other, args))
    return values


def _calls(events: Sequence[Event], args: Sequence[Any]) -> list[tuple[Any, ...]]:
    texts = [[text or b"" for text in _values(args, *part)] for part in INPUTS.items()]
    comms = zip(*(_values(args, *part) for part in COLLECTIVE.items()), strict=True)
    known = (comm if comm[0] else None for comm in comms)
    return list(zip([e.name for e in events], *texts, known, strict=True))
