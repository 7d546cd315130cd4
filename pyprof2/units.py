"""Numbers to text for people; the only place that rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Unit:
    """The divisor of a number before it is shown, and the label beside it."""

    label: str
    size: int


NANOSECONDS: Final = Unit("ns", 1)
MICROSECONDS: Final = Unit("us", 10**3)
TIMES: Final = (MICROSECONDS, Unit("ms", 10**6), Unit("s", 10**9))
FLOPS: Final = tuple(
    Unit(f"{prefix}FLOP", 1000**power) for power, prefix in enumerate(["", "k", "M", "G", "T"])
)
BYTES: Final = tuple(
    Unit(f"{prefix}B", 1000**power) for power, prefix in enumerate(["", "k", "M", "G", "T"])
)


def time_unit(largest_ns: float) -> Unit:
    """Return the unit in which times up to `largest_ns` take at most four digits.

    With three more after the point they are exact, to the ns, below 10 ms.
    """
    return _fitting(TIMES, largest_ns, 10**4)


def flop_unit(largest: float) -> Unit:
    """Return the unit in which counts up to `largest` read well."""
    return _fitting(FLOPS, largest, 10**3)


def byte_unit(largest: float) -> Unit:
    """Return the unit in which sizes up to `largest` read well; 1 GB is 10⁹ bytes."""
    return _fitting(BYTES, largest, 10**3)


def _fitting(units: tuple[Unit, ...], largest: float, limit: int) -> Unit:
    """Return the smallest unit in which `largest` is below `limit`, or else the last."""
    return next((unit for unit in units if largest < unit.size * limit), units[-1])


def format_time(ns: int) -> str:
    """Return a time as text: `551.450 ms`."""
    unit = time_unit(ns)
    return f"{ns / unit.size:.3f} {unit.label}"


def format_rate(value: float) -> str:
    """Return three significant digits without an exponent: `0.012`, `3.45`, `812`.

    What rounds to nothing but is more is `<0.001`.
    """
    if value == 0:
        return "0"
    if 0 < value < 0.0005:
        return "<0.001"
    for limit, decimals in ((1, 3), (10, 2), (100, 1)):
        if abs(value) < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.0f}"


TIMES_PCT: Final = 200.0
"""A time longer by more than this is given as so many times as long."""


def longer(excess_pct: float, than: str) -> str:
    """Return how much longer something takes: `8.1 % longer than b`, `802 times as long as b`.

    Args:
        excess_pct: by how much, in % of the other.
        than: the other.
    """
    if excess_pct <= TIMES_PCT:
        return f"{excess_pct:.1f} % longer than {than}"
    times = 1 + excess_pct / 100
    return f"{times:,.{1 if times < 10 else 0}f} times as long as {than}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun: `1 stretch`, `1,200 stretches`.

    Args:
        count: how many there are.
        one: the noun.
        many: its plural; None: with an s.
    """
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def format_bytes(count: float) -> str:
    """Return a size as text: `4 B`, `1.5 kB`; 1 GB is 10⁹ bytes."""
    unit = byte_unit(count)
    return f"{count:.0f} B" if unit.size == 1 else f"{count / unit.size:.1f} {unit.label}"
