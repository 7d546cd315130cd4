"""Jobs made of a real rank: what was put in is found, in its size; what is hidden costs nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest

from pyprof2.api.run import load, parse
from tests.analysis.job.job_members import replay_error_ns
from tests.analysis.job.real_job import Setup, Times, simulate, write
from tests.analysis.job.real_program import Call, step_program

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd

    from pyprof2.api.job import JobOfRanks

TRACE = "kineto/hta_diff_control_a100.json.gz"
GPU_BOUND = 0.2
RANKS = [8, pytest.param(64, marks=pytest.mark.release)]
"""64 take minutes each; `test_generated` has a straggler among as many, of shorter steps."""


class Made(NamedTuple):
    """A job as it is found, and as it was."""

    found: JobOfRanks
    times: Times
    setup: Setup

    @property
    def lost_ns(self) -> float:
        """What was put in cost: the job less its twin."""
        return 1000 * (self.times.last - simulate(self.setup.healthy()).last)

    def is_close(self, gain_ns: float) -> bool:
        """Whether it is within 2 % of the effect, or 0.05 % of a step, whichever is larger."""
        step = 1000 * self.times.last / self.setup.steps
        return abs(gain_ns - self.lost_ns) <= max(0.02 * abs(self.lost_ns), 0.0005 * step)


def made(setup: Setup, folder: Path) -> Made:
    """Write a job and read it."""
    times = simulate(setup)
    write(setup, times, folder)
    files = [folder / f"rank{rank}.json" for rank in range(setup.ranks)]
    return Made(load(parse(files, folder / "job.pyprof2")).ranks, times, setup)


@pytest.fixture
def program(shared_trace: Callable[[str], Path]) -> tuple[Call, ...]:
    """What one real rank does in a step: 1575 launches, 10 of collectives."""
    return _program(shared_trace(TRACE))


@cache
def _program(path: Path) -> tuple[Call, ...]:
    return tuple(step_program(path, 1011))


def check_clocks(job: Made) -> None:
    """Offsets and drifts are those of the clocks, and lie in the certain interval."""
    clocks, (times, setup) = job.found.clock_frame, job[1:]
    middle = 1000 * times.last / 2
    true = 1000 * (times.offsets + times.drifts * middle / 1000)
    drift_error = 1e-6 * 1000 * times.last
    assert np.abs(clocks["offset_ns"] - true).max() < 1000 + drift_error
    slack = 100 + 20e-6 * 1000 * times.last
    assert ((clocks["lo_ns"] - slack <= true) & (true <= clocks["hi_ns"] + slack)).all()
    waits = job.found.members.groupby("rank")["wait_ns"].sum().to_numpy()
    count = len(job.found.members) / setup.ranks
    assert np.abs(waits - 1000 * times.waits).max() <= 1500 * count


def check_straggler(job: Made, rank: int, verdict: str) -> pd.Series:
    """It is the only rank that stands out, and costs what it costs."""
    found = job.found.stragglers
    assert found[["rank", "verdict"]].to_numpy().tolist() == [[rank, verdict]]
    row = found.iloc[0]
    assert job.is_close(row["gain_ns"])
    return row


def test_two_ranks_one_of_them_slower(program: tuple[Call, ...], tmp_path: Path) -> None:
    """No score, but a ratio; the what-if is what it costs."""
    job = made(Setup(program, 2, host=GPU_BOUND, slow={1: 1.2}), tmp_path)

    check_clocks(job)
    assert job.found.stragglers.empty
    busy = job.found.scores.query("score == 'busy_ns'").set_index("rank")["time_ns"]
    assert busy[1] / busy[0] == pytest.approx(1.2, abs=0.005)
    assert job.is_close(job.found.what_if(rank=1)["gain_ns"].iloc[0])
    assert replay_error_ns(job.found.graph) == 0


def test_two_healthy_ranks(program: tuple[Call, ...], tmp_path: Path) -> None:
    job = made(Setup(program, 2), tmp_path)

    check_clocks(job)
    assert job.found.stragglers.empty
    assert len(job.found.members) == 2 * 2 * 10
    assert set(job.found.members["match"]) == {"seq"}


@pytest.mark.minutes
@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize(
    ("slow", "host", "verdict"),
    [
        pytest.param(1.2, GPU_BOUND, "straggler", id="20 % of the device"),
        pytest.param(1.05, GPU_BOUND, "straggler", id="5 % of the device"),
        pytest.param(1.05, 1.0, "slow, hidden", id="5 %, behind the host"),
    ],
)
def test_a_slow_device(
    program: tuple[Call, ...], tmp_path: Path, ranks: int, slow: float, host: float, verdict: str
) -> None:
    job = made(Setup(program, ranks, host=host, slow={5: slow}), tmp_path)

    check_clocks(job)
    check_straggler(job, 5, verdict)


@pytest.mark.minutes
@pytest.mark.parametrize("ranks", RANKS)
def test_healthy_ranks_have_no_straggler(
    program: tuple[Call, ...], tmp_path: Path, ranks: int
) -> None:
    job = made(Setup(program, ranks), tmp_path)

    check_clocks(job)
    assert job.found.stragglers.empty
    gain = job.found.what_if(ideal=True)["gain_ns"].iloc[0]
    assert gain < 0.002 * 1000 * job.times.last


@pytest.mark.minutes
@pytest.mark.parametrize("ranks", RANKS)
def test_a_pause_of_a_host(program: tuple[Call, ...], tmp_path: Path, ranks: int) -> None:
    """20 ms before a call at the middle of the last of three steps."""
    call = len(program) // 2
    job = made(Setup(program, ranks, steps=3, pause={3: (2, call, 20_000.0)}), tmp_path)

    row = check_straggler(job, 3, "straggler in steps 2")
    worst = job.found.blame.iloc[0]
    assert row["score"] == "host_ns"
    assert (worst["rank"], worst["kind"], worst["step"]) == (3, "host", 2)
    assert worst["op"] == program[call].op
    assert worst["worst_ns"] == pytest.approx(20_000_000, rel=0.02)


@pytest.mark.minutes
@pytest.mark.parametrize("ranks", RANKS)
def test_what_queues_hide_costs_nothing(
    program: tuple[Call, ...], tmp_path: Path, ranks: int
) -> None:
    """Behind a full queue a pause of 20 ms, and transfers twice as long behind kernels."""
    setup = Setup(program, ranks, host=GPU_BOUND, links=2.0)
    job = made(replace(setup, pause={1: (1, len(program) // 2, 20_000.0)}), tmp_path)

    assert job.lost_ns == 0
    found = job.found.what_if(rank=1, transfers=0.5)
    assert [job.is_close(gain) for gain in found["gain_ns"]] == [True, True]
    assert job.found.stragglers.empty


@pytest.mark.minutes
def test_slow_links_that_everybody_waits_for(program: tuple[Call, ...], tmp_path: Path) -> None:
    """Streams wait for collectives, and the recording does not say so: the waits are inferred."""
    job = made(Setup(program, 8, host=GPU_BOUND, message=20.0, links=2.0), tmp_path)
    found = job.found.what_if(transfers=0.5).iloc[0]

    assert found["note"] == "waits between collectives and other work are inferred"
    assert found["gain_ns"] == pytest.approx(job.lost_ns, rel=1e-3)
    assert found["lo_ns"] <= found["gain_ns"] <= found["hi_ns"] <= 1.01 * job.lost_ns
    rows = job.found.bandwidths
    sent = rows["transfer_ns"] / (rows["bytes"] / 8 / 40_000)
    # What a message of a class takes, twice over, is 40 us for each of the program's.
    assert (sent / 1000).median() == pytest.approx(40, rel=0.02)


@pytest.mark.minutes
def test_ends_that_are_biased_by_size_are_no_skew(
    program: tuple[Call, ...], tmp_path: Path
) -> None:
    job = made(Setup(program, 8, bias=20.0, spread=0.0, drift=0.0), tmp_path)
    clocks = job.found.clock_frame

    assert not clocks["applied"].any()
    assert (clocks["error_ns"].iloc[1::2] >= 9_000).all()
    assert job.found.stragglers.empty
