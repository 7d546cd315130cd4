"""What a program says of its memory is read, in bounds, and not believed where it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyprof2
from pyprof2.markers import BLOCKS_AT_MOST, MAX_TEXT_BYTES, Marker, format_marker, parse_marker
from tests.kineto_events import memory, op, trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.memory.profile import MemoryProfile

CPU: dict[str, Any] = {"Device Type": 0, "Device Id": -1}


def tag(at: int, moment: Any, **fields: Any) -> Any:
    return op(format_marker(Marker("memory", moment=moment, **fields), quoteless=True), at, 0)


def tagged(tmp_path: Path, *events: Any) -> MemoryProfile:
    return pyprof2.memory(trace(tmp_path, *events))


def sums(found: MemoryProfile, at: str = "end") -> dict[tuple[str, str], int]:
    rows = found.rows(["category", "certainty"], at)
    keys = zip(rows["category"].astype(str), rows["certainty"].astype(str), strict=True)
    return dict(zip(keys, rows["bytes"].tolist(), strict=True))


def test_a_block_has_the_category_that_the_program_told(tmp_path: Path) -> None:
    found = tagged(
        tmp_path,
        op("aten::empty", 0, 5),
        memory(1, Bytes=64, Addr=4096, **CPU),
        memory(2, Bytes=32, Addr=8192, **CPU),
        tag(10, "optimizer", name="Adam"),
        tag(11, "optimizer", category="parameter", device="cpu", blocks=((4096, 64),)),
    )

    assert sums(found)["parameter", "exact"] == 64
    assert found.tags is not None
    assert found.tags.column("name").to_pylist() == ["Adam", None]


def test_a_tag_that_the_recording_contradicts_is_counted_and_not_used(tmp_path: Path) -> None:
    found = tagged(
        tmp_path,
        op("aten::empty", 0, 5),
        memory(1, Bytes=64, Addr=4096, **CPU),
        memory(2, Bytes=32, Addr=8192, **CPU),
        memory(3, Bytes=-32, Addr=8192, **CPU),
        # One is larger than its block, the other's block was released before.
        tag(10, "forward", category="gradient", device="cpu", blocks=((4096, 65), (8192, 32))),
    )

    assert found.tagged[0] is not None
    assert found.tagged[0].refuted == 2
    assert {certainty for _, certainty in sums(found)} == {"inferred"}
    assert any(note.startswith("2 times the program tagged") for note in found.notes_of(0))


def test_what_autograd_holds_from_before_forward_is_an_input(tmp_path: Path) -> None:
    found = tagged(
        tmp_path,
        op("aten::empty", 0, 30),
        memory(1, Bytes=64, Addr=4096, **CPU),
        tag(10, "forward"),
        memory(12, Bytes=32, Addr=8192, **CPU),
        tag(20, "backward"),
        tag(21, "backward", category="activation", device="cpu", blocks=((4096, 64), (8192, 32))),
    )

    assert sums(found) == {("input", "exact"): 64, ("activation", "exact"): 32}


def test_a_known_base_is_split_by_what_was_told(tmp_path: Path) -> None:
    gpu = {"Device Type": 1, "Device Id": 0, "Total Reserved": 4096}
    events = (
        op("aten::empty", 0, 30),
        memory(1, Bytes=512, Addr=4096, **{**gpu, "Total Allocated": 1536}),
        memory(20, Bytes=-512, Addr=8192, **{**gpu, "Total Allocated": 1024}),
    )
    blocks = ((8192, 100), (16384, 400))  # the first is released later

    found = tagged(
        tmp_path, *events, tag(10, "forward", category="buffer", device="cuda:0", blocks=blocks)
    )
    # More than was there at all: a lie.
    wrong = tagged(
        tmp_path / "wrong", *events,
        tag(10, "forward", category="buffer", device="cuda:0", blocks=((16384, 4000),)),
    )  # fmt: skip

    assert sums(found, "peak") == {
        ("buffer", "exact"): 512 + 400, ("output", "inferred"): 512,
        ("unknown", "none"): 1024 - 512 - 400,
    }  # fmt: skip
    assert wrong.tagged[0] is not None
    assert wrong.tagged[0].refuted == 1
    assert "buffer" not in {category for category, _ in sums(wrong)}


def test_a_marker_of_memory_is_bounded() -> None:
    blocks = tuple(((1 << 47) + at, 1 << 40) for at in range(BLOCKS_AT_MOST))
    fields: dict[str, Any] = {"moment": "backward", "device": "cuda:0", "category": "activation"}
    text = format_marker(Marker("memory", blocks=blocks, **fields), quoteless=True)

    found = parse_marker(text)

    assert len(text) < MAX_TEXT_BYTES
    assert found is not None
    assert found.blocks == blocks
    more = format_marker(Marker("memory", blocks=(*blocks, (1, 1)), **fields))
    assert parse_marker(more) is None
    for bad in ((0, 1), (-1, 1), (1, -1), (1 << 63, 1), (1, 1 << 60)):
        assert parse_marker(format_marker(Marker("memory", blocks=(bad,), **fields))) is None
