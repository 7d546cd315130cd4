"""Fits of few points: each expected number is that of the line the points were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pyprof2.analysis.summaries.batch.fits import bounds, fit_curve, fit_line

X = np.array([1.0, 2.0, 4.0, 8.0, 16.0])


@pytest.mark.parametrize(
    ("fixed", "slope"),
    [
        pytest.param(5.0, 2.0, id="both"),
        pytest.param(0.0, 2.0, id="proportional"),
        pytest.param(5.0, 0.0, id="constant"),
        pytest.param(0.0, 0.0, id="nothing"),
    ],
)
def test_a_line_is_found_again(fixed: float, slope: float) -> None:
    line = fit_line(X, fixed + slope * X)

    assert (line.fixed, line.slope) == pytest.approx((fixed, slope), abs=1e-9)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        # y = 2x - 1: without a fixed part the slope is sum(w²xy) / sum(w²x²), w = 1 / y.
        pytest.param([1.0, 3.0], (0.0, (1 / 1 + 2 / 3) / (1 / 1 + 4 / 9)), id="no fixed part"),
        # y = 4 - x: without a slope it is sum(w) / sum(w²).
        pytest.param([3.0, 2.0], ((1 / 3 + 1 / 2) / (1 / 9 + 1 / 4), 0.0), id="no slope"),
    ],
)
def test_what_would_be_negative_is_left_out(y: list[float], expected: tuple[float, float]) -> None:
    line = fit_line(np.array([1.0, 2.0]), np.array(y))

    assert (line.fixed, line.slope) == pytest.approx(expected)


def test_errors_count_relative_to_the_value() -> None:
    # Three constants: the least sum of squared relative errors is sum(1/y) / sum(1/y²).
    line = fit_line(np.zeros(3), np.array([1.0, 1.0, 4.0]))

    assert line.fixed == pytest.approx((1 + 1 + 1 / 4) / (1 + 1 + 1 / 16))


def test_a_floor_bends_where_the_line_gets_over_it() -> None:
    x = np.array([16.0, 32.0, 64.0, 128.0, 256.0, 512.0])

    curve = fit_curve(x, np.maximum(18.0, 2 + 0.11 * x), 0.03)

    assert curve.lines[0].fixed == pytest.approx(18.0)
    assert curve.lines[0].slope == 0
    assert curve.bend == pytest.approx(16 / 0.11)
    assert curve.residual == pytest.approx(0, abs=1e-9)
    assert curve.value(100) == pytest.approx(18)
    assert curve.at(np.array([400.0])).tolist() == pytest.approx([46.0])


def test_a_bend_needs_a_point_more_than_it_has_numbers() -> None:
    x = np.array([1.0, 2.0, 16.0])

    assert len(fit_curve(x, np.array([5.0, 5.0, 16.0]), 0.03).lines) == 1


def test_a_line_within_the_tolerance_stays_a_line() -> None:
    curve = fit_curve(X, np.array([7.1, 9.0, 13.0, 21.0, 37.0]), 0.03)

    assert len(curve.lines) == 1
    assert curve.bend is None


def test_the_residual_is_the_largest_relative_error() -> None:
    found = fit_curve(np.zeros(2), np.array([1.0, 3.0]), 1.0)
    value = (1 + 1 / 3) / (1 + 1 / 9)

    assert found.lines[0].fixed == pytest.approx(value)
    assert found.residual == pytest.approx(max(value - 1, 1 - value / 3))


@pytest.mark.parametrize(
    ("at", "least", "most"),
    [
        # Of 10 + x, of which 4 are fixed or more: at most 4 + (y - 4) · at / x, and the chord.
        pytest.param(2, 12, 14, id="below all"),
        pytest.param(6, 16, 16, id="between two, on the chord"),
        pytest.param(20, 30, 4 + 22 * 20 / 16, id="above all"),
    ],
)  # fmt: skip
def test_points_on_a_line_bound_what_goes_through_them(at: int, least: float, most: float) -> None:
    x = np.array([16.0, 4.0, 8.0])

    assert bounds(x, 10 + x, at, 4.0) == pytest.approx((least, most))


@pytest.mark.parametrize("jump", [9, 12, 16])
@pytest.mark.parametrize("size", [1.0, 40.0, 400.0])
def test_a_jump_anywhere_between_two_points_lies_in_the_bounds(jump: int, size: float) -> None:
    def held(at: Any) -> Any:
        return 4 + 2 * at + size * (at >= jump)

    x = np.array([2.0, 4.0, 8.0, 16.0])
    for at in (3.0, 5.0, 9.0, 11.0, 12.0, 15.0, 20.0, 40.0):
        least, most = bounds(x, held(x), at, 4.0)
        assert least <= float(held(np.array(at))) <= most + 1e-9


@pytest.mark.parametrize("power", [1.2, 1.5, 2.0])
def test_what_grows_faster_than_a_line_lies_in_the_bounds(power: float) -> None:
    x = np.array([8.0, 16.0, 32.0, 64.0])
    for at in (24.0, 48.0, 96.0, 256.0):
        least, most = bounds(x, 100 + x**power, at, 100.0)
        assert least <= 100 + at**power <= most * (1 + 1e-9)


def test_between_points_that_bend_it_is_below_the_chord_and_above_the_lines_beside() -> None:
    x = np.array([1.0, 2.0, 4.0, 5.0])

    # The greatest of 10 + x and 4 + 3 x bends at 3, at 13. A jump of 2 after 2 would have 15 there.
    assert bounds(x, np.maximum(10 + x, 4 + 3 * x), 3.0, 0.0) == pytest.approx((12.85, 15.15))
