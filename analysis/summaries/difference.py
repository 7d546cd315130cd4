"""The difference of two runs' time in calls, as terms that add up to it exactly.

The time of a group of calls per step is n · Σ p · Σ q · Σ r · u: n calls, of which a share p has
inputs of certain dims, of which a share q has certain dtypes (with the dims, a signature), of which
a share r ran certain kernels, each in a time of u. In a product's difference
each factor owns its own change times the mean of the others on both sides: for two factors,
Δ(xy) = Δx·ȳ + x̄·Δy. Nothing is left over, and no call has to be paired with another call. A value
that one side lacks is taken from the other, so that it changes nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from pyprof2.columns import sum_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

Numbers: TypeAlias = "NDArray[Any]"
"""Fractions in an array of objects, where it must be exact; else float64."""

TERMS: Final = ("calls", "shapes", "precision", "kernel choice", "kernel speed", "new", "gone")


class Leaves(NamedTuple):
    """Each distinct (group, signature, kernels) of two sides.

    Attributes:
        signature: of each leaf, a position in `dims` and `group`.
        dims: a number for the dims of each signature in its group.
        group: of each signature.
        counts, times: of each leaf, for both sides: calls, and their summed time; of several
            choices of steps at once a row each.
    """

    signature: Int
    dims: Int
    group: Int
    counts: tuple[Numbers, Numbers]
    times: tuple[Numbers, Numbers]


class _Side(NamedTuple):
    """One side's factors: n by group; p by dims; q and t by signature; r and u by leaf."""

    n: Numbers
    p: Numbers
    q: Numbers
    t: Numbers
    r: Numbers
    u: Numbers
    time: Numbers
    has_group: Bool
    has_dims: Bool
    has_signature: Bool
    has_leaf: Bool


def exact(values: Int) -> Numbers:
    """Return whole numbers as fractions."""
    return np.array([Fraction(value) for value in values.tolist()] or [], object)


def difference(leaves: Leaves, steps: tuple[Any, Any]) -> dict[str, Numbers]:
    """Return for each of `TERMS` its part of the difference per step, by signature.

    Args:
        leaves: counts and times of both sides.
        steps: over how many steps each side's are summed up, in each choice of steps.
    """
    a, b = (_side(leaves, side, steps[side]) for side in (0, 1))
    group, dims, of = leaves.group, leaves.dims, leaves.signature
    both = (a.has_group & b.has_group)[group]
    known = (a.has_dims & b.has_dims)[dims]
    shared = (a.has_signature & b.has_signature)[of]
    n, p, q = (a.n + b.n) / 2, (a.p + b.p) / 2, (a.q + b.q) / 2
    # The time of a call of some dims is q · t, summed up over its signatures.
    of_dims = _each_from_the_other(a.q * a.t, b.q * b.t, a.has_dims[dims], b.has_dims[dims])
    t = _each_from_the_other(a.t, b.t, a.has_signature, b.has_signature)
    u = _each_from_the_other(a.u, b.u, a.has_leaf, b.has_leaf)
    around = (n[group] * p[dims] * q)[of]
    choice = np.where(shared, around * (b.r - a.r) * (u[0] + u[1]) / 2, 0)
    speed = np.where(shared, around * (a.r + b.r) / 2 * (u[1] - u[0]), 0)
    took = (a.p[dims] * a.q * a.t + b.p[dims] * b.q * b.t) / 2
    shapes = n[group] * (b.p - a.p)[dims] * (of_dims[0] + of_dims[1]) / 2
    precision = n[group] * p[dims] * (b.q - a.q) * (t[0] + t[1]) / 2
    return {
        "calls": np.where(both, (b.n - a.n)[group] * took, 0),
        "shapes": np.where(both, shapes, 0),
        "precision": np.where(known, precision, 0),
        "kernel choice": sum_at(of, choice, len(group)),
        "kernel speed": sum_at(of, speed, len(group)),
        "new": np.where(a.has_group[group], 0, b.time),
        "gone": np.where(b.has_group[group], 0, -a.time),
    }


def _side(leaves: Leaves, side: int, steps: Any) -> _Side:
    count, time = leaves.counts[side], leaves.times[side]
    of, dims, group = leaves.signature, leaves.dims, leaves.group
    by_signature, time_by_signature = (sum_at(of, x, len(group)) for x in (count, time))
    by_dims = sum_at(dims, by_signature, int(dims.max(initial=-1)) + 1)
    by_group = sum_at(group, by_signature, int(group.max(initial=-1)) + 1)
    group_of_dims = np.zeros(len(by_dims), np.int64)
    group_of_dims[dims] = group
    return _Side(
        n=by_group / steps,
        p=_ratio(by_dims, by_group[group_of_dims]),
        q=_ratio(by_signature, by_dims[dims]),
        t=_ratio(time_by_signature, by_signature),
        r=_ratio(count, by_signature[of]),
        u=_ratio(time, count),
        time=time_by_signature / steps,
        has_group=by_group > 0,
        has_dims=by_dims > 0,
        has_signature=by_signature > 0,
        has_leaf=count > 0,
    )


def _each_from_the_other(a: Numbers, b: Numbers, has_a: Bool, has_b: Bool) -> tuple[Numbers, ...]:
    return np.where(has_a, a, b), np.where(has_b, b, a)


def _ratio(part: Numbers, whole: Numbers) -> Numbers:
    return part / np.where(whole == 0, 1, whole)


def jackknife(
    values: Callable[[tuple[NDArray[np.float64], NDArray[np.float64]]], NDArray[np.float64]],
    blocks: tuple[int, int],
) -> NDArray[np.float64] | None:
    """Return the standard error of each value, leaving out one block of steps at a time.

    Both sides count, as independent: their variances are added. See B. Efron and C. Stein, "The
    jackknife estimate of variance", 1981.

    Args:
        values: a row for each that is estimated, from a weight of 0 or 1 for each block of either
            side; a column for each choice of weights.
        blocks: how many blocks of steps there are on each side; None is returned for fewer than 3.
    """
    if min(blocks) < 3:
        return None
    variance = 0.0
    for side, count in enumerate(blocks):
        weights = [np.ones((each, count)) for each in blocks]
        weights[side] = 1 - np.eye(count)
        found = np.ascontiguousarray(values((weights[0], weights[1])).T)
        variance = variance + (count - 1) * np.var(found, axis=0)
    error: NDArray[np.float64] = np.sqrt(variance)
    return error
