"""Fits of few points: a line without negative parts, and where one line is not enough, a bend.

A relative error counts the same at every point, so the smallest batch is as well fitted as the
largest. With two parameters that may not be negative there are four cases; all are tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_LEAST: Final = 1e-3
"""A value that is a smaller part of the largest counts as that: nothing is relative to 0."""
_STRAIGHT: Final = 0.001
"""By how much points may miss a line that is taken for the truth."""
_SLOWEST: Final = 0.85
"""Memory grows between points at least so much as the flattest chord says, times this."""
_BENT: Final = 0.5
"""A bend has to leave at most this part of the error that the line leaves."""
_OF_A_LINE, _OF_A_FLOOR, _OF_TWO = 2, 4, 5
"""The fewest points that a line, a floor with a line, and two lines are fitted to."""


@dataclass(frozen=True)
class FittedLine:
    """`fixed + slope · x`, none of them negative."""

    fixed: float
    slope: float

    def at(self, x: Floats) -> Floats:
        """Return the values at `x`."""
        return self.fixed + self.slope * x


@dataclass(frozen=True)
class Curve:
    """The greatest of its lines.

    Attributes:
        lines: in order of `x`: the last one holds for the largest.
        residual: the largest relative error at the points that it was fitted to.
    """

    lines: tuple[FittedLine, ...]
    residual: float

    def at(self, x: Floats) -> Floats:
        """Return the values at `x`."""
        found: Floats = np.max([line.at(x) for line in self.lines], axis=0)
        return found

    def value(self, x: float) -> float:
        """Return the value at one `x`."""
        return max(line.fixed + line.slope * x for line in self.lines)

    @property
    def bend(self) -> float | None:
        """The `x` from which on the last line holds; None: everywhere."""
        if len(self.lines) == 1:
            return None
        low, high = self.lines
        steeper = high.slope - low.slope
        return (low.fixed - high.fixed) / steeper if steeper > 0 else None


def fit_line(x: Floats, y: Floats) -> FittedLine:
    """Return the line with the least sum of squared relative errors, without negative parts."""
    weight = 1 / _scale(y)
    both = np.stack([weight, weight * x], axis=1)
    found = [FittedLine(0.0, 0.0)]
    for used in ([0, 1], [0], [1]):
        part = np.linalg.lstsq(both[:, used], weight * y, rcond=None)[0]
        whole = np.zeros(2)
        whole[used] = part
        if (whole >= 0).all():
            found.append(FittedLine(float(whole[0]), float(whole[1])))
    return min(found, key=lambda line: float((((line.at(x) - y) * weight) ** 2).sum()))


def fit_curve(x: Floats, y: Floats, tolerance: float) -> Curve:
    """Return a line, or a bend where the line misses a point by more than `tolerance`.

    A bend is a floor and a line, or two lines, and is taken where it leaves less than half of the
    error; there must be one point more than it has numbers, or it would fit anything.
    """
    order = np.argsort(x)
    x, y = x[order], y[order]
    line = _curve((fit_line(x, y),), x, y)
    if line.residual <= tolerance:
        return line
    curves = [line]
    for cut in range(1, len(x) - 1):
        high = fit_line(x[cut:], y[cut:])
        if len(x) >= _OF_A_FLOOR:
            floor = fit_line(np.zeros(cut), y[:cut])
            curves.append(_curve((FittedLine(floor.fixed, 0.0), high), x, y))
        if len(x) >= _OF_TWO and cut >= _OF_A_LINE:
            curves.append(_curve((fit_line(x[:cut], y[:cut]), high), x, y))
    best = min(curves, key=lambda curve: curve.residual)
    return best if best.residual <= _BENT * line.residual else line


def bounds(x: Floats, y: Floats, at: float, fixed: float) -> tuple[float, float]:
    """Return the least and the most that lie at a place, as far as points say it.

    They are of the greatest of unknown lines, each of which has a fixed part of `fixed` or more and
    does not fall: so it is below each chord, and above what is left of the chord's line.

    Where the points are on no single line, all else that fits them counts, too: a jump anywhere
    between two of them, as of a workspace, and growth beyond the last one by the power of the last
    two.
    """
    order = np.argsort(x)
    x, over = x[order], np.maximum(y[order] - fixed, 0.0)
    far = at / x
    least, most = float(np.max(over * np.minimum(far, 1))), float(np.min(over * np.maximum(far, 1)))
    flattest = np.min(np.diff(over) / np.maximum(np.diff(x), _LEAST), initial=np.inf)
    least_slope = _SLOWEST * max(0.0, float(flattest))
    line = _curve((fit_line(x, over),), x, over)
    is_line = line.residual <= _STRAIGHT
    if not is_line:
        below = int(np.searchsorted(x, at, "right")) - 1
        least = float(over[below] + least_slope * (at - x[below])) if below >= 0 else 0.0
    if not is_line and at > x[-1] > x[-2] and over[-2] > 0:
        power = np.log(over[-1] / over[-2]) / np.log(x[-1] / x[-2])
        most = float(over[-1] * far[-1] ** max(1.0, power))
    for left in range(len(x) - 1):
        run, rise = x[left + 1] - x[left], over[left + 1] - over[left]
        chord = float(over[left] + rise * (at - x[left]) / run) if run else float(over[left])
        if x[left] <= at <= x[left + 1]:
            jumped = float(over[left + 1] - least_slope * (x[left + 1] - at))
            most = max(min(most, chord), 0.0 if is_line else jumped)
        elif is_line:
            least = max(least, min(chord, most))
    return fixed + least, fixed + most


def _curve(lines: tuple[FittedLine, ...], x: Floats, y: Floats) -> Curve:
    found = Curve(lines, 0.0)
    return Curve(lines, float(np.max(np.abs(found.at(x) - y) / _scale(y))))


def _scale(y: Floats) -> Floats:
    most = float(np.max(np.abs(y), initial=0.0))
    return np.maximum(np.abs(y), _LEAST * most if most else 1.0)
