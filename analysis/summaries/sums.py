"""The rows of a profile added up by some keys, and stored, so that a profile need not read them.

The rows of a rank come in parts, and are added up as they come, by each distinct combination of the
keys, of why Tensor Cores were missed or a roof was exceeded, and of the work that a helper kernel
belongs to. The sums that `parse` stores have all usual keys; see tables `sums`, `sum_calls`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.axes import OWNED
from pyprof2.analysis.chunked import chunks_of
from pyprof2.analysis.hardware.roofs import floats, op_numbers
from pyprof2.analysis.summaries.profile import Key, Sums, added, chosen
from pyprof2.analysis.summaries.profile_columns import (
    COPY_CATEGORIES,
    COSTED,
    FINE,
    FINEST,
    LARGEST_SUM,
    columns_of,
    in_fine_parts,
)
from pyprof2.analysis.summaries.rows import activity_parts, are_helpers, has_least, least_times
from pyprof2.analysis.summaries.sets import Sets, distinct_sets
from pyprof2.columns import combine_keys, merge_texts, sorted_distinct, text_array
from pyprof2.recording import TextCodes, code_column, has_text, int_column
from pyprof2.result_tables import SUM_CALLS, SUMS
from pyprof2.tables import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Protocol

    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int

    class Read(Protocol):
        """Gives parts of the rows with some columns, each time from the first part on."""

        def __call__(
            self, columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None, /
        ) -> Iterable[pa.Table]:
            """Give of each part the rows that `keep` leaves."""


_ALWAYS: Final = ("tensor_core_missed", "roofline_flag")
STORED_KEYS: Final = (
    *(column.name for column in SUMS.columns if column.type == TEXT), "stream",
)  # fmt: skip
"""The keys of what is stored, beside the rank."""
MOST: Final = 1 << 14
"""With more rows they are not stored: to add them up would take as long as the kernels do."""

_OF_OPS: Final = ("cost_op_id", "cost_call_id", "cost_role", "dur_ns", "roofline_pct")
_NEEDED: Final = (
    "dur_ns", "step", "category", "op_id", "call_id", "flops", "bytes", "cost_status",
    "roofline_pct", "tensor_core", "tensor_core_eligible",
)  # fmt: skip
_OF_ACTIVITIES: Final = (*_OF_OPS, "op_time_ns")
_EXTREMES: Final = ("min_ns", "max_ns")
_STORED_SUMS: Final = tuple(
    name for name in SUMS.names if name not in ("rank", *STORED_KEYS, "helped_rows", *_EXTREMES)
)
_FAR: Final = np.iinfo(np.int64).max
_BITS: Final = 31
_LOW: Final = (1 << _BITS) - 1


def sums_of_rank(  # noqa: PLR0913 - what is asked of sums
    read: Read,
    keys: Iterable[str],
    rank: int,
    *,
    op_count: int | None = None,
    selection: Mapping[str, Any] | None = None,
    means: Sequence[str] = (),
    most: int | None = None,
) -> Sums:
    """Return the sums of the rows of a rank.

    Args:
        read: gives the rows in parts.
        keys: columns to add up by.
        rank: its number.
        op_count: how many ops share their counts among kernels; None: the rows are ops themselves.
        selection: arguments of `fits`: which rows to add up.
        means: of which of `MEANS` the sums are wanted.
        most: where there are more rows of sums than this, only some of them are found.
    """
    columns = [name for name in dict.fromkeys((*keys, *_ALWAYS)) if name != "rank"]
    codes, needed = _Codes(columns, selection or {}), columns_of(selection or {})
    read = _with_sets(read)
    ops = helped = None
    wanted = {*columns, *needed, *_NEEDED, *means}
    if op_count is None:
        wanted.add("rate_ns")
    else:
        ops = _OpTimes(op_count)
        for part in read(_OF_OPS):
            ops.add(part)
        of_work = read([*columns, *needed, *_OF_OPS], ops.are_work_helped)
        helped = _helped(of_work if ops.is_helped.any() else (), ops, codes, most)
        wanted.update(_OF_ACTIVITIES)
    rows = _Rows(ops, helped, codes, means)
    for part in read(sorted(wanted)):
        rows.add(part)
        if most is not None and len(rows.numbers) > most:
            break
    return rows.sums(rank)


def _with_sets(read: Read) -> Read:
    """Give rows that have several ops, layers or lines these as one text, see `join_owners`."""

    def found(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        of = {name: f"shared_{name}" for name in OWNED if name in columns}
        for part in read([*columns, *of.values()], keep):
            rows = part
            for name, shared in of.items():
                if shared in part.column_names and part[shared].null_count < len(part):
                    both = merge_texts(code_column(rows, name), code_column(rows, shared))
                    rows = rows.set_column(rows.column_names.index(name), name, text_array(both))
            yield rows

    return found


class _OpTimes:
    """Facts from all rows of an op, by the number of `op_numbers` plus one: 0 stands for none.

    Attributes:
        op_count: how many ops there are, without those that replays of graphs call anew.
        time: of the rows that do its work, in ns.
        has_roof: whether any row has one.
        is_helped: whether any row is of a helper kernel.
    """

    def __init__(self, count: int) -> None:
        self.op_count = count
        self.time = np.zeros(count + 1, np.int64)
        self.has_roof, self.is_helped = (np.zeros(count + 1, bool) for _ in range(2))

    def places(self, rows: pa.Table) -> Int:
        """Return where the facts of the op of each row are."""
        return op_numbers(rows, self.op_count) + 1

    def add(self, rows: pa.Table) -> None:
        """Take up rows."""
        op, helps = self.places(rows), are_helpers(rows)
        more = int(op.max(initial=0)) + 1 - len(self.time)
        if more > 0:
            self.time = np.pad(self.time, (0, more))
            self.has_roof, self.is_helped = (
                np.pad(each, (0, more)) for each in (self.has_roof, self.is_helped)
            )
        np.add.at(self.time, op[~helps], int_column(rows, "dur_ns", 0)[~helps])
        self.has_roof[op[has_least(rows)]] = True
        self.is_helped[op[helps]] = True

    def are_work_helped(self, rows: pa.Table) -> Bool:
        """Return which rows do the work of an op that has helper kernels."""
        found: Bool = self.is_helped[self.places(rows)] & ~are_helpers(rows)
        return found


class _Codes:
    """Numbers for the values of keys, in rows that come in parts."""

    def __init__(self, columns: Sequence[str], selection: Mapping[str, Any]) -> None:
        self._known = {name: TextCodes() for name in columns}
        self._is_text = dict.fromkeys(columns, True)
        self._selection = selection
        self.count = len(columns)

    def chosen(self, rows: pa.Table) -> pa.Table:
        """Return the rows that the selection leaves."""
        return chosen(rows, **self._selection)

    def of(self, rows: pa.Table) -> list[Int]:
        """Return of each row the code of its value in each column, -1 for null."""
        found = []
        for name, known in self._known.items():
            codes, values, self._is_text[name] = Key.of(rows, name)
            found.append(np.array([*(known[value] for value in values), -1], np.int64)[codes])
        return found

    def keys(self, codes: Int) -> dict[str, Key]:
        """Return the columns that have these codes, by row and column."""
        return {
            name: Key(codes[:, at], list(self._known[name]), self._is_text[name])
            for at, name in enumerate(self._known)
        }


def _numbers(columns: Sequence[Int], known: TextCodes) -> Int:
    """Return the number of each row's combination of codes, of which each is looked up once."""
    group = combine_keys(*columns)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # the first is written last
    place = np.zeros(len(first), np.int64)
    # Numbered in order of first appearance, which breaks ties.
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


def _helped(parts: Iterable[pa.Table], ops: _OpTimes, codes: _Codes, most: int | None) -> _Helped:
    """Return what does the work of the ops that are helped; some of it where that is too much."""
    keys, pairs = TextCodes(), [np.empty(0, np.int64)]
    for part in parts:
        rows = codes.chosen(part)
        key = _numbers(codes.of(rows), keys)
        if most is not None and len(keys) > most:
            break
        pairs.append(_pairs(ops.places(rows), key))
    found = sorted_distinct(np.concatenate(pairs))
    sets, which = distinct_sets(found >> _BITS, found & _LOW)
    of_op = np.full(len(ops.time), -1, np.int32)
    of_op[np.unique(found >> _BITS)] = which
    return _Helped(keys, sets, of_op)


class _Rows:
    """The sums of rows that come in parts.

    Attributes:
        numbers: of each combination of codes and of the work that a helper belongs to: 0 where it
            is no helper, 1 where that is not known, else the set of that work plus 2.
    """

    def __init__(
        self, ops: _OpTimes | None, helped: _Helped | None, codes: _Codes, means: Sequence[str]
    ) -> None:
        self.numbers = TextCodes()
        self._ops, self._helped, self._codes, self._means = ops, helped, codes, means
        self._sums: dict[str, Int] = {}
        self._rough: dict[str, float] = {}
        self._extremes = np.empty((2, 0), np.int64)
        self._calls = [np.empty(0, np.int64)]

    def add(self, part: pa.Table) -> None:
        """Take up rows."""
        rows = self._codes.chosen(part)
        helps = np.zeros(rows.num_rows, np.int64)
        if self._ops is not None and self._helped is not None:
            helping = are_helpers(rows)
            helps[helping] = self._helped.of_op[self._ops.places(rows)[helping]] + 2
        number = _numbers([*self._codes.of(rows), helps], self.numbers)
        for name, values in self._values(rows).items():
            self._add(name, values, number)
        new = np.full((2, len(self.numbers) - self._extremes.shape[1]), _FAR)
        new[1] = 0
        self._extremes = np.concatenate([self._extremes, new], axis=1)
        time = int_column(rows, "dur_ns", 0)
        np.minimum.at(self._extremes[0], number, time)
        np.maximum.at(self._extremes[1], number, time)
        call = int_column(rows, "op_id", -1)
        if self._ops is not None:
            anew = int_column(rows, "call_id", -1)
            call = np.where(anew >= 0, self._ops.op_count + anew, call)
        self._calls.append(_pairs(call[call >= 0], number[call >= 0]))

    def _add(self, name: str, values: Int, number: Int) -> None:
        sums = added(values, number, len(self.numbers))
        before = self._sums.get(name, np.zeros(0, np.int64))
        rough = self._rough.get(name, 0.0) + np.abs(sums.astype(np.float64)).sum()
        sums = sums.astype(object) if rough > LARGEST_SUM else sums
        sums[: len(before)] += before
        self._sums[name], self._rough[name] = sums, rough

    def _values(self, rows: pa.Table) -> dict[str, Int]:
        """Return what each row adds to the sums."""
        time, span, least = self._times(rows)
        yes, no = (has_text(rows, "tensor_core", (word,)) for word in ("yes", "no"))
        # The counts of a row that says `in_parent` stand at the op around it.
        counted = ~has_text(rows, "cost_status", ("in_parent",))
        has_flops, has_bytes = (rows[name].is_valid().to_numpy() for name in ("flops", "bytes"))
        flops, nbytes = (int_column(rows, name, 0) for name in ("flops", "bytes"))
        could = rows["tensor_core_eligible"].fill_null(False).to_numpy()  # noqa: FBT003
        # Helper kernels have no work for Tensor Cores: without FLOPs they do not count.
        used = could & has_flops & (flops > 0) & yes
        kernel = ~has_text(rows, "category", COPY_CATEGORIES)
        known, known_bytes = has_flops & counted, has_bytes & counted
        has_least = least < LARGEST_SUM / FINE  # not so where it is not a number
        fs, ys = in_fine_parts(np.where(has_least, least, 0))
        found = {
            "count": np.ones(len(time), bool),
            "time_ns": time,
            "step_ns": time * rows["step"].is_valid().to_numpy(),
            "flops": flops * known,
            "flops_count": known,
            "known_flops_count": has_flops,
            "flops_ns": span * known,
            "bytes": nbytes * known_bytes,
            "bytes_count": known_bytes,
            "bytes_ns": span * known_bytes,
            "both_flops": flops * (known & known_bytes),
            "both_bytes": nbytes * (known & known_bytes),
            "least_fs": fs,
            "least_ys": ys,
            "least_ns": span * has_least,
            "tensor_core_ns": time * yes,
            "tensor_core_known_ns": time * (yes | no),
            "tensor_core_used_ns": time * used,
            "tensor_core_used_count": used,
            "costed_ns": time * has_text(rows, "cost_status", COSTED),
            "kernel_count": kernel,
            "known_kernel_count": kernel & has_flops,
        }
        for name in self._means:
            found |= _weighted(rows, name, time)
        return found

    def _times(self, rows: pa.Table) -> tuple[Int, Int, NDArray[np.float64]]:
        """Return of each row its time, that which rates are taken over, and the least, in ns.

        The FLOPs of an op are done in its whole duration, while its row has its self time.
        """
        time = int_column(rows, "dur_ns", 0)
        if self._ops is None:
            span = int_column(rows, "rate_ns", 0) if "rate_ns" in rows.column_names else time
            return time, span, floats(rows, "roofline_pct") / 100 * span
        op = self._ops.places(rows)
        return time, time, least_times(rows, self._ops.time[op], self._ops.has_roof[op])

    def sums(self, rank: int) -> Sums:
        """Return the sums of all rows."""
        codes = np.array(list(self.numbers), np.int64)
        codes = codes.reshape(len(codes), self._codes.count + 1)
        keys = self._codes.keys(codes) | {
            "rank": Key(np.zeros(len(codes), np.int64), [rank], is_text=False)
        }
        pairs = np.concatenate(self._calls)
        calls, which = distinct_sets(pairs >> _BITS, pairs & _LOW)
        columns = self._sums | dict(zip(_EXTREMES, self._extremes, strict=True))
        # The sets of rows that helpers belong to, the first of which is empty.
        helped = Sets(np.zeros(2, np.int64), np.zeros(0, np.int64))
        if self._helped is not None:
            sets = self._helped.sets
            row = np.array([self.numbers[(*each, 0)] for each in self._helped.keys], np.int64)
            helped = Sets(np.r_[0, sets.first], row[sets.rows])
        return Sums(
            keys,
            columns,
            calls,
            np.bincount(which, minlength=len(calls.first) - 1).astype(np.int64),
            codes[:, -1] - 1,
            helped,
            np.arange(len(codes)),
        )


def _weighted(rows: pa.Table, name: str, time: Int) -> dict[str, Any]:
    """Return what a mean over the time is made of: in whole numbers, so that order is none."""
    values = floats(rows, name)
    known = np.abs(values * time) < LARGEST_SUM  # not so where it is not a number
    weights = np.where(known, values, 0) * time
    whole = np.rint(weights)
    rest = np.rint((weights - whole) * FINEST)
    return {f"{name}_whole": whole, f"{name}_rest": rest, f"{name}_ns": time * known}


def _pairs(owner: Int, number: Int) -> Int:
    """Return the distinct pairs of an owner and a row of sums, each pair as one number."""
    return sorted_distinct((owner << _BITS) | number)


def stored_sums(
    tables: Mapping[str, ChunkedTable], rank: int, most: int = MOST
) -> tuple[pa.Table, pa.Table]:
    """Return the tables `sums` and `sum_calls` of a rank.

    Args:
        tables: `kernels` and `copies`, and `ops`, of which only the number of rows is asked for.
        rank: its number.
        most: with more rows than this, or sums that 64 bits do not hold, both tables are empty.
    """

    def read(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        return activity_parts(lambda n, stored: chunks_of(tables[n], stored), columns, keep=keep)

    found = sums_of_rank(read, STORED_KEYS, rank, op_count=tables["ops"].row_count, most=most)
    too_large = any(column.dtype == object for column in found.columns.values())
    if not 0 < len(found.helps) <= most or too_large:
        return SUMS.empty(), SUM_CALLS.empty()
    texts = {name: key for name, key in found.keys.items() if key.is_text}
    numbers = {name: found.keys[name] for name in ("stream", "rank")}
    sums = pa.table(
        {name: text_array((key.codes, key.domain)) for name, key in texts.items()}
        | {
            name: pa.array(
                [None if c < 0 else key.domain[c] for c in key.codes.tolist()], pa.int64()
            )
            for name, key in numbers.items()
        }
        | {"helped_rows": _lists(found.helped, found.helps)}
        | {name: found.columns[name] for name in (*_STORED_SUMS, *_EXTREMES)}
    )
    count = len(found.op_calls)
    calls = pa.table(
        {
            "rank": np.full(count, rank),
            "rows": _lists(found.calls, np.arange(count)),
            "op_calls": found.op_calls,
        }
    )
    return SUMS.conform(sums), SUM_CALLS.conform(calls)


def _lists(sets: Sets, which: Int) -> pa.Array:
    """Return a column of sets, null for -1."""
    members = [part.tolist() for part in np.split(sets.rows, sets.first[1:-1])]
    return pa.array(
        [None if at < 0 else members[at] for at in which.tolist()], pa.list_(pa.int64())
    )


def sums_stored(sums: pa.Table, calls: pa.Table) -> Sums | None:
    """Return the sums that tables `sums` and `sum_calls` of a rank hold.

    None where they name rows that do not exist: a store may come from anywhere.
    """
    helped, sets = (_sets(table[name]) for table, name in ((sums, "helped_rows"), (calls, "rows")))
    count = sums.num_rows
    if helped is None or sets is None or calls["rows"].null_count:
        return None
    if any(((each.rows < 0) | (each.rows >= count)).any() for each in (helped, sets)):
        return None
    columns = {name: sums[name].to_numpy() for name in (*_STORED_SUMS, *_EXTREMES)}
    keys = {name: Key.of(sums, name) for name in ("rank", *STORED_KEYS)}
    kernel = keys["category"].where(lambda text: text not in COPY_CATEGORIES, null=True)
    columns |= {
        "kernel_count": columns["count"] * kernel,
        "known_kernel_count": columns["known_flops_count"] * kernel,
    }
    helps = np.where(sums["helped_rows"].is_valid().to_numpy(), np.arange(count), -1)
    op_calls = calls["op_calls"].to_numpy()
    return Sums(keys, columns, sets, op_calls, helps, helped, np.arange(count))


def _sets(column: pa.ChunkedArray) -> Sets | None:
    """Return lists of rows as sets, null as an empty one; None where a row is null."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    rows = pc.list_flatten(column)
    return None if rows.null_count else Sets(np.r_[0, np.cumsum(lengths)], rows.to_numpy())
