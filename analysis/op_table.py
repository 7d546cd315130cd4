"""The canonical table `ops`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.attribute import COUNTS, STATUSES, UNKNOWN
from pyprof2.analysis.categories import categorise
from pyprof2.analysis.link import DIRECTIONS, NO_ID
from pyprof2.columns import TextColumn, int_array, text_array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.attribute import OpCosts
    from pyprof2.analysis.linked import Linked
    from pyprof2.recording import Recording

_SLICE: Final = 1 << 18
_RECORDED: Final = (
    "start_ns", "dur_ns", "pid", "tid", "op", "sequence_nr", "forward_thread", "recorded_id",
)  # fmt: skip


def op_table(recording: Recording, linked: Linked) -> Iterator[pa.Table]:
    """Yield the ops in order of their ids, in parts, without the column `rank`.

    Counts stand at the op that accounts for them; ops inside it have status `in_parent`.
    """
    ops, costs = linked.ops, linked.costs
    raw = recording.read("ops", _RECORDED)
    owns = costs.owner == np.arange(len(ops))
    counts = {name: np.where(owns, costs.counts(name)[costs.estimate], UNKNOWN) for name in COUNTS}
    status, note = _cost_status(costs)
    texts: dict[str, TextColumn] = {
        "layer": linked.layer,
        "source": linked.source,
        "direction": (linked.direction, DIRECTIONS),
        "category": categorise(
            len(ops),
            [(costs.category, costs.categories), (costs.estimate, costs.estimate_categories())],
        ),
        "params": (np.where(owns, costs.estimate, -1), costs.texts("params")),
        "cost_status": status,
        "cost_note": note,
    }
    for at in range(0, len(ops), _SLICE):
        rows = slice(at, at + _SLICE)
        part = raw.take(ops.row[rows])
        columns = dict(zip(part.column_names, part.columns, strict=True))
        columns |= {name: int_array(values[rows], UNKNOWN) for name, values in counts.items()}
        columns |= {
            name: text_array((codes[rows], words)) for name, (codes, words) in texts.items()
        }
        yield pa.table(
            columns
            | {
                "op_id": pa.array(np.arange(at, at + part.num_rows)),
                "self_ns": pa.array(ops.self_ns[rows]),
                "signature_id": int_array(linked.signature[rows], -1),
                "parent_op_id": int_array(ops.parent[rows], -1),
                "depth": pa.array(ops.depth[rows]),
                "step": int_array(linked.step[rows], NO_ID),
                "recompute": pa.array(ops.recompute[rows]),
                "forward_op_id": int_array(linked.pairs.forward[rows], -1),
            }
        )


def _cost_status(costs: OpCosts) -> tuple[TextColumn, TextColumn]:
    inside = (costs.owner >= 0) & (costs.owner != np.arange(len(costs.owner)))
    status = np.where(inside, STATUSES.index("in_parent"), costs.status()[costs.estimate])
    return (status, STATUSES), (np.where(inside, -1, costs.estimate), costs.notes())
