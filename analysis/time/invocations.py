"""What each call of a step cost, forward and backward: a row for each, not summed by line.

The work is that of the table `lines`, and so are its two ledgers; only what is added up differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.parted import InMemory
from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_rows import NOWHERE
from pyprof2.analysis.time.line_steps import NONE
from pyprof2.analysis.time.line_work import INPUT, LineWork
from pyprof2.columns import int_array, text_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.line_ops import LineOps
    from pyprof2.analysis.time.line_rows import Rows

__all__ = ["INPUT", "invocations"]

_FORWARD: Final = PHASES.index("forward")
_BACKWARD: Final = [PHASES.index(phase) for phase in ("backward", "recompute")]
_NO_BACKWARD: Final = -1


def invocations(tables: Mapping[str, pa.Table], ledger: str, step: int | None) -> pa.Table:
    """Return the calls of a step, in order of time.

    Args:
        tables: the columns `INPUT` of a rank's canonical tables, each in the order of its keys.
        ledger: `device` or `host`.
        step: the number; None: of a recording without steps all.

    Returns:
        `op_id` and `op` of the call, its `stack_id`, `forward_ns`, `backward_ns`, null where
        nothing runs in backward for it, and `is_forward`. What checkpointing runs again is a call
        of its own, all of it backward; and so is what backward does for no call, such as adding
        gradients up. Their sums are those of the phases
        forward, and backward with recompute, of the step in the table `lines`.
    """
    in_memory = {name: InMemory(table) for name, table in tables.items()}
    work = LineWork(in_memory, lambda lines, _: np.arange(1, len(lines.at) + 1))
    ((part, added),) = work.ops()  # in memory they are one stretch
    lines = part.lines
    in_step = work.steps.number == (NONE if step is None else step)
    of_host = (rows for name, rows in added if name == ledger)
    of_ledger = work.devices() if ledger == "device" else of_host
    time, phase, call = _times(of_ledger, lines, in_step)
    count = len(lines.at)
    forward, backward = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(forward, call[phase == _FORWARD], time[phase == _FORWARD])
    again = np.isin(phase, _BACKWARD)
    np.add.at(backward, call[again], time[again])
    has_backward = np.zeros(count, bool)
    has_backward[lines.at[np.isin(lines.phase, _BACKWARD)]] = True
    own = _marked(in_step, part.step) & (lines.at == np.arange(count))
    rows = np.flatnonzero((own & (lines.phase == _FORWARD)) | (forward > 0) | (backward > 0))
    name, names = lines.call
    return pa.table(
        {
            "op_id": rows,
            "op": text_array((name[rows], names)),
            "stack_id": int_array(lines.stack[rows], -1),
            "is_forward": (lines.phase == _FORWARD)[rows],
            "forward_ns": forward[rows],
            "backward_ns": int_array(
                np.where(has_backward, backward, _NO_BACKWARD)[rows], _NO_BACKWARD
            ),
        }
    )


def _times(rows: Iterable[Rows], lines: LineOps, in_step: Bool) -> tuple[Int, Int, Int]:
    """Return time, phase and call of the work of a step that has an op, whose place is its row."""
    found = [(np.empty(0, np.int64), np.empty(0, np.int32))]
    for each in rows:
        keep = _marked(in_step, each.step) & (each.place != NOWHERE)
        if "time_ns" in each.sums:
            found.append((each.sums["time_ns"][keep], each.place[keep] - 1))
    time, op = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return time, lines.phase[op], lines.at[op]


def _marked(mark: Bool, at: Int) -> Bool:
    """Return the marks at positions; those that are -1 have none."""
    found: Bool = np.append(mark, False)[at]
    return found
