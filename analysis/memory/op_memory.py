"""Blocks as rows, from their allocation to their release; and what each op allocated.

An op's own is what was allocated and released on its thread while it was the innermost one; in all
also what the ops inside of it did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.intervals import Nest, add_to_parents, levels_of, same_again
from pyprof2.columns import as_pandas, combine_keys, lookup, sum_at, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.tables import text, whole

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.memory.curves import MemoryCurve

_DEVICE: Final = (
    whole("rank", "Process in the job.", nullable=False),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`."),
    whole("device", "Ordinal of the device; null for the CPU."),
)
EVENT_COLUMNS: Final = (
    *_DEVICE,
    text("op", "Innermost op that allocated it; null: not known."),
    text("layer", "Layer that allocated it."),
    text("source", "`path:line` that allocated it."),
    whole("bytes", "Size.", "B"),
    whole("allocated_ns", "When; null: before the recording.", "ns"),
    whole("released_ns", "When; null: not in the recording.", "ns"),
    whole("dur_ns", "From one to the other.", "ns"),
)
STATISTICS_COLUMNS: Final = (
    *_DEVICE,
    text("op", "Name of the operator.", nullable=False),
    whole("calls", "Its calls that reach into the window.", nullable=False),
    whole("increase_bytes", "Allocated less released, with ops inside.", "B"),
    whole("self_increase_bytes", "The same of its own.", "B"),
    whole("allocations", "Number of allocations, with ops inside."),
    whole("self_allocations", "The same of its own."),
    whole("allocation_bytes", "Their sizes, with ops inside.", "B"),
    whole("self_allocation_bytes", "The same of its own.", "B"),
)
MEMORY_NEEDED: Final = ("time_ns", "pid", "tid", "device_type", "device", "bytes")
OPS_NEEDED: Final = ("start_ns", "dur_ns", "pid", "tid", "op", "parent_op_id")
_NO_ID: Final = -1
_SUMS: Final = ("increase_bytes", "allocations", "allocation_bytes")


def block_events(curve: MemoryCurve) -> pd.DataFrame:
    """Return `EVENT_COLUMNS` of each block of a device, in order of the first that is known of it.

    Args:
        curve: of the device.
    """
    blocks, events = curve.blocks, curve.events
    before = blocks.before
    allocated = np.concatenate((blocks.alloc, np.full(len(before), -1)))
    released = np.concatenate((blocks.free, before))
    time = int_column(events, "time_ns", 0)
    began, ended = (
        pa.array(lookup(time, rows, 0), mask=rows < 0) for rows in (allocated, released)
    )
    both = (allocated >= 0) & (released >= 0)
    length = pa.array(lookup(time, released, 0) - lookup(time, allocated, 0), mask=~both)
    size = np.abs(np.where(allocated >= 0, curve.change[allocated], curve.change[released]))
    texts = {}
    for name in ("op", "layer", "source"):
        codes, words = code_column(events, name)
        texts[name] = text_array((lookup(codes, allocated, -1), words))
    rows = pa.table(
        texts | {"bytes": size, "allocated_ns": began, "released_ns": ended, "dur_ns": length}
    )
    found = as_pandas(rows, ("bytes",))
    found.insert(0, "device", pd.Series([curve.device] * len(found), dtype="Int64"))
    found.insert(0, "device_type", curve.device_type)
    found.insert(0, "rank", curve.rank)
    order = np.argsort(np.where(allocated >= 0, allocated, released), kind="stable")
    return found.iloc[order].reset_index(drop=True)


def memory_by_op(
    memory: pa.Table, ops: pa.Table, rank: int, window: tuple[int, int] | None = None
) -> pd.DataFrame:
    """Return `STATISTICS_COLUMNS`, most of its own first; ops that allocated nothing have no row.

    Args:
        memory: the table of that name of a rank, `MEMORY_NEEDED`.
        ops: the same, `OPS_NEEDED`.
        rank: its number.
        window: first and last moment, both included; None: the whole recording.
    """
    count = ops.num_rows
    ids = [
        np.concatenate([int_column(table, name, _NO_ID) for table in (ops, memory)])
        for name in ("pid", "tid")
    ]
    thread = combine_keys(*ids)
    start, length = (int_column(ops, name, 0) for name in ("start_ns", "dur_ns"))
    time, change = (int_column(memory, name, 0) for name in ("time_ns", "bytes"))
    first, last = window or (min(start.min(initial=0), time.min(initial=0)), 1 << 62)
    nest = Nest.of(thread[:count], start, start + length)
    owner = nest.innermost(thread[count:], time)
    kind, kinds = code_column(memory, "device_type")
    place = combine_keys(kind.astype(np.int64), int_column(memory, "device", _NO_ID))
    codes, names = code_column(ops, "op")
    parent = int_column(ops, "parent_op_id", -1)
    again = same_again(codes, parent)
    reach = (start + length >= first) & (start <= last) & ~again
    calls = np.bincount(codes[reach], minlength=len(names))
    levels = levels_of(parent)
    parts = [pd.DataFrame(columns=[column.name for column in STATISTICS_COLUMNS])]
    chosen = (owner >= 0) & (time >= first) & (time <= last)
    for device in np.unique(place[chosen]).tolist():
        rows = np.flatnonzero(chosen & (place == device))
        sums: dict[str, Int] = {"calls": calls}
        gained = np.maximum(change[rows], 0)
        each_one = (gained > 0).astype(np.int64)
        for name, values in zip(_SUMS, (change[rows], each_one, gained), strict=True):
            own = sum_at(owner[rows], values, count)
            every = own.copy()
            add_to_parents(every, parent, levels)
            every[again] = 0
            for prefix, each in (("", every), ("self_", own)):
                sums[prefix + name] = sum_at(codes, each, len(names))
        found = pd.DataFrame({"op": names} | sums)
        found = found[(found.drop(columns=["op", "calls"]) != 0).any(axis=1)]
        where = rows[0]
        number = memory["device"][where].as_py()
        found = found.assign(
            rank=rank, device_type=kinds[kind[where]],
            device=pd.array([number] * len(found), "Int64"),
        )  # fmt: skip
        found = found.sort_values(
            ["self_increase_bytes", "op"], ascending=[False, True], kind="stable"
        )
        parts.append(found[[column.name for column in STATISTICS_COLUMNS]])
    return pd.concat(parts[1:] or parts, ignore_index=True)
