"""The time of kernels that do the work of several, shared among these by a convention."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from pyprof2.analysis.axes import NONE, is_of_launch, shared_text
from pyprof2.analysis.costs.attribute import share
from pyprof2.analysis.summaries.profile_columns import key_name

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.intervals import Int


def owner_shares(
    rows: pd.DataFrame, parts: pd.DataFrame, column: str, depth: int | None, *, fold_numbers: bool
) -> Counter[str]:
    """Return the time of each owner in ns: of its kernels, and its shares of those of several.

    A kernel's time is shared by the bytes of its nodes: of their inputs and of their results. Where
    these are not known, it stays with all of its owners together. The times add up to those of the
    rows.

    Args:
        rows: of kernels, with `rank`, `kernel_id`, `dur_ns`, the column, and `shared_` with it.
        parts: rows of `kernel_parts` of all of them, with `rank`.
        column: `op`, `layer` or `source`.
        depth: with `layer`, cut its paths after so many names.
        fold_numbers: see `key_name`.
    """

    def key(name: str) -> str:
        return key_name(column, depth, fold_numbers, name)

    coarse = rows[f"shared_{column}"].astype(object)
    of_launch = coarse.map(is_of_launch, na_action="ignore").eq(other=True)
    several = (coarse.notna() & ~of_launch).to_numpy()
    alone = rows[~several]
    found: Counter[str] = Counter()
    names = alone[column].astype(object)
    names = names.where(names.notna(), coarse[~several])
    for name, own_ns in (
        alone["dur_ns"].groupby(names.where(names.notna(), NONE), observed=True).sum().items()
    ):
        found[key(str(name))] += int(own_ns)
    shared = rows[several][["rank", "kernel_id", "dur_ns"]]
    shared = shared.assign(row=np.arange(len(shared)))
    own = shared.merge(parts[parts[column].notna()], on=["rank", "kernel_id"])
    keys = {name: key(str(name)) for name in own[column].unique()}
    own = own.assign(owner=own[column].astype(object).map(keys))
    each = own.groupby(["row", "owner"], sort=True, observed=True)["bytes"]
    weights = each.sum().to_frame("bytes").assign(known=each.count() == each.size()).reset_index()
    of_row = weights.groupby("row", sort=True, observed=True)
    is_known = (of_row["known"].all() & (of_row["bytes"].sum() > 0)).to_numpy(bool)
    count = of_row.size().to_numpy()
    group = np.repeat(np.arange(len(count)), count)
    time: Int = shared["dur_ns"].to_numpy(np.int64)[weights["row"].drop_duplicates().to_numpy()]
    split = share(time, group, weights["bytes"].to_numpy(np.int64))
    owners = weights["owner"].to_numpy()
    for owner, part in zip(owners[is_known[group]], split[is_known[group]].tolist(), strict=True):
        found[owner] += part
    for number in np.flatnonzero(~is_known).tolist():
        found[shared_text(owners[group == number].tolist())] += int(time[number])
    return found
