"""The compiled reader of snapshots sees what the one in Python sees, or leaves it to that one."""

from __future__ import annotations

import pickle
import pickletools
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from benchmarks.snapshot import make
from pyprof2.errors import TraceError
from pyprof2.parsers.snapshot import COMPILED, library, read_snapshot
from tests.compare_snapshots import (
    by_compiled,
    by_python,
    damaged,
    difference,
    differences,
    left,
    samples,
)
from tests.snapshots import alloc, dump, flat, forward, snapshot

if TYPE_CHECKING:
    from pathlib import Path

pytestmark: Final = pytest.mark.skipif(
    not library(COMPILED), reason="there was no compiler when pyprof2 was installed"
)

_SAMPLES: Final = samples()
_BEFORE: Final = (
    b"\x80\x04\x95%b}\x94(\x8c\x08segments\x94]\x94\x8c\rdevice_traces\x94]\x94]\x94(}\x94("
)
"""From the first byte to the keys of the first event, whose memo index is 5; the frame's length
is filled in."""
_AFTER: Final = b"ea\x8c\x01x\x94Nu."

_HOSTILE: Final = {
    "a memo index of what comes later": b"h\x30K\x01u",
    "a memo index of 2^32": b"j\xff\xff\xff\xffK\x01u",
    "a key that is a number": b"K\x01K\x01u",
    "a key that is an event": b"h\x06K\x01u",
    "a text that ends behind the file": b"\x8c\xffsize",
    "a text of 4 GB": b"X\xff\xff\xff\xffsize",
    "a number of nine bytes": b"\x8c\x04size\x94\x8a\x09" + b"\1" * 9 + b"u",
    "a number of 255 bytes": b"\x8c\x04size\x94\x8a\xff" + b"\1" * 9 + b"u",
    "a text for a number": b"\x8c\x04size\x94\x8c\x019\x94u",
    "a list for frames that has texts": b"\x8c\x06frames\x94]\x94(\x8c\x01a\x94eu",
    "an event for a frame": b"\x8c\x06frames\x94]\x94(h\x06eu",
    "its own list for frames": b"\x8c\x06frames\x94h\x05u",
    "a frame that is in itself": b"\x8c\x06frames\x94]\x94(}\x94(\x8c\x08filename\x94h\x09ueu",
    "a frame without anything": b"\x8c\x06frames\x94]\x94(}\x94eu",
    "bytes that are no text": b"\x8c\x06action\x94\x8c\x02\xc3(\x94u",
    "no end": b"\x8c\x04size\x94K\x01",
    "a call": b"\x8c\x04size\x94K\x01R",
    "a frame longer than the file": b"\x95" + b"\xff\xff\0\0" * 2 + b"\x8c\x04size\x94K\x01u",
    "a frame of 2^64 bytes": b"\x95" + b"\xff" * 8 + b"\x8c\x04size\x94K\x01u",
    "an event without anything": b"u}\x94",
}  # fmt: skip


def _with(inside: bytes) -> bytes:
    """Return a pickle whose first event has these opcodes behind the mark of its keys."""
    length = len(_BEFORE) - len(b"%b") + len(inside) + len(_AFTER) - 3
    return _BEFORE % struct.pack("<Q", length) + inside + _AFTER


@pytest.mark.parametrize("content", _SAMPLES.values(), ids=_SAMPLES)
def test_both_readers_see_the_same_in_what_torch_writes(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.pickle"

    assert by_compiled(content, path) is not None
    assert difference(content, path) is None


@pytest.mark.parametrize("size", [3000, 400_000])
def test_both_readers_see_the_same_in_what_is_measured(size: int, tmp_path: Path) -> None:
    path = tmp_path / "made.pickle"
    make(path, size)
    content = path.read_bytes()

    assert by_compiled(content, path) is not None
    assert difference(content, path) is None


@pytest.mark.real_trace
def test_both_readers_see_the_same_in_real_snapshots(shared: Path, tmp_path: Path) -> None:
    for path in sorted((shared / "traces" / "memory").glob("*.pickle")):
        content = path.read_bytes()

        assert by_compiled(content, tmp_path / "x.pickle") is not None, path.name
        assert difference(content, tmp_path / "x.pickle") is None, path.name


def test_what_it_reads_is_what_was_written(tmp_path: Path) -> None:
    # The two readers might be wrong in the same way: they share the rest of the file.
    stacks = [forward(line) for line in range(3)]
    events = flat(*(alloc(at << 40, at - 5, stacks[at % 3]) for at in range(5, 3000)))
    content = pickle.dumps(snapshot([], events), 4)

    columns, header = by_compiled(content, tmp_path / "x.pickle")

    assert columns["event.addr"] == [event["addr"] for event in events]
    assert columns["event.size"] == [event["size"] for event in events]
    assert columns["event.time_us"] == [event["time_us"] for event in events]
    assert columns["event.device_free"] == [-1] * len(events)
    assert columns["event.action"] == ["alloc"] * len(events)
    told = [
        [tuple(header["frames"][each]) for each in header["stacks"][number]]
        for number in columns["event.stack"]
    ]
    assert told == [[tuple(f.values()) for f in event["frames"]] for event in events]


def _with_notes(count: int) -> bytes:
    """Return a snapshot with so many notes behind its events, of some 7 bytes each."""
    notes = [{"stage": "forward"} for _ in range(count)]
    events = [alloc(at << 40, at, forward(1)) for at in range(1, 9)]
    return pickle.dumps(snapshot([], flat(*events), external_annotations=notes), 4)


def test_what_is_behind_the_events_is_short_or_left_to_the_reader_in_python(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.pickle"
    short, long = _with_notes(100_000), _with_notes(200_000)
    assert len(short) < 1 << 20 < len(long)

    assert by_compiled(short, path) is not None
    assert difference(short, path) is None
    assert by_compiled(long, path) is None
    assert by_python(long, path) is not None


@pytest.mark.parametrize("content", left().values(), ids=left())
def test_what_it_does_not_know_it_leaves_to_the_reader_in_python(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by_compiled(content, tmp_path / "x.pickle") is None
    found = []
    for pure in ("", "1"):
        monkeypatch.setenv("PYPROF2_PURE", pure)
        try:
            found.append(read_snapshot(tmp_path / "x.pickle").events.to_pylist())
        except TraceError as error:
            found.append([{"error": str(error)}])

    assert found[0] == found[1]


@pytest.mark.parametrize("inside", _HOSTILE.values(), ids=_HOSTILE)
def test_a_hostile_event_is_read_by_neither(inside: bytes, tmp_path: Path) -> None:
    good = _with(b"\x8c\x04size\x94K\x01u")
    assert by_compiled(good, tmp_path / "x.pickle") is not None

    assert by_compiled(_with(inside), tmp_path / "x.pickle") is None
    assert by_python(_with(inside), tmp_path / "x.pickle") is None


@pytest.mark.parametrize(
    "key", [b"h\x07K\x02", b"\x8c\x04size\x94K\x02"], ids=["from the memo", "as text"]
)
def test_a_key_that_comes_twice_is_left_to_the_reader_in_python(key: bytes, tmp_path: Path) -> None:
    content = _with(b"\x8c\x04size\x94K\x01" + key + b"u")

    assert by_compiled(content, tmp_path / "x.pickle") is None
    columns, _ = by_python(content, tmp_path / "x.pickle")
    assert columns["event.size"] == [2]


def test_no_opcode_that_runs_or_names_anything_is_read_wherever_it_stands(tmp_path: Path) -> None:
    content = _SAMPLES["the third of four devices, protocol 4"]
    places = [at for _, _, at in pickletools.genops(content) if at]
    assert len(places) > 300

    for number, at in enumerate(places):
        code = b"Rc\x93b\x81iQP\x82I\x8b"[number % 11 :][:1]
        found = by_compiled(content[:at] + code + content[at + 1 :], tmp_path / "x.pickle")
        assert found is None, at


def test_a_file_that_ends_anywhere_is_read_by_neither(tmp_path: Path) -> None:
    content = _SAMPLES["torch 2.0, protocol 4"]
    for size in range(12, len(content)):
        cut = bytearray(content[:size])
        cut[3:11] = struct.pack("<Q", size - 11)

        assert by_compiled(bytes(cut), tmp_path / "x.pickle") is None, size


def test_both_see_the_same_where_a_frame_ends_anywhere(tmp_path: Path) -> None:
    # An unpickler goes astray where a frame ends within an opcode, and reads others than are there.
    content = bytearray(_SAMPLES["torch 2.0, protocol 4"])
    inner = bytearray(_with(b"\x95" + struct.pack("<Q", 6) + b"\x8c\x04size\x94J\1\2\3\4u"))
    read = 0
    for length in range(len(inner)):
        inner[3:11] = struct.pack("<Q", length)
        assert difference(bytes(inner), tmp_path / "x.pickle") is None, length
    for length in range(0, len(content), 3):
        content[3:11] = struct.pack("<Q", length)
        read += by_compiled(bytes(content), tmp_path / "x.pickle") is not None

        assert difference(bytes(content), tmp_path / "x.pickle") is None, length
    assert read > 10


def test_both_see_the_same_in_300_damaged_snapshots_or_one_leaves_them(tmp_path: Path) -> None:
    contents = [content for content in _SAMPLES.values() if len(content) < 1 << 16]
    read = sum(
        by_compiled(damaged(seed, contents), tmp_path / "x.pickle") is not None
        for seed in range(300)
    )
    assert read > 30

    assert list(differences(range(300), tmp_path)) == []


@pytest.mark.minutes
def test_both_see_the_same_in_thousands_of_damaged_snapshots(tmp_path: Path) -> None:
    assert list(differences(range(300, 2500), tmp_path)) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks the system for the memory of a process")
def test_what_is_memoized_takes_less_than_sixteen_bytes(tmp_path: Path) -> None:
    count = 3_000_000
    inside = b"\x8c\x0eforward_frames\x94]\x94(" + b"\x8c\x03N/A\x94" * count + b"eu"
    path = tmp_path / "x.pickle"
    path.write_bytes(_with(inside))
    program = f"""
import mmap
from pyprof2.parsers import _snapshot_events
file = open({str(path)!r}, "rb")
data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(data[::4096])
pages = lambda: int(open("/proc/self/statm").read().split()[1])
before = pages()
reader = _snapshot_events.Reader(None, None, None, 1)
assert reader.read(data, data.find(b"(}}\\x94("), len(data), 6, False)[2] > {count}
print((pages() - before) * mmap.PAGESIZE)"""

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    assert 4 * count < int(done.stdout) < 16 * count


def test_nothing_compiled_reads_where_it_is_not_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert library(COMPILED).endswith((".so", ".pyd"))
    monkeypatch.setenv("PYPROF2_PURE", "1")

    assert library(COMPILED) == ""
    assert read_snapshot(dump(tmp_path, snapshot([], flat(alloc(1, 2))))).events.num_rows == 1
