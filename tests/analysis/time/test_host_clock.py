"""Clocks of host and device that drift: what they say of each other is not believed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyprof2 import load, parse
from pyprof2.analysis.job.what_if import evaluate, scale
from pyprof2.analysis.time.host_clock import clock_error_ns
from pyprof2.analysis.time.idle_causes import CLOCKS_DIFFER
from pyprof2.reports.heading import disturbances, sentence
from pyprof2.reports.page.job import job_of
from pyprof2.reports.ranks import sentences
from tests.analysis.job.job_generator import Job, simulate, write
from tests.kineto_events import kernel, launch, load_events, op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.api.run import Run

KERNELS = 60


def _run(folder: Path, ahead: Callable[[int], float], pause: float = 0) -> Run:
    """Return a loop whose host is late: an op every 300 µs, each with a kernel of 100.

    Args:
        folder: to write to.
        ahead: by how much the recorded kernel of each number begins before its launch.
        pause: how long the host does something else in an op, before each twentieth, in µs.
    """
    events: list[Any] = []
    begin = 1000.0
    for at in range(KERNELS):
        if pause and at % 20 == 10:
            events.append(op("aten::sort", begin, pause))
            begin += pause
        events += [op("aten::mm", begin, 290), launch(begin + 200, at)]
        events.append(kernel(begin + 200 - ahead(at), 100, at, name="gemm"))
        begin += 300
    return load_events(folder, *events)


DRIFTS = {
    "90 to 200 us": lambda at: 90 + 110 * at / KERNELS,
    "40 us": lambda _: 40.0,
    "from the middle on": lambda at: -10.0 if at < KERNELS // 2 else 150.0,
}
AGREE = {
    "after the launch": lambda _: -10.0,
    "one wrong time": lambda at: 150.0 if at == 30 else -10.0,
    "some ns before": lambda _: 0.8,
}


@pytest.mark.parametrize("ahead", DRIFTS.values(), ids=DRIFTS)
def test_clocks_that_differ_make_nobody_late(tmp_path: Path, ahead: Callable[[int], float]) -> None:
    run = _run(tmp_path, ahead)
    graph = run.ranks.graph
    gaps = run.idle
    between = gaps[gaps["kernel_id"] > 0]

    assert set(between["cause"]) == {"unknown"}
    assert set(between["note"]) == {CLOCKS_DIFFER}
    gain = evaluate(graph, scale(graph, "op", "aten::mm", 0.5))
    assert gain.gain_ns is None
    assert gain.note is not None
    assert "before its launch: the clocks of host and device differ" in gain.note
    assert any(
        text.startswith("no critical path: GPU work begins up to") for text in sentences(run.ranks)
    )
    advice = run.advise().set_index("rule")
    assert not (advice.loc[["host-bound", "sync", "data-loading"], "status"] == "fires").any()
    # Nor does it say that work at the start is missing.
    assert advice.loc["unrecorded-start", "status"] == "silent"
    assert advice.loc["clocks-differ", "status"] == "fires"
    said = sentence(run, disturbances(run.advise()))
    assert "the clocks of host and device differ" in said
    assert "record again" not in said


@pytest.mark.parametrize("ahead", AGREE.values(), ids=AGREE)
def test_clocks_that_agree_show_who_is_late(tmp_path: Path, ahead: Callable[[int], float]) -> None:
    run = _run(tmp_path, ahead)
    graph = run.ranks.graph

    assert "host_op" in set(run.idle["cause"])
    assert CLOCKS_DIFFER not in set(run.idle["note"])
    assert evaluate(graph, scale(graph, "op", "aten::mm", 0.5)).gain_ns is not None
    assert any(text.startswith("critical path, ") for text in sentences(run.ranks))
    advice = run.advise().set_index("rule")["status"]
    assert (advice["host-bound"], advice["clocks-differ"]) == ("fires", "silent")


def test_what_takes_ten_times_as_long_as_the_clocks_differ_by_is_certain(tmp_path: Path) -> None:
    idle = _run(tmp_path, lambda _: 90.0, pause=5000).idle
    times = idle[idle["op"] == "aten::sort"]

    assert set(times["cause"]) == {"host_op"}
    assert len(times) == KERNELS // 20


def test_the_error_is_that_of_most_and_not_of_a_wrong_time() -> None:
    ahead = np.full(1000, -5000)
    ahead[:40] = 200_000
    ahead[0] = 10**12

    assert clock_error_ns(ahead) == 200_000
    assert clock_error_ns(ahead[38:]) == 0
    assert clock_error_ns(ahead[:0]) == 0


@pytest.mark.parametrize("ahead_us", [0, 200])
@pytest.mark.parametrize(
    "job",
    [Job(3, slow={1: 1.5}), Job(3, gap_us=150, pause={1: (1, 4000.0)})],
    ids=["device", "host"],
)
def test_a_slow_rank_has_a_place_and_a_path_only_where_clocks_agree(
    tmp_path: Path, job: Job, ahead_us: int
) -> None:
    """Its own time is known all the same; the page has no path, and nobody who is to blame."""
    traces = write(simulate(job), tmp_path)
    for path in traces:
        document = json.loads(path.read_bytes())
        for event in document["traceEvents"]:
            event["ts"] -= ahead_us * (event.get("cat") == "kernel")
        path.write_text(json.dumps(document))
    store = parse(traces, tmp_path / "job.pyprof2")
    run = load(store)
    page = job_of(run, store)

    assert page is not None
    (slow,) = run.ranks.slow_ranks
    assert slow.rank == 1
    told = [slow.place is not None, page["path"] is not None, page["blame"] is not None]
    assert told == [not ahead_us] * 3
    assert (slow.gain.gain_ns is not None) == (not ahead_us)
