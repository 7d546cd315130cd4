"""`prof --by step` says how long steps are, what devices did, and why odd ones are odd."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api.run import load, parse
from pyprof2.reports.steps import outlier_notes
from tests.builders import kineto_trace
from tests.kineto_events import kernel, launch, launched, op, step

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LENGTHS = (100, 100, 100, 180, 100)
EFFICIENCY = "SM efficiency 24.1 %, occupancy 25.0 %"


def events(*, device: bool, rank: int = 0) -> list[dict[str, Any]]:
    """Return five steps: 40 us of matmul in each; the fourth has 120, so is 80 us longer."""
    found: list[dict[str, Any]] = []
    at = 1000 * rank
    for number, length in enumerate(LENGTHS):
        found += [step(number, at, length), op("aten::mm", at + 1, 20)]
        if device:
            known = {"blocks per SM": 0.5, "est. achieved occupancy %": 25}
            found += [launch(at + 5, number), kernel(at + 10, length - 60, number, known)]
        at += length
    return found


@pytest.fixture
def profile(invoke: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Return a function that writes one trace for each rank, and asks for its steps."""

    def prof(*ranks: list[dict[str, Any]], options: tuple[str, ...] = ()) -> list[str]:
        for rank, made in enumerate(ranks):
            with gzip.open(tmp_path / f"rank-{rank}.json.gz", "wt") as file:
                json.dump(kineto_trace(*made), file)
        lines: list[str] = invoke("prof", tmp_path, "--by", "step", "-w", "200", *options).lines
        return lines

    return prof


def test_steps_have_median_and_quartiles_states_and_outliers(profile: Callable[..., Any]) -> None:
    lines = profile(events(device=True))

    assert lines[-4:] == [
        "5 steps, median 100.000 us, the middle half 100.000 us to 100.000 us",
        # (4 * 40 + 120) / 5 = 56 and (4 * 60 + 60) / 5 = 60 of 116.
        "in a step, on average: computing 56.000 us (48.3 %), idle 60.000 us (51.7 %)",
        f"from the first step to the last: GPU utilization 48.3 %, {EFFICIENCY}",
        "step 3 takes 80.000 us more than the median; against step 0: kernel speed +80.000 us",
    ]


def test_without_a_device_there_are_times_alone(profile: Callable[..., Any]) -> None:
    lines = profile(events(device=False))

    assert lines[-2:] == [
        "5 steps, median 100.000 us, the middle half 100.000 us to 100.000 us",
        "step 3 takes 80.000 us more than the median",
    ]


def test_lines_of_several_ranks_say_whose_they_are(profile: Callable[..., Any]) -> None:
    both = [events(device=True, rank=rank) for rank in (0, 1)]

    lines, of_one = profile(*both), profile(*both, options=("--rank", "1"))

    assert [line for line in lines if "median 100" in line] == [
        f"rank {rank}: 5 steps, median 100.000 us, the middle half 100.000 us to 100.000 us"
        for rank in (0, 1)
    ]
    assert sum("rank 1, device 0: in a step, on average" in line for line in lines) == 1
    assert sum(line.startswith("rank 1: step 3 takes 80.000 us more") for line in lines) == 1
    assert sum("5 steps, median" in line for line in of_one) == 1


def test_one_step_has_no_distribution(profile: Callable[..., Any]) -> None:
    lines = profile([step(0, 0, 100), op("aten::mm", 1, 20), *launched(5, 1, at=10, dur=40)])

    assert not any("median" in line for line in lines)
    assert lines[-2].startswith("in a step, on average: computing 40.000 us (40.0 %)")
    assert lines[-1] == "from the first step to the last: GPU utilization 40.0 %"


def test_each_odd_step_has_a_note_and_those_furthest_off_say_why(tmp_path: Path) -> None:
    made = [events(device=True, rank=rank) for rank in range(7)]
    for rank, own in enumerate(made):
        with gzip.open(tmp_path / f"rank-{rank}.json.gz", "wt") as file:
            json.dump(kineto_trace(*own), file)
    run = load(parse([tmp_path], tmp_path / "store"))

    notes = outlier_notes(run)

    why = "; against step 0: kernel speed +80.000 us"
    assert len(notes) == len(made)
    off = "takes 80.000 us more than the median"
    assert sorted(note.removeprefix(off) for note in notes.values()) == ["", "", *[why] * 5]
