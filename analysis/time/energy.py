"""Energy of a step, by the counters that the recording machine let the recorder read."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.markers import parse_marker
from pyprof2.result_tables import ENERGY
from pyprof2.tables import ENERGY_KIND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.markers import Marker

RANGES: Final = ("start_ns", "name", "kind")
"""The columns of table `ranges` that this is found in."""

_NS_PER_S: Final = 10**9
_SPREAD: Final = "/spread"
"""Follows the name of a counter of samples: how far its joules may be off."""
_LEAST_SHARE: Final = 0.95
"""So much of the time must be in steps for the energy to be that of steps."""
_STILL: Final = "the counter does not move"
_OUTSIDE: Final = "{:.0f} % of the time is outside of steps"
_NO_STEPS: Final = "no step begins between two readings"


class _Method(NamedTuple):
    """A kind of counter.

    Attributes:
        text: in words.
        period: how old its value may be, in seconds.
        accuracy: by what share the value itself may be wrong.
    """

    text: str
    period: float
    accuracy: float = 0.0


_METHODS: Final = {
    "rapl": _Method("RAPL, the whole package with all programs on it", 0.001),
    "nvml": _Method("NVML, total energy of the GPU", 0.1),
    # NVML's documentation of nvmlDeviceGetPowerUsage: accurate to 5 %, on some GPUs a mean of 1 s.
    "nvml-power": _Method("NVML, power of the GPU, sampled and integrated", 1.0, 0.05),
}
"""By the beginning of a counter's name."""
_UNKNOWN: Final = _Method("a counter of the recorder", 1.0)


class _Span(NamedTuple):
    """The joules that a counter counted between two readings."""

    start_ns: int
    end_ns: int
    joules: float


def energy(ranges: pa.Table, steps: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return `ENERGY` of a rank; no rows where nothing was read.

    The first and the last reading of a counter count; they are at beginnings of steps, when no work
    was left on GPUs. A value may be as old as the counter's period at both ends, so the interval is
    ± one period of its mean power; of samples also ± their accuracy, and ± half of the difference
    between neighbours for the time between them. Consumption before the program began is
    beside it, for the time of a step, and not taken off.

    Args:
        ranges: the columns `RANGES` of the rank.
        steps: the table `steps`.
        rank: the number.
    """
    is_reading = pc.equal(ranges["kind"].cast(pa.string()), ENERGY_KIND)
    rows_read = sorted(ranges.filter(is_reading).to_pylist(), key=itemgetter("start_ns"))
    marked = [(row["start_ns"], parse_marker(row["name"])) for row in rows_read]
    said = [(at, marker) for at, marker in marked if marker is not None and marker.joules]
    readings = [(at, marker.joules or {}) for at, marker in said]
    windows = steps.loc[steps["rank"] == rank, ["host_start_ns", "host_dur_ns"]].drop_duplicates()
    names = dict.fromkeys(name for _, joules in readings for name in joules)
    idle = next((marker for _, marker in said if marker.idle_joules), None)
    rows = [
        _row(name, readings, windows, rank, idle) for name in names if not name.endswith(_SPREAD)
    ]
    frame = pd.DataFrame([row for row in rows if row], columns=ENERGY.names)
    numbers = {c.name: "Float64" for c in ENERGY.columns if str(c.type) == "double"}
    return frame.astype(numbers | {"rank": "int64", "steps": "int64"})


def _spans(name: str, readings: list[tuple[int, dict[str, float]]]) -> Iterator[_Span]:
    """Yield the spans of a counter: from where it begins to count to the last reading."""
    first: tuple[int, float] | None = None
    last: tuple[int, float] | None = None
    for time, joules in readings:
        value = joules.get(name)
        if value is None:
            continue
        if last is not None and first is not None and value < last[1]:
            yield _Span(first[0], last[0], last[1] - first[1])
            first = None
        first, last = first or (time, value), (time, value)
    if first is not None and last is not None:
        yield _Span(first[0], last[0], last[1] - first[1])


def _row(
    name: str,
    readings: list[tuple[int, dict[str, float]]],
    windows: pd.DataFrame,
    rank: int,
    idle: Marker | None,
) -> dict[str, Any] | None:
    spans = [span for span in _spans(name, readings) if span.end_ns > span.start_ns]
    if not spans:
        return None
    joules, length = sum(s.joules for s in spans), sum(s.end_ns - s.start_ns for s in spans)
    # How many steps begin in spans, and the time of these within them.
    count, inside = 0, 0
    starts, ends = windows["host_start_ns"], windows.sum(axis="columns")
    for span in spans:
        begun = (starts >= span.start_ns) & (starts < span.end_ns)
        count += int(begun.sum())
        inside += int((ends[begun].clip(upper=span.end_ns) - starts[begun]).sum())
    method = _METHODS.get(name.partition(":")[0], _UNKNOWN)
    note = _note(joules, count, inside / length)
    spread = sum(span.joules for span in _spans(name + _SPREAD, readings))
    seconds = length / _NS_PER_S
    found = _around(joules, seconds / len(spans), spread, method)
    before = _idle(name, idle, method, seconds)
    each, base = (
        [None] * 3 if note is not None or values is None else [value / count for value in values]
        for values in (found, before)
    )
    values = (rank, name, *each, *base, joules, seconds, count, method.text, note)
    return dict(zip(ENERGY.names, values, strict=True))


def _around(
    joules: float, seconds: float, spread: float, method: _Method
) -> tuple[float, float, float]:
    """Return joules that were counted in spans of so many seconds, the least and the most."""
    error = joules * (method.period / seconds + method.accuracy) + spread
    return joules, max(0.0, joules - error), joules + error


def _idle(
    name: str, idle: Marker | None, method: _Method, seconds: float
) -> tuple[float, float, float] | None:
    """Return what would have been used in some seconds as before the program began."""
    if idle is None or not idle.idle_joules or not idle.idle_seconds:
        return None
    joules = idle.idle_joules.get(name)
    if not joules:
        return None
    spread = idle.idle_joules.get(name + _SPREAD, 0.0)
    scale = seconds / idle.idle_seconds
    least_to_most = _around(joules, idle.idle_seconds, spread, method)
    return least_to_most[0] * scale, least_to_most[1] * scale, least_to_most[2] * scale


def _note(joules: float, count: int, share: float) -> str | None:
    """Return why there is no energy of a step; None: there is."""
    if joules <= 0:
        return _STILL
    if not count:
        return _NO_STEPS
    return None if share >= _LEAST_SHARE else _OUTSIDE.format(100 * (1 - share))
