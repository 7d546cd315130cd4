"""`prof --summary` gives the totals of a recording, also as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.builders import mm_trace, profile_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_the_summary_is_the_heading_without_a_table(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({"op": "aten::mm", "dur_ns": 5000}))

    assert invoke("prof", "x", "--summary").lines == invoke("prof", "x", "--by", "op").lines[:2]


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
