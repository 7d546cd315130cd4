"""Findings: what `check` says of a recording."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.result_tables import FINDINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

COLUMNS: Final = FINDINGS.names
_ORDER: Final = ("problem", "lack", "info")


@dataclass(frozen=True)
class Finding:
    """One thing that was found; each field is the column of its name of table `findings`."""

    severity: str
    finding: str
    count: int | None
    share_pct: float | None = None
    advice: str = ""
    rank: int | None = None


def findings_table(found: Iterable[Finding], *, several_ranks: bool = False) -> pd.DataFrame:
    """Return table `findings`: first problems, then lacks, then what is fine to know.

    Args:
        found: in any order.
        several_ranks: make one row of what is found of several ranks.
    """
    import pandas as pd

    # As objects: a count that fits no column, of a damaged store, is an error and no float.
    rows = [astuple(each) for each in found]
    frame = _typed(pd.DataFrame(rows, columns=COLUMNS, dtype=object))
    if several_ranks:
        frame = merge_ranks(frame)
    order = frame["severity"].map({name: at for at, name in enumerate(_ORDER)})
    return frame.iloc[order.argsort(kind="stable")].reset_index(drop=True)


def merge_ranks(findings: pd.DataFrame) -> pd.DataFrame:
    """Return one row for what is found of several ranks: counts added up, and a null rank.

    Args:
        findings: table `findings`, in any order.
    """
    keys = ["severity", "finding", "advice"]
    count, share = (findings[name].astype("float64") for name in ("count", "share_pct"))
    whole = findings.assign(whole=100 * count / share.where(share > 0))
    grouped = whole.groupby(keys, sort=False, dropna=False, observed=True)
    rows = grouped.agg(
        count=("count", "sum"),
        whole=("whole", lambda parts: parts.sum(skipna=False)),
        share_pct=("share_pct", "first"),
        first=("rank", "first"),
        ranks=("rank", "nunique"),
    ).reset_index()
    several = rows["ranks"] > 1
    rows["share_pct"] = rows["share_pct"].mask(several, 100 * rows["count"] / rows["whole"])
    rows["rank"] = rows["first"].mask(several, None)
    return _typed(rows[COLUMNS])


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({"count": "Int64", "share_pct": "float64", "rank": "Int64"})
