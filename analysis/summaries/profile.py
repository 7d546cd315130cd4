"""The profile: sums of rows, chosen and put together along axes, and the columns made of them.

Its rows are those of axis `kernel`: one per GPU activity, or per op call where the recording has no
GPU activity. `pyprof2.analysis.summaries.sums` adds them up by some keys, and what it gives,
`Sums`, adds up in turn: any set of its rows gives what a profile shows of the rows behind them.
All are whole numbers, so that their order does not matter. Two things are no sums, and stand beside
them as sets of rows: an op call that has kernels in several rows counts once in all of them, and
the time of a helper kernel counts for rates only beside the work it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa

from pyprof2.analysis.axes import (
    NONE,
    OWNED,
    VALUES,
    check_names,
    is_of_launch,
    launch_text,
    shared_text,
    split_owners,
)
from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    COPY_CATEGORIES,
    FINE,
    FINEST,
    LARGEST_SUM,
    LEAST_OR_LARGEST,
    MORE_COLUMNS,
    OF_OWNERS,
    RATES,
    SUMMARY_COLUMNS,
    check_axes,
    compile_pattern,
    key_name,
)
from pyprof2.analysis.summaries.sets import Sets, joined, picked
from pyprof2.columns import (
    as_pandas,
    combine_keys,
    distinct,
    first_rows,
    sorted_distinct,
    with_text,
)
from pyprof2.errors import TableError, refuse
from pyprof2.recording import TextCodes, code_column, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.summaries.profile_columns import Floats, ProfileColumn

_EXACT: Final = float(1 << 52)
"""Up to it sums of whole numbers as floats are whole, with room for a rough one."""
_FAR: Final = np.iinfo(np.int64).max


class Key(NamedTuple):
    """A column to choose rows by, and to sum along.

    Attributes:
        codes: of each row, -1 for null.
        domain: the value of each code.
        is_text: whether values are texts, not whole numbers.
    """

    codes: Int
    domain: Sequence[Any]
    is_text: bool = True

    @classmethod
    def of(cls, rows: pa.Table, name: str) -> Self:
        """Return a column of a table."""
        if not pa.types.is_integer(rows.schema.field(name).type):
            codes, texts = code_column(rows, name)
            return cls(codes.astype(np.int64), texts)
        column = rows[name]
        known = column.is_valid().to_numpy()
        values, found = distinct(column.drop_null().to_numpy())
        codes = np.full(len(known), -1)
        codes[known] = found
        return cls(codes, values.tolist(), is_text=False)

    def where(self, fits: Callable[[Any], bool], *, null: bool = False) -> Bool:
        """Return the rows whose value fits; each value is looked at once."""
        found: Bool = np.array([*map(fits, self.domain), null], bool)[self.codes]
        return found

    def ordered(self, rename: Callable[[str], str]) -> tuple[Int, list[Any]]:
        """Return of each row the place of its value in order, and what stands at each place.

        Null numbers are the last; null texts are `NONE`.

        Args:
            rename: gives the name of a text, which several may have.
        """
        names: list[Any]
        if self.is_text:
            names = [*map(rename, map(str, self.domain)), NONE]
            ordered: list[Any] = sorted(set(names))
        else:
            names, ordered = [*self.domain, None], [*sorted(self.domain), None]
        place = {name: at for at, name in enumerate(ordered)}
        return np.array([place[name] for name in names], np.int64)[self.codes], ordered


def fits(  # noqa: PLR0913 - one argument for each option of `prof`
    count: int,
    key: Callable[[str], Key],
    *,
    rank: int | None = None,
    step: tuple[int, int] | None = None,
    layer: str | None = None,
    op: str | None = None,
    kernel: str | None = None,
    range: str | None = None,  # noqa: A002 - named as its column
    direction: Collection[str] | None = None,
    category: Collection[str] | None = None,
    device: Collection[int] | None = None,
    stream: Collection[int] | None = None,
    copies: bool = True,
) -> Bool:
    """Return which rows fit all that is given.

    Args:
        count: of the rows.
        key: gives a column of them by its name.
        rank: the process in the job.
        step: first and last step, both included.
        layer: a regular expression, found anywhere in the layer; null does not fit.
        op: the same for the op.
        kernel: the same for the kernel's demangled name.
        range: the same for the path of the user's own ranges.
        direction: which directions; `(none)`: null.
        category: which categories.
        device: the numbers of devices.
        stream: which streams.
        copies: whether memcpy and memset stay.

    Raises:
        UsageError: a regular expression is malformed, or the steps are out of order.
    """
    keep = np.ones(count, bool)
    if rank is not None:
        keep &= key("rank").where(lambda each: each == rank)
    if step is not None:
        first, last = step
        if first > last:
            refuse(f"step {first}:{last}: the first step comes after the last; swap them")
        keep &= key("step").where(lambda each: first <= each <= last)
    for name, pattern in {"layer": layer, "op": op, "kernel": kernel, "range": range}.items():
        if pattern is not None:
            search = compile_pattern(pattern).search
            # One with several layers or ops fits where one of them does. That of a graph's launch
            # is not known to be the kernel's: it fits where its bracket does.
            keep &= key(name).where(
                lambda text, s=search: any(  # type: ignore[misc]
                    fits and not (is_of_launch(owner) and fits.start())
                    for owner in split_owners(text)
                    for fits in [s(owner)]
                )
            )
    wanted: Collection[Any] | None
    lists = {"direction": direction, "category": category, "device": device, "stream": stream}
    for name, wanted in lists.items():
        if wanted is not None:
            if name in VALUES:
                check_names(name, wanted)
            # The direction of a graph's launch is not known to be that of its kernels.
            coarse = map(launch_text, DIRECTIONS) if NONE in wanted else ()
            own = frozenset((*wanted, *coarse))
            keep &= key(name).where(own.__contains__, null=NONE in wanted)
    if not copies:
        keep &= key("category").where(lambda text: text not in COPY_CATEGORIES, null=True)
    return keep


def select(rows: pd.DataFrame, **selection: Any) -> pd.DataFrame:
    """Return the rows that fit all that is given, in their order.

    Args:
        rows: rows of axis `kernel`.
        **selection: as for `fits`.

    Raises:
        UsageError: as `fits`.
    """

    def key(name: str) -> Key:
        shared = f"shared_{name}"
        if shared not in rows or not rows[shared].notna().any():
            return _key_of_series(rows[name])
        one, several = (rows[each].astype(object) for each in (name, shared))
        return _key_of_series(one.where(one.notna(), several))

    keep = fits(len(rows), key, **selection)
    return rows.copy(deep=False) if keep.all() else rows[keep]


def chosen(rows: pa.Table, **selection: Any) -> pa.Table:
    """Return the rows of a table that fit all that is given; arguments and errors as of `fits`."""
    if all(value is None or (n == "copies" and value) for n, value in selection.items()):
        return rows
    keep = fits(rows.num_rows, lambda name: Key.of(rows, name), **selection)
    return rows if keep.all() else rows.filter(pa.array(keep))


def _key_of_series(values: pd.Series) -> Key:
    import pandas as pd

    codes: Any
    if isinstance(values.dtype, pd.CategoricalDtype):
        codes, found = values.cat.codes.to_numpy(), values.cat.categories
    else:
        codes, found = pd.factorize(values)
    return Key(codes.astype(np.int64), list(found))


def added(values: Int | Floats | Bool, group: Int, count: int) -> Int:
    """Return the exact sum of whole numbers of each group, 0 … `count` - 1.

    What 64 bits may not hold are Python's own numbers.
    """
    if values.dtype == bool:
        return np.bincount(group[values], minlength=count)
    largest = max(-float(values.min(initial=0)), float(values.max(initial=0)))
    if not largest:
        return np.zeros(count, np.int64)
    if largest * len(values) < _EXACT:
        return np.bincount(group, values.astype(np.float64), count).astype(np.int64)
    rough = float(np.abs(values.astype(np.float64)).sum())
    sums = np.zeros(count, np.int64 if rough <= LARGEST_SUM else object)
    whole = values if values.dtype == object else values.astype(np.int64)
    np.add.at(sums, group, whole.astype(sums.dtype))
    return sums


def extreme(name: str, values: Any, group: Int, count: int) -> Any:
    """Return a column of `LEAST_OR_LARGEST` of the groups 0 … `count` - 1; NaN is no value."""
    is_least, none = LEAST_OR_LARGEST[name] == "least", np.nan if values.dtype.kind == "f" else 0
    found = np.full(count, _FAR if is_least else none, values.dtype)
    (np.fmin if is_least else np.fmax).at(found, group, values)
    return found


def whole_numbers(sums: Int, known: Bool) -> pa.Array:
    """Return sums as a column; null where they are not known, or 64 bits do not hold them."""
    null = ~known | (np.abs(sums.astype(np.float64)) > LARGEST_SUM)
    return pa.array(np.where(null, 0, sums).astype(np.int64), mask=null)


class KeyGroups(NamedTuple):
    """Rows put together along axes.

    Attributes:
        keys: the column of each axis, with a row for each group, in their order.
        of: the group of each row.
        size: how many there are.
    """

    keys: dict[str, pa.Array]
    of: Int
    size: int

    @classmethod
    def along(
        cls,
        key: Callable[[str], Key],
        by: Sequence[str],
        depth: int | None = None,
        *,
        fold_numbers: bool = False,
    ) -> Self:
        """Put rows together; arguments as of `Sums.summarize`."""
        columns = {AXES[axis]: key(AXES[axis]) for axis in by}
        found = {
            name: each.ordered(partial(key_name, name, depth, fold_numbers))
            for name, each in columns.items()
        }
        group = combine_keys(*(codes for codes, _ in found.values()))
        count = int(group.max(initial=-1)) + 1
        first = first_rows(group, count)
        keys = {
            name: pa.array(
                [values[code] for code in codes[first].tolist()],
                pa.string() if columns[name].is_text else pa.int64(),
            )
            for name, (codes, values) in found.items()
        }
        return cls(keys, group, count)


def order_shown(time_ns: Int, step: Int | None) -> Int:
    """Return the order in which sums are shown, of those that stand in order of their keys.

    Args:
        time_ns: of each.
        step: the number of each, where the first axis is `step`; null is larger than any.
    """
    order = np.argsort(-time_ns, kind="stable")
    return order if step is None else order[np.argsort(step[order], kind="stable")]


def frame(sums: pa.Table) -> pd.DataFrame:
    """Return sums as a DataFrame: counts as int64, other whole numbers as Int64, text as str."""
    never_null = ("rank", "span", "count", "op_calls", "time_ns")
    texts = [each.name for each in sums.schema if pa.types.is_string(each.type)]
    return with_text(as_pandas(sums, never_null), texts)


@dataclass(frozen=True)
class Sums:
    """Rows of sums: one for each distinct combination of keys, or several.

    Attributes:
        keys: columns, `tensor_core_missed` and `roofline_flag` among them.
        columns: the sums by name, see table `sums`. `kernel_count`, `known_kernel_count` and
            `sized_kernel_count` are `count`, `known_flops_count` and `bytes_count` without copies.
            For each of `MEANS` that is asked for there are sums weighted with the time,
            `NAME_whole` and its 10⁻⁹ `NAME_rest`, and `NAME_ns`; or the largest value, `NAME`.
        calls: sets of rows that op calls have kernels in.
        op_calls: how many op calls have some in just the rows of each set.
        helps: the set of the work that the helper kernels of each row belong to; -1: no helpers.
        helped: these sets; an empty one is of work that nobody knows.
        chosen: the rows that a selection leaves.
    """

    keys: Mapping[str, Key]
    columns: Mapping[str, Int]
    calls: Sets
    op_calls: Int
    helps: Int
    helped: Sets
    chosen: Int

    @classmethod
    def together(cls, parts: Sequence[Sums]) -> Sums:
        """Put the sums of ranks together, one after another."""
        if len(parts) == 1:
            return parts[0]
        keys = {}
        for name, key in parts[0].keys.items():
            known = TextCodes()
            codes = [
                np.array([*(known[v] for v in each.keys[name].domain), -1])[each.keys[name].codes]
                for each in parts
            ]
            keys[name] = Key(np.concatenate(codes), list(known), key.is_text)
        sizes = [len(each.helps) for each in parts]
        before = np.cumsum([0, *sizes])
        sets = np.cumsum([0, *(len(each.helped.first) - 1 for each in parts)])
        helps = [
            np.where(each.helps >= 0, each.helps + first, -1)
            for each, first in zip(parts, sets.tolist(), strict=False)
        ]
        return cls(
            keys,
            {n: np.concatenate([each.columns[n] for each in parts]) for n in parts[0].columns},
            joined([each.calls for each in parts], before),
            np.concatenate([each.op_calls for each in parts]),
            np.concatenate(helps),
            joined([each.helped for each in parts], before),
            np.concatenate([e.chosen + at for e, at in zip(parts, before.tolist(), strict=False)]),
        )

    def select(self, **selection: Any) -> Sums:
        """Return those of the rows that fit; arguments and errors as of `fits`."""
        keep = fits(len(self.helps), self.keys.__getitem__, **selection)
        return replace(self, chosen=self.chosen[keep[self.chosen]])

    def summarize(
        self,
        by: Sequence[str],
        depth: int | None = None,
        *,
        fold_numbers: bool = False,
        means: Sequence[str] = (),
        owners: bool = False,
    ) -> pa.Table:
        """Return one row for every key along the axes `by`.

        Sums of integers are exact. A rate is the sum of what was done over the sum of the time of
        the rows that know what they did, never a mean of rates; so `roofline_pct` is the time that
        the roof allows over the time taken. The time of a helper kernel counts where the work
        it belongs to does. `costed_pct` says how much of the time these rows stand for.

        Args:
            by: names out of `AXES`, each once, whose columns are among the keys.
            depth: with axis `layer` or `range`, cut its paths after so many names.
            fold_numbers: with axis `layer` or `range`, write `N` for each number in its names, so
                that those that differ in numbers alone are one; of layers, for those that count
                them.
            means: which of `MEANS` to give too.
            owners: give `OF_OWNERS` also where no kernel works for several keys.

        Returns:
            The key columns, named as in the rows, then `SUMMARY_COLUMNS`, `MORE_COLUMNS` and the
            means; longest time first, ties in the order of the keys; where the first axis is
            `step`, in the order of steps. Null text is the key `(none)`, a null number stays null:
            with it the shares add up to 100. Streams of the same number are one key; add axis
            `rank` to separate the processes. No rows give no rows.

        Raises:
            UsageError: an axis is unknown or named twice, or `depth` or `fold_numbers` makes no
                sense.
            TableError: the times add up to more than an int64 holds.
        """
        check_axes(by, depth, fold_numbers=fold_numbers)
        keys, own, count = KeyGroups.along(self._chosen_key, by, depth, fold_numbers=fold_numbers)
        measured = self._measured(own, count)
        parts = (measured, self._more(own, count), self._means(own, count, means))
        found = pa.table(keys | {n: a for part in parts for n, a in part.items()})
        if len(by) == 1 and by[0] in OWNED:
            found = self._with_owners(found, AXES[by[0]], depth, always=owners)
        step = int_column(found, "step", _FAR) if by[0] == "step" else None
        return found.take(pa.array(order_shown(found["time_ns"].to_numpy(), step)))

    def _with_owners(
        self, found: pa.Table, column: str, depth: int | None, *, always: bool
    ) -> pa.Table:
        """Return sums with `OF_OWNERS`, and a row for each owner that shares all its kernels."""
        key = self._chosen_key(column)
        time = added(self.columns["time_ns"][self.chosen], key.codes + 1, len(key.domain) + 1)
        shared: dict[str, int] = {}
        sets = set()
        for number in np.unique(key.codes[key.codes >= 0]).tolist():
            owners = dict.fromkeys(
                key_name(column, depth, False, each)  # noqa: FBT003 - of no range
                for each in split_owners(str(key.domain[number]))
            )
            if len(owners) > 1:
                sets.add(shared_text(list(owners)))
                for owner in owners:
                    shared[owner] = shared.get(owner, 0) + int(time[number + 1])
        if not sets and not always:
            return found
        known = found[column].to_pylist()
        others = sorted(shared.keys() - set(known))
        none = dict.fromkeys(("count", "op_calls", "time_ns"), [0] * len(others))
        more = {"share_pct": [0.0] * len(others), column: others} | none
        rows = pa.table(
            {f.name: pa.array(more.get(f.name, [None] * len(others)), f.type) for f in found.schema}
        )
        found = pa.concat_tables([found, rows])
        names = found[column].to_pylist()
        time_ns = found["time_ns"].to_pylist()
        alone = [None if n in sets else t for n, t in zip(names, time_ns, strict=True)]
        of_all = [None if name in sets else shared.get(name, 0) for name in names]
        for each, values in zip(OF_OWNERS, (alone, of_all), strict=True):
            found = found.append_column(each.name, pa.array(values, pa.int64()))
        return found

    def total(self) -> dict[str, Any]:
        """Return `SUMMARY_COLUMNS` of all rows together, null as None.

        `op_calls` counts each op call once, so it can be less than the sum over kernel names.
        Without rows the counts and the time are 0 and all else is null.
        """
        found = self._measured(np.zeros(len(self.chosen), np.int64), 1)
        return {name: column[0].as_py() for name, column in found.items()}

    def known_share(self, axis: str) -> float:
        """Return the share of the time that has a key along an axis, of the keys or `step`."""
        time = self.columns["time_ns"][self.chosen]
        if axis == "step":
            known = self.columns["step_ns"][self.chosen]
        else:
            own = self._chosen_key(AXES[axis])
            known = time[own.where(lambda each: not is_of_launch(str(each)))]
        return int(known.sum()) / (int(time.sum()) or 1)

    def has_several(self, axis: str, line: str) -> bool:
        """Whether a line of code has more than one key along an axis."""
        of_line = self._chosen_key("source").where(line.__eq__)
        return len(np.unique(self._chosen_key(AXES[axis]).codes[of_line])) > 1

    def time_by(self, column: str) -> dict[str, int]:
        """Return the time of each text of a column, in the order in which they come."""
        codes, texts, _ = self._chosen_key(column)
        known = np.flatnonzero(codes >= 0)
        sums = added(self.columns["time_ns"][self.chosen][known], codes[known], len(texts))
        used, first = np.unique(codes[known], return_index=True)
        return {texts[code]: int(sums[code]) for code in used[np.argsort(first)].tolist()}

    @property
    def ranks(self) -> list[int]:
        """The ranks that have rows."""
        codes, values, _ = self._chosen_key("rank")
        return sorted(values[code] for code in np.unique(codes).tolist())

    def _chosen_key(self, name: str) -> Key:
        key = self.keys[name]
        return key._replace(codes=key.codes[self.chosen])

    def _measured(self, own: Int, count: int) -> dict[str, pa.Array]:
        """Return `SUMMARY_COLUMNS` of the groups 0 … `count` - 1; `own` is that of chosen rows."""
        names = self.columns.keys() - LEAST_OR_LARGEST
        sums: dict[str, Any] = {name: self._sum(name, own, count) for name in names}
        time = sums["time_ns"]
        if time.sum(dtype=np.float64) > LARGEST_SUM:
            msg = "the durations add up to 292 years: the recording is broken; record it anew"
            raise TableError(msg)
        # How many op calls have kernels in each group.
        group = np.full(len(self.helps), -1)
        group[self.chosen] = own
        member = group[self.calls.rows]
        owner = np.repeat(np.arange(len(self.op_calls)), np.diff(self.calls.first))
        pairs = sorted_distinct(owner[member >= 0] * max(1, count) + member[member >= 0])
        calls, call_group = np.divmod(pairs, max(1, count))
        sums["op_calls"] = added(self.op_calls[calls], call_group, count)
        sums |= self._rates(sums, own, count)
        for name in ("min_ns", "max_ns"):
            sums[name] = extreme(name, self.columns[name][self.chosen], own, count)
        return {column.name: _made_of(column, sums) for column in SUMMARY_COLUMNS}

    def _sum(self, name: str, own: Int, count: int, rows: Bool | slice = slice(None)) -> Int:
        """Return the sums of a column, of all chosen rows or of some of them."""
        return added(self.columns[name][self.chosen[rows]], own[rows], count)

    def _rates(self, sums: Mapping[str, Int], own: Int, count: int) -> dict[str, Floats]:
        """Return the rates before they are scaled, of helpers only beside the work they help."""
        beside = self._beside(own)
        if not beside.all():
            over_time = (rate.of for rate in RATES.values() if rate.over_time)
            names = {name for of in over_time for name in of} | {"least_ys"}
            timed = {name: self._sum(name, own, count, beside) for name in names}
        else:
            timed = dict(sums)
        found = {}
        for name, rate in RATES.items():
            above, below = ((timed if rate.over_time else sums)[each] for each in rate.of)
            found[name] = _ratio(above, below)
        rest = _ratio(timed["least_ys"], timed["least_ns"])
        found["roofline_pct"] = (found["roofline_pct"] + rest / FINEST) / FINE
        return found

    def _beside(self, own: Int) -> Bool:
        """Return of the chosen rows those that work, or whose group has the work they help."""
        beside: Bool = self.helps[self.chosen] < 0
        if beside.all():
            return beside
        group = np.full(len(self.helps), -1)
        group[self.chosen] = own
        helping = np.flatnonzero(~beside)
        sets = picked(self.helped, self.helps[self.chosen[helping]])
        owner = np.repeat(helping, np.diff(sets.first))
        beside[owner[group[sets.rows] == own[owner]]] = True
        return beside

    def _more(self, own: Int, count: int) -> dict[str, pa.Array]:
        """Return `MORE_COLUMNS`; of missed Tensor Cores null where no kernel could have used them.

        The flag is that of half of the time or more, kernels that only help left out.
        """
        reason = self._chosen_key("tensor_core_missed")
        missed = reason.codes >= 0
        missed_ns = self._sum("time_ns", own, count, missed)
        used_count = self._sum("tensor_core_used_count", own, count)
        known = (np.bincount(own[missed], minlength=count) > 0) | (used_count > 0)
        could_ns = missed_ns + self._sum("tensor_core_used_ns", own, count)
        flags, flagged_ns = self._most("roofline_flag", own, count)
        working_ns = self._sum("time_ns", own, count, self.helps[self.chosen] < 0)
        found = {
            "tensor_core_missed_ns": whole_numbers(missed_ns, known),
            "tensor_core_missed_pct": _over(100 * missed_ns, could_ns),
            "tensor_core_missed": pa.array(self._most(reason, own, count)[0], pa.string()),
            "roofline_flag": pa.array(flags, pa.string(), mask=flagged_ns < working_ns / 2),
        }
        return {column.name: found[column.name] for column in MORE_COLUMNS}

    def _most(self, key: Key | str, own: Int, count: int) -> tuple[Any, Int]:
        """Return for each group the text that stands for most of its time, and that time."""
        codes, texts, _ = self._chosen_key(key) if isinstance(key, str) else key
        size = max(1, len(texts))
        known = codes >= 0
        pairs, which = distinct(own[known] * size + codes[known])
        time = added(self.columns["time_ns"][self.chosen[known]], which, len(pairs))
        place = np.argsort(np.argsort(np.array(texts, object), kind="stable"), kind="stable")
        # The last one that is written stays: that of the most time, of equals the first text.
        order = np.lexsort((-place[pairs % size], time)) if len(pairs) else pairs
        most, found = np.zeros(count, np.int64), np.full(count, None, object)
        most[pairs[order] // size] = time[order]
        found[pairs[order] // size] = np.array([*texts, None], object)[pairs[order] % size]
        return found, most

    def _means(self, own: Int, count: int, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return those of `MEANS`, of the rows that know."""
        found = {}
        for name in names:
            if name in LEAST_OR_LARGEST:
                value = extreme(name, self.columns[name][self.chosen], own, count)
            else:
                whole, rest, time = (
                    self._sum(f"{name}_{part}", own, count) for part in ("whole", "rest", "ns")
                )
                value = _ratio(whole, time) + _ratio(rest, time) / FINEST
            found[name] = pa.array(value, mask=np.isnan(value))
        return found


def _made_of(column: ProfileColumn, sums: Mapping[str, Any]) -> pa.Array:
    """Return a column of groups, of their sums, op calls, rates and extremes."""
    value: Any = sums.get(column.name)
    of, nothing = ([sums[each] for each in names] for names in (column.of, column.known_by))
    unknown = (sums["kernel_count"] > 0) & np.any([each == 0 for each in nothing], axis=0)
    if column.how == "rate":
        return pa.array(value * column.scale, mask=np.isnan(value) | unknown)
    if column.how == "ratio":
        return _over(of[0], of[1], column.scale)
    if column.how == "share":
        return _over(of[0], np.full(len(of[0]), of[0].sum()), column.scale)
    if column.how in ("least", "largest"):
        return pa.array(value, mask=sums["count"] == 0)
    if column.nullable:
        return whole_numbers(value, (sums[f"{column.name}_count"] > 0) & ~unknown)
    return pa.array(value)


def _ratio(above: Int, below: Int) -> Floats:
    """Return sums over sums, each rounded once; NaN where the lower one is 0."""
    bottom = below.astype(np.float64)
    nothing = np.full(len(bottom), np.nan)
    found: Floats = np.divide(above.astype(np.float64), bottom, out=nothing, where=bottom != 0)
    return found


def _over(above: Int, below: Int, scale: float = 1) -> pa.Array:
    """Return sums over sums, null where the lower one is 0."""
    found = _ratio(above, below) * scale
    return pa.array(found, mask=np.isnan(found))
