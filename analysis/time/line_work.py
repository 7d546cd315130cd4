"""The work in the ledgers of lines: ops, kernels and copies, added up part by part.

Ops from before a stretch of time are held only where later ones are a part of them, and as one
number what each op is at its line; those that go on in it are held with all they may still add.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import (
    ENDLESS,
    RunningCodes,
    chunks_of,
    in_time_order,
    least_from,
    stretches,
    whole,
)
from pyprof2.analysis.intervals import Covered
from pyprof2.analysis.linking.threads import Threads
from pyprof2.analysis.time import line_ops
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.line_ops import OpsAtLines
from pyprof2.analysis.time.line_steps import HostTimes, StepOps, cut_steps, find_steps
from pyprof2.analysis.time.step_windows import only_steps
from pyprof2.columns import combine_keys, groups_of, lookup, narrow, short
from pyprof2.recording import TextCodes, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.line_ops import LineOps
    from pyprof2.analysis.time.line_steps import HostSteps

NumberColumns: TypeAlias = "dict[str, NDArray[Any]]"
"""Columns of numbers or of yes and no, by name."""

COUNTS: Final = ("flops", "bytes")
_SUMS: Final = (
    "calls", "count", "time_ns", "costed_ns", *COUNTS, *(f"{name}_known" for name in COUNTS),
)  # fmt: skip
OF_DEVICES: Final = ("tensor_core_ns", "tensor_core_known_ns", "overlap_ns", "idle_caused_ns")
LEDGERS: Final = {"device": (*_SUMS, *OF_DEVICES), "host": _SUMS, "threads": _SUMS}
"""The ledgers, and what is added up in each."""
NOWHERE: Final = 0
"""The number of what has no op."""
_FEW: Final = 1 << 14
"""So many rows are held at least until they are added up with those before them."""
_WORK: Final = (
    "start_ns", "dur_ns", "launch_ns", "device", "step", "op_id", "source", "flops", "bytes",
    "cost_status", "tensor_core",
)  # fmt: skip
_NODE: Final = ("kernel_id", "graph_node")
INPUT: Final = {
    "kernels": (*_WORK, *_NODE),
    "copies": (*_WORK, *_NODE),
    "ops": (
        *line_ops.INPUT, "start_ns", "dur_ns", "self_ns", "pid", "tid", "step", "flops", "bytes",
        "cost_status",
    ),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "kind"),
    "idle": ("start_ns", "time_ns", "step", "op_id", "op", "kernel_id", "source"),
    "graph_nodes": line_ops.OF_NODES,
    "trace": ("start_ns", "end_ns"),
}  # fmt: skip
"""The columns of a rank's tables that its lines are found in."""

_COSTED: Final = ("ok", "assumed", "in_parent")
_OF_THREADS: Final = ("pid", "tid", "self_ns")
_OF_CUTS: Final = ("start_ns", "dur_ns", "pid", "tid")


class LedgerRows(NamedTuple):
    """Rows to be summed by what they are of.

    Attributes:
        step: position in the steps, -1 outside of them.
        thread: number of the thread, -1 on the device.
        place: number of what its op is at a line, see `Places`.
        source: of what has no op, as a code; -1 for none.
        sums: the columns to add up, by name; what is not there is 0.
    """

    step: Int
    thread: Int
    place: Int
    source: Int
    sums: NumberColumns

    def at(self, rows: Int) -> LedgerRows:
        """Return some of them."""
        step, thread, place, source = (key[rows] for key in self[:4])
        sums = {name: values[rows] for name, values in self.sums.items()}
        return LedgerRows(step, thread, place, source, sums)


class Places:
    """Numbers for what ops are at their lines: one for each stack, call, layer and phase.

    Attributes:
        calls, layers: the texts that calls and layers are codes of.
    """

    def __init__(self) -> None:
        self._numbers = TextCodes({(-1, -1, -1, -1): NOWHERE})
        self.calls: Sequence[str | None] = ()
        self.layers: Sequence[str | None] = ()

    def add(self, lines: LineOps) -> Int:
        """Return the number of what each op is."""
        self.calls, self.layers = lines.call[1], lines.layer[1]
        keys = lines.stack, lines.call[0], lines.layer[0], lines.phase
        first, group = groups_of(_key(keys))
        distinct = zip(*(key[first].tolist() for key in keys), strict=True)
        return short(np.array([self._numbers[each] for each in distinct], np.int64))[group]

    def columns(self, place: Int) -> Sequence[Int]:
        """Return stack, call, layer and phase of each place, as they are in `LineOps`."""
        known = np.array(list(self._numbers), np.int64)
        return [column[place] for column in known.T]


class LedgerSums:
    """Adds up the rows of a ledger, which come in parts; what it holds grows with what they are of.

    Equal ones of a part are added up at once, and parts when there are twice as many rows.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Add up the columns of these names."""
        self._names = names
        self._parts: list[LedgerRows] = []
        self._waiting, self._most = 0, _FEW

    def add(self, rows: LedgerRows) -> None:
        """Add rows."""
        self._parts.append(_summed(rows))
        self._waiting += len(self._parts[-1].step)
        if self._waiting > self._most:
            self.rows()

    def rows(self) -> LedgerRows:
        """Return the sums so far, one row for each step, thread, place and source."""
        nothing = np.empty(0, np.int32)
        # A column that a part does not have is 0. Each is freed once it is in the whole: there are
        # many, and they are long.
        sums = {
            name: np.concatenate(
                [nothing, *(p.sums.pop(name, np.zeros(len(p.step), np.int8)) for p in self._parts)]
            )
            for name in self._names
        }
        keys = [*zip(*(part[:4] for part in self._parts), strict=True)] or [()] * 4
        step, thread, place, source = (np.concatenate([nothing, *map(short, k)]) for k in keys)
        found = _summed(LedgerRows(step, thread, place, source, sums))
        self._parts, self._waiting = [found], len(found.step)
        self._most = max(_FEW, 2 * self._waiting)
        return found


def _summed(rows: LedgerRows) -> LedgerRows:
    first, group = groups_of(_key(rows[:4]))
    step, thread, place, source = (key[first] for key in rows[:4])
    sums = {}
    for name, values in rows.sums.items():
        total = np.zeros(len(first), np.int64)
        np.add.at(total, group, values.astype(np.int64, copy=False))  # other types take a slow way
        sums[name] = narrow(total)  # most are small, and there are many columns
    return LedgerRows(step, thread, place, source, sums)


def _key(columns: Sequence[Int]) -> Int:
    """Return one integer per row that is equal where all columns are."""
    sizes = [int(column.max(initial=-1)) + 2 for column in columns]
    if math.prod(sizes) >= 1 << 62:
        return combine_keys(*columns)
    key = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column + 1
    return key


class OpPart(NamedTuple):
    """The ops of a stretch.

    Attributes:
        lines: what each is at its line.
        place: the number of that.
        step: of each, as a position in the steps; -1 for none.
    """

    lines: LineOps
    place: Int
    step: Int


class LineWork:
    """The ops, kernels and copies of a rank, and what they add to the ledgers.

    Attributes:
        threads: the numbers of threads.
        steps: the steps.
        has_gpu: whether there is work of devices.
        between: the time of the steps in which no op ran, once the ops are done.
        sources: the texts that sources of rows are codes of, once the devices are done.
    """

    def __init__(
        self, tables: Mapping[str, ChunkedTable], place: Callable[[LineOps, int], Int]
    ) -> None:
        """Find threads and steps.

        Args:
            tables: the columns `INPUT` of a rank's canonical tables; of ranges the steps will do.
            place: gives the number of what each op is, of ops before which so many others stand.
        """
        self._tables, self._place_of = tables, place
        ranges = only_steps(whole(tables["ranges"], INPUT["ranges"]))
        parts = chunks_of(tables["ops"], _OF_THREADS)
        sums = [
            part.group_by(["pid", "tid"], use_threads=False).aggregate([("self_ns", "sum")])
            for part in parts
        ]
        ops = pa.concat_tables(sums).rename_columns(["pid", "tid", "self_ns"])
        self.threads = Threads.of([ops, ranges])
        # The thread whose ops take the most time; 0 without ops.
        time = np.bincount(self.threads.number(ops), int_column(ops, "self_ns", 0), minlength=1)
        busiest = int(time.argmax())
        trace = whole(tables["trace"], INPUT["trace"])
        self.steps = find_steps(ranges, self.threads, busiest, trace)
        self.has_gpu = any(tables[name].row_count for name in ("kernels", "copies"))
        self.between: LedgerRows | None = None
        self.sources: Sequence[str] = ()
        self._places: list[Int] = []
        self._lines = OpsAtLines()

    def ops(self) -> Iterator[tuple[OpPart, list[tuple[str, LedgerRows]]]]:
        """Yield the ops in stretches, with what they add to ledgers."""
        ops, lines = self._tables["ops"], self._lines
        cut = (stretch.rows for stretch in stretches(ops, _OF_CUTS))
        spans = ((self.threads.number(rows), *_start_end(rows)) for rows in cut)
        ledgers = HostLedgers(self.steps, cut_steps(self.steps, spans))
        # No op after a stretch is a part of one before this, nor is such a one its forward op.
        least = least_from(ops, ("parent_op_id", "forward_op_id"))
        for rows, first, since, until in stretches(ops, INPUT["ops"], "forward_op_id"):
            at_lines = lines.add(rows)
            number, start = int_column(rows, "step", NEVER), int_column(rows, "start_ns", 0)
            place = self._place_of(at_lines, first)
            self._places.append(narrow(place))
            part = OpPart(at_lines, place, short(self.steps.find(number, start)))
            columns = op_columns(rows, part, self.threads.number(rows))
            added = [*ledgers.add(columns, since, until)]
            if self.has_gpu:
                # The ledger of devices has the calls that lines make, too.
                at = np.flatnonzero(at_lines.begins)
                sums = {"calls": np.ones(len(at), np.int8)}
                calls = LedgerRows(part.step[at], _none(at), place[at], _none(at), sums)
                added.append(("device", calls))
            yield part, added
            lines.forget(least(first + rows.num_rows))
        self.between = ledgers.between()

    def devices(self) -> Iterator[LedgerRows]:
        """Yield kernels and copies, and what was idle meanwhile, once the ops are known."""
        if not self.has_gpu:
            return
        place, covered, sources = np.concatenate(self._places), Covered(), RunningCodes()
        of_node = self._place_of(self.nodes(), self._tables["ops"].row_count)
        activities = [self._tables["kernels"], self._tables["copies"]]
        columns, of_kernel = list(_WORK), np.empty(0, np.int32)
        if len(of_node):
            columns += _NODE
            of_kernel = np.full(sum(table.row_count for table in activities), NOWHERE, np.int32)
        for parts, _ in in_time_order(activities, [columns, columns]):
            work = pa.concat_tables(part.select(columns) for part in parts).unify_dictionaries()
            at = lookup(place, int_column(work, "op_id", -1), NOWHERE)
            if len(of_node):
                # The op of a node need not be in this store; its line is known nevertheless.
                ids, node = (int_column(work, name, -1) for name in _NODE)
                at = np.where(at == NOWHERE, lookup(of_node, node, NOWHERE), at)
                of_kernel[ids[node >= 0]] = at[node >= 0]
            source = np.where(at != NOWHERE, -1, sources.add(work, "source"))
            yield _work_rows(work, (at, source), self.steps, covered)
        for idle in chunks_of(self._tables["idle"], INPUT["idle"]):
            op_id, time = int_column(idle, "op_id", -1), int_column(idle, "time_ns", 0)
            numbers, start = (int_column(idle, name, NEVER) for name in ("step", "start_ns"))
            step, at = short(self.steps.find(numbers, start)), lookup(place, op_id, NOWHERE)
            if len(of_node):
                # An op that is none of this store names the time before a node.
                is_before = (op_id < 0) & idle["op"].is_valid().to_numpy()
                following = np.where(is_before, int_column(idle, "kernel_id", -1), -1)
                at = np.where(is_before, lookup(of_kernel, following, NOWHERE), at)
            source = np.where((op_id >= 0) | (at != NOWHERE), -1, sources.add(idle, "source"))
            yield LedgerRows(step, _none(step), at, source, {"idle_caused_ns": time})
        self.sources = sources.texts

    def nodes(self) -> LineOps:
        """Return what the ops of the nodes of graphs are at their lines, once the ops are known."""
        nodes = whole(self._tables["graph_nodes"], line_ops.OF_NODES)
        return self._lines.of_nodes(nodes, self._tables["ops"].row_count)


def _start_end(rows: pa.Table) -> tuple[Int, Int]:
    start = int_column(rows, "start_ns", 0)
    return start, start + np.maximum(0, int_column(rows, "dur_ns", 0))


# -- the devices ----------------------------------------------------------------------------------


def _work_rows(
    work: pa.Table, places: tuple[Int, Int], steps: HostSteps, covered: Covered
) -> LedgerRows:
    """Return kernels and copies; those without a launch are of no step.

    How long one ran beside those of its device that began before it is its overlap: so the times of
    all less their overlap are the time in which a device was busy, to the ns.
    """
    start, time = int_column(work, "start_ns", 0), int_column(work, "dur_ns", 0)
    launch, device = (int_column(work, name, NEVER) for name in ("launch_ns", "device"))
    alone = covered.add(device, start, start + time)
    sums = _sums(_counts(work), time) | {
        "count": np.ones_like(time),
        "tensor_core_ns": time * has_text(work, "tensor_core", ("yes",)),
        "tensor_core_known_ns": time * has_text(work, "tensor_core", ("yes", "no")),
        "overlap_ns": alone - start,
    }
    began = np.where(launch == NEVER, start, launch)
    step = steps.find(int_column(work, "step", NEVER), began)
    place, source = places
    return LedgerRows(short(step), _none(place), place, source, sums)


# -- the host -------------------------------------------------------------------------------------


def op_columns(rows: pa.Table, part: OpPart, thread: Int) -> NumberColumns:
    """Return what the ops of a stretch may add to the ledgers of the host.

    `rest` is what is left of an op's own time, and `elsewhere` whether it has not been called in
    any step, while its steps are gone through.
    """
    start, end = _start_end(rows)
    return _counts(rows) | {
        "thread": short(thread), "start": start, "end": end, "place": part.place,
        "step": part.step, "begins": part.lines.begins, "is_new": np.ones(len(start), bool),
        "rest": int_column(rows, "self_ns", 0).copy(), "elsewhere": np.ones(len(start), bool),
    }  # fmt: skip


class HostLedgers:
    """Adds ops to the steps of the host and to the other threads, stretch by stretch."""

    def __init__(self, steps: HostSteps, is_cut: Bool) -> None:
        self._steps = steps
        self._times = HostTimes(steps, is_cut)
        self._going_on: NumberColumns = {}

    def add(self, ops: NumberColumns, since: int, until: int) -> Iterator[tuple[str, LedgerRows]]:
        """Yield the rows of a stretch of time.

        Args:
            ops: the columns `op_columns` of the ops that begin in it.
            since: its beginning.
            until: its end.
        """
        if self._going_on:
            ops = {name: np.r_[self._going_on[name], column] for name, column in ops.items()}
        of_steps = StepOps(*(ops[name] for name in ("thread", "start", "end", "rest", "is_new")))
        op, step, time = self._times.add(of_steps, since, until)
        # One that reaches into a step was called where it begins.
        begun = ops["is_new"][op] & (ops["start"][op] >= self._steps.start[step])
        thread, none = short(self._steps.thread)[step], _none(op)
        yield (
            "host",
            LedgerRows(step, thread, ops["place"][op], none, _op_sums(ops, op, time, begun)),
        )
        np.subtract.at(ops["rest"], op, time)
        ops["elsewhere"][op[begun]] = False
        goes_on = (ops["end"] > until) & np.isin(ops["thread"], self._steps.thread)
        goes_on &= until != ENDLESS
        # The ops, and the time of ops, that are none of the steps' threads in a step.
        over = np.flatnonzero(~goes_on & (ops["elsewhere"] | (ops["rest"] > 0)))
        sums = _op_sums(ops, over, ops["rest"][over], ops["elsewhere"][over])
        step, thread, place = (ops[name][over] for name in ("step", "thread", "place"))
        yield "threads", LedgerRows(step, thread, place, _none(over), sums)
        self._going_on = {name: column[goes_on] for name, column in ops.items()}
        self._going_on["is_new"][:] = False

    def between(self) -> LedgerRows:
        """Return the time of the steps in which no op ran, once all ops are added."""
        step, none = short(np.arange(len(self._steps.start))), _none(self._steps.start)
        place = np.full_like(step, NOWHERE)
        sums = {"time_ns": self._times.between}
        return LedgerRows(step, short(self._steps.thread), place, none, sums)


def _op_sums(ops: NumberColumns, rows: Int, time: Int, begun: Bool) -> NumberColumns:
    """Return what the ops at these rows add; `begun`: those whose calls and counts are added."""
    sums = _sums({name: ops[name][rows] for name in _COUNTED}, time)
    for name in COUNTS:
        sums[name] = np.where(begun, sums[name], 0)
    calls = ops["begins"][rows] & begun
    return sums | {"count": begun.astype(np.int8), "calls": calls.astype(np.int8)}


# -- both -----------------------------------------------------------------------------------------

_COUNTED: Final = ("is_costed", *COUNTS, *(f"{name}_known" for name in COUNTS))


def _counts(rows: pa.Table) -> NumberColumns:
    """Return the counts of kernels, copies or ops; of unknown ones how many are known."""
    known = {
        f"{name}_known": (int_column(rows, name, NEVER) != NEVER).astype(np.int8) for name in COUNTS
    }
    return {
        "is_costed": has_text(rows, "cost_status", _COSTED),
        **{name: int_column(rows, name, 0) for name in COUNTS},
        **known,
    }


def _sums(counts: NumberColumns, time: Int) -> NumberColumns:
    """Return the columns to add up of rows that took this time."""
    sums = {name: values for name, values in counts.items() if name != "is_costed"}
    return sums | {"time_ns": time, "costed_ns": time * counts["is_costed"]}


def _none(like: Int) -> Int:
    return np.full(len(like), -1, np.int32)
