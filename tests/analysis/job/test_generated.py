"""Made-up jobs whose effects are known: clocks, waits, stragglers, pauses, hidden effects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pyprof2.api.run import load, parse
from tests.analysis.job.job_generator import Job, Made, simulate, write
from tests.analysis.job.job_members import replay_error_ns

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks

STEP_US = 2400


def _made(job: Job, folder: Path, *, seq: bool = True) -> tuple[JobOfRanks, Made]:
    made = simulate(job)
    store = parse(write(made, folder, seq=seq), folder / "job.pyprof2")
    return load(store).ranks, made


def _lost_ns(job: Job, made: Made) -> float:
    """Return how much longer the job takes than its healthy twin, with the same random numbers."""
    twin = simulate(replace(job, slow={}, pause={}, links=1.0))
    return 1000 * (made.end_us[-1] - twin.end_us[-1])


def _close(found: float, wanted: float, steps: int) -> bool:
    """Whether it is within 2 % of the effect, or 0.05 % of the steps."""
    return abs(found - wanted) <= max(0.02 * abs(wanted), 0.0005 * steps * STEP_US * 1000)


def test_the_healthy_twin_has_no_straggler(tmp_path: Path) -> None:
    job = Job(4, offset_us=2000)
    found, made = _made(job, tmp_path)

    assert found.stragglers.empty
    assert replay_error_ns(found.graph) == 0
    clocks = found.run.frame("clocks")
    true_ns = 1000 * (made.offsets_us - made.offsets_us[0])
    # The offset is that at the middle of some ms, so a drift of some ppm is below the error.
    assert np.abs(clocks["offset_ns"] - true_ns).max() < 1000
    assert ((clocks["lo_ns"] <= true_ns + 100) & (true_ns - 100 <= clocks["hi_ns"])).all()
    waits = found.members.groupby("rank")["wait_ns"].sum()
    count = len(found.members) / 4
    assert np.abs(waits - 1000 * made.waits_us).max() <= 1000 * count


@pytest.mark.parametrize("seq", [True, False], ids=["numbered", "by order"])
def test_a_slow_device_is_a_straggler_that_costs_what_it_costs(
    tmp_path: Path, *, seq: bool
) -> None:
    job = Job(4, slow={2: 1.2})
    found, made = _made(job, tmp_path, seq=seq)
    (row,) = found.stragglers.to_dict("records")

    assert (row["rank"], row["verdict"], row["score"]) == (2, "straggler", "busy_ns")
    assert row["excess_pct"] == pytest.approx(20, abs=1)
    assert _close(row["gain_ns"], _lost_ns(job, made), job.steps)
    assert set(found.members["match"]) == {"seq" if seq else "order"}
    assert found.blame["rank"].iloc[0] == 2


def test_a_slow_device_that_the_hosts_hide_is_slow_hidden(tmp_path: Path) -> None:
    # Short as the job is, less noise than usual: medians of the others have none.
    job = Job(4, slow={2: 1.2}, gap_us=200, noise=0.002)
    found, made = _made(job, tmp_path)
    (row,) = found.stragglers.to_dict("records")

    assert (row["rank"], row["verdict"]) == (2, "slow, hidden")
    assert _close(row["gain_ns"], _lost_ns(job, made), 7)


def test_a_pause_of_a_host_is_found_where_it_was(tmp_path: Path) -> None:
    job = Job(4, pause={1: (2, 20_000.0)}, gap_us=200)
    found, made = _made(job, tmp_path)
    (row,) = found.stragglers.to_dict("records")
    worst = found.blame.iloc[0]

    assert (row["rank"], row["verdict"], row["score"]) == (1, "straggler in steps 2", "host_ns")
    assert _close(row["gain_ns"], _lost_ns(job, made), 20)
    assert (worst["rank"], worst["kind"], worst["step"]) == (1, "host", 2)
    # The host did nothing before the thirteenth kernel of the step.
    assert worst["op"] == "aten::gemm_2"
    assert worst["worst_ns"] == pytest.approx(20_000_000, rel=0.02)


def test_a_pause_that_the_queue_hides_costs_nothing(tmp_path: Path) -> None:
    """The host is a thousand us ahead when it pauses for 500."""
    job = Job(4, pause={1: (2, 500.0)}, gap_us=5)
    found, made = _made(job, tmp_path)

    assert _lost_ns(job, made) == 0
    gain = found.what_if(rank=1).iloc[0]
    assert _close(gain["gain_ns"], 0, job.steps)


def test_ends_that_are_biased_by_size_do_not_become_skew(tmp_path: Path) -> None:
    job = Job(4, offset_us=0, drift=0, bias_us=20)
    found, _ = _made(job, tmp_path)
    clocks = found.run.frame("clocks")

    assert not clocks["applied"].any()
    assert clocks["error_ns"].tolist()[1] >= 9_000
    assert found.stragglers.empty


def test_two_ranks_have_a_ratio_and_no_score(tmp_path: Path) -> None:
    found, _ = _made(Job(2, slow={1: 1.1}), tmp_path)
    busy = found.scores[found.scores["score"] == "busy_ns"]

    assert busy["z"].isna().all()
    assert busy["time_ns"].iloc[1] / busy["time_ns"].iloc[0] == pytest.approx(1.1, abs=0.01)
    assert found.stragglers.empty


def test_a_rank_that_is_missing_makes_bounds(tmp_path: Path) -> None:
    made = simulate(Job(4))
    store = parse(write(made, tmp_path, ranks=[0, 1, 3]), tmp_path / "job.pyprof2")
    found = load(store).ranks.members

    assert set(found["members_recorded"]) == {3}
    assert found["last_rank"].isna().all()
    assert found["match_note"].str.startswith("members are missing").all()


def test_a_truncated_rank_is_said_and_nothing_is_invented(tmp_path: Path) -> None:
    made = simulate(Job(4))
    cut = [e for e in made.events[3] if e["step"] < 3 or e["launch"] < made.end_us[2]]
    made.events[3] = cut[: len(cut) - 12]
    whole, _ = _made(Job(4), tmp_path)
    other = tmp_path / "cut"
    other.mkdir()
    store = parse(write(made, other), other / "job.pyprof2")
    found = load(store).ranks.members

    few = found[found["members_recorded"] < 4]
    assert len(few) > 0
    assert few["last_rank"].isna().all()
    kept = found[found["members_recorded"] == 4]
    assert len(kept) % 4 == 0
    same = whole.members.merge(kept, on=["rank", "seq"], suffixes=("", "_cut"))
    assert len(same) == len(kept)
    # Fewer instances tell the clocks, so waits differ by no more than the clocks' errors.
    assert (same["wait_ns"] - same["wait_ns_cut"]).abs().max() < 2_000


@pytest.mark.minutes
@pytest.mark.parametrize("ranks", [8, 64])
def test_more_ranks(tmp_path: Path, ranks: int) -> None:
    job = Job(ranks, slow={5: 1.05})
    found, made = _made(job, tmp_path)
    (row,) = found.stragglers.to_dict("records")

    assert (row["rank"], row["verdict"]) == (5, "straggler")
    assert _close(row["gain_ns"], _lost_ns(job, made), job.steps)
    assert replay_error_ns(found.graph) == 0


@pytest.mark.minutes
@pytest.mark.release
def test_what_a_rank_costs_lies_in_its_interval(tmp_path: Path) -> None:
    """Each of 8 ranks is slow in turn; its links are slow as well, so that collectives hide some.

    95 % is what two standard errors promise.
    """
    outside = []
    cases = [(s, links, r) for s in range(5) for links in (2.0, 3.0) for r in range(8)]
    for seed, links, rank in cases:
        job = Job(8, slow={rank: 1.2}, links=links, seed=seed)
        made = simulate(job)
        healthy = simulate(replace(job, slow={}))
        true_ns = 1000 * (made.end_us[-1] - healthy.end_us[-1])
        folder = tmp_path / f"{seed}-{links}-{rank}"
        folder.mkdir()
        gain = load(write(made, folder)).ranks.what_if(rank=rank).iloc[0]
        if not gain["lo_ns"] <= true_ns <= gain["hi_ns"]:
            outside.append((seed, links, rank))

    assert len(cases) >= 80
    assert len(outside) <= 0.05 * len(cases), outside
