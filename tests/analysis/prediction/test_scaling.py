"""More devices: buckets and queues by hand, and the laws of links."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.prediction.links import Link, link_named
from pyprof2.analysis.prediction.parameters import LinkFit, shipped
from pyprof2.analysis.prediction.scaling import (
    Gradients,
    buckets,
    evenly,
    finished,
    ready_times,
    scaled,
    slowest_of,
)
from pyprof2.errors import UsageError

MIB = 1 << 20
LINK = Link("one", 100.0, {2: LinkFit(10, 0.5), 8: LinkFit(20, 0.8)}, "by hand")


def test_the_first_bucket_is_small_and_the_others_large() -> None:
    sizes = np.array([0.5, 0.6, 20.0, 4.0, 1.0, 30.0, 2.0]) * MIB
    found = buckets(Gradients(np.array([10.0, 30, 20, 40, 50, 60, 70]), sizes, ""))

    assert (found.bytes / MIB).tolist() == pytest.approx([1.1, 25.0, 30.0, 2.0])
    # The third gradient was ready before the second, which the bucket had waited for.
    assert found.ready.tolist() == [30, 50, 60, 70]
    assert buckets(Gradients(np.zeros(0), np.zeros(0), "")).bytes.tolist() == []


def test_gradients_of_which_only_the_sum_is_known_come_evenly() -> None:
    found = evenly(100.0, 200.0, 51.0 * MIB)

    assert (found.bytes / MIB).tolist() == pytest.approx([1.0, 25.0, 25.0])
    assert found.ready.tolist() == pytest.approx([100 + 100 / 51, 100 + 2600 / 51, 200])
    assert evenly(0.0, 10.0, 100.0).bytes.tolist() == [100.0]


def test_all_reduces_queue_on_one_stream() -> None:
    assert finished(np.array([0.0, 5, 100]), np.array([10.0, 10, 10])) == 110
    assert finished(np.array([0.0, 5, 15]), np.array([10.0, 10, 10])) == 30


def test_a_link_takes_latency_and_twice_all_but_one_part() -> None:
    two, eight = (LINK.all_reduce(n, np.array([1e9]))[0] for n in (2, 8))

    assert two == pytest.approx(10_000 + 1e9 / 50)
    assert eight == pytest.approx(20_000 + 1.75e9 / 80)
    assert LINK.all_reduce(1, np.array([1e9])).tolist() == [0]
    assert LINK.all_reduce(4, np.array([0.0])).tolist() == [0]


def test_measurements_that_are_faster_with_more_devices_do_not_say_so() -> None:
    odd = Link("odd", 100.0, {2: LinkFit(30, 0.2), 8: LinkFit(10, 0.9)}, "by hand")

    two, four, eight = (odd.all_reduce(n, np.array([1e9]))[0] for n in (2, 4, 8))
    assert two <= four <= eight


@given(st.integers(2, 64), st.integers(2, 64), st.floats(1, 1e11), st.floats(1, 1e11))
def test_more_devices_or_bytes_never_take_less(n: int, m: int, size: float, more: float) -> None:
    for name in shipped().systems:
        link = link_named(name, shipped())
        few, many = sorted((n, m))
        small, large = sorted((size, more))

        assert link.all_reduce(few, np.array([small])) <= link.all_reduce(many, np.array([large]))


@given(st.floats(1, 1000), st.floats(1, 1000), st.integers(2, 64))
def test_a_faster_link_never_takes_longer(rate: float, other: float, n: int) -> None:
    slow, fast = (link_named(str(each), shipped()) for each in sorted((rate, other)))

    assert fast.all_reduce(n, np.array([1e8])) <= slow.all_reduce(n, np.array([1e8]))


@pytest.mark.parametrize("text", ["nvlink9", "-3", "0", "inf", "nan", ""])
def test_what_is_no_link_is_refused_with_the_names(text: str) -> None:
    with pytest.raises(UsageError, match="nvlink4"):
        link_named(text, shipped())


_TIMES = st.floats(0, 1e9)


@given(_TIMES, st.floats(1, 2), st.floats(0.5, 1), _TIMES, _TIMES, _TIMES)
def test_the_value_is_inside_its_intervals(
    value: float, up: float, down: float, waits: float, summed: float, whole: float
) -> None:
    alone = (value, value * down, value * up)
    exposed = min(waits, max(summed, whole))
    found = scaled(alone, (value + exposed, alone[1] + exposed), (summed, whole), None)

    assert found.lo <= found.value <= found.hi
    assert found.all_lo <= found.value <= found.all_hi


def test_a_step_of_ranks_by_hand() -> None:
    found = scaled((100.0, 90.0, 120.0), (105.0, 94.0), (30.0, 20.0), 7.0)

    assert found.exposed == 5
    assert found.value == pytest.approx(100 + 5 + 0.4 * 25)
    assert found.lo == pytest.approx(90 + 2)
    assert found.hi == pytest.approx(120 + 1.15 * 30 + 2 + 7)
    assert found.all_hi == pytest.approx(max(found.hi, 160))


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_slowest_of_ranks_is_the_mean_of_all_draws(ranks: int) -> None:
    times = [10, 12, 11, 10, 13, 10, 10, 11, 14, 10.0]
    every = [max(drawn) for drawn in itertools.product(times, repeat=ranks)]

    assert slowest_of(times, ranks) == pytest.approx(fmean(every) - fmean(times), abs=1e-9)
    assert slowest_of(times[:9], ranks) is None


def test_gradients_are_ready_when_what_was_launched_before_has_ended() -> None:
    found = ready_times(
        np.array([10, 30, 20]), np.array([100.0, 90.0, 200.0]), np.array([5, 15, 40])
    )

    assert found.tolist() == [0, 100, 200]
    assert not math.isnan(found.sum())
