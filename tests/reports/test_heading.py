"""The first sentence on a recording names where the time goes, of what, and how sure that is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import pyprof2
from pyprof2.analysis.intervals import union_length
from pyprof2.reports.heading import disturbances, sentence
from tests.kineto_events import annotation, copy, kernel, launch, load_events, op, step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run


def said(run: Run) -> str:
    return sentence(run, disturbances(run.advise()))


def test_copies_that_dominate_are_named(shared_trace: Callable[[str], Path]) -> None:
    run = pyprof2.load(shared_trace("nsight/h100_2gpu_1s.sqlite"))

    # By the intervals of the tables, without the code that makes parts: all less kernels alone.
    alone = 0
    for device in (0, 1):
        rows = {
            name: frame[frame["device"] == device]
            for name, frame in (("kernels", run.kernels), ("copies", run.copies))
        }
        ends = {
            name: (f["start_ns"].to_numpy(), (f["start_ns"] + f["dur_ns"]).to_numpy())
            for name, f in rows.items()
        }
        both = [pa.concat_arrays([pa.array(ends[n][at]) for n in ends]).to_numpy() for at in (0, 1)]
        alone += union_length(*both) - union_length(*ends["kernels"])
    assert alone / 1_938_706_183 == pytest.approx(0.970, abs=0.0005)
    assert said(run) == (
        "969.353 ms recorded (mean of 2 devices): 97 % only copying, most of it from host to "
        "device (pinned memory), less than 1 % idle"
    )


def test_what_cannot_be_told_is_said_with_how_to_record_it(
    shared_trace: Callable[[str], Path],
) -> None:
    # 1,704,835,726 idle of 1,789,997,935 ns recorded, 1,359,970,201 of it host_unrecorded.
    words = said(pyprof2.load(shared_trace("more/nsight/athrun_5000ada.sqlite")))

    assert words == (
        "1789.998 ms recorded: 95 % idle (76 % while the host did what was not recorded); "
        "cannot tell why it was idle or which ops ran; record again: call pyprof2.init() in the "
        "script, or nsys profile --pytorch=autograd-shapes-nvtx; "
        "low confidence: launches of over 1 ms, code was loaded"
    )


def test_exposed_communication_is_named(shared_trace: Callable[[str], Path]) -> None:
    # 357,343 us of 1,737,718 us in five steps: the finding exposed-communication counts it, too.
    words = said(pyprof2.load(shared_trace("kineto/hta_df_index_v100_ddp.json.gz")))

    assert words.startswith(
        "347.544 ms per step: 42 % idle (27 % host op), 21 % only communicating"
    )


def steps(idle: int, **copied: int) -> list[dict[str, Any]]:
    """Return three steps of 1 ms: `idle` us, then a kernel, the last part of it a copy."""
    events: list[dict[str, Any]] = []
    for number in range(3):
        at = 1000 * number
        copying = copied.get("copying", 0)
        events += [
            step(number, at, 1000),
            op("aten::mm", at + 1, 30),
            launch(at + 5, 10 * number + 1),
            kernel(at + idle, 1000 - idle - copying, 10 * number + 1),
        ]
        if copying:
            events += [launch(at + 12, 10 * number + 2, name="cudaMemcpyAsync"),
                       copy(at + 1000 - copying, copying, 10 * number + 2,
                            name="Memcpy HtoD (Pinned -> Device)")]  # fmt: skip
    return events


def test_shares_are_of_a_step_and_the_largest_comes_first(tmp_path: Path) -> None:
    run = load_events(tmp_path, *steps(200, copying=300))

    words = sentence(run)

    assert words.startswith("1000.000 us per step: 30 % only copying, ")
    assert ", 20 % idle (" in words


def test_less_than_a_tenth_of_copies_is_not_spoken_of(tmp_path: Path) -> None:
    assert "copying" not in sentence(load_events(tmp_path, *steps(200, copying=50)))


def test_no_sentence_begins_with_of(shared: Path) -> None:
    for path in sorted((shared / "traces" / "kineto").glob("tl_*.json.gz"))[:6]:
        words = sentence(pyprof2.load(path))
        assert re.match(r"\d+\.\d{3} (us|ms|s) (per step|recorded)", words), path.name


def test_a_disturbed_recording_is_said_to_be(tmp_path: Path) -> None:
    slow = launch(5000, 99, dur=2000)

    words = said(load_events(tmp_path, *steps(200), slow))

    assert words.endswith("low confidence: launches of over 1 ms")


def test_that_kernels_vary_is_said_only_where_they_are_most_of_the_time(
    shared_trace: Callable[[str], Path],
) -> None:
    copying = pyprof2.load(shared_trace("nsight/h100_2gpu_1s.sqlite"))
    computing = pyprof2.load(shared_trace("kineto/tl_qwen_mi300.json.gz"))

    assert "kernel-drift" in disturbances(copying.advise())
    assert "equal kernels" not in said(copying)
    assert "low confidence: equal kernels take unequal times" in said(computing)


def test_without_a_device_it_names_the_op_with_the_most_time(tmp_path: Path) -> None:
    run = load_events(
        tmp_path, step(1, 0, 100), op("aten::mm", 10, 60), op("aten::add", 75, 20),
        annotation("x", 0, 5),
    )  # fmt: skip

    assert sentence(run) == (
        "100.000 us per step; no GPU: 2 op calls take 80.000 us in all, most in aten::mm (75 %)"
    )


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    assert sentence(load_events(tmp_path, step(1, 0, 100))) == (
        "nothing was recorded that could be profiled"
    )
