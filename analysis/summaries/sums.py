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
from pyprof2.recording import TextCodes, has_text, int_column
from pyprof2.result_tables import SUM_CALLS, SUMS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Int
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
    "tensor_core_eligible", "tensor_core_eligible_half", "compute_dtype", "params", "device_type",
    "op_time_ns", "op_id",
)  # fmt: skip
"""The columns of kernels and copies that this reads."""

_NOT_ADDED: Final = ("rank", *TEXTS, "stream", "helps", "min_ns", "max_ns")
ADDED: Final = tuple(name for name in SUMS.names if name not in _NOT_ADDED)
"""The columns that are added up."""
_FAR: Final = np.iinfo(np.int64).max
_NO_STREAM: Final = -_FAR
_ROW_BITS: Final = 20
_ROW: Final = (1 << _ROW_BITS) - 1
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
    work = _Work(tables["ops"].row_count)
    for part in _parts(tables, _OF_WORK):
        work.add(part)
    codes = _Codes()
    helped = _helped(tables, work, codes, most)
    sums = _Rows(work, helped, codes)
    for part in _parts(tables, NEEDED):
        sums.add(part)
        if len(sums.keys) > most:
            break
    return sums.tables(rank, most) or (SUMS.empty(), SUM_CALLS.empty())


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


class _Codes:
    """Numbers for the texts and streams of rows that come in parts."""

    def __init__(self) -> None:
        self._texts = {name: RunningCodes() for name in TEXTS}
        self._streams = TextCodes()

    def of(self, rows: pa.Table) -> list[Int]:
        """Return of each row the codes of `TEXTS` and the number of its stream, by column."""
        made = {"library": libraries(rows), "tensor_core_missed": missed_reasons(rows)}
        for name, column in made.items():
            rows = rows.append_column(name, text_array(column))
        streams, stream = distinct(int_column(rows, "stream", _NO_STREAM))
        numbers = np.array([self._streams[each] for each in streams.tolist()], np.int64)
        codes = [self._texts[name].add(rows, name).astype(np.int64) for name in TEXTS]
        return [*codes, numbers[stream]]

    def columns(self, codes: Int) -> dict[str, pa.Array]:
        """Return the columns that have these codes, by row and column."""
        streams = [None if each == _NO_STREAM else each for each in self._streams]
        return {
            name: text_array((codes[:, at], [*self._texts[name].texts, None]))
            for at, name in enumerate(TEXTS)
        } | {"stream": pa.array([streams[at] for at in codes[:, len(TEXTS)]], pa.int64())}


def _numbers(columns: Sequence[Int], known: TextCodes) -> Int:
    """Return the number of each row's combination of codes, of which each is looked up once."""
    group = combine_keys(*columns)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the first is written last
    place = np.zeros(len(first), np.int64)
    # In the order in which they come first: of a tie that is what a profile goes by.
    order = np.argsort(first)
    keys = np.stack([column[first[order]] for column in columns], axis=1).tolist()
    place[order] = [known[tuple(each)] for each in keys]
    return place[group]


class _Helped(NamedTuple):
    """The work of ops that have kernels which only help.

    Attributes:
        keys: the codes of what does the work, by number.
        sets: sets of them.
        of_op: which set does the work of each op, by `cost_op_id` plus one; -1: none.
    """

    keys: TextCodes
    sets: Sets
    of_op: NDArray[np.int32]


def _helped(tables: Mapping[str, Parted], work: _Work, codes: _Codes, most: int) -> _Helped:
    """Return what does the work of the ops that are helped; some of it where that is too much."""
    keys, pairs = TextCodes(), [np.empty(0, np.int64)]
    for part in _parts(tables, NEEDED) if work.is_helped.any() else ():
        op = op_numbers(part) + 1
        chosen = work.is_helped[op] & ~only_helps(part)
        key = _numbers(codes.of(part.filter(pa.array(chosen))), keys)
        if len(keys) > most:
            break
        pairs.append(_pairs(op[chosen], key))
    found = sorted_distinct(np.concatenate(pairs))
    ops, place = distinct(found >> _ROW_BITS)
    sets, which = distinct_sets(place, found & _ROW)
    of_op = np.full(len(work.time), -1, np.int32)
    of_op[ops] = which
    return _Helped(keys, sets, of_op)


class _Rows:
    """The sums of rows that come in parts.

    Attributes:
        keys: the number of each combination of codes and of what a row helps with: 0 where it
            does work, 1 where it helps with none that is known, else its set plus 2.
    """

    def __init__(self, work: _Work, helped: _Helped, codes: _Codes) -> None:
        self.keys = TextCodes()
        self._work, self._helped, self._codes = work, helped, codes
        self._sums = _nothing(0)
        self._rough = np.zeros(len(ADDED))
        self._calls = [np.empty(0, np.int64)]

    def add(self, rows: pa.Table) -> None:
        """Take up rows."""
        op = op_numbers(rows) + 1
        helps = np.where(only_helps(rows), self._helped.of_op[op] + 2, 0)
        key = _numbers([*self._codes.of(rows), helps], self.keys)
        values = self._values(rows, op)
        rough = np.array([each.sum(dtype=np.float64) for each in values])
        self._rough += rough
        new = _nothing(len(self.keys) - self._sums.shape[1])
        self._sums = np.concatenate([self._sums, new], axis=1)
        _add(self._sums, key, values, rough)
        call = int_column(rows, "op_id", -1)
        self._calls.append(_pairs(call[call >= 0], key[call >= 0]))

    def _values(self, rows: pa.Table, op: Int) -> list[Int]:
        """Return what each row adds to the columns `ADDED`, in their order."""
        time = int_column(rows, "dur_ns", 0)
        verdict = {word: has_text(rows, "tensor_core", (word,)) for word in ("yes", "no")}
        counted = ~has_text(rows, "cost_status", ("in_parent",))
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
            "costed_ns": time * has_text(rows, "cost_status", COSTED),
        }
        return [np.asarray(found[name], np.int64) for name in ADDED]

    def tables(self, rank: int, most: int) -> tuple[pa.Table, pa.Table] | None:
        """Return the tables `sums` and `sum_calls`; None where they are not stored."""
        if not 0 < len(self.keys) <= most or self._rough.max() > LARGEST_SUM:
            return None
        keys = np.array(list(self.keys), np.int64)
        table = pa.table(
            self._codes.columns(keys)
            | {"rank": np.full(len(keys), rank, np.int64)}
            | {"helps": pa.array(self._helps(keys[:, -1]), pa.list_(pa.int64()))}
            | dict(zip((*ADDED, "min_ns", "max_ns"), self._sums, strict=True))
        )
        return SUMS.conform(table), _call_table(rank, np.concatenate(self._calls))

    def _helps(self, helps: Int) -> list[list[int] | None]:
        """Return the rows that each row helps with; None for one that does work."""
        _, sets, _ = self._helped
        row = [self.keys[(*each, 0)] for each in self._helped.keys]
        members = [[row[at] for at in one] for one in np.split(sets.rows, sets.first[1:-1])]
        rows = [None, [], *members]
        return [rows[each] for each in helps]


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


def _pairs(owner: Int, key: Int) -> Int:
    """Return the distinct pairs of an owner and a key, each pair as one number."""
    return sorted_distinct((owner << _ROW_BITS) | key)


def _call_table(rank: int, pairs: Int) -> pa.Table:
    """Return the table `sum_calls` of pairs of op calls and rows."""
    _, call = distinct(pairs >> _ROW_BITS)
    sets, which = distinct_sets(call, pairs & _ROW)
    offsets = pa.array(sets.first, pa.int32())
    rows = pa.ListArray.from_arrays(offsets, pa.array(sets.rows, pa.int64()))
    count = np.bincount(which, minlength=len(rows)).astype(np.int64)
    ranks = np.full(len(rows), rank, np.int64)
    return SUM_CALLS.conform(pa.table({"rank": ranks, "rows": rows, "op_calls": count}))
