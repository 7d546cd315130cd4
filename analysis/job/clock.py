"""The clock of a rank against that of another one, and its row in table `clocks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

REFERENCE: Final = "the reference"


@dataclass(frozen=True)
class Clock:
    """The clock of a rank against that of another one; see table `clocks`.

    `own = t + offset + drift · (t - middle)`, where t is the other's time. Offsets are `base`, a
    whole number of ns, and `offset`: so they are exact however far clocks are apart.
    """

    rank: int
    reference: int
    base: int = 0
    offset: float = 0.0
    drift: float = 0.0
    residual: float = 0.0
    class_spread: float = 0.0
    lo: float = -np.inf
    hi: float = np.inf
    error: float = 0.0
    count: int = 0
    component: int = 0
    middle: int = 0
    applied: bool = False
    comparable: bool = True
    reason: str = REFERENCE

    def aligned(self, time: Int) -> Int:
        """Return times of this rank on the clock of its reference."""
        if not self.applied:
            return time
        since = (time - self.base - self.middle).astype(np.float64) - self.offset
        shift = self.offset + self.drift * since / (1 + self.drift)
        moved: Int = time - self.base - np.rint(shift).astype(np.int64)
        return moved

    def row(self) -> dict[str, Any]:
        """Return the row of table `clocks`, but for fractions of ns."""
        return {
            "rank": self.rank,
            "reference": self.reference,
            "offset_ns": self.base + self.offset,
            "drift_ppb": 1e9 * self.drift,
            "residual_ns": self.residual,
            "class_spread_ns": self.class_spread,
            "lo_ns": _finite(self.base + self.lo),
            "hi_ns": _finite(self.base + self.hi),
            "error_ns": self.error,
            "collectives": self.count,
            "component": self.component,
            "middle_ns": float(self.middle),
            "applied": self.applied,
            "reason": self.reason,
        }


def reference(rank: int) -> Clock:
    """Return the clock that others are compared with."""
    return Clock(rank, rank, lo=0.0, hi=0.0)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
