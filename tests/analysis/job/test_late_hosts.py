"""Hosts that are late by themselves, and those that only got behind once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyprof2.analysis.job.job_graph import host_times
from pyprof2.analysis.job.slow_ranks import standing_out
from pyprof2.api import job as job_module
from pyprof2.api.run import load, parse
from pyprof2.errors import UsageError
from pyprof2.pipeline import many_ranks
from pyprof2.reports.ranks import answers
from tests.analysis.job.job_generator import Job, simulate, write
from tests.kineto_events import complete, copy, kernel, launch, load_events

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from pyprof2.api.job import JobOfRanks

LAG_US, PAUSE_US = 45.0, 20_000.0


@pytest.fixture(params=["one graph", "segments"])
def is_large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether three ranks are many."""
    segments: bool = request.param == "segments"
    if segments:
        for module in (job_module, many_ranks):
            monkeypatch.setattr(module, "MANY_RANKS", 3)
        monkeypatch.setattr(job_module, "MOST_REPLAYED", 0)
    return segments


def _found(job: Job, folder: Path) -> JobOfRanks:
    return load(parse(write(simulate(job), folder), folder / "job.pyprof2")).ranks


def _own_excess(job: JobOfRanks, rank: int) -> float:
    times: pd.Series = job.many.host_times(rank) if job.is_large else _host_times(job)
    return float(times[rank] - times.drop(rank).median())


def _host_times(job: JobOfRanks) -> pd.Series:
    return host_times(job.graph).groupby("rank")["host_ns"].sum()


def test_a_host_that_got_behind_once_is_not_slow(tmp_path: Path, *, is_large: bool) -> None:
    """It pauses once for 0.9 % of a step; hosts do not wait for one another, so it stays behind.

    Its device, which all leave a collective with, then idles longer after each of them, by the
    same pause: four times in a step. It is 45 us in all that the host takes longer.
    """
    job = Job(4, pause={1: (0, LAG_US)}, gap_us=200, one_stream=True, noise=0.0)
    found = _found(job, tmp_path)
    late = standing_out(found.scores)

    assert found.is_large == is_large
    assert late[["rank", "score"]].to_numpy().tolist() == [[1, "host_ns"]]
    assert late["excess_ns"].iloc[0] > 3 * 1000 * LAG_US
    assert _own_excess(found, 1) == pytest.approx(1000 * LAG_US, rel=0.01)
    assert found.what_if(rank=1)["gain_ns"].iloc[0] == pytest.approx(1000 * LAG_US, rel=0.01)
    assert found.stragglers.empty


def test_of_two_late_hosts_each_hides_the_other(tmp_path: Path, *, is_large: bool) -> None:
    """Without either of them the other one is as late: only both together gain."""
    job = Job(8, pause={1: (2, PAUSE_US), 4: (2, PAUSE_US)}, gap_us=200)
    found = _found(job, tmp_path)
    rows = found.stragglers[["rank", "verdict", "score", "together"]].to_numpy().tolist()

    assert found.is_large == is_large
    assert rows == [[rank, "straggler in steps 2", "host_ns", "1, 4"] for rank in (1, 4)]
    assert found.what_if(rank=1)["gain_ns"].iloc[0] < 10_000
    lost = 1000 * PAUSE_US
    assert found.stragglers["gain_ns"].tolist() == pytest.approx([lost, lost], rel=0.01)
    assert answers(found)[0].startswith("ranks 1 and 4 are slow: rank 1 waits for its host")
    for rank in (1, 4):
        assert _own_excess(found, rank) == pytest.approx(1000 * PAUSE_US, rel=0.005)


def test_a_slow_device_whose_host_got_behind_is_slow_by_its_device(
    tmp_path: Path, *, is_large: bool
) -> None:
    """Hosts hide it; its own lag is no reason, though it stands out by that more."""
    job = Job(4, slow={1: 1.035}, pause={1: (0, LAG_US)}, gap_us=200, one_stream=True, noise=0.0)
    found = _found(job, tmp_path)
    rows = found.stragglers[["rank", "verdict", "score"]].to_numpy().tolist()

    late = standing_out(found.scores).sort_values("z", ascending=False)

    assert found.is_large == is_large
    assert late[["rank", "score"]].to_numpy().tolist() == [[1, "host_ns"], [1, "busy_ns"]]
    assert rows == [[1, "slow, hidden", "busy_ns"]]


def test_who_is_to_blame_of_many_ranks_is_said_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4 ranks, 4 steps of 28: 448 kernels go into one graph for it up to twice the usual number."""
    for module in (job_module, many_ranks):
        monkeypatch.setattr(module, "MANY_RANKS", 3)
    monkeypatch.setattr(job_module, "MOST_REPLAYED", 448 // 2)
    found = _found(Job(4, pause={1: (2, PAUSE_US)}, gap_us=200), tmp_path)
    worst = found.blame.iloc[0]

    assert found.is_large
    assert (worst["rank"], worst["kind"], worst["step"]) == (1, "host", 2)
    assert worst["op"] == "aten::gemm_2"
    assert worst["worst_ns"] == pytest.approx(1000 * PAUSE_US, rel=0.02)
    monkeypatch.setattr(job_module, "MOST_REPLAYED", 448 // 2 - 1)
    with pytest.raises(UsageError, match="too many for one graph"):
        _ = load(found.run.path).ranks.blame


def test_what_a_host_took_by_hand(tmp_path: Path) -> None:
    """Gaps 7, 3, 15 and 15 between calls, and calls of kernels 5, 5, 6 and 4: 60 us.

    The copy's call waits for the copy, which ends at 215, and cudaStreamSynchronize for the kernel
    that ends at 295: the host goes on from there. What is before the first call counts for nobody.
    """
    events = [
        kernel(60, 10, 99), launch(100, 1, dur=5), kernel(108, 10, 1),
        launch(112, 2, dur=5), kernel(120, 20, 2),
        launch(120, 3, name="cudaMemcpyAsync", dur=100),
        copy(160, 55, 3, name="Memcpy DtoH (Device -> Pageable)"),
        launch(230, 4, dur=6), kernel(240, 55, 4),
        complete("cuda_runtime", "cudaStreamSynchronize", 240, 60),
        launch(310, 5, dur=4), kernel(317, 10, 5),
    ]  # fmt: skip
    job = load_events(tmp_path, *events).ranks

    assert host_times(job.graph)["host_ns"].tolist() == [60_000]
