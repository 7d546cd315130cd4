"""What a parser hands over: the raw tables of one process, spooled to disk.

A parser appends whole columns, chunk by chunk, in the order of its file; `Recording` gives them
back as Arrow tables, in any selection of columns. Rows are not yet sorted, numbered or linked.
Text is dictionary-encoded on the way in, so a chunk holds numbers only, and memory grows with
the number of distinct texts alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from pyprof2.tables import TEXT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    import numpy as np

_I64: Final = pa.int64()
_F64: Final = pa.float64()

RAW_SCHEMAS: Final[dict[str, pa.Schema]] = {
    "activities": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "correlation_id": _I64,
            "device": _I64, "stream": _I64, "kernel": TEXT, "kind": TEXT, "bytes": _I64,
            "copy_kind": TEXT, "grid": TEXT, "block": TEXT, "registers": _I64,
            "shared_bytes": _I64, "blocks_per_sm": _F64, "occupancy_pct": _F64,
            "graph_node_id": _I64, "recorded_id": _I64,
        }
    ),
    "launches": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "name": TEXT,
            "correlation_id": _I64, "recorded_id": _I64,
        }
    ),
    "ops": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "op": TEXT,
            "signature_id": _I64, "sequence_nr": _I64, "forward_thread": _I64,
            "recorded_id": _I64, "layer": TEXT, "source": TEXT, "direction": TEXT,
            "recompute": pa.bool_(),
        }
    ),
    "ranges": pa.schema(
        {"start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "name": TEXT, "kind": TEXT}
    ),
    "memory": pa.schema(
        {
            "time_ns": _I64, "pid": _I64, "tid": _I64, "device_type": TEXT, "device": _I64,
            "address": pa.uint64(), "bytes": _I64, "allocated_bytes": _I64,
            "reserved_bytes": _I64,
        }
    ),
    "flows": pa.schema(
        {"flow_id": _I64, "end": pa.bool_(), "pid": _I64, "tid": _I64, "time_ns": _I64}
    ),
}  # fmt: skip
"""The raw tables. `activities.kind` is `kernel`, `memcpy` or `memset`; `ranges.kind` as in the
canonical table, and `layer` for a range whose text is the whole layer. `recorded_id` is the id by
which the recorder itself ties a launch to an op: larger for an op that began later. `flows` are
the recorder's own forward-backward pairs: two rows of one `flow_id`, by thread and start."""


class TextCodes(dict[Any, int]):
    """A code for each distinct key, dense from 0; looking a new key up gives it the next one."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class Spool:
    """Writes the raw tables of one process into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, pa.RecordBatchFileWriter] = {}
        self.texts: dict[str, dict[str, TextCodes]] = {
            table: {f.name: TextCodes() for f in schema if f.type == TEXT}
            for table, schema in RAW_SCHEMAS.items()
        }
        self.counts: Counter[str] = Counter()

    def append(self, table: str, columns: dict[str, Any], count: int) -> None:
        """Append `count` rows; a column that is missing is null, a text column holds codes."""
        if not count:
            return
        folder = self._folder
        schema = _code_schema(table)
        if table not in self._writers:
            self._writers[table] = pa.ipc.new_file(folder / f"{table}.arrow", schema)
        arrays = [
            _as_array(columns[f.name], f.type) if f.name in columns else pa.nulls(count, f.type)
            for f in schema
        ]
        self._writers[table].write_batch(pa.record_batch(arrays, schema=schema))
        self.counts[table] += count

    def finish(self) -> None:
        """Close the files; nothing can be appended after it, and it can go to another process."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def read(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the rows in the order of the file, text as dictionaries."""
        names = RAW_SCHEMAS[table].names if columns is None else list(columns)
        schema = pa.schema([RAW_SCHEMAS[table].field(name) for name in names])
        if not self.counts[table]:
            return schema.empty_table()
        with pa.memory_map(str(self._folder / f"{table}.arrow")) as source:
            options = pa.ipc.IpcReadOptions(
                included_fields=[
                    RAW_SCHEMAS[table].get_field_index(name)
                    for name in sorted(names, key=RAW_SCHEMAS[table].get_field_index)
                ]
            )
            codes = pa.ipc.open_file(source, options=options).read_all().select(names)
        arrays = [self._decode(table, field, codes[field.name]) for field in schema]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _decode(self, table: str, field: pa.Field, codes: pa.ChunkedArray) -> pa.ChunkedArray:
        if field.type != TEXT:
            return codes
        texts = pa.array(list(self.texts[table][field.name]), pa.string())
        chunks = [pa.DictionaryArray.from_arrays(chunk, texts) for chunk in codes.chunks]
        return pa.chunked_array(chunks, TEXT)


def _code_schema(table: str) -> pa.Schema:
    return pa.schema(
        [(f.name, pa.int32() if f.type == TEXT else f.type) for f in RAW_SCHEMAS[table]]
    )


def _as_array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values.cast(kind)
    return pa.array(values, kind)


class Signature(NamedTuple):
    """A distinct op with its inputs: its name, text for people, JSON, whether any has a shape."""

    op: str
    text: str
    inputs: str
    has_shapes: bool


@dataclass
class Recording:
    """One process's raw tables and what its file says of itself.

    Attributes:
        rank: its rank as the file says it; None if it does not.
        spool: the raw tables.
        signatures: by `signature_id`.
        devices: rows of the canonical table `devices`, without rank.
        trace: a row of the canonical table `trace`, without rank.
        problems: what was repaired or dropped, in words, with counts.
        ignored: what the tables have no place for, with counts.
        trusts_recorded_id: whether `recorded_id` of launches means an op at all.
    """

    spool: Spool
    rank: int | None = None
    signatures: list[Signature] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)
    trusts_recorded_id: bool = True

    def read(self, table: str, columns: Iterable[str] | None = None) -> pa.Table:
        """Return a raw table; see `RAW_SCHEMAS`."""
        return self.spool.read(table, None if columns is None else list(columns))


def int_column(table: pa.Table, name: str, missing: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return an integer column as NumPy, with `missing` for null."""
    column = table[name]
    if column.null_count:
        column = column.fill_null(missing)
    values: np.ndarray[Any, np.dtype[np.int64]] = column.to_numpy()
    return values


def code_column(table: pa.Table, name: str) -> tuple[np.ndarray[Any, Any], list[str]]:
    """Return a text column as codes, -1 for null, and the texts."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], TEXT)
    return column.indices.fill_null(-1).to_numpy(), column.dictionary.to_pylist()
