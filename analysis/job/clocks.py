"""How the clocks of ranks differ, by collectives in which every member needs every other.

Two bounds are certain: no member ends before another one starts. The estimate takes the ends, which
are nearly simultaneous; their bias, by algorithm and size, is part of the published error.

Parsing imports `reference` from here, so pandas is imported where it is needed.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.job.collective_rows import SYNCHRONISING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    import pandas as pd
    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int

    Float: TypeAlias = NDArray[np.float64]


REFERENCE: Final = "the reference"


@dataclass(frozen=True)
class Clock:
    """The clock of a rank against that of another rank; see table `clocks`.

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


MAD_TO_SIGMA: Final = 1.4826
DRIFT_MAX: Final = 200e-6
"""No clock of a working machine drifts more."""
_FEW: Final = 10
_SAMPLE: Final = 400
_SURE: Final = 3
_PAIRED: Final = ("start_ns", "_end", "start_ns_ref", "_end_ref", "_class")

NO_MODEL: Final = "no offset and drift fit: a wrong match, or a clock that was set"
TOO_FAST: Final = "a drift above 200 ppm is none of a clock"
ONE_CLOCK: Final = "one clock"
WITHIN: Final = "the offset is within its error"


def mad(values: Float) -> float:
    """Return the median distance from the median."""
    return float(np.median(np.abs(values - np.median(values))))


def slope(x: Float, y: Float) -> float:
    """Return the median of the slopes of pairs that are a tenth of the range or more apart.

    0 with fewer than ten values, and where the scatter around it could make it by chance: it is
    less than three times that scatter over the range, or less than six times where it is above
    `DRIFT_MAX`, which no clock has: of many short recordings some have such a one by chance.
    """
    span = float(np.ptp(x)) if len(x) else 0.0
    if len(x) < _FEW or span <= 0:
        return 0.0
    at = np.linspace(0, len(x) - 1, min(len(x), _SAMPLE)).astype(np.int64)
    order = np.argsort(x, kind="stable")[at]
    dx, dy = (v[order][None, :] - v[order][:, None] for v in (x, y))
    far = dx > span / 10
    found = float(np.median(dy[far] / dx[far])) if far.any() else 0.0
    scatter = MAD_TO_SIGMA * mad(y - found * x) / span
    sure = _SURE if abs(found) <= DRIFT_MAX else 2 * _SURE
    return found if abs(found) > sure * scatter else 0.0


def compare_clocks(
    own: tuple[Int, Int],
    other: tuple[Int, Int],
    classes: Int,
    ranks: tuple[int, int],
    *,
    may_drift: bool = True,
) -> Clock:
    """Return the clock of one rank against another's.

    Args:
        own: starts and ends of the rank's members, on its own clock.
        other: of the members of the other rank in the same instances, on its clock.
        classes: of each instance, equal for one kind, size and group.
        ranks: the rank, and the other one.
        may_drift: whether they are different clocks.
    """
    (a, e), (a_ref, e_ref) = own, other
    middle = int(np.median(e_ref - e_ref.min())) + int(e_ref.min())
    base = int(np.median(e - e_ref - (e - e_ref)[0])) + int((e - e_ref)[0])
    y, t = (e - e_ref - base).astype(np.float64), (e_ref - middle).astype(np.float64)
    drift = slope(t, y) if may_drift else 0.0
    clock = Clock(*ranks, base=base, drift=drift, count=len(e), middle=middle, reason="")
    if abs(drift) > DRIFT_MAX:
        return replace(clock, comparable=False, reason=TOO_FAST)
    moved = drift * (t - np.median(t))
    offset = float(np.median(y - moved))
    rest = y - moved - offset
    medians = [float(np.median(rest[classes == each])) for each in np.unique(classes)]
    lo = float(np.max((a - e_ref - base).astype(np.float64) - moved))
    hi = float(np.min((e - a_ref - base).astype(np.float64) - moved))
    residual, spread = MAD_TO_SIGMA * mad(rest), float(np.ptp(medians)) / 2
    clock = replace(
        clock, offset=offset, residual=residual, class_spread=spread, lo=lo, hi=hi,
        error=min(max(residual, spread), (hi - lo) / 2),
    )  # fmt: skip
    return clock if lo <= hi else replace(clock, comparable=False, error=0.0, reason=NO_MODEL)


def decide(clock: Clock, *, one_clock: bool) -> Clock:
    """Return the clock, and whether it is applied: see docs/ranks.rst."""
    if not clock.comparable or clock.rank == clock.reference:
        return clock
    offset = clock.base + clock.offset
    if one_clock:
        sure = clock.base + clock.lo > 0 or clock.base + clock.hi < 0
        reason = "one clock, but no member can end before another starts" if sure else ONE_CLOCK
        return replace(clock, applied=sure, reason=reason, error=clock.error if sure else 0.0)
    applied = abs(offset) > clock.error
    return replace(clock, applied=applied, reason="above its error" if applied else WITHIN)


def clocks_of_job(members: pd.DataFrame, same_clock: Mapping[int, object]) -> dict[int, Clock]:
    """Return the clock of every rank, against the lowest rank that it can be compared with.

    Args:
        members: `rank`, `instance_id`, `kind`, `start_ns`, `dur_ns`, `in_bytes`, `group_key`.
        same_clock: by rank a value that is equal for ranks of one clock; None: not known.
    """
    edges = _edges(_shared(members), same_clock) if len(members) else {}
    ranks = sorted({*members["rank"].unique().tolist(), *same_clock})
    found: dict[int, Clock] = {}
    for number, root in enumerate(ranks):
        if root in found:
            continue
        own = same_clock.get(root)
        beside = [] if own is None else [r for r in ranks if same_clock.get(r) == own]
        walked = {r: Clock(r, root, lo=0.0, hi=0.0, reason=ONE_CLOCK) for r in beside}
        walked = {rank: c for rank, c in walked.items() if rank not in found}
        walked |= _walk(root, edges)
        for rank, clock in walked.items():
            one = own is not None and own == same_clock.get(rank)
            found[rank] = decide(replace(clock, component=number), one_clock=one)
    return found


def _shared(members: pd.DataFrame) -> pd.DataFrame:
    """Return the members of synchronising instances of more than one rank, with their class."""
    keep = members["instance_id"].notna() & members["kind"].isin(SYNCHRONISING)
    frame = members[keep.to_numpy(bool)]
    size = frame["in_bytes"].fillna(-1).astype("int64") if len(frame) else frame["in_bytes"]
    names = [frame["kind"].astype(object), size, frame["group_key"].astype(object)]
    classes = frame.groupby(names, dropna=False, observed=True).ngroup() if len(frame) else 0
    return frame.assign(_class=classes, _end=frame["start_ns"] + frame["dur_ns"])


def _edges(frame: pd.DataFrame, same_clock: Mapping[int, object]) -> dict[int, list[Clock]]:
    """Return for each rank its clock against the lowest rank of each group, and the reverse."""
    lowest = frame.groupby("instance_id", observed=True)["rank"].transform("min")
    columns = ["instance_id", "rank", "start_ns", "_end", "_class"]
    pairs = frame[columns].merge(
        frame.loc[frame["rank"] == lowest, columns], on="instance_id", suffixes=("", "_ref")
    )
    found: dict[int, list[Clock]] = {}
    pairs = pairs[pairs["rank"] != pairs["rank_ref"]]
    for _, rows in pairs.groupby(["rank", "rank_ref"], observed=True):
        rank, other = (int(rows[name].iloc[0]) for name in ("rank", "rank_ref"))
        starts, ends, starts_ref, ends_ref, classes = (rows[c].to_numpy(np.int64) for c in _PAIRED)
        own = same_clock.get(rank)
        may_drift = own is None or own != same_clock.get(other)
        clock = compare_clocks(
            (starts, ends), (starts_ref, ends_ref), classes, (rank, other), may_drift=may_drift
        )
        reverse = replace(
            clock, rank=other, reference=rank, base=-clock.base, offset=-clock.offset,
            drift=-clock.drift / (1 + clock.drift), lo=-clock.hi, hi=-clock.lo,
            middle=clock.middle + clock.base + round(clock.offset),
        )  # fmt: skip
        found.setdefault(other, []).append(clock)
        found.setdefault(rank, []).append(reverse)
    return found


def _walk(root: int, edges: Mapping[int, Sequence[Clock]]) -> dict[int, Clock]:
    """Return the clocks of the ranks that can be compared with one, by the smallest errors."""
    # Clocks have no order: of equal errors the pair that came first counts.
    turn = itertools.count()
    waiting: list[tuple[float, int, int, Clock]] = [(0.0, root, next(turn), reference(root))]
    found: dict[int, Clock] = {}
    while waiting:
        _, rank, _, clock = heapq.heappop(waiting)
        if rank in found:
            continue
        found[rank] = clock
        for edge in edges.get(rank, ()):
            if edge.rank not in found and clock.comparable:
                step = replace(edge, reference=clock.rank)
                if clock.rank != clock.reference:
                    # Against the reference of the clock at its other end.
                    middle = edge.middle - clock.base - round(clock.offset)
                    at = clock.drift * (middle - clock.middle)
                    step = replace(
                        edge, reference=clock.reference, base=edge.base + clock.base,
                        offset=edge.offset + clock.offset + at,
                        drift=edge.drift + clock.drift + edge.drift * clock.drift,
                        lo=edge.lo + clock.lo, hi=edge.hi + clock.hi,
                        error=edge.error + clock.error, middle=middle,
                        residual=edge.residual + clock.residual,
                        class_spread=edge.class_spread + clock.class_spread,
                    )  # fmt: skip
                # A pair that no model fits comes last: nothing is compared through it.
                cost = step.error if step.comparable else np.inf
                heapq.heappush(waiting, (cost, edge.rank, next(turn), step))
    return found


def clock_frame(clocks: Mapping[int, Clock]) -> pd.DataFrame:
    """Return the rows of table `clocks`."""
    import pandas as pd

    return pd.DataFrame([clock.row() for _, clock in sorted(clocks.items())])


def whole_ns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame of clocks with whole ns, as the store has them."""
    times = [str(name) for name in frame if str(name).endswith("_ns")]
    return frame.assign(**{n: frame[n].astype("Float64").round().astype("Int64") for n in times})
