"""All rows of the profile as sums over a few keys, from which every table of it can be made.

`profile.summarize` makes its columns of sums; here are those sums, by row of a *cube*: one for
each distinct combination of `KEYS`. Any set of its rows added up gives what `summarize` gives for
the rows of the profile behind it. Two things are no sums, and stand beside them as sets of rows:

- an op call has kernels of several names, so its call would be counted once for each. `calls` has
  for each distinct set of rows how many op calls have kernels in just these;
- the time of a kernel that only helps counts for rates where the work it helps with does.
  `helpers` has their part of the rates, for each distinct set of rows that do this work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.profile import exact_sum, rate_parts, rate_span
from pyprof2.analysis.summaries.sets import Sets, distinct_sets, picked
from pyprof2.columns import combine_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

    Floats = NDArray[np.float64]

KEYS: Final = (
    "rank", "step", "direction", "layer", "op", "signature", "kernel", "category", "source",
    "range", "tensor_core",
)  # fmt: skip
FOLDED: Final = ("layer", "op", "signature", "kernel", "source", "range")
"""The keys that groups too small to be shown lose."""

OTHER_STEPS: Final = "(others)"
SMALL: Final = "(small groups)"
HELPED: Final = ("tflops", "gbps", "roofline_pct")
"""The rates that are taken over time."""
PARTS: Final = ("above", "below")

_LARGEST_KEY: Final = 1 << 62


@dataclass(frozen=True)
class Cube:
    """The sums.

    Attributes:
        keys: `KEYS` of each row; a step is a number, null, or `OTHER_STEPS`.
        sums: of each row `count`, `time_ns`, `min_ns`, `max_ns`; `flops` and `bytes`, null where
            none is known; `flops_known`, of how many they are known; `missed_ns`, the time of
            those that could have used Tensor Cores and did not, and `could_ns`, of all that could;
            and for each rate what is `…_above` and `…_below` its line.
        calls: sets of rows.
        op_calls: how many op calls have kernels in just the rows of each set.
        helpers: for each row and set of rows: `row`, which helps; and what it adds to the rates
            `HELPED` of any sum that has it and one of the set.
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


def cube(rows: pd.DataFrame, apart: Mapping[int, Collection[int]], most: int) -> Cube:
    """Return the cube of the rows of the profile.

    Where it has more than `most` rows, only the steps of `apart` stay apart; where these are
    still too many, the groups with the least time lose the keys `FOLDED`.

    Args:
        rows: of axis `kernel`, with `KEYS` and `profile.NEEDED`.
        apart: numbers of steps, by rank.
        most: see above.
    """
    keys = {name: _Key.of(rows[name]) for name in KEYS}
    group, first = _groups(keys)
    others = small = 0
    if len(first) > most:
        others, keys["step"] = _only_steps(rows, keys["step"], apart)
        group, first = _groups(keys)
    if len(first) > most:
        small, keys = _only_large(rows, keys, group, most)
        group, first = _groups(keys)
    calls, op_calls = _calls(rows, group)
    helpers, helped = _helpers(rows, group)
    texts = pd.DataFrame({name: key.values(first) for name, key in keys.items()})
    return Cube(
        texts, _sums(rows, group, len(first)), calls, op_calls, helpers, helped, others, small
    )


class _Key(NamedTuple):
    """A key of all rows: codes, and what each stands for; null has a code of its own, 0."""

    codes: Int
    names: list[object]

    @classmethod
    def of(cls, values: pd.Series) -> _Key:
        """Return the key that a column is."""
        codes, names = pd.factorize(values)
        return cls(np.asarray(codes, np.int64) + 1, [None, *names.tolist()])

    def values(self, at: Int) -> pd.Series:
        """Return the key of these rows."""
        names = np.array([*self.names, None], object)[:-1]
        return pd.Series(names[self.codes[at]], dtype=object)

    def replaced(self, rows: Bool, name: str) -> _Key:
        """Return the key with another name in these rows."""
        return _Key(np.where(rows, len(self.names), self.codes), [*self.names, name])


def _groups(keys: Mapping[str, _Key]) -> tuple[Int, Int]:
    """Return the group of each row, numbered as they come, and the first row of each."""
    whole, size = np.zeros(len(keys["rank"].codes), np.int64), 1
    for key in keys.values():
        if size > _LARGEST_KEY // len(key.names):
            whole, distinct = pd.factorize(whole)
            size = len(distinct)
        whole = whole * len(key.names) + key.codes
        size *= len(key.names)
    group = np.asarray(pd.factorize(whole)[0], np.int64)
    return group, np.unique(group, return_index=True)[1].astype(np.int64)


def _only_steps(
    rows: pd.DataFrame, key: _Key, apart: Mapping[int, Collection[int]]
) -> tuple[int, _Key]:
    """Return the steps with only those apart, and how many the others are, over all ranks."""
    stays = rows["step"].isna().to_numpy(dtype=bool)
    rank = rows["rank"].to_numpy(dtype=np.int64)
    for each, steps in apart.items():
        own = rows["step"].isin(list(steps)).to_numpy(dtype=bool, na_value=False)
        stays = stays | ((rank == each) & own)
    others = len(np.unique(combine_keys(rank[~stays], key.codes[~stays])))
    return others, key.replaced(~stays, OTHER_STEPS)


def _only_large(
    rows: pd.DataFrame, keys: dict[str, _Key], group: Int, most: int
) -> tuple[int, dict[str, _Key]]:
    """Return the keys with those of the groups that take the least time cut, and how many."""
    coarse, _ = _groups({name: key for name, key in keys.items() if name not in FOLDED})
    room = max(0, most - int(coarse.max(initial=-1)) - 1)
    time = np.bincount(group, rows["dur_ns"].to_numpy(dtype=np.float64))
    small = np.ones(len(time), bool)
    small[np.argsort(-time, kind="stable")[:room]] = False
    cut = {name: keys[name].replaced(small[group], SMALL) for name in FOLDED}
    return int(small.sum()), keys | cut


def _sums(rows: pd.DataFrame, group: Int, count: int) -> pd.DataFrame:
    """Return the sums of the groups; of helpers only what does not go over their time."""
    time = rows["dur_ns"].to_numpy(dtype=np.int64)
    by_group = pd.Series(time).groupby(group)
    counted = rows["cost_status"].ne("in_parent").to_numpy(dtype=bool, na_value=True)
    flops, nbytes = (rows[name].astype("Int64").where(counted) for name in ("flops", "bytes"))
    missed = rows.get("tensor_core_missed", pd.Series(None, rows.index, dtype="str")).notna()
    could = rows["tensor_core_eligible"].fillna(value=False).to_numpy(dtype=bool)
    worked = rows["flops"].gt(0).fillna(value=False).to_numpy(dtype=bool)
    used = could & worked & rows["tensor_core"].isin(["yes"]).to_numpy(dtype=bool)
    sums = {
        "count": np.bincount(group, minlength=count),
        "time_ns": by_group.sum().to_numpy(),
        "min_ns": by_group.min().to_numpy(),
        "max_ns": by_group.max().to_numpy(),
        "flops": exact_sum(flops, group, count),
        "flops_known": np.bincount(group, rows["flops"].notna(), count).astype(np.int64),
        "bytes": exact_sum(nbytes, group, count),
        "missed_ns": _summed(time, missed.to_numpy(), group, count),
        "could_ns": _summed(time, missed.to_numpy() | used, group, count),
    }
    works = ~rows["helps"].to_numpy(dtype=bool) if "helps" in rows else np.ones(len(rows), bool)
    for name, parts in _rate_sums(rows, np.where(works, rate_span(rows), np.nan)).items():
        sums |= _above_and_below(name, parts, group, count)
    return pd.DataFrame(sums)


def _summed(values: Int, rows: Bool, group: Int, count: int) -> Int:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group[rows], values[rows])
    return sums


def _rate_sums(rows: pd.DataFrame, span: Floats) -> dict[str, tuple[Floats, ...]]:
    """Return what each row adds above and below the line of each rate, over this time."""
    counted = rows["cost_status"].ne("in_parent").to_numpy(dtype=bool, na_value=True)
    counts = [
        np.where(counted, rows[name].to_numpy(dtype=np.float64, na_value=np.nan), np.nan)
        for name in ("flops", "bytes")
    ]
    found: dict[str, tuple[Floats, ...]] = {}
    for name, (above, below) in rate_parts(rows, counts[0], counts[1], span).items():
        known = ~(np.isnan(above) | np.isnan(below))
        found[name] = np.where(known, above, 0), np.where(known, below, 0)
    return found


def _above_and_below(
    name: str,
    parts: tuple[Floats, ...],
    group: Int,
    count: int,
) -> dict[str, Floats]:
    return {
        f"{name}_{part}": np.bincount(group, values, count).astype(np.float64)
        for part, values in zip(PARTS, parts, strict=True)
    }


def _calls(rows: pd.DataFrame, group: Int) -> tuple[Sets, Int]:
    """Return the sets of groups that op calls have kernels in, and how many calls each has."""
    has_op = rows["op_id"].notna().to_numpy()
    names = ("rank", "op_id")
    call = combine_keys(*(rows[name].to_numpy(np.int64, na_value=-1)[has_op] for name in names))
    sets, which = distinct_sets(call, group[has_op])
    return sets, np.bincount(which, minlength=len(sets.first) - 1).astype(np.int64)


def _helpers(rows: pd.DataFrame, group: Int) -> tuple[pd.DataFrame, Sets]:
    """Return what kernels that only help add to rates, and the sets of groups they help."""
    names = [f"{name}_{part}" for name in HELPED for part in PARTS]
    helps = rows["helps"].to_numpy(dtype=bool) if "helps" in rows else np.zeros(len(rows), bool)
    if not helps.any():
        return pd.DataFrame(columns=["row", *names]), Sets(np.zeros(1, np.int64), group[:0])
    op = combine_keys(*(rows[n].to_numpy(np.int64) for n in ("rank", "accounting_op")))
    is_helped = np.bincount(op, helps)[op] > 0
    works = is_helped & ~helps
    helped, place = np.unique(op[works], return_inverse=True)
    sets, which = distinct_sets(place.astype(np.int64), group[works])
    helps = helps & np.isin(op, helped)
    own = rows[helps]
    pair = combine_keys(group[helps], which[np.searchsorted(helped, op[helps])])
    first = np.unique(pair, return_index=True)[1]
    found: dict[str, Int | Floats] = {"row": group[helps][first]}
    used = which[np.searchsorted(helped, op[helps][first])]
    sums = _rate_sums(own, rate_span(own))
    for name in HELPED:
        found |= _above_and_below(name, sums[name], pair, len(first))
    return pd.DataFrame(found), picked(sets, used)
