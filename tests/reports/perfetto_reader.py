"""Read a trace of Perfetto's back with Perfetto's own schema: slices, flows and counters.

What is nested is found with a stack for each track, over all events in order of time; of those at
one instant the one that stands first in the file comes first, as Perfetto has it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

BEGIN, END, COUNTER = 1, 2, 4


@dataclass
class Slice:
    """A slice as Perfetto shows it."""

    track: tuple[str, ...]
    name: str
    category: str
    start: int
    end: int | None
    depth: int
    flows_out: list[int]
    flows_in: list[int]
    args: dict[str, Any]


@dataclass
class Trace:
    """What a trace holds; a track is known by the names from the outermost one to its own."""

    slices: list[Slice] = field(default_factory=list)
    counters: dict[tuple[str, ...], list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    units: dict[tuple[str, ...], Any] = field(default_factory=dict)
    packet_count: int = 0

    def on(self, *names: str) -> list[Slice]:
        """Return the slices of the tracks whose last names these are."""
        return [each for each in self.slices if each.track[-len(names) :] == names]

    def below(self, name: str) -> list[Slice]:
        """Return the slices of the tracks in whose path a name begins like this."""
        return [each for each in self.slices if any(n.startswith(name) for n in each.track)]


def read(path: Path) -> Trace:
    """Return the trace in a file, or fail where its slices are not nested."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    message = pb2.Trace()
    message.ParseFromString(path.read_bytes())
    texts, tracks, parents = _tables(message)
    trace = Trace(packet_count=len(message.packet))

    def names(number: int) -> tuple[str, ...]:
        above = parents[number]
        return (*(names(above) if above else ()), tracks[number].name)

    for number, track in tracks.items():
        if track.HasField("counter"):
            trace.units[names(number)] = track.counter.unit_name or track.counter.unit
    stacks: dict[int, list[Slice]] = defaultdict(list)
    events = [packet for packet in message.packet if packet.HasField("track_event")]
    for packet in sorted(events, key=lambda packet: packet.timestamp):
        event, time = packet.track_event, packet.timestamp
        assert packet.trusted_packet_sequence_id == 1
        stack = stacks[event.track_uuid]
        if event.type == COUNTER:
            trace.counters[names(event.track_uuid)].append((time, event.double_counter_value))
        elif event.type == END:
            assert stack, "an end without a begin"
            stack.pop().end = time
        else:
            assert event.type == BEGIN
            found = _slice(event, names(event.track_uuid), time, len(stack), texts)
            stack.append(found)
            trace.slices.append(found)
    assert not any(stacks.values()), "a begin without an end"
    return trace


def _tables(message: Any) -> tuple[dict[str, dict[int, Any]], dict[int, Any], dict[int, int]]:
    """Return the texts by kind and number, which come before they are used, and the tracks."""
    texts: dict[str, dict[int, Any]] = defaultdict(dict)
    tracks, parents = {}, {}
    for packet in message.packet:
        for kind, entries in packet.interned_data.ListFields():
            for entry in entries:
                assert entry.iid not in texts[kind.name], "a text that is there twice"
                text = entry.str.decode() if kind.name.endswith("values") else entry.name
                assert text not in texts[kind.name].values()
                texts[kind.name][entry.iid] = text
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks, "a track that is described twice"
            assert not track.parent_uuid or track.parent_uuid in tracks
            tracks[track.uuid], parents[track.uuid] = track, track.parent_uuid
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in tracks, "a track that is not described yet"
    return texts, tracks, parents


def _slice(
    event: Any, track: tuple[str, ...], time: int, depth: int, texts: dict[str, dict[int, Any]]
) -> Slice:
    args = {}
    for each in event.debug_annotations:
        kind = each.WhichOneof("value")
        value = getattr(each, kind)
        if kind == "string_value_iid":
            value = texts["debug_annotation_string_values"][value]
        args[texts["debug_annotation_names"][each.name_iid]] = value
    (category,) = event.category_iids or [0]
    return Slice(
        track,
        texts["event_names"].get(event.name_iid, ""),
        texts["event_categories"].get(category, ""),
        time,
        None,
        depth,
        list(event.flow_ids),
        list(event.terminating_flow_ids),
        args,
    )
