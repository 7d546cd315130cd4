"""The compiled scanner: `_scan.c` fills the columns, and Python looks at new texts alone.

It is there where a compiler was when pyprof2 was installed. The scanner in
Python scans the chunks that it does not understand: the columns are equal whichever of them did.
"""

from __future__ import annotations

import secrets
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from pyprof2.parsers import _scan
from pyprof2.parsers._columns import NO_VALUE, WHOLE, Meaning, Texts, Values
from pyprof2.parsers._kineto_columns import (
    ARGUMENTS,
    CALL,
    MOMENTS,
    PHASE_OF_END,
    WITH_CALLS,
    Call,
    EventArgument,
    EventColumns,
    Scan,
    finished,
    group_of,
)
from pyprof2.parsers._kineto_scanner import EventScanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyprof2.parsers._json import JsonStream

_TAKES: Final = {"number": 0, "id": 1, "text": 2, "json": 3, "all": 4}
_GROUPS: Final = list(ARGUMENTS)
_TEXTS, _RAWS, _CALLS = range(3)
"""The dictionaries of `_scan.Scanner`."""
_RAW: Final = 4
"""The kind of JSON among the parts of a call; the others are as in `Values`."""


def _columns_of(arguments: Mapping[str, EventArgument]) -> tuple[Any, ...]:
    return tuple(
        (_TAKES[argument.takes], tuple(key.encode() for key in argument.keys))
        for argument in arguments.values()
    )


_SPECIFICATION: Final = tuple(
    (group in MOMENTS, _columns_of(columns), _columns_of(CALL) if group in WITH_CALLS else ())
    for group, columns in ARGUMENTS.items()
)


def _group_number(phase: bytes, category: bytes) -> int:
    group = group_of(_text(phase), _text(category))
    return -1 if group is None else _GROUPS.index(group)


def _text(raw: bytes) -> str:
    """Return what stands between the quotes of a JSON string."""
    return msgspec.json.decode(b'"' + raw + b'"', type=str) if b"\\" in raw else raw.decode()


class NativeScanner:
    """Scans with compiled code; see `Scanner`."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._python = EventScanner(stream)
        self._scanner = _scan.Scanner(_SPECIFICATION, _group_number, secrets.randbits(64))
        self._texts: list[str] = []
        self._raws: list[bytes] = []
        self._calls: list[Call] = []
        self._is_end = Meaning(lambda phase: phase == PHASE_OF_END)

    def scan(self, text: bytes) -> Scan:
        """Return the events of one JSON array."""
        found = self._scanner.scan(text)
        if found is None:
            return self._python.scan(text)
        count, pairs, groups = found
        # Take over what is new in the dictionaries.
        words, texts, raws, calls = self._scanner.words, self._texts, self._raws, self._calls
        texts += map(_text, words(_TEXTS, len(texts)))
        raws += words(_RAWS, len(raws))
        calls += map(self._call, words(_CALLS, len(calls)))
        skipped: Counter[tuple[str, str]] = Counter()
        for phase, category, times in pairs:
            skipped[_text(phase), _text(category)] += times
        columns = [self._columns(_GROUPS[number], iter(parts), text) for number, parts in groups]
        return finished(self._stream, Scan(columns, skipped, count, "compiled"))

    def _call(self, packed: bytes) -> Call:
        (_, name), *parts = np.frombuffer(packed, np.int64).reshape(-1, 2).tolist()
        found: list[Any] = [None] * len(CALL)
        for place, bits in parts:
            found[(place >> 8) - 1] = self._part(place & 0xFF, bits)
        comm = tuple(found[4:])
        dims, types, strides, values = (part or b"" for part in found[:4])
        return Call(self._texts[name], dims, types, strides, values, comm if comm[0] else None)

    def _part(self, kind: int, bits: int) -> Any:
        if kind == _RAW:
            return self._raws[bits]
        if kind in (NO_VALUE, WHOLE):
            return bits if kind == WHOLE else None
        value = Values(np.array([bits]), np.array([kind], np.uint8), self._texts)
        return value.to_list()[0]

    def _columns(self, group: str, buffers: Iterator[Any], text: bytes) -> EventColumns:
        name, pid, tid = self._names(buffers), self._values(buffers), self._values(buffers)
        start, dur = (np.frombuffer(next(buffers), np.int64) for _ in range(2))
        timed = np.frombuffer(next(buffers), np.bool_)
        flow_id, phase, call = self._values(buffers), self._names(buffers), self._codes(buffers)
        args: dict[str, Any] = {}
        if group == "flow":
            args = {"flow_id": flow_id, "end": self._is_end.flags(phase)}
        for column, argument in ARGUMENTS[group].items():
            if argument.takes in ("number", "id"):
                args[column] = self._values(buffers)
                continue
            if argument.takes == "all":
                args[column] = self._parts_of(text, next(buffers))
            else:
                words = self._texts if argument.takes == "text" else self._raws
                args[column] = Texts(self._codes(buffers), words)
        if group in WITH_CALLS:
            args["call"] = Texts(call, self._calls)
        dur = np.zeros_like(start) if group in MOMENTS else dur
        return EventColumns(group, name, pid, tid, start, dur, timed, args)

    def _parts_of(self, text: bytes, places: bytes) -> Texts:
        numbers = np.frombuffer(places, np.int64).reshape(-1, 2)
        return Texts.each([text[begin:end] for begin, end in numbers.tolist()])

    def _codes(self, buffers: Iterator[Any]) -> Any:
        return np.frombuffer(next(buffers), np.int32)

    def _names(self, buffers: Iterator[Any]) -> Texts:
        return Texts(self._codes(buffers), self._texts)

    def _values(self, buffers: Iterator[Any]) -> Values:
        bits = np.frombuffer(next(buffers), np.int64)
        kinds = np.frombuffer(next(buffers), np.uint8)
        return Values(bits, kinds, self._texts, next(buffers))
