"""Who waited for whom in a collective, how long the data took, how fast, and what moved where.

`wait = min(A, end) - start` and `transfer = dur - wait`, where A is the last member's start: both
add up to the duration, exactly. A wait is rank time before the last arrival; it is no lost time,
and neither waits nor margins are to be added over collectives as such.

A collective belongs to the module whose call, or whose backward, issues it: FSDP gathers a
module's weights before its forward and its backward and scatters its gradients after; tensor and
expert parallelism communicate inside of the module. A collective that no module issues, as a
pipeline's sends and receives between two of them, has no layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.job.collective_rows import POINT_TO_POINT
from pyprof2.columns import as_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.job.clocks import Clock


SMALL_BYTES: Final = 64 << 10
"""Below it a collective is latency, and its rate says nothing."""
_OVERLAPPING: Final = "ends before the last member starts: clock error, or it need not wait"
_BOUND: Final = "members are missing: the wait is at least that, the transfer at most"
_NO_CLOCK: Final = "the clocks of its ranks cannot be compared"


def with_waits(members: pd.DataFrame, clocks: Mapping[int, Clock]) -> pd.DataFrame:
    """Return the members with `aligned_ns`, `wait_ns`, `transfer_ns`, `last_rank`, `margin_ns`.

    Args:
        members: of all ranks, as `match_members` returns them.
        clocks: of the ranks.
    """
    rank = members["rank"].to_numpy(np.int64)
    start = members["start_ns"].to_numpy(np.int64)
    aligned = start.copy()
    for each, clock in clocks.items():
        own = rank == each
        if own.any():
            aligned[own] = clock.aligned(start[own])
    frame = members.assign(aligned_ns=aligned)
    matched = frame["instance_id"].notna().to_numpy(bool)
    rows = frame[matched]
    fair = _comparable(rows, clocks)
    found = _waits(rows[fair], clocks)
    frame = frame.assign(
        **{
            name: pd.Series(found[name], frame.index[matched][fair])
            .reindex(frame.index)
            .astype("Int64")
            for name in ("wait_ns", "transfer_ns", "last_rank", "margin_ns")
        }
    )
    note = frame["match_note"].astype(object)
    note[rows.index[~fair]] = _NO_CLOCK
    notes = pd.Series(found["note"], rows.index[fair], dtype=object)
    note = note.where(note.notna(), notes.reindex(frame.index))
    return frame.assign(match_note=note)


def _comparable(
    rows: pd.DataFrame, clocks: Mapping[int, Clock]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which members are of instances whose ranks' times can be compared."""
    component = rows["rank"].map({rank: c.component for rank, c in clocks.items()})
    good = rows["rank"].map({rank: c.comparable for rank, c in clocks.items()}).astype(bool)
    instance = rows["instance_id"]
    one = component.groupby(instance, observed=True).transform("nunique") == 1
    fair = good.groupby(instance, observed=True).transform("all") & one
    return fair.to_numpy(bool)


def _waits(rows: pd.DataFrame, clocks: Mapping[int, Clock]) -> dict[str, pd.Series | np.ndarray]:
    start, dur = (rows[name].to_numpy(np.int64) for name in ("aligned_ns", "dur_ns"))
    instance, rank = rows["instance_id"].to_numpy(np.int64), rows["rank"].to_numpy(np.int64)
    order = np.lexsort((start, instance))
    first = np.flatnonzero(np.r_[True, np.diff(instance[order]) != 0][: len(order)])
    last = np.r_[first[1:], len(order)][: len(first)] - 1
    which = np.searchsorted(instance[order][first], instance)
    latest, second = start[order[last]], start[order[np.maximum(first, last - 1)]]
    arrival, margin = latest[which], (latest - second)[which]
    wait = np.minimum(arrival, start + dur) - start
    error = np.array([clocks[each].error for each in rank.tolist()])
    doubt = np.zeros(len(first))
    np.maximum.at(doubt, which, error)
    missing = are_missing(rows).to_numpy(bool)
    known = ~missing & (margin > doubt[which])
    late = rank[order[last]][which]
    note = np.full(len(rank), None, object)
    note[start + dur < arrival] = _OVERLAPPING
    note[missing] = _BOUND
    blank = pd.array(margin, "Int64")
    blank[missing] = pd.NA
    culprit = pd.array(late, "Int64")
    culprit[~known] = pd.NA
    return {
        "wait_ns": wait, "transfer_ns": dur - wait, "last_rank": culprit, "margin_ns": blank,
        "note": note,
    }  # fmt: skip


def are_missing(rows: pd.DataFrame) -> pd.Series:
    """Return whether not all members of an instance are recorded; a send has two, in any group."""
    pair = rows["kind"].isin(POINT_TO_POINT).to_numpy(bool)
    expected = rows["group_size"].astype("Int64").mask(pair, 2)
    return (rows["members_recorded"] < expected).fillna(value=False)


def payload(members: pd.DataFrame) -> pd.Series:
    """Return S of each member, the bytes of its bandwidth; null where they are not known.

    all_reduce: in; all_gather: out; reduce_scatter and all_to_all: in; gather and scatter: the
    message times the ranks; the others the message. Uneven all-to-all has its own over the ranks.
    """
    into, out = (members[name].astype("Float64") for name in ("in_bytes", "out_bytes"))
    n, kind = members["group_size"].astype("Float64"), as_text(members["kind"])
    larger = into.where(~(out > into).fillna(value=False), out)
    found = into.where(~kind.isin(["all_gather"]), out)
    found = found.where(~kind.isin(["recv"]), out)
    found = found.where(~kind.isin(["gather"]), into * n)
    found = found.where(~kind.isin(["scatter"]), out * n)
    found = found.where(kind != "barrier", 0)
    uneven = (members["uneven"].fillna(value=False).to_numpy(bool)) & (kind == "all_to_all")
    return found.where(~uneven, larger)


def bandwidths(members: pd.DataFrame) -> pd.DataFrame:
    """Return one row per instance: its bytes, its transfer over the members, and its rates.

    Rates are null where members are missing, where bytes are not known, and below `SMALL_BYTES`.

    Returns:
        `instance_id`, `kind`, `group_key`, `group_size`, `bytes`, `factor`, `transfer_ns` (the
        median), `least_ns`, `most_ns`, `algbw_gbps`, `busbw_gbps`, `step`.
    """
    rows = members[members["transfer_ns"].notna()].assign(_payload=payload(members))
    by = rows.groupby("instance_id", sort=True, observed=True)
    found = by[["kind", "group_key", "group_size", "members_recorded", "step"]].first()
    time = by["transfer_ns"]
    found = found.assign(
        bytes=by["_payload"].max(), transfer_ns=time.median().astype("Float64"),
        least_ns=time.min(), most_ns=time.max(), factor=_factors(rows, found),
    )  # fmt: skip
    whole = ~are_missing(found)
    rate = whole & (found["bytes"] >= SMALL_BYTES).fillna(value=False) & (found["transfer_ns"] > 0)
    algbw = (found["bytes"] / found["transfer_ns"]).where(rate)
    return found.assign(algbw_gbps=algbw, busbw_gbps=algbw * found["factor"]).reset_index()


def least_rates(members: pd.DataFrame) -> pd.DataFrame:
    """Return lower bounds of the rates of each member: as if it had waited for nobody.

    Null where bytes are not known, and below `SMALL_BYTES`.

    Returns:
        `least_algbw_gbps`, `least_busbw_gbps`, by the index of `members`.
    """
    moved, time = payload(members), members["dur_ns"].astype("Float64")
    algbw = (moved / time).where((moved >= SMALL_BYTES).fillna(value=False) & (time > 0))
    alone = members.assign(instance_id=np.arange(len(members)), _payload=moved)
    by_member = alone.set_index("instance_id", drop=False).rename_axis(None)
    factor = _factors(by_member, by_member)
    factor.index = members.index
    return pd.DataFrame({"least_algbw_gbps": algbw, "least_busbw_gbps": algbw * factor})


def _factors(rows: pd.DataFrame, found: pd.DataFrame) -> pd.Series:
    """Return the bytes on the busiest link for each byte of S; null where that is not known."""
    from pyprof2.analysis.costs.comm import bus_factor

    kinds = found[["kind", "group_size"]].astype(object).drop_duplicates()
    table = {
        (kind, size): bus_factor(str(kind), int(size)) if pd.notna(size) else None
        for kind, size in kinds.itertuples(index=False)
    }
    pairs = zip(found["kind"], found["group_size"].astype(object), strict=True)
    values = [table.get(pair) if pd.notna(pair[1]) else None for pair in pairs]
    factor = pd.Series(values, found.index, dtype="Float64")
    uneven = rows["uneven"].astype("boolean").groupby(rows["instance_id"], observed=True).max()
    is_uneven = uneven.reindex(found.index).fillna(value=False).to_numpy(bool)
    if not is_uneven.any():
        return factor
    sent, got = (
        rows[c].astype("Float64") for c in ("send_bytes_to_others", "recv_bytes_from_others")
    )
    most = sent.where(~(got > sent).fillna(value=False), got).where(sent.notna() & got.notna())
    by = most.groupby(rows["instance_id"], observed=True)
    whole = by.max().where(by.count() == by.size())
    own = whole / rows.groupby("instance_id", observed=True)["_payload"].max()
    return factor.where(~is_uneven, own.reindex(found.index))


def transfer_floors(members: pd.DataFrame) -> pd.Series:
    """Return for each member the shortest duration of its class in the recording.

    A wait is at most the duration less it: a bound where the other members are not recorded.
    """
    names = [
        as_text(members["kind"]),
        members["in_bytes"].astype("Int64").fillna(-1),
        members["group_key"].astype(object).fillna(""),
    ]
    return members["dur_ns"].astype("int64").groupby(names, observed=True).transform("min")


PLACES: Final = ("collective_id", "rank", "layer", "direction")
"""The columns of table `collectives` that are read beside those of members."""

_KEYS: Final = ("layer", "direction", "kind", "group")
_SUMS: Final = ("in_bytes", "out_bytes", "payload_bytes", "dur_ns", "wait_ns", "transfer_ns")
_BYTES: Final = _SUMS[:3]


def traffic(members: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Return the bytes and times of the collectives of each layer.

    Args:
        members: of all ranks, matched, with `wait_ns` and `transfer_ns`.
        places: the columns `PLACES` of the same members.

    Returns:
        one row for each `layer`, `direction`, `kind` and `group` (its description, else its key):
        `ranks`, `calls`, and sums over both: `in_bytes`, `out_bytes`, `payload_bytes` (S of
        bandwidths), `time_ns`, and of it `wait_ns`, `transfer_ns` and `unmatched_ns`. Bytes are
        null where those of any call are not known. The longest come first.
    """
    frame = members.merge(places, on=["rank", "collective_id"], how="left", validate="1:1")
    known = frame["group_desc"].where(frame["group_desc"].fillna("") != "", None)
    frame["group"] = known.fillna(frame["group_key"])
    frame["payload_bytes"] = payload(frame)
    of_one = (frame["group_size"] == 1).fillna(value=False).to_numpy(bool)
    frame = frame[~of_one].astype(dict.fromkeys(_KEYS, object))
    by = frame.groupby(list(_KEYS), dropna=False, sort=False, observed=True)
    sums = by[list(_SUMS)].sum(min_count=1)
    whole = by[list(_BYTES)].count().eq(by.size(), axis=0)
    sums[list(_BYTES)] = sums[list(_BYTES)].where(whole)
    sums = sums.astype(dict.fromkeys(_SUMS, "Int64"))
    matched = sums[["wait_ns", "transfer_ns"]].fillna(0).sum(axis=1)
    sums.insert(0, "calls", by.size())
    sums.insert(0, "ranks", by["rank"].nunique())
    found = sums.assign(unmatched_ns=sums["dur_ns"] - matched).rename(columns={"dur_ns": "time_ns"})
    return found.sort_values("time_ns", ascending=False, kind="stable").reset_index()
