"""Columns as protobuf: protobuf's own library reads back what was put in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.reports.perfetto import packets as wire
from pyprof2.reports.perfetto.packets import Chunks, PacketColumns, SliceArgument, Slices, Writer

if TYPE_CHECKING:
    from pyprof2.reports.perfetto.packets import Bools, Ints

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

    found = messages(wire.join([wire.column(field)]), pb2.TrackEvent)

    assert [
        event.counter_value if event.HasField("counter_value") else None for event in found
    ] == [value if is_there else None for value, is_there in rows]


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
def test_numbers_with_fractions_are_read_back(values: list[float]) -> None:
    field = wire.column(wire.fixed64_field(44, np.array(values)))
    found = messages(wire.join([field]), pb2.TrackEvent)

    assert [event.double_counter_value for event in found] == values


def test_a_message_in_a_message_has_its_length() -> None:
    inner = wire.message_field(4, [wire.column(wire.varint_field(4, np.array([5, 1 << 40])))])
    blocks = [*inner, wire.column(wire.varint_field(10, np.array([1, 2])))]

    first, second = messages(wire.join(blocks), pb2.TrackEvent)

    assert [first.debug_annotations[0].int_value, first.name_iid] == [5, 1]
    assert [second.debug_annotations[0].int_value, second.name_iid] == [1 << 40, 2]


def test_a_message_that_a_row_lacks_leaves_nothing() -> None:
    value = wire.varint_field(4, np.array([5, 6]), np.array([True, False]))
    inner = wire.column(wire.short_message_field(b"", value))

    first, second = messages(wire.join([inner]), pb2.TrackEvent)

    assert [len(first.debug_annotations), len(second.debug_annotations)] == [1, 0]


def test_a_short_message_is_the_same_as_a_message() -> None:
    values, present = np.array([1, 300, -1, 0]), np.array([True, True, True, False])
    name = wire.scalar_field(1, 99)

    short = wire.column(wire.short_message_field(name, wire.varint_field(4, values, present)))
    there = [wire.constant(name, 3), wire.column(wire.varint_field(4, values[present]))]
    plain = wire.join(wire.message_field(4, there))

    assert wire.join([short]).data.tobytes() == plain.data.tobytes()
    assert wire.join([short]).length.tolist() == [*plain.length.tolist(), 0]


def test_a_message_that_is_not_short_is_refused() -> None:
    with pytest.raises(ValueError, match="128 bytes"):
        wire.short_message_field(b"x" * 127, wire.varint_field(4, np.array([1])))


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


COUNT: Final = 3 * wire.AT_A_TIME // 2


def written() -> bytes:
    """Return what a writer makes of slices and counters of any numbers, in no order of time."""
    rng = np.random.default_rng(37)

    def numbers(count: int) -> Ints:
        return rng.integers(-(1 << 63), 1 << 63, count) >> rng.integers(0, 64, count)

    def present() -> Bools:
        return rng.random(COUNT) < 0.5

    offsets = np.r_[0, np.cumsum(rng.integers(0, 3, COUNT))]
    slices = Slices(
        numbers(COUNT), numbers(COUNT), rng.integers(0, 400, COUNT), rng.integers(0, 3, COUNT),
        [SliceArgument("a", wire.INT, numbers(COUNT), present()),
         SliceArgument("b", wire.DOUBLE, rng.normal(size=COUNT), present()),
         SliceArgument("c", wire.TEXT, rng.integers(0, 1 << 20, COUNT), present())],
        rng.integers(0, 2, COUNT) * numbers(COUNT), numbers(int(offsets[-1])), offsets,
        rng.integers(1, 300, COUNT),
    )  # fmt: skip
    parts: list[bytes] = []
    writer = Writer(parts.append)
    ends = numbers(COUNT), rng.integers(1, 300, COUNT)
    writer.slices(slices, ends, rng.permutation(np.arange(2 * COUNT) % 2 > 0))
    writer.counters(numbers(COUNT), rng.integers(1, 300, COUNT), rng.normal(size=COUNT))
    return b"".join(parts)


def test_compiled_packets_are_those_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyprof2.reports.perfetto._packets", reason="it was not compiled")
    monkeypatch.setenv("PYPROF2_PURE", "0")
    compiled = written()
    monkeypatch.setenv("PYPROF2_PURE", "1")
    assert compiled == written()


@pytest.mark.parametrize("pure", ["0", "1"])
def test_packets_are_read_back(pure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYPROF2_PURE", pure)
    trace = pb2.Trace()
    trace.ParseFromString(written())
    events = [packet.track_event for packet in trace.packet if packet.HasField("track_event")]

    kinds = [event.type for event in events]
    assert [kinds.count(kind) for kind in (1, 2, 4)] == [COUNT, COUNT, COUNT]
    assert {each.name_iid for event in events for each in event.debug_annotations} == {1, 2, 3}


ONE: Final = np.zeros(1, np.int64)
FIELD: Final = wire.varint_field(1, ONE)
FITS: Final = PacketColumns(ONE, b"", (FIELD,), ONE, np.array([3, 4]))
REFUSED: Final = {
    "times": FITS._replace(time=np.zeros(1, np.int32)),
    "values": FITS._replace(fields=(FIELD._replace(values=np.zeros(2)),)),
    "presence": FITS._replace(fields=(FIELD._replace(present=np.ones(2, np.bool_)),)),
    "place of a size": FITS._replace(fields=(FIELD._replace(size_at=1),)),
    "before a value": FITS._replace(fields=(FIELD._replace(before=b"x" * 17),)),
    "fields": FITS._replace(fields=(FIELD,) * 33),
    "offsets": FITS._replace(offsets=ONE),
    "flows there are not": FITS._replace(offsets=np.array([3, 5])),
    "offsets in no order": FITS._replace(
        time=np.zeros(2, np.int64), fields=(), offsets=np.array([0, 2, 1])
    ),
    "flows": FITS._replace(flows=np.zeros(3, np.int32)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_do_not_fit_are_refused(case: str) -> None:
    compiled = pytest.importorskip("pyprof2.reports.perfetto._packets", reason="not compiled")
    none = PacketColumns(np.empty(0, np.int64), b"", ())
    heads = (b"", b"", b"", b"")

    assert compiled.packets(heads, FITS, none, np.zeros(1, np.bool_))
    with pytest.raises(ValueError, match=r"column|bytes"):
        compiled.packets(heads, REFUSED[case], none, np.zeros(len(REFUSED[case].time), np.bool_))
    for wrong in (np.zeros(2, np.bool_), np.ones(1, np.bool_)):
        with pytest.raises(ValueError, match=r"number of packets|lengths"):
            compiled.packets(heads, FITS, none, wrong)
