"""The scanner in Python: msgspec decodes the events, and their fields become columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.parsers._kineto_columns import (
    ARGUMENTS,
    COLLECTIVE,
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
    from collections.abc import Callable, Mapping, Sequence

    import msgspec

    from pyprof2.parsers._json import JsonStream
    from pyprof2.parsers._kineto_events import Event

_collective: Final = attrgetter(*COLLECTIVE)


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
        kind, columns = _ARGS[group]
        return columns(self._decoder.args(events, kind))


# Each column is a comprehension over one field: far faster than a field by its name. A tuple for
# each event would make Python look for garbage again and again.
def _op_columns(args: Sequence[OpArgs]) -> dict[str, Sequence[Any]]:
    return {
        "external_id": _external_ids(args),
        "sequence_nr": [a.sequence_nr for a in args],
        "forward_thread": [a.forward_thread for a in args],
        "dims": _texts([a.dims or a.old_dims for a in args]),
        "strides": _texts([a.strides for a in args]),
        "types": _texts([a.types for a in args]),
        "values": _texts([a.values for a in args]),
        "backend": [a.backend for a in args],
        "stack": [a.stack for a in args],
        "modules": [a.modules for a in args],
        "collective": [_collective(a) if a.collective else None for a in args],
        "comm_seq": [a.comm_seq for a in args],
    }


def _activity_columns(args: Sequence[GpuArgs]) -> dict[str, Sequence[Any]]:
    return {
        "external_id": _external_ids(args),
        "correlation": [a.correlation for a in args],
        "device": filled([a.device for a in args], (a.in_device for a in args)),
        "stream": [a.stream for a in args],
        "bytes": [a.bytes for a in args],
        "grid": _texts([a.grid for a in args]),
        "block": _texts([a.block for a in args]),
        "registers": [a.registers for a in args],
        "shared_bytes": [a.shared_bytes for a in args],
        "blocks_per_sm": [a.blocks_per_sm for a in args],
        "occupancy": [a.occupancy for a in args],
        "graph_node": [a.graph_node for a in args],
    }


def _launch_columns(args: Sequence[LaunchArgs]) -> dict[str, Sequence[Any]]:
    return {"external_id": _external_ids(args), "correlation": [a.correlation for a in args]}


def _stall_columns(args: Sequence[StallArgs]) -> dict[str, Sequence[Any]]:
    return {
        "device": [a.device for a in args],
        "stream": [a.stream for a in args],
        "correlation": [a.correlation for a in args],
        "recorded_by": [a.recorded_by for a in args],
    }


def _memory_columns(args: Sequence[MemoryArgs]) -> dict[str, Sequence[Any]]:
    return {
        "device_type": [a.device_type for a in args],
        "device": [a.device for a in args],
        "address": [a.address for a in args],
        "bytes": [a.bytes for a in args],
        "allocated": [a.allocated for a in args],
        "reserved": [a.reserved for a in args],
    }


_ARGS: Final[Mapping[str, tuple[type[Any], Callable[..., dict[str, Sequence[Any]]]]]] = {
    "op": (OpArgs, _op_columns),
    "launch": (LaunchArgs, _launch_columns),
    "kernel": (GpuArgs, _activity_columns),
    "memcpy": (GpuArgs, _activity_columns),
    "memset": (GpuArgs, _activity_columns),
    "overhead": (StallArgs, _stall_columns),
    "wait": (StallArgs, _stall_columns),
    "memory": (MemoryArgs, _memory_columns),
}
"""The groups whose events have arguments, how these are decoded, and what makes columns of them."""


def _external_ids(args: Sequence[OpArgs | GpuArgs | LaunchArgs]) -> Sequence[Any]:
    return filled([a.external_id for a in args], (a.old_external_id for a in args))


def _texts(values: Sequence[msgspec.Raw]) -> Sequence[bytes]:
    """Return JSON texts as bytes."""
    if all(values):
        return list(map(bytes, values))
    return [bytes(value) if value else b"" for value in values]
