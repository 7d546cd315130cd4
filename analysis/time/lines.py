"""The table `lines`: what each line of code costs in each step, on the device and on the host.

Two ledgers, which are never added. On the *device* a line has the time of the kernels and copies
that its ops launched; over a step they add up to the time of the step's kernels. On the *host* it
has the time in which its ops were the innermost ones of the step's thread; with the time between
ops they add up to the step. `invocations` has the same work call by call, not summed by line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.chunked import InMemory
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.line_ops import PHASES, LineOps
from pyprof2.analysis.time.line_work import (
    COUNTS,
    INPUT,
    LEDGERS,
    NOWHERE,
    OF_DEVICES,
    LedgerRows,
    LedgerSums,
    LineWork,
    Places,
)
from pyprof2.columns import int_array, lookup, sum_at, text_array
from pyprof2.result_tables import LINES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.time.line_work import LedgerRows
    from pyprof2.columns import TextColumn


_SLICE: Final = 1 << 15
__all__ = ["INPUT", "invocations", "lines_of_rank"]

_FORWARD: Final = PHASES.index("forward")
_BACKWARD: Final = [PHASES.index(phase) for phase in ("backward", "recompute")]
_NO_BACKWARD: Final = -1


def lines_of_rank(tables: Mapping[str, ChunkedTable], rank: int) -> Iterator[pa.Table]:
    """Yield the table `lines` of a rank in parts, ledger by ledger.

    Args:
        tables: the columns `INPUT` of its canonical tables, each in the order of its keys; of
            `ranges` the steps will do.
        rank: the number.
    """
    places = Places()
    work = LineWork(tables, lambda lines, _: places.add(lines))
    sums = {name: LedgerSums(names) for name, names in LEDGERS.items()}
    for _, added in work.ops():
        for name, rows in added:
            sums[name].add(rows)
    if work.between is not None:
        sums["host"].add(work.between)
    for rows in work.devices():
        sums["device"].add(rows)
    for name in LEDGERS:
        for part in _tables(name, sums.pop(name).rows(), work, places):
            yield LINES.conform(part.append_column("rank", pa.array(np.full(part.num_rows, rank))))


def _tables(ledger: str, rows: LedgerRows, work: LineWork, places: Places) -> Iterator[pa.Table]:
    """Yield the sums by step, thread, line, call, layer and phase, in this order."""
    stack, call, layer, phase = places.columns(rows.place)
    layer, call = _by_text(layer, places.layers), _by_text(call, places.calls)
    source = _by_text(rows.source, work.sources)
    order = np.lexsort((phase, layer, call, stack, source, rows.thread, rows.step))
    del stack, call, layer, phase, source
    for at in range(0, max(1, len(order)), _SLICE):
        yield _table(ledger, rows.at(order[at : at + _SLICE]), work, places)


def _by_text(codes: Int, texts: Sequence[str | None]) -> Int:
    """Return numbers that sort as the texts do, whatever their codes; -1 for none stays."""
    place = np.empty(len(texts), np.int64)
    place[sorted(range(len(texts)), key=lambda code: texts[code] or "")] = np.arange(len(texts))
    return lookup(place, codes, -1)


def _table(ledger: str, rows: LedgerRows, work: LineWork, places: Places) -> pa.Table:
    step, thread, _, source, sums = rows
    stack, call, layer, phase = places.columns(rows.place)
    steps, threads = work.steps, work.threads
    columns = {
        name: pa.array(sums[name], pa.int64())
        for name in ("calls", "count", "time_ns", "costed_ns")
    }
    # Null is a count that is unknown, and what the ledger has not.
    for name in COUNTS:
        columns[name] = pa.array(sums[name], pa.int64(), mask=sums[f"{name}_known"] == 0)
    columns |= {name: pa.array(sums[name], pa.int64()) for name in OF_DEVICES if name in sums}
    return pa.table(
        {
            "ledger": text_array((np.zeros_like(step), [ledger])),
            "step": int_array(lookup(steps.number, step, NEVER), NEVER),
            "step_start_ns": int_array(lookup(steps.start, step, NEVER), NEVER),
            "pid": int_array(np.where(thread >= 0, threads.pid(thread), NEVER), NEVER),
            "tid": int_array(np.where(thread >= 0, threads.tid(thread), NEVER), NEVER),
            "stack_id": int_array(stack, -1),
            "source": text_array((source, work.sources)),
            "layer": text_array((layer, places.layers)),
            "op": text_array((call, places.calls)),
            "phase": text_array((phase, PHASES)),
        }
        | columns
    )


def invocations(tables: Mapping[str, pa.Table], ledger: str, step: int | None) -> pa.Table:
    """Return the calls of a step, in order of time.

    Args:
        tables: the columns `INPUT` of a rank's canonical tables, each in the order of its keys.
        ledger: `device` or `host`.
        step: the number; None: of a recording without steps all.

    Returns:
        `op_id` and `op` of the call, null and the name for a call in a graph, all of whose replays
        in the step are one; its `stack_id`, `forward_ns`, `backward_ns`, null where
        nothing runs in backward for it, and `is_forward`. Work that checkpointing runs again is a
        call of its own, all of it backward; and so is what backward does for no call, such as
        adding gradients up. Their sums are those of the phases
        forward, and backward with recompute, of the step in the table `lines`.
    """
    in_memory = {name: InMemory(table) for name, table in tables.items()}
    work = LineWork(
        in_memory,
        lambda lines, first: np.where(
            lines.at < 0, NOWHERE, first + np.arange(1, len(lines.at) + 1)
        ),
    )
    ((part, added),) = work.ops()  # in memory they are one stretch
    ops = len(part.lines.at)
    lines = _joined(part.lines, work.nodes())
    in_step = work.steps.number == (NEVER if step is None else step)
    of_host = (rows for name, rows in added if name == ledger)
    of_ledger = work.devices() if ledger == "device" else of_host
    time, phase, call = _times(of_ledger, lines, in_step)
    count = len(lines.at)
    forward, backward = (
        sum_at(np.where(own, call, -1), time, count)
        for own in (phase == _FORWARD, np.isin(phase, _BACKWARD))
    )
    has_backward = np.zeros(count, bool)
    has_backward[lines.at[np.isin(lines.phase, _BACKWARD) & (lines.at >= 0)]] = True
    of_step = np.append(_marked(in_step, part.step), np.zeros(count - ops, bool))
    own = of_step & (lines.at == np.arange(count))
    rows = np.flatnonzero((own & (lines.phase == _FORWARD)) | (forward > 0) | (backward > 0))
    name, names = lines.call
    return pa.table(
        {
            "op_id": int_array(np.where(rows < ops, rows, -1), -1),
            "op": text_array((name[rows], names)),
            "stack_id": int_array(lines.stack[rows], -1),
            "is_forward": (lines.phase == _FORWARD)[rows],
            "forward_ns": forward[rows],
            "backward_ns": int_array(
                np.where(has_backward, backward, _NO_BACKWARD)[rows], _NO_BACKWARD
            ),
        }
    )


def _joined(ops: LineOps, nodes: LineOps) -> LineOps:
    """Return what ops are, then what nodes of graphs are, whose texts are those of both."""

    def both(name: str) -> Int:
        found: Int = np.concatenate([getattr(each, name) for each in (ops, nodes)])
        return found

    def texts(name: str) -> TextColumn:
        codes, words = zip(*(getattr(each, name) for each in (ops, nodes)), strict=True)
        return np.concatenate(codes), words[-1]

    return LineOps(
        both("stack"), both("at"), texts("call"), texts("layer"), both("phase"),
        both("begins").astype(bool),
    )  # fmt: skip


def _times(rows: Iterable[LedgerRows], lines: LineOps, in_step: Bool) -> tuple[Int, Int, Int]:
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
