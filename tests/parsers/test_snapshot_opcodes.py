"""Snapshots of many events: which opcodes are let through, and rows that are read many at once."""

from __future__ import annotations

import pickle
import pickletools
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.errors import TraceError
from pyprof2.parsers._snapshot_pickle import Refused, check_opcodes
from pyprof2.parsers.snapshot import read_snapshot
from tests.snapshots import alloc, block, dump, flat, forward, free, segment, snapshot

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

    from pyprof2.recording import Snapshot

_REFUSED: Final = (b"R", b"c", b"\x93", b"b", b"\x81", b"i", b"Q", b"P", b"\x82", b"I", b"\x8b")
"""Opcodes that call, name or build, or take a number of any length."""


def _sample(protocol: int) -> bytes:
    """Return a snapshot with keys, values and stacks of all the lengths that opcodes have."""
    events = flat(
        *(
            each
            for at in range(0, 40, 4)
            for each in (
                alloc(1 << (at + 8), 3 + (1 << at), forward(at)),
                free(1 << (at + 8), 3 + (1 << at)),
            )
        )
    )
    for event in events:
        event["compile_context"] = "N/A".lower().upper()  # a text of its own each time
    blocks = [block(512, address=1 << 20, requested_size=500, frames=forward(900))]
    return pickle.dumps(snapshot([segment(*blocks)], events), protocol)


def test_a_frame_ends_between_two_opcodes(tmp_path: Path) -> None:
    content = _sample(4)
    ends = {at for _, _, at in pickletools.genops(content)}
    path = tmp_path / "x.pickle"
    begin = 2 + 9  # after the version, and the frame's own opcode and length

    for length in range(1, 400):
        path.write_bytes(content[:3] + length.to_bytes(8, "little") + content[begin:])
        with path.open("rb") as file:
            if begin + length in ends:
                check_opcodes(file, len(content))
            else:
                with pytest.raises(Refused):
                    check_opcodes(file, len(content))


def test_a_frame_within_a_frame_is_refused(tmp_path: Path) -> None:
    content = _sample(4)
    path = tmp_path / "x.pickle"
    begin = 2 + 9
    inner = b"\x95" + (3).to_bytes(8, "little")
    path.write_bytes(content[:3] + (400).to_bytes(8, "little") + inner + content[begin:])

    with path.open("rb") as file, pytest.raises(Refused, match="a frame within a frame"):
        check_opcodes(file, len(content) + 9)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_an_opcode_that_is_refused_is_found_wherever_it_stands(
    protocol: int, tmp_path: Path
) -> None:
    content = _sample(protocol)
    path = tmp_path / "x.pickle"
    # Where an opcode begins is what the standard library's own disassembler says.
    places = [at for _, _, at in pickletools.genops(content) if at]
    assert len(places) > 300

    for number, at in enumerate(places):
        code = _REFUSED[number % len(_REFUSED)]
        path.write_bytes(content[:at] + code + content[at + 1 :])
        with path.open("rb") as file, pytest.raises(Refused, match=f"byte {at}: .*opcode"):
            check_opcodes(file, len(content))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_opcode_of_a_snapshot_is_let_through(protocol: int, tmp_path: Path) -> None:
    content = _sample(protocol)
    path = tmp_path / "x.pickle"
    path.write_bytes(content)

    with path.open("rb") as file:
        check_opcodes(file, len(content))


def _alike() -> list[dict[Any, Any]]:
    """Return 5,000 events with the same keys."""
    return [alloc(at, 8 + at, forward(at % 3)) | {"time_us": at} for at in range(5000)]


def _many() -> list[dict[Any, Any]]:
    """Return 5,000 events, every 700th of which lacks keys that the others have."""
    events = _alike()
    for at in range(0, 5000, 700):
        events[at] = {"action": "oom", "device_free": at, "size": 9, "stream": 0, "frames": []}
    return events


def test_an_event_with_other_keys_among_thousands_has_its_own(tmp_path: Path) -> None:
    events = _many()

    found = read_snapshot(dump(tmp_path, snapshot([], events))).events.to_pylist()

    assert [row["action"] for row in found] == [event["action"] for event in events]
    assert [row["address"] for row in found] == [event.get("addr") for event in events]
    assert [row["device_free_bytes"] for row in found] == [e.get("device_free") for e in events]
    assert [row["bytes"] for row in found] == [event["size"] for event in events]
    assert [row["stack"] is None for row in found] == [not event["frames"] for event in events]


def test_an_unknown_key_of_one_event_among_thousands_is_counted_once(tmp_path: Path) -> None:
    events = _many()
    for at in (5, 4995):
        events[at]["newer"] = 1

    found = read_snapshot(dump(tmp_path, snapshot([], events)))

    assert found.unread == Counter({"event key newer": 1})


@pytest.mark.parametrize(
    ("at", "changed", "why"),
    [
        pytest.param(4321, {"size": "1"}, "no whole number", id="text"),
        pytest.param(4321, {"addr": True}, "no whole number", id="flag"),
        pytest.param(4321, {7: 1}, "key of a event is no text", id="key"),
        pytest.param(4321, {"frames": ({},)}, "frames is a tuple", id="frames"),
        pytest.param(4321, {"size": 1 << 60}, "size is out of range", id="large"),
        pytest.param(4321, {"newer": [[[[[[[[[]]]]]]]]]}, "deep", id="deep"),
    ],
)
def test_one_odd_event_among_thousands_is_found(
    at: int, changed: dict[Any, Any], why: str, tmp_path: Path
) -> None:
    events = _alike()
    events[at] |= changed

    with pytest.raises(TraceError, match=why):
        read_snapshot(dump(tmp_path, snapshot([], events)))


def test_a_key_that_all_events_have_is_looked_at_too(tmp_path: Path) -> None:
    newer = [event | {"newer": 1} for event in _alike()]
    found = read_snapshot(dump(tmp_path, snapshot([], newer), "a.pickle"))
    assert found.unread == Counter({"event key newer": 1})

    with pytest.raises(TraceError, match="key of a event is no text"):
        read_snapshot(dump(tmp_path, snapshot([], [e | {7: 1} for e in _alike()]), "b.pickle"))


def _of_devices(*counts: int) -> dict[str, Any]:
    """Return a snapshot with so many events of each device, whose stacks come again later."""
    found = snapshot([segment(block(512, address=1 << 20, frames=forward(900)))], [])
    found["device_traces"] = [
        [event | {"addr": event["addr"] + (device << 40)} for event in _alike()[:count]]
        for device, count in enumerate(counts)
    ]
    return found


@pytest.mark.parametrize(
    "counts",
    [
        pytest.param((5000,), id="one device"),
        pytest.param((0, 0, 2500, 0), id="the third of four"),
        pytest.param((1300, 0, 1700), id="two of three"),
    ],
)
def test_events_that_are_rows_while_they_are_read_are_the_same_as_in_lists(
    counts: tuple[int, ...], tmp_path: Path
) -> None:
    made = _of_devices(*counts)
    # Protocol 2 has no opcode that says where a list of events is: it is unpickled as a whole.
    plain, streamed = (tmp_path / name for name in ("2.pickle", "4.pickle"))
    plain.write_bytes(pickle.dumps(made, 2))
    streamed.write_bytes(pickle.dumps(made, 4))
    with plain.open("rb") as one, streamed.open("rb") as other:
        assert check_opcodes(one, plain.stat().st_size) is None
        place = check_opcodes(other, streamed.stat().st_size)
    assert place is not None
    assert place.device == next(at for at, count in enumerate(counts) if count)

    found, expected = read_snapshot(streamed), read_snapshot(plain)

    assert _told(found.events, found) == _told(expected.events, expected)
    assert _told(found.blocks, found) == _told(expected.blocks, expected)
    assert found.events["device"].to_pylist() == [
        device for device, count in enumerate(counts) for _ in range(count)
    ]
    assert found.device_count == expected.device_count


def _told(table: pa.Table, found: Snapshot) -> list[dict[str, Any]]:
    """Return rows with the stacks themselves: which number each has is nobody's business."""
    return [row | {"stack": found.stacks[row["stack"]]} for row in table.to_pylist()]


def test_a_list_of_events_in_two_places_is_refused(tmp_path: Path) -> None:
    events = _alike()
    twice = {"device_traces": [events], "segments": events}

    with pytest.raises(TraceError, match="events in two places, of which one is segments"):
        read_snapshot(dump(tmp_path, twice))


def test_an_event_in_two_places_is_refused(tmp_path: Path) -> None:
    events = _alike()

    with pytest.raises(TraceError, match="an event without anything, or one in two places"):
        read_snapshot(dump(tmp_path, snapshot([], [*events, events[0]])))
