"""Kineto traces of all dialects, and what happens to events that make no sense."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyprof2
from pyprof2 import problems
from pyprof2.api.run import parse
from pyprof2.markers import Marker, format_marker
from pyprof2.parsers import _json
from pyprof2.parsers._kineto_values import parse_us
from pyprof2.parsers.kineto import SCANNERS, read_recordings
from pyprof2.signatures import Tensor
from tests.kineto_events import (
    ENGINE,
    MAIN,
    PID,
    Event,
    annotation,
    complete,
    copy,
    flow,
    frame,
    json_text,
    kernel,
    launch,
    load_events,
    memory,
    node,
    op,
    read,
    rows,
    step,
    trace,
)

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.recording import Recording

NO_TIME: Final = "event-time"
WRONG_TYPE: Final = "wrong-type"


def recorded(folder: Path, *events: Event | list[Event], **around: Any) -> Recording:
    return read(trace(folder, *events, **around))


def values(recording: Recording, table: str, *columns: str) -> list[Any]:
    return rows(recording.read(table, columns), *columns)


def nanoseconds(*texts: str) -> list[int | None]:
    """What the parser makes of times in µs; None for what is none."""
    times, good = parse_us([text.encode() for text in texts])
    return [time if ok else None for time, ok in zip(times.tolist(), good.tolist(), strict=True)]


def half_up(text: str) -> int:
    with localcontext(prec=200):
        return int((Decimal(text) * 1000 + Decimal("0.5")).to_integral_value(ROUND_FLOOR))


# Times


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        pytest.param("1712195495519689.047", 1712195495519689047, id="epoch"),
        pytest.param("1623142623529248", 1623142623529248000, id="whole"),
        pytest.param("4412345678901.5", 4412345678901500, id="one digit"),
        pytest.param("0.0004999", 0, id="below half"),
        pytest.param("0.0005", 1, id="half goes up"),
        pytest.param("-0.0005", 0, id="half goes up below zero"),
        pytest.param("-0.0015", -1, id="half goes up to the next"),
        pytest.param("1.0004999999999999999999999999999999999", 1000, id="many digits"),
        pytest.param("1.5e3", 1500000, id="exponent"),
        pytest.param("1E-3", 1, id="negative exponent"),
        pytest.param("1e-999999999", 0, id="next to nothing"),
        pytest.param("-0", 0, id="minus nothing"),
        pytest.param('"12.5"', 12500, id="text"),
        pytest.param("", None, id="missing"),
        pytest.param("null", None, id="null"),
        pytest.param("true", None, id="bool"),
        pytest.param("[1]", None, id="list"),
        pytest.param('"soon"', None, id="word"),
        pytest.param('"\\u00b5"', None, id="letters"),
        pytest.param("9223372036854775.808", None, id="one too many for 64 bits"),
        pytest.param("1e400", None, id="out of range"),
        pytest.param("1e999999999999999999", None, id="out of any range"),
        pytest.param("9" * 400, None, id="endless"),
        pytest.param("0." + "0" * 400 + "1", 0, id="endless behind the point"),
    ],
)
@pytest.mark.parametrize("beside", ["7.001", "soon", "1e-20", "0.0000001"])
def test_a_time_is_exactly_its_digits(text: str, ns: int | None, beside: str) -> None:
    assert nanoseconds(text)[0] == ns
    assert nanoseconds(beside, text)[1] == ns


DIGITS: Final = st.one_of(
    st.decimals(-(10**15), 10**15, places=3),
    st.decimals(-(10**15), 10**15, places=7),
    st.decimals(0, 10**12, allow_nan=False, allow_infinity=False),
).map(str)


@given(st.lists(DIGITS, min_size=1, max_size=6))
def test_times_are_rounded_half_up_each_by_itself(texts: list[str]) -> None:
    assert nanoseconds(*texts) == [half_up(text) for text in texts]


def test_a_time_that_no_float_holds_comes_out_to_the_ns(tmp_path: Path) -> None:
    found = recorded(tmp_path, op("a", "1712195495519689.047", "0.001"))

    assert values(found, "ops", "start_ns", "dur_ns") == [(1712195495519689047, 1)]


@pytest.mark.parametrize(
    ("ts", "dur"),
    [
        pytest.param('"soon"', 1, id="a word"),
        pytest.param("1", "7446744073709551.615", id="236 years"),
        pytest.param("9e18", 1, id="after the end of time"),
        pytest.param("-9223372036854775.808", 1, id="before its begin"),
        pytest.param("1", "null", id="no duration"),
    ],
)
def test_an_event_without_a_sensible_time_is_dropped_alone(
    tmp_path: Path, ts: str, dur: Any
) -> None:
    found = recorded(tmp_path, op("bad", ts, dur), op("good", 5, 2))

    assert values(found, "ops", "op", "start_ns") == [("good", 5000)]
    assert found.problems == {NO_TIME: 1}
    assert (found.trace["start_ns"], found.trace["end_ns"]) == (5000, 7000)


def test_a_negative_duration_is_nothing_long(tmp_path: Path) -> None:
    found = recorded(tmp_path, kernel(5, -3, 1))

    assert values(found, "activities", "start_ns", "dur_ns") == [(5000, 0)]
    assert found.problems == {"negative-duration": 1}


def test_a_gpu_record_that_was_never_filled_in_is_dropped(tmp_path: Path) -> None:
    found = recorded(tmp_path, kernel(0, 0, 1), kernel(0, 2, 2), kernel(3, 0, 3), op("a", 0, 0))

    assert values(found, "activities", "correlation_id") == [2, 3]
    assert values(found, "ops", "op") == ["a"]
    assert found.problems == {NO_TIME: 1}


@pytest.mark.parametrize(
    ("around", "ts", "unix_ns"),
    [
        pytest.param({"baseTimeNanoseconds": 5}, 1, 5, id="on a base"),
        pytest.param({"baseTimeNanoseconds": "7"}, 1, 7, id="a base in quotes"),
        pytest.param({}, "1712195495519689.047", 0, id="since 1970"),
        pytest.param({}, 4000, None, id="since something else"),
    ],
)
def test_the_clock_is_told_if_it_is_known(
    tmp_path: Path, around: dict[str, Any], ts: Any, unix_ns: int | None
) -> None:
    assert recorded(tmp_path, op("a", ts, 1), **around).trace["unix_ns"] == unix_ns


# Dialects


@pytest.mark.parametrize(
    ("category", "table"),
    [
        ("cpu_op", "ops"), ("Operator", "ops"), ("kernel", "activities"),
        ("Kernel", "activities"), ("gpu_memcpy", "activities"), ("Memcpy", "activities"),
        ("gpu_memset", "activities"), ("Memset", "activities"),
        ("mtia_ccp_events", "activities"), ("cuda_runtime", "launches"),
        ("Runtime", "launches"), ("cuda_driver", "launches"), ("hip_runtime", "launches"),
        ("xpu_runtime", "launches"), ("privateuse1_driver", "launches"),
        ("mtia_runtime", "launches"), ("user_annotation", "ranges"),
        ("python_function", "ranges"),
    ],
)  # fmt: skip
def test_every_category_has_its_table(tmp_path: Path, category: str, table: str) -> None:
    found = recorded(tmp_path, complete(category, "x", 1, 2, args={"correlation": 9}))

    assert {name: found.spool.counts[name] for name in found.spool.counts} == {table: 1}
    assert found.skipped == {}


@pytest.mark.parametrize(
    "category",
    [
        "cuda_event", "Trace", "ac2g",
        "cuda_profiler_range", "hardware_counters", "anything",
    ],
)  # fmt: skip
def test_what_the_tables_have_no_place_for_is_counted_and_is_no_gpu_time(
    tmp_path: Path, category: str
) -> None:
    event = complete(category, "x", 1, 2, args={"stream": 7, "device": 0, "correlation": 1})

    found = recorded(tmp_path, event, event)

    assert not found.spool.counts
    assert sum(found.skipped.values()) == 2
    assert found.trace["event_count"] == 2


def test_annotations_of_devices_are_ranges_only_where_no_launch_is_recorded(tmp_path: Path) -> None:
    event = complete("gpu_user_annotation", "x", 1, 2, pid=0, tid=7, args={"External id": 3})
    start = complete("cuda_runtime", "cudaLaunchKernel", 1, 1, args={"correlation": 1})

    alone, beside = recorded(tmp_path, event), recorded(tmp_path, event, start)

    (row,) = alone.spool.read("ranges").to_pylist()
    assert (row["kind"], row["name"], row["domain"]) == ("device annotation", "x", "range 3")
    assert (row["pid"], row["tid"], alone.skipped) == (0, 7, {})
    assert beside.spool.counts == {"launches": 1}
    assert sum(beside.skipped.values()) == 1


def test_phases_that_are_no_work_are_counted(tmp_path: Path) -> None:
    extra: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "i", "s": "g", "name": "Record Window End", "ts": 5},
        {"ph": "C", "cat": "mtia_counters", "name": "", "ts": 5, "args": {"": "1"}},
        {"ph": "s", "cat": "ac2g", "id": 1, "ts": 5},
    ]

    found = recorded(tmp_path, extra, op("a", 1, 1))

    assert sum(found.skipped.values()) == 4
    assert found.problems == {}


def test_nothing_is_counted_where_there_is_nothing(tmp_path: Path) -> None:
    found = recorded(tmp_path, memory(1, Bytes=8), op("a", 1, 1))

    assert (found.skipped, found.problems) == ({}, {})


def test_a_trace_of_2021_has_its_own_words(tmp_path: Path) -> None:
    args = {
        "external id": 3, "Input dims": [[2, 3]], "Input type": ["float"],
        "Call stack": "torch/nn.py(7): f;net.py(12): forward;train.py(3): <module>",
    }  # fmt: skip
    gpu = {"device": 0, "stream": 7, "correlation": 41, "external id": 3}

    found = recorded(
        tmp_path,
        complete("Operator", "aten::relu", 1, 5, tid="25738", args=args),
        complete("Operator", "ProfilerStep#5", 0, 9, tid="25738"),
        complete("Runtime", "cudaLaunchKernel", 2, 1, tid="25738", args=gpu),
        complete("Kernel", "relu", 8, 4, tid="stream 7 ", args=gpu),
    )

    assert values(found, "ops", "op", "tid", "recorded_id", "stack") == [
        ("aten::relu", 25738, 3, "net.py:12\ntrain.py:3")
    ]
    assert values(found, "ranges", "name", "kind", "tid") == [("ProfilerStep#5", "step", 25738)]
    assert values(found, "activities", "stream", "recorded_id") == [(7, 3)]
    assert found.signatures[0].text == "aten::relu([2,3] f32)"


def test_a_stream_above_all_that_fits_has_an_id_of_its_own(tmp_path: Path) -> None:
    streams = [2**64 - 1, 2**63, 7, 2**64 - 1]

    found = recorded(tmp_path, [kernel(9 * n, 5, n, {"stream": s}) for n, s in enumerate(streams)])

    ids = values(found, "activities", "stream")
    assert ids[0] == ids[3] and ids[2] == 7  # noqa: PT018
    assert len(set(ids)) == 3
    assert min(ids) > 0


def test_a_text_is_an_id_of_its_own_whole(tmp_path: Path) -> None:
    pids = [
        "[TP00-DP00] 80",
        "[TP00-DP01] 80",
        "[TP00-DP00] 81",
        "python 80",
        "worker 80",
        "python 80",
    ]

    found = recorded(tmp_path, [op("a", at, 1, pid=pid, tid=pid) for at, pid in enumerate(pids)])

    for column in ("pid", "tid"):
        ids = values(found, "ops", column)
        assert ids[3] == ids[5] == 80
        assert len(set(ids)) == 5


@pytest.mark.parametrize(
    ("tid", "number"),
    [
        pytest.param(101, 101, id="number"),
        pytest.param("25738", 25738, id="digits"),
        pytest.param("stream 7 ", 7, id="digits in a text"),
        pytest.param("007", 7, id="leading zeros"),
        pytest.param("0x1f", 31, id="hexadecimal"),
        pytest.param(-247463936, -247463936, id="negative"),
        pytest.param(None, None, id="null"),
    ],
)
def test_a_thread_is_known_by_its_number(
    tmp_path: Path, tid: int | str | None, number: int | None
) -> None:
    found = recorded(tmp_path, op("a", 1, 1, tid=tid), op("b", 1, 1, tid="x"))

    assert values(found, "ops", "tid")[0] == number


def test_threads_without_a_number_that_fits_stay_apart(tmp_path: Path) -> None:
    names = ["main", "worker", 18446744073461816128, 18446744073461816129, "main"]

    found = recorded(tmp_path, [op("a", at, 1, tid=name) for at, name in enumerate(names)])

    tids = values(found, "ops", "tid")
    assert tids[0] == tids[4]
    assert len(set(tids)) == 4
    assert None not in tids


@pytest.mark.parametrize(
    ("pairs", "trusted"),
    [
        pytest.param([(1, 1), (2, 2), (3, 3)], False, id="all repeat the correlation"),
        pytest.param([(1, 1), (2, 2), (3, 9)], False, id="most do"),
        pytest.param([(1, 1), (2, 9)], True, id="half do"),
        pytest.param([(1, 7), (2, 9)], True, id="none does"),
        pytest.param([(1, None), (2, None)], True, id="none are given"),
        pytest.param([], True, id="no GPU"),
    ],
)
def test_external_ids_that_repeat_the_correlation_are_no_ids_of_ops(
    tmp_path: Path, pairs: list[tuple[int, int | None]], *, trusted: bool
) -> None:
    gpu = [kernel(at, 1, c, {"External id": e}) for at, (c, e) in enumerate(pairs, 1)]

    found = recorded(tmp_path, gpu)

    assert found.trusts_recorded_id == trusted
    assert ("external-ids" in found.problems) is not trusted


def test_the_newer_external_id_counts(tmp_path: Path) -> None:
    both = complete("cpu_op", "a", 1, 1, args={"External id": 0, "external id": 4})

    assert values(recorded(tmp_path, both), "ops", "recorded_id") == [0]


def test_an_amd_trace_has_no_geometry_and_streams_as_text(tmp_path: Path) -> None:
    args = {"device": 2, "stream": "0x0", "correlation": 5, "kind": "Dispatch Kernel"}

    found = recorded(
        tmp_path,
        launch(1, 5, name="hipLaunchKernel"),
        complete("kernel", "Cijk", 2, 1, pid=2, tid=0, args=args),
        deviceProperties=[{"id": 0, "name": "MI300X", "computeMajor": 9, "computeMinor": 4}],
    )

    columns = ("device", "stream", "grid", "registers", "occupancy_pct")
    assert values(found, "activities", *columns) == [(2, 0, None, None, None)]
    assert found.devices[0]["device_type"] == "hip"
    assert found.devices[0]["compute_capability"] == "9.4"


def test_a_kernel_without_arguments_is_on_the_device_of_its_process(tmp_path: Path) -> None:
    found = recorded(tmp_path, complete("kernel", "k", 1, 2, pid=3, tid="stream 9"))

    columns = ("device", "stream", "correlation_id", "recorded_id", "pid")
    assert values(found, "activities", *columns) == [(3, 9, None, None, None)]


def test_the_geometry_of_a_kernel_is_kept(tmp_path: Path) -> None:
    args = {
        "grid": [40, 1, 2], "block": [128, 1, 1], "registers per thread": 32,
        "shared memory": 1024, "blocks per SM": 0.25, "est. achieved occupancy %": 0,
        "graph node id": 8,
    }  # fmt: skip
    columns = (
        "grid", "block", "registers", "shared_bytes", "blocks_per_sm", "occupancy_pct",
        "graph_node_id",
    )  # fmt: skip

    found = recorded(tmp_path, kernel(1, 2, 3, args))

    assert values(found, "activities", *columns) == [("40,1,2", "128,1,1", 32, 1024, 0.25, 0.0, 8)]


@pytest.mark.parametrize("grid", ["grid(100,)", None, [], [1, 2], {"x": 1}, [1, -1, 1], 7])
def test_a_grid_of_another_form_is_none(tmp_path: Path, grid: Any) -> None:
    assert values(recorded(tmp_path, kernel(1, 2, 3, {"grid": grid})), "activities", "grid") == [
        None
    ]


def test_node_zero_of_a_graph_means_no_graph(tmp_path: Path) -> None:
    found = recorded(tmp_path, kernel(1, 2, 3, {"graph node id": 0}))

    assert values(found, "activities", "graph_node_id") == [None]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "h2d pageable"),
        ("Memcpy DtoH (Device -> Pinned)", "d2h pinned"),
        ("Memcpy HtoH (Pageable -> Pinned)", "h2h pageable pinned"),
        ("Memcpy DtoD (Device -> Device)", "d2d"),
        ("Memcpy DtoD (Device Static -> Managed Static)", "d2d"),
        ("Memcpy PtoP (Device -> Device)", "p2p"),
        ("Memcpy HtoD (Host -> Device)", "h2d"),
        ("Memcpy HtoD", "h2d"),
        ("Memcpy (Unknown -> Unknown)", None),
        ("CopyDeviceToDevice", None),
    ],
)
def test_copies_have_a_kind(tmp_path: Path, name: str, kind: str | None) -> None:
    found = recorded(tmp_path, copy(1, 2, 3, name=name, bytes=64) | {"cat": "gpu_memcpy"})

    assert values(found, "activities", "kind", "copy_kind", "bytes") == [("memcpy", kind, 64)]


def test_a_peer_copy_is_on_the_device_that_it_ran_on(tmp_path: Path) -> None:
    args = {"fromDevice": 0, "inDevice": 1, "toDevice": 1, "stream": 7, "correlation": 3}

    found = recorded(tmp_path, complete("gpu_memcpy", "Memcpy PtoP", 1, 2, pid=0, args=args))

    assert values(found, "activities", "device") == [1]


def test_memory_events_keep_device_size_and_address(tmp_path: Path) -> None:
    gpu = {
        "Device Type": 1, "Device Id": 0, "Addr": 2**63 + 16, "Bytes": -512,
        "Total Allocated": 1024, "Total Reserved": 4096,
    }  # fmt: skip
    host = {"Device Type": 0, "Device Id": -1, "Addr": -16, "Bytes": 512}

    found = recorded(tmp_path, memory("1.5", **gpu), memory(2, **host))

    columns = ("time_ns", "device_type", "device", "address", "bytes", "allocated_bytes")
    assert values(found, "memory", *columns) == [
        (1500, "cuda", 0, 2**63 + 16, -512, 1024),
        (2000, "cpu", None, 2**64 - 16, 512, None),
    ]


def test_other_instants_are_no_memory(tmp_path: Path) -> None:
    found = recorded(tmp_path, memory(1, Bytes=1) | {"name": "[OutOfMemory]"}, memory(2, Bytes=1))

    assert found.spool.counts["memory"] == 1
    assert found.skipped == {problems.MARKS: 1}


@pytest.mark.parametrize(
    ("event", "kind", "text"),
    [
        pytest.param(step(5, 1, 1), "step", "ProfilerStep#5", id="step"),
        pytest.param(annotation("epoch (3)", 1, 1), "annotation", "epoch (3)", id="like a frame"),
        pytest.param(
            annotation("nn.Module: X", 1, 1), "annotation", "nn.Module: X", id="like a module"
        ),
        pytest.param(annotation("layer:enc.0", 1, 1), "layer", "enc.0", id="layer"),
        pytest.param(frame("a.py(3): f", 1, 1), "python", "a.py(3): f", id="frame"),
        pytest.param(
            frame("<built-in method f>", 1, 1), "python", "<built-in method f>", id="built-in"
        ),
        pytest.param(frame("nn.Module: Linear_3", 1, 1), "module", "Linear_3", id="module"),
        pytest.param(frame("layer:x", 1, 1), "python", "layer:x", id="a frame like a layer"),
        pytest.param(
            complete("cpu_op", "Optimizer.step#SGD.step", 1, 1), "annotation",
            "Optimizer.step#SGD.step", id="annotation among ops",
        ),
    ],
)  # fmt: skip
def test_ranges_have_a_kind(tmp_path: Path, event: Event, kind: str, text: str) -> None:
    assert values(recorded(tmp_path, event), "ranges", "kind", "name") == [(kind, text)]


def test_one_text_may_be_of_two_kinds(tmp_path: Path) -> None:
    found = recorded(tmp_path, annotation("a.py(3): f", 1, 1), frame("a.py(3): f", 1, 1))

    assert sorted(values(found, "ranges", "kind")) == ["annotation", "python"]


def test_flows_are_read_from_both_ends(tmp_path: Path) -> None:
    found = recorded(tmp_path, flow(1, 10, 20))

    assert values(found, "flows", "flow_id", "end", "tid", "time_ns") == [
        (1, False, MAIN, 10000),
        (1, True, ENGINE, 20000),
    ]


@pytest.mark.parametrize(("frames", "kept"), [(3855, 3855), (3856, 3855), (5000, 3855)])
def test_a_long_call_stack_keeps_its_innermost_frames_whole(
    tmp_path: Path, frames: int, kept: int
) -> None:
    """A frame and its separator are 17 characters: 65,536 hold 3855 of them."""
    lines = [f"net.py({10_000 + i}): f" for i in range(frames)]

    found = recorded(tmp_path, op("a", 1, 2, **{"Call stack": ";".join(lines)}))

    (text,) = values(found, "ops", "stack")
    assert text == "\n".join(f"net.py:{10_000 + i}" for i in range(kept))
    cut = {"stack-cut": 1} if frames > kept else {}
    assert found.problems == cut


@pytest.mark.parametrize(("modules", "kept"), [(1638, 1638), (1639, 1638), (3000, 1638)])
def test_a_long_path_of_modules_keeps_its_outermost_ones_whole(
    tmp_path: Path, modules: int, kept: int
) -> None:
    """A name and its separator are 10 characters: 16,384 hold 1638 of them."""
    names = [f"layer{1000 + i}" for i in range(modules)]

    found = recorded(tmp_path, op("a", 1, 2, **{"Module Hierarchy": ".".join(names)}))

    assert values(found, "ops", "layer") == [".".join(names[:kept])]
    cut = {"path-cut": 1} if modules > kept else {}
    assert found.problems == cut


def test_a_frame_or_module_that_does_not_fit_at_all_is_left_out(tmp_path: Path) -> None:
    long = {"Call stack": "a" * 70_000 + ".py(1): f", "Module Hierarchy": "a" * 70_000}

    found = recorded(tmp_path, op("a", 1, 2, **long))

    assert values(found, "ops", "stack", "layer") == [(None, None)]
    assert found.problems.total() == 2


# What is wrong


@pytest.mark.parametrize(
    "value", [True, [1], {"a": 1}, "many", 7.5, 2**64, "0x", float("1e300")], ids=repr
)
def test_a_number_of_the_wrong_type_is_left_out_and_counted(tmp_path: Path, value: Any) -> None:
    bad = kernel(1, 2, 3, {"registers per thread": value, "shared memory": 64})

    found = recorded(tmp_path, bad, kernel(4, 5, 6, {"registers per thread": 32}))

    columns = ("correlation_id", "registers", "shared_bytes")
    assert values(found, "activities", *columns) == [(3, None, 64), (6, 32, None)]
    assert found.problems == {WRONG_TYPE: 1}


@pytest.mark.parametrize("value", ["64", 64.0, "0x40"])
def test_a_whole_number_may_be_written_otherwise(tmp_path: Path, value: Any) -> None:
    found = recorded(tmp_path, kernel(1, 2, 3, {"registers per thread": value}))

    assert values(found, "activities", "registers") == [64]
    assert found.problems == {}


@pytest.mark.parametrize("key", ["Call stack", "Module Hierarchy", "Collective name", "dtype"])
def test_a_text_of_the_wrong_type_is_left_out_and_counted(tmp_path: Path, key: str) -> None:
    found = recorded(tmp_path, op("a", 1, 2, id=5, **{key: 7}))

    assert values(found, "ops", "recorded_id", "layer", "stack") == [(5, None, None)]
    assert found.problems == {WRONG_TYPE: 1}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        pytest.param({"name": 5}, ("", PID, MAIN), id="name"),
        pytest.param({"pid": 1.5}, ("a", None, MAIN), id="pid"),
        pytest.param({"tid": [1]}, ("a", PID, None), id="tid"),
        pytest.param({"id": {}}, ("a", PID, MAIN), id="id"),
    ],
)
def test_a_field_of_the_wrong_type_takes_nothing_with_it(
    tmp_path: Path, fields: dict[str, Any], kept: tuple[Any, ...]
) -> None:
    found = recorded(tmp_path, op("a", 1, 2) | fields, op("b", 1, 2))

    assert values(found, "ops", "op", "pid", "tid") == [kept, ("b", PID, MAIN)]
    assert found.problems == {WRONG_TYPE: 1}


@pytest.mark.parametrize("args", [None, [], "x", 7, {"External id": None}])
def test_arguments_of_any_kind_are_survived(tmp_path: Path, args: Any) -> None:
    found = recorded(tmp_path, op("a", 1, 2) | {"args": args})

    assert values(found, "ops", "op", "recorded_id") == [("a", None)]


@pytest.mark.parametrize("event", [1, "x", None, [], [[1]], True], ids=repr)
def test_what_is_no_event_is_dropped_alone(tmp_path: Path, event: Any) -> None:
    found = recorded(tmp_path, [event], op("a", 1, 2))

    assert values(found, "ops", "op") == ["a"]
    assert found.problems == {"no-event": 1}


def test_bad_text_in_arguments_does_not_take_the_other_arguments(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    text = json_text(op("a", 1, 2, id=5, **{"Module Hierarchy": "net@"}), op("b", 1, 2, id=6))
    path.write_bytes(text.replace(b"@", b"\xff"))

    found = read(path)

    assert values(found, "ops", "op", "recorded_id", "layer") == [
        ("a", 5, "net\ufffd"),
        ("b", 6, None),
    ]
    assert sum(found.problems.values()) == 1


@pytest.mark.parametrize(
    "around",
    [
        {"deviceProperties": {"id": 0}}, {"deviceProperties": [1, None, "x"]},
        {"deviceProperties": [{"id": "x", "name": 5, "numSms": []}]},
        {"distributedInfo": []}, {"distributedInfo": {"rank": "two"}},
        {"distributedInfo": {"rank": -1}}, {"baseTimeNanoseconds": {}},
    ],
    ids=repr,
)  # fmt: skip
def test_metadata_of_the_wrong_type_is_survived(tmp_path: Path, around: dict[str, Any]) -> None:
    found = recorded(tmp_path, op("a", 1, 2), **around)

    assert found.rank is None
    assert found.trace["unix_ns"] is None


def test_devices_and_rank_are_as_the_file_tells_them(tmp_path: Path) -> None:
    device = {
        "id": 1, "name": "H100", "computeMajor": 9, "computeMinor": 0, "numSms": 132,
        "totalGlobalMem": 85_000_000_000,
    }  # fmt: skip

    found = recorded(
        tmp_path,
        op("a", 1, 2),
        deviceProperties=[device],
        distributedInfo={"rank": 3, "world_size": 8},
    )

    assert (found.rank, found.trace["world_size"]) == (3, 8)
    columns = ("device", "name", "device_type", "compute_capability", "multiprocessors")
    assert [found.devices[0][name] for name in columns] == [1, "H100", "cuda", "9.0", 132]


def test_chunks_of_any_size_give_the_same_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        event
        for at in range(0, 400, 10)
        for event in (
            op("a", at, 9, seq=at),
            launch(at, at),
            kernel(at + 1, 5, at),
            step(at, at, 9),
        )
    ]
    path = trace(tmp_path, events)
    whole = read(path)

    monkeypatch.setattr(_json, "CHUNK_BYTES", 333)
    pieces = read(path)

    for table in ("ops", "launches", "activities", "ranges"):
        assert pieces.read(table).to_pylist() == whole.read(table).to_pylist()


def test_rows_come_in_the_order_of_the_file(tmp_path: Path) -> None:
    order = np.random.default_rng(3).permutation(50).tolist()

    found = recorded(tmp_path, [op(f"op{at}", at, 1) for at in order])

    assert values(found, "ops", "op") == [f"op{at}" for at in order]


# Our own markers


def marker(ts: int, dur: int, /, *, quoteless: bool = True, **fields: Any) -> Event:
    return op(format_marker(Marker(**fields), quoteless=quoteless), ts, dur)


def test_markers_are_ranges_and_no_ops(tmp_path: Path) -> None:
    found = recorded(
        tmp_path,
        marker(0, 90, kind="layer", layer="blocks.0", module="Block"),
        marker(1, 80, kind="source", source="it's a file.py:7"),
        marker(1, 9, kind="source", source=None),
        op("aten::mm", 2, 50),
        marker(60, 5, kind="optimizer", name="Adam"),
        marker(70, 5, kind="dataloader", name="Iterator", quoteless=False),
    )

    assert values(found, "ops", "op") == ["aten::mm"]
    assert values(found, "ranges", "kind", "name", "dur_ns") == [
        ("layer", "blocks.0", 90_000),
        ("source", "it's a file.py:7", 80_000),
        ("annotation", "Optimizer.step#Adam", 5000),
        ("annotation", "enumerate(DataLoader)#Iterator", 5000),
    ]


def test_ops_have_the_layer_line_and_step_of_the_markers_around_them(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        marker(0, 1, kind="step", step=3),
        marker(2, 50, kind="layer", layer="blocks.0"),
        marker(3, 40, kind="layer", layer="blocks.0.mlp"),
        marker(4, 30, kind="source", source="net.py:7"),
        op("aten::relu", 5, 2, seq=7, fwd=0),
        node("ReluBackward0", 60, 20, seq=7),
        marker(100, 1, kind="step", step=4),
        op("aten::exp", 101, 2),
        marker(200, 1, kind="step", step=5),
    )

    assert rows(run.table("ops"), "op", "layer", "source", "step", "direction") == [
        ("aten::relu", "blocks.0.mlp", "net.py:7", 3, "forward"),
        ("ReluBackward0", "blocks.0.mlp", "net.py:7", 3, "backward"),
        ("aten::exp", None, None, 4, "forward"),
    ]


def test_frames_tell_lines_before_markers_do_and_the_users_steps_count(tmp_path: Path) -> None:
    run = load_events(
        tmp_path,
        step(8, 0, 50),
        marker(1, 1, kind="step", step=0),
        marker(2, 40, kind="source", source="net.py:7"),
        frame("inner.py(9): forward", 3, 30),
        op("aten::relu", 5, 2),
    )

    assert rows(run.table("ops"), "source", "step") == [("inner.py:9", 8)]


def test_a_wrapped_function_is_an_op_with_its_inputs(tmp_path: Path) -> None:
    found = recorded(
        tmp_path, marker(0, 5, kind="op", op="mine::double", inputs=(Tensor((2, 3), "f32"),))
    )

    assert values(found, "ops", "op") == ["mine::double"]
    assert [signature.text for signature in found.signatures] == ["mine::double([2,3] f32)"]
    assert values(found, "ops", "signature_id") == [0]


def test_a_marker_says_which_process_it_is_unless_the_file_does(tmp_path: Path) -> None:
    who = marker(0, 1, kind="process", rank=3, world_size=8)

    found = recorded(tmp_path, who, op("aten::mm", 2, 5))
    assert (found.rank, found.trace["world_size"]) == (3, 8)
    found = recorded(tmp_path, who, distributedInfo={"rank": 1, "world_size": 2})
    assert (found.rank, found.trace["world_size"]) == (1, 2)


def test_a_marker_says_what_the_cpu_can_do_where_it_did_the_work(tmp_path: Path) -> None:
    peaks = marker(0, 1, kind="cpu", name="a CPU", threads=4, flop_per_s={"f32": 2e11},
                   bytes_per_s=4e10, cache_bytes=1 << 20)  # fmt: skip

    (cpu,) = recorded(tmp_path, peaks, op("aten::mm", 2, 5)).devices
    assert (cpu["device_type"], cpu["multiprocessors"], cpu["flop_per_s"]) == (
        "cpu", 4, '{"f32":200000000000.0}',
    )  # fmt: skip
    assert recorded(tmp_path, peaks, kernel(5, 2, 1)).devices == []


def test_peaks_that_the_recording_contradicts_are_counted_and_not_used(tmp_path: Path) -> None:
    peaks = marker(0, 1, kind="cpu", name="a CPU", flop_per_s={"f32": 2e11}, bytes_per_s=4e10)

    found = recorded(tmp_path, peaks, op("aten::mm", 2, 5), kernel(5, 2, 1))

    assert found.devices == []
    assert found.problems["marker-peaks"] == 1


def test_a_marker_of_another_rank_is_counted_and_not_used(tmp_path: Path) -> None:
    who = marker(0, 1, kind="process", rank=3, world_size=8)

    found = recorded(tmp_path, who, distributedInfo={"rank": 1, "world_size": 2})

    assert found.rank == 1
    assert found.problems["marker-rank"] == 1


@pytest.mark.parametrize(
    ("member", "events", "lost"),
    [
        ({"with_stack": 1}, [op("aten::mm", 2, 5)], 1),
        ({"with_stack": 1}, [op("aten::mm", 2, 5), frame("net.py(7): main", 0, 9)], 0),
        ({"with_stack": 0}, [op("aten::mm", 2, 5)], 0),
        ({}, [op("aten::mm", 2, 5)], 0),
    ],
)
def test_frames_that_were_left_out_of_the_file_are_said(
    member: dict[str, int], events: list[dict[str, Any]], lost: int, tmp_path: Path
) -> None:
    path = trace(tmp_path / "t.json", *events, **member)
    assert read(path).problems["frames-lost"] == lost

    found = pyprof2.load(path).check().set_index("finding")["advice"].to_dict()
    assert ("recorded with with_stack, but the file holds no Python frames" in found) == lost
    # Who has asked for frames is not asked to ask for them.
    advice = found.get("no source lines", "")
    assert ("with_stack=True" in advice) == (bool(advice) and not lost)


def test_ops_that_the_profiler_records_are_not_taken_from_markers(tmp_path: Path) -> None:
    inputs = (Tensor((8, 8), "f32"),) * 2
    claims = [
        marker(ts, 5, kind="op", op=name, inputs=inputs)
        for ts, name in ((0, "aten::mm"), (10, "mine::mm"))
    ]

    found = recorded(tmp_path, *claims, op("aten::mm", 20, 5))

    assert found.read("ops")["op"].to_pylist().count("aten::mm") == 1
    assert found.problems["marker-of-op"] == 1
    assert found.annotated == {"inputs of op calls": 1}


def test_what_only_markers_say_is_counted(tmp_path: Path) -> None:
    events = [
        marker(0, 1, kind="process", rank=3, world_size=8),
        marker(1, 1, kind="cpu", name="a CPU", flop_per_s={"f32": 2e11}, bytes_per_s=4e10),
        marker(2, 0, kind="step", step=7),
        op("aten::mm", 3, 5),
    ]

    found = recorded(tmp_path, *events)

    assert found.annotated == {"the rank": 1, "peaks of the CPU": 1, "steps": 1}
    assert recorded(tmp_path, op("aten::mm", 3, 5), step(1, 0, 9)).annotated == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{'pyprof2':1,'kind':'what'}", "marker-broken"),
        ("{'pyprof2':3,'kind':'layer'}", "marker-version"),
    ],
)
def test_what_is_no_marker_of_ours_is_dropped_and_counted(
    text: str, problem: str, tmp_path: Path
) -> None:
    found = recorded(tmp_path, op(text, 0, 5), op("aten::mm", 2, 5))

    assert values(found, "ops", "op") == ["aten::mm"]
    assert found.problems == {problem: 1}


@pytest.mark.parametrize(
    ("event", "is_op"),
    [
        pytest.param(op("compile_file", 5, 1), False, id="a phase of the compiler"),
        pytest.param(op("gc (dynamo_timed)", 5, 1), False, id="the time of a phase"),
        pytest.param(op("TorchDynamo Cache Lookup", 5, 1), False, id="a look-up"),
        pytest.param(op("PythonDispatchMode", 5, 1, dims=[[2]]), False, id="a mode"),
        pytest.param(op("PythonSubclass", 5, 1, dims=[[2]]), False, id="a subclass"),
        pytest.param(op("Torch-Compiled Region: 0/0", 5, 1), True, id="a compiled region"),
        pytest.param(op("CompiledFunction", 5, 1, seq=3), True, id="a function of autograd"),
        pytest.param(op("AddBackward0", 5, 1), True, id="a node without a number"),
        pytest.param(op("detach", 5, 1), True, id="an op without a namespace"),
        pytest.param(op("_grad_sum_to_size", 5, 1), True, id="one of TorchScript's"),
        pytest.param(op("ns::f", 5, 1), True, id="an op without inputs"),
        pytest.param(op("my_kernel", 5, 1, kernel_backend="triton"), True, id="a Triton kernel"),
        pytest.param(op("fused_0", 5, 1, dims=[[2]]), True, id="a fused op"),
    ],
)
def test_an_op_has_a_namespace_a_number_or_inputs(
    tmp_path: Path, event: Event, *, is_op: bool
) -> None:
    found = recorded(tmp_path, op("aten::mm", 0, 9, dims=[[2, 2], [2, 2]]), event)

    assert values(found, "ops", "op") == ["aten::mm", *([event["name"]] if is_op else [])]
    assert values(found, "ranges", "kind") == ([] if is_op else ["internal"])


def test_without_recorded_inputs_only_what_cannot_be_a_name_is_no_op(tmp_path: Path) -> None:
    found = recorded(tmp_path, op("fused_0", 0, 9), op("gc (dynamo_timed)", 2, 1))

    assert values(found, "ops", "op") == ["fused_0"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_no_trace_and_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "trace.json"
    os.mkfifo(pipe)

    done = subprocess.run(
        [sys.executable, "-m", "pyprof2", "parse", pipe],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr == (
        f"pyprof2: {pipe}: no file but a pipe or a device; write it to a file, and name that\n"
    )


@pytest.mark.parametrize(("said", "rank"), [(10**9 - 1, 10**9 - 1), (10**9, None), (-1, None)])
def test_a_rank_that_no_job_has_is_unknown(tmp_path: Path, said: int, rank: int | None) -> None:
    path = trace(tmp_path, op("aten::mm", 0, 1), distributedInfo={"rank": said})

    assert read(path).rank == rank


def sample(name: str, ts: float, args: Any, **fields: Any) -> Event:
    return {"ph": "C", "name": name, "pid": PID, "ts": ts, "args": args} | fields


COUNTER_COLUMNS = ("time_ns", "dur_ns", "pid", "device", "name", "series", "value", "range")


@pytest.mark.parametrize("scanner", SCANNERS)
def test_counters_are_a_row_for_each_value(tmp_path: Path, scanner: str) -> None:
    path = trace(
        tmp_path,
        sample("power", 5, {"GPU 0": 250, "GPU 1": 251.5}),
        sample("sm__cycles.avg", 7.25, {"": -3e2}, pid="GPU 3 Counters", cat="hardware_counters"),
        complete(
            "cuda_profiler_range", "sgemm", 6, 2, pid=1, tid=0,
            args={"inst.sum": 1024.0, "device": "1", "dram.sum": 0},
        ),
    )  # fmt: skip
    (found,) = read_recordings(path, tmp_path, scanner=scanner)

    assert sorted(values(found, "counters", *COUNTER_COLUMNS), key=str) == [
        (5000, None, PID, None, "power", "GPU 0", 250.0, None),
        (5000, None, PID, None, "power", "GPU 1", 251.5, None),
        (6000, 2000, None, 1, "dram.sum", None, 0.0, "sgemm"),
        (6000, 2000, None, 1, "inst.sum", None, 1024.0, "sgemm"),
        (7250, None, None, 3, "sm__cycles.avg", None, -300.0, None),
    ]
    assert found.skipped == {}
    assert found.problems == {}
    assert found.trace["start_ns"] is None  # a counter is no work


@pytest.mark.parametrize("scanner", SCANNERS)
@pytest.mark.parametrize(
    ("args", "good", "skipped_count"),
    [
        ('{"a": "12"}', [], 1), ('{"a": null, "b": 2}', [2.0], 1), ('{"a": {"b": 1}}', [], 1),
        ('{"a": [1], "b": true, "c": 3}', [3.0], 2), ('{"a": 1e400}', [], 1), ("7", [], 1),
        ('{"a": 1' + "0" * 400 + "}", [], 1), ("{}", [], 1), ("null", [], 1), ("[1, 2]", [], 1),
        ('{"a": 123456789012345678901234567890}', [123456789012345678901234567890.0], 0),
        ('{"a": 1, "a": 2}', [2.0], 0), ('{"a": 1e-400}', [0.0], 0),
        ('{"a": NaN, "b": 4}', [4.0], 1),
        ('{"a": -inf, "b": 5}', [5.0], 1),
    ],
)  # fmt: skip
def test_what_is_no_number_of_a_counter_is_skipped(
    tmp_path: Path, scanner: str, args: str, good: list[float], skipped_count: int
) -> None:
    text = json_text(sample("odd", 5, {"at": "here"}), sample("even", 6, {"x": 6}))
    path = tmp_path / "trace.json"
    path.write_bytes(text.replace(b'{"at":"here"}', args.encode()))
    assert path.read_bytes() != text
    (found,) = read_recordings(path, tmp_path, scanner=scanner)

    assert values(found, "counters", "value") == [*good, 6.0]
    assert found.skipped == ({problems.COUNTERS: skipped_count} if skipped_count else {})


def test_counters_without_a_sensible_time_are_counted(tmp_path: Path) -> None:
    found = recorded(
        tmp_path, sample("a", 1, {"x": 1}), {"ph": "C", "name": "b", "args": {"x": 2}},
        complete("cuda_profiler_range", "never filled in", 0, 0, args={"x": 3}),
    )  # fmt: skip

    assert values(found, "counters", "value") == [1.0]
    assert found.problems == {NO_TIME: 2}


def test_counters_of_two_ranks_are_in_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        late, early = (sample("power", ts, {"W": ts + rank}) for ts in (8, 3))
        trace(folder / f"rank{rank}.json", op("aten::a", 1, 2), late, early)
    run = pyprof2.load(parse(folder, tmp_path / "store"))

    kept = run.counters
    assert kept[["rank", "time_ns", "name", "value"]].values.tolist() == [
        [0, 3000, "power", 3.0], [0, 8000, "power", 8.0],
        [1, 3000, "power", 4.0], [1, 8000, "power", 9.0],
    ]  # fmt: skip
    facts = run.check().groupby("finding")["count"].apply(list)
    assert facts["values of counters in the recording"] == [4]


def test_a_run_without_counters_has_an_empty_table(tmp_path: Path) -> None:
    assert pyprof2.load(trace(tmp_path, op("aten::a", 1, 2))).counters.empty
