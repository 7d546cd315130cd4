"""Tags: what the recorded program itself said that blocks are for.

A tag names a block by its address at a moment. It is exact where everything else is inferred.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import last_not_after
from pyprof2.recording import code_column, int_column
from pyprof2.tables import TEXT, Column, Table

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.memory.curves import Curve

TAGS: Final = Table(
    "memory_tags",
    "One row per block whose use the recorded program knows.",
    (
        Column("rank", pa.int64(), "Process in the job.", nullable=False),
        Column("time_ns", pa.int64(), "When it was so, on the clock of the trace.", "ns"),
        Column("device_type", TEXT, "`cuda`, `hip`, `xpu` or `cpu`."),
        Column("device", pa.int64(), "Ordinal of the device; null for the CPU."),
        Column("address", pa.int64(), "Address of the block.", nullable=False),
        Column("category", TEXT, "What it is for.", nullable=False),
    ),
)


def tagged(curve: Curve, tags: pa.Table) -> tuple[Int, list[str]]:
    """Return for each allocation of a curve its tag, -1 for none, and the texts of the tags.

    A tag is of the block that lives at its address at its time; the last one of a block counts.

    Args:
        curve: of one device.
        tags: rows of `TAGS`, of any devices.
    """
    rows = _of_device(curve, tags)
    order = np.argsort(int_column(rows, "time_ns", 0), kind="stable")
    rows = rows.take(pa.array(order))
    category, words = code_column(rows, "category")
    time, address = int_column(rows, "time_ns", 0), int_column(rows, "address", -1)
    blocks, clock = curve.blocks, int_column(curve.events, "time_ns", 0)
    place = curve.addresses[blocks.alloc]
    sort = np.lexsort((np.arange(len(place)), place))
    begin = clock[blocks.alloc][sort]
    found = last_not_after(place[sort], begin, address, time)
    block = np.where(found >= 0, sort[found], -1) if len(sort) else found
    free = blocks.free[block] if len(sort) else block
    lives = (block >= 0) & ((free < 0) | (clock[free] >= time))
    codes = np.full(len(blocks.alloc), -1)
    codes[block[lives]] = category[lives]
    return codes, words


def _of_device(curve: Curve, tags: pa.Table) -> pa.Table:
    """Return the tags of the curve's device."""
    kind, kinds = code_column(tags, "device_type")
    wanted = kinds.index(curve.device_type) if curve.device_type in kinds else -2
    device = int_column(tags, "device", -1)
    same = (kind == wanted) & (device == (-1 if curve.device is None else curve.device))
    same &= int_column(tags, "rank", 0) == curve.rank
    return tags.filter(pa.array(same))
