"""Steps of servers in recordings made up event by event, and in real ones."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest

from pyprof2.api import run_serving, run_time
from pyprof2.api.run import load
from tests.kineto_events import (
    Event,
    annotation,
    complete,
    copy,
    kernel,
    launch,
    launched,
    load_events,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

OTHER: Final = 77
PREFILL: Final = "execute_20_context_2(sq20sk20sqsq200sqsk200)_generation_0(sq0sk0sqsq0sqsk0)"
DECODE: Final = "execute_2_context_0(sq0sk0sqsq0sqsk0)_generation_2(sq2sk22sqsq2sqsk22)"

# By an independent reader of the two recordings: the phase, requests, keys, activities that were
# launched one by one and by graphs, and in ns the host's range, what it waits, span and busy time.
KNOWN: Final = {
    "tl_sglang_dec": (
        "decode", 32, 32785, 14, 544, 465_716_634, 463_063_750, 10_366_887, 9_694_013,
    ),
    "tl_vllm_dec": ("decode", 32, 55086, 13, 421, 2_408_598, 2_190, 10_743_181, 10_717_708),
}  # fmt: skip


def _steps(folder: Path, *events: Event | list[Event], **options: Any) -> pd.DataFrame:
    return load_events(folder, *events).serving_steps(**options)


@pytest.mark.parametrize(
    ("begins", "waits"),
    [pytest.param(390, 200_000, id="done as the call is"), pytest.param(430, 0, id="done later")],
)
def test_a_copy_of_tokens_that_returns_when_it_is_done_is_a_wait(
    tmp_path: Path, begins: int, waits: int
) -> None:
    found = _steps(
        tmp_path,
        annotation(DECODE, 200, 250),
        launched(210, 1, at=220, dur=165),
        launch(220, 2, name="cudaMemcpyAsync", dur=200),
        copy(begins, 25, 2, name="Memcpy DtoH (Device -> Pageable)"),
    )

    assert found["wait_ns"].tolist() == [waits]


def test_work_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    """The device is behind: the prefill works while the range of the decode is open."""
    found = _steps(
        tmp_path,
        annotation(PREFILL, 100, 50),
        launched(110, 1, at=200, dur=100),
        launched(120, 2, at=300, dur=100),
        annotation(DECODE, 200, 250),
        launched(210, 3, at=400, dur=30, name="g")[1],
        launch(210, 3, name="cudaGraphLaunch"),
        launch(220, 9, name="cudaStreamSynchronize", dur=200),
        launched(460, 4, at=470, dur=5),
    )

    prefill, decode, outside = found.to_dict("records")
    assert [row["phase"] for row in (prefill, decode, outside)] == ["prefill", "decode", "outside"]
    assert (prefill["span_ns"], prefill["busy_ns"], prefill["gap_ns"]) == (200_000, 200_000, 0)
    assert (decode["span_ns"], decode["wait_ns"], decode["host_ns"]) == (30_000, 200_000, 250_000)
    assert prefill["period_ns"] == 200_000
    assert found["period_ns"].isna().tolist() == [False, True, True]
    assert [row["launched_by_graph"] for row in (prefill, decode, outside)] == [0, 1, 0]
    assert found["device_ns"].tolist() == [200_000, 30_000, 5_000]
    assert (prefill["c_sq"], prefill["g_req"], decode["g_sk"]) == (20, 0, 22)
    assert [(row["out_least"], row["out_most"]) for row in (prefill, decode)] == [(0, 2), (2, 2)]


def test_of_two_ranges_in_one_another_both_name_one_step(tmp_path: Path) -> None:
    """The inner one is where the model runs: what was launched before it is not of the span."""
    found = _steps(
        tmp_path,
        annotation(DECODE, 100, 100),
        launched(105, 1, at=110, dur=5),
        annotation("step[DECODE bs=2]", 150, 40),
        launched(160, 2, at=170, dur=20),
    )

    (step,) = found.to_dict("records")
    assert (step["dialect"], step["host_ns"], step["span_ns"]) == ("vllm detailed", 100_000, 20_000)
    assert (step["device_ns"], step["launched"]) == (25_000, 2)


def test_two_names_of_a_step_that_differ_take_its_sums(tmp_path: Path) -> None:
    found = _steps(tmp_path, annotation(DECODE, 100, 100), annotation("step[DECODE bs=3]", 150, 40))

    (step,) = found.to_dict("records")
    assert step["contradiction"] == "vllm detailed and sglang differ in tokens in generation"
    assert found[["g_sq", "g_sk"]].isna().all(axis=None)


def test_steps_side_by_side_in_a_range_are_steps_of_their_own(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(DECODE, 100, 100),
        annotation("step[TARGET_VERIFY bs=2]", 110, 20),
        annotation("step[DRAFT_EXTEND_V2 bs=2]", 140, 20),
    )

    assert found["phase"].tolist() == ["verify", "draft"]


def test_another_thread_may_launch_the_work_of_a_step(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(DECODE, 100, 50),
        launched(110, 1, at=200, dur=10, tid=OTHER),
        launched(170, 2, at=210, dur=10, tid=OTHER),
    )

    assert found["launched_elsewhere"].tolist() == [1, 0]
    assert found["phase"].tolist() == ["decode", "outside"]


def test_a_launch_in_steps_of_two_other_threads_is_of_neither(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(DECODE, 100, 50),
        annotation(PREFILL, 100, 50, tid=78),
        launched(110, 1, at=200, dur=10, tid=OTHER),
        launched(120, 2, at=210, dur=10, tid=78),
    )

    assert found.set_index("phase")["device_ns"].to_dict() == {
        "decode": 0, "prefill": 10_000, "outside": 10_000,
    }  # fmt: skip


def test_a_step_that_was_open_when_recording_stopped_is_none(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(PREFILL, 100, 50),
        launched(110, 1, at=200, dur=100),
        annotation(DECODE, 160, 0),
        launched(170, 2, at=300, dur=100),
    )

    assert found["phase"].tolist() == ["prefill", "outside"]
    assert found["device_ns"].tolist() == [100_000, 100_000]


def test_time_of_kernels_that_overlap_is_that_of_the_first(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(PREFILL, 100, 50),
        launched(110, 1, at=200, dur=100),
        annotation(DECODE, 160, 50),
        launched(170, 2, at=290, dur=100),
        launch(180, 3),
        kernel(295, 5, 3, {"stream": 8}),
    )

    assert found["device_ns"].tolist() == [100_000, 90_000]
    assert found["busy_ns"].tolist() == [100_000, 100_000]


def test_without_names_of_steps_there_are_none(tmp_path: Path) -> None:
    run = load_events(tmp_path, annotation("decode", 100, 50), launched(110, 1, at=200, dur=10))

    assert not run_serving.is_of_server(run.tables)
    assert run.serving_steps().empty


def test_a_pattern_makes_steps_of_the_users_ranges(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation("turn of 4", 100, 50),
        launched(110, 1, at=200, dur=10),
        pattern=r"turn of (?P<g_req>\d+)",
    )

    assert found[["dialect", "g_req", "device_ns"]].to_numpy().tolist() == [["pattern", 4, 10_000]]


@pytest.mark.parametrize("name", KNOWN)
def test_real_recordings_have_the_steps_that_another_reader_found(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    run = load(shared_trace(f"kineto/{name}.json.gz"))

    steps = run.serving_steps()

    columns = [
        "phase", "requests", "g_sk", "launched", "launched_by_graph", "host_ns", "wait_ns",
        "span_ns", "busy_ns",
    ]  # fmt: skip
    assert [tuple(row) for row in steps[columns].to_numpy().tolist()] == [KNOWN[name]]
    assert steps["device_ns"].sum() == run_time.idle_windows(run.tables)["busy_ns"].sum()


def _of_device(name: str, number: int, stream: int, ts: int, dur: int) -> Event:
    fields = {"pid": 0, "tid": stream, "args": {"External id": number}}
    return complete("gpu_user_annotation", name, ts, dur, **fields)


def test_without_launches_ranges_of_streams_say_whose_work_it_is(tmp_path: Path) -> None:
    """Of each step a range for every stream; what begins in two steps' ranges is nobody's."""
    on_8 = {"stream": 8}
    found = _steps(
        tmp_path,
        annotation(PREFILL, 10, 20),
        _of_device(PREFILL, 1, 7, 100, 100),
        _of_device(PREFILL, 1, 8, 120, 40),
        _of_device(DECODE, 2, 7, 190, 50),
        kernel(100, 50, 1),
        kernel(130, 20, 2, on_8),
        # Its end is after that of the range, whose last digit is rounded.
        kernel(180, 21, 3),
        kernel(195, 5, 4),
        kernel(205, 20, 5),
        kernel(210, 5, 6, on_8),
    )

    prefill, decode, outside = found.to_dict("records")
    assert [row["phase"] for row in (prefill, decode, outside)] == ["prefill", "decode", "outside"]
    assert [row["by_device_range"] for row in (prefill, decode, outside)] == [3, 1, 0]
    assert [row["launched"] for row in (prefill, decode)] == [0, 0]
    assert (prefill["span_ns"], prefill["busy_ns"]) == (101_000, 71_000)
    assert found["host_ns"].isna().all()
    assert found["device_ns"].sum() == 91_000


def test_where_launches_are_recorded_ranges_of_streams_say_nothing(tmp_path: Path) -> None:
    found = _steps(
        tmp_path,
        annotation(DECODE, 100, 50),
        launched(110, 1, at=200, dur=10),
        _of_device(PREFILL, 1, 7, 190, 50),
    )

    assert found["phase"].tolist() == ["decode"]
    assert found["by_device_range"].tolist() == [0]


def test_a_recording_whose_launches_are_erased_has_the_same_steps(
    shared_trace: Callable[[str], Path], tmp_path: Path
) -> None:
    """Ranges of streams are put around the work of the step, as the profiler does."""
    path = shared_trace("kineto/tl_sglang_dec.json.gz")
    document = json.loads(gzip.decompress(path.read_bytes()))
    (before,) = load(path).serving_steps().to_dict("records")
    (step,) = [e for e in document["traceEvents"] if e.get("name", "").startswith("execute_")]
    work = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy")]
    rest = [
        e for e in document["traceEvents"] if "runtime" not in e.get("cat", "")
        and e.get("cat") not in ("user_annotation", "gpu_user_annotation")
    ]  # fmt: skip
    for stream in {e["args"]["stream"] for e in work}:
        own = [e for e in work if e["args"]["stream"] == stream]
        begin = min(e["ts"] for e in own)
        end = max(e["ts"] + e["dur"] for e in own)
        device = own[0]["args"]["device"]
        place = {"pid": device, "tid": stream, "args": {"External id": 5}}
        rest.append(complete("gpu_user_annotation", step["name"], begin, end - begin, **place))
    erased = tmp_path / "erased.json"
    erased.write_text(json.dumps(document | {"traceEvents": rest}))

    (found,) = load(erased).serving_steps().to_dict("records")

    same = ("phase", "requests", "g_sk", "device_ns")
    assert [found[name] for name in same] == [before[name] for name in same]
    assert found["by_device_range"] == before["launched"] + before["launched_by_graph"]


NAMES: Final = (
    PREFILL, DECODE, "step[DECODE bs=2]", "step[MIXED bs=3 c=1 g=2]", "execute_new_1_cached_2",
    "execute_context_1(9)_generation_0(0)", "step[NEW_MODE bs=4]", "decode[bs=2/4 tok=2 d=2]",
    # Names that lie: fewer tokens than requests, sums that no requests have, huge numbers.
    "execute_1_context_9(sq1sk1sqsq1sqsk1)_generation_0(sq0sk0sqsq0sqsk0)",
    "execute_9_context_1(sq9sk9sqsq80sqsk81)_generation_0(sq0sk0sqsq0sqsk0)",
    f"execute_9_context_1(sq{'9' * 15}sk{'9' * 15}sqsq1sqsk1)_generation_0(sq0sk0sqsq0sqsk0)",
    f"step[DECODE bs={'9' * 15}]", "step[DECODE bs=0]",
    # Nearly names: the user's own.
    "step[DECODE bs=2] ", "step[decode bs=2]", "execute_context_1(9)_generation_0", "step[bs=2]",
    f"step[DECODE bs={'9' * 40}]", "", "\\u202e",
    "[Executor] _forward_step 7: -1 ctx reqs, 3 gen reqs",
)  # fmt: skip


@pytest.mark.parametrize(
    "seeds", [range(8), pytest.param(range(8, 40), marks=pytest.mark.release)], ids=["few", "more"]
)
def test_hostile_recordings_neither_crash_nor_lose_time(tmp_path: Path, seeds: range) -> None:
    """The time of each activity is in one row, and sums that fit no requests are null.

    Ranges are nested and cut off at random on three threads, with and without launches.
    """
    for seed in seeds:
        random = np.random.default_rng(seed)
        events: list[Event | list[Event]] = []
        for number in range(int(random.integers(1, 30))):
            begin, length = int(random.integers(0, 900)), int(random.integers(0, 300))
            tid, name = 101 + int(random.integers(3)), NAMES[random.integers(len(NAMES))]
            events.append(annotation(name, begin, length, tid=tid))
            at, dur = int(random.integers(0, 2000)), int(random.integers(0, 50))
            events.append(kernel(at, dur, number, name="k"))
            if seed % 4:
                events.append(launch(int(random.integers(0, 1000)), number, tid=tid))
        run = load_events(tmp_path, *events)

        steps, kinds = run.serving_steps(), run_serving.serving_kinds(run.tables)
        (devices,) = run_time.idle_windows(run.tables)[["busy_ns"]].to_numpy().tolist() or [[0]]
        if not steps.empty:
            assert steps["device_ns"].sum() == devices[0]
            assert kinds["device_ns"].sum() == devices[0]
        lied = steps[steps["contradiction"].notna()]
        # Of no requests the sums are nothing, whatever else the name says.
        assert (lied["c_sqsk"].fillna(0) == 0).all()
        assert (lied["g_sqsk"].fillna(0) == 0).all()
        assert (lied["c_sqsk"].isna() | lied["g_sqsk"].isna()).all()
        run_serving.serving_models(run.tables)
