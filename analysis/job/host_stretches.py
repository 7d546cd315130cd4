"""What hosts did between collectives, where no device works: who was late, and in which line.

Without a device, as with gloo, a rank hands its part over when its host gets there. What the host
does until then is cut into *stretches*: its outermost ops, and the gaps before them on their
threads. Each is compared with the same stretch of the other ranks of the role: the n-th of its
name before the same collective. Nothing is inferred from waits: these say who was last, not how
long what made it late took, for the others had work of their own to do meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.recording import int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from pyprof2.analysis.intervals import Bool, Int

OPS: Final = (
    "op_id", "parent_op_id", "start_ns", "dur_ns", "pid", "tid", "op", "layer", "source", "step",
)  # fmt: skip
"""The columns of table `ops` that stretches are found in."""

BLAME: Final = (
    "rank", "instance", "margin_ns", "ns", "excess_ns", "worst_ns", "kind", "op", "kernel", "layer",
    "source", "step", "cause",
)  # fmt: skip
_OF_WORKERS: Final = "gloo:"
_SAME: Final = ("instance", "op", "n", "kind")
_FEWEST_PEERS: Final = 2
_NONE: Final = -1


def stretches(ops: pa.Table, members: pd.DataFrame, rank: int) -> pd.DataFrame:
    """Return the stretches of a rank's host.

    A gap in which a collective was handed over is left out: the host may have waited for it there.

    Args:
        ops: columns `OPS` of the rank.
        members: of the rank: `issued_ns`, `instance_id`; those that are matched count.
        rank: its number.

    Returns:
        `rank`, `instance` that comes next, `kind` (`op`, or `host` for the gap before one), `op`,
        `n` of the same name before the same collective, `ns`, `layer`, `source`, `step`.
    """
    known = members.dropna(subset=["instance_id"]).sort_values("issued_ns", kind="stable")
    issued = known["issued_ns"].to_numpy(np.int64)
    outer = _outermost(ops)
    start, dur = (int_column(outer, name, 0) for name in ("start_ns", "dur_ns"))
    gap, clear = _gaps(outer, start, start + dur, issued)
    texts = outer.select(["op", "layer", "source", "step"]).to_pandas(strings_to_categorical=False)
    texts = texts.astype(dict.fromkeys(("op", "layer", "source"), object))
    at = np.searchsorted(issued, start, "left")
    following = np.append(known["instance_id"].to_numpy(np.int64), _NONE)[at]
    base = texts.assign(rank=rank, instance=following, start_ns=start)
    both = [base.assign(kind="op", ns=dur), base.assign(kind="host", ns=gap)[clear]]
    found = pd.concat(both, ignore_index=True).sort_values("start_ns", kind="stable")
    found["n"] = found.groupby(["instance", "op", "kind"]).cumcount()
    known_next: pd.DataFrame = found[found["instance"] != _NONE]
    return known_next


def _outermost(ops: pa.Table) -> pa.Table:
    """Return the ops in no other one, in order of time on each thread; not those of workers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keep = pc.and_(
        ops["parent_op_id"].is_null(),
        pc.invert(pc.starts_with(ops["op"].cast(pa.string()), _OF_WORKERS)),
    )
    return ops.filter(keep).sort_by([(c, "ascending") for c in ("pid", "tid", "start_ns")])


def _gaps(outer: pa.Table, start: Int, end: Int, issued: Int) -> tuple[Int, Bool]:
    """Return the gap before each op on its thread, and in which nothing was handed over."""
    if not len(start):
        return start, np.zeros(0, bool)
    same = np.zeros(len(start), bool)
    same[1:] = True
    for name in ("pid", "tid"):
        column = int_column(outer, name, 0)
        same[1:] &= column[1:] == column[:-1]
    before, begins = np.roll(end, 1), np.roll(start, 1)
    handed = np.searchsorted(issued, start, "left") - np.searchsorted(issued, begins, "left")
    return np.maximum(start - before, 0), same & (handed == 0)


def host_blame(
    found: Sequence[pd.DataFrame], members: pd.DataFrame, roles: Mapping[int, Any]
) -> pd.DataFrame:
    """Return for each collective the rank that was late for it, the worst first.

    It is the last one to arrive, where that is known, else the one whose host took most longer
    than the others of its role; with fewer than two others nothing is said of that.

    Args:
        found: the stretches of each rank.
        members: of all ranks: `instance_id`, `rank`, `last_rank`, `margin_ns`.
        roles: of each rank.

    Returns:
        columns `BLAME`; `excess_ns` is that of all stretches that took longer than the median of
        the others, `worst_ns` and the place those of the longest of them.
    """
    frame = pd.concat(found, ignore_index=True)
    frame = frame.assign(role=frame["rank"].map(roles).map(str))
    frame["excess"] = _excess(frame)
    last = members.dropna(subset=["last_rank"]).drop_duplicates("instance_id")
    late = dict(zip(last["instance_id"], last["last_rank"], strict=True))
    margin = dict(zip(last["instance_id"], last["margin_ns"], strict=True))
    sums = frame.assign(over=frame["excess"].clip(lower=0)).groupby(["instance", "rank"])
    total = sums[["over", "ns"]].sum().reset_index().sort_values("over", kind="stable")
    rows = []
    for instance, own in total.groupby("instance"):
        by = own[own["rank"] == late[instance]] if instance in late else own
        if not len(by) or by["over"].iloc[-1] <= 0:
            continue
        rank = by["rank"].iloc[-1]
        part = frame[(frame["instance"] == instance) & (frame["rank"] == rank)]
        worst = part.loc[part["excess"].idxmax()]
        rows.append(
            {"rank": rank, "instance": instance, "margin_ns": margin.get(instance),
             "ns": by["ns"].iloc[-1], "excess_ns": by["over"].iloc[-1],
             "worst_ns": worst["excess"], "kernel": None, "cause": None,
             **{name: worst[name] for name in ("kind", "op", "layer", "source", "step")}}
        )  # fmt: skip
    blame = pd.DataFrame(rows, columns=BLAME).astype({"instance": "Int64", "margin_ns": "Int64"})
    return blame.sort_values("excess_ns", ascending=False, kind="stable").reset_index(drop=True)


def _excess(frame: pd.DataFrame) -> pd.Series:
    """Return each stretch less the median of the others' same one; null with too few others."""
    by = frame.groupby([*_SAME, "role"], dropna=False)["ns"]
    values = pd.Series(np.nan, frame.index)
    for _, own in by:
        if len(own) <= _FEWEST_PEERS:
            continue
        times = own.to_numpy(np.float64)
        for place, index in enumerate(own.index):
            values[index] = times[place] - float(np.median(np.delete(times, place)))
    return values
