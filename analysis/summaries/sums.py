"""The rows of a profile added up by some keys, and stored, so that a profile need not read them.

The rows of a rank come in parts, and are added up as they come, by each distinct combination of the
keys, of why Tensor Cores were missed or a roof was exceeded, and of the work that a helper kernel
belongs to. The sums that `parse` stores have all usual keys, see tables `sums`, `sum_calls`; those
along other axes stand by themselves, in `axis_sums`, `axis_sum_calls`, as with all keys at once
there would be too many.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.axes import COARSE
from pyprof2.analysis.chunked import chunks_of
from pyprof2.analysis.hardware.roofs import floats, op_numbers
from pyprof2.analysis.summaries.profile import Key, Sums, added, chosen, extreme
from pyprof2.analysis.summaries.profile_columns import (
    COPY_CATEGORIES,
    COSTED,
    FINE,
    FINEST,
    LARGEST_SUM,
    MEANS,
    columns_of,
    in_fine_parts,
)
from pyprof2.analysis.summaries.rows import activity_parts, are_helpers, has_least, least_times
from pyprof2.analysis.summaries.sets import Sets, distinct_sets
from pyprof2.analysis.summaries.sum_tables import (
    ALWAYS,
    AXIS_KEYS,
    EXTREMES,
    STORED_KEYS,
    call_table,
    sum_table,
)
from pyprof2.columns import combinations, merge_texts, short, sorted_distinct, text_array, values_of
from pyprof2.recording import TextCodes, code_column, has_text, int_column
from pyprof2.result_tables import AXIS_SUM_CALLS, AXIS_SUMS, SUM_CALLS, SUMS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from typing import Protocol

    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.summaries.profile_columns import ProfileColumn
    from pyprof2.tables import Table

    class Read(Protocol):
        """Gives parts of the rows with some columns, each time from the first part on."""

        def __call__(
            self, columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None, /
        ) -> Iterable[pa.Table]:
            """Give of each part the rows that `keep` leaves."""


MOST: Final = 1 << 14
"""With more rows they are not stored: to add them up would take as long as the kernels do."""

_OF_OPS: Final = ("cost_op_id", "cost_call_id", "cost_role", "dur_ns", "roofline_pct")
_NEEDED: Final = (
    "dur_ns", "step", "category", "op_id", "call_id", "flops", "bytes", "cost_status",
    "roofline_pct", "tensor_core", "tensor_core_eligible",
)  # fmt: skip
_OF_ACTIVITIES: Final = (*_OF_OPS, "op_time_ns")
_APART: Final = 4
"""Parts hold at most so many times the combinations that there are, before they are added up."""
_OTHER: Final = -(1 << 62)
"""The number of steps that are one."""
_BITS: Final = 31
_LOW: Final = (1 << _BITS) - 1


def sums_of_rank(
    read: Read,
    keys: Iterable[str],
    rank: int,
    *,
    op_count: int | None = None,
    selection: Mapping[str, Any] | None = None,
    means: Sequence[str] = (),
) -> Sums:
    """Return the sums of the rows of a rank.

    Args:
        read: gives the rows in parts.
        keys: columns to add up by; where sums are summarized `ALWAYS` are among them.
        rank: its number.
        op_count: how many ops share their counts among kernels; None: the rows are ops themselves.
        selection: arguments of `fits`: which rows to add up.
        means: of which of `MEANS` the sums are wanted.
    """
    return _several_sums(read, [keys], op_count, selection or {}, means)[0].sums(rank)


def combination_count(read: Read, keys: Iterable[str], most: int) -> int:
    """Return how many combinations of keys the rows have, or, of more than `most`, some number."""
    codes = _Codes(name for name in keys if name != "rank")
    found = _Combinations(len(codes.known), most)
    for part in _with_sets(read)(list(codes.known)):
        found.add(list(codes.of(part).values()))
        if found.is_due:
            found.settle()
            if found.count > most:
                break
    found.settle()
    return found.count


def with_steps_apart(
    rank: int, apart: Mapping[int, Collection[int]], others: set[tuple[int, int]], read: Read
) -> Read:
    """Give rows of a rank whose steps are one but for those of `apart`; `others` gets the rest."""
    stay = pa.array(apart.get(rank, ()), pa.int64())

    def found(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        for part in read(columns, keep):
            rows = part
            if "step" in columns:
                step, at = part["step"], part.column_names.index("step")
                is_other = pc.and_(pc.invert(pc.is_in(step, stay)), step.is_valid())
                others.update((rank, each) for each in step.filter(is_other).unique().to_pylist())
                rows = part.set_column(at, "step", pc.if_else(is_other, _OTHER, step))
            yield rows

    return found


def _several_sums(
    read: Read,
    lists: Iterable[Iterable[str]],
    op_count: int | None,
    selection: Mapping[str, Any],
    means: Sequence[str] = (),
    most: int = sys.maxsize,
) -> list[_Rows]:
    """Return the rows added up by each of several lists of keys, all read together.

    Where there are more rows of sums than `most`, only some of them are found.
    """
    read = _with_sets(read)
    columns = [[name for name in dict.fromkeys(keys) if name != "rank"] for keys in lists]
    codes = _Codes(dict.fromkeys(name for names in columns for name in names))
    keyed = {*codes.known, *columns_of(selection)}
    asked = [column for column in MEANS if column.name in means]
    wanted = {*keyed, *_NEEDED, *(name for column in asked for name in column.of or [column.name])}
    ops = None
    found = [_Rows(names, codes, most) for names in columns]
    if op_count is None:
        wanted.add("rate_ns")
    else:
        ops = _OpTimes(op_count)
        for part in read(_OF_OPS):
            ops.add(part)
        wanted.update(_OF_ACTIVITIES)
        if ops.is_helped.any():
            for part in read([*keyed, *_OF_OPS], ops.are_work_helped):
                rows = chosen(part, **selection)
                code, owner = codes.of(rows), ops.places(rows)
                for each in found:
                    each.add_work(code, owner)
        for each in found:
            each.close_work(len(ops.time))
    for part in read(sorted(wanted)):
        rows = chosen(part, **selection)
        more = _part(rows, ops, codes, asked)
        for each in found:
            each.add(more)
        if all(each.is_too_long for each in found):
            break
    return found


def _with_sets(read: Read) -> Read:
    """Give rows the text of `shared_…` where they have no op, layer, line or direction."""

    def found(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        of = {name: f"shared_{name}" for name in COARSE if name in columns}
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
    """Numbers for the values of keys, in rows that come in parts.

    Attributes:
        known: of each column, the code of each value.
    """

    def __init__(self, columns: Iterable[str]) -> None:
        self.known = {name: TextCodes() for name in columns}
        self._is_text = dict.fromkeys(self.known, True)

    def of(self, rows: pa.Table) -> dict[str, Int]:
        """Return of each row the code of its value in each column, -1 for null."""
        found = {}
        for name, known in self.known.items():
            codes, values, self._is_text[name] = Key.of(rows, name)
            found[name] = np.array([*(known[value] for value in values), -1], np.int64)[codes]
        return found

    def key(self, name: str, codes: Int) -> Key:
        """Return the column that has these codes."""
        return Key(codes, list(self.known[name]), self._is_text[name])


class _Combinations:
    """The distinct combinations of codes of rows that come in parts.

    Each part has its own at first: to look each up among those of all parts takes longer than all
    else, and more memory.

    Attributes:
        keys: their codes, as they came first, once they are settled.
        count: how many the parts have together.
    """

    def __init__(self, width: int, most: int) -> None:
        """Begin with none of so many codes each, of which no more are wanted than `most`."""
        self.keys: Int = np.empty((0, width), np.int32)
        self.count, self._most = 0, most
        self._parts = [self.keys]

    def add(self, columns: Sequence[Int]) -> tuple[Int, int]:
        """Return which combination of a part each of its rows has, and how many there are."""
        first, place = combinations(columns)
        self._parts.append(np.stack([short(column[first]) for column in columns], axis=1))
        self.count += len(first)
        return place, len(first)

    @property
    def is_due(self) -> bool:
        """Whether there may be too many, or many of the parts may be the same."""
        return self.count > min(self._most, _APART * len(self.keys))

    def settle(self) -> Int:
        """Find the distinct ones, and return which of them each of those of the parts is."""
        every = np.concatenate(self._parts)
        first, place = combinations([*every.T])
        self.keys, self.count = every[first], len(first)
        self._parts = [self.keys]
        return place


class _Addends(NamedTuple):
    """Rows, and what they add to the sums along any keys.

    Attributes:
        codes: of each row, the code of its value by column.
        values: what each row adds, by the name of the sum.
        extremes: that of which the least or the greatest is looked for, by the name of that.
        op: where `_OpTimes` has the facts of the op of each row; None: rows are ops themselves.
        helps: the helper kernels.
        call: the op call of each row, by number; -1: none.
    """

    codes: Mapping[str, Int]
    values: Mapping[str, Int]
    extremes: Mapping[str, Any]
    op: Int | None
    helps: Bool
    call: Int


def _part(
    rows: pa.Table, ops: _OpTimes | None, codes: _Codes, asked: Sequence[ProfileColumn]
) -> _Addends:
    """Return what rows add to sums."""
    values = _values(rows, ops)
    extremes: dict[str, Any] = dict.fromkeys(EXTREMES, values["time_ns"])
    for column in asked:
        if column.how == "mean":
            values |= _weighted(rows, column.name, values["time_ns"])
        else:
            extremes[column.name] = floats(rows, column.of[0])
    call = int_column(rows, "op_id", -1)
    if ops is None:
        return _Addends(codes.of(rows), values, extremes, None, np.zeros(rows.num_rows, bool), call)
    anew = int_column(rows, "call_id", -1)
    call = np.where(anew >= 0, ops.op_count + anew, call)
    return _Addends(codes.of(rows), values, extremes, ops.places(rows), are_helpers(rows), call)


class _Rows:
    """The sums by one list of keys of rows that come in parts.

    Attributes:
        is_too_long: whether there are more of them than are wanted: no more rows are taken up.
    """

    def __init__(self, columns: Sequence[str], codes: _Codes, most: int) -> None:
        self.is_too_long = False
        self._columns, self._codes, self._most = columns, codes, most
        # Combinations of codes and of the work that a helper belongs to: 0 where it is no helper,
        # 1 where that is not known, else the set of that work plus 2.
        self._numbers = _Combinations(len(columns) + 1, most)
        # The work of ops that have kernels which only help: the codes of what does it, the sets
        # of these, and which set does the work of each op, by its place in `_OpTimes`.
        self._work, self._pairs = _Combinations(len(columns), most), [np.empty(0, np.int64)]
        self._sets = Sets(np.zeros(1, np.int64), np.zeros(0, np.int64))
        self._set_of_op = np.empty(0, np.int32)
        self._sums: dict[str, list[Int]] = {}
        self._extremes: dict[str, list[Any]] = {}
        self._calls = [np.empty(0, np.int64)]

    def add_work(self, codes: Mapping[str, Int], owner: Int) -> None:
        """Take up rows that do the work of ops which are helped; `owner` is where these stand."""
        if self.is_too_long:
            return
        before = self._work.count
        key, _ = self._work.add([codes[name] for name in self._columns])
        self._pairs.append(_pairs(owner, before + key))
        if self._work.is_due:
            self._pairs = [_renumbered(self._pairs, self._work.settle())]
            self.is_too_long = self._work.count > self._most

    def close_work(self, op_count: int) -> None:
        """Know the work of so many ops: all of it has been taken up."""
        found = _renumbered(self._pairs, self._work.settle())
        self._pairs.clear()
        self._sets, which = distinct_sets(found >> _BITS, found & _LOW)
        self._set_of_op = np.full(op_count, -1, np.int32)
        self._set_of_op[values_of(found >> _BITS)] = which

    def add(self, part: _Addends) -> None:
        """Take up rows."""
        if self.is_too_long:
            return
        helps = np.zeros(len(part.helps), np.int64)
        if part.op is not None and part.helps.any():
            helps[part.helps] = self._set_of_op[part.op[part.helps]] + 2
        before = self._numbers.count
        number, count = self._numbers.add([*(part.codes[name] for name in self._columns), helps])
        for name, values in part.values.items():
            self._sums.setdefault(name, []).append(added(values, number, count))
        for name, own in part.extremes.items():
            self._extremes.setdefault(name, []).append(extreme(name, own, number, count))
        called = part.call >= 0
        self._calls.append(_pairs(part.call[called], before + number[called]))
        if self._numbers.is_due:
            self._settle()
            self.is_too_long = self._numbers.count > self._most

    def _settle(self) -> None:
        """Add up what the parts have of each combination."""
        number = self._numbers.settle()
        count = self._numbers.count
        for parts in self._sums.values():
            parts[:] = [added(np.concatenate(parts), number, count)]
        for name, extremes in self._extremes.items():
            extremes[:] = [extreme(name, np.concatenate(extremes), number, count)]
        self._calls = [_renumbered(self._calls, number)]

    def sums(self, rank: int) -> Sums:
        """Return the sums of all rows."""
        self._settle()
        pairs = self._calls.pop()
        calls, which = distinct_sets(pairs >> _BITS, pairs & _LOW)
        del pairs
        codes, count = self._numbers.keys.astype(np.int64), self._numbers.count
        keys = {
            name: self._codes.key(name, codes[:, at]) for at, name in enumerate(self._columns)
        } | {"rank": Key(np.zeros(count, np.int64), [rank], is_text=False)}
        columns = {name: parts[0] for name, parts in self._sums.items()}
        columns |= {name: parts[0] for name, parts in self._extremes.items()}
        # The sets of rows that helpers belong to, the first of which is empty.
        work = np.pad(self._work.keys, ((0, 0), (0, 1)))
        _, group = combinations([*np.concatenate((codes, work)).T])
        row_of = np.full(int(group.max(initial=-1)) + 1, -1)
        row_of[group[:count]] = np.arange(count)
        row = row_of[group[count:]]
        helped = Sets(np.r_[0, self._sets.first], row[self._sets.rows])
        return Sums(
            keys,
            columns,
            calls,
            np.bincount(which, minlength=len(calls.first) - 1).astype(np.int64),
            codes[:, -1] - 1,
            helped,
            np.arange(count),
        )


def _values(rows: pa.Table, ops: _OpTimes | None) -> dict[str, Int]:
    """Return what each row adds to the sums."""
    time, span, least = _times(rows, ops)
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
    return {
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
        "sized_kernel_count": kernel & known_bytes,
    }


def _times(rows: pa.Table, ops: _OpTimes | None) -> tuple[Int, Int, NDArray[np.float64]]:
    """Return of each row its time, that which rates are taken over, and the least, in ns.

    The FLOPs of an op are done in its whole duration, while its row has its self time.
    """
    time = int_column(rows, "dur_ns", 0)
    if ops is None:
        span = int_column(rows, "rate_ns", 0) if "rate_ns" in rows.column_names else time
        return time, span, floats(rows, "roofline_pct") / 100 * span
    op = ops.places(rows)
    return time, time, least_times(rows, ops.time[op], ops.has_roof[op])


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


def _renumbered(pairs: Sequence[Int], number: Int) -> Int:
    """Return the distinct pairs, each with the number that the one of its row became."""
    every = np.concatenate(pairs)
    return _pairs(every >> _BITS, number[every & _LOW])


def stored_sums(
    tables: Mapping[str, ChunkedTable], rank: int, most: int = MOST
) -> dict[str, pa.Table]:
    """Return the tables `sums`, `sum_calls`, `axis_sums` and `axis_sum_calls` of a rank.

    Args:
        tables: `kernels` and `copies`, and `ops`, of which only the number of rows is asked for.
        rank: its number.
        most: with more rows than this, or sums that 64 bits do not hold, none are given along
            these keys.
    """

    def read(
        columns: Sequence[str], keep: Callable[[pa.Table], Bool] | None = None
    ) -> Iterator[pa.Table]:
        return activity_parts(lambda n, stored: chunks_of(tables[n], stored), columns, keep=keep)

    axes: list[str | None] = [None, *AXIS_KEYS]
    lists = [[*keys, *ALWAYS] for keys in (STORED_KEYS, *AXIS_KEYS.values())]
    found = _several_sums(read, lists, tables["ops"].row_count, {}, most=most)
    of_axes: dict[Table, list[pa.Table]] = {AXIS_SUMS: [], AXIS_SUM_CALLS: []}
    stored = {SUMS: SUMS.empty(), SUM_CALLS: SUM_CALLS.empty()}
    for axis, rows in zip(axes, found, strict=True):
        if rows.is_too_long:
            continue
        made = rows.sums(rank)
        if not len(made.helps) or any(each.dtype == object for each in made.columns.values()):
            continue
        if axis is None:
            stored = {SUMS: sum_table(made, SUMS), SUM_CALLS: call_table(made, rank, SUM_CALLS)}
        else:
            of_axes[AXIS_SUMS].append(sum_table(made, AXIS_SUMS, axis))
            of_axes[AXIS_SUM_CALLS].append(call_table(made, rank, AXIS_SUM_CALLS, axis))
    for table, parts in of_axes.items():
        stored[table] = pa.concat_tables([table.empty(), *parts]).unify_dictionaries()
    return {table.name: rows for table, rows in stored.items()}
