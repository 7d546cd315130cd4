"""The table `lines`: what each line of code costs in each step, on the device and on the host.

Two ledgers, which are never added. On the *device* a line has the time of the kernels and copies
that its ops launched; over a step they add up to the time of the step's kernels. On the *host* it
has the time in which its ops were the innermost ones of the step's thread; with the time between
ops they add up to the step.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.linking.link import Threads
from pyprof2.analysis.time import line_ops
from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_steps import NONE, HostTime, Steps, find_steps, host_time
from pyprof2.analysis.time.step_windows import only_steps
from pyprof2.columns import combine_keys, groups_of, int_array, lookup, short, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.result_tables import LINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.line_ops import LineOps

_WORK: Final = (
    "start_ns", "dur_ns", "launch_ns", "device", "step", "op_id", "flops", "bytes", "cost_status",
    "tensor_core",
)  # fmt: skip
INPUT: Final = {
    "kernels": _WORK,
    "copies": _WORK,
    "ops": (
        *line_ops.INPUT, "start_ns", "dur_ns", "self_ns", "pid", "tid", "step", "flops", "bytes",
        "cost_status",
    ),
    "ranges": ("start_ns", "dur_ns", "pid", "tid", "name", "kind"),
    "idle": ("start_ns", "time_ns", "step", "op_id", "source"),
    "trace": ("start_ns", "end_ns"),
}  # fmt: skip
"""The columns of a rank's tables that its lines are found in."""

_COSTED: Final = ("ok", "assumed", "in_parent")
_COUNTS: Final = ("flops", "bytes")
_SUMMED: Final = ("cost_status", *_COUNTS)
_OF_OPS: Final = (*_SUMMED, "start_ns", "dur_ns", "self_ns")
"""The columns of `ops` that the ledgers are summed from."""


class Rows(NamedTuple):
    """Rows to be summed by what they are of.

    Attributes:
        step: position in the steps, -1 outside of them.
        thread: number of the thread, -1 on the device.
        op: position of the op that it is of, -1 for none.
        source: of what has no op, as a code; -1 for none.
        sums: the columns to add up, by name.
    """

    step: Int
    thread: Int
    op: Int
    source: Int
    sums: dict[str, Int]


class RankWork(NamedTuple):
    """What the ledgers of a rank are made of.

    Attributes:
        tables: the columns `INPUT`.
        lines: what each op is at its line.
        threads: the numbers of threads.
        thread: of each op.
        steps: the steps.
        step: of each op, as a position; -1 for none.
    """

    tables: Mapping[str, pa.Table]
    lines: LineOps
    threads: Threads
    thread: Int
    steps: Steps
    step: Int

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table]) -> RankWork:
        """Find them."""
        ops, ranges = tables["ops"], only_steps(tables["ranges"])
        threads = Threads.of([ops, ranges])
        thread = threads.number(ops)
        steps = find_steps(ranges, threads, _busiest(thread, ops), tables["trace"])
        step = steps.find(int_column(ops, "step", NONE), int_column(ops, "start_ns", 0))
        lines = line_ops.line_ops(ops)
        # There may be millions of ops: of a column that is not needed any more nothing is kept.
        kept = dict(tables) | {"ops": ops.select(_OF_OPS)}
        return cls(kept, lines, threads, short(thread), steps, short(step))


def lines_of_rank(tables: Mapping[str, pa.Table], rank: int) -> pa.Table:
    """Return the table `lines` of a rank.

    Args:
        tables: the columns `INPUT` of its canonical tables, each in the order of its keys.
        rank: the number.
    """
    known = RankWork.of(tables)
    del tables
    sources = code_column(known.tables["idle"], "source")[1]
    parts = [_table(name, rows, known, sources) for name, rows in _ledgers(known)]
    whole = pa.concat_tables([LINES.conform(_ranked(part, rank)) for part in parts])
    return whole.unify_dictionaries()


def _ledgers(known: RankWork) -> Iterator[tuple[str, Rows]]:
    """Yield the ledgers one by one: the rows of each are many."""
    yield "device", device_rows(known)
    found = host_time_of(known)
    yield "host", host_rows(known, found)
    yield "threads", thread_rows(known, found)


def _ranked(part: pa.Table, rank: int) -> pa.Table:
    return part.append_column("rank", pa.array(np.full(part.num_rows, rank)))


def _busiest(thread: Int, ops: pa.Table) -> int:
    """Return the thread whose ops take the most time; 0 without ops."""
    time = np.bincount(thread, int_column(ops, "self_ns", 0)) if len(thread) else np.zeros(1)
    return int(time.argmax())


# -- the ledgers: rows before they are added up --------------------------------------------------


def device_rows(known: RankWork) -> Rows:
    """Return the kernels and copies, the calls, and what was idle meanwhile; nothing without."""
    activities = [known.tables[name] for name in ("kernels", "copies")]
    if not any(table.num_rows for table in activities):
        return _stacked([])
    work = pa.concat_tables([table.select(_WORK) for table in activities]).unify_dictionaries()
    at = short(np.flatnonzero(known.lines.begins))
    calls = Rows(known.step[at], _none(at), at, _none(at), {"calls": np.ones_like(at)})
    return _stacked([_work_rows(known, work), calls, _idle_rows(known, known.tables["idle"])])


def _work_rows(known: RankWork, work: pa.Table) -> Rows:
    """Return kernels and copies; those without a launch are of no step."""
    start, time = int_column(work, "start_ns", 0), int_column(work, "dur_ns", 0)
    launch, op = int_column(work, "launch_ns", NONE), int_column(work, "op_id", -1)
    verdict, verdicts = code_column(work, "tensor_core")
    sums = _sums(work, time) | {
        "count": np.ones_like(time),
        "tensor_core_ns": time * _is_one_of(verdict, verdicts, ("yes",)),
        "tensor_core_known_ns": time * _is_one_of(verdict, verdicts, ("yes", "no")),
        "overlap_ns": overlap(int_column(work, "device", NONE), start, time),
    }
    began = np.where(launch == NONE, start, launch)
    step = known.steps.find(int_column(work, "step", NONE), began)
    return Rows(short(step), _none(op), short(op), _none(op), sums)


def _idle_rows(known: RankWork, idle: pa.Table) -> Rows:
    step = known.steps.find(int_column(idle, "step", NONE), int_column(idle, "start_ns", 0))
    op, (source, _) = int_column(idle, "op_id", -1), code_column(idle, "source")
    sums = {"idle_caused_ns": int_column(idle, "time_ns", 0)}
    return Rows(short(step), _none(op), short(op), np.where(op >= 0, -1, source), sums)


def host_time_of(known: RankWork) -> HostTime:
    """Return which ops take how much of the steps' threads."""
    ops = known.tables["ops"]
    start, self_ns = int_column(ops, "start_ns", 0), int_column(ops, "self_ns", 0)
    end = start + np.maximum(0, int_column(ops, "dur_ns", 0))
    return host_time(known.steps, known.thread, start, end, self_ns)


def host_rows(known: RankWork, found: HostTime) -> Rows:
    """Return the ops of the steps' threads, clipped to the steps, and what is between them."""
    steps = known.steps
    own = _op_sums(known, found.op, found.time, _begun(known, found))
    between = short(np.arange(len(found.between)))
    thread = short(steps.thread)
    return _stacked(
        [
            Rows(found.step, thread[found.step], found.op, _none(found.op), own),
            Rows(between, thread, _none(between), _none(between), {"time_ns": found.between}),
        ]
    )


def thread_rows(known: RankWork, found: HostTime) -> Rows:
    """Return the ops, and the time of ops, that are none of the steps' threads in a step."""
    rest = int_column(known.tables["ops"], "self_ns", 0).copy()
    elsewhere = np.ones(len(rest), bool)
    np.subtract.at(rest, found.op, found.time)
    elsewhere[found.op[_begun(known, found)]] = False
    rows = short(np.flatnonzero(elsewhere | (rest > 0)))
    sums = _op_sums(known, rows, rest[rows], elsewhere[rows])
    return Rows(known.step[rows], known.thread[rows], rows, _none(rows), sums)


def _begun(known: RankWork, found: HostTime) -> Bool:
    """Return which ops begin in the step: one that reaches into it was called where it begins."""
    start = int_column(known.tables["ops"], "start_ns", 0)
    begun: Bool = start[found.op] >= known.steps.start[found.step]
    return begun


def _op_sums(known: RankWork, rows: Int, time: Int, begun: Bool) -> dict[str, Int]:
    """Return what the ops at these rows add; `begun`: those whose calls and counts are added."""
    sums = _sums(known.tables["ops"].select(_SUMMED).take(pa.array(rows)), time)
    for name in _COUNTS:
        sums[name] = np.where(begun, sums[name], 0)
    calls = known.lines.begins[rows] & begun
    return sums | {"count": begun.astype(np.int8), "calls": calls.astype(np.int8)}


def _sums(rows: pa.Table, time: Int) -> dict[str, Int]:
    """Return time and counts of kernels, copies or ops; of unknown counts how many are known."""
    status, statuses = code_column(rows, "cost_status")
    known = {
        f"{name}_known": (int_column(rows, name, NONE) != NONE).astype(np.int8) for name in _COUNTS
    }
    return {
        "time_ns": time,
        "costed_ns": time * _is_one_of(status, statuses, _COSTED),
        **{name: int_column(rows, name, 0) for name in _COUNTS},
        **known,
    }


def overlap(device: Int, start: Int, time: Int) -> Int:
    """Return how long each activity ran beside those of its device that began before it.

    So the times of all less their overlap is the time in which a device was busy, to the ns.
    """
    found = np.zeros_like(time)
    for each in np.unique(device).tolist():
        rows = np.flatnonzero(device == each)
        rows = rows[np.lexsort((-time[rows], start[rows]))]
        begin, end = start[rows], (start + time)[rows]
        covered = np.r_[begin[:1], np.maximum.accumulate(end)[:-1]]
        fresh = np.maximum(0, end - np.maximum(begin, covered))
        found[rows] = time[rows] - fresh
    return found


def _is_one_of(code: Int, texts: Sequence[str], wanted: Sequence[str]) -> Bool:
    found: Bool = np.array([*(text in wanted for text in texts), False])[code]
    return found


def _none(like: Int) -> Int:
    return short(np.full(len(like), -1))


def _stacked(parts: Sequence[Rows]) -> Rows:
    """Return the rows of several; what one does not add is 0."""
    nothing = np.empty(0, np.int32)
    names = dict.fromkeys(name for part in parts for name in part.sums)
    # Each column is let go once it is in the whole: there are many, and they are long.
    sums = {
        name: np.concatenate(
            [part.sums.pop(name, np.zeros(len(part.op), np.int8)) for part in parts]
        )
        for name in names
    }
    step, thread, op, source = (
        np.concatenate([nothing, *each])
        for each in ([part[at] for part in parts] for at in range(4))
    )
    return Rows(step, thread, op, source, sums)


# -- added up -----------------------------------------------------------------------------------


def _table(ledger: str, rows: Rows, known: RankWork, sources: Sequence[str]) -> pa.Table:
    """Return the rows added up by step, thread, line, call, layer and phase."""
    lines, steps, threads = known.lines, known.steps, known.threads
    of_op = (lines.stack, lines.call[0], lines.layer[0], lines.phase)
    keys = (rows.step, rows.thread, rows.source, *(lookup(code, rows.op, -1) for code in of_op))
    first, group = groups_of(_key(keys))
    step, thread, source, stack, call, layer, phase = (key[first] for key in keys)
    sums = {name: _added(values, group, len(first)) for name, values in rows.sums.items()}
    return pa.table(
        {
            "ledger": text_array((np.zeros_like(step), [ledger])),
            "step": int_array(lookup(steps.number, step, NONE), NONE),
            "step_start_ns": int_array(lookup(steps.start, step, NONE), NONE),
            "pid": int_array(np.where(thread >= 0, threads.pid(thread), NONE), NONE),
            "tid": int_array(np.where(thread >= 0, threads.tid(thread), NONE), NONE),
            "stack_id": int_array(stack, -1),
            "source": text_array((source, sources)),
            "layer": text_array((layer, lines.layer[1])),
            "op": text_array((call, lines.call[1])),
            "phase": text_array((phase, PHASES)),
        }
        | _sum_columns(sums, len(first))
    )


def _key(columns: Sequence[Int]) -> Int:
    """Return one integer per row that is equal where all columns are."""
    sizes = [int(column.max(initial=-1)) + 2 for column in columns]
    if math.prod(sizes) >= 1 << 62:
        return combine_keys(*columns)
    key = np.zeros(len(columns[0]), np.int64)
    for column, size in zip(columns, sizes, strict=True):
        key = key * size + column + 1
    return key


def _added(values: Int, group: Int, count: int) -> Int:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, group, values.astype(np.int64, copy=False))  # other types take a slow way
    return sums


def _sum_columns(sums: dict[str, Int], count: int) -> dict[str, pa.Array]:
    """Return the columns; null is what the ledger has not, and a count that is unknown."""
    columns = {
        name: pa.array(sums.get(name, np.zeros(count, np.int64)))
        for name in ("calls", "count", "time_ns", "costed_ns")
    }
    for name in _COUNTS:
        known = sums.get(f"{name}_known", np.zeros(count, np.int64))
        columns[name] = pa.array(sums.get(name, known), mask=known == 0)
    for name in ("tensor_core_ns", "tensor_core_known_ns", "overlap_ns", "idle_caused_ns"):
        if name in sums:
            columns[name] = pa.array(sums[name])
    return columns
