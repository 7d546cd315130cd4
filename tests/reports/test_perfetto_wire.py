"""Columns as protobuf: protobuf's own library reads back what was put in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.reports.perfetto import packets as wire
from pyprof2.reports.perfetto.packets import Chunks

pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


def messages(pieces: Chunks, kind: Any) -> list[Any]:
    """Return each piece, parsed as a message."""
    ends = np.cumsum(pieces.length).tolist()
    data = pieces.data.tobytes()
    return [kind.FromString(data[a:b]) for a, b in zip([0, *ends], ends, strict=False)]


# Hand-made with the rule of seven bits a byte, the lowest ones first.
@pytest.mark.parametrize(
    ("value", "content"),
    [
        pytest.param(0, "00", id="nothing"),
        pytest.param(127, "7f", id="one byte"),
        pytest.param(128, "8001", id="two bytes"),
        pytest.param(300, "ac02", id="300, as in protobuf's manual"),
        pytest.param((1 << 28) - 1, "ffffff7f", id="the largest of four"),
        pytest.param(1 << 28, "8080808001", id="the least of five"),
        pytest.param(-2, "feffffffffffffffff01", id="-2, as in protobuf's manual"),
        pytest.param((1 << 63) - 1, "ffffffffffffffff7f", id="the largest"),
    ],
)
def test_a_number_as_bytes(value: int, content: str) -> None:
    block = wire.varint(np.array([value]))

    assert bytes(block.data[0, : block.length[0]]).hex() == content
    assert value < 0 or wire.scalar_varint(value).hex() == content


@given(st.lists(st.tuples(INT64, st.booleans()), min_size=1, max_size=20))
def test_whole_numbers_are_read_back(rows: list[tuple[int, bool]]) -> None:
    values, present = (np.array(column) for column in zip(*rows, strict=True))
    field = wire.varint_field(30, values.astype(np.int64), present)

    found = messages(wire.join([field]), pb2.TrackEvent)

    assert [
        event.counter_value if event.HasField("counter_value") else None for event in found
    ] == [value if is_there else None for value, is_there in rows]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_numbers_with_fractions_are_read_back(values: list[float]) -> None:
    found = messages(wire.join([wire.fixed64_field(44, np.array(values))]), pb2.TrackEvent)

    assert [event.double_counter_value for event in found] == values


def test_a_message_in_a_message_has_its_length() -> None:
    inner = wire.message_field(4, [wire.varint_field(4, np.array([5, 1 << 40]))])
    blocks = [*inner, wire.varint_field(10, np.array([1, 2]))]

    first, second = messages(wire.join(blocks), pb2.TrackEvent)

    assert [first.debug_annotations[0].int_value, first.name_iid] == [5, 1]
    assert [second.debug_annotations[0].int_value, second.name_iid] == [1 << 40, 2]


def test_a_message_that_a_row_lacks_leaves_nothing() -> None:
    value, present = wire.varint_field(4, np.array([5, 6])), np.array([True, False])
    inner = wire.short_message_field(4, b"", value, present)

    first, second = messages(wire.join([inner]), pb2.TrackEvent)

    assert [len(first.debug_annotations), len(second.debug_annotations)] == [1, 0]


def test_a_short_message_is_the_same_as_a_message() -> None:
    values, present = np.array([1, 300, -1, 0]), np.array([True, True, True, False])
    name = wire.scalar_field(1, 99)

    short = wire.short_message_field(4, name, wire.varint_field(4, values), present)
    there = [wire.constant(name, 3), wire.varint_field(4, values[present])]
    plain = wire.join(wire.message_field(4, there))

    assert wire.join([short]).data.tobytes() == plain.data.tobytes()
    assert wire.join([short]).length.tolist() == [*plain.length.tolist(), 0]


def test_a_message_that_is_not_short_is_refused() -> None:
    with pytest.raises(ValueError, match="128 bytes"):
        wire.short_message_field(4, b"x" * 127, wire.varint(np.array([1])), np.array([True]))


def test_pieces_are_woven_in_the_order_that_is_given() -> None:
    def pieces(*texts: str) -> Chunks:
        data = np.frombuffer("".join(texts).encode(), np.uint8)
        return Chunks(data, np.array([len(text) for text in texts]))

    is_second = np.array([False, True, True, False, False])

    assert wire.weave(pieces("a", "", "ccc"), pieces("xx", "y"), is_second) == b"axxyccc"


def test_a_tail_of_any_length_stands_behind_its_head() -> None:
    heads = wire.join([wire.varint(np.array([1, 2]))])
    tails = Chunks(np.array([7, 8, 9], np.uint8), np.array([0, 3]))

    found = wire.append(heads, tails)

    assert found.data.tolist() == [1, 2, 7, 8, 9]
    assert found.length.tolist() == [1, 4]
