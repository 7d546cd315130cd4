"""The ledger: every nanosecond of GPU time in exactly one bin, by what is known of its work.

A recording without GPU activity has the same bins over the self time of its ops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.chunked import Tail, chunks_of, least_from
from pyprof2.analysis.intervals import Int, nearest_marked
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.recording import code_column, has_text, int_column, summed
from pyprof2.result_tables import LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.chunked import ChunkedTable

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

NEEDED: Final = {
    "kernels": ("dur_ns", "cost_status", "category"),
    "copies": ("dur_ns",),
    "ops": ("op", "self_ns", "cost_status", "category", "parent_op_id"),
}  # fmt: skip
"""The columns that a ledger is made of, of each table."""

_MISSING: Final = ("no_shapes", "no_formula")
_IN_PARENT: Final = "in_parent"
_COSTED: Final = list(BINS).index("ok")
_OF_COUNTS: Final = [list(BINS).index(name) for name in ("ok", "assumed", "comm")]
"""The bins of ops that account for others."""


def of_tables(tables: Mapping[str, ChunkedTable], rank: int) -> pa.Table:
    """Return table `ledger` of a rank: of its GPU time, without a GPU of its op time.

    It has a row for every one of `BINS`, in that order; `share_pct` is null where there is no time
    at all. Communication kernels have a bin of their own, whatever is known of their bytes. Time
    that overlaps on several streams counts for each: the bins add up to the durations of all
    kernels and copies, exactly. An op inside one that accounts for it is in the bin of that one;
    what the ops inside account for is costed; autograd's envelopes are in none.

    Args:
        tables: columns `NEEDED` of the rank's canonical tables; `ops` are in order of `op_id`.
        rank: its number.
    """
    columns = _columns(*_sums(_parts(tables)))
    share = columns["share_pct"]
    arrays = columns | {"share_pct": pa.array(share, mask=np.isnan(share))}
    return LEDGER.conform(pa.table({"rank": np.full(len(BINS), rank)} | arrays))


def _parts(tables: Mapping[str, ChunkedTable]) -> Iterator[tuple[Int, Int]]:
    """Yield the bins and the times of rows, part by part."""
    kernels, copies = tables["kernels"], tables["copies"]
    if not kernels.row_count and not copies.row_count:
        yield from _op_bins(tables["ops"])
        return
    for part in chunks_of(kernels, NEEDED["kernels"]):
        yield _bins(part), int_column(part, "dur_ns", 0)
    for part in chunks_of(copies, NEEDED["copies"]):
        yield np.full(part.num_rows, len(BINS) - 1), int_column(part, "dur_ns", 0)


def _op_bins(ops: ChunkedTable) -> Iterator[tuple[Int, Int]]:
    """Yield the bin and the self time of ops, part by part."""
    # Ids are dense, so they are positions.
    known, least = Tail(), least_from(ops, ["parent_op_id"])
    for part in chunks_of(ops, NEEDED["ops"]):
        parent, first = int_column(part, "parent_op_id", -1), known.end
        status, statuses = code_column(part, "cost_status")
        # An op without status is in no other op's count, whether or not the part has any that is.
        accounts = status != (statuses.index(_IN_PARENT) if _IN_PARENT in statuses else -2)
        inside = np.where(parent >= first, parent - first, -1)
        # Up to the op that accounts, or to one whose parent has its bin already.
        top = nearest_marked(inside, accounts | (inside < 0))
        is_own = accounts | (parent < 0)
        bins = np.where(is_own, _bins(part), known.at(np.where(inside < 0, parent, -1)))[top]
        bins[~accounts & ~np.isin(bins, _OF_COUNTS)] = _COSTED
        known.extend(bins)
        known.forget(least(known.end))
        rows = ~is_engine(part["op"])
        yield bins[rows], int_column(part, "self_ns", 0)[rows]


def merge_ledgers(ledgers: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the ledger of several ranks: times and counts are added up."""
    import pandas as pd

    nothing = np.zeros(len(BINS), np.int64)
    time, count = (
        sum((frame[name].to_numpy(np.int64) for frame in ledgers), nothing)
        for name in ("time_ns", "count")
    )
    return pd.DataFrame(_columns(time, count))


def _bins(table: pa.Table) -> Int:
    """Return the bin of each kernel or op as a position in `BINS`."""
    names = list(BINS)
    status, statuses = code_column(table, "cost_status")
    of_status = [
        names.index({_IN_PARENT: "ok"}.get(text, text if text in names else "no_op"))
        for text in statuses
    ]
    bins = np.array([*of_status, names.index("no_op")], np.int64)[status]
    return np.where(has_text(table, "category", ("comm",)), names.index("comm"), bins)


def _sums(parts: Iterable[tuple[Int, Int]]) -> tuple[Int, Int]:
    """Return the time and the count of each bin of rows whose bins and times come in parts."""
    sums, count = np.zeros(len(BINS), np.int64), np.zeros(len(BINS), np.int64)
    for bins, time in parts:
        np.add.at(sums, bins, time)
        count += np.bincount(bins, minlength=len(BINS))
    return sums, count


def _columns(time: Int, count: Int) -> dict[str, Any]:
    share = time / (time.sum() or np.nan) * 100
    return {"bin": list(BINS), "time_ns": time, "share_pct": share, "count": count}


def uncosted_ops(rows: pa.Table, *, has_gpu: bool) -> pd.DataFrame:
    """Return the work without counts, because a formula or shapes are missing; no communication.

    Args:
        rows: of the canonical table `kernels`; without GPU activity of `ops`, whose self time it is
            that counts.
        has_gpu: whether there is GPU activity.

    Returns:
        One row for all kernels, or op calls, of one `op` (of a graph that was launched outside of
        any op its name), `bin` and `cost_note` (why, in the words of the formula; may be empty):
        these, their `count` and `time_ns`.
    """
    import pandas as pd

    if not has_gpu:
        rows = rows.filter(pa.array(~is_engine(rows["op"])))
    rows = rows.filter(pa.array(np.isin(_bins(rows), [list(BINS).index(n) for n in _MISSING])))
    names = ["op", "cost_status", "cost_note", *(["kernel"] if has_gpu else [])]
    rows, sums = summed(rows, names, "dur_ns" if has_gpu else "self_ns")
    op = pd.Series(_texts(rows, "op"))
    if has_gpu:
        op = op.where(op != "", _texts(rows, "kernel"))
    texts = {"op": op, "bin": _texts(rows, "cost_status"), "cost_note": _texts(rows, "cost_note")}
    return pd.DataFrame(texts | sums)


def sum_by(rows: pd.DataFrame, keys: Sequence[str], total: int) -> pd.DataFrame:
    """Return one row for every key, longest time first, with its share of a total.

    Args:
        rows: the columns `keys`, `count` and `time_ns`.
        keys: to sum along.
        total: the time that the shares are of.

    Returns:
        The keys, `count`, `time_ns`, `share_pct`; ties are in the order of the keys.
    """
    found = rows.groupby(list(keys), sort=True, as_index=False, observed=True).agg(
        count=("count", "sum"), time_ns=("time_ns", "sum")
    )
    found["share_pct"] = found["time_ns"] / (total or np.nan) * 100
    return found.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)


def _texts(rows: pa.Table, name: str) -> Any:
    return pc.fill_null(rows[name].cast(pa.string()), "").to_numpy(zero_copy_only=False)
