"""The canonical tables `ops` and `estimates`, and `memory`: each allocation with its op."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.assembly.compiled_links import shared_columns
from pyprof2.analysis.categories import first_category
from pyprof2.analysis.costs.attribute import STATUSES, UNKNOWN
from pyprof2.analysis.intervals import Nest, last_not_after
from pyprof2.analysis.linking.directions import is_optimizer_step
from pyprof2.analysis.linking.pair import TIED
from pyprof2.analysis.linking.places import EVIDENCE
from pyprof2.analysis.linking.ranges import link_steps
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.analysis.linking.user_ranges import with_borrowed
from pyprof2.columns import int_array, lookup, merge_texts, only, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyprof2.analysis.assembly.linked import Linked
    from pyprof2.analysis.costs.attribute import CostDescription, OpCosts
    from pyprof2.analysis.intervals import Int
    from pyprof2.columns import TextColumn
    from pyprof2.recording import Recording


_SLICE: Final = 1 << 16
_RECORDED: Final = (
    "start_ns", "dur_ns", "pid", "tid", "op", "sequence_nr", "forward_thread", "recorded_id",
    "comm_seq",
)  # fmt: skip


def estimate_table(distinct: Iterable[CostDescription]) -> pa.Table:
    """Return the canonical table `estimates`, without the column `rank`."""
    distinct = list(distinct)
    columns = zip(*distinct, strict=True) if distinct else ([], [], [], [])
    names = ("flops_formula", "flops_numbers", "bytes_read", "bytes_written")
    types = (pa.string(), pa.string(), pa.int64(), pa.int64())
    return pa.table(
        {"estimate_id": pa.array(np.arange(len(distinct)))}
        | {
            name: pa.array(column, kind)
            for name, column, kind in zip(names, columns, types, strict=True)
        }
    )


def op_table(recording: Recording, linked: Linked) -> Iterator[pa.Table]:
    """Yield the ops in order of their ids, in parts, without the column `rank`.

    Counts stand at the op that accounts for them; all around and inside it have status `in_parent`.
    """
    ops, costs = linked.ops, linked.costs
    of_estimate = _Estimates(
        costs.described,
        costs.counts,
        {
            "category": costs.estimate_categories(),
            "params": costs.texts("params"),
            "compute_dtype": costs.texts("dtype"),
            "shapes_from": costs.shapes_from,
        },
    )
    for at in range(0, len(ops), _SLICE):
        rows = np.arange(at, min(at + _SLICE, len(ops)))
        raw = recording.read("ops", _RECORDED, ops.row[rows])
        yield pa.table(
            dict(zip(raw.column_names, raw.columns, strict=True))
            | _cost_columns(costs, of_estimate, rows)
            | _link_columns(linked, rows)
            | {
                "op_id": pa.array(rows),
                "self_ns": pa.array(ops.self_ns[rows]),
                "signature_id": int_array(linked.signature[rows], -1),
                "parent_op_id": int_array(ops.parent[rows], -1),
                "depth": pa.array(ops.depth[rows]),
                "recompute": pa.array(ops.recompute[rows]),
            }
        )


def _link_columns(linked: Linked, rows: Int) -> dict[str, pa.Array]:
    """Return the columns that say where in the program the ops are."""
    around, notes = linked.op_ranges.at(rows), np.where(linked.pairs.tied[rows], 0, -1)
    note: TextColumn = notes, [TIED]
    if linked.compiled is not None:
        note = merge_texts(linked.compiled.note(rows), note)
    texts = {
        "layer": linked.layer, "source": linked.source, "library_source": linked.library_source
    }  # fmt: skip
    return {
        "step": int_array(linked.step[rows], NO_ID),
        **{name: text_array((code[rows], words)) for name, (code, words) in texts.items()},
        "stack_id": int_array(linked.stack[rows], -1),
        "source_evidence": text_array((linked.rests_on[rows], EVIDENCE)),
        **_compiled_columns(linked, rows),
        "range": text_array((around.path, linked.paths)),
        "link_note": text_array(with_borrowed(note, around.borrowed)),
        "direction": text_array((linked.direction[rows], DIRECTIONS)),
        "forward_op_id": int_array(linked.pairs.forward[rows], -1),
    }


def _compiled_columns(linked: Linked, rows: Int) -> dict[str, pa.Array]:
    """Return what is known of ops as launches of compiled code."""
    compiled = linked.compiled
    if compiled is None:
        return {}
    written = compiled.are_written(rows)
    return shared_columns(linked, rows) | {
        "link": text_array((np.where(compiled.are_known(rows), 0, -1), ["compiled"])),
        "is_written": pa.array(written),
        "original_op": text_array(only(compiled.text("op", rows), written)),
    }


class _Estimates(NamedTuple):
    """The id of each estimate, and its counts and words by column."""

    id: Int
    counts: dict[str, Int]
    words: dict[str, Sequence[str | None]]


def _cost_columns(costs: OpCosts, of_estimate: _Estimates, rows: Int) -> dict[str, pa.Array]:
    estimate = costs.estimate[rows]
    own = np.where(costs.owner[rows] == rows, estimate, -1)
    note, notes = costs.note
    words = of_estimate.words
    category = [(costs.category[rows], costs.categories), (estimate, words["category"])]
    return {
        name: int_array(lookup(values, own, UNKNOWN), UNKNOWN)
        for name, values in of_estimate.counts.items()
    } | {
        "category": text_array(first_category(len(rows), category)),
        "params": text_array((own, words["params"])),
        "compute_dtype": text_array((own, words["compute_dtype"])),
        "estimate_id": int_array(lookup(of_estimate.id, own, -1), -1),
        "shapes_from": text_array((own, words["shapes_from"])),
        "shapes_op_id": int_array(np.where(own >= 0, costs.shapes_op[rows], -1), -1),
        "cost_status": text_array((costs.status[rows], STATUSES)),
        "cost_note": text_array((note[rows], notes)),
    }


PHASES: Final = (*DIRECTIONS, "zero_grad")
"""The values of column `phase`."""
_ZERO_GRAD: Final = re.compile(
    r"Optimizer\.zero_grad#.*|torch/(?:optim/.+|nn/modules/module)\.py\(\d+\): zero_grad"
)


def memory_table(recording: Recording, linked: Linked) -> Iterator[pa.Table]:
    """Yield allocations and releases in order of time, in parts, without the column `rank`.

    Events of one time stay in the order of the file.
    """
    time = int_column(recording.read("memory", ["time_ns"]), "time_ns", 0)
    order = np.argsort(time, kind="stable")
    name, names = code_column(recording.read("ranges", ["name"]), "name")
    of_name = [
        PHASES.index("optimizer")
        if is_optimizer_step(text)
        else PHASES.index("zero_grad")
        if _ZERO_GRAD.fullmatch(text)
        else -1
        for text in names
    ]
    phase = np.array(of_name or [-1])[name]
    rows = np.flatnonzero(phase >= 0) if len(name) else np.empty(0, np.int64)
    table = recording.read("ranges", ["pid", "tid", "start_ns", "dur_ns"], rows)
    start = int_column(table, "start_ns", 0)
    end = start + int_column(table, "dur_ns", 0)
    ranges = Nest.of(linked.threads.number(table), start, end), phase[rows]
    began = _Began.of(linked)
    for at in range(0, len(order), _SLICE):
        raw = recording.read("memory", None, order[at : at + _SLICE])
        thread, time = linked.threads.number(raw), int_column(raw, "time_ns", 0)
        op = linked.ops.nest.innermost(thread, time)
        ops = (linked.ops.name, linked.ops.names)
        owned = {
            name: text_array((lookup(column[0], op, -1), column[1]))
            for name, column in (("op", ops), ("layer", linked.layer), ("source", linked.source))
        }
        yield pa.table(
            dict(zip(raw.column_names, raw.columns, strict=True))
            | owned
            | {
                "op_id": int_array(op, -1),
                "stack_id": int_array(lookup(linked.stack, op, -1), -1),
                "step": int_array(link_steps(linked.steps, linked.threads, thread, time), NO_ID),
                "phase": text_array((_phases(linked, ranges, began, (op, thread, time)), PHASES)),
            }
        )


def _phases(
    linked: Linked, ranges: tuple[Nest, Int], began: _Began, at: tuple[Int, Int, Int]
) -> Int:
    """Return the phase of each op, thread and time as a code into `PHASES`, -1 for unknown."""
    op, thread, time = at
    nest, of_range = ranges
    around = lookup(of_range, nest.innermost(thread, time), -1)
    other = DIRECTIONS.index("other")
    # Clearing gradients is `other` work among the directions.
    of_op = lookup(linked.direction, op, -1)
    phase = np.where((of_op >= 0) & (of_op != other), of_op, around)
    phase = np.where((phase < 0) & (op >= 0), other, phase)
    return np.where(phase >= 0, phase, began.last(linked, thread, time))


class _Began(NamedTuple):
    """The ops of each process in the order of their begin: most releases are between ops."""

    order: Int
    process: Int
    start: Int

    @classmethod
    def of(cls, linked: Linked) -> _Began:
        """Sort the ops."""
        process = linked.threads.process(linked.ops.thread)
        order = np.lexsort((linked.ops.start, process))
        return cls(order, process[order], linked.ops.start[order])

    def last(self, linked: Linked, thread: Int, time: Int) -> Int:
        """Return the direction of the op that began last in each event's process, -1 for none."""
        process = linked.threads.process(thread)
        op = lookup(self.order, last_not_after(self.process, self.start, process, time), -1)
        direction = lookup(linked.direction, op, -1)
        # While another thread runs backward, this one waits for it: its own work comes after.
        waits = (direction == DIRECTIONS.index("backward")) & (
            lookup(linked.ops.thread, op, -1) != thread
        )
        return np.where(waits, DIRECTIONS.index("other"), direction)
