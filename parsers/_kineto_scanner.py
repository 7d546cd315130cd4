"""The scanner in Python: msgspec decodes the events, and their fields become columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.parsers._kineto_columns import (
    ARGUMENTS,
    JSON_TEXTS,
    MEMORY_NAME,
    MOMENTS,
    EventColumns,
    Scan,
    group_of,
)
from pyprof2.parsers._kineto_events import (
    EventDecoder,
    GpuArgs,
    LaunchArgs,
    MemoryArgs,
    OpArgs,
    StallArgs,
)
from pyprof2.parsers._kineto_values import filled, parse_us

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import msgspec

    from pyprof2.parsers._json import JsonStream
    from pyprof2.parsers._kineto_events import Event

_ARGS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "op": OpArgs, "launch": LaunchArgs, "kernel": GpuArgs, "memcpy": GpuArgs, "memset": GpuArgs,
    "overhead": StallArgs, "wait": StallArgs, "memory": MemoryArgs,
}  # fmt: skip
_OTHER_KEYS: Final = {
    "external_id": "old_external_id", "dims": "old_dims", "device": "in_device"
}  # fmt: skip
"""Under which field the same is where the file is older, or of another vendor."""
_COLLECTIVE: Final = attrgetter("collective", "in_count", "out_count", "comm_dtype", "group_size")


class EventScanner:
    """Scans by making an object of each event; see `Scanner`."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._decoder = EventDecoder(stream)
        self._known: dict[tuple[str, str], str | None] = {}

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
        self._keep_memory(members, skipped)
        for (phase, _), count in skipped.items():
            if not phase:
                self._stream.count_damaged(count)
        groups = [self._columns(group, found) for group, found in members.items()]
        return Scan(groups, skipped, len(events))

    def _keep_memory(
        self, members: dict[Any, list[Event]], skipped: Counter[tuple[str, str]]
    ) -> None:
        instants = members.get("memory", [])
        memory = [event for event in instants if event.name == MEMORY_NAME]
        if len(memory) < len(instants):
            skipped["i", ""] += len(instants) - len(memory)
            members["memory"] = memory
            if not memory:
                del members["memory"]

    def _columns(self, group: str, events: list[Event]) -> EventColumns:
        start_ns, timed = parse_us([e.ts for e in events])
        dur_ns = np.zeros(len(events), np.int64)
        if group not in MOMENTS:
            dur_ns, is_number = parse_us([e.dur for e in events])
            timed &= is_number
        return EventColumns(
            group,
            [e.name for e in events],
            [e.pid for e in events],
            [e.tid for e in events],
            start_ns,
            dur_ns,
            timed,
            self._args(group, events),
        )

    def _args(self, group: str, events: list[Event]) -> dict[str, Sequence[Any]]:
        if group == "flow":
            return {"flow_id": [e.id for e in events], "end": [e.ph == "f" for e in events]}
        if group == "counter":
            return {"values": [bytes(e.args) for e in events]}
        if group not in _ARGS:
            return {}
        args = self._decoder.args(events, _ARGS[group])
        return {name: _column(name, args) for name in ARGUMENTS[group]}


# One column after the other, of lists alone: a tuple for each event would make Python look for
# garbage again and again.
def _column(name: str, args: Sequence[Any]) -> Sequence[Any]:
    """Return a column of arguments, also where they have another key in this file."""
    if name == "collective":
        return [_COLLECTIVE(a) if a.collective else None for a in args]
    values, other_key = list(map(attrgetter(name), args)), _OTHER_KEYS.get(name)
    if name in JSON_TEXTS:
        values = list(map(bytes, values))
    if other_key is None or not hasattr(args[0], other_key):
        return values
    others = map(attrgetter(other_key), args)
    if name in JSON_TEXTS:
        return [text or bytes(other) for text, other in zip(values, others, strict=True)]
    return filled(values, others)
