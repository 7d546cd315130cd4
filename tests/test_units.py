"""Numbers as people read them."""

from __future__ import annotations

import pytest

from pyprof2 import units


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        pytest.param(0, "0.000 us", id="nothing"),
        pytest.param(1, "0.001 us", id="1 ns"),
        pytest.param(9_999_999, "9999.999 us", id="below 10 ms"),
        pytest.param(10_000_000, "10.000 ms", id="10 ms"),
        pytest.param(551_451_234, "551.451 ms", id="rounded"),
        pytest.param(12_345_678_901, "12.346 s", id="seconds"),
    ],
)
def test_times_choose_their_unit(ns: int, text: str) -> None:
    assert units.format_time(ns) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (0.0004, "<0.001"), (0.0126, "0.013"), (3.456, "3.46"), (34.56, "34.6"),
        (345.6, "346"), (34567.8, "34568"),
    ],
)  # fmt: skip
def test_rates_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert units.format_rate(value) == text


@pytest.mark.parametrize(
    ("count", "label"),
    [(0, "FLOP"), (999, "FLOP"), (1000, "kFLOP"), (5_000_000_000, "GFLOP"), (10**20, "TFLOP")],
)
def test_flops_choose_their_unit(count: int, label: str) -> None:
    assert units.flop_unit(count).label == label


def test_a_gigabyte_is_ten_to_the_ninth_bytes() -> None:
    unit = units.byte_unit(1_000_000_000)

    assert (unit.label, unit.size) == ("GB", 10**9)


@pytest.mark.parametrize(
    ("excess", "text"),
    [
        (8.13, "8.1 % longer than b"), (200, "200.0 % longer than b"),
        (312.5, "4.1 times as long as b"), (80109.1, "802 times as long as b"),
        (1e6, "10,001 times as long as b"),
    ],
)  # fmt: skip
def test_what_is_much_longer_takes_so_many_times(excess: float, text: str) -> None:
    assert units.longer(excess, "b") == text
