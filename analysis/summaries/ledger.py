"""The ledger: every nanosecond of GPU time in exactly one bin, by what is known of its work.

A recording without GPU activity has the same bins over the self time of its ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.intervals import Int, nearest_marked
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    import pandas as pd

BINS: Final = {
    "ok": "costed",
    "assumed": "costed with an assumption",
    "no_shapes": "known op without shapes",
    "no_formula": "no formula for the op",
    "no_op": "no op",
    "comm": "communication",
    "copy": "memcpy and memset",
}
"""The bins in order, and what each holds; the first five are values of `cost_status`."""

_MISSING: Final = ("no_shapes", "no_formula")
_IN_PARENT: Final = "in_parent"


def ledger(kernels: pa.Table, copies: pa.Table) -> pd.DataFrame:
    """Return the GPU time in each bin.

    Communication kernels have a bin of their own, whatever is known of their bytes. Time that
    overlaps on several streams counts for each: the bins add up to the durations of all kernels
    and copies, exactly.

    Args:
        kernels: canonical table `kernels`.
        copies: canonical table `copies`.

    Returns:
        A row for every one of `BINS`, in that order: `bin`, `time_ns`, `share_pct` (null where
        there is no time at all), `count` (kernels or copies).
    """
    bins = np.concatenate((_bins(kernels), np.full(copies.num_rows, len(BINS) - 1)))
    return _sum(bins, np.concatenate([int_column(t, "dur_ns", 0) for t in (kernels, copies)]))


def op_ledger(ops: pa.Table) -> pd.DataFrame:
    """Return the self time of ops in each bin, as `ledger` does; autograd's envelopes are none.

    An op inside one that accounts for it is in the bin of that one.

    Args:
        ops: canonical table `ops`, rank after rank, each in order of `op_id`.
    """
    status, statuses = code_column(ops, "cost_status")
    parent = int_column(ops, "parent_op_id", -1)
    rank = ops["rank"].to_numpy()
    # Ids are dense within a rank: with the position of its first op they are positions.
    position = np.where(parent >= 0, parent + np.searchsorted(rank, rank), -1)
    accounts = status != (statuses.index(_IN_PARENT) if _IN_PARENT in statuses else -1)
    bins = _bins(ops)[nearest_marked(position, accounts)] if len(rank) else status
    rows = ~is_engine(ops["op"])
    return _sum(bins[rows], int_column(ops, "self_ns", 0)[rows])


def _bins(table: pa.Table) -> Int:
    """Return the bin of each kernel or op as a position in `BINS`."""
    names = list(BINS)
    status, statuses = code_column(table, "cost_status")
    category, categories = code_column(table, "category")
    of_status = [names.index(text) if text in names else names.index("no_op") for text in statuses]
    is_comm = np.array([*(text == "comm" for text in categories), False])[category]
    bins = np.array([*of_status, names.index("no_op")], np.int64)[status]
    return np.where(is_comm, names.index("comm"), bins)


def _sum(bins: Int, time: Int) -> pd.DataFrame:
    import pandas as pd

    sums = np.zeros(len(BINS), np.int64)
    np.add.at(sums, bins, time)
    share = sums / (sums.sum() or np.nan) * 100
    count = np.bincount(bins, minlength=len(BINS))
    return pd.DataFrame(
        {"bin": list(BINS), "time_ns": sums, "share_pct": share, "count": count.astype(np.int64)}
    )


def uncosted_ops(kernels: pa.Table, copies: pa.Table, ops: pa.Table) -> pd.DataFrame:
    """Return the ops without counts, for want of a formula or of shapes.

    Args:
        kernels: canonical table `kernels`.
        copies: canonical table `copies`, for the time that the shares are of.
        ops: canonical table `ops`; without GPU activity it is their self time that counts.

    Returns:
        One row per op and bin, longest time first: `op` (of a graph that was launched outside of
        any op its name), `bin`, `cost_note` (why, in the words
        of the formula; may be empty), `count` (kernels, or op calls), `time_ns`, `share_pct` (of
        all GPU time, or op time). Communication is left out.
    """
    import pandas as pd

    total = sum(pc.sum(table["dur_ns"]).as_py() or 0 for table in (kernels, copies))
    rows, time = kernels, "dur_ns"
    if not kernels.num_rows and not copies.num_rows:
        rows, time = ops.filter(pa.array(~is_engine(ops["op"]))), "self_ns"
        total = pc.sum(rows[time]).as_py() or 0
    names = np.array([*BINS], dtype=object)[_bins(rows)]
    rows = rows.filter(pa.array(np.isin(names, _MISSING)))
    frame = pd.DataFrame({name: _texts(rows, name) for name in ("op", "cost_status", "cost_note")})
    if "kernel" in rows.column_names:
        frame["op"] = frame["op"].where(frame["op"] != "", _texts(rows, "kernel"))
    frame["time_ns"] = int_column(rows, time, 0)
    keys = {"op": "op", "cost_status": "bin", "cost_note": "cost_note"}
    found = frame.groupby(list(keys), sort=True, as_index=False).agg(
        count=("time_ns", "size"), time_ns=("time_ns", "sum")
    )
    found["share_pct"] = found["time_ns"] / (total or np.nan) * 100
    return found.rename(columns=keys).sort_values(
        "time_ns", ascending=False, kind="stable", ignore_index=True
    )


def _texts(rows: pa.Table, name: str) -> Any:
    return pc.fill_null(rows[name].cast(pa.string()), "").to_numpy(zero_copy_only=False)
