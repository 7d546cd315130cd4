"""Energy of a step, by the counters that the recording machine let the recorder read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.markers import parse_marker
from pyprof2.result_tables import ENERGY

if TYPE_CHECKING:
    from collections.abc import Iterator

RANGES: Final = ("start_ns", "name", "kind")
"""The columns of table `ranges` that this is found in."""

KIND: Final = "energy"
"""Of these ranges."""
_NS_PER_S: Final = 10**9
_METHODS: Final = {
    "rapl": ("RAPL, the whole package with all programs on it", 0.001),
    "nvml": ("NVML, total energy of the GPU", 0.1),
}
"""By the beginning of a counter's name: what it is, and how old its value may be, in seconds."""
_UNKNOWN: Final = ("a counter of the recorder", 1.0)
_LEAST_SHARE: Final = 0.95
"""So much of the time must be in steps for the energy to be that of steps."""
_STILL: Final = "the counter does not move"
_OUTSIDE: Final = "{:.0f} % of the time is outside of steps"
_NO_STEPS: Final = "no step begins between two readings"


class _Span(NamedTuple):
    """What a counter counted between two readings."""

    start_ns: int
    end_ns: int
    joules: float


def energy(ranges: pa.Table, steps: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return `ENERGY` of a rank; no rows where nothing was read.

    Of a counter the first and the last reading count; they are at beginnings of steps, when no work
    was left on GPUs. A value may be as old as the counter's period at both ends, so the interval is
    ± one period of its mean power.

    Args:
        ranges: the columns `RANGES` of the rank.
        steps: the table `steps`.
        rank: the number.
    """
    readings = sorted(_readings(ranges))
    windows = steps.loc[steps["rank"] == rank, ["host_start_ns", "host_dur_ns"]].drop_duplicates()
    names = dict.fromkeys(name for _, joules in readings for name in joules)
    rows = [_row(name, list(_spans(name, readings)), windows, rank) for name in names]
    frame = pd.DataFrame([row for row in rows if row], columns=ENERGY.names)
    numbers = {c.name: "Float64" for c in ENERGY.columns if str(c.type) == "double"}
    return frame.astype(numbers | {"rank": "int64", "steps": "int64"})


def _readings(ranges: pa.Table) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield the time and what each counter said of each reading."""
    is_reading = pc.equal(ranges["kind"].cast(pa.string()), KIND)
    for row in ranges.filter(is_reading).to_pylist():
        marker = parse_marker(row["name"])
        if marker is not None and marker.joules:
            yield row["start_ns"], marker.joules


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


def _row(name: str, spans: list[_Span], windows: pd.DataFrame, rank: int) -> dict[str, Any] | None:
    spans = [span for span in spans if span.end_ns > span.start_ns]
    if not spans:
        return None
    joules, length = sum(s.joules for s in spans), sum(s.end_ns - s.start_ns for s in spans)
    count, inside = 0, 0
    for span in spans:
        starts, ends = windows["host_start_ns"], windows.sum(axis="columns")
        begun = (starts >= span.start_ns) & (starts < span.end_ns)
        count += int(begun.sum())
        inside += int((ends[begun].clip(upper=span.end_ns) - starts[begun]).sum())
    method, period = _METHODS.get(name.partition(":")[0], _UNKNOWN)
    note = _note(joules, count, inside / length)
    each = joules / count if note is None else None
    error = period * len(spans) * _NS_PER_S / length
    bounds = (None, None) if each is None else (each * max(0.0, 1 - error), each * (1 + error))
    values = (rank, name, each, *bounds, joules, length / _NS_PER_S, count, method, note)
    return dict(zip(ENERGY.names, values, strict=True))


def _note(joules: float, count: int, share: float) -> str | None:
    """Return why there is no energy of a step; None: there is."""
    if joules <= 0:
        return _STILL
    if not count:
        return _NO_STEPS
    return None if share >= _LEAST_SHARE else _OUTSIDE.format(100 * (1 - share))
