"""The rows of table `idle`: what is said of each piece of a gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pyprof2.analysis.time.causes import CAUSES, HOST_CAUSES, NAMES
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.idle_causes import INFLATED, LATE_LAUNCH, NOTES, THREADS, Causes
from pyprof2.analysis.time.pieces import Bounds, Pieces
from pyprof2.columns import int_array, lookup, merge_texts, text_array
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.time.gaps import Activities, Gaps
    from pyprof2.analysis.time.host_state import Host
    from pyprof2.analysis.time.step_windows import StepWindows
    from pyprof2.columns import TextColumn


def idle_rows(
    causes: Causes,
    windows: StepWindows,
    gaps: Gaps,
    activities: Activities,
    host: Host,
    ops: pa.Table,
) -> pa.Table:
    """Return the rows of table `idle`, without the column `rank`; gaps have their row as number.

    Args:
        causes: of gaps, in order.
        windows: of the steps.
        gaps: by row.
        activities: by row.
        host: what the host did.
        ops: columns `op_id`, `op`, `source`, `layer`, by row.
    """
    causes, step = _by_step(causes, windows)
    cause, calls, gap = causes.cause, host.calls, causes.gap
    line = (causes.line, host.facts.lines)
    source, layer, op = (_of_op(ops, name, causes.op) for name in ("source", "layer", "op"))
    following = gaps.next[gap]
    return pa.table(
        {
            "gap_id": pa.array(gap),
            "device": int_array(gaps.device[gap], NEVER),
            "start_ns": pa.array(causes.start),
            "time_ns": pa.array(causes.end - causes.start),
            "count": pa.array(np.ones_like(gap)),
            "step": int_array(step, NEVER),
            "group": text_array((cause, [each.group for each in CAUSES])),
            "cause": text_array((cause, NAMES)),
            "op": text_array(op),
            "source": text_array(merge_texts(source, line)),
            "layer": text_array(layer),
            "call": text_array((lookup(calls.name[0], causes.call, -1), calls.name[1])),
            "thread": text_array((causes.thread, THREADS)),
            "note": text_array((_notes(causes, gaps, activities, host), NOTES)),
            "drained": pa.array(causes.drained > 0),
            "op_id": int_array(lookup(int_column(ops, "op_id", -1), causes.op, -1), -1),
            "launch_id": int_array(lookup(calls.launch_id, causes.call, -1), -1),
            "kernel_id": int_array(lookup(activities.kernel_id, following, -1), -1),
        }
    )


def _by_step(causes: Causes, windows: StepWindows) -> tuple[Causes, Int]:
    """Return the causes, cut where the window of a step begins or ends, and the step of each."""
    bounds = np.concatenate((windows.start, windows.end))
    row = np.arange(len(causes.gap))
    cut = Pieces(row, causes.start, causes.end).cut(
        Bounds(np.zeros_like(bounds), bounds), np.zeros_like(row)
    )
    order = np.argsort(cut.of, kind="stable")
    of, start, end = cut.of[order], cut.start[order], cut.end[order]
    at = np.searchsorted(windows.start, start, "right") - 1
    inside = (at >= 0) & (start < lookup(windows.end, at, NEVER))
    step = lookup(windows.step, np.where(inside, at, -1), NEVER)
    gap, _, _, *columns = causes
    return Causes(gap[of], start, end, *(column[of] for column in columns)), step


def _of_op(ops: pa.Table, name: str, row: Int) -> TextColumn:
    code, texts = code_column(ops, name)
    return lookup(code, row, -1), texts


def _notes(causes: Causes, gaps: Gaps, activities: Activities, host: Host) -> Int:
    """Return the notes, with what is to be said of the times of the host."""
    on_host = np.isin(causes.cause, HOST_CAUSES)
    following = gaps.next[causes.gap]
    launched = lookup(activities.launched, following, NEVER)
    is_late = on_host & (launched > gaps.end[causes.gap])
    inflated = on_host & host.facts.has_stacks
    free = causes.note < 0
    return np.select([free & is_late, free & inflated], [LATE_LAUNCH, INFLATED], causes.note)
