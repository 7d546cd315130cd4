"""`pyprof2 advise` says what to change, on a recording whose times the eye can check."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from pyprof2.analysis.summaries.advice import RULES
from pyprof2.analysis.summaries.advice.findings import CPU, DEVICE
from pyprof2.reports.advice import interval_text
from pyprof2.result_tables import ADVICE
from pyprof2.units import MICROSECONDS
from tests.builders import kineto_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CUDA = {"cat": "cuda_runtime"}
STEP = 1000
STEPS = 3


def _step(number: int) -> list[dict[str, Any]]:
    """Return a step: 400 us in the loader, then a kernel of 580 us, launched in 10 us."""
    at = number * STEP
    place = {"correlation": number, "device": 0, "stream": 7}
    note = {"cat": "user_annotation"}
    return [
        note | {"name": f"ProfilerStep#{number}", "ts": at, "dur": STEP},
        note | {"name": "enumerate(DataLoader)#x", "ts": at, "dur": 400},
        CUDA | {"name": "cudaLaunchKernel", "ts": at + 400, "dur": 10, "args": place},
        {"cat": "kernel", "name": "k", "ts": at + 420, "dur": 580, "pid": 0, "tid": 7,
         "args": place},
    ]  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a loop that waits for data, and a recording without a device."""
    folder = tmp_path_factory.mktemp("advise")
    loop = [event for number in range(STEPS) for event in _step(number)]
    op = {"cat": "cpu_op", "name": "aten::x", "ts": 0, "dur": 80}
    for name, events in (("loop", loop), ("cpu", [op])):
        with gzip.open(folder / f"{name}.json.gz", "wt") as file:
            json.dump(kineto_trace(*events), file)
    pyprof2.parse(folder / "loop.json.gz", folder / "loop.pyprof2")
    return folder


@pytest.fixture
def advise(invoke: Callable[..., Any], traces: Path) -> Callable[..., Any]:
    """Return a function that asks for advice on the loop."""
    return lambda *options: invoke("advise", str(traces / "loop.pyprof2"), *options)


def test_the_text_has_the_finding_its_stake_and_the_joint_bound(
    advise: Callable[..., Any],
) -> None:
    result = advise("-w", "200")

    assert result.code == 0
    assert result.lines[:3] == [
        (
            "1000.000 us per step: 42 % idle (40 % data loading); cannot tell which ops ran; "
            "record again: profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
        ),
        "",
        "high   data-loading: 40.0 % of the time the device waited for the next batch",
    ]
    gain = "       gain   expected 1200.000 us (40.0 %), at most 1224.000 us (40.8 %), of the "
    assert result.lines[3].startswith(gain)
    assert any(line.startswith("unknown memory-limit: record memory") for line in result.lines)
    # Of three steps of 1 ms the host needs three launches of 10 us, and the device nobody knows.
    assert result.lines[-2:] == [
        (
            "What all together gain at most is not known: FLOPs and bytes are known for 0 % of the "
            "time of kernels."
        ),
        "Times at stake overlap: do not add them up.",
    ]


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        ((0, 0, 416), "nothing is sure, at most 0.416 us (41.6 %)"),
        ((0, 352, 416), "expected 0.352 us (35.2 %), at most 0.416 us (41.6 %)"),
        ((0, 352, 352), "expected 0.352 us (35.2 %) and no more"),
        ((90, 352, 416), "0.090 to 0.416 us (41.6 %), expected 0.352 us (35.2 %)"),
        ((90, 352, 352), "0.090 to 0.352 us (35.2 %), expected the most"),
        ((352, 352, 352), "0.352 us (35.2 %)"),
    ],
)
def test_no_number_of_a_gain_is_there_twice(interval: tuple[int, int, int], text: str) -> None:
    assert interval_text(interval, MICROSECONDS, 1000) == text


def test_the_other_formats_have_a_row_for_each_rule(
    advise: Callable[..., Any], tmp_path: Path
) -> None:
    rows = json.loads(advise("--format", "json").out)
    advise("-o", str(tmp_path / "advice.parquet"))
    lines = advise("--format", "csv").lines

    assert sorted(row["rule"] for row in rows) == sorted(
        rule.slug for rule in RULES if rule.on != CPU
    )
    assert list(rows[0]) == ADVICE.names
    assert (rows[0]["at_stake_lo_ns"], rows[0]["at_stake_hi_ns"]) == (0, 1_224_000)
    assert pd.read_parquet(tmp_path / "advice.parquet")["rule"].tolist() == [
        row["rule"] for row in rows
    ]
    assert len(lines) == 1 + sum(rule.on != CPU for rule in RULES)


def test_markdown_shows_what_fires(advise: Callable[..., Any]) -> None:
    lines = advise("--format", "markdown").lines

    assert lines[0].startswith("| rank")
    assert "data-loading" in lines[2]
    assert lines[-3].startswith("What all together gain at most is not known")


def test_a_trace_and_its_store_say_the_same(
    advise: Callable[..., Any], invoke: Callable[..., Any], traces: Path
) -> None:
    assert invoke("advise", str(traces / "loop.json.gz")).out == advise().out


def test_an_unknown_rank_is_wrong_usage(advise: Callable[..., Any]) -> None:
    result = advise("--rank", "4")

    assert result.code == 2
    assert "ranks with one: 0" in result.err


def test_without_a_device_the_rules_of_the_host_are_asked(
    invoke: Callable[..., Any], traces: Path
) -> None:
    rows = json.loads(invoke("advise", str(traces / "cpu.json.gz"), "--format", "json").out)

    assert {row["rule"] for row in rows} == {rule.slug for rule in RULES if rule.on != DEVICE}


def test_prof_says_what_most_of_the_idle_time_is(invoke: Callable[..., Any], traces: Path) -> None:
    lines = invoke("prof", str(traces / "loop.pyprof2"), "-w", "200").lines

    (line,) = (line for line in lines if line.endswith("next: pyprof2 advise"))
    assert line.startswith("1000.000 us per step: 42 % idle (40 % data loading); cannot tell which")
    assert line.endswith("; next: pyprof2 advise")


def test_check_says_what_polluted_a_recording(invoke: Callable[..., Any], tmp_path: Path) -> None:
    events = [event for number in range(STEPS) for event in _step(number)]
    slow = CUDA | {"name": "cudaLaunchKernel", "ts": 5000, "dur": 2000}
    (tmp_path / "slow.json").write_text(json.dumps(kineto_trace(*events, slow)))

    out = invoke("check", str(tmp_path / "slow.json"), "--format", "json").out

    assert "polluted: 1 launch of over 1 ms, 2000.000 us" in out
