"""From one process's raw tables to its canonical tables: which analysis feeds which.

Tables are handed on one by one, and big ones in parts, so that no two big ones live at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.assembly.activity_table import activity_tables
from pyprof2.analysis.assembly.linked import link_recording
from pyprof2.analysis.assembly.memory_table import memory_table
from pyprof2.analysis.assembly.op_table import estimate_table, op_table
from pyprof2.recording import int_column
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyprof2.recording import Recording

_SLICE: Final = 1 << 17
_NUMBERED: Final = {"ranges": "range_id", "stalls": "stall_id"}


def assemble(
    recording: Recording, rank: int, source_root: str | None, facts: dict[str, int]
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield each canonical table's name with its rows, in parts.

    Args:
        recording: the raw tables.
        rank: its rank.
        source_root: the folder of the user's own code; by default the recorded one.
        facts: takes up counts for the manifest.
    """
    yield "ranges", _ranked(rank, _in_time_order(recording, "ranges", ("start_ns", "dur_ns")))
    yield "stalls", _ranked(rank, _in_time_order(recording, "stalls", ("start_ns", "dur_ns")))
    source_root = source_root or recording.source_root
    linked = link_recording(recording, source_root)
    facts["pairs_recorded"] = linked.pairs.flow_count
    facts["pairs_agree"] = linked.pairs.flow_agree_count
    facts["nodes_lost"] = linked.pairs.lost_count
    for name, parts in activity_tables(recording, linked):
        yield name, _ranked(rank, parts)
    yield "ops", _ranked(rank, op_table(recording, linked))
    yield "estimates", _ranked(rank, [estimate_table(linked.costs)])
    yield "memory", _ranked(rank, memory_table(recording, linked))
    yield "memory_tags", _ranked(rank, _in_time_order(recording, "memory_tags", ("time_ns",)))
    yield "stacks", _ranked(rank, [linked.stacks])
    del linked
    yield "signatures", _ranked(rank, [_signatures(recording)])
    yield "devices", _ranked(rank, [_rows("devices", recording.devices)])
    yield "trace", _ranked(rank, [_rows("trace", [recording.trace | {"source_root": source_root}])])


def _ranked(rank: int, parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    for part in parts:
        yield part.append_column("rank", pa.array(np.full(part.num_rows, rank, np.int64)))


def _rows(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    schema = pa.schema([field for field in TABLES[name].schema() if field.name != "rank"])
    return pa.Table.from_pylist(rows, schema=schema)


def _in_time_order(recording: Recording, name: str, keys: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield a raw table sorted by time, longer ones first, and numbered."""
    start, *lengths = (int_column(recording.read(name, [key]), key, 0) for key in keys)
    order = np.lexsort((*(-length for length in lengths), start))
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
