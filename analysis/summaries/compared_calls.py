"""The calls of two runs, side by side: which ops ran, how often, with which kernels, in what time.

A call is an op call with all its GPU activities; an activity without an op is a call of its own.
Activities that reach over the window of a step are cut there, and count in both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.columns import combine_keys, groups_of, narrow
from pyprof2.signatures import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int

COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies"
CASTS: Final = "casts"
GROUP: Final = ["kind", "layer", "op", "direction"]
_PRODUCTS: Final = ("matmul", "conv", "attention")
_COPY_CATEGORIES: Final = ("memcpy", "memset")
TEXTS: Final = ("layer", "op", "direction", "signature", "kernel", "category", "copy_kind")
_OF_TENSOR: Final = re.compile(rf"(?<=\]) (?:{'|'.join(DTYPE_BITS)})\b")
_FLOATS: Final = re.compile(r"(?<=\]) (f64|f32|f16|bf16|f8\w*)\b")
_CASTS: Final = re.compile(r"^aten::(?:copy_|_to_copy|to)\(")
_MAKES: Final = re.compile(r"^aten::(?:_to_copy|to|empty\w*|new_empty\w*|zeros\w*|ones\w*)\(")
_FLOAT_NUMBER: Final = re.compile(r", (?:5|6|7|15)(?=[,)])")
"""Number of a floating dtype, among arguments that are no tensors."""
NEEDED: Final = ("rank", "device", "start_ns", "dur_ns", "op_id", "call_id", *TEXTS)
"""Columns of kernels and copies that are compared."""


def cut_at_windows(rows: pd.DataFrame, windows: pd.DataFrame) -> pd.DataFrame:
    """Return the parts of the rows inside of the windows, with `step` and `time_ns` of each.

    Args:
        rows: columns `rank`, `device`, `start_ns`, `dur_ns` and others.
        windows: columns `rank`, `device`, `step`, `start_ns`, `end_ns`; those of a device do not
            overlap.
    """
    starts = rows["start_ns"].to_numpy(np.int64)
    stops = starts + rows["dur_ns"].to_numpy(np.int64)
    rank, device = (rows[name].to_numpy(np.int64) for name in ("rank", "device"))
    parts: list[tuple[Int, ...]] = [] if len(windows) else [(np.zeros(0, np.int64),) * 4]
    for (of_rank, of_device), own in windows.groupby(["rank", "device"]):
        place = np.flatnonzero((rank == of_rank) & (device == of_device))
        cut = _cut(starts[place], stops[place], own.sort_values("start_ns"))
        parts.append((place[cut[0]], *cut[1:]))
    row, step, start, time = (
        np.concatenate(each) if len(parts) > 1 else each[0] for each in zip(*parts, strict=True)
    )
    rows = rows.drop(columns=["start_ns", "dur_ns"])
    kept: pd.DataFrame = rows.iloc[row].reset_index(drop=True)
    return kept.assign(step=narrow(step), start_ns=start, time_ns=narrow(time))


def _cut(start: Int, stop: Int, windows: pd.DataFrame) -> tuple[Int, Int, Int, Int]:
    """Return of each part its row, the step, where it begins, and how long it is."""
    begin, end = (windows[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    first = np.searchsorted(end, start, "right")
    # One without a length is in the window that begins with it.
    last = np.where(
        stop > start, np.searchsorted(begin, stop, "left"), np.searchsorted(begin, start, "right")
    )
    count = np.maximum(0, last - first)
    row = np.repeat(np.arange(len(start)), count)
    at = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    begins = np.maximum(start[row], begin[at])
    time = np.minimum(stop[row], end[at]) - begins
    return row, windows["step"].to_numpy(np.int64)[at], begins, time


def compared_calls(slices: pd.DataFrame, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return one row for each distinct call and step: how many there are, and their time.

    Args:
        slices: of one side, as `cut_at_windows` makes them.
        by: further columns that separate groups of calls, such as `source`.

    Returns:
        Columns `kind`, `layer`, `op`, `direction`, those of `by`, `dims` (of the signature what is
        no dtype), `signature`, `kernels` (a text for the kernels that the call ran, whatever
        their order), `step`, `count`, `time_ns`; texts are categories. Without an op, `op`
        is the name of the kernel or the kind of the copy.
    """
    call = _calls(slices)
    order = np.argsort(call, kind="stable")
    in_order = call[order]
    first = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]][: len(call)])
    calls = slices.iloc[order[first]].reset_index(drop=True)
    op, kernel, copy_kind = shared_categories([calls["op"], calls["kernel"], calls["copy_kind"]])
    has_op = op.codes >= 0
    copied_or_run = np.where(copy_kind.codes < 0, kernel.codes, copy_kind.codes)
    signature = pd.Categorical(calls["signature"])
    found: dict[str, Any] = {
        "kind": _kinds(slices, call),
        "op": pd.Categorical.from_codes(np.where(has_op, op.codes, copied_or_run), op.categories),
        "dims": by_text(calls["signature"], without_dtypes).array,
        "signature": signature,
        "kernels": _kernel_sets(pd.Categorical(slices["kernel"])[order], in_order, first),
        "step": calls["step"].to_numpy(np.int64),
    }
    # A kernel of compiled code may have a line where its op is not known.
    is_placed = has_op | (calls["op_id"].fillna(-1).to_numpy(np.int64) >= 0)
    for column in ("layer", "direction", *by):
        own = pd.Categorical(calls[column])
        codes = np.where(is_placed, own.codes, -1)
        found[column] = pd.Categorical.from_codes(codes, own.categories)
    time_ns = slices["time_ns"].to_numpy(np.int64)[order]
    sums = {
        "count": np.ones(len(first), np.int64),
        "time_ns": np.add.reduceat(time_ns, first) if len(first) else time_ns,
    }
    keys = [*GROUP, *by, "dims", "signature", "kernels", "step"]
    group = numbered(found[key] for key in keys)
    firsts = np.unique(group, return_index=True)[1]
    summed = {key: found[key][firsts] for key in keys}
    for name, values in sums.items():
        summed[name] = np.zeros(len(firsts), np.int64)
        np.add.at(summed[name], group, values)
    return pd.DataFrame(summed)


def numbered(columns: Iterable[Any]) -> Int:
    """Return a number for each row that is equal where all columns are, and sorts as they do.

    Args:
        columns: of whole numbers, or of texts, whose null comes last.
    """
    return combine_keys(*map(_sortable, columns))


def _sortable(column: Any) -> Int:
    if pd.api.types.is_integer_dtype(column.dtype):
        return np.asarray(column)
    texts = pd.Categorical(column)
    place = np.argsort(np.argsort(texts.categories.to_numpy(object)))
    found: Int = narrow(np.append(place, len(place)))[texts.codes]
    return found


def shared_categories(columns: Sequence[pd.Series]) -> list[pd.Categorical]:
    """Return texts as categories that all of the columns have, in order."""
    own = [pd.Categorical(column) for column in columns]
    texts = pd.Index(sorted({text for each in own for text in each.categories}), dtype=object)
    places = [np.append(texts.get_indexer(each.categories), -1) for each in own]
    return [
        pd.Categorical.from_codes(place[each.codes], texts)
        for place, each in zip(places, own, strict=True)
    ]


def by_text(texts: pd.Series, function: Callable[[str], Hashable]) -> pd.Series:
    """Return what a function makes of texts, asked once for each; null stays null."""
    own = pd.Categorical(texts)
    made = pd.Categorical([function(text) for text in own.categories])
    codes = np.append(made.codes, -1)[own.codes]
    return pd.Series(pd.Categorical.from_codes(codes, made.categories), index=texts.index)


def without_dtypes(signature: str) -> str:
    """Return a signature without dtypes, so that what differs in nothing else is equal."""
    made = _FLOAT_NUMBER.sub(", dtype", signature) if _MAKES.match(signature) else signature
    return _OF_TENSOR.sub("", made)


def main_dtype(slices: pd.DataFrame) -> str | None:
    """Return the floating dtype that most of the time is in; None: there is none.

    A call has that of its first input that has one; products and convolutions decide where
    there are any.
    """
    own = products(slices)
    own = slices if own.empty else own
    dtype = by_text(own["signature"], _first_float)
    times = own["time_ns"].groupby(dtype, observed=True).sum()
    return None if times.empty else str(times.idxmax())


def products(slices: pd.DataFrame) -> pd.DataFrame:
    """Return the slices that matrix products, convolutions and attention ran."""
    return slices[slices["category"].isin(_PRODUCTS)]


def without_casts(slices: pd.DataFrame) -> pd.DataFrame:
    """Return the slices that no `copy_` or `to` ran, whether or not it changes a dtype."""
    is_made = by_text(slices["signature"], lambda text: bool(_CASTS.match(text)))
    return slices[is_made.ne(True)]  # noqa: FBT003


def _first_float(signature: str) -> str | None:
    found = _FLOATS.search(signature)
    return found[1] if found else None


def _is_cast(signature: str) -> bool:
    return bool(_CASTS.match(signature)) and len(set(_FLOATS.findall(signature))) > 1


def _calls(slices: pd.DataFrame) -> Int:
    """Return a number for each call: of its op in its step, or of the activity alone."""
    op, anew = (slices[name].fillna(-1).to_numpy(np.int64) for name in ("op_id", "call_id"))
    # Each replay of a graph calls its ops anew.
    of_op = np.where(op >= 0, 2 * op, -1 - np.arange(len(slices)))
    own = np.where(anew >= 0, 2 * anew + 1, of_op)
    others = combine_keys(*(slices[name].to_numpy(np.int64) for name in ("rank", "step")))
    key = own * (int(others.max(initial=0)) + 1) + others
    # Numbered as they come, which is nearly the order of time.
    found: Int = pa.array(key).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def _kinds(slices: pd.DataFrame, call: Int) -> pd.Categorical:
    """Return of each call whether it computes, communicates, casts, or only copies."""
    count = int(call.max()) + 1 if len(call) else 0
    size = np.bincount(call, minlength=count)
    copies = np.bincount(call[slices["category"].isin(_COPY_CATEGORIES)], minlength=count)
    communicates = np.bincount(call[slices["category"] == "comm"], minlength=count) > 0
    cast = by_text(slices["signature"], _is_cast).eq(True).to_numpy()  # noqa: FBT003
    casts = np.bincount(call[cast], minlength=count) > 0
    conditions = [communicates, copies == size, casts]
    code = np.select(conditions, [np.int8(at) for at in range(3)], np.int8(3))
    return _categories(code, [COMMUNICATION, COPIES, CASTS, COMPUTE])


def _categories(code: NDArray[Any], texts: list[str]) -> pd.Categorical:
    found: pd.Categorical = pd.Categorical.from_codes(code, pd.Index(texts, dtype=object))
    return found


def _kernel_sets(kernels: pd.Categorical, call: Int, first: Int) -> pd.Categorical:
    """Return a text for each call that is equal where the same kernels ran, in any order.

    Args:
        kernels: the kernel of each activity.
        call: of each activity, sorted.
        first: the place of each call's first activity.
    """
    texts = kernels.categories.to_numpy(object)
    kernel = np.append(np.argsort(np.argsort(texts)) + 1, 0)[kernels.codes]
    names = ["", *sorted(texts)]
    kernel = kernel[np.lexsort((kernel, call))]
    length = np.diff(np.r_[first, len(call)])
    code = np.full(len(first), -1, np.int64)
    used = 0
    for at in range(int(length.max()) if len(length) else 0):
        longer = np.flatnonzero(length > at)
        pair = combine_keys(code[longer], kernel[first[longer] + at])
        # Numbers are not used twice, so that sets of different lengths stay apart.
        code[longer] = used + pair
        used += int(pair.max()) + 1
    one, place = groups_of(code)
    runs = ((length[n], kernel[first[n] : first[n] + length[n]].tolist()) for n in one.tolist())
    return _categories(
        place, ["\0".join((f"{size:09d}", *(names[k] for k in own))) for size, own in runs]
    )
