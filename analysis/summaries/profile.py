"""Choose rows of the profile and sum them along an axis.

Here `rows` are the rows of axis `kernel`: one per GPU activity, or per op call where the
recording has no GPU activity, with the columns `pyprof2.tables.PROFILE_COLUMNS`. Where there
is a column `rate_ns` as well, rates are taken over it instead of `dur_ns`: on the CPU a row's
`dur_ns` is its self time, while its FLOPs are done in the whole duration of the op. A column
`tensor_core_missed` says of a kernel why it missed the Tensor Cores. `helps` says that a kernel
does none of the work of its `accounting_op`, a number; `least_ns` is the time that the roof
allows a row for its part of the work.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    COPY_CATEGORIES,
    COSTED,
    FINE,
    FINEST,
    LARGEST_SUM,
    NONE,
    PATHS,
    RATE_SCALES,
    check_axes,
    compile_pattern,
    in_fine_parts,
    key_name,
)
from pyprof2.columns import combine_keys, distinct, pack_keys
from pyprof2.errors import TableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.integer[Any]]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

_LARGEST_KEY: Final = 1 << 62
_EXACT: Final = float(1 << 53)
"""Below it floats hold every whole number."""
_HALF: Final = float(1 << 24)
_FAR: Final = np.iinfo(np.int64).max


def select(  # noqa: PLR0913 - one argument for each option of `prof`
    rows: pd.DataFrame,
    *,
    rank: int | None = None,
    step: tuple[int, int] | None = None,
    layer: str | None = None,
    op: str | None = None,
    kernel: str | None = None,
    range: str | None = None,  # noqa: A002 - named as its column
    direction: Collection[str] | None = None,
    category: Collection[str] | None = None,
    stream: Collection[int] | None = None,
    copies: bool = True,
) -> pd.DataFrame:
    """Return the rows that fit all that is given, in their order.

    Args:
        rows: rows of axis `kernel`.
        rank: the process in the job.
        step: first and last step, both included.
        layer: a regular expression, found anywhere in the layer; null does not fit.
        op: the same for the op.
        kernel: the same for the kernel's demangled name.
        range: the same for the path of the user's own ranges.
        direction: which directions; `(none)`: null.
        category: which categories.
        stream: which streams.
        copies: whether memcpy and memset stay.

    Raises:
        UsageError: a regular expression is malformed, or the steps are out of order.
    """
    keep = np.ones(len(rows), dtype=bool)
    if rank is not None:
        keep &= rows["rank"].to_numpy() == rank
    if step is not None:
        keep &= _in_steps(rows["step"], *step)
    patterns = {"layer": layer, "op": op, "kernel": kernel, "range": range}
    for column, pattern in patterns.items():
        if pattern is not None:
            keep &= _matches(rows[column], pattern)
    for column, values in (("direction", direction), ("category", category), ("stream", stream)):
        if values is not None:
            keep &= _is_one_of(rows[column], values)
    if not copies:
        keep &= ~rows["category"].isin(COPY_CATEGORIES).to_numpy(dtype=bool)
    return rows.copy(deep=False) if keep.all() else rows[keep]


def _in_steps(steps: pd.Series, first: int, last: int) -> Bools:
    if first > last:
        msg = f"step {first}:{last}: the first step comes after the last; swap them"
        raise UsageError(msg)
    found: Bools = steps.between(first, last).to_numpy(dtype=bool, na_value=False)
    return found


def _is_one_of(values: pd.Series, wanted: Collection[str] | Collection[int]) -> Bools:
    """Return where `values` are wanted, null as `(none)`."""
    found: Bools = values.isin(list(wanted)).to_numpy(dtype=bool, na_value=False)
    return found | (values.isna().to_numpy() & (NONE in wanted))


def _matches(texts: pd.Series, pattern: str) -> NDArray[np.bool_]:
    """Return where `pattern` is found in `texts`, asking each distinct text once."""
    regex = compile_pattern(pattern)
    codes, names = pd.factorize(texts)
    found = [regex.search(name) is not None for name in names]
    return np.array([*found, False])[codes]  # the code of a null is -1: the last one


def summarize(
    rows: pd.DataFrame,
    by: Sequence[str],
    depth: int | None = None,
    *,
    fold_numbers: bool = False,
    more: bool = False,
    means: Collection[str] = (),
) -> pd.DataFrame:
    """Return one row for every key along the axes `by`.

    Sums of integers are exact. A rate is the sum of what was done over the sum of the time of
    the rows that know what they did, never a mean of rates; so `roofline_pct` is the time that
    the roof allows over the time taken. The time of a kernel that only helps counts where the
    work it helps with does. `costed_pct` says how much of the time these rows stand for.

    Args:
        rows: rows of axis `kernel`, in any order.
        by: names out of `AXES`, each once.
        depth: with axis `layer` or `range`, cut its paths after so many names.
        fold_numbers: with axis `range`, write `N` for each number in its names, so that ranges
            that differ in numbers alone are one.
        more: give `MORE_COLUMNS` too.
        means: which of `MEANS` to give too.

    Returns:
        The key columns, named as in `rows`, then `SUMMARY_COLUMNS`; longest time first, ties in
        the order of the keys; where the first axis is `step`, in the order of steps. Null text is
        the key `(none)`, a null number stays null: with it the shares add up to 100. Streams of
        the same number are one key; add axis `rank` to tell the processes apart. No rows give no
        rows.

    Raises:
        UsageError: an axis is unknown or named twice, or `depth` or `fold_numbers` makes no
            sense.
        TableError: the times add up to more than an int64 holds.
    """
    check_axes(by, depth, fold_numbers=fold_numbers)
    out, group = grouped(rows, by, depth, fold_numbers=fold_numbers)
    out = out.join(_measure(rows, group, len(out)))
    if more:
        out = out.join(_missed(rows, group, len(out)))
    time = rows["dur_ns"].to_numpy(np.float64)
    for name in means:
        value = _floats(rows[name])
        known = np.where(np.isnan(value), np.nan, time)
        out[name] = _ratio(value * time, known, group, len(out))
    return in_order(out, by)


def grouped(
    rows: pd.DataFrame, by: Sequence[str], depth: int | None, *, fold_numbers: bool
) -> tuple[pd.DataFrame, Ints]:
    """Return the distinct keys of rows along axes, in their order, and of each row its key's."""
    keys = {AXES[axis]: _key(rows[AXES[axis]]) for axis in by}
    for column in keys.keys() & PATHS.keys():
        keys[column] = _renamed(keys[column], partial(key_name, column, depth, fold_numbers))
    group = combine_keys(*map(_sort_code, keys.values()))
    first = _first_rows(group)
    out = pd.DataFrame({name: key.iloc[first] for name, key in keys.items()})
    out = out.reset_index(drop=True)
    for name in out.columns[out.dtypes == "category"]:
        out[name] = out[name].astype("str")
    return out, group


def in_order(sums: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return sums, that stand in order of their keys, in that in which they are shown."""
    sums = sums.sort_values("time_ns", ascending=False, kind="stable", ignore_index=True)
    if by[0] == "step":
        sums = sums.sort_values("step", kind="stable", ignore_index=True)
    return sums


def total_row(rows: pd.DataFrame) -> pd.DataFrame:
    """Return `SUMMARY_COLUMNS` for all of `rows` together, in one row.

    `op_calls` counts each op call once, so it can be less than the sum over kernel names. Of no
    rows the counts and the time are 0 and all else is null.
    """
    return _measure(rows, np.zeros(len(rows), dtype=np.int64), 1)


def _key(values: pd.Series) -> pd.Series:
    """Return the key of each row: numbers as they are, text as a category in sorted order."""
    if pd.api.types.is_integer_dtype(values.dtype):
        return values
    codes, names = _codes(values)
    return _categorical(codes, [str(name) for name in names], values.index)


def _codes(texts: pd.Series) -> tuple[Ints, Sequence[Any]]:
    """Return of each text its position among some that are distinct, and these; -1 for null."""
    if isinstance(texts.dtype, pd.CategoricalDtype):
        return texts.cat.codes.to_numpy(), list(texts.cat.categories)
    codes, names = pd.factorize(texts)
    return codes, list(names)


def _sort_code(key: pd.Series) -> NDArray[np.int64]:
    """Return numbers that are equal and in order as the keys are, those of null the last."""
    if isinstance(key.dtype, pd.CategoricalDtype):
        codes: NDArray[np.int64] = key.cat.codes.to_numpy().astype(np.int64)
        return codes
    null = key.isna().to_numpy()
    values, code = distinct(key.to_numpy(np.int64, na_value=0))
    found: NDArray[np.int64] = np.where(null, len(values), code).astype(np.int64)
    return found


def _first_rows(group: Ints) -> Ints:
    """Return the first row of each group; they are numbered from 0."""
    first = np.zeros(int(group.max()) + 1 if len(group) else 0, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the first is written last
    return first


def _renamed(keys: pd.Series, rename: Callable[[str], str]) -> pd.Series:
    """Return the keys under other names; each distinct one is renamed once."""
    names = [name if name == NONE else rename(name) for name in keys.cat.categories]
    return _categorical(keys.cat.codes.to_numpy(), names, keys.index)


def _categorical(codes: Ints, names: list[str], index: pd.Index) -> pd.Series:
    """Return `names[codes]`; a code of -1 is `(none)`, and names may come more than once."""
    names = [*names, NONE]
    ordered = sorted(set(names))
    place = {name: i for i, name in enumerate(ordered)}
    recode = np.array([place[name] for name in names])
    return pd.Series(pd.Categorical.from_codes(recode[codes], pd.Index(ordered)), index=index)


def _measure(rows: pd.DataFrame, group: Ints, count: int) -> pd.DataFrame:
    """Return `SUMMARY_COLUMNS` of the groups 0 … `count` - 1; `group` is that of each row."""
    time = rows["dur_ns"].to_numpy(dtype=np.int64)
    if time.sum(dtype=np.float64) > LARGEST_SUM:
        msg = "the durations add up to 292 years: the recording is broken; record it anew"
        raise TableError(msg)
    # The counts of a row that says `in_parent` stand at the op around it.
    counts = rows["cost_status"].ne("in_parent").to_numpy(dtype=bool, na_value=True)
    flops = rows["flops"].astype("Int64").where(counts & _tells_flops(rows, group, count))
    nbytes = rows["bytes"].astype("Int64").where(counts)
    number = np.bincount(group, minlength=count)
    time_ns = np.zeros(count, np.int64)
    np.add.at(time_ns, group, time)
    least, most = np.full(count, _FAR), np.full(count, -_FAR)
    np.minimum.at(least, group, time)
    np.maximum.at(most, group, time)
    sums = {
        "count": number,
        "op_calls": _count_op_calls(rows, group, count),
        "time_ns": time_ns,
        "share_pct": time_ns / (time.sum() or np.nan) * 100,
        "mean_ns": time_ns / np.where(number, number, np.nan),
        "min_ns": pd.arrays.IntegerArray(least, number == 0),
        "max_ns": pd.arrays.IntegerArray(most, number == 0),
        "flops": exact_sum(flops, group, count),
        "bytes": exact_sum(nbytes, group, count),
    }
    return pd.DataFrame(sums | _rates(rows, _floats(flops), _floats(nbytes), group, count))


def _tells_flops(rows: pd.DataFrame, group: Ints, count: int) -> Bools:
    """Return which rows tell of the FLOPs of their group.

    A copy does none; but that says nothing of a group with kernels of which nothing is known.
    """
    is_copy = rows["category"].isin(["memcpy", "memset"]).to_numpy(dtype=bool)
    known = rows["flops"].notna().to_numpy(dtype=bool)
    has_kernels = np.bincount(group, ~is_copy, count) > 0
    has_known = np.bincount(group, ~is_copy & known, count) > 0
    tells: Bools = ~is_copy | (~has_kernels | has_known)[group]
    return tells


def _rates(
    rows: pd.DataFrame,
    flops: Floats,
    nbytes: Floats,
    group: Ints,
    count: int,
) -> dict[str, Floats]:
    """Return the columns that are sum over sum."""
    span = np.where(_helps_elsewhere(rows, group), np.nan, rate_span(rows))
    parts = rate_parts(rows, flops, nbytes, span)
    least, taken = parts.pop("roofline_pct")
    found = {name: RATE_SCALES[name] * _ratio(*parts[name], group, count) for name in parts}
    fs, ys = (_ratio(part, taken, group, count) for part in in_fine_parts(least))
    roof = RATE_SCALES["roofline_pct"] * ((fs + ys / FINEST) / FINE)
    return {name: roof if name == "roofline_pct" else found[name] for name in RATE_SCALES}


def rate_span(rows: pd.DataFrame) -> Floats:
    """Return the time that the rates of each row are taken over, in ns."""
    return _floats(rows["rate_ns"] if "rate_ns" in rows else rows["dur_ns"])


def rate_parts(
    rows: pd.DataFrame, flops: Floats, nbytes: Floats, span: Floats
) -> dict[str, tuple[Floats, Floats]]:
    """Return of each rate what is summed above and below its line, of the rows that know both.

    Args:
        rows: as for `summarize`.
        flops: what each row adds to the FLOPs; not a number where that is nothing known.
        nbytes: the same of the bytes.
        span: `rate_span`; not a number for rows whose time is not to count.
    """
    time = _floats(rows["dur_ns"])
    least = _floats(rows["least_ns"] if "least_ns" in rows else rows["roofline_pct"] / 100 * span)
    verdict = rows["tensor_core"].isin(["yes", "no"]).to_numpy(dtype=bool)
    on_tensor_cores = rows["tensor_core"].isin(["yes"]).to_numpy(dtype=bool)
    costed = rows["cost_status"].isin(COSTED).to_numpy(dtype=bool)
    return {
        "tflops": (flops, span),
        "gbps": (nbytes, span),
        "intensity": (flops, nbytes),
        "roofline_pct": (least, span),
        "tensor_core_pct": (time * on_tensor_cores, np.where(verdict, time, np.nan)),
        "costed_pct": (time * costed, time),
    }


def _helps_elsewhere(rows: pd.DataFrame, group: Ints) -> Bools:
    """Return which rows only help with work that other groups have."""
    if "helps" not in rows or not rows["helps"].any():
        return np.zeros(len(rows), dtype=bool)
    helps = rows["helps"].to_numpy(dtype=bool)
    count = int(group.max()) + 1
    parts = [rows[name].to_numpy(dtype=np.int64) for name in ("rank", "accounting_op")]
    op = pack_keys(_LARGEST_KEY // count, *parts)
    pair = op * count + group
    works = ~helps & np.isin(op, op[helps])
    elsewhere = np.zeros(len(rows), dtype=bool)
    elsewhere[helps] = np.isin(pair[helps], pair[works], invert=True)
    return elsewhere


def _missed(rows: pd.DataFrame, group: Ints, count: int) -> pd.DataFrame:
    """Return `MORE_COLUMNS` of the groups; null where no kernel could have used Tensor Cores."""
    time = rows["dur_ns"].to_numpy(dtype=np.int64)
    reason = rows.get("tensor_core_missed", pd.Series(None, rows.index, dtype="str"))
    missed = reason.notna().to_numpy()
    could = rows["tensor_core_eligible"].fillna(value=False).to_numpy(dtype=bool)
    # Helpers have no work for Tensor Cores: without FLOPs they are neither here nor there.
    worked = rows["flops"].gt(0).fillna(value=False).to_numpy(dtype=bool)
    used = could & worked & rows["tensor_core"].isin(["yes"]).to_numpy(dtype=bool)
    missed_ns, used_ns = (np.zeros(count, np.int64) for _ in range(2))
    np.add.at(missed_ns, group[missed], time[missed])
    np.add.at(used_ns, group[used], time[used])
    known = np.bincount(group[missed | used], minlength=count) > 0
    return pd.DataFrame(
        {
            "tensor_core_missed_ns": pd.Series(missed_ns, dtype="Int64").where(known),
            "tensor_core_missed_pct": _percent(missed_ns, missed_ns + used_ns),
            "tensor_core_missed": _most(reason, time, group, count)["text"],
            "roofline_flag": _flags(rows, time, group, count),
        }
    )


def _flags(rows: pd.DataFrame, time: Ints, group: Ints, count: int) -> pd.Series:
    """Return the flag of half of each group's time or more, helpers' time left out."""
    most = _most(rows["roofline_flag"], time, group, count)
    working = rows["helps"].to_numpy(dtype=bool) == 0 if "helps" in rows else True
    whole = np.bincount(group, np.where(working, time, 0), count)
    return most["text"].where(most["time"] >= whole / 2)


def _most(texts: pd.Series, time: Ints, group: Ints, count: int) -> pd.DataFrame:
    """Return for each group the text that stands for most of its time, with that time."""
    codes, names = _codes(texts)
    known = codes >= 0
    pairs, which = distinct(group[known].astype(np.int64) * max(1, len(names)) + codes[known])
    sums = np.zeros(len(pairs), np.int64)
    np.add.at(sums, which, time[known])
    found = pd.DataFrame({"group": pairs // max(1, len(names)), "time": sums})
    found["text"] = pd.Series([names[at] for at in pairs % max(1, len(names))], dtype="str")
    found = found.sort_values(["time", "text"], ascending=[False, True], kind="stable")
    return found.drop_duplicates("group").set_index("group").reindex(range(count))


def _percent(part: Ints, whole: Ints) -> Floats:
    share: Floats = np.divide(100 * part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return share


def _floats(values: pd.Series) -> Floats:
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _ratio(
    above: Floats,
    below: Floats,
    group: Ints,
    count: int,
) -> Floats:
    """Return sum over sum of the rows that know both, whole numbers; NaN where the lower is 0."""
    unknown = np.isnan(above) | np.isnan(below)
    top = _whole_sum(np.where(unknown, 0.0, above), group, count)
    bottom = _whole_sum(np.where(unknown, 0.0, below), group, count)
    ratio: Floats = np.divide(top, bottom, out=np.full(count, np.nan), where=bottom != 0)
    return ratio


def _whole_sum(values: Floats, group: Ints, count: int) -> Floats:
    """Return the sums of whole numbers, rounded once: the same in any order."""
    sums: Floats = np.bincount(group, values, count).astype(np.float64)
    if sums.max(initial=0) < _EXACT:
        return sums
    high = np.floor(values / _HALF)
    low = np.bincount(group, values - high * _HALF, count)
    return (np.bincount(group, high, count) * _HALF + low).astype(np.float64)


def exact_sum(values: pd.Series, group: Ints, count: int) -> pd.Series:
    """Return the sums as integers; null where nothing is known or an int64 cannot hold them."""
    numbers = values.to_numpy(np.int64, na_value=0)
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, numbers)
    rough = np.bincount(group, numbers, count)
    known = np.bincount(group, values.notna().to_numpy(), count) > 0
    return pd.Series(pd.arrays.IntegerArray(sums, ~known | (rough > LARGEST_SUM)))


def _count_op_calls(rows: pd.DataFrame, group: Ints, count: int) -> Ints:
    known = rows["op_id"].notna().to_numpy()
    rank, op = rows["rank"].to_numpy(np.int64), rows["op_id"].to_numpy(np.int64, na_value=-1)
    call = pack_keys(_LARGEST_KEY // max(1, count), rank[known], op[known])
    pair = np.sort(call * count + group[known])  # np.unique keeps a table of hashes: far slower
    is_new = np.diff(pair, prepend=-1) > 0
    return np.bincount(pair[is_new] % max(1, count), minlength=count)
