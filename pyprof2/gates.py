"""Gates: what a comparison may not exceed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.comparison import Compared
    from pyprof2.run import Run

_GATE: Final = re.compile(
    r"([a-z]{1,20}(?:\.[a-z_]{1,40})?)\s{0,3}>\s{0,3}(\d{1,12}(?:\.\d{1,9})?)\s{0,3}(%|ms|us|MB)"
)
_UNITS: Final = {"ms": 1e6, "us": 1e3, "MB": 1e6}
_TIMES: Final = ("time", "busy", "idle")
_MEMORY: Final = "memory"


@dataclass(frozen=True)
class Gate:
    """A metric, and by how much it may rise.

    Attributes:
        metric: `time`, `busy`, `idle`, `idle.CAUSE` (per step) or `memory` (the peak).
        limit: how much, in `unit`.
        unit: `%` of the run before, `ms`, `us`, or `MB` for memory.
    """

    metric: str
    limit: float
    unit: str


def parse_gate(text: str) -> Gate:
    """Return the gate that `time>3%` or `idle.sync>2ms` names.

    Raises:
        UsageError: it is none.
    """
    found = _GATE.fullmatch(text.strip())
    metric = found[1] if found else ""
    is_time = metric in _TIMES or metric.startswith("idle.")
    units = ("%", "MB") if metric == _MEMORY else ("%", "ms", "us") if is_time else ()
    if found is None or found[3] not in units:
        msg = (
            f"{text!r} is no gate; give METRIC>N with %, ms, us or (memory) MB; METRIC is time, "
            "busy, idle, idle.CAUSE or memory, as in 'time>3%'"
        )
        raise UsageError(msg)
    return Gate(metric, float(found[2]), found[3])


def failures(compared: Compared, gates: Sequence[Gate]) -> list[str]:
    """Return a line for each gate that fails: even at the lower end of the interval.

    Raises:
        UsageError: what a gate is about was not recorded on both sides.
    """
    return [line for gate in gates if (line := _failure(compared, gate)) is not None]


def _failure(compared: Compared, gate: Gate) -> str | None:
    before, after, lower = _values(compared, gate)
    size = _UNITS.get(gate.unit) or before / 100
    # What rose from nothing rose by more than any share of it.
    if lower <= gate.limit * size:
        return None
    scale, unit = (_UNITS["ms"], "ms") if gate.metric != _MEMORY else (_UNITS["MB"], "MB")
    return (
        f"{gate.metric} rose from {before / scale:.3f} to {after / scale:.3f} {unit}: more than "
        f"{gate.limit:g} {gate.unit}"
    )


def _values(compared: Compared, gate: Gate) -> tuple[float, float, float]:
    """Return a metric before and after, and the least that it rose by."""
    import pandas as pd

    if gate.metric == _MEMORY:
        before, after = (_peak_bytes(run) for run in (compared.a, compared.b))
        return before, after, after - before
    totals = compared.comparison.totals.set_index("metric")
    if gate.metric not in totals.index:
        return 0.0, 0.0, 0.0
    row: Any = totals.loc[gate.metric]
    before, after = float(row["a_ns"]), float(row["b_ns"])
    return before, after, after - before if pd.isna(row["lo_ns"]) else float(row["lo_ns"])


def _peak_bytes(run: Run) -> float:
    """Return the most that was allocated on a device at once, of all ranks."""
    memory = run.memory
    known = memory["allocated_bytes"].notna()
    on_device = known & (memory["device_type"].astype(str) != "cpu")
    chosen = memory[on_device if on_device.any() else known]
    if chosen.empty:
        msg = f"{run.path}: no memory was recorded; record with profile(profile_memory=True)"
        raise UsageError(msg)
    return float(chosen["allocated_bytes"].max())
