"""Data parallel training on n devices, from a step of one: when gradients are there and added up.

Communication alone is predicted. What else is lost (ranks that are slower, input, clocks) cannot be
known from one rank: it is an interval of its own.
"""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Int

FIRST_BUCKET, BUCKET = 1 << 20, 25 << 20
"""The bytes of gradients that DistributedDataParallel adds up at a time: first, and then."""
SLOWED: Final = 0.4
"""How much of an all-reduce that runs beside the backward pass is lost there: two measurements."""
MORE: Final = 1.15
"""The most that collectives take, of what the link says."""
BESIDE: Final = 0.02
"""The most of a step that work takes which DistributedDataParallel adds."""
EFFICIENCY_MIN: Final = 0.75
"""The part of n times the throughput that is left in most measured jobs, all losses counted."""
STEPS_NEEDED: Final = 10


class Gradients(NamedTuple):
    """The gradients of a step in the order in which they are ready.

    Attributes:
        ready: when, ns.
        bytes: of each.
        evidence: where they are from.
    """

    ready: Floats
    bytes: Floats
    evidence: str


def buckets(gradients: Gradients) -> Gradients:
    """Return the gradients in the buckets of DistributedDataParallel, each as its last one."""
    ends, limit, held = [], float(FIRST_BUCKET), 0.0
    for at, size in enumerate(gradients.bytes.tolist()):
        held += size
        if held >= limit:
            ends.append(at)
            limit, held = float(BUCKET), 0.0
    if held:
        ends.append(len(gradients.bytes) - 1)
    last = np.array(ends, np.int64)
    sums = np.diff(np.r_[0.0, np.cumsum(gradients.bytes)[last]])
    ready = np.maximum.accumulate(gradients.ready)[last] if len(last) else gradients.ready[:0]
    return Gradients(ready, sums, gradients.evidence)


def evenly(begin: float, end: float, total: float) -> Gradients:
    """Return gradients of which only the sum is known: as many bytes at all times."""
    count = max(1, math.ceil((total - FIRST_BUCKET) / BUCKET) + 1)
    sizes = np.r_[
        min(total, FIRST_BUCKET), np.full(count - 1, (total - FIRST_BUCKET) / max(1, count - 1))
    ]
    sizes = sizes[:count]
    ready = begin + (end - begin) * np.cumsum(sizes) / max(total, 1.0)
    return Gradients(ready, sizes, "the sum alone: ready at an even pace")


def finished(ready: Floats, took: Floats) -> float:
    """Return when the last of all-reduces ends that are queued on one stream."""
    free = -math.inf
    for at, time in zip(ready.tolist(), took.tolist(), strict=True):
        free = max(free, at) + time
    return free


class Scaled(NamedTuple):
    """A step of n ranks, ns; `all_lo`, `all_hi`: with all losses, not of communication alone."""

    value: float
    lo: float
    hi: float
    exposed: float
    all_lo: float
    all_hi: float


def scaled(
    alone: tuple[float, float, float],
    waited: tuple[float, float],
    took: tuple[float, float],
    stragglers: float | None,
) -> Scaled:
    """Return a step of n ranks.

    Args:
        alone: the step of one rank: value, lo, hi.
        waited: the same as value and as lo, where the optimizer waits for the last all-reduce.
        took: the sum of all all-reduces, and one of all bytes.
        stragglers: how much longer the slowest of n ranks takes; None: not known.
    """
    value, lo, hi = alone
    exposed = max(0.0, waited[0] - value)
    total = max(took)
    found = value + exposed + SLOWED * max(0.0, took[0] - exposed)
    low = lo + max(0.0, waited[1] - lo) / 2
    high = hi + MORE * total + BESIDE * value + (stragglers or 0.0)
    return Scaled(
        found, min(low, found), max(high, found), exposed, min(low, found),
        max(high, hi / EFFICIENCY_MIN),
    )  # fmt: skip


def slowest_of(times: Sequence[float], ranks: int) -> float | None:
    """Return how much longer than the mean the slowest of n ranks takes, each as a recorded step.

    It is the expected maximum of n independent draws; None: fewer than ten steps are recorded.
    """
    if len(times) < STEPS_NEEDED:
        return None
    ordered = np.sort(np.array(times, float))
    at = np.arange(1, len(ordered) + 1) / len(ordered)
    chance = np.diff(np.r_[0.0, at**ranks])
    return float(ordered @ chance) - fmean(times)


def ready_times(launch_ns: Int, end_ns: Floats, at: Int) -> Floats:
    """Return when gradients are ready: what was launched before their nodes ran has ended.

    Args:
        launch_ns: of kernels, in any order.
        end_ns: when each ends.
        at: when the host ran the node of each gradient.
    """
    order = np.argsort(launch_ns, kind="stable")
    latest = np.maximum.accumulate(end_ns[order]) if len(order) else end_ns
    place = np.searchsorted(launch_ns[order], at, "left") - 1
    return np.where(place >= 0, latest[np.maximum(place, 0)], 0.0)
