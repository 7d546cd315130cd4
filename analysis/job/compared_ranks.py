"""Two runs of many ranks: what became of each rank's step, and which rank changed by itself.

All ranks' steps become longer where one becomes slow. So a rank changed only if its own times did:
kernels that do not communicate, and idle time that its host is to blame for.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.job.clocks import MAD_TO_SIGMA
from pyprof2.analysis.job.parts import PARTS
from pyprof2.analysis.job.scores import EXCESS_MIN, Z_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENOUGH: Final = 3
_ERRORS: Final = 2
_EXPOSED_WAIT: Final = "exposed_wait"
_WORDS: Final = {"compute_ns": ("computes longer", "computes less"),
                 "host_ns": ("its host is later", "its host is less late")}  # fmt: skip


def compared_ranks(a: pd.DataFrame, b: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank that both runs have.

    Args:
        a: the windows of the steps before: `rank`, `window_ns`, each of `PARTS` with `_ns`,
            `exposed_wait_ns`, `compute_ns`, `host_ns`.
        b: those after.

    Returns:
        `rank`, `a_ns`, `b_ns` (means of the windows), `delta_ns`, `delta_pct`; for each of `PARTS`
        its part of the difference, `PART_delta_ns`, which add up to it; `exposed_wait_delta_ns`
        of communication, null where a side does not know it; `compute_delta_ns`,
        `host_delta_ns`, of the rank's own times; `changed`, in words, null where neither stands
        out.
    """
    ranks = sorted({*a["rank"]} & {*b["rank"]})
    names = ["window", *PARTS, _EXPOSED_WAIT, "compute", "host"]
    before, after = ({n: _means(side, f"{n}_ns") for n in names} for side in (a, b))
    rows = []
    for rank in ranks:
        both = {n: (before[n].get(rank), after[n].get(rank)) for n in names}
        delta = {n: None if x is None or y is None else y - x for n, (x, y) in both.items()}
        x, y = both["window"]
        rows.append(
            {"rank": rank, "a_ns": x, "b_ns": y, "delta_ns": delta.pop("window")}
            | {f"{name}_delta_ns": value for name, value in delta.items()}
        )
    exact = pd.DataFrame(rows, columns=["rank", "a_ns", "b_ns", "delta_ns",
                                        *(f"{n}_delta_ns" for n in names[1:])])  # fmt: skip
    numbers = [name for name in exact if name != "rank"]
    frame = exact.astype(dict.fromkeys(numbers, "Float64"))
    share = 100 * frame["delta_ns"] / frame["a_ns"].where(frame["a_ns"] > 0)
    frame.insert(4, "delta_pct", share)
    return frame.assign(changed=_changed(a, b, ranks))


def _means(side: pd.DataFrame, name: str) -> Mapping[int, Fraction]:
    """Return the exact mean of a column for each rank that knows all of its values."""
    by = side.groupby("rank")[name]
    found = pd.DataFrame({"sum": by.sum(min_count=1), "known": by.count(), "all": by.size()})
    return {
        int(rank): Fraction(int(total), int(count))
        for rank, total, known, count in found.itertuples()
        if known == count
    }


def _changed(a: pd.DataFrame, b: pd.DataFrame, ranks: list[int]) -> pd.Series:
    """Return of each rank in which of its own times it changed, in words; null: in none.

    It changed by more than three spreads of the ranks' changes, more than 2 % of the step (of
    kernels: of their time), and more than two standard errors over the steps. Of two ranks neither
    stands out.
    """
    words: list[str | None] = [None] * len(ranks)
    if len(ranks) >= _ENOUGH:
        for name, said in _WORDS.items():
            base = "compute_ns" if name == "compute_ns" else "window_ns"
            least = EXCESS_MIN * float(a[base].astype("float64").mean())
            for at, sign in enumerate(_outliers(a, b, ranks, name, least)):
                if sign:
                    both = [words[at], said[0] if sign > 0 else said[1]]
                    words[at] = ", ".join(word for word in both if word)
    return pd.Series(words, dtype=object)


def _outliers(
    a: pd.DataFrame, b: pd.DataFrame, ranks: list[int], name: str, least: float
) -> list[int]:
    sides = [side[side["rank"].isin(ranks)].groupby("rank")[name] for side in (a, b)]
    mean = [by.mean().reindex(ranks).to_numpy(np.float64) for by in sides]
    error = [(by.var() / by.size()).reindex(ranks).fillna(0).to_numpy(np.float64) for by in sides]
    delta = mean[1] - mean[0]
    away = delta - np.median(delta)
    spread = MAD_TO_SIGMA * float(np.median(np.abs(away)))
    limit = np.maximum(max(Z_MIN * spread, least), _ERRORS * np.sqrt(error[0] + error[1]))
    return [int(sign) for sign in np.where(np.abs(away) > limit, np.sign(away), 0)]
