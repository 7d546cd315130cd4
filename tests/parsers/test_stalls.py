"""What held the host or a stream up is in `stalls`, whole and by its kind, from both profilers."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections import Counter
from contextlib import closing
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest

from pyprof2.api.run import load
from pyprof2.parsers._names import overhead_kind, wait_kind
from tests.kineto_events import complete, kernel, launch, load_events, trace
from tests.nsight_exports import MAIN, PID, Export, global_pid, global_tid

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

Stall: TypeAlias = tuple[Any, ...]
"""Kind, start, duration, device, stream, correlation id."""

COLUMNS: Final = ("kind", "start_ns", "dur_ns", "device", "stream", "correlation_id")
NONE: Final = 4294967295
OVERHEADS: Final = "CUPTI_ACTIVITY_KIND_OVERHEAD"
PROFILERS: Final = "PROFILER_OVERHEAD"
WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"


def listed(run: Run, *columns: str) -> list[Any]:
    """Return columns of `stalls` as Python values, None for null; one column as plain values."""
    rows = list(zip(*(run.table("stalls")[name].to_pylist() for name in columns), strict=True))
    return [row[0] for row in rows] if len(columns) == 1 else rows


# Real recordings, read slowly by somebody else.

KINETO_KINDS: Final = {
    "Activity Buffer Request": "profiler", "Buffer Flush": "profiler",
    "Stream Wait Event": "stream_wait", "Stream Sync": "sync", "Context Sync": "sync",
}  # fmt: skip
CUPTI_KINDS: Final = {6: "module_load", 7: "module_load", 8: "queue_full"}
"""By `overheadType`, of what the real exports have."""


def known(number: int | None) -> int | None:
    return None if number in (-1, NONE) else number


def nanoseconds(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def kineto_stalls(path: Path) -> Counter[Stall]:
    """Return what the events say; those that are looked for have at most three decimals."""
    text = gzip.decompress(path.read_bytes())
    if b'"overhead"' not in text and b'"cuda_sync"' not in text:
        pytest.skip("neither overheads nor waits in it")
    found: Counter[Stall] = Counter()
    for event in json.loads(text, strict=False, parse_float=Decimal)["traceEvents"]:
        if event.get("cat") in ("overhead", "cuda_sync"):
            args = event.get("args", {})
            found[
                KINETO_KINDS[event["name"]], nanoseconds(event["ts"]), nanoseconds(event["dur"]),
                args.get("device"), known(args.get("stream")), args.get("correlation"),
            ] += 1  # fmt: skip
    return found


NSIGHT_QUERIES: Final = {
    OVERHEADS: "SELECT globalTid >> 24, overheadType, start, end - start, NULL, NULL, "
    "correlationId FROM CUPTI_ACTIVITY_KIND_OVERHEAD",
    PROFILERS: "SELECT globalTid >> 24, NULL, start, end - start, NULL, NULL, NULL "
    "FROM PROFILER_OVERHEAD",
    WAITS: "SELECT globalPid >> 24, (SELECT value FROM CUPTI_ACTIVITY_KIND_RUNTIME AS calls "
    "JOIN StringIds ON id = nameId WHERE calls.correlationId = waits.correlationId AND "
    "globalTid >> 24 = globalPid >> 24), start, end - start, deviceId, streamId, correlationId "
    "FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION AS waits",
}
"""Process, what says the kind, and the rest of a stall."""


def nsight_stalls(path: Path) -> Counter[Stall]:
    """Return what the rows of processes with kernels say; what a wait is, its call says."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        there = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        rows = [
            (name, *row)
            for name, query in NSIGHT_QUERIES.items()
            if name in there
            for row in db.execute(query)
        ]
        if not rows:
            pytest.skip("neither overheads nor waits in it")
        kernels = db.execute("SELECT globalPid >> 24 FROM CUPTI_ACTIVITY_KIND_KERNEL")
        pids = {row[0] for row in kernels}
    found: Counter[Stall] = Counter()
    for name, pid, what, start, dur, device, stream, correlation in rows:
        if name == WAITS:
            kind = "stream_wait" if "StreamWaitEvent" in (what or "") else "sync"
        else:
            kind = CUPTI_KINDS[what] if name == OVERHEADS else "profiler"
        if pid in pids:
            found[kind, start, dur, device, known(stream), correlation] += 1
    return found


def test_real_stalls_are_all_there_with_their_times_and_kinds(real_trace: Path) -> None:
    is_export = real_trace.suffix == ".sqlite"
    expected = nsight_stalls(real_trace) if is_export else kineto_stalls(real_trace)

    assert Counter(listed(load(real_trace), *COLUMNS)) == expected


# Kineto, by hand.


def wait(name: str, ts: float, **args: Any) -> dict[str, Any]:
    """Return a wait as newer recorders write it: on the device, above its stream."""
    args = {"cuda_sync_kind": name, "stream": 7, "device": 1, "correlation": 5} | args
    return complete("cuda_sync", name, ts, 2, pid=1, tid=args["stream"], args=args)


def overhead(name: str, ts: float, dur: float = 1, **fields: Any) -> dict[str, Any]:
    return complete("overhead", name, ts, dur, **{"pid": -1, "tid": 0} | fields)


def test_waits_name_stream_call_and_the_call_that_recorded_the_event(tmp_path: Path) -> None:
    event = {"wait_on_stream": 9, "wait_on_cuda_event_id": 3}
    run = load_events(
        tmp_path,
        kernel(0, 10, 1),
        wait("Stream Wait Event", 2, wait_on_cuda_event_record_corr_id=4, **event),
        wait("Stream Wait Event", 4, wait_on_cuda_event_record_corr_id=-1, **event),
        wait("Context Sync", 6, stream=NONE), wait("Event Sync", 7, stream=-1),
    )  # fmt: skip

    columns = ("stall_id", "kind", "name", "device", "stream", "correlation_id")
    assert listed(run, *columns, "waits_for_correlation_id", "pid", "tid") == [
        (0, "stream_wait", "Stream Wait Event", 1, 7, 5, 4, None, None),
        (1, "stream_wait", "Stream Wait Event", 1, 7, 5, None, None, None),
        (2, "sync", "Context Sync", 1, None, 5, None, None, None),
        (3, "sync", "Event Sync", 1, None, 5, None, None, None),
    ]


def test_overheads_are_on_no_thread_unless_one_is_named(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, kernel(0, 10, 1), overhead("Buffer Flush", 1), overhead("Resource", 2, tid=77),
        overhead("Instrumentation", 3, pid=12, tid=77),
    )  # fmt: skip

    assert listed(run, "pid", "tid", "device") == [
        (None, None, None), (None, 77, None), (12, 77, None)
    ]  # fmt: skip


def test_stalls_are_numbered_by_start_the_longer_one_first(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, kernel(0, 10, 1), overhead("Resource", 5, 1), overhead("Buffer Flush", 5, 3),
        overhead("Instrumentation", 4, 1),
    )  # fmt: skip

    assert listed(run, "stall_id", "start_ns", "dur_ns") == [
        (0, 4000, 1000), (1, 5000, 3000), (2, 5000, 1000)
    ]  # fmt: skip


def test_what_was_never_filled_in_is_dropped_and_counted(tmp_path: Path) -> None:
    run = load_events(tmp_path, kernel(0, 10, 1), overhead("Resource", 0, 0))

    assert len(run.tables.frame("stalls")) == 0
    problems = run.check().query("severity == 'problem'")
    assert problems["finding"].tolist() == ["an event without a sensible time: dropped"]


def test_stalls_are_no_work_of_the_program(tmp_path: Path) -> None:
    plain = load_events(tmp_path, launch(1, 1), kernel(5, 10, 1))
    other = tmp_path / "with"
    other.mkdir()
    stalled = load_events(
        other, launch(1, 1), kernel(5, 10, 1), overhead("Buffer Flush", 0, 50),
        wait("Stream Sync", 90),
    )  # fmt: skip

    assert len(stalled.tables.frame("stalls")) == 2
    for name in ("kernels", "launches", "ranges"):
        assert stalled.table(name).equals(plain.table(name))
    assert stalled.trace[["start_ns", "end_ns"]].equals(plain.trace[["start_ns", "end_ns"]])
    assert not any("unknown kind" in text for text in stalled.check()["finding"])


# Nsight Systems, by hand.


def row(start: int, name: str | None = None, *, export: Export, **more: Any) -> dict[str, Any]:
    name_id = None if name is None else export.string(name)
    thread = global_tid(more.pop("pid", PID), more.pop("tid", MAIN))
    return {"start": start, "end": start + 3, "globalTid": thread, "nameId": name_id} | more


def test_overheads_of_an_export_have_thread_call_and_kind(tmp_path: Path) -> None:
    export = Export().launched("k", 1000, 4)
    export.add(OVERHEADS, **row(10, "Lazy Function Loading", export=export, correlationId=4))
    export.add(OVERHEADS, **row(20, "Command Buffer Full", export=export, correlationId=0))
    export.add(OVERHEADS, **row(30, "News", export=export, correlationId=0))
    export.add(PROFILERS, **row(40, "dlopen(libcuda.so.1)", export=export))
    export.add(PROFILERS, **row(50, export=export))
    export.add(PROFILERS, **row(60, "TLS allocation", export=export, pid=900))
    run = export.load(tmp_path)

    assert listed(run, "start_ns", "dur_ns", "kind", "name", "correlation_id") == [
        (10, 3, "module_load", "Lazy Function Loading", 4),
        (20, 3, "queue_full", "Command Buffer Full", None), (30, 3, "other", "News", None),
        (40, 3, "profiler", "dlopen(libcuda.so.1)", None), (50, 3, "profiler", None, None),
    ]  # fmt: skip
    assert set(listed(run, "pid", "tid")) == {(PID, MAIN)}
    assert run.trace["start_ns"].tolist() == [1000]
    skipped = run.check().query("finding.str.contains('processes that used no GPU')")
    assert skipped["count"].tolist() == [1]


@pytest.mark.parametrize(
    ("stream", "event", "expected"),
    [
        (NONE, NONE, ("sync", "Context Sync", None)), (NONE, 18, ("sync", "Event Sync", None)),
        (7, NONE, ("sync", "Stream Sync", 7)), (7, 18, ("stream_wait", "Stream Wait Event", 7)),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.release) for number in (1, 2, 3)), 4]
)
def test_a_wait_is_what_it_names_not_the_number_of_its_type(
    tmp_path: Path, number: int, stream: int, event: int, expected: Stall
) -> None:
    export = Export().launched("k", 0, 1)
    export.add(
        WAITS, start=50, end=70, deviceId=1, streamId=stream, eventId=event, correlationId=8,
        globalPid=global_pid(PID), syncType=number,
    )  # fmt: skip
    run = export.load(tmp_path)

    assert listed(run, "kind", "name", "stream") == [expected]
    assert listed(run, "device", "correlation_id", "pid", "tid") == [(1, 8, PID, None)]


# Names, as recorders spell them.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Buffer Flush", "profiler"), ("CUPTI: Buffer flush", "profiler"),
        ("Instrumentation", "profiler"), ("Resource", "profiler"),
        ("CUPTI Resource Management", "profiler"), ("Activity Buffer Request", "profiler"),
        ("CUDA profiling initialization", "profiler"), ("Lazy Function Loading", "module_load"),
        ("Runtime Triggered Module Loading", "module_load"), ("Driver Compiler", "module_load"),
        ("Driver JIT compiler (CUDA)", "module_load"), ("Command Buffer Full", "queue_full"),
        ("Unknown", "other"), ("", "other"),
    ],
)  # fmt: skip
def test_an_overhead_has_the_kind_that_its_name_says(name: str, kind: str) -> None:
    assert overhead_kind(name) == kind


def test_an_overhead_of_another_name_is_what_its_table_is_of() -> None:
    assert overhead_kind("TLS allocation", "profiler") == "profiler"
    assert overhead_kind("Lazy Function Loading", "profiler") == "module_load"


def test_only_a_wait_of_a_stream_for_an_event_holds_no_host() -> None:
    names = ("Stream Wait Event", "Stream Sync", "Event Sync", "Context Sync", "Unknown Sync")

    assert [wait_kind(name) for name in names] == ["stream_wait"] + ["sync"] * 4


# Segments of one rank.


def test_stalls_of_segments_count_on_and_name_calls_of_their_own(tmp_path: Path) -> None:
    names = ["rank-0_1.json", "rank-0_2.json"]
    for number, name in enumerate(names):
        trace(
            tmp_path / name,
            launch(1, 5), kernel(5, 10, 5), overhead("Buffer Flush", 3),
            wait("Stream Wait Event", 4, correlation=5, wait_on_cuda_event_record_corr_id=5),
            baseTimeNanoseconds=10**15 * (number + 1), distributedInfo={"rank": 0},
        )  # fmt: skip
    run = load(tmp_path)
    calls = run.table("launches")["correlation_id"].to_pylist()

    assert run.summary["ranks"] == [0]
    assert len(set(calls)) == 2
    found = listed(run, "stall_id", "name", "correlation_id", "waits_for_correlation_id")
    assert found == [
        (0, "Buffer Flush", None, None), (1, "Stream Wait Event", calls[0], calls[0]),
        (2, "Buffer Flush", None, None), (3, "Stream Wait Event", calls[1], calls[1]),
    ]  # fmt: skip
