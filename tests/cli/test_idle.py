"""`pyprof2 idle` says why devices did nothing, on a recording whose times the eye can check."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from pyprof2.api import run_time
from tests.builders import kineto_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUDA = {"cat": "cuda_runtime"}
LAUNCHES = [
    CUDA | {"name": "cudaLaunchKernel", "ts": ts, "dur": 10, "args": {"correlation": i}}
    for i, ts in enumerate((0, 10, 1150))
]
SYNC = CUDA | {"name": "cudaStreamSynchronize", "ts": 30, "dur": 1000}
OP = {"cat": "cpu_op", "name": "aten::x", "ts": 1100, "dur": 80}
WORK = [
    {"cat": "kernel", "name": "k", "ts": ts, "dur": dur, "pid": 0, "tid": 7,
     "args": {"correlation": i, "device": 0, "stream": 7}}
    for i, (ts, dur) in enumerate([(20, 500), (521, 500), (1170, 100)])
]  # fmt: skip
CPU_ONLY = kineto_trace(OP)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the example by hand in us, and a recording without a device."""
    folder = tmp_path_factory.mktemp("idle")
    example = kineto_trace(*LAUNCHES, SYNC, OP, *WORK)
    for name, trace in (("example", example), ("cpu", CPU_ONLY)):
        with gzip.open(folder / f"{name}.json.gz", "wt") as file:
            json.dump(trace, file)
    pyprof2.parse(folder / "example.json.gz", folder / "example.pyprof2")
    return folder


@pytest.fixture
def idle(invoke: Callable[..., Any], traces: Path) -> Callable[..., Any]:
    """Return a function that asks for the idle time of the example."""
    return lambda *options: invoke("idle", str(traces / "example.pyprof2"), *options)


def test_the_table_says_what_was_recorded_and_why_it_was_idle(idle: Callable[..., Any]) -> None:
    result = idle()

    assert result.code == 0
    assert result.lines[:2] == [
        "rank 0, device 0: recorded 1270.000 us, busy 1100.000 us, idle 170.000 us (13.4 %)",
        "of it between the first activity and the last: 150.000 us (12.0 % of 1250.000 us)",
    ]
    words = [line.split() for line in result.lines]
    assert [w for w in words if w[:1] == ["sync"]] == [["sync", "1", "129.000", "75.88", "10.2"]]
    assert ["cudaStreamSynchronize", "1", "129.000", "75.88", "10.2"] in words
    assert words[-3:] == [["idle", "170.000", "13.4"], ["busy", "1100.000", "86.6"],
                          ["recorded", "1270.000", "100.0"]]  # fmt: skip


def test_by_sums_along_axes(idle: Callable[..., Any]) -> None:
    rows = json.loads(idle("--by", "op", "--format", "json").out)

    assert [(row["op"], row["time_ns"]) for row in rows] == [(None, 150_000), ("aten::x", 20_000)]
    assert rows[0]["window_pct"] == pytest.approx(100 * 150 / 1270)


def test_the_other_formats_have_a_row_for_each_piece(
    idle: Callable[..., Any], tmp_path: Path
) -> None:
    rows = json.loads(idle("--format", "json").out)
    idle("-o", str(tmp_path / "idle.parquet"))

    assert [row["cause"] for row in rows] == [
        "launch_call", "launch_latency", "kernel_gap", "sync", "launch_call", "launch_latency",
    ]  # fmt: skip
    assert rows[3]["start_ns"] - rows[0]["start_ns"] == 1_021_000
    written = pd.read_parquet(tmp_path / "idle.parquet")
    assert written["time_ns"].tolist() == [row["time_ns"] for row in rows]


def test_a_smaller_normal_gap_leaves_more_unknown(idle: Callable[..., Any]) -> None:
    rows = json.loads(idle("--normal-gap", "0.5", "--by", "cause", "--format", "json").out)

    assert {row["cause"]: row["time_ns"] for row in rows} == {
        "sync": 129_000, "launch_call": 20_000, "unknown": 21_000,
    }  # fmt: skip


def test_markdown_and_top_show_some_rows(idle: Callable[..., Any]) -> None:
    lines = idle("--by", "cause", "--top", "1", "--format", "markdown").lines

    assert lines[3].startswith("| cause")
    assert "3 more rows: --top 4" in lines
    assert "1 more row: --top 4" in idle("--by", "cause", "--top", "3").lines


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--by", "colour"), "no axis 'colour' of idle time"),
        (("--by", "op,op"), "axis 'op' is named twice"),
        (("--rank", "4"), "no device of such a rank was recorded"),
        (("--normal-gap", "-1"), "is not a time in us"),
        (("--normal-gap", "nan"), "is not a time in us"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(
    idle: Callable[..., Any], options: tuple[str, ...], message: str
) -> None:
    result = idle(*options)

    assert result.code == 2
    assert message in result.err


def test_without_a_device_it_says_what_steps_waited_for(
    invoke: Callable[..., Any], traces: Path
) -> None:
    trace = str(traces / "cpu.json.gz")

    table = invoke("idle", trace)
    assert table.lines[0].startswith("rank 0, CPU: recorded ")
    rows = json.loads(invoke("idle", trace, "--format", "json", "--rank", "0").out)
    (recorded,) = pyprof2.load(trace).trace[["start_ns", "end_ns"]].to_numpy().tolist()
    assert sum(row["time_ns"] for row in rows) == recorded[1] - recorded[0]
    assert {row["device"] for row in rows} == {None}


def test_a_trace_and_its_store_say_the_same(
    idle: Callable[..., Any], invoke: Callable[..., Any], traces: Path
) -> None:
    assert invoke("idle", str(traces / "example.json.gz")).out == idle().out


def test_the_table_of_the_store_is_what_is_found_anew(traces: Path) -> None:
    run = pyprof2.load(traces / "example.pyprof2")

    pd.testing.assert_frame_equal(
        run_time.idle_table(run.tables, 30.0).to_pandas(),
        run_time.idle_table(run.tables).to_pandas(),
    )
