"""A real block of a GPT: a model of four batch sizes predicts two others."""

from __future__ import annotations

import pytest


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
