"""What the kernels and copies of a rank add up to, so that a profile need not read them.

`pyprof2.analysis.summaries.profile.summarize` makes its columns of sums; here are those sums, by
each distinct combination of what it sums along, from rows that come in parts. Two things are no
sums: an op call that has kernels in several rows counts once in all of them (table `sum_calls`),
and the time of a kernel that only helps counts for rates only where the work it helps with does
(column `helps`). All else are whole numbers, so that their order does not matter.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.missed_tensor_cores import missed_reasons
from pyprof2.analysis.hardware.roofs import op_numbers
from pyprof2.analysis.linking.stacks import libraries
from pyprof2.analysis.parted import RunningCodes, parts_of
from pyprof2.analysis.summaries.profile_columns import COSTED, LARGEST_SUM, in_fine_parts
from pyprof2.analysis.summaries.rows import has_least, least_times, only_helps
from pyprof2.analysis.summaries.sets import distinct_sets
from pyprof2.columns import combine_keys, distinct, sorted_distinct, text_array
from pyprof2.recording import TextCodes, code_column, int_column
from pyprof2.result_tables import SUM_CALLS, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.parted import Parted
    from pyprof2.analysis.summaries.rows import Floats
    from pyprof2.analysis.summaries.sets import Sets

TEXTS: Final = (
    "direction", "layer", "op", "signature", "kernel", "category", "source", "library", "range",
    "copy_kind", "tensor_core_missed", "roofline_flag",
)  # fmt: skip
"""The keys that are text; `stream` is one too."""

MOST: Final = 1 << 14
"""With more rows they are not stored: to add them up would take as long as the kernels do."""

_OF_WORK: Final = ("cost_op_id", "cost_role", "dur_ns", "roofline_pct")
NEEDED: Final = (
    *(name for name in TEXTS if name not in ("library", "tensor_core_missed")), *_OF_WORK,
    "stream", "step", "library_source", "flops", "bytes", "cost_status", "tensor_core",
    "tensor_core_eligible", "compute_dtype", "params", "device_type", "op_time_ns", "op_id",
)  # fmt: skip
"""The columns of kernels and copies that this reads."""

_NOT_ADDED: Final = ("rank", *TEXTS, "stream", "helps", "min_ns", "max_ns")
ADDED: Final = tuple(name for name in SUMS.names if name not in _NOT_ADDED)
"""The columns that are added up."""
_FAR: Final = np.iinfo(np.int64).max
_NO_STREAM: Final = -_FAR
_ROW_BITS: Final = 20
_EXACT: Final = float(1 << 52)
"""Up to it sums of whole numbers as floats are whole, with room for a rough one."""


def sums_of_rank(
    tables: Mapping[str, Parted], rank: int, most: int = MOST
) -> tuple[pa.Table, pa.Table]:
    """Return the tables `sums` and `sum_calls` of a rank.

    Args:
        tables: `kernels` and `copies` with columns `NEEDED`, and `ops`, of which only the number
            of rows is asked for.
        rank: its number.
        most: with more rows than this, or sums that 64 bits do not hold, both tables are empty.
    """
    nothing = SUMS.empty(), SUM_CALLS.empty()
    work = _Work(tables["ops"].row_count)
    for part in _parts(tables, _OF_WORK):
        work.add(part)
    sums = _Rows(work)
    for part in _parts(tables, NEEDED):
        sums.add(part)
        if len(sums.keys) > most:
            return nothing
    return sums.tables(rank, most) or nothing


def _parts(tables: Mapping[str, Parted], columns: Sequence[str]) -> Iterator[pa.Table]:
    found = (parts_of(tables[name], columns) for name in ("kernels", "copies"))
    return (part for part in chain.from_iterable(found) if part.num_rows)


class _Work:
    """What the rows of an op tell together, by `cost_op_id` plus one: 0 stands for none.

    Attributes:
        time: of the rows that do its work, in ns.
        has_roof: whether any row has one.
        is_helped: whether any row only helps.
    """

    def __init__(self, op_count: int) -> None:
        self.time = np.zeros(op_count + 1, np.int64)
        self.has_roof, self.is_helped = (np.zeros(op_count + 1, bool) for _ in range(2))

    def add(self, rows: pa.Table) -> None:
        """Take up rows."""
        op, helps = op_numbers(rows) + 1, only_helps(rows)
        np.add.at(self.time, op[~helps], int_column(rows, "dur_ns", 0)[~helps])
        self.has_roof[op[has_least(rows)]] = True
        self.is_helped[op[helps]] = True


class _Helper(NamedTuple):
    """Rows that only help: of each its op, its call, its key, and what it adds."""

    op: Int
    call: Int
    key: Int
    values: Int


class _Rows:
    """The sums of rows that come in parts.

    Attributes:
        keys: the number of each combination of codes of `TEXTS`, the stream, and whether it helps.
    """

    def __init__(self, work: _Work) -> None:
        self.keys = TextCodes()
        self._work = work
        self._texts = {name: RunningCodes() for name in TEXTS}
        self._streams = TextCodes()
        self._sums = _nothing(0)
        self._rough = np.zeros(len(ADDED))
        self._calls: list[Int] = []
        self._workers: list[Int] = []
        self._helpers: list[_Helper] = []

    def add(self, rows: pa.Table) -> None:
        """Take up rows."""
        op, helps = op_numbers(rows) + 1, only_helps(rows)
        key = self._key(rows, helps)
        values = self._values(rows, op)
        own = [each[~helps] for each in values]
        rough = np.array([each.sum(dtype=np.float64) for each in values])
        self._rough += rough
        new = _nothing(len(self.keys) - self._sums.shape[1])
        self._sums = np.concatenate([self._sums, new], axis=1)
        _add(self._sums, key[~helps], own, rough)
        call = int_column(rows, "op_id", -1)
        self._calls.append(_pairs(call, key, (call >= 0) & ~helps))
        self._workers.append(_pairs(op, key, self._work.is_helped[op] & ~helps))
        of_helpers = np.array([each[helps] for each in values])
        self._helpers.append(_Helper(op[helps], call[helps], key[helps], of_helpers))

    def _key(self, rows: pa.Table, helps: Bool) -> Int:
        """Return the number of each row's key, of which each distinct one is looked up once."""
        made = {"library": libraries(rows), "tensor_core_missed": missed_reasons(rows)}
        for name, column in made.items():
            rows = rows.append_column(name, text_array(column))
        codes = [self._texts[name].add(rows, name) for name in TEXTS]
        streams, stream = distinct(int_column(rows, "stream", _NO_STREAM))
        numbers = np.array([self._streams[number] for number in streams.tolist()])
        columns = [np.asarray(each, np.int64) for each in (*codes, numbers[stream], helps)]
        group = combine_keys(*columns)
        first = np.zeros(int(group.max()) + 1, np.int64)
        first[group[::-1]] = np.arange(len(group))[::-1]  # the first is written last
        place = np.zeros(len(first), np.int64)
        # In the order in which they come first: of a tie that is what a profile goes by.
        order = np.argsort(first)
        distinct_keys = np.stack([column[first[order]] for column in columns], axis=1).tolist()
        place[order] = [self.keys[tuple(each)] for each in distinct_keys]
        return place[group]

    def _values(self, rows: pa.Table, op: Int) -> list[Int]:
        """Return what each row adds to the columns `ADDED`, in their order."""
        time = int_column(rows, "dur_ns", 0)
        verdict = {word: _is(rows, "tensor_core", (word,)) for word in ("yes", "no")}
        counted = ~_is(rows, "cost_status", ("in_parent",))
        told, moved = (rows[name].is_valid().to_numpy() for name in ("flops", "bytes"))
        flops, nbytes = (int_column(rows, name, 0) for name in ("flops", "bytes"))
        could = rows["tensor_core_eligible"].fill_null(False).to_numpy()  # noqa: FBT003
        used = could & told & (flops > 0) & verdict["yes"]
        least = least_times(rows, self._work.time[op], self._work.has_roof[op])
        has_least, known, known_bytes = ~np.isnan(least), told & counted, moved & counted
        fs, ys = in_fine_parts(np.where(has_least, least, 0))
        found = {
            "count": np.ones(len(time), np.int64),
            "time_ns": time,
            "step_ns": time * rows["step"].is_valid().to_numpy(),
            "flops": flops * known,
            "flops_count": known,
            "told_count": told,
            "flops_ns": time * known,
            "bytes": nbytes * known_bytes,
            "bytes_count": known_bytes,
            "bytes_ns": time * known_bytes,
            "both_flops": flops * (known & known_bytes),
            "both_bytes": nbytes * (known & known_bytes),
            "least_fs": fs,
            "least_ys": ys,
            "least_ns": time * has_least,
            "tensor_core_ns": time * verdict["yes"],
            "tensor_core_known_ns": time * (verdict["yes"] | verdict["no"]),
            "tensor_core_used_ns": time * used,
            "tensor_core_used_count": used,
            "costed_ns": time * _is(rows, "cost_status", COSTED),
        }
        return [np.asarray(found[name], np.int64) for name in ADDED]

    def tables(self, rank: int, most: int) -> tuple[pa.Table, pa.Table] | None:
        """Return the tables `sums` and `sum_calls`; None where there are too many rows."""
        if not self.keys:
            return None
        own = _Helper(*(np.concatenate(e, axis=-1) for e in zip(*self._helpers, strict=True)))
        sets, which = self._worked_with(own.op)
        pair, of_helper = np.unique(combine_keys(own.key, which), return_inverse=True)
        firsts = np.unique(of_helper, return_index=True)[1]
        keys = np.array(list(self.keys), np.int64)
        is_own = keys[:, -1] == 0
        # Rows of kernels that work, and those that help with each set of them, by their keys.
        key = np.r_[np.flatnonzero(is_own), own.key[firsts]]
        order = np.argsort(key, kind="stable")
        row = np.empty(len(order), np.int64)
        row[order] = np.arange(len(order))
        worker, helper = np.zeros(len(keys), np.int64), row[is_own.sum() :]
        worker[is_own] = row[: is_own.sum()]
        if len(key) > most or self._rough.max() > LARGEST_SUM:
            return None
        sums = _nothing(len(pair))
        _add(sums, of_helper, own.values, self._rough)
        values = np.concatenate([self._sums[:, is_own], sums], axis=1)[:, order]
        helps: list[list[int] | None] = [None] * len(key)
        for at, place in enumerate(which[firsts].tolist()):
            members = sets.rows[sets.first[place] : sets.first[place + 1]] if place >= 0 else ()
            helps[int(helper[at])] = [int(worker[member]) for member in members]
        table = self._table(rank, keys[key[order]], values, helps)
        calls = [*self._calls, _pairs(own.call, len(keys) + of_helper, own.call >= 0)]
        return table, _call_table(rank, np.concatenate(calls), np.r_[worker, helper])

    def _worked_with(self, op: Int) -> tuple[Sets, Int]:
        """Return sets of keys, and which one has the work of each op that is helped; -1: none."""
        pairs = sorted_distinct(np.concatenate(self._workers))
        ops, place = distinct(pairs >> _ROW_BITS)
        sets, which = distinct_sets(place, pairs & ((1 << _ROW_BITS) - 1))
        if not len(ops):
            return sets, np.full(len(op), -1, np.int64)
        at = np.minimum(np.searchsorted(ops, op), len(ops) - 1)
        return sets, np.where(ops[at] == op, which[at], -1)

    def _table(self, rank: int, keys: Int, values: Int, helps: list[list[int] | None]) -> pa.Table:
        columns = {
            name: text_array((keys[:, at], [*self._texts[name].texts, None]))
            for at, name in enumerate(TEXTS)
        }
        streams = [None if each == _NO_STREAM else each for each in self._streams]
        return SUMS.conform(
            pa.table(
                columns
                | {"rank": np.full(len(keys), rank, np.int64)}
                | {"stream": pa.array([streams[at] for at in keys[:, -2].tolist()], pa.int64())}
                | {"helps": pa.array(helps, pa.list_(pa.int64()))}
                | {name: values[at] for at, name in enumerate((*ADDED, "min_ns", "max_ns"))}
            )
        )


def _add(sums: Int, row: Int, values: Sequence[Int] | Int, rough: Floats) -> None:
    """Add values to rows of sums, and take the shortest and longest time to their last two.

    Args:
        sums: by column `ADDED` and two more, and row.
        row: of each value.
        values: by column.
        rough: about how much each column adds up to, or more.
    """
    for at, column in enumerate(values):
        if rough[at] < _EXACT:
            sums[at] += np.bincount(row, column, sums.shape[1]).astype(np.int64)
        else:
            np.add.at(sums[at], row, column)
    time = values[ADDED.index("time_ns")]
    np.minimum.at(sums[-2], row, time)
    np.maximum.at(sums[-1], row, time)


def _nothing(count: int) -> Int:
    """Return the sums of so many rows to which nothing was added."""
    sums = np.zeros((len(ADDED) + 2, count), np.int64)
    sums[-2] = _FAR
    return sums


def _pairs(owner: Int, key: Int, rows: Bool) -> Int:
    """Return the distinct pairs of an owner and a key of some rows, each pair as one number."""
    return sorted_distinct((owner[rows] << _ROW_BITS) | key[rows])


def _call_table(rank: int, pairs: Int, row_of: Int) -> pa.Table:
    """Return the table `sum_calls`.

    Args:
        rank: the number.
        pairs: of op calls and keys.
        row_of: the row of each key.
    """
    _, call = distinct(pairs >> _ROW_BITS)
    sets, which = distinct_sets(call, row_of[pairs & ((1 << _ROW_BITS) - 1)])
    offsets = pa.array(sets.first, pa.int32())
    rows = pa.ListArray.from_arrays(offsets, pa.array(sets.rows, pa.int64()))
    count = np.bincount(which, minlength=len(rows)).astype(np.int64)
    ranks = np.full(len(rows), rank, np.int64)
    return SUM_CALLS.conform(pa.table({"rank": ranks, "rows": rows, "op_calls": count}))


def _is(rows: pa.Table, name: str, words: Sequence[str]) -> Bool:
    codes, texts = code_column(rows, name)
    found: Bool = np.array([*(text in words for text in texts), False])[codes]
    return found
