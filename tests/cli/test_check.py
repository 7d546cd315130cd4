"""`pyprof2 check` prints findings and the advice for each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from tests.builders import profile_rows

if TYPE_CHECKING:
    from collections.abc import Callable

FINDINGS = pd.DataFrame(
    {
        "severity": ["problem", "lack", "info"],
        "finding": ["the file is cut off", "kernels without a launch", "pairs that agree"],
        "count": pd.array([1, 1200, None], "Int64"),
        "share_pct": [None, 12.5, 100.0],
        "advice": ["copy it again", "use a schedule with warm-up steps", ""],
        "rank": pd.array([0, None, 1], "Int64"),
    }
)


@pytest.fixture
def check(invoke: Callable[..., Any], use_run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that checks a run with these findings."""
    use_run(profile_rows({}), findings=FINDINGS)
    return lambda *options: invoke("check", "x", *options)


def test_each_finding_has_its_numbers_and_its_advice(check: Callable[..., Any]) -> None:
    result = check()

    assert result.code == 0
    assert result.lines == [
        "problem  rank 0: the file is cut off (1)",
        "         -> copy it again",
        "lack     kernels without a launch (1,200, 12.5 %)",
        "         -> use a schedule with warm-up steps",
        "info     rank 1: pairs that agree (100.0 %)",
    ]


def test_long_lines_are_wrapped(check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")

    assert check().lines[4:] == [
        "         launch (1,200, 12.5",
        "         %)",
        "         -> use a schedule",
        "            with warm-up steps",
        "info     rank 1: pairs that",
        "         agree (100.0 %)",
    ]


def test_json_and_csv_have_every_column(check: Callable[..., Any]) -> None:
    records = json.loads(check("--format", "json").out)

    assert records[1] == {
        "severity": "lack",
        "finding": "kernels without a launch",
        "count": 1200,
        "share_pct": 12.5,
        "advice": "use a schedule with warm-up steps",
        "rank": None,
    }
    assert check("--format", "csv").lines[0] == ",".join(f'"{name}"' for name in records[0])


def test_of_a_recording_that_lacks_nothing_it_says_so(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({}), findings=FINDINGS[:0])

    assert invoke("check", "x").out == "nothing is missing\n"


def test_escapes_in_a_finding_are_text(
    invoke: Callable[..., Any], use_run: Callable[..., Any]
) -> None:
    use_run(profile_rows({}), findings=FINDINGS.assign(finding="\x1b[31mred"))

    assert "\x1b" not in invoke("check", "x").out
