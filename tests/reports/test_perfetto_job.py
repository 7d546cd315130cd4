"""Tracks of what ranks did together: collectives, waits, the critical path and blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import pyprof2
from pyprof2.reports.perfetto.export import PerfettoQuery, show
from pyprof2.reports.perfetto.job import unaligned
from tests.analysis.job.job_generator import Job, Made, simulate, write
from tests.reports.perfetto_reader import Trace, read

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.analysis.intervals import Int
    from pyprof2.api.run import Run


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Made, Trace]:
    folder = tmp_path_factory.mktemp("job")
    made = simulate(Job(3, slow={2: 1.2}, one_stream=True))
    run = pyprof2.load(pyprof2.parse(write(made, folder), folder / "job.pyprof2"))
    assert show(run, PerfettoQuery(folder / "job.pftrace")) == []
    return run, made, read(folder / "job.pftrace")


def test_every_collective_has_its_group_number_and_bytes(
    exported: tuple[Run, Made, Trace],
) -> None:
    _, made, trace = exported
    sizes = [int(event["name"]) for event in made.events[0] if event["what"] == "reduce"]

    for rank in range(3):
        own = [s for s in trace.on("job", "collectives") if s.track[0].startswith(f"rank {rank}")]
        assert [(s.args["seq"], s.args["in_bytes"]) for s in own] == list(enumerate(sizes))
        assert {(s.name, s.args["group_desc"], s.args["group_size"]) for s in own} == {
            ("all_reduce", "dp", 3)
        }
        durations = [event["dur"] for event in made.events[rank] if event["what"] == "reduce"]
        found = [(s.end or 0) - s.start for s in own]
        assert np.abs(np.array(found) - 1000 * np.array(durations)).max() <= 1


def test_waits_last_until_the_last_one_arrives(exported: tuple[Run, Made, Trace]) -> None:
    run, made, trace = exported
    waits = trace.on("job", "waits")

    assert {s.name for s in waits if s.track[0].startswith("rank 0")} == {"waits for rank 2"}
    total = sum((s.end or 0) - s.start for s in waits if s.track[0].startswith("rank 1"))
    assert total == pytest.approx(1000 * made.waits_us[1], rel=0.02)
    assert sum(s.args["wait_ns"] for s in waits) == int(run.ranks.members["wait_ns"].sum())


def test_the_path_runs_over_the_ranks_and_adds_up(exported: tuple[Run, Made, Trace]) -> None:
    run, _, trace = exported
    path = trace.on("job", "critical path")

    assert sum((s.end or 0) - s.start for s in path) == run.ranks.graph.window_ns
    # A stretch that is a kernel begins where that kernel does, on the clock of its rank.
    starts = {
        (s.track[0], s.start) for s in trace.slices if "kernel_id" in s.args
    }  # fmt: skip
    kernels = [s for s in path if s.args["kind"] == "kernel"]
    assert len(kernels) > 40
    near = [
        min(abs(s.start - start) for track, start in starts if track == s.track[0]) for s in kernels
    ]
    assert max(near) <= 2
    blame = trace.on("job", "blame")
    assert blame
    longest = max(blame, key=lambda s: s.args["excess_ns"])
    assert longest.track[0].startswith("rank 2")
    assert longest.name.startswith("+")


def test_without_findings_nothing_is_replayed(
    exported: tuple[Run, Made, Trace], tmp_path: Path
) -> None:
    show(exported[0], PerfettoQuery(tmp_path / "x.pftrace", findings=False))
    trace = read(tmp_path / "x.pftrace")

    assert not trace.on("job", "critical path")
    assert len(trace.on("job", "collectives")) == 48


def test_clocks_that_drift_are_undone_to_the_ns() -> None:
    def align(time: Int) -> Int:
        moved: Int = time - 2_000_123 - np.rint((time - 10**9) * 50e-6).astype(np.int64)
        return moved

    own = np.arange(0, 10**11, 999_999_937)
    assert np.abs(unaligned(align, align(own)) - own).max() <= 1
