"""The calls of two runs, side by side: which ops ran, how often, with which kernels, in what time.

A call is an op call with all its GPU activities; an activity without an op is a call of its own.
Activities that reach over the window of a step are cut there, and count in both.

There are few kinds of activities, as long as all that is said of one in words is the same, and few
sets of them that make up a call: so numbers stand for both, and the words are looked at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from pyprof2.analysis.axes import COARSE, in_words
from pyprof2.columns import combinations, combine_keys, lookup, narrow, sum_at
from pyprof2.recording import TextCodes
from pyprof2.signatures import DTYPE_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.analysis.intervals import Int

COMPUTE: Final = "compute"
COMMUNICATION: Final = "communication"
COPIES: Final = "copies"
CASTS: Final = "casts"
GROUP: Final = ["kind", "layer", "op", "direction"]
_PRODUCTS: Final = ("matmul", "conv", "attention")
_COPY_CATEGORIES: Final = {"memcpy", "memset"}
TEXTS: Final = ("layer", "op", "direction", "signature", "kernel", "category", "copy_kind")
_OF_TENSOR: Final = re.compile(rf"(?<=\]) (?:{'|'.join(DTYPE_BITS)})\b")
_FLOATS: Final = re.compile(r"(?<=\]) (f64|f32|f16|bf16|f8\w*)\b")
_CASTS: Final = re.compile(r"^aten::(?:copy_|_to_copy|to)\(")
_MAKES: Final = re.compile(r"^aten::(?:_to_copy|to|empty\w*|new_empty\w*|zeros\w*|ones\w*)\(")
_FLOAT_NUMBER: Final = re.compile(r", (?:5|6|7|15)(?=[,)])")
"""Number of a floating dtype, among arguments that are no tensors."""
NEEDED: Final = ("rank", "device", "start_ns", "dur_ns", "op_id", "call_id", *TEXTS)
"""Columns of kernels and copies that are compared."""
_BLOCKS_MAX: Final = 50

Activities: TypeAlias = "Mapping[str, Any]"
"""Columns `NEEDED` and more by name: whole numbers, -1 for null, or texts as a `TextColumn`."""


class _Kind(NamedTuple):
    """All that is said of an activity in words.

    Attributes:
        place: its device, and its table: activities of a call stand in this order.
        is_placed: whether it is of an op, whatever its name.
        by: the texts of further columns.
    """

    place: tuple[int, int]
    is_placed: bool
    layer: str | None
    op: str | None
    direction: str | None
    signature: str | None
    kernel: str | None
    category: str | None
    copy_kind: str | None
    by: tuple[str | None, ...]


class CallSums:
    """The calls of one side, added up by block of steps, as their activities come in parts.

    Attributes:
        blocks: the block of each step: one step each, of many steps several.
        work_ns: the time of activities in each window.
    """

    def __init__(self, windows: pd.DataFrame, by: Sequence[str] = ()) -> None:
        """Begin with no activity.

        Args:
            windows: columns `rank`, `device`, `step`, `start_ns`, `end_ns`; those of a device do
                not overlap.
            by: further columns that separate groups of calls, such as `source`.
        """
        names = ("rank", "device", "step", "start_ns", "end_ns")
        rank, device, step, begin, self._end = (windows[n].to_numpy(np.int64) for n in names)
        order = np.argsort(begin, kind="stable")
        self._begin, self._by = begin, tuple(by)
        self._of_device: dict[tuple[int, int], Int] = {}
        for key in sorted({*zip(rank.tolist(), device.tolist(), strict=True)}):
            self._of_device[key] = order[(rank[order] == key[0]) & (device[order] == key[1])]
        # Calls are of a rank and of a step.
        self._group = combine_keys(rank, step)
        steps, place = np.unique(step, return_inverse=True)
        of_step = np.arange(len(steps)) * min(_BLOCKS_MAX, len(steps)) // max(1, len(steps))
        self._block = of_step[place]
        self.blocks = dict(zip(steps.tolist(), of_step.tolist(), strict=True))
        self.work_ns = np.zeros(len(windows), np.int64)
        self._kinds, self._sets = TextCodes(), TextCodes()
        self._of_kind, self._activities = np.zeros((2, 0), np.int64), 0
        self._found: list[tuple[Int, ...]] = [(self.work_ns[:0],) * 4]

    def add(self, rows: Activities, table: int = 0) -> None:
        """Take the next activities, in the order of their table; of a device in order of time.

        Args:
            rows: of one or several ranks.
            table: the place of the table that they are from.
        """
        row, window, time = self._cut(rows)
        np.add.at(self.work_ns, window, time)
        kind = self._kinds_of(rows, table)[row]
        count = len(self._kinds)
        sums = np.stack([np.bincount(kind, minlength=count), sum_at(kind, time, count)])
        sums[:, : self._of_kind.shape[1]] += self._of_kind
        self._of_kind = sums
        op, anew = (rows[name][row] for name in ("op_id", "call_id"))
        # Each replay of a graph calls its ops anew.
        alone = -1 - np.arange(self._activities, self._activities + len(row))
        self._activities += len(row)
        own = np.where(anew >= 0, 2 * anew + 1, np.where(op >= 0, 2 * op, alone))
        key = own * (int(self._group.max(initial=0)) + 1) + self._group[window]
        parts = key, kind, self._block[window], time
        self._found.append(self._calls(parts, lambda kinds: kinds))

    def _cut(self, rows: Activities) -> tuple[Int, Int, Int]:
        """Return the parts of rows inside of windows: of each its row, its window and its time."""
        rank, device, start, length = (rows[n] for n in ("rank", "device", "start_ns", "dur_ns"))
        stop, parts = start + length, [(start[:0],) * 3]
        for (of_rank, of_device), windows in self._of_device.items():
            place = np.flatnonzero((rank == of_rank) & (device == of_device))
            first, last = start[place], stop[place]
            begin, end = self._begin[windows], self._end[windows]
            since = np.searchsorted(end, first, "right")
            until = np.searchsorted(begin, last, "left")
            # One without a length is in the window that begins with it.
            point = last <= first
            until[point] = np.searchsorted(begin, first[point], "right")
            count = np.maximum(0, until - since)
            row = np.repeat(np.arange(len(place)), count)
            at = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + since[row]
            time = np.minimum(last[row], end[at]) - np.maximum(first[row], begin[at])
            parts.append((place[row], windows[at], time))
        row, window, time = (np.concatenate(each) for each in zip(*parts, strict=True))
        return row, window, rows["self_ns"][row] if "self_ns" in rows else time

    def _kinds_of(self, rows: Activities, table: int) -> Int:
        """Return a number for what is said of each row in words."""
        names = (*TEXTS, *self._by)
        shared = [f"shared_{name}" for name in names if name in COARSE and f"shared_{name}" in rows]
        is_placed = rows["op_id"] >= 0
        columns = [rows[name] for name in (*names, *shared)]
        keys = [rows["device"], is_placed.astype(np.int64), *(code for code, _ in columns)]
        first, place = combinations(keys)
        texts = {
            name: [words[code] if code >= 0 else None for code in codes[first].tolist()]
            for name, (codes, words) in zip((*names, *shared), columns, strict=True)
        }
        for name in shared:  # a kernel that has several ops, layers or lines names all of them
            one = name.removeprefix("shared_")
            both = zip(texts[name], texts[one], strict=True)
            texts[one] = [text if several is None else in_words(several) for several, text in both]
        devices = ((device, table) for device in rows["device"][first].tolist())
        own = is_placed[first].tolist()
        by = zip(*(texts[name] for name in self._by), strict=True) if self._by else [()] * len(own)
        kinds = zip(devices, own, *(texts[name] for name in TEXTS), by, strict=True)
        numbers = [self._kinds[_Kind(*each)] for each in kinds]
        return lookup(np.array(numbers, np.int64), place, -1)

    def _calls(
        self, parts: Sequence[Int], kinds: Callable[[list[int]], list[int]]
    ) -> tuple[Int, ...]:
        """Return of each call its key, the number of the set of its activities, block and time.

        Args:
            parts: the key of the call of each part, a number for what it is, its block and time.
            kinds: gives the kinds of the activities in parts of these numbers.
        """
        key, part, block, time = parts
        if (key[1:] < key[:-1]).any():
            order = np.argsort(key, kind="stable")
            key, part, block, time = (each[order] for each in parts)
        first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]][: len(key)])
        length = np.diff(np.r_[first, len(key)])
        code, used = part[first], int(part.max(initial=0)) + 1
        for at in range(1, int(length.max(initial=0))):
            longer = np.flatnonzero(length > at)
            pair = combinations([code[longer], part[first[longer] + at]])[1]
            # Numbers are not used twice, so that sets of different lengths stay apart.
            code[longer] = used + pair
            used += int(pair.max()) + 1
        row_of_code, sets = np.zeros(used, np.int64), np.zeros(used, np.int64)
        row_of_code[code] = np.arange(len(code))  # any of them: all are alike
        for one in np.flatnonzero(np.bincount(code, minlength=used)).tolist():
            begin, count = first[row_of_code[one]], length[row_of_code[one]]
            sets[one] = self._sets[tuple(kinds(part[begin : begin + count].tolist()))]
        sums = np.add.reduceat(time, first) if len(first) else time
        return key[first], narrow(sets[code]), narrow(block[first]), narrow(sums)

    def sums(self) -> tuple[pd.DataFrame, Int, Int]:
        """Return a row for each distinct call, how many there are by block, and their time.

        The columns are `kind`, `layer`, `op`, `direction`, the further ones, `dims` (of the
        signature what is no dtype), `signature`, and `kernels` (a text for the kernels that the
        call ran, whatever their order). Without an op, `op` is the name of the kernel or the kind
        of the copy.
        """
        key, sets, block, time = (np.concatenate(each) for each in zip(*self._found, strict=True))
        # Some calls have activities in several parts of tables, or in both tables.
        order = np.argsort(key, kind="stable")
        same = np.flatnonzero(key[order[1:]] == key[order[:-1]])
        again, known = np.zeros(len(key), bool), [*self._sets]
        again[order[same]] = again[order[same + 1]] = True
        merged = self._calls(
            [each[again].astype(np.int64) for each in (key, sets, block, time)],
            lambda parts: [kind for part in parts for kind in known[part]],
        )
        own = (each[~again] for each in (sets, block, time))
        sets, block, time = (np.r_[a, b] for a, b in zip(merged[1:], own, strict=True))
        kinds, groups = [*self._kinds], TextCodes()
        of_set = [groups[self._words([kinds[kind] for kind in own])] for own in self._sets]
        group = np.array(of_set, np.int64)[sets]
        shape = len(groups), max(self.blocks.values(), default=0) + 1
        counts, times = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        np.add.at(counts, (group, block), 1)
        np.add.at(times, (group, block), time)
        names, words = [*GROUP, *self._by, "dims", "signature", "kernels"], [*groups]
        used = np.flatnonzero(counts.any(axis=1))
        found = pd.DataFrame([words[at] for at in used.tolist()], columns=names, dtype=object)
        return found, counts[used], times[used]

    def _words(self, kinds: Sequence[_Kind]) -> tuple[Any, ...]:
        """Return what there is to say of the call of some activities."""
        first = min(kinds, key=lambda each: each.place)
        categories = {each.category for each in kinds}
        kind = (
            COMMUNICATION if "comm" in categories
            else COPIES if categories <= _COPY_CATEGORIES
            else CASTS if any(
                _CASTS.match(text) and len(set(_FLOATS.findall(text))) > 1
                for text in {each.signature or "" for each in kinds}
            )
            else COMPUTE
        )  # fmt: skip
        op, signature = first.op, first.signature
        if op is None:
            op = first.kernel if first.copy_kind is None else first.copy_kind
        placed = (first.layer, op, first.direction, *first.by)
        if first.op is None and not first.is_placed:
            placed = (None, op, None, *[None] * len(first.by))
        dims = None if signature is None else without_dtypes(signature)
        # No "\0": pandas 2 compares texts up to there.
        kernels = "\1".join((f"{len(kinds):09d}", *sorted(each.kernel or "" for each in kinds)))
        return (kind, *placed, dims, signature, kernels)

    def times(self) -> pd.DataFrame:
        """Return the time of activities that differ in anything: `op`, `signature`, `category`."""
        rows = [(each.op, each.signature, each.category) for each in self._kinds]
        found = pd.DataFrame(rows, columns=["op", "signature", "category"], dtype=object)
        used: pd.DataFrame = found.assign(time_ns=self._of_kind[1])[self._of_kind[0] > 0]
        return used


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
    dtype = own["signature"].map(_first_float, na_action="ignore")
    times = own["time_ns"].groupby(dtype, observed=True).sum()
    return None if times.empty else str(times.idxmax())


def products(slices: pd.DataFrame) -> pd.DataFrame:
    """Return the slices that matrix products, convolutions and attention ran."""
    return slices[slices["category"].isin(_PRODUCTS)]


def without_casts(slices: pd.DataFrame) -> pd.DataFrame:
    """Return the slices that no `copy_` or `to` ran, whether or not it changes a dtype."""
    return slices[~slices["signature"].fillna("").str.contains(_CASTS)]


def _first_float(signature: str) -> str | None:
    found = _FLOATS.search(signature)
    return found[1] if found else None
