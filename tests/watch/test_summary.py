"""The line of each recording: how long a step takes, and whether that grew."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.watch.summary import line
from tests.kineto_events import annotation, trace

if TYPE_CHECKING:
    from pathlib import Path

ENDS = [1000, 2000, 3010, 4030, 5000, 6000]


def test_figures_are_those_of_the_steps_of_the_optimizer(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    steps = [annotation("Optimizer.step#SGD.step", end - 100, 100) for end in ENDS]
    trace(tmp_path / "in/rank0.json", *steps, annotation("other", 0, 5000))

    done = subprocess.run(
        [sys.executable, "-m", "pyprof2.watch.summary", tmp_path / "in", tmp_path / "out.pyprof2"],
        check=True, capture_output=True,
    )  # fmt: skip

    # Between the ends, in ns: 1000, 1010, 1020, 970 and 1000 us.
    low, middle, high = statistics.quantiles([970_000, 1_000_000, 1_000_000, 1_010_000, 1_020_000])
    assert json.loads(done.stdout) == {
        "ranks": 1, "steps": 5, "low_ns": low, "step_ns": middle, "high_ns": high, "busy_pct": None,
    }  # fmt: skip
    assert (tmp_path / "out.pyprof2").is_dir()


def _figures(middle: float, spread: float = 1e5, steps: int = 9) -> dict[str, Any]:
    return {
        "ranks": 2, "steps": steps, "low_ns": middle - spread, "step_ns": middle,
        "high_ns": middle + spread, "busy_pct": 81.25,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (1.25e6, "SLOWER than the first (+25.0 %)"),
        (0.75e6, "faster than the first (-25.0 %)"),
        (1.15e6, "within the scatter of the first (+15.0 %)"),
    ],
)
def test_slower_is_said_where_the_quartiles_are_apart(now: float, said: str) -> None:
    text = line(_figures(now), _figures(1e6))
    assert text == (f"2 ranks, step {now / 1e6:.3f} ms, the median of 9, GPU busy 81.2 %, {said}")


def test_few_steps_have_no_time() -> None:
    few = _figures(0) | dict.fromkeys(("low_ns", "step_ns", "high_ns", "busy_pct")) | {"steps": 2}
    assert line(few, _figures(1e6)) == "2 ranks, 2 steps of an optimizer: too few to time"
    assert line(few, None) == line(few, few)
