"""What communicates in which layer and direction: the traffic of each way to be parallel.

A collective belongs to the module whose call, or whose backward, hands it over: FSDP gathers a
module's weights before its forward and its backward and scatters its gradients after; tensor and
expert parallelism communicate inside of the module. What no module hands over, as a pipeline's
sends and recvs between two of them, has no layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.job.waits import payload

if TYPE_CHECKING:
    import pandas as pd

PLACES: Final = ("collective_id", "rank", "layer", "direction")
"""The columns of table `collectives` that are read beside those of members."""

_KEYS: Final = ("layer", "direction", "kind", "group")
_SUMS: Final = ("in_bytes", "out_bytes", "payload_bytes", "dur_ns", "wait_ns", "transfer_ns")
_BYTES: Final = _SUMS[:3]


def traffic(members: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Return what the collectives of each layer move, and how long they take.

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
    by = frame.groupby(list(_KEYS), dropna=False, sort=False)
    sums = by[list(_SUMS)].sum(min_count=1)
    whole = by[list(_BYTES)].count().eq(by.size(), axis=0)
    sums[list(_BYTES)] = sums[list(_BYTES)].where(whole)
    sums = sums.astype(dict.fromkeys(_SUMS, "Int64"))
    matched = sums[["wait_ns", "transfer_ns"]].fillna(0).sum(axis=1)
    sums.insert(0, "calls", by.size())
    sums.insert(0, "ranks", by["rank"].nunique())
    found = sums.assign(unmatched_ns=sums["dur_ns"] - matched).rename(columns={"dur_ns": "time_ns"})
    return found.sort_values("time_ns", ascending=False, kind="stable").reset_index()
