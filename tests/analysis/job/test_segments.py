"""Jobs of many ranks by segments: by hand, and the same as one graph of all kernels, to the ns."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

from pyprof2.analysis.job.rank_graph import NO_STEP
from pyprof2.analysis.job.segments import BEGIN, MODELS, segments_of
from pyprof2.api import job as job_module
from pyprof2.api.run import load, parse
from pyprof2.cli import main
from pyprof2.pipeline import many_ranks
from tests.analysis.job.job_generator import Job, simulate, write
from tests.kineto_events import kernel, launch, load_events, op
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.job import JobOfRanks

MODULES = (job_module, many_ranks)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three ranks are many."""
    for module in MODULES:
        monkeypatch.setattr(module, "MANY_RANKS", 3)
    monkeypatch.setattr(job_module, "MOST_REPLAYED", 0)


def _store(job: Job, folder: Path) -> Path:
    return parse(write(simulate(job), folder), folder / "job.pyprof2")


def _both(job: Job, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[JobOfRanks, JobOfRanks]:
    """Return a job by its segments, and as one graph."""
    store = _store(job, folder)
    by_segments = load(store).ranks
    assert by_segments.is_large
    assert by_segments.many.job.window_ns
    _ = by_segments.stragglers
    for module in MODULES:
        monkeypatch.setattr(module, "MANY_RANKS", 99)
    return by_segments, load(store).ranks


def test_segments_by_hand(tmp_path: Path) -> None:
    """Two collectives, a kernel between them on the same stream; one beside, launched before.

    Launches at 0, 10, 20, 30 of 5 each; all_reduce 8-58, kernel 60-80 and all_reduce 85-100 on
    stream 7, and a kernel 25-40 on stream 8; all in us.
    """
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
    events = [
        op("c10d::allreduce_", 0, 6), launch(0, 1, dur=5), kernel(8, 50, 1, name=name),
        launch(10, 2, dur=5), kernel(60, 20, 2, name="gemm"),
        launch(20, 3, dur=5), kernel(26, 14, 3, {"stream": 8}, name="add"),
        op("c10d::allreduce_", 30, 6), launch(30, 4, dur=5), kernel(85, 15, 4, name=name),
    ]  # fmt: skip
    graph, _ = load_events(tmp_path, *events).ranks._rank_graph(0)

    found = segments_of(graph)
    rows = found[["source", "target", *MODELS]].to_numpy().tolist()

    # Launched 0-5; 3 later it runs. Then 2, the kernel's 20, 5; by the host no later than 35.
    assert [BEGIN, 0, 8_000, 8_000, 5_000] in rows
    assert [0, 1, 27_000, 27_000, 20_000] in rows
    assert [1, -1, 0, 0, 0] in rows
    assert set(found["step"]) == {NO_STEP}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "job",
    [
        pytest.param(Job(4, slow={2: 1.2}), id="slow device"),
        pytest.param(Job(4, slow={2: 1.2}, gap_us=200), id="hidden by hosts"),
        pytest.param(Job(4, pause={1: (2, 20_000.0)}, gap_us=200), id="pause"),
    ],
)
def test_segments_say_what_one_graph_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: Job
) -> None:
    by_segments, whole = _both(job, tmp_path, monkeypatch)

    assert len(by_segments.stragglers) == 1
    gains = ["gain_ns", "lo_ns", "hi_ns"]
    found, wanted = (r.stragglers.drop(columns=["gain_pct", "z"]) for r in (by_segments, whole))
    assert found.drop(columns=gains).equals(wanted.drop(columns=gains))
    # Segments know no waits that other ranks alone show: each gain lies in the other's interval.
    for one, other in ((found, wanted), (wanted, found)):
        assert one["gain_ns"].between(other["lo_ns"], other["hi_ns"]).all()
    assert by_segments.window_ns == whole.window_ns
    pd.testing.assert_frame_equal(
        by_segments.parts, whole.parts, check_dtype=False, check_like=True
    )
    ends = by_segments.many.job
    assert np.array_equal(ends.recorded[: len(ends.nodes.end)], ends.nodes.end)
    halved = [r.what_if(transfers=0.5).drop(columns="note") for r in (by_segments, whole)]
    names = ["gain_ns", "lo_ns", "hi_ns", "window_ns", "model_error_pct"]
    assert halved[0][names].equals(halved[1][names])


@pytest.mark.usefixtures("few")
def test_ranks_that_share_no_collective_are_read(tmp_path: Path) -> None:
    for rank in range(3):
        trace = synthetic_trace() | {"distributedInfo": {"rank": rank, "world_size": 3}}
        (tmp_path / f"{rank}.json").write_text(json.dumps(trace))

    found = load(parse(tmp_path, tmp_path / "job.pyprof2")).ranks

    assert found.is_large
    assert found.stragglers.empty


@pytest.mark.usefixtures("few")
def test_the_path_adds_up_and_runs_on_who_was_last(tmp_path: Path) -> None:
    found = load(_store(Job(4, slow={2: 1.2}), tmp_path)).ranks
    path = found.critical_path

    assert path["ns"].sum() == found.window_ns
    assert set(path.loc[path["kind"] == "own", "rank"]) >= {2}
    assert path.groupby("rank")["ns"].sum().idxmax() == 2


@pytest.mark.usefixtures("few")
def test_the_sentence_names_rank_and_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = _store(Job(4, pause={1: (2, 20_000.0)}, gap_us=200), tmp_path)

    assert main(["ranks", str(store)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("Rank 1 is slow: it waits for its host")
    assert "most of it before aten::gemm_2 (20." in text
    assert "as the others it would save 19." in text
    assert "of step 2 (by replay, 19." in text
    assert main(["ranks", str(store), "--by", "blame"]) == 2
    assert "4 ranks are too many for one graph" in capsys.readouterr().err


@pytest.mark.usefixtures("few")
def test_clocks_that_differ_leave_no_gain_and_no_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernels of one rank of four begin 200 us before what was recorded."""
    traces = write(simulate(Job(4, slow={1: 1.5})), tmp_path)
    document = json.loads(traces[2].read_bytes())
    for event in document["traceEvents"]:
        event["ts"] -= 200 * (event.get("cat") == "kernel")
    traces[2].write_text(json.dumps(document))
    store = parse(traces, tmp_path / "job.pyprof2")
    found = load(store).ranks

    assert found.is_large
    assert [(slow.rank, slow.place, slow.gain.gain_ns) for slow in found.slow_ranks] == [
        (1, None, None)
    ]
    assert main(["ranks", str(store)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "no critical path: GPU work begins up to" in said
    assert "and what that costs is not known" in said


def test_few_ranks_have_no_segments(tmp_path: Path) -> None:
    store = _store(Job(3), tmp_path)

    assert [len(list((store / name).iterdir())) for name in ("segments", "parts")] == [3, 3]
    assert not load(store).ranks.is_large
