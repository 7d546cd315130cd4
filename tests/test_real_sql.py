"""Our answers on real recordings, and those of SQL that shares no code with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

from pyprof2.api import run_time
from pyprof2.api.run import load

if TYPE_CHECKING:
    from pyprof2.api.run import Run

pytest.importorskip("duckdb")
pytestmark = pytest.mark.slow

ORACLES: Final = Path(__file__).parent / "oracles"
AXES: Final = {
    "op": "op", "layer": "layer", "direction": "direction", "source": "source", "name": "kernel",
    "category": "category", "signature": "signature", "step": "step", "stream": "stream",
}  # fmt: skip
"""The column of each axis."""
WHOLE: Final = ("count", "time_ns", "min_ns", "max_ns", "flops", "bytes")
SHARES: Final = ("share_pct", "mean_ns", "tensor_core_pct", "costed_pct")


def _told(cell: Any) -> Any:
    return None if pd.isna(cell) else cell


def profile_of(run: Run, axis: str) -> dict[Any, dict[str, Any]]:
    """Return the rows of a profile by their key; those of no owner of their own are one sum."""
    found = {}
    for row in run.profile(axis).to_dict("records"):
        key = _told(row[AXES[axis]])
        if not str(key).startswith("(") or str(key).startswith("(anonymous"):
            found[key] = {name: _told(row[name]) for name in (*WHOLE, *SHARES)}
    return found


def sums_of(run: Run, axis: str) -> dict[Any, dict[str, Any]]:
    """Return the same by SQL."""
    text = (ORACLES / "profile.sql").read_text().replace("{axis}", AXES[axis])
    rows: list[dict[Any, Any]] = run.sql(text).to_dict("records")
    return {_told(row.pop("key")): {name: _told(row[name]) for name in row} for row in rows}


def test_profiles_are_what_sql_adds_up(real_trace: Path) -> None:
    run = load(real_trace)
    if run.summary["no_gpu"]:
        pytest.skip("no work of a device")
    for axis in AXES:
        right, found = sums_of(run, axis), profile_of(run, axis)
        assert found.keys() - {None} == right.keys() - {None}
        for key in found.keys() & right.keys():
            for name in WHOLE:
                assert found[key][name] == right[key][name], (axis, key, name)
            for name in SHARES:
                share = right[key][name]
                is_equal = pytest.approx(share, rel=1e-9) if share is not None else None
                assert found[key][name] == is_equal, (axis, key, name)


def test_devices_are_idle_for_what_sql_adds_up(real_trace: Path) -> None:
    run = load(real_trace)
    if run.summary["no_gpu"]:
        pytest.skip("no work of a device")
    _, windows = run_time.idle_and_windows(run.tables)

    right = run.sql((ORACLES / "idle.sql").read_text())

    names = ["rank", "device", "span_ns", "span_idle_ns"]
    assert windows[names].to_dict("records") == right[names].to_dict("records")
    busy = run.sql(
        "SELECT rank, device, sum(time_ns) AS idle_ns FROM idle GROUP BY ALL ORDER BY ALL"
    )
    assert windows[windows["idle_ns"] > 0]["idle_ns"].tolist() == busy["idle_ns"].tolist()
