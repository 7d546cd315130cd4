"""Snapshots of the allocator: what is read of each version, and what is refused."""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.errors import TraceError
from pyprof2.parsers import read_recordings
from pyprof2.parsers.snapshot import is_snapshot, read_snapshot
from tests.snapshots import alloc, block, dump, flat, forward, frame, free, segment, snapshot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SECONDS: Final = 5
"""Of the processor, not of the clock: other tests may run beside this one."""


def _seconds_of_children() -> float:
    used = os.times()
    return used.children_user + used.children_system


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def _with_a_number_for_a_key() -> dict[Any, Any]:
    return {1: 2} | dict[Any, Any](alloc(1, 1))


def _shared_graph() -> bytes:
    """Return forty levels of lists of ten references each to one list below."""
    level: Any = []
    for _ in range(40):
        level = [level] * 10
    return pickle.dumps({"segments": level}, 4)


def _nested(depth: int) -> bytes:
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


def _holds_itself() -> bytes:
    items: list[Any] = []
    items.append(items)
    return pickle.dumps(items, 4)


def _colliding_numbers() -> bytes:
    """Return a dictionary of integers that all have one hash."""
    modulus = (1 << 61) - 1
    keys = (pickle.encode_long(number * modulus) for number in range(40_000))
    items = b"".join(b"\x8a" + bytes([len(key)]) + key + b"N" for key in keys)
    return b"\x80\x04}(" + items + b"u."


def _colliding_tuples() -> bytes:
    """Return a dictionary of tuples that all have one hash, since -1 and -2 have."""
    one, two = (b"J" + struct.pack("<i", number) for number in (-1, -2))
    digits = (f"{number:016b}" for number in range(1 << 16))
    keys = (b"(" + b"".join(one if d == "0" else two for d in each) + b"t" for each in digits)
    return b"\x80\x04}(" + b"".join(key + b"N" for key in keys) + b"u."


def _one_list_of_blocks() -> bytes:
    blocks = [block(512)] * 20_000
    return pickle.dumps({"segments": [segment() | {"blocks": blocks} for _ in range(20_000)]}, 4)


def _one_list_of_events() -> bytes:
    trace = [alloc(1, 1)] * 100_000
    return pickle.dumps(snapshot([], *([trace] * 10_000)), 4)


_HOSTILE: Final[dict[str, tuple[Callable[[], bytes] | bytes, str]]] = {
    "global": (b"cos\nsystem\n(S'id'\ntR.", "not in a memory snapshot"),
    "reduce": (lambda: pickle.dumps(_Evil(), 4), "not in a memory snapshot"),
    "stack global": (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "0x93 is not in a memory"),
    "instance": (b"\x80\x02(ios\nsystem\n.", "0x69"),
    "extension": (b"\x80\x02\x82\x01.", "0x82"),
    "persistent id": (b"\x80\x02Pabc\n.", "0x50"),
    "persistent object": (b"\x80\x02NQ.", "0x51"),
    "build": (b"\x80\x02}}b.", "0x62"),
    "buffer": (b"\x80\x05\x97.", "0x97"),
    "truncated": (
        lambda: pickle.dumps(snapshot([segment(block(512))]), 4)[:-20], "longer than the file"
    ),
    "truncated without frames": (
        lambda: pickle.dumps(snapshot([segment(block(512))]), 2)[:-20], "too early"
    ),
    "memo index": (b"\x80\x02]r" + struct.pack("<I", 1 << 31) + b".", "memo index"),
    "memo index in a list": (b"\x80\x02]r" + struct.pack("<I", 64) + b".", "memo index"),
    "long text": (b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".", "0x8d"),
    "text of 4 GB": (b"\x80\x04X" + struct.pack("<I", (1 << 32) - 1) + b".", "text of its size"),
    "byte array": (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "0x96"),
    "frame": (b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"}.", "a frame longer"),
    "digits": (b"\x80\x02I" + b"9" * 10_000_000 + b"\n.", "0x49"),
    "long integer": (b"\x80\x02\x8b" + struct.pack("<i", 1 << 20) + b"\1" * (1 << 20), "0x8b"),
    "two million lists": (lambda: _nested(2_000_000), "holds a list"),
    "holds itself": (_holds_itself, "holds a list"),
    "shared references": (_shared_graph, "holds a list"),
    "numbers of one hash": (_colliding_numbers, "0x8a"),
    "tuples of one hash": (_colliding_tuples, "far longer"),
    "one list of blocks": (_one_list_of_blocks, "in two places"),
    "one list of events": (_one_list_of_events, "in two places"),
    "a number": (b"\x80\x04K\x01.", "holds a int|the whole is a int"),
    "key of an event": (
        lambda: pickle.dumps(snapshot([], [_with_a_number_for_a_key()]), 4), "key of a event is no"
    ),
    "size is text": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1) | {"size": "1"}]), 4), "no whole number"
    ),
    "size is true": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1) | {"size": True}]), 4), "no whole number"
    ),
    "size is negative": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1) | {"size": -5}]), 4), "out of range"
    ),
    "size of eight bytes": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1 << 62)]), 4), "out of range"
    ),
    "size of nine bytes": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1 << 70)]), 4), "damaged|0x8a"
    ),
    "frame without a line": (
        lambda: pickle.dumps(snapshot([], [alloc(1, 1, [{"filename": "x"}])]), 4), "a frame"
    ),
    "deep in what is not read": (
        lambda: pickle.dumps(snapshot([], external_annotations=[[[[[[[[[[]]]]]]]]]]), 4), "deep"
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("made", "why"), _HOSTILE.values(), ids=_HOSTILE)
def test_a_hostile_pickle_is_refused_in_one_line_within_seconds(
    made: Callable[[], bytes] | bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.pickle"
    path.write_bytes(made if isinstance(made, bytes) else made())
    before = _seconds_of_children()

    with pytest.raises(TraceError, match=why) as caught:
        read_snapshot(path)

    assert _seconds_of_children() - before < _SECONDS
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert len(message) < len(str(path)) + 300


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the peak of its children")
def test_what_is_refused_takes_little_memory(tmp_path: Path) -> None:
    for number, name in enumerate(("memo index", "frame", "two million lists", "digits")):
        made, _ = _HOSTILE[name]
        (tmp_path / f"{number}").write_bytes(made if isinstance(made, bytes) else made())
    program = f"""
import pathlib, resource
from pyprof2.errors import TraceError
from pyprof2.parsers.snapshot import read_snapshot
for path in pathlib.Path({str(tmp_path)!r}).iterdir():
    try:
        read_snapshot(path)
    except TraceError:
        pass
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"""

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    # The limit of the address space is 320 MB and eight times the file, which is 10 MB at most.
    assert int(done.stdout) < 400_000


def test_a_pickle_never_runs_what_it_names(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    program = f"cos\nsystem\n(S'touch {planted}'\ntR.".encode()
    for head in (b"", b"\x80\x02"):
        path = tmp_path / "x.pickle"
        path.write_bytes(head + program)
        with pytest.raises(TraceError):
            read_snapshot(path)

    assert not planted.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_that_holds_plain_data_gives_the_same(protocol: int, tmp_path: Path) -> None:
    content = snapshot(
        [segment(block(1024, address=1 << 20, requested_size=1000, frames=forward()))],
        flat(alloc(1 << 20, 1000, forward()), *free(1 << 20, 1000)),
    )

    found = read_snapshot(dump(tmp_path, content, protocol=protocol))

    assert found.events["action"].to_pylist() == ["alloc", "free_requested", "free_completed"]
    assert found.events["bytes"].to_pylist() == [1000, 1000, 1000]
    assert found.events["stack"].to_pylist() == [0, None, None]
    assert found.stacks[0].frames[1] == ("/home/me/model.py", 10, "forward")
    assert found.blocks["requested_bytes"].to_pylist() == [1000]


def test_a_snapshot_of_more_than_255_objects_is_read_in_protocol_2(tmp_path: Path) -> None:
    # From the 256th on the memo has indices of four bytes, which are refused when they are made up.
    events = flat(*(alloc(number, 8, [frame(f"/a{number}.py", 1, "f")]) for number in range(500)))

    found = read_snapshot(dump(tmp_path, snapshot([], events), protocol=2))

    assert found.events["address"].to_pylist() == list(range(500))
    assert len(found.stacks) == 500


def test_torch_1_13_writes_a_list_of_segments(tmp_path: Path) -> None:
    found = read_snapshot(dump(tmp_path, [segment(block(512), block(1536, "inactive"))]))

    assert found.segments.to_pylist() == [
        {
            "device": 0, "address": 1 << 20, "total_bytes": 2048, "allocated_bytes": 512,
            "active_bytes": 512, "expandable": 0, "private": 0,
        }
    ]  # fmt: skip
    assert found.blocks["state"].to_pylist() == ["active_allocated", "inactive"]
    assert found.events.num_rows == 0


def test_torch_2_0_has_the_frames_and_the_size_of_a_block_in_its_history(tmp_path: Path) -> None:
    history = [
        {"addr": 1 << 20, "real_size": 500, "frames": forward(7)},
        {"addr": 1 << 20, "real_size": 9, "frames": forward(8)},
    ]

    found = read_snapshot(dump(tmp_path, snapshot([segment(block(512, history=history))])))

    assert found.blocks["requested_bytes"].to_pylist() == [500]
    assert found.stacks[found.blocks["stack"][0].as_py()].frames[1][1] == 7


def test_what_a_version_does_not_write_is_null(tmp_path: Path) -> None:
    events = [{"action": "alloc", "addr": 4096, "size": 512}]

    found = read_snapshot(dump(tmp_path, {"segments": [], "device_traces": [events]}))

    (row,) = found.events.to_pylist()
    assert row["time_ns"] is None
    assert row["stack"] is None
    assert row["note"] is None
    assert found.settings == {}


def test_a_snapshot_without_traces_has_no_events(tmp_path: Path) -> None:
    # include_traces=False, and a version that leaves the key out.
    for number, whole in enumerate((snapshot([]), {"segments": []})):
        found = read_snapshot(dump(tmp_path, whole, f"{number}.pickle"))

        assert found.events.num_rows == 0


def test_keys_that_are_not_known_are_counted_and_left_alone(tmp_path: Path) -> None:
    events = [alloc(1, 1) | {"new_key": [{"deep": [1]}]}]

    found = read_snapshot(dump(tmp_path, snapshot([], events, new_top="x")))

    assert found.unread == {"event key new_key": 1, "snapshot key new_top": 1}


@pytest.mark.parametrize(
    ("user", "compiler", "note"),
    [
        pytest.param("", "N/A", None, id="none"),
        pytest.param("kv cache", "N/A", "kv cache", id="user"),
        pytest.param("", "0/0", "0/0", id="compiler"),
        pytest.param("kv cache", "0/0", "kv cache", id="both"),
    ],
)
def test_the_user_or_else_the_compiler_says_what_a_block_is_for(
    user: str, compiler: str, note: str | None, tmp_path: Path
) -> None:
    events = [alloc(1, 1) | {"user_metadata": user, "compile_context": compiler}, alloc(2, 1)]

    found = read_snapshot(dump(tmp_path, snapshot([], events)))

    assert found.events["note"].to_pylist() == [note, None]


def test_an_oom_has_what_was_free_in_place_of_an_address(tmp_path: Path) -> None:
    events = [{"action": "oom", "device_free": 1234, "size": 99, "stream": 0, "frames": []}]

    (row,) = read_snapshot(dump(tmp_path, snapshot([], events))).events.to_pylist()

    assert (row["address"], row["device_free_bytes"], row["bytes"]) == (None, 1234, 99)


def test_each_device_has_its_own_list(tmp_path: Path) -> None:
    found = read_snapshot(dump(tmp_path, snapshot([], [alloc(1, 1)], [], [alloc(1, 2)])))

    assert found.events["device"].to_pylist() == [0, 2]
    assert found.device_count == 3


def test_what_a_snapshot_is_depends_on_its_content(tmp_path: Path) -> None:
    odd = tmp_path / "x.pickle"
    odd.write_text("{}")

    assert is_snapshot(dump(tmp_path, snapshot([]), "named.bin"))
    assert not is_snapshot(odd)
    assert not is_snapshot(tmp_path)
    assert not is_snapshot(tmp_path / "none")


def test_a_trace_reader_says_which_command_reads_a_snapshot(tmp_path: Path) -> None:
    path = dump(tmp_path, snapshot([]))

    with pytest.raises(TraceError, match="'pyprof2 memory FILE' reads it"):
        read_recordings(path, tmp_path)
