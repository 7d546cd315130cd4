"""All rows of the profile as sums over a few keys, from which every table of it can be made.

The page of `report` adds up rows of this *cube*, one for each distinct combination of `KEYS`, and
divides the sums. Beside them stand sets of rows, see `pyprof2.analysis.summaries.profile`: of what
kernels that only help add to rates the sums are apart, by the set of rows that have their work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.profile import Key, added, extreme
from pyprof2.analysis.summaries.profile_columns import FINE, FINEST, LARGEST_SUM, RATES
from pyprof2.analysis.summaries.sets import Sets, distinct_sets, picked
from pyprof2.columns import combinations, combine_keys, groups_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.analysis.summaries.profile_columns import Floats

KEYS: Final = (
    "rank", "step", "direction", "layer", "op", "signature", "kernel", "category", "source",
    "range", "tensor_core",
)  # fmt: skip
FOLDED: Final = ("layer", "op", "signature", "kernel", "source", "range")
"""The keys that groups too small to be shown lose."""

OTHER_STEPS: Final = "(others)"
SMALL: Final = "(small groups)"

_PLAIN: Final = ("count", "time_ns", "kernel_count", "known_kernel_count", "sized_kernel_count")


@dataclass(frozen=True)
class Cube:
    """The sums.

    Attributes:
        keys: `KEYS` of each row; a step is a number, null, or `OTHER_STEPS`.
        sums: of each row `count`, `time_ns`, `min_ns`, `max_ns`; `flops` and `bytes`, null where
            none is known; `kernel_count`, how many are no copies, and `known_kernel_count` and
            `sized_kernel_count`, of how many of these FLOPs and bytes are known; and
            for each rate what is `…_above` and `…_below` its line.
        calls: sets of rows.
        op_calls: how many op calls have kernels in just the rows of each set.
        helpers: for each row and set of rows: `row`, of helper kernels; and what it adds to the
            rates over time of any sum that has it and one of the set.
        helped: these sets.
        others: how many steps are in `OTHER_STEPS`.
        small: how many groups are in `SMALL`.
    """

    keys: pd.DataFrame
    sums: pd.DataFrame
    calls: Sets
    op_calls: Int
    helpers: pd.DataFrame
    helped: Sets
    others: int = 0
    small: int = 0


def cube(sums: Sums, others: int, apart: Mapping[int, Collection[int]], most: int) -> Cube:
    """Return the cube of the rows of the profile.

    Where it has more than `most` rows, only the steps of `apart` stay apart; where these are
    still too many, the groups with the least time lose the keys `FOLDED`.

    Args:
        sums: by `KEYS`, all of them.
        others: how many steps are one in the sums: all but those of `apart`; or 0.
        apart: numbers of steps, by rank.
        most: see above.
    """
    keys = {name: sums.keys[name] for name in KEYS}
    first, group = combinations([key.codes for key in keys.values()])
    small = 0
    if others or len(first) > most:
        step, rank = keys["step"], keys["rank"]
        stays = step.codes < 0
        for each, steps in apart.items():
            stays |= rank.where(each.__eq__) & step.where(frozenset(steps).__contains__)
        others = others or len(np.unique(combine_keys(rank.codes[~stays], step.codes[~stays])))
        keys["step"] = _replaced(step, ~stays, OTHER_STEPS)
        first, group = combinations([key.codes for key in keys.values()])
    if len(first) > most:
        small, keys = _only_large(sums, keys, group, most)
        first, group = combinations([key.codes for key in keys.values()])
    count = len(first)
    owner = np.repeat(np.arange(len(sums.op_calls)), np.diff(sums.calls.first))
    calls, which = distinct_sets(owner, group[sums.calls.rows])
    op_calls = added(sums.op_calls, which, len(calls.first) - 1)
    helpers, helped = _helpers(sums, group)
    made = pd.DataFrame(_added(sums, group, count))
    return Cube(_values(keys, first), made, calls, op_calls, helpers, helped, others, small)


def _values(keys: Mapping[str, Key], rows: Int) -> pd.DataFrame:
    """Return the keys of some rows, null as None."""
    names = {name: np.array([*key.domain, None], object) for name, key in keys.items()}
    return pd.DataFrame(
        {n: pd.Series(names[n][key.codes[rows]], dtype=object) for n, key in keys.items()}
    )


def _replaced(key: Key, rows: Bool, name: str) -> Key:
    """Return a key with another name in these rows."""
    return Key(np.where(rows, len(key.domain), key.codes), [*key.domain, name])


def _only_large(
    sums: Sums, keys: dict[str, Key], group: Int, most: int
) -> tuple[int, dict[str, Key]]:
    """Return the keys with those of the groups that take the least time cut, and how many."""
    _, coarse = combinations([key.codes for n, key in keys.items() if n not in FOLDED])
    room = max(0, most - int(coarse.max(initial=-1)) - 1)
    time = added(sums.columns["time_ns"], group, int(group.max(initial=-1)) + 1)
    small = np.ones(len(time), bool)
    small[np.argsort(-time, kind="stable")[:room]] = False
    cut = {name: _replaced(keys[name], small[group], SMALL) for name in FOLDED}
    return int(small.sum()), keys | cut


def _added(sums: Sums, group: Int, count: int) -> dict[str, object]:
    """Return the sums of the groups; of helpers only what does not go over their time."""
    columns = sums.columns
    found: dict[str, object] = {n: added(columns[n], group, count) for n in _PLAIN}
    found |= {name: extreme(name, columns[name], group, count) for name in ("min_ns", "max_ns")}
    for name in ("flops", "bytes"):
        values, known = (added(columns[n], group, count) for n in (name, f"{name}_count"))
        null = (known == 0) | (values.astype(np.float64) > LARGEST_SUM)
        found[name] = pd.arrays.IntegerArray(np.where(null, 0, values).astype(np.int64), null)
    rows = np.arange(len(group))
    works = rows[sums.helps < 0]
    for name, rate in RATES.items():
        found |= _above_and_below(sums, name, works if rate.over_time else rows, group, count)
    return found


def _above_and_below(sums: Sums, name: str, rows: Int, group: Int, count: int) -> dict[str, Floats]:
    above, below = (added(sums.columns[n][rows], group[rows], count) for n in RATES[name].of)
    top = above.astype(np.float64)
    if name == "roofline_pct":
        rest = added(sums.columns["least_ys"][rows], group[rows], count).astype(np.float64)
        top = (top + rest / FINEST) / FINE
    return {f"{name}_above": top, f"{name}_below": below.astype(np.float64)}


def _helpers(sums: Sums, group: Int) -> tuple[pd.DataFrame, Sets]:
    """Return what kernels that only help add to rates, and the sets of groups they help."""
    owner = np.repeat(np.arange(len(sums.helped.first) - 1), np.diff(sums.helped.first))
    used, place = np.unique(owner, return_inverse=True)
    sets, which = distinct_sets(place, group[sums.helped.rows])
    set_of = np.full(len(sums.helped.first), -1)
    set_of[used] = which
    helped_by = np.where(sums.helps >= 0, set_of[sums.helps], -1)
    rows = np.flatnonzero(helped_by >= 0)
    first, pair = groups_of(combine_keys(group[rows], helped_by[rows]))
    found: dict[str, Int | Floats] = {"row": group[rows][first]}
    place_of = np.zeros(len(group), np.int64)
    place_of[rows] = pair
    for name in (name for name, rate in RATES.items() if rate.over_time):
        found |= _above_and_below(sums, name, rows, place_of, len(first))
    return pd.DataFrame(found), picked(sets, helped_by[rows][first])
