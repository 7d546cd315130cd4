"""The batch model against truths that were made up: formulas, and memory of a GPT block."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from pyprof2.analysis.summaries.batch.limits import limits, rows
from pyprof2.analysis.summaries.batch.model import (
    KERNELS,
    MEMORY,
    STEP,
    THROUGHPUT,
    Model,
    fit_model,
)
from pyprof2.analysis.summaries.batch.recorded import (
    CALLS,
    TENSORS,
    Memory,
    Recorded,
    concurrency_of,
)
from pyprof2.analysis.summaries.batch.work import ELEMENTS
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MS = 1_000_000
SIZES = (16, 32, 64, 128, 256, 512)
HELD_OUT = (24, 48, 100, 200, 400)


def made(
    batch: int, parts: dict[tuple[str, str], float], step_ms: Sequence[float] = (), **fields: Any
) -> Recorded:
    """Return a recording whose parts and steps take so many ms."""
    index = pd.MultiIndex.from_tuples(list(parts), names=["phase", "group"])
    times = pd.Series([MS * time for time in parts.values()], index, dtype=float)
    steps = [round(MS * time) for time in step_ms]
    work = [round(times.sum())] * max(1, len(steps))
    return Recorded(batch, times, work, steps, **fields)


def modelled(
    kernels: Callable[[int], dict[str, float]],
    step: Callable[[int], float],
    noise: float = 0.01,
) -> Model:
    """Return the model of five steps at each of `SIZES`, with noise."""
    random = np.random.default_rng(7)
    recordings = []
    for batch in SIZES:
        times = {
            (phase, "matmul"): time * (1 + noise * random.standard_normal())
            for phase, time in kernels(batch).items()
        }
        steps = [step(batch) * (1 + noise * random.standard_normal()) for _ in range(5)]
        recordings.append(made(batch, times, steps))
    return fit_model(recordings)


def waves(batch: int, size: int) -> int:
    return size * math.ceil(batch / size)


# What kernels of a phase take and what a step takes, in ms.
TRUTHS: dict[str, tuple[Callable[[int], dict[str, float]], Callable[[int], float]]] = {
    "affine": (lambda b: {"forward": 2 + 0.11 * b}, lambda b: 2.5 + 0.11 * b),
    "large fixed part": (lambda b: {"forward": 17 + 0.11 * b}, lambda b: 18 + 0.11 * b),
    "proportional": (lambda b: {"forward": 0.2 * b}, lambda b: 0.2 * b),
    "constant": (lambda _: {"optimizer": 17.0}, lambda _: 18.0),
    "hinge of the host": (lambda b: {"forward": 2 + 0.11 * b}, lambda b: max(18, 2 + 0.11 * b)),
    "late hinge": (lambda b: {"forward": 1 + 0.2 * b}, lambda b: max(30, 1 + 0.2 * b)),
    "three phases": (
        lambda b: {"forward": 1 + 0.05 * b, "backward": 2 + 0.1 * b, "optimizer": 4.0},
        lambda b: 7.5 + 0.15 * b,
    ),
    "waves": (
        lambda b: {"forward": 2 + 0.11 * waves(b, 8)}, lambda b: 2.2 + 0.11 * waves(b, 8)
    ),
    "waves over a floor": (
        lambda b: {"forward": 2 + 0.11 * waves(b, 16)},
        lambda b: max(18, 2 + 0.11 * waves(b, 16)),
    ),
    "data loading": (lambda b: {"forward": 5 + 0.01 * b}, lambda b: 6 + 0.08 * b),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_held_out_batches_of_a_known_truth_are_within_three_percent(name: str) -> None:
    kernels, step = TRUTHS[name]
    model = modelled(kernels, step)
    errors, outside = [], []
    for batch in HELD_OUT:
        answer = model.answer(STEP, batch, {})
        truth = MS * step(batch)
        assert answer.value is not None
        assert answer.lo is not None
        assert answer.hi is not None
        errors.append(abs(answer.value / truth - 1))
        outside += [] if answer.lo <= truth <= answer.hi else [batch]

    assert np.median(errors) < 0.03
    assert outside == []


def test_the_sum_of_parts_is_the_time_of_kernels() -> None:
    kernels, step = TRUTHS["three phases"]

    answer = modelled(kernels, step, noise=0).answer(KERNELS, 100, {})

    assert answer.value == pytest.approx(MS * (1 + 5 + 2 + 10 + 4), abs=1)
    assert answer.lo == pytest.approx(0.95 * MS * 22, abs=1)
    assert answer.hi == pytest.approx(1.05 * MS * 22, abs=1)
    assert answer.status == "interpolated"


def test_the_knee_is_where_kernels_take_longer_than_the_host() -> None:
    kernels, step = TRUTHS["hinge of the host"]

    found = limits(modelled(kernels, step, noise=0), None)

    # 2 + 0.11 b > 18 from b = 145.45 on; 0.9 / 0.11 ms = b / (2 + 0.11 b) at b = 163.6.
    assert found.knee == 146
    assert found.enough == 164
    assert found.asymptote == pytest.approx(1000 / 0.11)


def test_a_measured_batch_has_the_median_and_the_range_of_its_steps() -> None:
    steps = [3.0, 1.0, 2.0]
    model = fit_model([made(b, {("forward", "conv"): b}, steps) for b in (1, 2, 4)])

    step, kernels, rate, _ = model.answers(2)

    assert (step.value, step.lo, step.hi, step.status) == (2 * MS, MS, 3 * MS, "measured")
    assert (kernels.value, kernels.status) == (2 * MS, "measured")
    assert rate.measure == THROUGHPUT
    assert (rate.lo, rate.value, rate.hi) == pytest.approx((2 / 0.003, 2 / 0.002, 2 / 0.001))


def test_beyond_the_recordings_the_factor_is_said_and_the_interval_is_wider() -> None:
    model = fit_model([made(b, {("forward", "conv"): 1 + b}, [2.0 + b]) for b in (4, 8, 16)])

    twice, far, below = (model.answer(STEP, batch, {}) for batch in (32, 64, 1))

    assert [each.status[-2:] for each in (twice, far, below)] == ["2x", "4x", "4x"]
    assert twice.lo == pytest.approx(0.95 * 34 * MS, abs=1)
    assert far.lo == pytest.approx(0.85 * 66 * MS, abs=1)
    assert below.value == pytest.approx(3 * MS, abs=1)


def test_steps_that_scatter_make_the_interval_wider() -> None:
    # Quartiles 1.5 and 2.5 of 1, 2, 3: half their distance is a quarter of the median.
    model = fit_model([made(b, {("forward", "conv"): b}, [b, 2 * b, 3 * b]) for b in (1, 2, 4)])

    answer = model.answer(STEP, 3, {})

    assert (answer.value, answer.lo, answer.hi) == (6 * MS, 4.5 * MS, 7.5 * MS)


def test_without_steps_there_is_no_time_of_a_step() -> None:
    model = fit_model([made(b, {("forward", "conv"): b}) for b in (1, 2, 4)])

    found = {row["measure"]: (row["value"], row["status"]) for row in rows(model, [2])}

    assert found == {
        STEP: (None, "not a step"),
        KERNELS: (2 * MS, "measured"),
        THROUGHPUT: (None, "not a step"),
        MEMORY: (None, "not recorded"),
    }


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        pytest.param([8, 16], "3 or more batch sizes, better four .*; given: 8, 16", id="two"),
        pytest.param([], "given: none", id="none"),
        pytest.param([8, 8, 16], "batch size 8 is given twice", id="one twice"),
    ],
)
def test_too_few_recordings_are_one_clear_error(sizes: list[int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        fit_model([made(batch, {("forward", "conv"): 1.0}) for batch in sizes])


def test_a_recording_without_work_in_its_steps_is_one_clear_error() -> None:
    empty = made(4, {("forward", "conv"): 0.0}, [1.0])

    with pytest.raises(UsageError, match="batch size 4: no kernel and no op"):
        fit_model([*(made(b, {("forward", "conv"): 1.0}, [2.0]) for b in (1, 2)), empty])


# What a GPT block of C = 256, T = 64 with Adam allocates on the CPU over what was before.
def gpt_block(batch: int) -> dict[str, int]:
    backward = 1_312_768 * batch + 1_049_608
    return {
        "forward": 1_116_160 * batch + 16,
        "backward": backward,
        "optimizer": 5_260_304,
    }


PEAKS = {1: 5_260_304, 2: 5_260_304, 4: 6_300_680, 8: 11_551_752, 16: 22_053_896, 32: 43_058_184}


def with_memory(batch: int, peaks: dict[str, int], **fields: Any) -> Recorded:
    memory = Memory(peaks, over_base=False, reserved_ratio=1.25)
    return made(batch, {("forward", "matmul"): batch}, [batch], memory=memory, **fields)


def test_memory_of_a_gpt_block_is_exact_in_each_phase() -> None:
    model = fit_model([with_memory(b, gpt_block(b)) for b in (4, 8, 32)])

    found = {phase: curve.lines[0] for phase, curve in model.memory.items()}

    assert (found["forward"].fixed, found["forward"].slope) == pytest.approx((16, 1_116_160))
    assert (found["backward"].fixed, found["backward"].slope) == pytest.approx(
        (1_049_608, 1_312_768)
    )
    assert (found["optimizer"].fixed, found["optimizer"].slope) == pytest.approx((5_260_304, 0))
    assert {b: model.answer(MEMORY, b, {}).value for b in PEAKS} == PEAKS


def test_a_phase_that_bends_is_exact_on_both_sides() -> None:
    peaks = {b: {"backward": max(3_000_000 + 10 * b, 1_312_768 * b)} for b in (1, 2, 4, 8, 16, 32)}

    model = fit_model([with_memory(b, own) for b, own in peaks.items()])

    assert model.memory["backward"].residual == pytest.approx(0, abs=1e-9)
    assert model.answer(MEMORY, 24, {}).value == 24 * 1_312_768


def test_the_largest_batch_fits_with_what_the_allocator_keeps() -> None:
    model = fit_model([with_memory(b, gpt_block(b)) for b in (4, 8, 16)])

    found = limits(model, 100_000_000)

    # All that 16 take may grow; beyond 32 the width of 5 % grows: of 3.3 times 16 it is 0.05 · 2.3.
    def needs(b: int) -> float:
        width = 0.05 * max(1, b / 16 - 1)
        return 1.25 * math.ceil((1 + width) * gpt_block(16)["backward"] * b / 16)

    assert found.largest is not None
    assert needs(found.largest) <= 98_000_000 < needs(found.largest + 1)
    assert found.largest_status.startswith("extrapolated 3.")
    # As far as is known: 1.25 · (1,312,768 · 58 + 1,049,608) = 96,487,690, and 98,128,650 at 59.
    assert found.expected == 58


@pytest.mark.parametrize(
    ("peaks", "capacity", "words"),
    [
        pytest.param({"forward": 7}, None, "--memory 80GB or --device A100-80", id="no capacity"),
        pytest.param({"forward": 7}, 1000, "does not grow with the batch", id="constant"),
        pytest.param({"forward": 7000}, 1000, "not even a batch of 1", id="too large"),
        pytest.param({}, 1000, "not recorded", id="no memory"),
    ],
)
def test_where_no_largest_batch_is_known_it_says_why(
    peaks: dict[str, int], capacity: int | None, words: str
) -> None:
    model = fit_model([with_memory(b, peaks) for b in (4, 8, 16)])

    found = limits(model, capacity)

    assert found.largest is None
    assert words in found.largest_status


# The most that is allocated in a step of the entry points in `examples`, on the CPU, as recorded.
RECORDED = {
    "transformer": (
        [128264, 250888, 501768, 1003528, 2007048, 4014088, 8028168, 16056328],
        [117256, 234504, 469000, 937992, 1875976, 3751944, 7503880, 15007752],
        142604,
    ),
    "gnmt": (
        [246208, 319424, 465856, 800232, 1551208, 3081832, 6163560, 12327016],
        [152992, 222888, 382376, 731880, 1414504, 2808424, 5616744, 11233384],
        247600,
    ),
    "resnet": (
        [1413680, 2822704, 5640752, 11276848, 22549040, 45093424, 90182192, 180359728],
        [1189504, 2336384, 4630144, 9217664, 18392704, 36742784, 73442944, 146843264],
        35832,
    ),
}
DOUBLED = (1, 2, 4, 8, 16, 32, 64, 128)


def recorded_peaks(name: str) -> dict[int, dict[str, int]]:
    backward, forward, optimizer = RECORDED[name]
    return {
        batch: {"backward": most, "forward": before, "optimizer": optimizer}
        for batch, most, before in zip(DOUBLED, backward, forward, strict=True)
    }


@pytest.mark.kept("transformer-4-11", "resnet-3-9", "gnmt-7-1")
@pytest.mark.parametrize(("count", "every"), [(3, 9), (4, 11), (7, 1)])
@pytest.mark.parametrize("name", RECORDED)
def test_memory_of_entry_points_is_foretold_by_some_of_their_recordings(
    name: str, count: int, every: int
) -> None:
    peaks = recorded_peaks(name)
    outside = []
    for used in list(combinations(DOUBLED, count))[::every]:
        model = fit_model([with_memory(batch, peaks[batch]) for batch in used])
        for batch in set(DOUBLED) - set(used):
            if used[0] <= 2 * batch and batch <= 2 * used[-1]:
                answer = model.answer(MEMORY, batch, {})
                assert answer.lo is not None
                assert answer.hi is not None
                truth = max(peaks[batch].values())
                outside += [] if answer.lo <= truth <= answer.hi else [(used, batch)]
                # Between two that double nothing is as uncertain as a factor of two.
                if {batch // 2, 2 * batch} <= set(used):
                    assert answer.hi / answer.lo < 2
    assert outside == []


def test_what_is_always_allocated_is_fixed_and_of_the_rest_nothing_says_it() -> None:
    def model(always: int) -> Model:
        memory = {
            b: Memory(
                {"forward": 1000 + 10 * b}, over_base=False, reserved_ratio=1.0, always=always
            )
            for b in (8, 16, 32)
        }
        return fit_model([made(b, {("forward", "mm"): b}, memory=m) for b, m in memory.items()])

    known, unknown = (model(always).answer(MEMORY, 64, {}) for always in (1000, 0))

    # Without it all of the 1,320 may grow: no part of them is known to be fixed.
    assert (known.value, unknown.value) == (1640, 1640)
    assert known.hi == pytest.approx(1.05 * 1640, abs=1)
    assert unknown.hi == pytest.approx(1.05 * 2640, abs=1)
    assert [known.lo, unknown.lo] == pytest.approx([0.95 * 1640] * 2, abs=1)


def test_a_small_batch_may_hold_less_per_sample_than_all_that_were_recorded() -> None:
    def held(batch: int, length: int) -> int:
        return 20_000_000 + 500 * batch * length**2

    recordings = [
        replace(
            shaped(b, n),
            memory=Memory(
                {"forward": held(b, n)}, over_base=False, reserved_ratio=1.0, always=17_000_000
            ),
        )
        for b, n in ((2, 53), (16, 66), (64, 64), (256, 128))
    ]
    model = fit_model(recordings)

    for batch, length in ((4, 47), (8, 47), (32, 60), (128, 90)):
        answer = model.answer(MEMORY, batch, {})
        assert answer.lo is not None
        assert answer.hi is not None
        assert answer.lo <= held(batch, length) <= answer.hi, batch


def shaped(batch: int, length: int, weights: int = 1000) -> Recorded:
    """Return a pass of one op on `batch` · `length` · 8 elements and weights; 3 ns for each."""
    calls = pd.DataFrame([("forward", "matmul", "mm|0", 0, np.nan)], columns=list(CALLS))
    shapes = [(batch, length, 8), (weights,)]
    tensors = pd.DataFrame(
        [(0, place, float(np.prod(shape)), shape) for place, shape in enumerate(shapes)],
        columns=list(TENSORS),
    )
    time = 0.5 + 3e-6 * batch * length * 8
    return made(batch, {("forward", "matmul"): time}, calls=calls, tensors=tensors)


def test_a_dimension_that_differs_is_found_and_named() -> None:
    model = fit_model([shaped(b, n) for b, n in ((2, 50), (8, 80), (32, 60), (64, 100))])

    assert model.work.free == {"S": [50, 80, 60, 100]}
    assert model.work.per_sample.tolist() == [400, 640, 480, 800]


def test_the_interval_spans_the_work_per_sample_that_was_seen() -> None:
    model = fit_model([shaped(b, n) for b, n in ((2, 50), (8, 80), (32, 60), (64, 100))])

    answer = model.answer(KERNELS, 16, {})
    lo, hi = (MS * (0.5 + 3e-6 * 16 * 8 * n) for n in (50, 100))

    assert answer.lo == pytest.approx(0.95 * lo, abs=2)
    assert answer.hi == pytest.approx(1.05 * hi, abs=2)


def test_a_dimension_that_is_given_fixes_the_work() -> None:
    model = fit_model([shaped(b, n) for b, n in ((2, 50), (8, 80), (32, 60), (64, 100))])
    truth = MS * (0.5 + 3e-6 * 16 * 70 * 8)

    answer = model.answer(KERNELS, 16, {"S": 70})

    assert answer.value == pytest.approx(truth, abs=1)
    assert answer.hi == pytest.approx(1.05 * truth, abs=2)
    assert model.answer(KERNELS, 8, {"S": 80}).status == "measured"
    assert model.answer(KERNELS, 8, {"S": 81}).status == "interpolated"


@pytest.mark.parametrize("length", [50, 51])
def test_recordings_of_one_length_differ_in_the_batch_alone(length: int) -> None:
    model = fit_model([shaped(b, n) for b, n in ((2, 50), (8, length), (32, 50), (64, 50))])

    assert not model.work.differs
    assert model.answer(KERNELS, 16, {}).value == pytest.approx(
        MS * (0.5 + 3e-6 * 16 * 50 * 8), rel=0.02
    )


def test_a_buffer_of_a_library_that_grows_with_the_batch_is_no_dimension() -> None:
    # In pages of 4096, with a fixed part: 28,672 at a batch of 1, 1,097,728 at 64.
    sizes = {1: 28672, 2: 45056, 4: 81920, 8: 151552, 16: 278528, 32: 548864, 64: 1097728}

    def recorded(batch: int, size: int) -> Recorded:
        calls = pd.DataFrame([("forward", "rnn", "lstm|0", 0, np.nan)], columns=list(CALLS))
        shapes = [(12, batch, 4096), (size,)]
        tensors = [(0, at, float(np.prod(shape)), shape) for at, shape in enumerate(shapes)]
        frame = pd.DataFrame(tensors, columns=list(TENSORS))
        return made(batch, {("forward", "rnn"): batch}, calls=calls, tensors=frame)

    model = fit_model([recorded(batch, size) for batch, size in sizes.items()])

    with_buffer = model.work.recorded(ELEMENTS).sum(axis=0) / model.batches
    assert with_buffer.max() > 1.1 * with_buffer.min()
    assert not model.work.free
    assert not model.work.differs


def test_what_only_one_sample_has_another_shape_of_is_no_dimension() -> None:
    model = fit_model([shaped(b, n) for b, n in ((1, 51), (2, 50), (8, 50), (32, 50))])

    assert not model.work.free
    assert fit_model([shaped(b, n) for b, n in ((1, 50), (2, 60), (8, 50))]).work.free == {
        "S": [50, 60, 50]
    }


def test_an_unknown_dimension_is_an_error_that_lists_those_there_are() -> None:
    model = fit_model([shaped(b, n) for b, n in ((2, 50), (8, 80), (32, 60))])

    with pytest.raises(UsageError, match=r"L: no dimension of this name .*; there is S"):
        model.answers(16, {"L": 70})


def lstm(batch: int, length: int = 7, *, copies: int | None = None) -> Recorded:
    """Return one of an LSTM on a CPU, as of oneDNN: a buffer in pages, a copy into order."""
    copies = int(batch > 1) if copies is None else copies
    calls = [("backward", "rnn", "lstm|0", 0, np.nan)]
    calls += [("forward", "copy", f"copy|{number}", 1, np.nan) for number in range(copies)]
    of_lstm = [(batch, length, 24), (24, 96), (PAGES[batch],)]
    shapes = [(0, at, shape) for at, shape in enumerate(of_lstm)] + [(1, 0, (batch, length, 24))]
    tensors = [(of, at, float(np.prod(shape)), shape) for of, at, shape in shapes]
    return made(
        batch, {("backward", "rnn"): batch, ("forward", "copy"): batch},
        calls=pd.DataFrame(calls, columns=list(CALLS)),
        tensors=pd.DataFrame(tensors, columns=list(TENSORS)),
    )  # fmt: skip


PAGES = {1: 28672, 2: 32768, 3: 53248, 4: 57344, 5: 77824, 8: 106496, 10: 135168, 20: 266240}
"""What oneDNN's LSTM takes for 7 × 24: whole pages, and more for some batches."""


@pytest.mark.parametrize(
    "batches", [(2, 5, 10, 20), (2, 3, 8, 20), (1, 2, 4, 8), (1, 3, 8, 20)], ids=str
)
def test_what_a_library_rounds_and_one_sample_spares_is_no_difference(
    batches: tuple[int, ...],
) -> None:
    model = fit_model([lstm(batch) for batch in batches])

    assert not model.work.free
    assert not model.work.differs


@pytest.mark.parametrize("odd", [1, 2, 8])
def test_longer_samples_are_a_difference_beside_a_buffer(odd: int) -> None:
    longer = [lstm(batch, 9 if batch == odd else 7) for batch in (1, 2, 4, 8)]

    assert fit_model(longer).work.differs, "they are in tensors of more dimensions too"


def test_copies_that_others_than_one_sample_lack_are_a_difference() -> None:
    model = fit_model([lstm(1), lstm(2), lstm(4, copies=3), lstm(8)])

    assert model.work.differs


def test_other_calls_that_one_sample_lacks_are_a_difference() -> None:
    recordings = [lstm(batch) for batch in (1, 2, 4, 8)]
    # The same work, but of an op that is no copy.
    for each in recordings:
        each.calls.replace({"copy": "rnn", "forward": "backward"}, inplace=True)  # noqa: PD002

    assert fit_model(recordings).work.differs


def _held(batch: int, jump: int, size: int) -> Memory:
    held = 100 * 10**6 + 4 * 10**6 * batch + size * 10**6 * (batch >= jump)
    return Memory({"forward": held}, over_base=False, reserved_ratio=1.0, always=100 * 10**6)


@pytest.mark.parametrize("jump", [33, 40, 48, 64])
@pytest.mark.parametrize("size", [100, 400])
def test_no_size_is_sure_beyond_a_jump_of_memory(jump: int, size: int) -> None:
    """A workspace that appears somewhere between two recordings; the truth fits up to `fits`."""
    model = fit_model(
        [made(b, {("forward", "matmul"): b}, memory=_held(b, jump, size)) for b in (8, 16, 32, 64)]
    )
    for capacity in (300, 350, 400, 600, 700):
        usable = capacity * 10**6 * 0.98
        fits = max(b for b in range(1, 600) if _held(b, jump, size).peaks["forward"] <= usable)
        found = limits(model, capacity * 10**6)
        assert found.largest is None or found.largest <= fits
        assert found.most is None or found.most >= min(fits, 128)


def test_memory_on_one_line_is_as_sure_as_before() -> None:
    model = fit_model(
        [made(b, {("forward", "matmul"): b}, memory=_held(b, 10**6, 0)) for b in (8, 16, 32, 64)]
    )
    found = limits(model, 300 * 10**6)

    assert (found.largest or 0) >= 0.9 * (300 * 0.98 - 100) / 4


LATE_HOST: dict[str, Callable[[int], float]] = {
    "host-bound in all recordings": lambda b: max(7.4, 1 + 0.03 * b),
    "a floor, then a line": lambda b: max(3.0, 1 + 0.03 * b),
}


@pytest.mark.parametrize("concurrency", [1.0, 2.0])
@pytest.mark.parametrize("step", LATE_HOST.values(), ids=LATE_HOST)
def test_a_step_is_never_shorter_than_its_device_is_busy(
    step: Callable[[int], float], concurrency: float
) -> None:
    """Kernels of 1 + 0.03 ms for each sample, on one stream or two, behind a host."""
    recordings = [
        made(b, {("forward", "matmul"): concurrency * (1 + 0.03 * b)}, [step(b)] * 3,
             concurrency=concurrency)
        for b in (8, 16, 32, 64)
    ]  # fmt: skip
    model = fit_model(recordings)
    for batch in (96, 128, 256, 512, 1000):
        answer, kernels = (model.answer(measure, batch, {}) for measure in (STEP, KERNELS))
        assert answer.value is not None
        assert kernels.value is not None
        assert answer.value >= kernels.value / concurrency - 1
        assert answer.value == pytest.approx(MS * step(batch), rel=0.05)
        assert (answer.lo or 0) >= (kernels.lo or 0) / concurrency - 1
        assert (answer.hi or 0) >= answer.value


def test_the_kernels_of_two_streams_run_at_one_time() -> None:
    rows = pd.DataFrame({"start_ns": [0, 0, 100], "dur_ns": [100, 100, 100]})

    assert concurrency_of(rows) == 1.5
    assert concurrency_of(rows.iloc[:0]) == 1.0
