"""The scanner in Python: msgspec decodes the events, and their fields become columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from pyprof2.parsers._columns import Texts, Values, Words, flags
from pyprof2.parsers._kineto_columns import (
    ARGUMENTS,
    COLLECTIVE,
    INPUTS,
    MOMENTS,
    PHASE_OF_END,
    WITH_CALLS,
    Argument,
    Call,
    EventColumns,
    Scan,
    finished,
    group_of,
)
from pyprof2.parsers._kineto_events import EventDecoder, fields_of
from pyprof2.parsers._kineto_values import filled, parse_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.parsers._json import JsonStream
    from pyprof2.parsers._kineto_events import Event


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


def _values(args: Sequence[Any], name: str, argument: Argument) -> Sequence[Any]:
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
