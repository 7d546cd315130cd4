"""`prof --summary` gives the totals of a recording, also as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import mm_trace, profile_rows
from tests.kineto_events import launched, op, step
from tests.kineto_events import trace as write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_summary_is_the_heading_with_each_figure_and_the_steps(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    work: list[Any] = [
        op("aten::mm", 0, 40),
        launched(5, 1, at=10, dur=40),
        launched(110, 2, at=120, dur=60),
    ]
    path = write(tmp_path, step(3, 0, 100), step(4, 100, 100), *work)

    heading = invoke("prof", path, "--by", "op").lines
    lines = invoke("prof", path, "--summary").lines

    until = "until the last work that it launched ends"
    assert lines[:3] == heading[:3]
    assert lines[1] == "step time 100.000 us | GPU utilization 50.0 %"
    assert lines[lines.index("") + 1 :] == [
        "step time        100.000 us  mean of 2 steps",
        "GPU utilization      50.0 %  time in which a kernel ran, of the steps",
        "SM efficiency             -  the recording does not say how many blocks each has",
        "occupancy                 -  the recording does not say it",
        "Tensor Cores              -  no kernel has a verdict",
        f"a step takes 100.000 us on average, {until}, 50.0 % of it busy",
    ]


def test_the_summary_of_a_trace_as_json_holds_ledger_and_utilization(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    trace = tmp_path / "x.json"
    trace.write_text(json.dumps(mm_trace()))
    totals = json.loads(invoke("prof", trace, "--summary", "--format", "json").out)

    assert (totals["kernel_count"], totals["kernel_time_ns"]) == (1, 40_000)
    assert sum(row["time_ns"] for row in totals["ledger"]) == totals["kernel_time_ns"]
    assert [row["rank"] for row in totals["utilization"]] == [0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param(["--csv"], "table or json, not as csv", id="csv"),
        pytest.param(["--op", "mm"], "leave selection", id="selection"),
        pytest.param(["--no-copies"], "leave selection", id="copies"),
        pytest.param(["-c", "op"], "leave selection", id="columns"),
    ],
)
def test_a_summary_has_no_rows_to_choose(
    options: list[str], message: str, invoke: Callable[..., Any]
) -> None:
    result = invoke("prof", "x", "--summary", *options)

    assert (result.code, result.out) == (2, "")
    assert message in result.err


@pytest.mark.parametrize(("flops", "flag"), [(2_000_000, True), (1_000_000, False)])
def test_more_than_all_of_the_peak_is_flagged(
    flops: int, *, flag: bool, invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    counts = dict.fromkeys(("model_flops", "hardware_flops"), flops)
    shares = dict.fromkeys(("mfu_pct", "hfu_pct"), flops / 1e4)
    known = {"step": None, "wall_ns": 1000, "peak_flop_per_s": 1e12, "counted_pct": 100.0}
    rows = (counts | shares | known,)
    use_run(profile_rows({"op": "aten::mm", "dur_ns": 5000}), utilization_rows=rows)

    lines = invoke("prof", "x", "--summary").lines

    assert f"MFU {flops // 10_000} %" in lines[1]
    assert any("above the peak: another device" in line for line in lines) is flag


def test_an_op_whose_work_stands_in_the_row_around_it_is_named(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    """`relu` calls `clamp_min`, which has the time; `exp` has its own work."""
    shape = {"dims": [[64, 64]], "types": ["float"]}
    path = write(
        tmp_path,
        op("aten::relu", 0, 100, **shape), op("aten::clamp_min", 2, 96, **shape),
        op("aten::exp", 200, 100, **shape),
    )  # fmt: skip

    by_op = invoke("prof", path, "--by", "op", "-w", "300").lines
    by_layer = invoke("prof", path, "--by", "layer", "-w", "300").lines

    note = "FLOPs and bytes of aten::clamp_min stand in the row of the op around"
    assert [line for line in by_op if line.startswith(note)]
    assert not [line for line in by_layer if line.startswith(note)]
