"""The table `lines`: what each line of code costs in each step, on the device and on the host.

Two ledgers, which are never added. On the *device* a line has the time of the kernels and copies
that its ops launched; over a step they add up to the time of the step's kernels. On the *host* it
has the time in which its ops were the innermost ones of the step's thread; with the time between
ops they add up to the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.time.line_ops import PHASES
from pyprof2.analysis.time.line_rows import COUNTS, LEDGERS, OF_DEVICES, Places, Rows, Sums
from pyprof2.analysis.time.line_steps import NONE
from pyprof2.analysis.time.line_work import INPUT, LineWork
from pyprof2.columns import int_array, lookup, text_array
from pyprof2.result_tables import LINES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.parted import Parted

__all__ = ["INPUT", "lines_of_rank"]

_SLICE: Final = 1 << 15


def lines_of_rank(tables: Mapping[str, Parted], rank: int) -> Iterator[pa.Table]:
    """Yield the table `lines` of a rank in parts, ledger by ledger.

    Args:
        tables: the columns `INPUT` of its canonical tables, each in the order of its keys; of
            `ranges` the steps will do.
        rank: the number.
    """
    places = Places()
    work = LineWork(tables, lambda lines, _: places.add(lines))
    sums = {name: Sums(names) for name, names in LEDGERS.items()}
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


def _tables(ledger: str, rows: Rows, work: LineWork, places: Places) -> Iterator[pa.Table]:
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


def _table(ledger: str, rows: Rows, work: LineWork, places: Places) -> pa.Table:
    step, thread, _, source, sums = rows
    stack, call, layer, phase = places.columns(rows.place)
    steps, threads = work.steps, work.threads
    return pa.table(
        {
            "ledger": text_array((np.zeros_like(step), [ledger])),
            "step": int_array(lookup(steps.number, step, NONE), NONE),
            "step_start_ns": int_array(lookup(steps.start, step, NONE), NONE),
            "pid": int_array(np.where(thread >= 0, threads.pid(thread), NONE), NONE),
            "tid": int_array(np.where(thread >= 0, threads.tid(thread), NONE), NONE),
            "stack_id": int_array(stack, -1),
            "source": text_array((source, work.sources)),
            "layer": text_array((layer, places.layers)),
            "op": text_array((call, places.calls)),
            "phase": text_array((phase, PHASES)),
        }
        | _sum_columns(sums)
    )


def _sum_columns(sums: dict[str, Int]) -> dict[str, pa.Array]:
    """Return the columns; null is what the ledger has not, and a count that is unknown."""
    columns = {
        name: pa.array(sums[name], pa.int64())
        for name in ("calls", "count", "time_ns", "costed_ns")
    }
    for name in COUNTS:
        columns[name] = pa.array(sums[name], pa.int64(), mask=sums[f"{name}_known"] == 0)
    return columns | {name: pa.array(sums[name], pa.int64()) for name in OF_DEVICES if name in sums}
