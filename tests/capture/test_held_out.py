"""A real block of a GPT: a model of four batch sizes predicts two others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.minutes
@pytest.mark.alone
def test_two_batch_sizes_inside_the_range_are_predicted() -> None:
    pytest.importorskip("torch")
    from benchmarks.batch_entry import CLOSE, FILE, KEPT_BACK, MODELLED, checks
    from pyprof2.analysis.summaries.batch.model import MEMORY, STEP
    from pyprof2.capture.entry_process import EntryRun
    from pyprof2.capture.sweep import CPU_TIME, measure

    sweep = measure(EntryRun(FILE, threads=1), sorted({*MODELLED, *KEPT_BACK}), 5)

    assert sweep.clock == CPU_TIME
    for check in checks(sweep):
        said, found = check.said, check.found
        assert said.value is not None
        assert said.lo is not None
        assert said.hi is not None
        assert said.status == "interpolated"
        if said.measure == MEMORY:
            assert said.value == pytest.approx(found, rel=0.005)
        elif check.spread > CLOSE:
            assert said.measure == STEP
            assert said.lo <= found <= said.hi
        else:
            assert said.value == pytest.approx(found, rel=0.10)


@pytest.mark.release
@pytest.mark.real_trace
def test_memory_of_given_recordings_that_are_left_out_lies_in_its_interval(shared: Path) -> None:
    from benchmarks.batch_left_out import of_traces

    if not (shared / "traces" / "more").exists():
        pytest.skip("no real traces")
    found = list(of_traces(shared / "traces"))

    assert [str(check) for check in found if not check.holds] == []
    assert len(found) == 4


@pytest.mark.minutes
@pytest.mark.release
def test_memory_of_an_entry_point_lies_in_its_interval_up_to_one_doubling_outside() -> None:
    pytest.importorskip("torch")
    from benchmarks.batch_left_out import ENTRY, SIZES, of_entry

    found = list(of_entry(ENTRY))

    assert [str(check) for check in found if not check.holds] == []
    assert len(found) > len(SIZES)
