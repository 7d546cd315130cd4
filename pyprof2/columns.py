"""Arrow columns from NumPy ones, with a number that stands for null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    _Frame = TypeVar("_Frame", pd.Series, pd.DataFrame)


TextColumn: TypeAlias = "tuple[NDArray[np.int64], Sequence[str | None]]"
"""Codes, -1 for null, and the text of each code; a text that is None is null too."""


_CLOSE: Final = 4
"""Values are close together if they span at most so many times their number."""
_MOST: Final = 1 << 62
"""So many combinations of values 64 bits hold."""
_SAMPLE: Final = 1000
"""So many rows show whether there are few values or many."""


def int_array(values: NDArray[np.int64], missing: int) -> pa.Array:
    """Return an int64 column; `missing` becomes null."""
    is_missing = values == missing
    if not is_missing.any():
        return pa.array(values, pa.int64())
    if is_missing.all():  # as whole columns of most recordings are
        return pa.nulls(len(values), pa.int64())
    return pa.array(values, pa.int64(), mask=is_missing)


def text_array(column: TextColumn) -> pa.DictionaryArray:
    """Return a dictionary column that holds each text once, and no text that is not used."""
    codes, texts = column
    least = int(codes.min()) if len(codes) else 0
    if len(codes) and least == codes.max():  # as whole columns of most recordings are
        word = texts[least] if least >= 0 else None
        same = (
            pa.array(np.zeros(len(codes), np.int32)) if word else pa.nulls(len(codes), pa.int32())
        )
        return pa.DictionaryArray.from_arrays(same, pa.array([word] if word else [], pa.string()))
    has_null = least < 0
    used = np.flatnonzero(np.bincount(codes - least)[-least:] if has_null else np.bincount(codes))
    words = pa.array([texts[code] or None for code in used.tolist()], pa.string())
    unique = words.dictionary_encode()
    place = np.full(int(used[-1]) + 2 if len(used) else 1, -1, np.int32)
    place[used] = unique.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    index = place[np.maximum(codes, -1) if least < -1 else codes]  # the last place is that of null
    nulls = index < 0 if has_null or unique.null_count else None
    if nulls is not None:  # Arrow looks their codes up, too, where it puts dictionaries together
        np.maximum(index, 0, out=index)
    return pa.DictionaryArray.from_arrays(pa.array(index, mask=nulls), unique.dictionary)


def sum_at(place: NDArray[np.int64], values: NDArray[Any], count: int) -> NDArray[Any]:
    """Return the exact sum of the values at each place, 0 … `count` - 1; those at -1 are none's."""
    sums = np.zeros((count, *values.shape[1:]), values.dtype)
    if place.min(initial=0) < 0:
        known = place >= 0
        place, values = place[known], values[known]
    np.add.at(sums, place, values)
    return sums


def lookup(values: NDArray[Any], at: NDArray[np.int64], missing: int) -> NDArray[np.int64]:
    """Return `values` at the positions `at`; `missing` where a position is -1."""
    if not len(values):
        return np.full(len(at), missing, np.int64)
    if at.min(initial=0) >= 0:
        return values[at].astype(np.result_type(values, missing), copy=False)
    # Where there is none at all, as in many columns, no value is looked up.
    return np.where(at >= 0, values[at] if at.max() >= 0 else values[0], missing)


def row_of(ids: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where in ascending `ids` each wanted one is; -1 for one that is not there."""
    if not len(ids):
        return np.full(len(wanted), -1)
    if ids[0] == 0 and ids[-1] == len(ids) - 1 and (ids[1:] > ids[:-1]).all():
        return np.where((wanted >= 0) & (wanted < len(ids)), wanted, -1)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, at, -1)


def first_rows(group: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the first row of each group, 0 … `count` - 1; of one without any the number of rows.

    Rows at -1 are of no group.
    """
    found = np.full(count, len(group))
    rows = np.flatnonzero(group >= 0)[::-1]
    found[group[rows]] = rows  # the least, since it is written last
    return found


def merge_texts(first: TextColumn, second: TextColumn) -> TextColumn:
    """Return the first column's text, or the second's where the first is null."""
    codes = np.where(
        first[0] >= 0, first[0], np.where(second[0] >= 0, len(first[1]) + second[0], -1)
    )
    return codes, [*first[1], *second[1]]


def only(column: TextColumn, keep: NDArray[np.bool_]) -> TextColumn:
    """Return a text column with null where `keep` is false."""
    codes = np.where(keep, column[0], -1)
    return codes, column[1]


def named(column: TextColumn, text: str) -> TextColumn:
    """Return a text column with null where the text is another one."""
    codes, texts = column
    return only(column, lookup(np.array([t == text for t in texts], np.int64), codes, 0) > 0)


def values_of(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values in order; those that are close together are not sorted."""
    least = int(column.min()) if len(column) else 0
    span = int(column.max()) - least + 1 if len(column) else 0
    if not 0 < span <= _CLOSE * len(column):
        return np.unique(column)
    there = np.zeros(span, bool)
    there[np.subtract(column, least, dtype=np.int64)] = True
    return np.flatnonzero(there) + least


def combine_keys(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one integer per row that is equal where all columns are, and sorts as they do."""
    code, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        if not len(column) or (least := int(column.min())) == (most := int(column.max())):
            continue
        count, inverse = most - least + 1, column
        if size * count > _CLOSE * len(column):
            # Dense before it is too many, so that the product of two counts always fits.
            values, inverse = distinct(column)
            least, count = 0, len(values)
            code = distinct(code)[1]
        near = np.subtract(inverse, least, dtype=np.int64)
        code = near if size == 1 else code * count + near
        size = (int(code.max()) + 1) if size * count > _CLOSE * len(column) else size * count
    return code if size == 1 else distinct(code)[1]


def distinct(column: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values in order, and of each row the position of its own among them.

    What `np.unique` gives with its inverse; values that are close together are not sorted.
    """
    least = int(column.min()) if len(column) else 0
    span = int(column.max()) - least + 1 if len(column) else 0
    if not 0 < span <= _CLOSE * len(column):
        # The rows of few values need no order.
        sample = column[:: max(1, len(column) // _SAMPLE)]
        if 2 * len(set(sample.tolist())) < len(sample):
            first, inverse = groups_of(column)
            return column[first], inverse
        rest = column != least
        others = column[rest]
        if len(others) and int(others.max()) - int(others.min()) < _CLOSE * len(others):
            # The number that stands for null may be far from the others.
            values, inverse = distinct(others)
            place = np.zeros(len(column), np.int64)
            place[rest] = inverse + 1
            return np.r_[least, values], place
        values, inverse = np.unique(column, return_inverse=True)
        return values, inverse
    near = np.subtract(column, least, dtype=np.int64)
    there = np.zeros(span, bool)
    there[near] = True
    place = np.cumsum(there) - 1
    return np.flatnonzero(there) + least, place[near]


def sorted_distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the distinct values in order, as `np.unique`, whose table of hashes takes longer.

    Values that are nearly in order take next to no time.
    """
    ordered = np.sort(values, kind="stable")
    found: NDArray[np.int64] = ordered[np.r_[True, ordered[1:] != ordered[:-1]][: len(ordered)]]
    return found


def order_of(first: NDArray[np.int64], *others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows in order of the first column, equal ones in order of the next, and so on.

    What `np.lexsort` gives of the columns in reverse, where hardly two rows of the first one are
    equal and they are nearly in order: only those that are equal there are sorted by the others.
    """
    order = np.argsort(first, kind="stable")
    ordered = first[order]
    equal = ordered[1:] == ordered[:-1]
    if not others or not equal.any():
        return order
    places = np.flatnonzero(np.r_[False, equal] | np.r_[equal, False])
    rows = order[places]
    order[places] = rows[np.lexsort([column[rows] for column in (*others[::-1], first)])]
    return order


def short(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return positions or codes in half the memory: there are fewer rows than 31 bits count."""
    found: NDArray[Any] = values.astype(np.int32, copy=False)
    return found


def narrow(values: NDArray[np.int64], least: type = np.int8) -> NDArray[Any]:
    """Return whole numbers in as little memory as their type can be, `least` or more."""
    first, last = int(values.min(initial=0)), int(values.max(initial=0))
    kind = np.promote_types(np.min_scalar_type(min(first, -1 - last)), least)
    return values.astype(kind, copy=False)


def groups_of(key: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first row of each group of equal keys, in order of the keys, and each row's group.

    What `np.unique` gives with its index and inverse, where there are few distinct keys: these
    alone are sorted, not the rows.
    """
    encoded = pa.array(key).dictionary_encode()
    code = encoded.indices.to_numpy()  # in the order in which keys come first
    new = np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1) > 0)
    order = np.argsort(encoded.dictionary.to_numpy())
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return new[order], place[code]


def combinations(columns: Sequence[NDArray[Any]]) -> tuple[Any, NDArray[np.int64]]:
    """Return the first row of each combination of values, as they come, and each row's among them.

    Nothing is sorted: what is not in order takes a multiple of the time.
    """
    code, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        values, least, count = column, *_range(column)
        if size * count > _MOST:
            values = _as_they_come(column)
            least, count = _range(values)
        if size * count > _MOST:
            code = _as_they_come(code)
            size = _range(code)[1]
        code *= count
        code += np.subtract(values, least, dtype=np.int64)
        size *= count
    code = _as_they_come(code)
    return np.flatnonzero(np.diff(np.maximum.accumulate(code), prepend=-1) > 0), code


def _range(column: NDArray[np.int64]) -> tuple[int, int]:
    """Return the least value, and how many there may be from it on."""
    least = int(column.min(initial=0))
    return least, int(column.max(initial=0)) - least + 1


def _as_they_come(column: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each row's value, as they first come."""
    found: NDArray[Any] = pa.array(column).dictionary_encode().indices.to_numpy()
    return found.astype(np.int64)


def slices_of_groups(group: NDArray[np.int64], size: int) -> Iterator[slice]:
    """Yield slices of about `size` rows, so that the rows of each group are in one slice.

    Args:
        group: of each row; -1 for rows that may be anywhere.
        size: a slice is longer only where groups reach across its end.
    """
    rows = np.flatnonzero(group >= 0)
    _, first, place = np.unique(group[rows], return_index=True, return_inverse=True)
    last = np.zeros(len(first), np.int64)
    last[place] = rows  # the greatest, since it is written last
    open_groups = np.zeros(len(group) + 1, np.int64)
    np.add.at(open_groups, rows[first] + 1, 1)
    np.add.at(open_groups, last + 1, -1)
    cuts = np.flatnonzero(np.cumsum(open_groups) == 0)
    begin = 0
    while begin < len(group):
        at = np.searchsorted(cuts, min(begin + size, len(group)))
        end = int(cuts[at])
        yield slice(begin, end)
        begin = end


def shifted(table: pa.Table, added: Mapping[str, int]) -> pa.Table:
    """Return a table with something added to the columns of these names that it has."""
    for at, name in enumerate(table.column_names):
        if added.get(name):
            table = table.set_column(at, table.field(at), pc.add(table[name], added[name]))
    return table


def as_text(values: _Frame) -> _Frame:
    """Return values as text, in the type that pandas gives text; those that are missing stay so."""
    found: _Frame = values.astype("str").where(values.notna())
    return found


def with_text(rows: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """Return rows with the columns of these names as text."""
    return rows.assign(**{name: as_text(rows[name]) for name in names})


def join_rows(parts: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Return the rows of parts, one after another; text of other categories is plain in all."""
    import pandas as pd

    found = list(parts)
    kinds = {str(name): {part[name].dtype for part in found} for name in found[0]}
    mixed = [name for name, of in kinds.items() if len(of) > 1 and "category" in map(str, of)]
    return pd.concat([with_text(part, mixed) for part in found])


def as_pandas(table: pa.Table, never_null: Sequence[str] = ()) -> pd.DataFrame:
    """Return a DataFrame whose whole numbers stay whole numbers, null or not.

    Integers and bools named in `never_null` become int64 and bool, others pandas' nullable types,
    text categorical.
    """
    import pandas as pd

    nullable = {
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
        pa.uint64(): pd.UInt64Dtype(),
    }
    frame = table.to_pandas(types_mapper=nullable.get)
    kinds = {
        c: "bool" if frame[c].dtype == "boolean" else "int64" for c in never_null if c in frame
    }
    exact: pd.DataFrame = frame.astype(kinds)
    return exact
