"""The memory of a device over time, by category; and leaks: what each step leaves behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.memory.curves import NO_NUMBER
from pyprof2.analysis.memory.live import phases_and_steps
from pyprof2.recording import int_column
from pyprof2.tables import text, whole

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.memory.curves import MemoryCurve

TIMELINE_COLUMNS: Final = (
    whole("rank", "Process in the job.", nullable=False),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`.", nullable=False),
    whole("device", "Ordinal of the device; null for the CPU."),
    whole("event", "Number of the event on its device.", nullable=False),
    whole("time_ns", "When it was; null: not recorded.", "ns"),
    whole("step", "The step that it was in."),
    text("phase", "What the host was at."),
    whole("change_bytes", "Size; negative for a release.", "B", nullable=False),
    whole("over_base_bytes", "Above the base, after it.", "B", nullable=False),
    whole("allocated_bytes", "Allocated after it; null where the base is.", "B"),
)
"""The columns of `timeline`; one more for each category, its bytes after the event."""
GROWTH_COLUMNS: Final = (
    whole("rank", "Process in the job.", nullable=False),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`.", nullable=False),
    whole("device", "Ordinal of the device; null for the CPU."),
    text("line", "`path:line` that allocates it."),
    text("layer", "Layer that allocates it."),
    text("op", "Innermost op that allocates it."),
    whole("steps", "Steps that were looked at.", nullable=False),
    whole("bytes_per_step", "The least that any of them left alive.", "B"),
    whole("bytes", "What they left together.", "B"),
)
_FEWEST: Final = 2


def timeline(curve: MemoryCurve, entries: pd.DataFrame) -> pd.DataFrame:
    """Return one row per allocation and release, with what lives after it.

    Args:
        curve: of one device.
        entries: everything that lived on it, see `live.entries`.

    Returns:
        `TIMELINE_COLUMNS`, and `<category>_bytes` for each category that there is. They add up to
        `allocated_bytes`, or where the base is not known to `over_base_bytes`.
    """
    import pandas as pd

    count = len(curve.total)
    columns: dict[str, Any] = {
        "rank": np.full(count, curve.rank),
        "device_type": [curve.device_type] * count,
        "device": pd.Series([curve.device] * count, dtype="Int64"),
        "event": np.arange(count),
        "time_ns": _nullable(int_column(curve.events, "time_ns", NO_NUMBER)),
        "step": _nullable(int_column(curve.events, "step", NO_NUMBER)),
        "phase": curve.events["phase"].to_pandas(),
        "change_bytes": curve.change,
        "over_base_bytes": curve.total,
        "allocated_bytes": _nullable(
            np.full(count, NO_NUMBER) if curve.base is None else curve.total + curve.base
        ),
    }
    return pd.DataFrame(columns | by_category(entries, count))


def by_category(entries: pd.DataFrame, count: int) -> dict[str, Int]:
    """Return the live bytes of each category after each of `count` events."""
    found = {}
    for category, rows in entries.groupby("category", observed=True, sort=True):
        change = np.zeros(count + 1, np.int64)
        begin = np.maximum(rows["begin"].to_numpy(), 0)
        np.add.at(change, begin, rows["bytes"].to_numpy())
        ends = rows[rows["end"] < count]
        np.subtract.at(change, ends["end"].to_numpy(), ends["bytes"].to_numpy())
        found[f"{category}_bytes"] = np.cumsum(change)[:count]
    return found


def _nullable(values: Int) -> Any:
    import pandas as pd

    return pd.array(values, dtype="Int64").copy() if (values != NO_NUMBER).all() else pd.Series(
        pd.array(values, dtype="Int64")
    ).mask(values == NO_NUMBER)  # fmt: skip


def highest_of_parts(curve: MemoryCurve, parts: int) -> list[int]:
    """Return the moment with most allocated in each of `parts` equal stretches of the recording.

    Stretches are of time where times are recorded, else of events; those without events are left
    out.
    """
    count = len(curve.total)
    if not count:
        return []
    time = int_column(curve.events, "time_ns", NO_NUMBER)
    at = np.arange(count) if (time == NO_NUMBER).any() else time - time.min()
    part = np.minimum(at * parts // max(1, int(at.max())), parts - 1)
    order = np.lexsort((np.arange(count), -curve.total, part))
    _, first = np.unique(part[order], return_index=True)
    return [int(row) for row in order[first]]


def step_ends(curve: MemoryCurve) -> pd.DataFrame:
    """Return `step` and `over_base_bytes` at the end of each step of a device, in order."""
    import pandas as pd

    _, step = phases_and_steps(curve)
    last = np.flatnonzero(np.r_[step[1:] != step[:-1], True][: len(step)])
    return pd.DataFrame({"step": step[last], "over_base_bytes": curve.total[last]})


def growth(curve: MemoryCurve, entries: pd.DataFrame) -> pd.DataFrame:
    """Return the lines that leave memory behind in every step, the most first.

    The first step is left out, which sets up what stays, and the last one, which may go on. What
    every other step allocated and is alive at the end of the recording is growth.

    Args:
        curve: of one device.
        entries: everything that lived on it, see `live.entries`.

    Returns:
        `GROWTH_COLUMNS`; no rows where fewer than two steps can be looked at.
    """
    import pandas as pd

    _, step = phases_and_steps(curve)
    steps = np.unique(step)[1:-1]
    rows = entries[(entries["begin"] >= 0) & (entries["end"] > curve.end) & (entries["bytes"] > 0)]
    own = rows.assign(_step=step[rows["begin"].to_numpy()])
    own = own[np.isin(own["_step"], steps)]
    if len(steps) < _FEWEST or own.empty:
        return pd.DataFrame(columns=[column.name for column in GROWTH_COLUMNS])
    keys = ["line", "layer", "op"]
    sums = own.groupby([*keys, "_step"], observed=True)["bytes"].sum().reset_index()
    found = sums.groupby(keys, observed=True)["bytes"].agg(["count", "min", "sum"]).reset_index()
    found = found[found["count"] == len(steps)].sort_values("sum", ascending=False)
    return pd.DataFrame(
        {
            "rank": curve.rank,
            "device_type": curve.device_type,
            "device": pd.Series([curve.device] * len(found), dtype="Int64"),
            **{key: found[key].astype(object).to_numpy() for key in keys},
            "steps": len(steps),
            "bytes_per_step": found["min"].to_numpy(),
            "bytes": found["sum"].to_numpy(),
        }
    )
