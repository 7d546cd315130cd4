"""From one process's raw tables to its canonical tables: which analysis feeds which.

Tables are handed on one by one, and big ones in parts, so that no two big ones live at once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.assembly.activity_table import activity_tables
from pyprof2.analysis.assembly.host_tables import estimate_table, memory_table, op_table
from pyprof2.analysis.assembly.linked import SharedFindings, link_recording
from pyprof2.analysis.linking.windows import windows_of
from pyprof2.columns import order_of
from pyprof2.recording import int_column
from pyprof2.segments import ids_after, shifted
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.windows import Window
    from pyprof2.recording import Recording

_SLICE: Final = 1 << 17
_NUMBERED: Final = {"ranges": "range_id", "stalls": "stall_id"}


def assemble(
    recording: Recording,
    rank: int,
    source_root: str | None,
    facts: dict[str, int],
    folder: Path,
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield each canonical table's name with its rows, in parts, window by window.

    Args:
        recording: the raw tables.
        rank: its rank.
        source_root: the folder of the user's own code; by default the recorded one.
        facts: takes up counts for the manifest.
        folder: an empty one, for what is needed until the last table is read.
    """
    source_root = source_root or recording.source_root
    facts |= dict.fromkeys(("pairs_recorded", "pairs_agree", "nodes_lost"), 0)
    windows, shared = windows_of(recording, folder), SharedFindings(recording)
    counts: Counter[str] = Counter()
    late = {name: _Late() for name in ("kernels", "copies")}
    for at, window in enumerate(windows.each):
        ids = ids_after(counts) | {"kernel_id": 0}
        for name, parts in _tables_of(window, source_root, shared, facts, windows.activity_ids(at)):
            rows = (shifted(part, ids) for part in parts)
            in_order = late[name].in_order(rows, windows.following(at)) if name in late else rows
            yield name, _counted(name, _ranked(name, rank, in_order), counts)
    facts["counter_values"] = counts["counters"]
    about = recording.trace | {"source_root": source_root}
    for name, rows in (
        ("estimates", estimate_table(shared.descriptions)),
        ("stacks", shared.stacks.table()),
        ("signatures", _signatures(recording)),
        ("devices", _rows("devices", recording.devices)),
        ("trace", _rows("trace", [about])),
    ):
        yield name, _ranked(name, rank, [rows])


def _tables_of(
    window: Window,
    source_root: str | None,
    shared: SharedFindings,
    facts: dict[str, int],
    activity_id: Int,
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield the tables of a window whose rows are of some time, with ids from 0 on."""
    recording = window.recording
    yield "ranges", _in_time_order(window, "ranges", ("start_ns", "dur_ns"))
    yield "stalls", _in_time_order(window, "stalls", ("start_ns", "dur_ns"))
    linked = link_recording(recording, source_root, shared)
    facts["pairs_recorded"] += linked.pairs.flow_count
    facts["pairs_agree"] += linked.pairs.flow_agree_count
    facts["nodes_lost"] += linked.pairs.lost_count
    yield from activity_tables(recording, linked, activity_id)
    yield "ops", op_table(recording, linked)
    yield "memory", memory_table(recording, linked)
    yield "memory_tags", _in_time_order(window, "memory_tags", ("time_ns",))
    yield "weights", _in_time_order(window, "weights", ("time_ns",))
    yield "counters", _in_time_order(window, "counters", ("time_ns",))


class _Late:
    """Puts rows of windows in order: the GPU may begin what is launched in one after the next's."""

    def __init__(self) -> None:
        self._held: list[pa.Table] = []

    def in_order(self, parts: Iterable[pa.Table], following: int) -> Iterator[pa.Table]:
        """Yield what begins before a time, of these rows and those that are held; hold the rest."""
        for part in parts:
            last = part.num_rows and pc.max(part["start_ns"]).as_py() >= following
            if self._held or last:
                self._held.append(part)
            else:
                yield part
        if self._held:
            rows = pa.concat_tables(self._held).unify_dictionaries()
            rows = rows.take(pc.sort_indices(rows["kernel_id"]))
            begun = int(pc.sum(pc.less(rows["start_ns"], following)).as_py())
            self._held = [rows.slice(begun)] if begun < rows.num_rows else []
            yield rows.slice(0, begun)


def _counted(name: str, parts: Iterable[pa.Table], counts: Counter[str]) -> Iterator[pa.Table]:
    for part in parts:
        counts[name] += part.num_rows
        yield part


def _ranked(name: str, rank: int, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield rows of a table with their rank; a recording alone is span 0."""
    numbers = {"rank": rank} | ({"span": 0} if "span" in TABLES[name].names else {})
    for part in parts:
        for column, number in numbers.items():
            values = pa.array(np.full(part.num_rows, number, np.int64))
            part = part.append_column(column, values)  # noqa: PLW2901 - one after another
        yield part


def _rows(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([f for f in TABLES[name].schema() if f.name not in ("rank", "span")])
    return pa.Table.from_pylist(rows, schema=schema)


def _in_time_order(window: Window, name: str, keys: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield what of a raw table begins in a window, sorted by time, longer ones first, numbered."""
    recording = window.recording
    start, *lengths = (int_column(recording.read(name, [key]), key, 0) for key in keys)
    order = order_of(start, *(-length for length in lengths))
    own = np.searchsorted(start[order], (window.begin, window.end))
    order = order[slice(*own)]
    del start, lengths
    for at in range(0, len(order), _SLICE):
        rows = order[at : at + _SLICE]
        part = recording.read(name, None, rows)
        if name in _NUMBERED:
            part = part.append_column(_NUMBERED[name], pa.array(np.arange(at, at + len(rows))))
        yield part


def _signatures(recording: Recording) -> pa.Table:
    columns = list(zip(*recording.signatures, strict=True)) or [(), (), (), ()]
    return pa.table(
        {
            "signature_id": pa.array(np.arange(len(recording.signatures))),
            "op": pa.array(columns[0], pa.string()).dictionary_encode(),
            "signature": pa.array(columns[1], pa.string()),
            "inputs": pa.array(columns[2], pa.string()),
            "has_shapes": pa.array(columns[3], pa.bool_()),
        }
    )
