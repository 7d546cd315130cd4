"""Time, energy, carbon and money that steps spend, as far as they were measured or are given."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.time.step_times import median_interval, slow_starts, timed_steps
from pyprof2.result_tables import SPENDING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NS_PER_S: Final = 10**9
_SECONDS_PER_HOUR: Final = 3600.0
_JOULES_PER_KWH: Final = 3.6e6
_FEW: Final = "fewer than 6 steps: no interval"
_MEAN: Final = "by the mean step; from the shortest to the longest"


@dataclass(frozen=True)
class Rates:
    """Values that the user gives; pyprof2 knows none of them.

    Attributes:
        price: of an hour of all that runs, in any currency; None: not asked.
        grams_per_kwh: of CO2 and the like, of the electricity; None: not asked.
        pue: how many times as much the building uses as the machines in it.
        steps: of how many steps.
    """

    price: float | None = None
    grams_per_kwh: float | None = None
    pue: float = 1.0
    steps: int = 1


def spending(steps: pd.DataFrame, energy: pd.DataFrame, rates: Rates) -> pd.DataFrame:
    """Return `SPENDING` of a recording, without its name.

    Carbon is joules × PUE ÷ 3.6 MJ × grams, of what counters counted and of nothing else; the price
    is that of the time of the rank whose steps take longest.

    Args:
        steps: the table `steps`.
        energy: the table `energy`.
        rates: what is given.
    """
    times: dict[int, list[int]] = {}
    windows = timed_steps(steps)
    slow = slow_starts(windows)
    for window in windows:
        times.setdefault(window.rank, []).append(window.dur_ns)
    rows = [*_times(times), *_energies(energy, rates)]
    if rates.price is not None and times:
        usual = ([w.dur_ns for w in windows if w.rank == r and w not in slow] for r in times)
        longest = max(usual, key=fmean)
        each = rates.price / _SECONDS_PER_HOUR / _NS_PER_S
        costs = [ns * each for ns in (fmean(longest), min(longest), max(longest))]
        rows.append(_row("price", None, costs, "price", note=_MEAN))
    columns = [name for name in SPENDING.names if name != "recording"]
    frame = pd.DataFrame(rows, columns=columns)
    for name in ("value", "lo", "hi"):
        frame[name] = frame[name].astype("Float64") * rates.steps
    return frame.astype({"rank": "Int64"})


def _row(measure: str, rank: Any, values: Any, unit: str, **more: Any) -> dict[str, Any]:
    value, low, high = (None if pd.isna(each) else float(each) for each in values)
    found = {"measure": measure, "rank": rank, "value": value, "lo": low, "hi": high, "unit": unit}
    return found | {"counter": None, "note": None} | more


def _times(times: Mapping[int, Sequence[int]]) -> Iterator[dict[str, Any]]:
    """Yield the median step of each rank, in seconds."""
    for rank, own in times.items():
        between = median_interval(own) or (None, None)
        values = [None if ns is None else ns / _NS_PER_S for ns in (median(own), *between)]
        yield _row("time", rank, values, "s", note=_FEW if between[0] is None else None)


def _energies(energy: pd.DataFrame, rates: Rates) -> Iterator[dict[str, Any]]:
    """Yield joules of each counter, what was used before the program began, and grams of CO2."""
    grams = None
    if rates.grams_per_kwh is not None:
        grams = rates.pue * rates.grams_per_kwh / _JOULES_PER_KWH
    for row in energy.to_dict("records"):
        of = {"counter": row["counter"], "note": row["note"]}
        joules = [row[name] for name in ("joules_per_step", "lo", "hi")]
        before = [row[name] for name in ("idle_joules", "idle_lo", "idle_hi")]
        yield _row("energy", row["rank"], joules, "J", **of)
        if not pd.isna(before[0]):
            yield _row("idle_energy", row["rank"], before, "J", **of)
        if grams is not None:
            carbon = [None if pd.isna(each) else each * grams for each in joules]
            yield _row("carbon", row["rank"], carbon, "g", **of)
