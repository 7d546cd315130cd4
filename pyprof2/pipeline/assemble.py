"""From one process's raw tables to its canonical tables: which analysis feeds which.

Tables are handed on one by one, and big ones in parts, so that no two big ones live at once.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pyprof2.analysis.assembly.activity_table import activity_tables
from pyprof2.analysis.assembly.compiled_links import CompiledLinks, part_tables
from pyprof2.analysis.assembly.graph_links import GraphLinks
from pyprof2.analysis.assembly.graph_templates import has_replays
from pyprof2.analysis.assembly.host_tables import estimate_table, memory_table, op_table
from pyprof2.analysis.assembly.linked import SharedFindings, link_recording
from pyprof2.analysis.compiled.calls import count_calls
from pyprof2.analysis.compiled.joining import NO_GRAPH
from pyprof2.analysis.linking.windows import windows_of
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.columns import order_of, shifted
from pyprof2.recording import RAW_SCHEMAS, int_column
from pyprof2.tables import TABLES, TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.graphs.nodes import Templates
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.linking.windows import TraceWindow
    from pyprof2.recording import Recording


_SLICE: Final = 1 << 17
_NUMBERED: Final = {"ranges": "range_id", "stalls": "stall_id"}


def assemble(
    recording: Recording,
    rank: int,
    source_root: str | None,
    facts: dict[str, Any],
    folder: Path,
    templates: Sequence[Templates] = (),
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield each canonical table's name with its rows, in parts, window by window.

    Args:
        recording: the raw tables.
        rank: its rank.
        source_root: the folder of the user's own code; by default the recorded one.
        facts: takes up counts for the manifest.
        folder: an empty one, for what is needed until the last table is read.
        templates: of graphs that it may replay, from other recordings.
    """
    source_root = source_root or recording.source_root
    facts |= dict.fromkeys(("pairs_recorded", "pairs_agree", "nodes_lost"), 0)
    graphs = GraphLinks(recording, templates, rank) if has_replays(recording) else None
    compiled = CompiledLinks(recording.compiled) if recording.compiled else None
    windows = windows_of(recording, folder)
    shared = SharedFindings(recording, graphs, compiled)
    counts: Counter[str] = Counter()
    late = {name: _Late() for name in ("kernels", "copies")}
    for at, window in enumerate(windows.each):
        ids = ids_after(counts) | dict.fromkeys(("kernel_id", "call_id", "cost_call_id"), 0)
        # Each window numbers its nodes after those before it.
        ids["graph_node"], shared.first_op = 0, counts["ops"]
        for name, parts in _tables_of(window, source_root, shared, facts, windows.activity_ids(at)):
            rows = (shifted(part, ids) for part in parts)
            in_order = late[name].in_order(rows, windows.following(at)) if name in late else rows
            yield name, _ranked(name, rank, in_order, counts)
    facts["counter_values"] = counts["counters"]
    nodes = _rows("graph_nodes", [])
    if compiled is not None:
        facts["compiled"] = compiled.found()
    elif calls := count_calls(recording):
        facts["compiled"] = [{"known": False, "note": NO_GRAPH, "calls": calls}]
    if recording.compile_events:
        facts["compile_events"] = [
            {"kind": kind, "place": place, "reason": reason, "count": count}
            for (kind, place, reason), count in Counter(recording.compile_events).most_common()
        ]
    if graphs is not None:
        facts["graphs"], nodes = graphs.found(), graphs.table()
    about = recording.trace | {"source_root": source_root}
    for name, rows in (
        ("graph_nodes", nodes),
        ("estimates", estimate_table(shared.descriptions)),
        ("stacks", shared.stacks.table()),
        ("signatures", _signatures(recording)),
        ("devices", _rows("devices", recording.devices)),
        ("trace", _rows("trace", [about])),
    ):
        yield name, _ranked(name, rank, [rows], counts)


def _tables_of(
    window: TraceWindow,
    source_root: str | None,
    shared: SharedFindings,
    facts: dict[str, Any],
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
    yield "kernel_parts", part_tables(recording, linked, activity_id)
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


def _ranked(
    name: str, rank: int, parts: Iterable[pa.Table], counts: Counter[str]
) -> Iterator[pa.Table]:
    """Yield rows of a table with their rank, and count them; a recording alone is span 0."""
    numbers = {"rank": rank} | ({"span": 0} if "span" in TABLES[name].names else {})
    for part in parts:
        counts[name] += part.num_rows
        for column, number in numbers.items():
            values = pa.array(np.full(part.num_rows, number, np.int64))
            part = part.append_column(column, values)  # noqa: PLW2901 - one after another
        yield part


def _rows(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([f for f in TABLES[name].schema() if f.name not in ("rank", "span")])
    return pa.Table.from_pylist(rows, schema=schema)


def _in_time_order(window: TraceWindow, name: str, keys: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield what of a raw table begins in a window, sorted by time, longer ones first, numbered."""
    recording = window.recording
    names = [each for each in RAW_SCHEMAS[name].names if each in TABLES[name].names]
    start, *lengths = (int_column(recording.read(name, [key]), key, 0) for key in keys)
    order = order_of(start, *(-length for length in lengths))
    own = np.searchsorted(start[order], (window.begin, window.end))
    order = order[slice(*own)]
    del start, lengths
    for at in range(0, len(order), _SLICE):
        rows = order[at : at + _SLICE]
        part = recording.read(name, names, rows)
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


_COUNTED_IN: Final = {
    "kernel_id": ("kernels", "copies"),
    "call_id": ("kernels", "copies"),
    "cost_call_id": ("kernels", "copies"),
    "graph_node": ("graph_nodes",),
    "call_node": ("graph_nodes",),
    "cost_call_node": ("graph_nodes",),
    "launch_id": ("launches",),
    "op_id": ("ops",),
    "parent_op_id": ("ops",),
    "forward_op_id": ("ops",),
    "cost_op_id": ("ops",),
    "shapes_op_id": ("ops",),
    "estimate_id": ("estimates",),
    "range_id": ("ranges",),
    "stall_id": ("stalls",),
    "gap_id": ("idle",),
    "collective_id": ("collectives",),
    "signature_id": ("signatures",),
    "stack_id": ("stacks",),
    "caller_id": ("stacks",),
}
"""The ids, and the tables whose rows they number."""
_TIMES: Final = ("start_ns", "launch_ns", "issued_ns", "time_ns", "end_ns")
_LENGTHS: Final = (("idle", "time_ns"),)
"""Columns that are called like a time and are none."""
_CORRELATED: Final = ("launches", "kernels", "copies", "stalls")


def clock_shifts(segments: Sequence[Recording]) -> list[int]:
    """Return what to add to the times of each segment to have them on the first one's clock."""
    bases = [segment.trace["unix_ns"] or 0 for segment in segments]
    return [base - bases[0] for base in bases]


def joined(
    name: str, folders: Sequence[Path], rank: int, shifts: Sequence[int], spans: Sequence[int]
) -> Iterator[pa.Table]:
    """Yield the rows of a table, of one segment after another, with ids that go on.

    Args:
        name: of the table.
        folders: where each segment's tables are, as a store has them.
        rank: of all of them.
        shifts: see `clock_shifts`.
        spans: the span that each segment is, or is of.
    """
    counts = [{table: _file(f, table, rank).metadata.num_rows for table in TABLES} for f in folders]
    calls = _correlation_shifts(folders, rank)
    seen: list[dict[str, Any]] = []
    for at, folder in enumerate(folders):
        added = ids_after({table: sum(count[table] for count in counts[:at]) for table in TABLES})
        if not any(count[table] for count in counts for table in ("kernels", "copies")):
            # The rows of a profile are op calls then.
            before = [_file(f, "ops", rank).read(["op"])["op"].cast(TEXT) for f in folders[:at]]
            added["kernel_id"] = sum(int((~is_engine(op)).sum()) for op in before)
        added |= dict.fromkeys(("correlation_id", "waits_for_correlation_id"), calls[at])
        added["unix_ns"] = -shifts[at]
        added |= {each: shifts[at] for each in _TIMES if (name, each) not in _LENGTHS}
        file = _file(folder, name, rank)
        for group in range(file.num_row_groups):
            part = shifted(file.read_row_group(group), added)
            if "span" in part.column_names:
                number = pa.array(np.full(part.num_rows, spans[at], np.int64))
                part = part.set_column(part.column_names.index("span"), "span", number)
            if name == "devices":
                part = pa.Table.from_pylist(
                    [row for row in part.to_pylist() if row not in seen], part.schema
                )
                seen += part.to_pylist()
            yield part


def ids_after(row_counts: Mapping[str, int]) -> dict[str, int]:
    """Return what to add to ids of rows that come after so many of each table."""
    return {
        column: sum(row_counts[table] for table in tables) for column, tables in _COUNTED_IN.items()
    }


def _file(folder: Path, name: str, rank: int) -> pq.ParquetFile:
    return pq.ParquetFile(folder / name / f"rank-{rank}.parquet")


def _correlation_shifts(folders: Sequence[Path], rank: int) -> list[int]:
    """Return what to add to correlation ids, where a profiler began to count anew."""
    shifts, last = [], -1
    for folder in folders:
        ids = pa.chunked_array(
            [
                chunk
                for name in _CORRELATED
                for chunk in _file(folder, name, rank).read(["correlation_id"])[0].chunks
            ],
            pa.int64(),
        )
        known = len(ids) - ids.null_count
        first = pc.min(ids).as_py() if known else 0
        shifts.append(max(0, last + 1 - first) if known else 0)
        last = max(last, pc.max(ids).as_py() + shifts[-1]) if known else last
    return shifts
