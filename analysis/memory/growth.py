"""Leaks: what each step allocates and nobody releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.memory.live import phases_and_steps
from pyprof2.tables import TEXT, Column

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.memory.curves import Curve

GROWTH_COLUMNS: Final = (
    Column("rank", pa.int64(), "Process in the job.", nullable=False),
    Column("device_type", TEXT, "`cuda`, `hip`, `xpu` or `cpu`.", nullable=False),
    Column("device", pa.int64(), "Ordinal of the device; null for the CPU."),
    Column("line", TEXT, "`path:line` that allocates it."),
    Column("layer", TEXT, "Layer that allocates it."),
    Column("op", TEXT, "Innermost op that allocates it."),
    Column("steps", pa.int64(), "Steps that were looked at.", nullable=False),
    Column("bytes_per_step", pa.int64(), "The least that any of them left alive.", "B"),
    Column("bytes", pa.int64(), "What they left together.", "B"),
)
_FEWEST: Final = 2


def step_ends(curve: Curve) -> pd.DataFrame:
    """Return `step` and `over_base_bytes` at the end of each step of a device, in order."""
    import pandas as pd

    _, step = phases_and_steps(curve)
    last = np.flatnonzero(np.r_[step[1:] != step[:-1], True][: len(step)])
    return pd.DataFrame({"step": step[last], "over_base_bytes": curve.total[last]})


def growth(curve: Curve, entries: pd.DataFrame) -> pd.DataFrame:
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
