"""The seam of the Kineto reader: every scanner gives the columns that the builder reads."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pytest

from pyprof2 import problems
from pyprof2.parsers._columns import Texts, Values
from pyprof2.parsers._json import JsonStream
from pyprof2.parsers._kineto_columns import ARGUMENTS, BEGIN, MOMENTS, Call
from pyprof2.parsers.kineto import SCANNERS, read_recordings
from tests.compare_scanners import listed
from tests.kineto_events import (
    MAIN,
    PID,
    annotation,
    complete,
    copy,
    flow,
    frame,
    json_text,
    kernel,
    launch,
    memory,
    op,
    trace,
)

if TYPE_CHECKING:
    from pyprof2.parsers._kineto_columns import EventColumns, Scan

    Event = dict[str, Any]

EVERY_GROUP: Final = [
    op("aten::mm", 1, 2, id=5, dims=[[2, 3]], types=["float"]),
    annotation("forward", 1, 9), frame("a.py(3): f", 2, 1), launch(2, 7, id=5),
    kernel(3, 1, 7, {"grid": [1, 2, 3]}), copy(5, 1, 8, name="Memcpy HtoD", bytes=64),
    copy(6, 1, 9, name="Memset", bytes=8), complete("overhead", "Buffer Flush", 7, 1),
    complete("cuda_sync", "Stream Sync", 8, 1, args={"stream": 7}), memory(9, Bytes=4),
    *flow(1, 1, 2), {"ph": "C", "name": "power", "ts": 3, "args": {"W": 250}},
    complete("cuda_profiler_range", "k", 3, 1, pid=0, args={"inst": 5}),
]  # fmt: skip


MORE_COLUMNS: Final = {"op": {"call"}, "flow": {"flow_id", "end"}}


@pytest.fixture(params=["python", "compiled"])
def scanner(request: pytest.FixtureRequest) -> str:
    """Return the name of each scanner."""
    found: str = request.param
    if found not in SCANNERS:
        pytest.skip("there was no compiler when pyprof2 was installed")
    return found


def scanned(scanner: str, text: bytes) -> tuple[Scan, JsonStream]:
    """Return what a scanner makes of the events in `text`, and the stream that counts damage."""
    stream = JsonStream(Path("no-file.json"), "traceEvents")
    return SCANNERS[scanner](stream).scan(text), stream


def events_text(*events: Event | list[Event]) -> bytes:
    """Return events as one JSON array."""
    return bytes(
        msgspec.json.decode(json_text(*events), type=dict[str, msgspec.Raw])["traceEvents"]
    )


def groups(scanner: str, *events: Event | list[Event]) -> dict[str, EventColumns]:
    """Return the columns of events, by group."""
    found, _ = scanned(scanner, events_text(*events))
    return {columns.group: columns for columns in found.groups}


def lists(scanner: str, *events: Event | list[Event]) -> dict[str, dict[str, list[Any]]]:
    """Return the columns of events as lists, by group."""
    return {group: listed(columns) for group, columns in groups(scanner, *events).items()}


def test_every_group_has_the_columns_that_the_builder_reads(scanner: str) -> None:
    whole = [complete("mtia_ccp_events", "pe_exe", 9, 1), *EVERY_GROUP]
    halves = [event | {"ph": "B"} for event in whole if event["ph"] == "X"]
    of_device = complete("gpu_user_annotation", "forward", 3, 1, pid=0, args={"External id": 5})
    rare = [whole[0], of_device]
    foreign = [complete(name, "x", 4, 1) for name in ("hpu_op", "npu", "mlu_kernel", "")]
    found = groups(scanner, EVERY_GROUP, rare, halves, {"ph": "E", "ts": 4}, foreign)

    assert list(found)[:13] == [
        "op", "annotation", "python", "launch", "kernel", "memcpy", "memset", "overhead", "wait",
        "memory", "flow", "counter", "counted range",
    ]  # fmt: skip
    assert set(found) == set(ARGUMENTS)
    for group, columns in found.items():
        assert set(columns.args) == {
            *ARGUMENTS[group],
            *MORE_COLUMNS.get(group.removeprefix(BEGIN), ()),
        }
        lengths = {len(columns.pid), len(columns.tid), *map(len, columns.args.values())}
        assert lengths == {len(columns)} == {2 if group == "flow" else 1}
        assert columns.start_ns.dtype == columns.dur_ns.dtype == np.int64
        assert columns.timed.tolist() == [True] * len(columns)
        assert group not in MOMENTS or not columns.dur_ns.any()
        for name, argument in ARGUMENTS[group].items():
            kind = Texts if argument.takes in ("text", "json", "all") else Values
            assert isinstance(columns.args[name], kind)


def test_values_stand_as_they_were_recorded(scanner: str) -> None:
    found = lists(scanner, EVERY_GROUP)

    assert (found["op"]["pid"], found["op"]["tid"]) == ([PID], [MAIN])
    call = Call("aten::mm", b"[[2,3]]", b'["float"]', b"", b"", None)
    assert found["op"]["call"] == [call]
    assert found["op"]["external_id"] == [5]
    assert found["op"]["backend"] == [None]
    assert found["launch"]["correlation"] == [7]
    assert found["kernel"]["grid"] == [b"[1,2,3]"]
    assert found["memcpy"]["bytes"] == [64]
    assert found["wait"]["stream"] == [7]
    assert found["flow"]["end"] == [False, True]


def test_all_arguments_of_a_counter_stand_as_in_the_file(scanner: str) -> None:
    """Wherever they stand: before what says that it is a counter, twice, or not at all."""
    texts = [
        b'{"ph":"C","cat":"","name":"a","ts":1,"args":{ "x" : 1.50 , "y": [1] } }',
        b'{"args":{"z":-0},"ts":2,"ph":"C","name":"b"}',
        b'{"args":{"no":1},"ph":"C","cat":"c","ts":3,"args": {"w":1e400} ,"name":"c"}',
        b'{"ph":"C","name":"d","ts":4}',
        b'{"ph":"C","name":"e","ts":5,"args":null}',
        b'{"ph":"X","cat":"cuda_profiler_range","name":"f","ts":6,"dur":1,"args":{"\\u0071":"s"}}',
    ]
    found, stream = scanned(scanner, b"[" + b" , ".join(texts) + b"]")
    counters, ranges = found.groups

    series = counters.args["series"]
    assert series.to_list() == [
        b'{ "x" : 1.50 , "y": [1] }', b'{"z":-0}', b'{"w":1e400}', None, b"null",
    ]  # fmt: skip
    assert series[np.array([False, True, False, True, True])].to_list() == [
        b'{"z":-0}', None, b"null",
    ]  # fmt: skip
    assert ranges.args["series"].to_list() == [b'{"\\u0071":"s"}']
    assert (found.scanner, stream.problems) == (scanner, {})


@pytest.mark.parametrize(
    "text", ["1712195495519689.047", "0.0005", "-0.0015", "7", "1.5e3", '"12.5"', "1E-3", "0.12345"]
)  # fmt: skip
def test_times_are_exactly_their_digits(scanner: str, text: str) -> None:
    (columns,) = scanned(scanner, events_text(annotation("a", text, 1)))[0].groups
    thousandfold = Decimal(text.strip('"')) * 1000

    assert columns.start_ns.tolist() == [int((thousandfold + Decimal("0.5")) // 1)]
    assert columns.dur_ns.tolist() == [1000]


@pytest.mark.parametrize("text", ["null", "true", '"soon"', "[1]", "1e400"])
def test_a_time_that_is_no_number_is_marked(scanner: str, text: str) -> None:
    events = [annotation("a", 1, 1), annotation("b", text, 1), annotation("c", 1, text)]

    assert groups(scanner, events)["annotation"].timed.tolist() == [True, False, False]


def test_older_and_other_keys_are_the_same_columns(scanner: str) -> None:
    old = {"external id": 3, "Input dims": [[4]]}
    found = lists(
        scanner, complete("Operator", "aten::relu", 1, 2, args=old), op("aten::mm", 2, 1, id=4),
        complete("kernel", "k", 1, 2, args={"inDevice": 6}), kernel(2, 1, 5),
    )  # fmt: skip

    assert found["op"]["external_id"] == [3, 4]
    assert [call.dims for call in found["op"]["call"]] == [b"[[4]]", b""]
    assert found["kernel"]["device"] == [6, 0]


def test_what_is_in_no_group_is_counted_by_phase_and_category(scanner: str) -> None:
    found, stream = scanned(
        scanner,
        events_text(
            {"ph": "M", "name": "process_name"}, {"ph": "s", "cat": "ac2g", "ts": 1},
            {"ph": "s", "cat": "ac2g", "ts": 2}, complete("news", "x", 1, 2), memory(3, Bytes=1),
            {"ph": "i", "name": "Record Window End", "ts": 5}, {"name": "no phase"},
        ),
    )  # fmt: skip

    assert found.skipped == {
        ("M", ""): 1, ("s", "ac2g"): 2, ("X", "news"): 1, ("i", ""): 1, ("", ""): 1
    }  # fmt: skip
    assert found.count == 7 == sum(found.skipped.values()) + sum(map(len, found.groups))
    assert stream._damaged == 1  # what ends the reading of a file that is all damage


def test_events_that_are_kept_keep_all_their_values(scanner: str) -> None:
    events = [op(f"aten::op{at}", at, at + 1, id=10 + at, tid=at) for at in range(4)]
    columns = groups(scanner, events)["op"]

    kept = columns.where(np.array([True, False, False, True]))
    values = listed(kept)

    assert (values["name"], values["tid"]) == (["aten::op0", "aten::op3"], [0, 3])
    assert values["start_ns"] == [0, 3000]
    assert values["dur_ns"] == [1000, 4000]
    assert values["external_id"] == [10, 13]
    assert len(kept) == len(kept.timed) == 2
    assert columns.where(np.ones(4, bool)) is columns


def test_an_event_that_does_not_decode_costs_none_of_the_others(scanner: str) -> None:
    text = events_text(op("aten::mm", 1, 2), op("aten::add", 3, 1), op("aten::mul", 5, 1))
    text = text.replace(b'"aten::add"', b'"a"b"')
    found, stream = scanned(scanner, text)

    assert [columns.name.to_list() for columns in found.groups] == [
        ["aten::mm", 'a"b', "aten::mul"]
    ]
    assert stream.problems == {"event-repaired": 1}


def test_a_scanner_keeps_no_events_from_one_text_to_the_next(scanner: str) -> None:
    one, other = events_text(op("a::a", 1, 2)), events_text(kernel(1, 2, 3))
    stream = JsonStream(Path("no-file.json"), "traceEvents")
    scan = SCANNERS[scanner](stream).scan
    names = [[c.name.to_list() for c in scan(text).groups] for text in (one, other, one)]

    assert names == [[["a::a"]], [["k"]], [["a::a"]]]


def test_a_file_read_with_any_scanner_ends_in_the_same_tables(tmp_path: Path, scanner: str) -> None:
    path = trace(tmp_path, EVERY_GROUP, {"ph": "M", "name": "process_name"})
    (found,) = read_recordings(path, tmp_path, scanner=scanner)

    assert found.spool.counts == Counter(
        ops=1, ranges=2, launches=1, activities=3, stalls=2, memory=1, flows=2, counters=2
    )
    assert found.skipped == {problems.NAMES: 1}
    assert found.trace["event_count"] == len(EVERY_GROUP) + 1
    assert found.scanned == {scanner: len(EVERY_GROUP) + 1}
