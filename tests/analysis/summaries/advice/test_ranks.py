"""Rules on many ranks: made-up jobs whose effects are known, from simulations with and without."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.summaries.advice.advise import gain_bound
from pyprof2.api import run_findings
from pyprof2.api.run import Run, load, parse
from tests.analysis.job.job_generator import Job, Made, name_pause, simulate, write

if TYPE_CHECKING:
    from pathlib import Path

RULES = ("straggler", "host-pause", "slow-link", "load-imbalance")


def _run(job: Job, folder: Path, made: Made | None = None, **options: Any) -> Run:
    files = write(made or simulate(job), folder, **options)
    return load(parse(files, folder / "job.pyprof2"))


def _findings(run: Run, status: str = "fires") -> dict[tuple[str, int], dict[str, Any]]:
    """Return what rules on many ranks found, by rule and rank."""
    rows = run.advise()
    own = rows[rows["rule"].isin(RULES) & (rows["status"] == status)]
    found: list[dict[Any, Any]] = own.to_dict("records")
    return {(row["rule"], row["rank"]): row for row in found}


def _lost_ns(job: Job, **healthy: Any) -> float:
    """Return how much longer the job takes than its twin, with the same random numbers."""
    options: dict[str, Any] = {"slow": {}, "pause": {}, "links": 1.0} | healthy
    return 1000 * (simulate(job).end_us[-1] - simulate(replace(job, **options)).end_us[-1])


def test_all_are_silent_in_a_healthy_job(tmp_path: Path) -> None:
    run = _run(Job(4), tmp_path)

    assert not _findings(run)
    assert not _findings(run, "unknown")


def test_a_slow_device_is_named_with_what_it_costs_a_step(tmp_path: Path) -> None:
    job = Job(4, slow={2: 1.2})
    run = _run(job, tmp_path)
    found = _findings(run)

    assert set(found) == {("straggler", 2)}
    row = found["straggler", 2]
    lost = _lost_ns(job)
    assert row["at_stake_lo_ns"] <= row["expected_ns"] <= row["at_stake_hi_ns"]
    assert row["expected_ns"] == pytest.approx(lost, rel=0.02)
    assert row["finding"].startswith("rank 2 made 3 ranks wait: its aten::gemm_")
    assert f"{lost / 4 / 1e3:.0f}"[:2] in row["finding"]
    assert "of every step (by replay" in row["finding"]
    op = row["finding"].partition(": its ")[2].partition(",")[0]
    ids = row["evidence"].removeprefix("kernels:").partition(" ")[0].split(",")
    kernels = run.kernels[run.kernels["rank"] == 2].set_index("kernel_id")["op"]
    assert {kernels[int(each)] for each in ids} == {op}


def test_what_hosts_hide_is_told_without_a_stake(tmp_path: Path) -> None:
    run = _run(Job(4, slow={2: 1.2}, gap_us=200, noise=0.002), tmp_path)
    found = _findings(run)

    assert set(found) == {("straggler", 2)}
    row = found["straggler", 2]
    assert (row["severity"], row["finding"][:12]) == ("info", "slow, hidden")
    assert pd.isna(row["at_stake_hi_ns"])
    assert pd.isna(row["expected_ns"])
    assert "wait" not in row["finding"]


def test_a_pause_of_a_host_has_its_cause_and_line(tmp_path: Path) -> None:
    job = Job(4, pause={1: (2, 20_000.0)}, gap_us=200)
    made = simulate(job)
    files = write(made, tmp_path)
    name_pause(1, files[1])
    found = _findings(load(parse(files, tmp_path / "job.pyprof2")))

    assert set(found) == {("host-pause", 1)}
    row = found["host-pause", 1]
    assert row["expected_ns"] == pytest.approx(_lost_ns(job), rel=0.02)
    assert row["finding"].startswith("rank 1 made 3 ranks wait: its data loading, ")
    assert "of step 2 (by replay" in row["finding"]
    assert row["source"].endswith("train.py:88")


def _pairs(folder: Path, links: float) -> tuple[Run, float]:
    """Return a job of three pairs of ranks, the last one's links that much slower, and the cost."""
    files, ends = [], []
    for group in range(3):
        job = Job(2, seed=group, links=links if group == 2 else 1.0, gap_us=10, one_stream=True)
        own = folder / str(group)
        own.mkdir()
        ends.append(simulate(job).end_us[-1])
        for rank, one in enumerate(write(simulate(job), own)):
            document = json.loads(one.read_text())
            number = 2 * group + rank
            document["distributedInfo"] |= {"rank": number, "world_size": 6}
            for row in document["traceEvents"]:
                if "Process Group Ranks" in row.get("args", {}):
                    row["args"]["Process Group Ranks"] = str([2 * group, 2 * group + 1])
                    row["args"]["Global rank start"] = 2 * group
            path = folder / f"rank{number}.json"
            path.write_text(json.dumps(document))
            files.append(path)
    healthy = simulate(Job(2, seed=2, gap_us=10, one_stream=True)).end_us[-1]
    return load(parse(files, folder / "job.pyprof2")), 1000 * (ends[2] - max(healthy, *ends[:2]))


def test_a_slow_link_is_that_of_its_group(tmp_path: Path) -> None:
    run, lost = _pairs(tmp_path, 6.0)
    found = _findings(run)

    assert set(found) == {("slow-link", 4), ("slow-link", 5)}
    row = found["slow-link", 4]
    assert "all_reduce of 16777216 bytes among ranks 4, 5 transfers in 18" in row["finding"]
    assert row["expected_ns"] == pytest.approx(lost, rel=0.03)


def test_links_of_one_speed_are_silent(tmp_path: Path) -> None:
    run, _ = _pairs(tmp_path, 1.0)

    assert not _findings(run)


def test_work_that_is_uneven_by_turns_gains_what_spreading_it_does(tmp_path: Path) -> None:
    job = Job(4, uneven=1.6, noise=0.002, one_stream=True)
    found = _findings(_run(job, tmp_path))
    # The same work spread evenly: every rank has a quarter of what the one has more.
    even = _lost_ns(job, uneven=1.0, slow=dict.fromkeys(range(4), 1.15))

    assert {rule for rule, _ in found} == {"load-imbalance"}
    assert {rank for _, rank in found} == {0, 1, 2, 3}
    row = found["load-imbalance", 1]
    assert "this one in 1 of 4 windows of steps" in row["finding"]
    assert row["expected_ns"] == pytest.approx(even, rel=0.05)
    # The median would promise that the work is gone.
    assert row["at_stake_hi_ns"] < 0.9 * _lost_ns(job, uneven=1.0)


def _of_rank_0(run: Run) -> dict[str, Any]:
    """Return what is said of exposed communication on rank 0."""
    rows = run.advise().to_dict("records")
    key = ("exposed-communication", 0)
    return next(
        {str(k): v for k, v in row.items()} for row in rows if (row["rule"], row["rank"]) == key
    )


def test_exposed_communication_is_told_apart(tmp_path: Path) -> None:
    job = Job(4, links=6.0, one_stream=True)
    run = _run(job, tmp_path)
    row = _of_rank_0(run)

    assert row["status"] == "fires"
    assert "transfers, most in all_reduce of group dp" in row["finding"]
    free = _lost_ns(job, links=1e-9)
    # Skews of ends are part of transfers, and stay in the simulation.
    assert row["at_stake_hi_ns"] == pytest.approx(free, rel=0.03)
    assert row["at_stake_lo_ns"] == 0


def test_where_streams_wait_for_one_another_their_waits_are_inferred(tmp_path: Path) -> None:
    """Without them the replay is 6 % off; with them transfers cost what they do in the job."""
    job = Job(4, links=6.0)
    run = _run(job, tmp_path)
    row = _of_rank_0(run)

    assert run.ranks.graph.error_without(run.ranks.graph.inferred) > 0.05
    assert (row["status"], row["at_stake_lo_ns"]) == ("fires", 0)
    assert row["at_stake_hi_ns"] == pytest.approx(_lost_ns(job, links=1e-9), rel=1e-3)


def test_waiting_for_a_straggler_is_no_stake_of_communication(tmp_path: Path) -> None:
    job = Job(4, slow={2: 2.0}, one_stream=True)
    run = _run(job, tmp_path)
    (straggler,) = _findings(run).values()
    other = _of_rank_0(run)

    wait = run.ranks.parts.groupby("rank")["exposed_wait_ns"].sum()[0]
    assert other["at_stake_hi_ns"] < wait / 2
    free = _lost_ns(job, slow=job.slow, links=1e-9)
    assert other["at_stake_hi_ns"] == pytest.approx(free, rel=0.05)
    # What the straggler costs can be won on every rank; its kernels have no FLOPs that bound it.
    assert straggler["expected_ns"] > 0
    assert run.gain_bounds["bound_ns"].isna().all()


def test_waits_are_no_communication_that_must_stay(tmp_path: Path) -> None:
    """Without a finding on what is exposed, the transfers bound all remedies, as simulated."""
    job = Job(4, slow={2: 2.0}, one_stream=True)
    made = simulate(job)
    run = _run(job, tmp_path, made)

    for each in run_findings.rank_facts(run.tables):
        took = sum(e["dur"] for e in made.events[each.rank] if e["what"] == "reduce")
        left = 1000 * (took - made.waits_us[each.rank])
        assert gain_bound(each, [])["comm_ns"] == pytest.approx(left, rel=0.05), each.rank


def test_of_two_ranks_nobody_knows_which_one_is_usual(tmp_path: Path) -> None:
    run = _run(Job(2, slow={1: 1.2}), tmp_path)

    assert not _findings(run)
    unknown = _findings(run, "unknown")
    assert set(unknown) == {("straggler", 1)}
    assert "longer than rank 0" in unknown["straggler", 1]["finding"]
    assert "more ranks of the same role" in unknown["straggler", 1]["needs"]


def test_a_rank_of_the_same_role_that_did_nothing_is_no_peer(tmp_path: Path) -> None:
    run = _run(Job(2, slow={1: 1.2}), tmp_path)
    run.ranks.roles = {**run.ranks.roles, 2: run.ranks.roles[0]}

    unknown = _findings(run, "unknown")
    assert "longer than rank 0" in unknown["straggler", 1]["finding"]


def test_of_a_rank_alone_the_others_are_asked_for(tmp_path: Path) -> None:
    run = _run(Job(4, links=3.0), tmp_path, ranks=[1])

    assert not _findings(run)
    unknown = _findings(run, "unknown")
    assert set(unknown) == {("straggler", 1)}
    assert "1 of 4 ranks was read" in unknown["straggler", 1]["finding"]
    assert unknown["straggler", 1]["needs"].startswith("all ranks of the job")


def test_where_the_replay_cannot_tell_nothing_is_claimed(tmp_path: Path) -> None:
    run = _run(Job(4, slow={2: 1.2}), tmp_path)
    slow = run.ranks.slow_ranks[0]
    run.ranks.slow_ranks = [
        slow._replace(verdict=None, gain=replace(slow.gain, gain_ns=None, lo_ns=None, hi_ns=None))
    ]

    assert not _findings(run)
    row = _findings(run, "unknown")["straggler", 2]
    assert row["at_stake_hi_ns"] == slow.gain.bound_ns
    assert "what streams waited for" in row["needs"]
