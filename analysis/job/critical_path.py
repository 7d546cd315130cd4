"""The critical path of a job: the events that its length rests on, back from the last end.

From an event the path goes back along the edge that its start rests on; from a collective to the
rank that arrived last. Its stretches add up to the window, to the ns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.job.job_graph import MEETING, TRANSFER, JobGraph
from pyprof2.analysis.job.rank_graph import (
    AWAITED,
    COMM_WAIT,
    COPY,
    FIFO,
    HOST,
    KERNEL,
    LAUNCH,
    LAUNCHED,
    MEMBER,
    ROOT,
    SHARED_WAIT,
    START,
    SYNC,
    WAIT,
)
from pyprof2.analysis.job.replay import way_back
from pyprof2.columns import lookup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int

_EVENTS: Final = {
    LAUNCH: "launch", KERNEL: "kernel", COPY: "copy", MEMBER: "kernel", TRANSFER: "transfer",
}  # fmt: skip
_GAPS: Final = {
    FIFO: "lag",
    LAUNCHED: "latency",
    HOST: "host",
    SYNC: "sync",
    WAIT: "lag",
    COMM_WAIT: "lag",
    SHARED_WAIT: "lag",
    AWAITED: "lag",
    START: "host",
}
"""The kind of the time between two events, by the kind of edge: `latency` is from the end of a
launch to the start of its activity, `lag` from one activity to the next."""
_KINDS: Final = tuple(dict.fromkeys(("", *_EVENTS.values(), *_GAPS.values())))


def critical_path(job: JobGraph) -> pd.DataFrame:
    """Return the stretches of the critical path, in order of time.

    Returns:
        `rank`, `kind` (`kernel`, `copy`, `transfer`, `launch`, `latency`, `host`, `sync`, `lag`),
        `start_ns`, `ns`, `kernel`, `op`, `layer`, `source`, `step`, `event` and `instance` (of a
        transfer, and where the path jumps to another rank).
    """
    event, what, start, took = stretches(job)
    step = pd.Series(job.step[event], dtype="Int64")
    instance = pd.Series(job.instance[event], dtype="Int64")
    columns = {"kernel": "kernel_short", "op": "op", "layer": "layer", "source": "source"}
    return pd.DataFrame(
        {
            "rank": job.rank[event].astype(np.int64),
            "kind": [_KINDS[code] for code in what.tolist()],
            "start_ns": start,
            "ns": took,
            **{
                name: pd.Series(job.labels.text(column, event), dtype=object)
                for name, column in columns.items()
            },
            "step": step.mask(step < -(1 << 61)),
            "event": event,
            "instance": instance.mask(instance < 0),
        }
    )


def walk_back(job: JobGraph) -> tuple[Int, NDArray[np.int8], Int]:
    """Return the path from its end: event, stretches, and since when each of these was.

    The path has each event's own time, then the gap before it, which are positions in `_KINDS`;
    0 for none. The next event may have begun before this one ended, and it has only the part
    before.
    """
    last = int(job.end.argmax()) if len(job.start) else -1
    event = way_back(job.binding, job.graph, last)
    until = np.empty((len(event), 2), np.int64)
    until[:, 0] = job.start[event] + job.graph.duration[event]
    until[:, 1] = job.start[event]
    np.minimum.accumulate(until.ravel(), out=until.ravel())
    of_event, of_gap = (
        np.array([_KINDS.index(names.get(kind, "")) for kind in range(-1, 9)], np.int8)
        for names in (_EVENTS, _GAPS)
    )
    gap = of_gap[1 + lookup(job.edge_kind, job.binding[event], -1)]
    what = np.stack((of_event[1 + job.kind[event]], gap), axis=1)
    what[:, 0] *= until[:, 0] > until[:, 1]
    what[:-1, 1] *= until[:-1, 1] > until[1:, 0]
    return event, what, until


def stretches(job: JobGraph) -> tuple[Int, Int, Int, Int]:
    """Return the stretches of the path: event, kind as position in `_KINDS`, start, ns."""
    event, what, until = walk_back(job)
    rows = np.flatnonzero(what)[::-1]
    start = until.ravel()[1:][rows]
    return event[rows // 2], what.ravel()[rows].astype(np.int64), start, until.ravel()[rows] - start


def excesses(job: JobGraph, path: pd.DataFrame, roles: dict[int, Any]) -> pd.Series:
    """Return each stretch less the median of the same stretch of other ranks of its role.

    Stretches are the same where the call is: its name and its number in the step. Null where no
    other rank of the role has it, and for transfers, which no rank is to blame for.
    """
    table = _values(job, roles)
    values = []
    for kind, event, ns in zip(path["kind"], path["event"], path["ns"], strict=True):
        key, what = int(job.key[event]), "gap" if kind in ("host", "sync") else "time"
        others = table.get((what, key, roles.get(int(job.rank[event]))), [])
        own = [v for rank, v in others if rank != job.rank[event]]
        comparable = kind not in ("transfer", "latency", "lag") and own
        values.append(ns - float(np.median(own)) if comparable else None)
    return pd.Series(values, path.index, dtype="Float64")


def _values(
    job: JobGraph, roles: dict[int, Any]
) -> dict[tuple[str, int, Any], list[tuple[int, int]]]:
    """Return durations and gaps of the events of each call and role, with their ranks."""
    found: dict[tuple[str, int, Any], list[tuple[int, int]]] = {}
    events = np.flatnonzero(job.key >= 0)
    edge = job.binding[events]
    gap = np.where(edge >= 0, job.graph.lag[np.maximum(edge, 0)], 0)
    columns = (job.key[events], job.rank[events], job.graph.duration[events], gap)
    for key, rank, time, between in zip(*(c.tolist() for c in columns), strict=True):
        role = roles.get(rank)
        found.setdefault(("time", key, role), []).append((rank, time))
        found.setdefault(("gap", key, role), []).append((rank, between))
    return found


def blame(job: JobGraph, path: pd.DataFrame, roles: dict[int, Any]) -> pd.DataFrame:
    """Return one row for each part of the path between two collectives, the worst first.

    Returns:
        `rank` that the path ran on, `instance` that it was the last to reach (null: the end),
        `margin_ns` by which it was, `ns` of its own stretches, `excess_ns` of them over the medians
        of other ranks, and of the stretch with the largest excess `kind`, `op`, `kernel`, `layer`,
        `source`, `step`, `worst_ns`, `event` (of the graph, which it is of or before).
    """
    if not len(path):
        return pd.DataFrame()
    frame = path.assign(excess_ns=excesses(job, path, roles))
    is_transfer = (frame["kind"] == "transfer").to_numpy(bool)
    frame["_part"] = np.cumsum(is_transfer)
    following = frame["instance"].where(is_transfer).bfill()
    own = frame[~is_transfer].assign(_next=following[~is_transfer])
    # How much later the last member of each instance started than the last but one.
    member = np.flatnonzero((job.instance >= 0) & (job.kind < MEETING))
    order = np.lexsort((job.start[member], job.instance[member]))
    number, time = job.instance[member][order], job.start[member][order]
    last = np.flatnonzero(np.r_[number[1:] != number[:-1], True][: len(number)])
    later = time[last] - time[np.maximum(last - 1, 0)]
    margins = dict(zip(number[last].tolist(), later.tolist(), strict=True))
    rows = []
    for _, part in own.groupby("_part", observed=True):
        known = part["excess_ns"].fillna(0)
        worst = part.iloc[int(known.to_numpy(np.float64).argmax())]
        instance = part["_next"].iloc[-1]
        rows.append(
            {
                "rank": int(part["rank"].iloc[-1]),
                "instance": instance,
                "margin_ns": None if pd.isna(instance) else margins.get(int(instance)),
                "ns": int(part["ns"].sum()),
                "excess_ns": float(known.sum()),
                "worst_ns": float(known.max()),
                **{
                    name: worst[name]
                    for name in ("kind", "op", "kernel", "layer", "source", "step", "event")
                },
            }
        )
    found = pd.DataFrame(rows).astype({"instance": "Int64", "margin_ns": "Int64"})
    return found.sort_values("excess_ns", ascending=False, kind="stable").reset_index(drop=True)


class LateStart(NamedTuple):
    """Ranks whose first work of the recording came late, which the others waited for.

    Attributes:
        ranks: their numbers.
        late_ns: how much later than the others of its role, in the middle, the last one came.
    """

    ranks: list[int]
    late_ns: int


def late_start(job: JobGraph, path: pd.DataFrame) -> LateStart | None:
    """Return the rank that the path begins on and others as late, if that came late; else None.

    Args:
        job: the graph.
        path: the critical path with `excess_ns`.
    """
    if not len(path) or not (job.instance >= 0).any():
        return None
    first = path.iloc[0]
    edge = int(job.binding[int(first["event"])])
    begins = edge >= 0 and job.kind[job.graph.source[edge]] == ROOT
    if not begins or first["kind"] != "host" or pd.isna(first["excess_ns"]):
        return None
    late_ns, launches = round(first["excess_ns"]), np.flatnonzero(job.kind == LAUNCH)
    begin = pd.Series(job.start[launches]).groupby(job.rank[launches], observed=True).min()
    late = begin.index[begin >= begin[first["rank"]] - late_ns // 2]
    return LateStart([int(rank) for rank in late], late_ns)


def path_sums(path: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the path's time along axes, the most first."""
    sums = path.groupby(list(by), dropna=False, observed=True)["ns"].sum().reset_index()
    return sums.sort_values("ns", ascending=False, kind="stable").reset_index(drop=True)
