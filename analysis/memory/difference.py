"""The difference of two recordings' memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.analysis.memory.live import ROW_COLUMNS
from pyprof2.tables import Column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from pyprof2.analysis.memory.profile import MemoryProfile

_KEYS: Final = ("rank", "device_type", "device")
DIFFERENCE_COLUMNS: Final = (
    *(c for c in ROW_COLUMNS if c.name not in ("bytes", "blocks", "share_pct", "certainty")),
    Column("a_bytes", pa.int64(), "What lives in A.", "B", nullable=False),
    Column("b_bytes", pa.int64(), "What lives in B.", "B", nullable=False),
    Column("difference_bytes", pa.int64(), "B less A.", "B", nullable=False),
    Column("a_blocks", pa.int64(), "Number of blocks in A."),
    Column("b_blocks", pa.int64(), "Number of blocks in B."),
)


def difference(
    a: MemoryProfile, b: MemoryProfile, by: Sequence[str], at: str = "peak"
) -> pd.DataFrame:
    """Return what lives in B more than in A, along axes, the largest difference first.

    The differences of a device add up to that of what is allocated at the moment.

    Args:
        a: the one before.
        b: the one after.
        by: some of `live.AXES`.
        at: one of `profile.MOMENTS`.

    Returns:
        The columns of `DIFFERENCE_COLUMNS`, of the axes only those asked for.
    """
    keys = [*_KEYS, *by]
    sides = [side.rows(by, at)[[*keys, "bytes", "blocks"]] for side in (a, b)]
    plain = [side.astype(dict.fromkeys([*by, "device_type"], "object")) for side in sides]
    both = plain[0].merge(plain[1], on=keys, how="outer", suffixes=("_a", "_b"))
    numbers = {}
    for side in "ab":
        lacks = both[f"bytes_{side}"].isna()
        numbers[f"{side}_bytes"] = both[f"bytes_{side}"].fillna(0).astype("int64")
        numbers[f"{side}_blocks"] = both[f"blocks_{side}"].astype("Int64").mask(lacks, 0)
    found = both[keys].assign(**numbers)
    found["difference_bytes"] = found["b_bytes"] - found["a_bytes"]
    found = found.sort_values(
        "difference_bytes", ascending=False, kind="stable", key=abs, ignore_index=True
    )
    return found[[c.name for c in DIFFERENCE_COLUMNS if c.name in found]]
