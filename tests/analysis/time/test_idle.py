"""Idle time by cause: an example by hand, each rule, and the rules as loops over nanoseconds."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.time.idle import IN_PARTS, idle_in_windows, in_key_order
from pyprof2.analysis.time.idle_causes import NORMAL_GAP_NS
from pyprof2.analysis.time.recordings import device_windows
from pyprof2.tables import IDLE
from tests.analysis.time.slow_idle import CLASSES, Instant, SlowIdle
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

COLUMNS: Final = [name for name in IDLE.names if name not in ("rank", "span")]
MAIN: Final = 1
ENGINE: Final = 2


def event(start: int, end: int, tid: int | None = MAIN, **columns: Any) -> dict[str, Any]:
    """Return what every event of the host has."""
    return {"start_ns": start, "dur_ns": end - start, "pid": 9, "tid": tid, **columns}


def call(start: int, end: int, name: str = "cudaLaunchKernel", tid: int = MAIN) -> dict[str, Any]:
    """Return a call of the runtime."""
    return event(start, end, tid, name=name)


def op(
    start: int, end: int, name: str = "aten::x", tid: int = MAIN, **known: Any
) -> dict[str, Any]:
    """Return an op."""
    return event(start, end, tid, op=name, **known)


def note(
    start: int, end: int, name: str, kind: str = "annotation", tid: int = MAIN
) -> dict[str, Any]:
    """Return a range."""
    return event(start, end, tid, name=name, kind=kind)


def stall(start: int, end: int, kind: str, tid: int | None = MAIN, **place: int) -> dict[str, Any]:
    """Return what held a thread or a stream up."""
    return event(start, end, tid, kind=kind, **place)


def work(start: int, end: int, launch: int | None = None, stream: int = 7) -> dict[str, Any]:
    """Return a kernel."""
    return {
        "start_ns": start, "dur_ns": end - start, "launch_id": launch, "device": 0,
        "stream": stream,
    }  # fmt: skip


def recording(
    kernels: Sequence[Mapping[str, Any]],
    calls: Sequence[Mapping[str, Any]] = (),
    *,
    copies: Sequence[Mapping[str, Any]] = (),
    window: tuple[int, int] | None = None,
    **others: Sequence[Mapping[str, Any]],
) -> dict[str, pa.Table]:
    """Return the tables of a recording; ids count up, of copies on from those of kernels."""
    copies = [{"kernel_id": len(kernels) + i} | dict(row) for i, row in enumerate(copies)]
    trace = [] if window is None else [{"start_ns": window[0], "end_ns": window[1]}]
    rows = {"kernels": kernels, "launches": calls, "copies": copies, "trace": trace, **others}
    names = ("kernels", "copies", "launches", "ops", "ranges", "stalls", "trace")
    return {name: canonical(name, *rows.get(name, ())) for name in names}


def idle_time(
    tables: Mapping[str, pa.Table], root: str | None = None, normal_ns: int = NORMAL_GAP_NS
) -> list[dict[str, Any]]:
    """Return the rows of idle time of a recording, read at once."""
    ordered = in_key_order(tables)
    parts = {name: InMemory(ordered[name]) for name in IN_PARTS}
    found = idle_in_windows(parts, ordered, root, normal_ns)
    return [row for part in found for row in IDLE.conform(part, COLUMNS).to_pylist()]


def rows_of(tables: Mapping[str, pa.Table], **options: Any) -> list[dict[str, Any]]:
    """Return the rows of idle time, and see that they and the busy time fill the recording."""
    rows = idle_time(tables, **options)
    windows = device_windows(tables["kernels"], tables["copies"], tables["trace"])
    recorded = sum(window.end_ns - window.start_ns for window in windows)
    assert sum(row["time_ns"] for row in rows) == recorded - sum(w.busy_ns for w in windows)
    return rows


def pieces(tables: Mapping[str, pa.Table], **options: Any) -> list[tuple[str, int, int]]:
    """Return cause, start and end of all idle time."""
    rows = rows_of(tables, **options)
    return [(row["cause"], row["start_ns"], row["start_ns"] + row["time_ns"]) for row in rows]


# Launch A, launch B, a wait for the stream, and an op with launch C.
OP_X: Final = op(1100, 1180, source="train.py:3", layer="fc")


def by_hand(sync_start: int) -> dict[str, pa.Table]:
    """Return the example by hand, whose wait for the stream ends at 1030."""
    calls = [
        call(0, 10), call(10, 20), call(sync_start, 1030, "cudaStreamSynchronize"),
        call(1150, 1160) | {"op_id": 0},
    ]  # fmt: skip
    return recording(
        [work(20, 520, 0), work(521, 1021, 1), work(1170, 1270, 3) | {"op_id": 0}], calls,
        ops=[OP_X], window=(0, 1270),
    )  # fmt: skip


def test_the_example_by_hand() -> None:
    tables = by_hand(sync_start=30)

    assert pieces(tables) == [
        ("launch_call", 0, 10),
        ("launch_latency", 10, 20),
        ("kernel_gap", 520, 521),
        ("sync", 1021, 1150),
        ("launch_call", 1150, 1160),
        ("launch_latency", 1160, 1170),
    ]
    (window,) = device_windows(tables["kernels"], tables["copies"], tables["trace"])
    assert window == (0, 0, 1270, 1250, 1100)


def test_the_example_by_hand_with_a_short_wait() -> None:
    assert pieces(by_hand(sync_start=1000))[3:6] == [
        ("sync", 1021, 1051),
        ("host_unrecorded", 1051, 1100),
        ("host_op", 1100, 1150),
    ]


def test_a_row_says_who_and_where() -> None:
    sync, unrecorded, in_op, launch, latency = rows_of(by_hand(sync_start=1000))[3:]

    assert (sync["call"], sync["drained"]) == ("cudaStreamSynchronize", True)
    assert sync["group"] == "host waits for the device"
    assert unrecorded["note"].startswith("to see it, record Python stacks")
    assert (in_op["op"], in_op["source"], in_op["layer"]) == ("aten::x", "train.py:3", "fc")
    assert (launch["call"], launch["op"], launch["thread"]) == (
        "cudaLaunchKernel", "aten::x", "launching",
    )  # fmt: skip
    assert (latency["op"], latency["kernel_id"], latency["gap_id"]) == ("aten::x", 2, 2)


FIRST: Final = work(0, 100, 0)
"""Work that is launched before the time that a test looks at."""
LAUNCH: Final = call(-20, -10)


def after_first(
    following: Mapping[str, Any], *calls: Mapping[str, Any], **others: Any
) -> dict[str, pa.Table]:
    """Return a recording of work on [0, 100) and then the following, launched by call 1."""
    return recording([FIRST, following], [LAUNCH, *calls], **others)


def gap_of(
    tables: Mapping[str, pa.Table], start: int = 100, **options: Any
) -> list[tuple[str, int, int]]:
    """Return the pieces from a time on."""
    return [piece for piece in pieces(tables, **options) if piece[1] >= start]


def test_rule_a_work_before_launched_work_of_its_stream_was_queued() -> None:
    kernels = [FIRST, work(110, 120), work(120, 130, 1)]

    assert gap_of(recording(kernels, [LAUNCH, call(90, 95)])) == [("kernel_gap", 100, 110)]
    assert gap_of(recording(kernels, [LAUNCH, call(101, 105)])) == [("unknown", 100, 110)]
    assert gap_of(recording(kernels, [LAUNCH, call(90, 95)]), normal_ns=9) == [
        ("unknown", 100, 110)
    ]


def test_rule_b_without_a_launch_it_is_unknown() -> None:
    (row,) = rows_of(recording([work(0, 100), work(110, 120)]))

    assert (row["cause"], row["note"]) == ("unknown", "no launch recorded")


@pytest.mark.parametrize(("start", "cause"), [(30_110, "launch_latency"), (30_111, "unknown")])
def test_rule_c_a_launch_that_has_returned_takes_a_while(start: int, cause: str) -> None:
    tables = after_first(work(start, start + 9, 1), call(95, 110))

    assert gap_of(tables) == [("launch_call", 100, 110), (cause, 110, start)]


@pytest.mark.parametrize(("start", "cause"), [(30_100, "kernel_gap"), (30_101, "unknown")])
def test_rule_d_queued_work_of_one_stream_follows_after_a_gap(start: int, cause: str) -> None:
    assert gap_of(after_first(work(start, start + 9, 1), call(50, 60))) == [(cause, 100, start)]


def test_rule_e_work_of_an_empty_stream_waits_for_another_one() -> None:
    following = work(90_000, 90_009, 1, stream=8)

    assert gap_of(after_first(following, call(50, 60))) == [("stream_wait", 100, 90_000)]


@pytest.mark.parametrize(
    ("begin", "said"),
    [(45, "a wait call precedes the launch"), (-30, "queued or launched, and did not start")],
)
def test_rule_f_stuck_work_is_unknown_and_a_wait_is_named(begin: int, said: str) -> None:
    wait = call(begin, begin + 2, "cudaStreamWaitEvent")
    (row,) = rows_of(after_first(work(90_000, 90_009, 1), call(50, 60), wait))[-1:]

    assert (row["cause"], row["time_ns"]) == ("unknown", 89_900)
    assert row["note"].startswith(said)


@pytest.mark.parametrize(
    ("begin", "stream", "cause"),
    [(45, 7, "stream_wait"), (45, 8, "unknown"), (-30, 7, "unknown"), (70, 7, "unknown")],
)
def test_rule_f_a_recorded_wait_of_the_stream_explains_it(
    begin: int, stream: int, cause: str
) -> None:
    waits = [stall(begin, begin + 2, "stream_wait", None, device=0, stream=stream)]
    tables = after_first(work(90_000, 90_009, 1), call(50, 60), stalls=waits)

    assert gap_of(tables) == [(cause, 100, 90_000)]


def test_the_call_part_of_a_copy_is_a_copy_call() -> None:
    tables = recording(
        [FIRST], [LAUNCH, call(90, 150, "cudaMemcpyAsync")], copies=[work(150, 160, 1)]
    )

    assert gap_of(tables) == [("copy_call", 100, 150)]


@pytest.mark.parametrize("tid", [MAIN, None])
def test_a_launch_that_loads_a_module_says_so_for_as_long(tid: int | None) -> None:
    loads = [stall(120, 140, "module_load", tid), stall(100, 150, "module_load", ENGINE)]
    tables = after_first(work(150, 160, 1), call(90, 150), stalls=loads)

    assert gap_of(tables) == [
        ("launch_call", 100, 120),
        ("module_load", 120, 140),
        ("launch_call", 140, 150),
    ]


def test_rule_g_the_time_around_the_process_is_start_and_end() -> None:
    tables = recording(
        [work(60, 100, 0)], [call(50, 60)], ops=[op(40, 160)], window=(0, 200),
        ranges=[note(20, 30, "anything")],
    )  # fmt: skip

    assert pieces(tables) == [
        ("start", 0, 40),
        ("host_op", 40, 50),
        ("launch_call", 50, 60),
        ("host_op", 100, 160),
        ("end", 160, 200),
    ]


def test_rule_h_the_profiler_comes_before_what_it_interrupts() -> None:
    stalls = [stall(110, 120, "profiler"), stall(130, 140, "profiler", ENGINE)]
    tables = after_first(
        work(160, 170, 1), call(150, 160), ops=[op(90, 170)],
        stalls=[*stalls, stall(145, 150, "profiler", None)],
    )  # fmt: skip

    assert gap_of(tables) == [
        ("host_op", 100, 110),
        ("profiler", 110, 120),
        ("host_op", 120, 145),
        ("profiler", 145, 150),
        ("launch_call", 150, 160),
    ]


def test_a_full_queue_is_no_cause() -> None:
    stalls = [stall(100, 150, "queue_full"), stall(100, 150, "sync")]
    tables = after_first(work(160, 170, 1), call(150, 160), ops=[op(90, 170)], stalls=stalls)

    assert gap_of(tables)[0] == ("host_op", 100, 150)


@pytest.mark.parametrize(
    ("name", "cause"),
    [("cudaStreamSynchronize", "sync"), ("cudaFree", "allocator"), ("cudaMemcpy", "copy_call")],
)
def test_rule_i_the_device_ran_dry_in_a_call_that_waits_for_it(name: str, cause: str) -> None:
    blocked = call(80, 105, name)
    tables = after_first(work(160, 170, 1), call(150, 160), blocked, ops=[op(-30, 170)])

    # 25 ns were lost from 100 on, though the call returned at 105.
    assert gap_of(tables)[:2] == [(cause, 100, 125), ("host_op", 125, 150)]


def test_rule_i_prefers_the_launching_thread_and_knows_others() -> None:
    blocked = [call(80, 105, "cudaFree", ENGINE), call(95, 101, "cudaStreamSynchronize")]
    tables = after_first(work(160, 170, 1), call(150, 160), *blocked)
    other = after_first(work(160, 170, 1), call(150, 160), blocked[0])

    assert gap_of(tables)[0] == ("sync", 100, 106)
    row = rows_of(other)[0]
    assert (row["cause"], row["time_ns"], row["thread"]) == ("allocator", 25, "other")


def test_rule_i_is_not_for_the_last_gap() -> None:
    sync = call(80, 105, "cudaDeviceSynchronize")
    tables = recording([FIRST], [LAUNCH, sync], ops=[op(-30, 190)], window=(-30, 200))

    assert gap_of(tables) == [("sync", 100, 105), ("host_op", 105, 190), ("end", 190, 200)]


@pytest.mark.parametrize(
    ("others", "cause"),
    [
        pytest.param({"ops": [op(90, 170, "c10d::allreduce_")]}, "host_comm", id="communication"),
        pytest.param({"ops": [op(90, 170, "gloo:all_reduce")]}, "host_comm", id="gloo"),
        pytest.param({"ranges": [note(90, 170, "nccl:all_reduce")]}, "host_comm", id="annotation"),
        pytest.param({"ops": [op(90, 170)]}, "host_op", id="op"),
        pytest.param(
            {"ranges": [note(90, 170, "enumerate(DataLoader)#_Iter.__next__")],
             "ops": [op(90, 170)]},
            "data_loading", id="loader",
        ),
        pytest.param({"ranges": [note(90, 170, "Data loading")]}, "data_loading", id="the user's"),
        pytest.param(
            {"ranges": [note(90, 170, "torch/utils/data/dataloader.py(630): __next__", "python")]},
            "data_loading", id="frame of the loader",
        ),
        pytest.param({"ranges": [note(90, 170, "DataParallel.forward")]}, "host_python", id="DP"),
        pytest.param({"ranges": [note(90, 170, "a.py(3): f", "python")]}, "host_python", id="py"),
        pytest.param({"ranges": [note(90, 170, "ProfilerStep#3", "step")]}, "host_unrecorded",
                     id="a step says nothing"),
        pytest.param({}, "host_unrecorded", id="nothing"),
    ],
)  # fmt: skip
def test_rule_j_the_state_of_the_launching_thread(others: Any, cause: str) -> None:
    tables = after_first(work(160, 170, 1), call(150, 160), **others)

    assert gap_of(tables)[0] == (cause, 100, 150)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("cudaStreamSynchronize", "sync"), ("hipDeviceSynchronize", "sync"),
        ("cuStreamSynchronize_v2", "sync"), ("hipFree", "allocator"), ("cuMemMap", "allocator"),
        ("cudaHostAlloc", "allocator"), ("cuMemcpyHtoDAsync_v2", "copy_call"),
        ("cudaMemsetAsync", "copy_call"), ("hipExtModuleLaunchKernel", "launch_call"),
        ("cudaGraphLaunch", "launch_call"), ("cuModuleLoadData", "module_load"),
        ("cudaGraphInstantiate", "module_load"), ("cuLibraryLoadData", "module_load"),
        ("cudaEventQuery", "runtime_call"), ("cudaStreamWaitEvent", "runtime_call"),
    ],
)  # fmt: skip
def test_rule_j_a_call_counts_by_its_class_whatever_is_around_it(name: str, cause: str) -> None:
    loading = [note(90, 170, "enumerate(DataLoader)#_Iter.__next__")]
    calls = (call(150, 160), call(110, 130, name))
    tables = after_first(work(160, 170, 1), *calls, ops=[op(90, 170)], ranges=loading)

    assert gap_of(tables)[1] == (cause, 110, 130)


def test_rule_k_the_last_launcher_then_other_threads_speak_for_one_without_events() -> None:
    others = [op(90, 130, "aten::main"), op(90, 150, "aten::zero", tid=0)]
    calls = (call(150, 160, tid=ENGINE),)
    rows = rows_of(after_first(work(160, 170, 1), *calls, ops=others))

    assert [(r["op"], r["time_ns"], r["thread"]) for r in rows[:2]] == [
        ("aten::main", 30, "other"),
        ("aten::zero", 20, "other"),
    ]


def test_a_launch_later_than_its_start_leaves_it_all_to_the_host() -> None:
    rows = rows_of(after_first(work(160, 170, 1), call(165, 168), ops=[op(90, 200)]))

    assert [(r["cause"], r["note"]) for r in rows] == [
        ("host_op", "the launch was recorded as later than its start")
    ]


def test_with_python_stacks_the_line_is_known_and_the_times_are_marked() -> None:
    frames = [
        note(-30, 170, "/me/train.py(5): main", "python"),
        note(110, 140, "/me/.venv/lib/python3.11/site-packages/x/y.py(8): f", "python"),
        note(120, 140, "/me/net.py(3): g", "python"),
    ]
    tables = after_first(work(160, 170, 1), call(150, 160), ranges=frames)
    rows = [row for row in rows_of(tables, root="/me") if row["cause"] == "host_python"]

    assert [(row["time_ns"], row["source"]) for row in rows] == [
        (20, "/me/train.py:5"),
        (20, "/me/net.py:3"),
        (10, "/me/train.py:5"),
    ]
    assert all("longer" in row["note"] for row in rows)


def test_a_piece_is_cut_where_a_step_begins() -> None:
    steps = [note(-30, 120, "ProfilerStep#3", "step"), note(120, 300, "ProfilerStep#4", "step")]
    tables = after_first(work(160, 170, 1), call(150, 160), ranges=steps)
    rows = rows_of(tables)

    assert [(r["step"], r["start_ns"], r["time_ns"]) for r in rows] == [
        (3, 100, 20), (4, 120, 30), (4, 150, 10)
    ]  # fmt: skip


def test_devices_are_idle_by_themselves() -> None:
    there = [work(0, 50, 0), work(200, 300, 1) | {"device": 1}]
    tables = recording(there, [LAUNCH, call(150, 160)], window=(-20, 300))
    idle = Counter[int]()
    for row in rows_of(tables):
        idle[row["device"]] += row["time_ns"]

    assert idle == {0: 270, 1: 220}


def test_without_a_device_nothing_is_idle() -> None:
    assert rows_of(recording([], ops=[op(0, 100)], window=(0, 100))) == []


TIME = st.integers(0, 60)
SPAN = st.tuples(TIME, st.integers(0, 25))
NAMES = st.sampled_from(sorted(CLASSES))
THREAD = st.sampled_from([(9, 1), (9, 2), (9, 3), (8, 1)])


@st.composite
def hosts(draw: st.DrawFn, /, **columns: Any) -> dict[str, Any]:
    """Draw an event of a host thread with these columns."""
    (start, length), (pid, tid) = draw(SPAN), draw(THREAD)
    known = {name: draw(values) for name, values in columns.items()}
    return {"start_ns": start, "dur_ns": length, "pid": pid, "tid": tid} | known


@st.composite
def recordings(draw: st.DrawFn) -> dict[str, list[dict[str, Any]]]:
    """Draw the rows of a small recording, in which anything may overlap anything."""
    known = st.none() | st.integers(0, 5)
    calls = draw(st.lists(hosts(name=NAMES, op_id=known), max_size=6))
    ops = draw(st.lists(hosts(op=st.sampled_from(["aten::x", "aten::y", "c10d::z"])), max_size=5))
    names = st.sampled_from(["enumerate(DataLoader)#", "data set", "ProfilerStep#3", "other"])
    ranges = draw(st.lists(hosts(name=names), max_size=5))
    is_step = {True: "step", False: "annotation"}
    ranges = [row | {"kind": is_step[row["name"].startswith("ProfilerStep")]} for row in ranges]
    kinds = st.sampled_from(["profiler", "module_load", "queue_full", "stream_wait", "sync"])
    place = {"device": st.integers(0, 1), "stream": st.integers(7, 8)}
    stalls = draw(st.lists(hosts(kind=kinds, **place), max_size=4))
    stalls = [row | {"tid": draw(st.sampled_from([row["tid"], None]))} for row in stalls]
    activities = draw(
        st.lists(hosts(launch_id=known, op_id=known, **place), min_size=1, max_size=7)
    )
    split = draw(st.integers(0, len(activities)))
    rows = {
        "launches": calls, "ops": ops, "ranges": ranges, "stalls": stalls,
        "kernels": activities[:split], "copies": activities[split:],
        "trace": [{"start_ns": draw(TIME), "end_ns": 60 + draw(TIME)}],
    }  # fmt: skip
    key = {"launches": "launch_id", "ops": "op_id", "ranges": "range_id", "stalls": "stall_id"}
    for name, column in key.items():
        rows[name] = [row | {column: i} for i, row in enumerate(rows[name])]
    for i, row in enumerate(activities):
        row["kernel_id"] = i
    return rows


def as_tables(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, pa.Table]:
    """Return canonical tables of these rows."""
    return {name: canonical(name, *of_table) for name, of_table in rows.items()}


def _began_together() -> dict[str, list[dict[str, Any]]]:
    """The latest launch, number 1, stands before that of the only work of the last window, 4."""
    who = {"pid": 9, "tid": 1, "dur_ns": 0, "op_id": None}
    on = {"device": 0, "stream": 7}
    work = [(0, 16, None), (1, 34, None), (2, 41, None), (3, 45, None), (4, 51, None), (5, 0, 1)]
    return {
        "launches": [
            {**who, "launch_id": number, "start_ns": start, "name": "cuModuleLoad"}
            for number, start in enumerate((0, 37, 0, 0, 0, 0))
        ],
        "ops": [], "ranges": [], "stalls": [],
        "kernels": [
            {**who, **on, "kernel_id": number, "start_ns": start, "launch_id": launch}
            for number, start, launch in work
        ],
        "copies": [{**who, **on, "kernel_id": 6, "start_ns": 27, "launch_id": 4}],
        "trace": [{"start_ns": 0, "end_ns": 60}],
    }  # fmt: skip


@settings(max_examples=50, deadline=None)
@given(rows=recordings(), normal_ns=st.integers(0, 20))
@example(rows=_began_together(), normal_ns=0)
def test_the_rules_as_loops_over_nanoseconds_say_the_same(
    rows: dict[str, list[dict[str, Any]]], normal_ns: int
) -> None:
    slow = SlowIdle(rows, normal_ns)
    work_rows = rows["kernels"] + rows["copies"]
    expected = {
        (device, t): said
        for device in sorted({row["device"] for row in work_rows})
        for t, said in slow.instants(device).items()
    }

    found = {
        (row["device"], t): Instant(
            row["cause"], row["note"], row["thread"], row["call"], row["op"], row["drained"]
        )
        for row in rows_of(as_tables(rows), normal_ns=normal_ns)
        for t in range(row["start_ns"], row["start_ns"] + row["time_ns"])
    }

    assert found.keys() == expected.keys()
    for at, said in expected.items():
        assert found[at]._replace(note=None) == said._replace(note=None), at
        assert (found[at].note or "").startswith(said.note or ""), at
        assert bool(found[at].note) == bool(said.note), at


@settings(max_examples=12, deadline=None)
@given(rows=recordings(), data=st.data())
def test_the_order_of_rows_does_not_matter(
    rows: dict[str, list[dict[str, Any]]], data: st.DataObject
) -> None:
    tables = as_tables(rows)
    mixed = {
        name: table.take(data.draw(st.permutations(range(table.num_rows))))
        if name in ("kernels", "copies", "launches", "ops") and table.num_rows else table
        for name, table in tables.items()
    }  # fmt: skip

    assert rows_of(mixed) == rows_of(tables)
