"""Batch sizes of an entry point: which ones, by which clock, and what a failure is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest

from pyprof2.analysis.summaries.batch.limits import Tried, rows
from pyprof2.analysis.summaries.batch.model import MEMORY, STEP, THROUGHPUT, fit_model
from pyprof2.analysis.summaries.batch.recorded import Memory, Recorded
from pyprof2.capture.entry_process import EntryFacts, EntryRun, EntryRunError
from pyprof2.capture.sweep import CPU_TIME, WALL_TIME, Sweep, next_size, sizes_around, verify
from pyprof2.errors import CaptureError

if TYPE_CHECKING:
    from pathlib import Path


def recorded(batch: int, steps: list[int], clock: str | None = CPU_TIME) -> Recorded:
    parts = pd.Series({("forward", "matmul"): 100.0 * batch})
    memory = Memory({"forward": 1000 * batch}, over_base=True, reserved_ratio=1.0)
    return Recorded(batch, parts, [100 * batch], steps, is_gpu=False, memory=memory, clock=clock)


def process(wall: int, cpu: int, waits: int = 0, threads: int = 1) -> EntryFacts:
    return EntryFacts(
        threads=threads, wall_ns=[wall, 2 * wall], cpu_ns=[cpu, cpu], waits=[waits] * 2
    )


@pytest.mark.parametrize(
    ("default", "sizes"),
    [(1, [1, 2, 4, 8]), (2, [1, 2, 4, 8]), (3, [1, 3, 6, 12]), (32, [16, 32, 64, 128])],
)
def test_sizes_double_around_the_default(default: int, sizes: list[int]) -> None:
    assert sizes_around(default) == sizes


def test_the_fastest_process_counts_and_the_interval_is_that_of_all() -> None:
    model = fit_model([recorded(b, [1000 + 100 * b, 1200 + 120 * b]) for b in (2, 4, 8)])

    (step,) = [a for a in model.answers(4) if a.measure == STEP]
    assert (step.value, step.lo, step.hi, step.status) == (1400, 1400, 1680, "measured")
    # They differ by 20 %, which is more than the 5 % that an interval has at least.
    between = model.answer(STEP, 6, {})
    assert between.value == 1600
    assert (between.lo, between.hi) == (1280, 1920)


def test_steps_of_a_recording_count_by_their_median_as_before() -> None:
    model = fit_model([recorded(b, [1000, 1100, 1900], None) for b in (2, 4, 8)])

    assert model.answer(STEP, 4, {}).value == 1100


@pytest.mark.parametrize(
    ("facts", "clock", "step"),
    [
        pytest.param(process(100, 99), CPU_TIME, 99, id="one thread that works"),
        pytest.param(process(400, 98), CPU_TIME, 98, id="kept from the CPU by others"),
        pytest.param(process(400, 98, waits=1), WALL_TIME, 400, id="waits in each iteration"),
        pytest.param(process(100, 99, waits=1), CPU_TIME, 99, id="a wait that takes no time"),
        pytest.param(process(100, 190, threads=2), WALL_TIME, 100, id="two threads"),
    ],
)
def test_cpu_time_is_that_of_a_step_only_if_one_thread_works(
    facts: EntryFacts, clock: str, step: int
) -> None:
    sweep = Sweep({2: recorded(2, [])}, times={2: [facts]})

    assert sweep.clock == clock
    assert sweep.recorded(2).step_ns == [step]


def test_a_gpu_is_waited_for_so_its_time_is_that_of_the_wall() -> None:
    facts = process(100, 99)
    facts.used_gpu = True

    assert Sweep(times={2: [facts]}).clock == WALL_TIME


def test_too_few_sizes_that_ran_are_an_error_that_names_the_others() -> None:
    sweep = Sweep({2: recorded(2, [1])}, failed={4: EntryRunError("a.py:3: no room")})

    with pytest.raises(CaptureError, match=r"3 batch sizes, and ran have 1\. batch 4: a\.py:3: no"):
        sweep.model()


def swept(steps: dict[int, list[int]]) -> Sweep:
    """Return a sweep of these times, of two processes for each batch size."""
    times = {size: [process(2 * ns, ns) for ns in each] for size, each in steps.items()}
    return Sweep({size: recorded(size, []) for size in steps}, times=times)


STEADY = {size: [1000 + 100 * size] * 2 for size in (4, 8, 16, 32)}
ROUGH = {size: [1000 + 100 * size, 1300 + 130 * size] for size in (4, 8, 16, 32)}
"""Processes of one batch size take 30 % longer than the others."""


@pytest.mark.parametrize(
    ("steps", "asked", "size"),
    [
        pytest.param(STEADY, [64], None, id="narrow already"),
        pytest.param(STEADY, [], None, id="nothing asked"),
        pytest.param(ROUGH, [24], None, id="inside of what ran"),
        pytest.param(ROUGH, [48], 48, id="less than the double"),
        pytest.param(ROUGH, [48, 1000], 64, id="the double"),
    ],
)
def test_batch_sizes_double_on_while_the_interval_of_what_is_asked_is_wide(
    steps: dict[int, list[int]], asked: list[int], size: int | None
) -> None:
    assert next_size(swept(steps), asked) == size


def test_no_batch_size_is_run_beyond_one_that_had_too_little_memory() -> None:
    sweep = swept(ROUGH)
    sweep.failed[64] = EntryRunError("a.py:3: no room", out_of_memory=True)

    assert next_size(sweep, [1000]) is None


def test_what_was_tried_takes_the_place_of_what_was_predicted() -> None:
    model = fit_model([recorded(b, [1000 * b]) for b in (2, 4, 8)])
    tried = {
        6: Tried(6, recorded(6, [5000, 5500])),
        16: Tried(16, None, "a.py:3: no room", out_of_memory=True),
        17: Tried(17, None, "a.py:4: wrong"),
    }

    found = {(r["batch_size"], r["measure"]): r for r in rows(model, [4, 6], {}, tried)}

    assert found[6, STEP]["value"] == 5000
    assert found[6, THROUGHPUT]["value"] == 6 * 1e9 / 5000
    assert found[6, MEMORY]["value"] == 6000
    statuses = {size: {r["status"] for (b, _), r in found.items() if b == size} for size in tried}
    assert statuses[6] == {"verified", "not recorded"}
    assert statuses[16] == {"out of memory"}
    assert statuses[17] == {"failed"}
    assert all(found[size, STEP]["value"] is None for size in (16, 17))
    assert "verified" not in {r["status"] for (b, _), r in found.items() if b == 4}


LIMITED = """\
import torch

def skyline_model_provider():
    return torch.nn.Linear(4, 2)

def skyline_input_provider(batch_size=4):
    return (torch.ones(batch_size, 4),)

def skyline_iteration_provider(model):
    def iteration(x):
        model(x).sum().backward()
        if len(x) > 8:
            torch.empty(1 << 60)
    return iteration
"""


@pytest.mark.slow
@pytest.mark.torch
def test_a_size_that_runs_out_of_memory_is_never_called_verified(tmp_path: Path) -> None:
    """The allocator of torch itself refuses; nothing is put in its place."""
    pytest.importorskip("torch")
    path = tmp_path / "limited.py"
    path.write_text(LIMITED)

    found = verify(EntryRun(path, threads=1), 9, CPU_TIME, 1)

    assert found.status == "out of memory"
    assert found.failure is not None
    assert f"{path}:13: RuntimeError: " in found.failure
    assert {answer.value for answer in found.answers()} == {None}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("line", "message", "timeout"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by signal 9;", None),
        ("import time; time.sleep(600)", "did not end within 20 s; see --timeout", 20.0),
    ],
)
def test_a_process_that_ends_without_a_word_or_not_at_all_is_a_failure(
    line: str, message: str, timeout: float | None, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "ends.py"
    path.write_text(f"{line}\n{LIMITED}")

    with pytest.raises(EntryRunError, match=message):
        verify_or_raise(path, timeout)


def verify_or_raise(path: Path, timeout: float | None) -> None:
    found = verify(EntryRun(path, timeout=timeout), 4, CPU_TIME, 1)
    assert found.status == "failed"
    raise EntryRunError(str(found.failure))
