"""What identifies a group of ranks on all of them.

A group's name is a counter of the process that made it, so two ranks may call one group by two
names. Its ranks and its description are the same everywhere; of several groups with the same ones,
all ranks made them in the same order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPECIFIC: Final = ["_ranks", "group_desc"]


def with_group_keys(members: pd.DataFrame) -> pd.DataFrame:
    """Return the members of a rank with `group_key`; null where the ranks are not known.

    Args:
        members: columns `group_ranks`, `group_desc`, `group_name`, in order of time.
    """
    ranks = members["group_ranks"].map(_key, na_action="ignore").astype(object)
    desc = members["group_desc"].astype(object).where(members["group_desc"].notna(), "")
    frame = pd.DataFrame({"_ranks": ranks, "group_desc": desc, "name": members["group_name"]})
    known = frame["_ranks"].notna()
    names = frame[known].drop_duplicates([*_SPECIFIC, "name"])
    order = names["name"].map(_number)
    names = names.assign(_order=order).sort_values("_order", kind="stable")
    names["_ordinal"] = names.groupby(_SPECIFIC).cumcount()
    ordinals = {
        (r, d, n if isinstance(n, str) else None): at
        for r, d, n, at in names[["_ranks", "group_desc", "name", "_ordinal"]].itertuples(
            index=False
        )
    }
    keys = [
        None
        if not isinstance(r, str)
        else f"{r}|{d}|{ordinals[r, d, n if isinstance(n, str) else None]}"
        for r, d, n in frame[["_ranks", "group_desc", "name"]].itertuples(index=False)
    ]
    return members.assign(group_key=pd.Series(keys, members.index, dtype=object))


def _number(name: object) -> tuple[int, str]:
    """Return what sorts the names of groups as they were made: their number, if they have one."""
    text = name if isinstance(name, str) else ""
    return (int(text), "") if text.isdecimal() and len(text) < 18 else (1 << 60, text)


def _key(ranks: Sequence[int]) -> str:
    """Return ranks as text, sorted, with runs as `0-7`."""
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in _runs(sorted(ranks)))


def _runs(ranks: Iterable[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    return runs
