"""Memory on the page: the curve of each device, and the blocks at its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.memory.curves import LINELESS, NO_NUMBER
from pyprof2.analysis.memory.live import BEFORE, ROUNDING
from pyprof2.analysis.time.slices import greatest_of_runs
from pyprof2.api import run_memory
from pyprof2.columns import as_text, values_of
from pyprof2.frames import shown_line
from pyprof2.recording import int_column
from pyprof2.reports.page.values import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.api.run import Run

MOST_POINTS: Final = 2000
MOST_LIVE: Final = 500
_MOST_CATEGORIES: Final = 5
_PER_STRETCH: Final = 4
_AXES: Final = ("op", "layer", "line", "category", "certainty")
_NOT_KNOWN: Final = ["(no op)", "(no layer)", *LINELESS]
_NO_PLACE: Final = [*_NOT_KNOWN, BEFORE, ROUNDING]
_SHOWN: Final = {"line": "source", "blocks": "count"}


def memory_of(run: Run, zero: dict[int, int]) -> list[dict[str, Any]] | None:
    """Return the memory of each device; None where no allocation was recorded."""
    found = run_memory.memory_by_device(run.tables)
    live = found.rows(_AXES, "peak")
    return [_device(run, curve, live, zero[curve.rank]) for curve in found.curves] or None


def _device(run: Run, curve: MemoryCurve, live: pd.DataFrame, zero: int) -> dict[str, Any]:
    time = int_column(curve.events, "time_ns", 0) - zero
    allocated = curve.total + (curve.base or 0)
    kept = shown_events(time, allocated)
    reserved = int_column(curve.events, "reserved_bytes", NO_NUMBER)[kept]
    peak = curve.peak
    at_peak = _of(curve, live)
    return {
        "rank": curve.rank,
        "device": curve.device,
        "device_type": curve.device_type,
        "base": curve.base,
        "notes": curve.notes,
        "t_ns": time[kept].tolist(),
        "allocated": allocated[kept].tolist(),
        "reserved": None if (reserved == NO_NUMBER).any() else reserved.tolist(),
        "peak": {
            "t_ns": None if peak < 0 else int(time[peak]),
            "allocated": curve.over_base(peak) + (curve.base or 0),
            "categories": list(_categories(at_peak)),
            "live": _live(run, at_peak),
        },
    }


def _of(curve: MemoryCurve, live: pd.DataFrame) -> pd.DataFrame:
    same = (live["rank"] == curve.rank) & (as_text(live["device_type"]) == curve.device_type)
    device = live["device"].isna() if curve.device is None else live["device"] == curve.device
    return live[same & device.fillna(value=False)]


def _categories(live: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Give the bytes of the largest categories, and of all others."""
    sums = live.groupby(as_text(live["category"]), observed=True)["bytes"].sum()
    sums = sums.sort_values(ascending=False, kind="stable")
    sizes = [*sums.head(_MOST_CATEGORIES).items(), ("others", sums[_MOST_CATEGORIES:].sum())]
    for name, size in sizes:
        if size > 0:
            yield {"name": str(name).replace("_", " "), "bytes": int(size)}


def _live(run: Run, rows: pd.DataFrame) -> dict[str, Any]:
    """Return the live blocks, the largest first; unknown values are null."""
    rows = rows.sort_values("bytes", ascending=False, kind="stable").head(MOST_LIVE)
    texts = {name: rows[name].astype(object) for name in _AXES}
    # A row that is no block of the recording says so as its op, and has neither layer nor line.
    unknown = {name: _NOT_KNOWN if name == "op" else _NO_PLACE for name in _AXES}
    plain = {name: text.where(~text.isin(unknown[name]), None) for name, text in texts.items()}
    frame = rows[["bytes", "blocks"]].assign(**plain)[[*_AXES, "bytes", "blocks"]]
    shown = {"source": lambda line: shown_line(line, run.tables.source_roots)}
    return table(frame.rename(columns=_SHOWN), shown)


def shown_events(time: Int, values: Int) -> Int:
    """Return the events to show: the first, last, least and most of each stretch of time."""
    if len(time) <= MOST_POINTS:
        return np.arange(len(time))
    stretches = MOST_POINTS // _PER_STRETCH
    whole = max(1, int(time[-1] - time[0]) + 1)
    # In floats: a product of two times does not fit an int64.
    stretch = ((time - time[0]) / whole * stretches).astype(np.int64)
    first = np.flatnonzero(np.diff(stretch, prepend=-1))
    last = np.r_[first[1:], len(time)] - 1
    least = greatest_of_runs(-values, first)
    # Among equal ones the first counts, among the greatest the last.
    most = len(time) - 1 - greatest_of_runs(values[::-1], (len(time) - 1 - last)[::-1])
    return values_of(np.concatenate((first, last, least, most)))
