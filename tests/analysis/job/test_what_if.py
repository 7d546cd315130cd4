"""Critical path, blame and what-ifs: by hand, and of real recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.job.clocks import Clock
from pyprof2.analysis.job.critical_path import blame, critical_path
from pyprof2.analysis.job.instances import Recordings, match_members
from pyprof2.analysis.job.job_graph import INNER, JobGraph, Labels, job_graph
from pyprof2.analysis.job.rank_graph import HOST, ROOT, START, WAIT, rank_graph
from pyprof2.analysis.job.waits import with_waits
from pyprof2.analysis.job.what_if import (
    all_ideal,
    as_the_others,
    evaluate,
    perfect_overlap,
    scale,
    scale_transfers,
)  # fmt: skip
from pyprof2.api.run import load
from pyprof2.errors import UsageError
from pyprof2.tables import TABLES
from tests.analysis.job.job_members import by_hand, replay_error_ns
from tests.kineto_events import kernel, launch, load_events, op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROLES = dict.fromkeys(range(3), "all")
NOTHING = {name: TABLES[name].empty() for name in ("kernels", "copies", "launches", "stalls")}


@pytest.fixture(scope="module")
def job() -> JobGraph:
    """Return the graph of three ranks by hand, on their true clocks."""
    members = match_members(by_hand((0, 0, 0)), Recordings(one_clock=True))
    found = with_waits(members, {rank: Clock(rank, 0) for rank in range(3)})
    of_rank = {
        rank: found[found["rank"] == rank].reset_index(drop=True).assign(kernel_id=None)
        for rank in range(3)
    }
    of_rank = {r: f.astype({"kernel_id": "Int64"}) for r, f in of_rank.items()}
    graphs = [
        rank_graph(lambda name: InMemory(NOTHING[name]), of_rank[r], r, lambda time: time)
        for r in range(3)
    ]
    for graph in graphs:
        graph.start[0] = graph.end[0] = 0
    return job_graph(graphs, of_rank)


def test_the_recording_replays_to_itself(job: JobGraph) -> None:
    assert replay_error_ns(job) == 0
    assert job.window_ns == 521


def test_the_path_goes_back_by_who_was_last(job: JobGraph) -> None:
    path = critical_path(job)

    assert path[["rank", "kind", "ns"]].to_numpy().tolist() == [
        [1, "host", 150], [2, "transfer", 48], [2, "host", 262], [2, "transfer", 61],
    ]  # fmt: skip
    assert path["ns"].sum() == 521


def test_blame_is_the_excess_over_the_others(job: JobGraph) -> None:
    found = blame(job, critical_path(job), ROLES)

    assert found[["rank", "ns", "margin_ns", "excess_ns"]].to_numpy().tolist() == [
        [2, 262, 60, 73], [1, 150, 20, 35],
    ]  # fmt: skip


def test_a_rank_as_the_others_gains_what_is_lost(job: JobGraph) -> None:
    gain = evaluate(job, as_the_others(job, [2], ROLES))

    assert (gain.gain_ns, gain.lo_ns, gain.hi_ns, gain.model_error) == (60, 60, 60, 0)


def test_all_ranks_ideal(job: JobGraph) -> None:
    """Own work 130 and 200 on every rank: 130 + 52 + 200, 48 + 200 and 61 at the ends."""
    gain = evaluate(job, all_ideal(job, ROLES))

    assert gain.gain_ns == 521 - (130 + 52 + 200 + 61)


def test_transfers_of_half_the_length(job: JobGraph) -> None:
    """150 + 24 + 262 + 30 (half of 61, to the even): rank 2 is last again."""
    assert evaluate(job, scale_transfers(job, 0.5)).gain_ns == 521 - (150 + 24 + 262 + 30)


def test_a_role_of_its_own_is_compared_with_nobody(job: JobGraph) -> None:
    with pytest.raises(UsageError, match="no other rank has its role"):
        as_the_others(job, [2], ROLES | {2: "other"})


def test_of_two_ranks_the_faster_is_the_measure(job: JobGraph) -> None:
    """Rank 1 would take 130 as rank 2 does, and 178 as now: the first one ends 20 earlier."""
    change = as_the_others(job, [1], {0: "x", 1: "a", 2: "a"})

    assert change.note == "of two ranks the faster one is the measure"
    assert evaluate(job, change).gain_ns == 20


def _one_rank(folder: Path) -> JobGraph:
    """Two streams: the second kernel waits for the first one of the other stream.

    Launches at 0 and 5; kernels 10-60 on stream 7 and 62-100 on stream 8; all in us.
    """
    events = [
        op("aten::mm", 0, 3), launch(0, 1), kernel(10, 50, 1, name="gemm"),
        launch(5, 2), kernel(62, 38, 2, {"stream": 8}, name="add"),
    ]  # fmt: skip
    return load_events(folder, *events).ranks.graph


def test_an_inferred_wait_makes_an_interval(tmp_path: Path) -> None:
    """Without the wait the second one starts at 6; the model is 56 of 100 us off: no number."""
    job = _one_rank(tmp_path)

    gain = evaluate(job, scale(job, "op", "aten::mm", 0.5))

    assert replay_error_ns(job) == 0
    assert job.inferred.sum() == 1
    assert gain.gain_ns is None
    assert gain.model_error == pytest.approx((100 - 60) / 100)
    assert job.window_ns - int(job.graph.duration.max()) >= gain.bound_ns >= 25_000


def test_wait_of_work_that_was_launched_later_is_none(tmp_path: Path) -> None:
    """The other stream's kernel ended just before, but was launched after this one."""
    events = [
        launch(0, 1), kernel(62, 38, 1, name="add"),
        launch(5, 2), kernel(10, 50, 2, {"stream": 8}, name="gemm"),
    ]  # fmt: skip

    assert load_events(tmp_path, *events).ranks.graph.inferred.sum() == 0


def test_a_call_that_blocked_ties_the_host_to_the_device(tmp_path: Path) -> None:
    """The host waits for the kernel, so what it launches then gains what the kernel gains."""
    events = [
        op("aten::mm", 0, 3), launch(0, 1), kernel(10, 100, 1, name="gemm"),
        launch(4, 9, name="cudaDeviceSynchronize", dur=110),
        launch(120, 2), kernel(130, 20, 2, name="add"),
    ]  # fmt: skip
    job = load_events(tmp_path, *events).ranks.graph

    gain = evaluate(job, scale(job, "op", "aten::mm", 0.5))

    assert (gain.gain_ns, gain.lo_ns, gain.hi_ns) == (50_000, 50_000, 50_000)
    path = critical_path(job)
    assert path["kind"].tolist() == [
        "launch", "latency", "kernel", "sync", "launch", "latency", "kernel",
    ]  # fmt: skip
    assert path["ns"].sum() == job.window_ns == 150_000


def test_perfect_overlap_is_only_a_bound(tmp_path: Path) -> None:
    gain = perfect_overlap(_one_rank(tmp_path))

    assert (gain.gain_ns, gain.bound_ns) == (None, 50_000)


@pytest.mark.parametrize("axis", ["op", "kernel"])
def test_what_fits_nothing_is_said(tmp_path: Path, axis: str) -> None:
    job = _one_rank(tmp_path)

    with pytest.raises(UsageError, match=f"no kernel or copy has {axis}"):
        scale(job, axis, "no_such_name", 0.5)
    with pytest.raises(UsageError, match="no axis 'colour'"):
        scale(job, "colour", "red", 0.5)
    with pytest.raises(UsageError, match="not a regular expression"):
        scale(job, axis, "(", 0.5)


def test_labels_of_events_are_those_of_their_rows() -> None:
    words = pa.array(["a", "b", None, "c"]).dictionary_encode()
    labels = Labels(lambda name: pa.table({name: words}), np.array([-1, 3, 0, 3, 2]))

    assert labels.text("op", np.array([0, 1, 2, 4])) == [None, "c", "a", None]
    assert labels.fits("op", "c".__eq__).tolist() == [False, True, False, True, False]
    # As the texts come first: "c", then "a".
    assert labels.in_order("op").tolist() == [-1, 0, 1, 0, -1]


@pytest.mark.parametrize(("begins", "count"), [(5, 1), (61, 0)])
def test_a_kernel_whose_launch_explains_its_start_waited_for_no_other(
    tmp_path: Path, begins: float, count: int
) -> None:
    """The kernel on the other stream ends at 60, and this one begins at 62."""
    events = [
        launch(0, 1), kernel(10, 50, 1),
        launch(begins, 2, dur=0.5), kernel(62, 38, 2, {"stream": 8}),
    ]  # fmt: skip
    job = load_events(tmp_path, *events).ranks.graph

    assert (job.edge_kind == WAIT).sum() == count


@pytest.mark.parametrize(("took", "count"), [(4, 2), (6, 1)])
def test_a_thread_waits_for_one_that_had_launched_before_it(
    tmp_path: Path, took: float, count: int
) -> None:
    """One launches at 0, the other at 5: if the first call was over then, it may have waited."""
    events = [
        launch(0, 1, tid=1, dur=took), kernel(10, 5, 1),
        launch(5, 2, tid=2), kernel(20, 5, 2),
    ]  # fmt: skip
    job = load_events(tmp_path, *events).ranks.graph

    assert (job.edge_kind == HOST).sum() == count - 1
    assert (job.edge_kind == START).sum() == 3 - count


def test_what_takes_longer_than_32_bits_count_keeps_its_time(tmp_path: Path) -> None:
    """A kernel of 3 s, another one, and a launch that takes 5 s; times of events are us."""
    events = [launch(0, 1), kernel(10, 3e6, 1), launch(20, 2, dur=5e6), kernel(5.1e6, 1, 2)]

    job = load_events(tmp_path, *events).ranks.graph

    assert job.graph.duration.tolist() == [0, 1000, 5 * 10**9, 3 * 10**9, 1000]
    assert replay_error_ns(job) == 0


def test_every_real_recording_replays_to_itself(real_trace: Path) -> None:
    """0 ns from the recording, start by start; and the path adds up to the window."""
    run = load(real_trace)
    graph = run.ranks.graph

    assert replay_error_ns(graph) == 0
    assert critical_path(graph)["ns"].sum() == graph.window_ns
    # A member of a matched collective ends where the ranks meet; its transfer follows.
    end = np.concatenate([run.ranks._rank_graph(each.rank)[0].end for each in run.tables.ranks])
    alone = ~np.isin(np.arange(len(end)), graph.graph.source[graph.edge_kind == INNER])
    alone &= graph.kind[: len(end)] != ROOT
    assert np.array_equal(graph.end[: len(end)][alone], end[alone])


def test_the_path_of_two_devices_jumps_between_them(shared_trace: Callable[[str], Path]) -> None:
    job = load(shared_trace("nsight/mfu_2gpu_before.sqlite")).ranks.graph
    path = critical_path(job)

    assert set(path["rank"]) == {0, 1}
    assert (path["kind"] == "transfer").any()
