"""The canonical table `ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.categories import first_category
from pyprof2.analysis.costs.attribute import STATUSES, UNKNOWN
from pyprof2.analysis.linking.link import DIRECTIONS, NO_ID
from pyprof2.analysis.linking.pair import TIED
from pyprof2.analysis.linking.user_ranges import with_borrowed
from pyprof2.columns import int_array, lookup, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyprof2.analysis.assembly.linked import Linked
    from pyprof2.analysis.costs.attribute import Described, OpCosts
    from pyprof2.analysis.intervals import Int
    from pyprof2.recording import Recording

_SLICE: Final = 1 << 16
_RECORDED: Final = (
    "start_ns", "dur_ns", "pid", "tid", "op", "sequence_nr", "forward_thread", "recorded_id",
    "comm_seq",
)  # fmt: skip


def estimate_table(distinct: Iterable[Described]) -> pa.Table:
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
    ops, of_estimate = linked.ops, _of_estimates(linked.costs)
    for at in range(0, len(ops), _SLICE):
        rows = np.arange(at, min(at + _SLICE, len(ops)))
        raw = recording.read("ops", _RECORDED, ops.row[rows])
        yield pa.table(
            dict(zip(raw.column_names, raw.columns, strict=True))
            | _cost_columns(linked.costs, of_estimate, rows)
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
    """Return where in the program the ops are."""
    around, notes = linked.op_ranges.at(rows), np.where(linked.pairs.tied[rows], 0, -1)
    texts = {
        "layer": linked.layer, "source": linked.source, "library_source": linked.library_source
    }  # fmt: skip
    return {
        "step": int_array(linked.step[rows], NO_ID),
        **{name: text_array((code[rows], words)) for name, (code, words) in texts.items()},
        "stack_id": int_array(linked.stack[rows], -1),
        "range": text_array((around.path, linked.paths)),
        "link_note": text_array(with_borrowed((notes, [TIED]), around.borrowed)),
        "direction": text_array((linked.direction[rows], DIRECTIONS)),
        "forward_op_id": int_array(linked.pairs.forward[rows], -1),
    }


class _OfEstimate(NamedTuple):
    """What is known of each estimate: id, counts and words by name."""

    id: Int
    counts: dict[str, Int]
    words: dict[str, Sequence[str | None]]


def _of_estimates(costs: OpCosts) -> _OfEstimate:
    return _OfEstimate(
        costs.described,
        costs.counts,
        {
            "category": costs.estimate_categories(),
            "params": costs.texts("params"),
            "compute_dtype": costs.texts("dtype"),
            "shapes_from": costs.shapes_from,
        },
    )


def _cost_columns(costs: OpCosts, of_estimate: _OfEstimate, rows: Int) -> dict[str, pa.Array]:
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
