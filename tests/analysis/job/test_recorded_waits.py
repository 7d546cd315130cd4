"""Waits of streams for events, where the recorder writes them, are edges of the replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.job.rank_graph import AWAITED, WAIT
from pyprof2.analysis.job.what_if import INFERRED
from pyprof2.api.run import load, parse
from tests.analysis.job.job_generator import Job, simulate, write
from tests.analysis.job.job_members import replay_error_ns
from tests.kineto_events import complete, kernel, launch, load_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COMM, OWN = 20, 7


def _wait(
    number: int, at: float, onto: int, other: int, later: float = 0.15, **host: Any
) -> list[dict[str, Any]]:
    """Return how an event of one stream is recorded, and how another one is to wait for it."""
    said = {
        "cuda_sync_kind": "Stream Wait Event", "wait_on_stream": other, "stream": onto,
        "wait_on_cuda_event_record_corr_id": number, "correlation": number + 1, "device": 0,
    }  # fmt: skip
    rows = [
        launch(at, number, dur=0.1, name="cudaEventRecord"),
        launch(at + later, number + 1, dur=0.1, name="cudaStreamWaitEvent"),
        complete("cuda_sync", "Stream Wait Event", at + later, 0.1, tid=onto, pid=0, args=said),
    ]
    return [row | (host if row["cat"] == "cuda_runtime" else {}) for row in rows]


def _add_waits(path: Path) -> None:
    """Write what c10d asks for into a trace: collectives wait for kernels, the last for them."""
    document = json.loads(path.read_text())
    rows = document["traceEvents"]
    calls = {r["args"]["correlation"]: r for r in rows if r["cat"] == "cuda_runtime"}
    for event in [r for r in rows if r["cat"] == "kernel"]:
        number = event["args"]["correlation"]
        call = calls[number]
        host = {"pid": call["pid"], "tid": call["tid"]}
        # The 28 launches of a step: 24 kernels, and 4 collectives; the last one is a kernel.
        if event["tid"] == COMM:
            rows += _wait(100_000 + 2 * number, call["ts"] - 0.4, COMM, OWN, **host)
        elif number % 28 == 0:
            rows += _wait(100_000 + 2 * number, call["ts"] - 0.4, OWN, COMM, **host)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("recorded", [True, False])
def test_transfers_twice_as_long_in_a_job_that_waits_for_them(
    tmp_path: Path, *, recorded: bool
) -> None:
    """The gain is what the same job gains; without the waits recorded it says they are inferred."""
    job = Job(4, links=6.0)
    files = write(simulate(job), tmp_path)
    for file in files if recorded else ():
        _add_waits(file)
    row = load(parse(files, tmp_path / "job.pyprof2")).ranks.what_if(transfers=0.5).iloc[0]
    gained = 1000 * (simulate(job).end_us[-1] - simulate(Job(4, links=3.0)).end_us[-1])

    assert pd.isna(row["note"]) if recorded else row["note"] == INFERRED
    assert row["model_error_pct"] < 0.5
    assert row["gain_ns"] == pytest.approx(gained, rel=0.02)
    assert row["lo_ns"] <= row["gain_ns"] <= row["hi_ns"]


def test_a_stream_waits_for_what_was_launched_before_the_event(tmp_path: Path) -> None:
    """The second kernel of its stream is launched after the event: nothing waits for it.

    And the kernel that waits begins so late (99 us) after the one that it waited for that no wait
    would be inferred.
    """
    events = [
        launch(0, 1), kernel(10, 50, 1),
        *_wait(50, 6, COMM, OWN, later=6),
        launch(8, 2), kernel(61, 30, 2),
        launch(20, 3), kernel(159, 5, 3, {"stream": COMM}),
    ]  # fmt: skip
    graph = load_events(tmp_path, *events).ranks.graph
    kinds = graph.edge_kind
    (edge,) = (kinds == AWAITED).nonzero()[0].tolist()

    starts = graph.start - graph.start.min()
    assert starts[graph.graph.source[edge]] == 10_000
    assert starts[graph.graph.target[edge]] == 159_000
    assert not (kinds == WAIT).any()
    assert replay_error_ns(graph) == 0


def test_a_wait_that_is_recorded_is_not_inferred_too(tmp_path: Path) -> None:
    events = [
        launch(0, 1), kernel(10, 50, 1),
        *_wait(50, 6, COMM, OWN),
        launch(20, 2), kernel(62, 5, 2, {"stream": COMM}),
    ]  # fmt: skip
    kinds = load_events(tmp_path, *events).ranks.graph.edge_kind

    assert (kinds == AWAITED).sum() == 1
    assert not (kinds == WAIT).any()


def test_the_waits_of_a_real_recording_are_between_its_streams(
    shared_trace: Callable[[str], Path],
) -> None:
    """Six collectives wait for what the other stream did, and that one for them."""
    run = load(shared_trace("kineto/hta_alexnet_a100.json.gz"))
    graph = run.ranks.graph

    assert run.tables.frame("stalls")["waits_for_stream"].notna().sum() == 20
    assert replay_error_ns(graph) == 0
    assert (graph.edge_kind == AWAITED).sum() > 0
