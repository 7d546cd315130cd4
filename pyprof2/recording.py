"""The output of a parser: the raw tables of one process, spooled to disk.

A parser appends whole columns, chunk by chunk, in the order of its file; `Recording` gives them
back as Arrow tables, in any selection of columns. Rows are not yet sorted, numbered or linked.
Text is dictionary-encoded on the way in, so a chunk holds numbers only, and memory grows with
the number of distinct texts alone. `Snapshot` is the same for a snapshot of the allocator.
"""

from __future__ import annotations

import copy
import functools
import mmap
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.columns import combine_keys, groups_of, sum_at
from pyprof2.tables import TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Rows: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Positions in a raw table."""

_I64: Final = pa.int64()
_F64: Final = pa.float64()

_BATCH_ROWS: Final = 1 << 15
_SLICE_ROWS: Final = 1 << 18
_OPEN_FILES: Final = 16
_OPEN_BATCHES: Final = 64

ANNOTATED_INPUTS: Final = "inputs of op calls"
ANNOTATED_STEPS: Final = "steps"
ANNOTATED_RANK: Final = "the rank"
ANNOTATED_PEAKS: Final = "peaks of the CPU"
"""Facts that only markers may state: the keys of `Recording.annotated`."""

UNNAMED_DOMAIN: Final = "(unnamed)"
"""The `domain` of ranges in one whose name was not recorded."""

RAW_SCHEMAS: Final[dict[str, pa.Schema]] = {
    "activities": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "correlation_id": _I64,
            "device": _I64, "stream": _I64, "kernel": TEXT, "kind": TEXT, "bytes": _I64,
            "copy_kind": TEXT, "grid": TEXT, "block": TEXT, "registers": _I64,
            "shared_bytes": _I64, "blocks_per_sm": _F64, "occupancy_pct": _F64,
            "graph_node_id": _I64, "recorded_id": _I64, "context": _I64, "process": TEXT,
        }
    ),
    "launches": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "name": TEXT,
            "correlation_id": _I64, "recorded_id": _I64, "kernel": TEXT, "grid": TEXT,
            "block": TEXT,
        }
    ),
    "ops": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "op": TEXT,
            "signature_id": _I64, "sequence_nr": _I64, "forward_thread": _I64,
            "recorded_id": _I64, "layer": TEXT, "stack": TEXT, "direction": TEXT,
            "recompute": pa.bool_(), "accumulate": pa.bool_(), "thread_nr": _I64,
            "comm_seq": _I64, "record_id": _I64,
        }
    ),
    "ranges": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "name": TEXT, "kind": TEXT,
            "domain": TEXT, "signature_id": _I64, "frame_id": _I64, "frame_caller": _I64,
        }
    ),
    "memory": pa.schema(
        {
            "time_ns": _I64, "pid": _I64, "tid": _I64, "device_type": TEXT, "device": _I64,
            "address": pa.uint64(), "bytes": _I64, "allocated_bytes": _I64,
            "reserved_bytes": _I64,
        }
    ),
    "memory_tags": pa.schema(
        {
            "time_ns": _I64, "moment": TEXT, "name": TEXT, "device_type": TEXT, "device": _I64,
            "address": _I64, "bytes": _I64, "category": TEXT,
        }
    ),
    "weights": pa.schema(
        {
            "time_ns": _I64, "name": TEXT, "category": TEXT, "dtype": TEXT, "device_type": TEXT,
            "device": _I64, "address": _I64, "bytes": _I64, "gradient_bytes": _I64,
            "state_bytes": _I64, "source": TEXT, "callers": TEXT,
        }
    ),
    "counters": pa.schema(
        {
            "time_ns": _I64, "dur_ns": _I64, "pid": _I64, "device": _I64, "name": TEXT,
            "series": TEXT, "value": _F64, "range": TEXT,
        }
    ),
    "stalls": pa.schema(
        {
            "start_ns": _I64, "dur_ns": _I64, "pid": _I64, "tid": _I64, "device": _I64,
            "stream": _I64, "kind": TEXT, "name": TEXT, "correlation_id": _I64,
            "waits_for_correlation_id": _I64,
            "waits_for_stream": _I64, "process": TEXT,
        }
    ),
    "created_nodes": pa.schema(
        {"time_ns": _I64, "pid": _I64, "tid": _I64, "node_id": _I64, "original_id": _I64}
    ),
    "flows": pa.schema(
        {"flow_id": _I64, "end": pa.bool_(), "pid": _I64, "tid": _I64, "time_ns": _I64}
    ),
}  # fmt: skip
"""The raw tables. `activities.kind` is `kernel`, `memcpy`, `memset`, or `graph` for one execution
of a whole graph whose kernels were not recorded; `process` is the label that the file writes before
the number of a device, see `Recording.process_labels`; `ranges.kind` as in the canonical table; the
text of a `layer` or `source` is the whole layer or stack; `frame_id` is the id of a Python frame,
and `frame_caller` that of the one that called it; `launches.kernel`, `grid` and `block` are
what is launched, where the recorder says it of the call; `ranges.tid` is the thread that started
the range. `recorded_id` is the id by which the recorder itself ties a launch to an op: larger for
an op that began later, and `record_id` another one, which PyTorch gave it, and which our annotation
may know. Our annotation says of an op: `layer`, `stack`, `direction`, `recompute`,
`accumulate` (it adds up a gradient), and `thread_nr`, its number for the thread that counted
`sequence_nr`. `created_nodes` are the nodes of graphs, when each was made and of which other one it
is a copy. `flows` are the recorder's own forward-backward pairs: two rows of one `flow_id`, by
thread and start."""


class TextCodes(dict[Any, int]):
    """A code for each distinct key, dense from 0; looking a new key up gives it the next one."""

    def __missing__(self, key: Any) -> int:
        code = self[key] = len(self)
        return code


class BatchRows(NamedTuple):
    """Consecutive rows of a batch of a table's file."""

    folder: Path
    number: int
    begin: int
    length: int


class Spool:
    """Writes the raw tables of one process into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, pa.RecordBatchFileWriter] = {}
        self._waiting: dict[str, list[tuple[dict[str, Any], int]]] = {}
        self._batches: dict[str, list[BatchRows]] | None = None
        self.texts: dict[str, dict[str, TextCodes]] = {
            table: {f.name: TextCodes() for f in schema if f.type == TEXT}
            for table, schema in RAW_SCHEMAS.items()
        }
        self._places: dict[tuple[str, str], pa.Array] = {}
        self.counts: Counter[str] = Counter()
        self.known: Counter[tuple[str, str]] = Counter()
        """How many values, not null, there are in a column of a table."""

    def rename(self, table: str, column: str, names: Mapping[Any, str]) -> None:
        """Change texts of a column; those that become equal have one code from now on."""
        codes = TextCodes()
        place = [codes[names.get(key, key)] for key in self.texts[table][column]]
        self.texts[table][column] = codes
        if len(codes) < len(place):
            self._places[table, column] = pa.array(place, pa.int32())

    def append(self, table: str, columns: dict[str, Any], count: int) -> None:
        """Append `count` rows; a column that is missing is null, a text column holds codes."""
        if not count:
            return
        own = {
            name: values if isinstance(values, (pa.Array, np.ndarray))
            else pa.array(values, _code_schema(table).field(name).type)
            for name, values in columns.items()
        }  # fmt: skip
        for name, values in own.items():
            self.known[table, name] += count - getattr(values, "null_count", 0)
        waiting = self._waiting.setdefault(table, [])
        waiting.append((own, count))
        self.counts[table] += count
        if sum(rows for _, rows in waiting) >= _BATCH_ROWS:
            self._write(table)

    def _write(self, table: str) -> None:
        """Write what was appended as one batch: a file of few batches is quick to open."""
        schema = _code_schema(table)
        if table not in self._writers:
            self._writers[table] = pa.ipc.new_file(self._folder / f"{table}.arrow", schema)
        waiting = self._waiting.pop(table)
        arrays = [_joined(field, waiting) for field in schema]
        self._writers[table].write_batch(pa.record_batch(arrays, schema=schema))

    def part(self, batches: dict[str, list[BatchRows]], counts: Counter[str]) -> Spool:
        """Return some of the rows, with the same texts.

        Args:
            batches: by table, where the rows lie that the part has.
            counts: how many rows these have.
        """
        part = copy.copy(self)
        part._batches, part.counts = batches, counts  # noqa: SLF001
        return part

    def finish(self) -> None:
        """Close the files; nothing can be appended after it, and it can go to another process."""
        for table in {*self._waiting, *self._writers}:
            self.close(table)

    def close(self, table: str) -> None:
        """Close the file of a table to which nothing is appended any more, so that it is read."""
        if table in self._waiting:
            self._write(table)
        if table in self._writers:
            self._writers.pop(table).close()

    def drop(self, table: str, rows: Rows) -> None:
        """Drop rows at these positions of a table whose file is closed."""
        keep = np.ones(self.counts[table], bool)
        keep[rows] = False

        def kept(part: pa.Table, at: int) -> pa.Table:
            return part.filter(pa.array(keep[at : at + part.num_rows]))

        self._write_again(table, kept)
        self.counts[table] -= len(rows)

    def replace(self, table: str, columns: Mapping[str, Rows | pa.Array]) -> None:
        """Replace whole columns of numbers of a table whose file is closed."""

        def replaced(part: pa.Table, at: int) -> pa.Table:
            for name, values in columns.items():
                own = values[at : at + part.num_rows]
                own = own if isinstance(own, pa.Array) else pa.array(own)
                part = part.set_column(part.column_names.index(name), name, own)
            return part

        self._write_again(table, replaced)

    def _write_again(self, table: str, changed: Callable[[pa.Table, int], pa.Table]) -> None:
        """Write a table anew, of which `changed` is given parts and where these begin."""
        path, at = self._folder / f"{table}.arrow", 0
        new = path.with_suffix(".new")
        with pa.ipc.new_file(new, _code_schema(table)) as writer:
            for part in self.slices(table, RAW_SCHEMAS[table].names):
                writer.write_table(changed(part, at).combine_chunks())
                at += part.num_rows
        close_files()
        new.replace(path)

    def read(
        self, table: str, columns: Sequence[str] | None = None, rows: Rows | None = None
    ) -> pa.Table:
        """Return the rows in the order of the file, or those at `rows`; text as dictionaries."""
        names = RAW_SCHEMAS[table].names if columns is None else list(columns)
        schema = pa.schema([RAW_SCHEMAS[table].field(name) for name in names])
        if not self.counts[table] or (rows is not None and not len(rows)):
            return schema.empty_table()
        codes = self.raw(table, names)
        if rows is None:
            arrays = [self._decode(table, field, codes[field.name]) for field in schema]
        else:
            taken = (_take(codes[field.name], rows) for field in schema)
            arrays = [
                self._decode_used(table, field, own)
                for field, own in zip(schema, taken, strict=True)
            ]
            _let_go(table, self.batches(table))
        return pa.Table.from_arrays(arrays, schema=schema)

    def raw(self, table: str, columns: Sequence[str]) -> pa.Table:
        """Return columns in the order of the file, text as codes into `texts`."""
        return self._batch_rows(table, columns, slice(None))

    def slices(self, table: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield what `raw` returns, some rows at a time: no more than those are in memory."""
        per_slice = _SLICE_ROWS // _BATCH_ROWS
        at = 0
        while (rows := self._batch_rows(table, columns, slice(at, at + per_slice))).num_rows:
            yield rows
            at += per_slice

    def batches(self, table: str) -> list[BatchRows]:
        """Return where the rows lie, in their order."""
        if self._batches is not None:
            return self._batches[table]
        if not self.counts[table]:
            return []
        counts = enumerate(_mapped(self._folder, table).counts)
        return [BatchRows(self._folder, number, 0, count) for number, count in counts]

    def written(self, table: str, batches: Sequence[BatchRows]) -> pa.Table:
        """Return rows as they are written: codes are those before `rename`."""
        _let_go(table, batches)
        rows = (_mapped(each.folder, table).rows(each) for each in batches)
        return pa.Table.from_batches(rows, _code_schema(table))

    def _batch_rows(self, table: str, columns: Sequence[str], wanted: slice) -> pa.Table:
        rows = self.written(table, self.batches(table)[wanted]).select(list(columns))
        for at, name in enumerate(rows.column_names):
            if (table, name) in self._places:
                rows = rows.set_column(at, name, pc.take(self._places[table, name], rows[name]))
        return rows

    def _decode(self, table: str, field: pa.Field, codes: pa.ChunkedArray) -> pa.ChunkedArray:
        if field.type != TEXT:
            return codes
        texts = pa.array(list(self.texts[table][field.name]), pa.string())
        chunks = [pa.DictionaryArray.from_arrays(chunk, texts) for chunk in codes.chunks]
        return pa.chunked_array(chunks, TEXT)

    def _decode_used(self, table: str, field: pa.Field, codes: pa.Array) -> pa.Array:
        """Return the column; the dictionary of a text column has the texts that occur."""
        if field.type != TEXT:
            return codes
        texts = list(self.texts[table][field.name])
        code = codes.fill_null(-1).to_numpy(zero_copy_only=False)
        used = np.flatnonzero(np.bincount(code + 1)[1:])
        place = np.zeros(len(texts) + 1, np.int32)
        place[used] = np.arange(len(used))
        words = pa.array([texts[number] for number in used.tolist()], pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(place[code], mask=code < 0), words)


class _MappedFile:
    """A file of batches that stays open: it is read column by column, some hundred times.

    It is mapped: of what is selected, only the pages that are read are loaded.
    (IpcReadOptions.included_fields would copy the whole file.)
    """

    def __init__(self, folder: Path, table: str) -> None:
        with (folder / f"{table}.arrow").open("rb") as file:
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        reader = pa.ipc.open_file(pa.py_buffer(self._pages))
        self._batch = functools.lru_cache(maxsize=_OPEN_BATCHES)(reader.get_batch)
        self.counts = [reader.get_batch(at).num_rows for at in range(reader.num_record_batches)]

    def rows(self, wanted: BatchRows) -> pa.RecordBatch:
        """Return rows of a batch."""
        return self._batch(wanted.number).slice(wanted.begin, wanted.length)

    def let_go(self) -> None:
        """Hold the pages that were read no longer; who still looks at them has them loaded anew."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED)


_mapped: Final = functools.lru_cache(maxsize=_OPEN_FILES)(_MappedFile)
"""The files that were read last; those of all recordings of a job are more than may be open."""


def _let_go(table: str, batches: Sequence[BatchRows]) -> None:
    for folder in {each.folder for each in batches}:
        _mapped(folder, table).let_go()


def close_files() -> None:
    """Close the files of raw tables, which may be removed then on any system."""
    _mapped.cache_clear()


def _take(column: pa.ChunkedArray, rows: Rows) -> pa.Array:
    """Return the values at these positions; of a span that they fill nothing is copied."""
    first, last = int(rows.min()), int(rows.max())
    span = column.slice(first, last - first + 1).combine_chunks()
    in_order = len(span) == len(rows) and bool((rows[1:] > rows[:-1]).all())
    return span if in_order else pc.take(span, pa.array(rows - first), boundscheck=False)


def _joined(field: pa.Field, parts: Sequence[tuple[dict[str, Any], int]]) -> pa.Array:
    """Return a column of consecutive rows; null in parts that lack it."""
    found: list[Any] = [columns.get(field.name) for columns, _ in parts]
    if all(isinstance(values, np.ndarray) for values in found):
        return pa.array(np.concatenate(found), field.type)
    if all(values is None for values in found):
        return pa.nulls(sum(count for _, count in parts), field.type)
    arrays = [
        pa.nulls(count, field.type) if values is None
        else values.cast(field.type) if isinstance(values, pa.Array)
        else pa.array(values, field.type)
        for values, (_, count) in zip(found, parts, strict=True)
    ]  # fmt: skip
    return pa.concat_arrays(arrays)


@functools.cache
def _code_schema(table: str) -> pa.Schema:
    schema = RAW_SCHEMAS[table]
    return pa.schema([(f.name, pa.int32() if f.type == TEXT else f.type) for f in schema])


class Signature(NamedTuple):
    """A distinct op with its inputs: its name, text for people, JSON, whether any has a shape."""

    op: str
    text: str
    inputs: str
    has_shapes: bool


@dataclass(frozen=True)
class OpPlaces:
    """Where ops were called, as the annotation says it beside the ops.

    Attributes:
        evidence: what joins the two, as in column `source_evidence` of `ops`.
        column: of the raw table `ops`, with the ids.
        ids: in ascending order, each of one op.
        rows: of each id the place.
        layers, stacks: of each place.
    """

    evidence: str
    column: str
    ids: Rows
    rows: Rows
    layers: Sequence[str | None]
    stacks: Sequence[str | None]


Sizes: TypeAlias = "tuple[int | str, ...]"


PRODUCT: Final = ", its product"
"""Behind the name of a node of a product and a sum: the node of the product alone."""


class CodeNode(NamedTuple):
    """A node of a compiled graph: one op of the code that kernels were written from.

    Attributes:
        op: its name, such as `aten::mul`.
        original: that of the op of the program that it is a part of; None: not known.
        sequence_nr: autograd's number of that, by which two of one name differ.
        inputs: the names of the nodes that it takes.
        lines: the frames outside of torch and the user's own, `path:line`, the innermost first.
        texts: the code of each line as it was compiled, where it is known.
        layer: the layer that it belongs to.
        is_backward: whether it is of backward; None: not known.
        takes_view: whether it only looks at a tensor in another way.
        sizes: of what it makes, of the largest one of several: numbers, and texts where a call
            decides, `8*s0`; None: not known.
        dtype: of that.
    """

    op: str
    original: str | None = None
    sequence_nr: int | None = None
    inputs: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    layer: str | None = None
    is_backward: bool | None = None
    takes_view: bool = False
    sizes: Sizes | None = None
    dtype: str | None = None


class CodeTensor(NamedTuple):
    """A tensor as a statement of generated code is given it.

    Attributes:
        name: of the buffer.
        at: its place among the arguments.
        is_read, is_written: what the kernel does with it.
        sizes, strides: see `CodeNode.sizes`; None: not known.
        dtype: of its elements; None: not known.
    """

    name: str
    at: int
    is_read: bool = True
    is_written: bool = False
    sizes: Sizes | None = None
    strides: Sizes | None = None
    dtype: str | None = None


class CodeLaunch(NamedTuple):
    """A statement of generated code that starts a kernel, or calls an op.

    Attributes:
        name: of the op call that it makes in a recording.
        listed: the names of the nodes that the compiler lists for it; None: it lists none.
        writes: the names of the buffers that hold its results; None: not known.
        line: of the generated code.
        originals: the ops of the program that it is said to be of.
        tensors: those among its arguments.
        elements: of a kernel along each dimension that it runs over; empty: not known.
        results: the names of the nodes whose results it writes; empty: not known.
    """

    name: str
    listed: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    line: int | None = None
    originals: tuple[str, ...] = ()
    tensors: tuple[CodeTensor, ...] = ()
    elements: Sizes = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledGraph:
    """A graph that was compiled once, and what its code does.

    Attributes:
        key: what the range of a call of it says; None: not known.
        compile_id: number of its code and of how often that was compiled, `1/0`.
        is_backward: whether it is of backward; None: not known.
        layer: that of the module whose call was compiled.
        nodes: by name.
        inputs: what is given to it, by name, as nodes.
        launches: in the order of the code; None: they are not known.
        buffers: the node that each buffer holds, where it holds just one.
        lacks: why nothing is known of it, in words.
        file: where its code is.
    """

    key: str | None
    compile_id: str | None = None
    is_backward: bool | None = None
    layer: str | None = None
    nodes: Mapping[str, CodeNode] = field(default_factory=dict)
    inputs: Mapping[str, CodeNode] = field(default_factory=dict)
    launches: tuple[CodeLaunch, ...] | None = None
    buffers: Mapping[str, str] = field(default_factory=dict)
    lacks: str | None = None
    file: str | None = None


class CompileEvent(NamedTuple):
    """A reason why code was not compiled as one graph, or more than once.

    Attributes:
        kind: `graph break` or `recompilation`.
        place: `path:line` where it broke, or of the function that was compiled again.
        reason: in the compiler's words, on one line.
    """

    kind: str
    place: str | None
    reason: str


class LostTime(NamedTuple):
    """When it is not known what a thread ran: a frame whose return is lost may have ended."""

    pid: int
    tid: int
    start_ns: int
    end_ns: int


@dataclass
class Recording:
    """One process's raw tables and what its file says of itself.

    Attributes:
        rank: its rank as the file says it; None if it does not.
        host: the name of its machine, None if the file does not say it.
        pids: the ids of the host processes that called ops or launched work.
        process_labels: what the file writes before the number of a process, by id: `[TP00]`.
        spool: the raw tables.
        signatures: by `signature_id`.
        devices: rows of the canonical table `devices`, without rank.
        trace: a row of the canonical table `trace`, without rank.
        problems: slugs of `pyprof2.problems`: what was repaired or dropped, with counts.
        skipped: slugs of `pyprof2.problems`: what was not read, with counts.
        annotated: what only markers of the recorded program say, with counts.
        trusts_recorded_id: whether `recorded_id` of launches means an op at all.
        ops_are_ranges: whether the ops are ranges that an annotation recorded.
        node_notes: what the program notes of nodes of graphs, by their recorded id.
        source_root: the folder of the user's own code, if it was known when this was recorded.
        entry: of an entry point that was run: its `file`, `batch_size`, and `on_cpu`: whether the
            CPU took the place of a GPU; None: none was.
        scanned: how many events each scanner read, where the format has several, by name.
        places: where ops were called; None: nothing but the tables says it.
        compiled: the graphs that the program compiled, as far as they were noted.
        compile_events: why they are not fewer.
        lost_times: when it is not known which Python frames ran.
        autograd_threads: process and thread id of those whose name says that they run autograd.
    """

    spool: Spool
    rank: int | None = None
    host: str | None = None
    pids: frozenset[int] = frozenset()
    process_labels: dict[int, str] = field(default_factory=dict)
    signatures: list[Signature] = field(default_factory=list)
    devices: list[dict[str, Any]] = field(default_factory=list)
    trace: dict[str, Any] = field(default_factory=dict)
    problems: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    annotated: Counter[str] = field(default_factory=Counter)
    node_notes: dict[int, str] = field(default_factory=dict)
    trusts_recorded_id: bool = True
    ops_are_ranges: bool = False
    source_root: str | None = None
    entry: dict[str, Any] | None = None
    scanned: Counter[str] = field(default_factory=Counter)
    places: OpPlaces | None = None
    compiled: list[CompiledGraph] = field(default_factory=list)
    compile_events: list[CompileEvent] = field(default_factory=list)
    lost_times: list[LostTime] = field(default_factory=list)
    autograd_threads: frozenset[tuple[int, int]] = frozenset()

    def read(
        self, table: str, columns: Iterable[str] | None = None, rows: Rows | None = None
    ) -> pa.Table:
        """Return a raw table, or its rows at these positions; see `RAW_SCHEMAS`."""
        return self.spool.read(table, None if columns is None else list(columns), rows)


_STEP_NUMBER: Final = re.compile(r"(?<!\d)\d{1,18}(?!\d)")


def step_number(name: str) -> int | None:
    """Return the number of a step by the text of its range: the first number in it."""
    match = _STEP_NUMBER.search(name)
    return int(match[0]) if match else None


_EPOCH: Final = re.compile(r"step#\d+ \(epoch (\d{1,18}): .*\)")


def renumbered_step(number: int, epoch: int, name: str) -> str:
    """Return the text of a step's range whose number has come before: it is numbered on."""
    return f"step#{number} (epoch {epoch}: {name})"


def step_epoch(name: str) -> int | None:
    """Return what `renumbered_step` says of a step; None: it has its own number."""
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


def host_pids(spool: Spool) -> frozenset[int]:
    """Return the ids of the processes that called ops or launched work."""
    tables = [spool.read(name, ["pid"]) for name in ("ops", "launches")]
    found = [pc.unique(table["pid"]).drop_null().to_pylist() for table in tables]
    return frozenset(found[0] + found[1])


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


def has_text(table: pa.Table, name: str, words: Container[str]) -> NDArray[np.bool_]:
    """Return the rows whose text is one of these words, each of which is looked at once."""
    code, texts = code_column(table, name)
    found: NDArray[np.bool_] = np.array([*(text in words for text in texts), False])[code]
    return found


def summed(
    rows: pa.Table, keys: Sequence[str], time: str
) -> tuple[pa.Table, dict[str, NDArray[np.int64]]]:
    """Return the first row of each combination of texts, with `count` and `time_ns` of them all."""
    codes = (code_column(rows, name)[0].astype(np.int64) for name in keys)
    first, place = groups_of(combine_keys(*codes))
    count = np.bincount(place, minlength=len(first))
    sums = {"count": count, "time_ns": sum_at(place, int_column(rows, time, 0), len(first))}
    return rows.take(first), sums


@dataclass(frozen=True)
class Stack:
    """The frames of one call stack, innermost first: file, line, function."""

    frames: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot of one process.

    Attributes:
        path: the file.
        events: in the order of recording: `device`, `action` (text), `address`, `bytes`,
            `time_ns`, `device_free_bytes`, `stack` (place in `stacks`), `note`; null: not known.
        segments: `device`, `address`, `total_bytes`, `allocated_bytes`, `active_bytes`,
            `expandable`, and `private`: whether it is of a pool of its own, as that of a graph.
        blocks: `segment` (its place), `address`, `bytes`, `requested_bytes`, `state`, `stack`.
        stacks: each distinct one once.
        settings: of the allocator, as far as they are recorded.
        device_count: how many devices it has a list of events for.
        non_torch: bytes that others than the allocator use, by device; empty: not recorded.
        unread: what is in it that this version does not know, with counts.
    """

    path: Path
    events: pa.Table
    segments: pa.Table
    blocks: pa.Table
    stacks: list[Stack]
    settings: dict[str, Any]
    device_count: int
    non_torch: dict[int, int] = field(default_factory=dict)
    unread: Counter[str] = field(default_factory=Counter)
