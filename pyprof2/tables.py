"""The canonical tables: names, types, units and the meaning of every column.

Parsers make these tables, analyses take and return them, the store writes them. Nothing
else crosses between the stages, so a format's own words stop at its parser.

`SCHEMA_VERSION` counts changes that make older stores unreadable:

1. the first one.
2. the user's ranges: `range` of ops, kernels and copies, `domain` of ranges.
3. the lines of libraries: `library_source`, `stack_id`, table `stacks`, `source_root` of traces.
4. what held the host or a stream up: table `stalls`; what counts rest on: `estimate_id`,
    `shapes_from`, `shapes_op_id` of ops, `cost_role` of kernels and copies, table `estimates`; why
    devices were idle: table `idle`; what was found: tables
    `summary`, `ledger`, `utilization`, `steps`.
5. what lines of code cost: table `lines`; who owns memory: `op_id`, `op`, `layer`, `source`,
    `stack_id`, `step`, `phase` of `memory`.
6. what the recorded program itself says of its memory: table `memory_tags`; communication between
    ranks: tables `collectives`, `clocks`, `parts` and `segments`, `comm_seq` of ops, `host` of
    traces.
7. the recordings of one worker: `span` of all that has a time; what half precision would
    allow: `tensor_core_eligible_half` of kernels and copies.
8. what counters were: table `counters`.
9. which parameters and buffers a program has: table `weights`; the machine: `system`, `cpu`,
    `machine_bytes`, `uncounted` of traces.
10. what ranges were called with: `signature_id` of ranges.
11. names alone: table `segments`, columns `known_flops_count` and `helped_rows` of `sums`;
    whose kernels replays of graphs are: table `graph_nodes`; `graph_node`, `call_id` and
    `cost_call_id` of kernels and copies; `graph_id_ns` and its like of summaries.
12. what the lines of ops rest on: `source_evidence` of ops.
13. what each node of compiled code does: `flops`, `bytes` and their like of `kernel_parts`.
14. kernels of an unknown process: `unsure_count` of summaries; steps whose numbers begin again:
    `epoch` of steps; `device` of sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyprof2.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_VERSION: Final = 15

TEXT: Final = pa.dictionary(pa.int32(), pa.string())
"""Repeated text: an int32 code per row, each distinct text once."""


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, what it means, its unit, and whether it may be null."""

    name: str
    type: pa.DataType
    meaning: str
    unit: str = ""
    nullable: bool = True

    def field(self) -> pa.Field:
        """Return the Arrow field; the meaning and the unit travel as its metadata."""
        metadata = {"meaning": self.meaning}
        if self.unit:
            metadata["unit"] = self.unit
        return pa.field(self.name, self.type, self.nullable, metadata)


def text(name: str, meaning: str, unit: str = "", *, nullable: bool = True) -> Column:
    """Return a column of repeated text."""
    return Column(name, TEXT, meaning, unit, nullable)


def whole(name: str, meaning: str, unit: str = "", *, nullable: bool = True) -> Column:
    """Return a column of whole numbers."""
    return Column(name, pa.int64(), meaning, unit, nullable)


def real(name: str, meaning: str, unit: str = "", *, nullable: bool = True) -> Column:
    """Return a column of numbers with a fraction."""
    return Column(name, pa.float64(), meaning, unit, nullable)


@dataclass(frozen=True)
class Table:
    """A canonical table: one sentence on what a row is, and its columns in order."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [column.name for column in self.columns]

    def schema(self, only: Iterable[str] | None = None) -> pa.Schema:
        """Return the Arrow schema, of all columns or of those named, in the table's order."""
        if only is None:
            return self._schema
        wanted = set(only)
        return pa.schema([field for field in self._schema if field.name in wanted])

    @cached_property
    def _schema(self) -> pa.Schema:
        return pa.schema([column.field() for column in self.columns])

    @property
    def never_null(self) -> list[str]:
        """The columns that always have a value."""
        return [column.name for column in self.columns if not column.nullable]

    def empty(self) -> pa.Table:
        """Return the table without rows."""
        return self.schema().empty_table()

    def conform(self, table: pa.Table, only: Iterable[str] | None = None) -> pa.Table:
        """Return `table` with exactly these columns, or those named, in order and type.

        Missing nullable columns become null. Dictionary indices may come in any width.

        Raises:
            TableError: a column is unknown, of another type, or missing and not nullable.
        """
        unknown = sorted(set(table.column_names) - set(self.names))
        if unknown:
            msg = f"table {self.name}: unknown columns {', '.join(unknown)}"
            raise TableError(msg)
        schema = self.schema(only)
        names = set(schema.names)
        there = set(table.column_names)
        arrays = []
        for column in self.columns:
            if column.name not in names:
                continue
            if column.name in there:
                arrays.append(_conform_column(self.name, column, table[column.name]))
            elif column.nullable:
                arrays.append(pa.chunked_array([pa.nulls(table.num_rows, column.type)]))
            else:
                msg = f"table {self.name}: column {column.name} is missing"
                raise TableError(msg)
        return pa.Table.from_arrays(arrays, schema=schema)


def _conform_column(table_name: str, column: Column, data: pa.ChunkedArray) -> pa.ChunkedArray:
    if data.type != column.type:
        msg = f"table {table_name}: column {column.name} is {data.type}, not {column.type}"
        types = pa.types
        # A cast has to keep what the values are: a time that was ever a float is no time.
        keeps = types.is_null(data.type) or (
            types.is_integer(data.type)
            if types.is_integer(column.type)
            else column.type != pa.bool_() and not types.is_nested(data.type)
        )
        if not keeps:
            raise TableError(msg)
        try:
            data = data.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise TableError(msg) from error
    if not column.nullable and data.null_count:
        msg = f"table {table_name}: column {column.name} has {data.null_count} nulls"
        raise TableError(msg)
    return data


_RANK = whole("rank", "Process in the job.", nullable=False)
_SPAN = whole(
    "span",
    "Which recording of its rank it is in, from 0 in order of time, where these are spans of one "
    "worker; else 0.",
    nullable=False,
)
_START = whole("start_ns", "Start on the clock of the trace.", "ns", nullable=False)
_DUR = whole("dur_ns", "End minus start.", "ns", nullable=False)
_PID = whole("pid", "Host process.")
_TID = whole("tid", "Host thread.")
_STEP = whole("step", "The N of the step range that contains it on its process.")
_LAYER = text(
    "layer",
    "Dotted attribute path of the innermost module; a backward row has that of its forward op.",
)
_RANGE = text(
    "range",
    "Names of the user's own ranges around it (a kernel: around its launch), outermost first, "
    "joined with a slash between blanks.",
)
_SOURCE = text(
    "source",
    "`path:line` of the innermost frame of the user's own; a backward row has that of its forward "
    "op.",
)
_LIBRARY_SOURCE = text("library_source", "`path:line` of the innermost frame outside of torch.")
_STACK = whole(
    "stack_id", "Joins to `stacks.stack_id` in its rank: the innermost frame outside of torch."
)
_DIRECTION = text(
    "direction", "`forward`, `backward`, `optimizer` or `other`; null where there is no op."
)
_RECOMPUTE = Column(
    "recompute", pa.bool_(), "A forward op that checkpointing runs again inside backward."
)
_SEQUENCE = whole("sequence_nr", "Autograd's sequence number.")
_FORWARD_OP = whole("forward_op_id", "Joins to `ops.op_id`: the forward op of a backward row.")
_SHARED: Final = tuple(
    text(
        f"shared_{name}",
        f"The {what} of a kernel of compiled code that does the work of several, one to a line; "
        f"of a replayed kernel that nothing explains `(graph launched in …)`, with the {name} "
        f"around the launch of its graph. Column `{name}` is null then.",
    )
    for name, what in (("op", "ops"), ("layer", "layers"), ("source", "lines"))
)
_SHARED_DIRECTION: Final = text(
    "shared_direction",
    "Of a replayed kernel that nothing explains `(graph launched in …)`, with the direction of "
    "the op around the launch of its graph; column `direction` is null then.",
)
_COMPUTE_DTYPE = text("compute_dtype", "Element type that the op computes in.")
_COSTS = (
    whole("flops", "Algorithmic operations; a multiply-add is 2.", "FLOP"),
    whole("bytes", "Algorithmic traffic: each operand once; copies: as recorded.", "B"),
    whole("flops_lo", "Lower bound where the count depends on data.", "FLOP"),
    whole("flops_hi", "Upper bound where the count depends on data.", "FLOP"),
    whole("bytes_lo", "Lower bound where the traffic depends on data.", "B"),
    whole("bytes_hi", "Upper bound where the traffic depends on data.", "B"),
    text(
        "cost_status",
        "`ok`, `assumed`, `no_formula`, `no_shapes`, `no_op` or `in_parent`: counted at an op "
        "around it, or at those inside.",
    ),
    text("cost_note", "The assumption behind the counts, in words."),
)

_ACTIVITY_COLUMNS: Final = (
    whole("kernel_id", "Row key, dense from 0 in start order.", nullable=False),
    _RANK,
    _START,
    _DUR,
    whole("pid", "Process of the launch."),
    whole("tid", "Host thread of the launch."),
    whole("correlation_id", "Joins to `launches.correlation_id`."),
    whole("launch_ns", "Start of the launch.", "ns"),
    whole("device", "Ordinal of the device; null for the CPU."),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`."),
    text("device_name", "The device's own name."),
    whole("stream", "Queue in the device."),
    whole("step", "The N of the step range that contains the launch."),
    text("kernel", "Demangled name."),
    text("kernel_short", "Name without arguments and template arguments."),
    text("category", "What kind of work: matmul, conv, … memcpy, memset, other."),
    text("op", "Innermost PyTorch op that encloses the launch."),
    whole("op_id", "Joins to `ops.op_id`."),
    text("signature", "The op with its shapes and dtypes as text."),
    _LAYER,
    _RANGE,
    _SOURCE,
    _LIBRARY_SOURCE,
    _DIRECTION,
    _RECOMPUTE,
    _SEQUENCE,
    _FORWARD_OP,
    text("params", "The numbers that matter, such as `M=512,N=1024,K=768`."),
    *_COSTS,
    text("tensor_core", "`yes`, `no` or `unknown`; null for copies and on the CPU."),
    Column("tensor_core_eligible", pa.bool_(), "Whether dtype and shape allow Tensor Cores."),
    Column(
        "tensor_core_eligible_half",
        pa.bool_(),
        "Whether category, shape and device would allow them in float16, whatever the dtype is.",
    ),
    text("tensor_core_evidence", "What the verdict rests on."),
    real("tflops", "FLOPs of the op over its kernels' time; null for helpers.", "TFLOP/s"),
    real("gbps", "Bytes of the op over its kernels' time; null for helpers.", "GB/s"),
    real("intensity", "FLOPs per byte.", "FLOP/B"),
    real("roofline_pct", "Share of the roof that the op reaches.", "%"),
    text("bound", "`compute`, `memory` or `latency`."),
    text(
        "roofline_flag",
        "Why a rate above the memory's bandwidth or the plain peak may be right; null below them.",
    ),
    text(
        "link",
        "`external_id`, `correlation`, `range`, `self` or `none`: how the op was found; in a "
        "replay of a graph `graph_id`, `graph_names`, `graph_order`, and `graph` where it was not; "
        "`compiled`: by the code of a compiled graph.",
    ),
    text("link_note", "What else there is to say of the link."),
    text("copy_kind", "`h2d`, `d2h`, `d2d`, `p2p`, `h2h`, with pageable or pinned."),
    text("grid", "Blocks per grid, `x,y,z`."),
    text("block", "Threads per block, `x,y,z`."),
    whole("registers", "Registers per thread."),
    whole("shared_bytes", "Shared memory per block.", "B"),
    real("blocks_per_sm", "Blocks of the grid per multiprocessor."),
    real("occupancy_pct", "Occupancy as the profiler estimates it.", "%"),
    _SPAN,
)

PROFILE_COLUMNS: Final = tuple(column.name for column in _ACTIVITY_COLUMNS)
"""The columns of `prof --by kernel`, in order."""

_ACTIVITY_KEYS: Final = (
    whole("launch_id", "Joins to `launches.launch_id`."),
    whole("graph_node_id", "Node of the CUDA graph that was replayed."),
    whole(
        "graph_node",
        "Joins to `graph_nodes.graph_node` in its rank: what is known of its node of a graph.",
    ),
    whole(
        "call_id",
        "In a replay of a graph: joins to `kernel_id` of kernels and copies, the first one of the "
        "same call of its op in this replay.",
    ),
    _STACK,
    whole("cost_op_id", "Joins to `ops.op_id`: the op whose counts are shared."),
    whole(
        "cost_call_id", "In a replay of a graph: as `call_id`, of the call whose counts are shared."
    ),
    text(
        "cost_role",
        "`main`: does the work of that op and shares its counts; `helper`: by its name only helps; "
        "`nested`: of an op inside that does another kind of work. The latter two get none.",
    ),
    _COMPUTE_DTYPE,
    whole("op_time_ns", "Time of all kernels of the op: the base of its rates.", "ns"),
    *_SHARED,
    _SHARED_DIRECTION,
)

KERNELS: Final = Table(
    "kernels",
    "One row per kernel execution on a device, or of a CUDA graph that was recorded as a whole.",
    _ACTIVITY_COLUMNS + _ACTIVITY_KEYS,
)
COPIES: Final = Table(
    "copies",
    "One row per memcpy or memset on a device; numbered together with the kernels.",
    _ACTIVITY_COLUMNS + _ACTIVITY_KEYS,
)
LAUNCHES: Final = Table(
    "launches",
    "One row per call of the GPU runtime or driver on the host.",
    (
        whole("launch_id", "Row key, dense from 0 in start order.", nullable=False),
        _RANK,
        _START,
        _DUR,
        _PID,
        _TID,
        text("name", "Name of the call."),
        whole("correlation_id", "Joins to `kernels.correlation_id` in its process."),
        whole("op_id", "Joins to `ops.op_id`: the innermost op that encloses it."),
        whole("kernel_count", "Kernels and copies that it queued.", nullable=False),
        _SPAN,
    ),
)
OPS: Final = Table(
    "ops",
    "One row per PyTorch operator call.",
    (
        whole("op_id", "Row key, dense from 0 in start order.", nullable=False),
        _RANK,
        _START,
        _DUR,
        whole("self_ns", "Duration less that of the ops directly inside.", "ns"),
        _PID,
        _TID,
        text("op", "Name of the operator, such as `aten::mm`."),
        whole("signature_id", "Joins to `signatures.signature_id`; null: no shapes."),
        whole("parent_op_id", "Joins to `ops.op_id`: the op directly around it."),
        whole("depth", "Number of ops around it."),
        _STEP,
        _LAYER,
        _RANGE,
        _SOURCE,
        _LIBRARY_SOURCE,
        _STACK,
        text(
            "source_evidence",
            "What the lines rest on: `record_function_id` or `external_id`, the id by which the "
            "annotation knows the op; `around`, `inside`: the op around it, the first one in it; "
            "`marker`, of the op itself; `frames`, `range` around it; `forward`: its forward op.",
        ),
        _DIRECTION,
        _RECOMPUTE,
        _SEQUENCE,
        whole("forward_thread", "Autograd's number of the forward thread; 0: forward."),
        _FORWARD_OP,
        whole("recorded_id", "The id by which launches of the recording name the op."),
        text("link", "`compiled`: found in the code of a compiled graph."),
        text("link_note", "What else there is to say of what was found of it."),
        Column("is_written", pa.bool_(), "Whether it is a kernel that a compiler wrote."),
        text("original_op", "The one op whose work such a kernel does; null: several."),
        *_SHARED,
        whole("comm_seq", "Number of the collective in its group, if recorded."),
        text("category", "What kind of work."),
        text("params", "The numbers that matter, such as `M=512,N=1024,K=768`."),
        *_COSTS,
        _COMPUTE_DTYPE,
        whole(
            "estimate_id",
            "Joins to `estimates.estimate_id`: how the counts came about; null without counts.",
        ),
        text("shapes_from", "Where the shapes behind the counts are from, in words."),
        whole("shapes_op_id", "Joins to `ops.op_id`: the other op that gave shapes, if one did."),
        _SPAN,
    ),
)
KERNEL_PARTS: Final = Table(
    "kernel_parts",
    "One row per node of a compiled graph whose work a kernel does; without a GPU: that an op call "
    "does.",
    (
        whole(
            "kernel_id",
            "Joins to `kernel_id` of kernels and copies; without a GPU to that of rows of op "
            "calls, as `prof --by kernel` has them.",
            nullable=False,
        ),
        _RANK,
        text("node", "Name of the node in the graph."),
        text("op", "The op of the program that it is of."),
        _SOURCE,
        _LAYER,
        _DIRECTION,
        _RECOMPUTE,
        text(
            "evidence",
            "`computed`: the kernel runs it; `listed`: the compiler lists it, and it may be that "
            "the kernel reads its result only.",
        ),
        whole(
            "flops",
            "FLOPs of the node in a kernel that the compiler wrote; null for an op that is called: "
            "those are the kernel's.",
        ),
        whole("bytes", "Bytes of the node's inputs and of its result, each once."),
        text("code", "The text of the innermost line as it was compiled."),
        text("reads", "The buffers that the kernel reads, as its code names them."),
        text("writes", "The buffers that it writes."),
        text("generated", "`path:line` of the generated code that starts the kernel."),
        _SPAN,
    ),
)
ESTIMATES: Final = Table(
    "estimates",
    "One row per distinct way in which the counts of ops came about.",
    (
        whole("estimate_id", "Row key, dense from 0.", nullable=False),
        _RANK,
        text(
            "flops_formula",
            "The FLOPs by the names of the sizes, `2·M·N·K`; null: none, or not said.",
        ),
        text("flops_numbers", "The same with their values, `2·4·16·8`."),
        whole("bytes_read", "Bytes of the operands, each once.", "B"),
        whole("bytes_written", "Bytes of the results, each once.", "B"),
    ),
)
SIGNATURES: Final = Table(
    "signatures",
    "One row per distinct op with its inputs.",
    (
        whole("signature_id", "Row key, dense from 0.", nullable=False),
        _RANK,
        text("op", "Name of the operator."),
        Column("signature", pa.string(), "The op with its shapes and dtypes as text."),
        Column("inputs", pa.string(), "The arguments as JSON; see `pyprof2.signatures`."),
        Column("has_shapes", pa.bool_(), "Whether any input has a recorded shape."),
    ),
)
GRAPH_NODES: Final = Table(
    "graph_nodes",
    "One row per node of a graph that was replayed: the captured or eager launch that it is, or "
    "what several that it may be agree on.",
    (
        whole("graph_node", "Row key, dense from 0.", nullable=False),
        _RANK,
        text("file", "The recording that the launch is in; null: several files'."),
        whole("capture", "Which capture of its file, from 1; null: none, or several."),
        whole("node", "Which launch of it, from 0; null: which it is is not known."),
        whole(
            "lost_after",
            "How many nodes that the recording lacks come after this one; null: not known.",
        ),
        whole("candidates", "How many captures or stretches it may be of."),
        whole("sizes_equal", "How many sizes of its replay are equal on both sides."),
        whole("sizes_known", "How many sizes of its replay both sides recorded."),
        text("kernel", "Name of the kernel; `*` for every copy and fill."),
        text("op", "Innermost PyTorch op that encloses the launch."),
        text("signature", "The op with shapes and dtypes, where they are the replay's."),
        _LAYER,
        _SOURCE,
        _LIBRARY_SOURCE,
        _STACK,
        _DIRECTION,
        _RECOMPUTE,
        text("forward_op", "Name of the forward op of a backward node."),
        text("category", "What kind of work the op does; null: not known by the op."),
        text("params", "The numbers that matter, such as `M=512,N=1024,K=768`."),
        *_COSTS,
        _COMPUTE_DTYPE,
        whole("recorded_id", "The id of the node as it was recorded."),
        whole("call_node", "Joins to `graph_node`: the first of the same op call."),
        whole(
            "cost_call_node",
            "Joins to `graph_node`: the first of the op call whose counts are shared; `flops` and "
            "`bytes` are those of this call as a whole.",
        ),
    ),
)
STACKS: Final = Table(
    "stacks",
    "One row per distinct frame outside of torch, with those that it was called from.",
    (
        whole("stack_id", "Row key, dense from 0.", nullable=False),
        _RANK,
        whole("caller_id", "Joins to `stacks.stack_id`: its caller; null: not known."),
        text("line", "`path:line` of the frame, as it was recorded."),
    ),
)
ENERGY_KIND: Final = "energy"
"""The kind of ranges that hold readings of counters."""

RANGES: Final = Table(
    "ranges",
    "One row per host interval with text: steps, annotations, modules, Python frames.",
    (
        whole("range_id", "Row key, dense from 0 in start order.", nullable=False),
        _RANK,
        _START,
        _DUR,
        _PID,
        _TID,
        text(
            "name",
            "Text of the range; a Python frame: `path(line): function`; of a `source` the lines of "
            "its stack.",
        ),
        text(
            "kind",
            "`step`, `open step`, one in which recording stopped or nothing begins, `annotation`, "
            "`layer`, `source`, `module`, `python`, `internal` work of PyTorch's, `energy`, a "
            "reading of counters, `collective`, what our annotation says of one, `marker` of "
            "PyProf's, or, where no launch is recorded, `device annotation`: when a stream worked "
            "for an annotation; process and thread are device and stream, and what its ranges have "
            "in common is the domain.",
        ),
        text("domain", "NVTX domain; null for the default one, or without domains."),
        whole(
            "signature_id",
            "Joins to `signatures.signature_id`: the tensors that it was called with, as PyTorch's "
            "ranges of collectives are; null: none recorded.",
        ),
        _SPAN,
    ),
)
MEMORY: Final = Table(
    "memory",
    "One row per allocation or release of memory.",
    (
        _RANK,
        whole("time_ns", "When, on the clock of the trace.", "ns", nullable=False),
        _PID,
        _TID,
        text("device_type", "`cuda`, `hip`, `xpu` or `cpu`."),
        whole("device", "Ordinal of the device; null for the CPU."),
        Column("address", pa.uint64(), "Address of the block."),
        whole("bytes", "Size; negative for a release.", "B"),
        whole("allocated_bytes", "Allocated on the device, after it.", "B"),
        whole("reserved_bytes", "Reserved on the device, after it.", "B"),
        whole("op_id", "Joins to `ops.op_id`: the op."),
        text("op", "The innermost op on its thread at that time."),
        text("layer", "Layer of the op; in backward that of its forward op."),
        text("source", "`path:line` of the op; in backward that of its forward op."),
        _STACK,
        _STEP,
        text(
            "phase",
            "`forward`, `backward`, `optimizer`, `zero_grad` or `other`: what the op is for; "
            "between ops, what the range around it is for, else the op that began last in its "
            "process; `other` on a thread that waited for the backward of another one.",
        ),
        _SPAN,
    ),
)
MEMORY_TAGS: Final = Table(
    "memory_tags",
    "One row per block of memory whose use the recorded program says, under `init(memory=True)`; "
    "and one per moment at which it did.",
    (
        _RANK,
        whole("time_ns", "When, on the clock of the trace.", "ns", nullable=False),
        text(
            "moment",
            "`begins` (the first iteration of an entry point that is recorded does), "
            "`forward` (one with gradients begins), `call` (a module is called without), "
            "`backward` (begins), `gradients` (it has ended) or `optimizer` (it has made its "
            "step).",
        ),
        text("name", "Of the moment: the class of the optimizer."),
        text("device_type", "`cuda`, `hip`, `xpu` or `cpu`."),
        whole("device", "Ordinal of the device; null for the CPU."),
        whole("address", "Address of the block; null: the row is of the moment."),
        whole(
            "bytes",
            "Size of the storage there; of moment `begins` all that is allocated on the device.",
            "B",
        ),
        text(
            "category",
            "`parameter`, `buffer`, `gradient`, `optimizer_state`, `input`, `activation` (held by "
            "autograd) or `output`.",
        ),
        _SPAN,
    ),
)
WEIGHTS: Final = Table(
    "weights",
    "One row per parameter or buffer that the recorded program names, under `init(memory=True)` or "
    "as an entry point, each time that something of it is new.",
    (
        _RANK,
        whole("time_ns", "When, on the clock of the trace.", "ns", nullable=False),
        text("name", "Its path in the model."),
        text("category", "`parameter` or `buffer`."),
        text("dtype", "PyTorch's name of it, such as `float32`."),
        text("device_type", "`cuda`, `hip`, `xpu` or `cpu`."),
        whole("device", "Ordinal of the device; null for the CPU."),
        whole("address", "Address of the storage that it is in."),
        whole("bytes", "Size of it.", "B"),
        whole("gradient_bytes", "Size of its last gradient; null: it had none yet.", "B"),
        whole(
            "state_bytes",
            "Size of what optimizers keep for it on its device; null: none has made a step.",
            "B",
        ),
        text("source", "`path:line` of the user's own that made it."),
        text("callers", "The user's own lines that led there, one to a line."),
        _SPAN,
    ),
)
COUNTERS: Final = Table(
    "counters",
    "One row per value of a counter in the recording: sampled at a moment, or counted over a range "
    "on a device.",
    (
        _RANK,
        whole(
            "time_ns",
            "When it was sampled, or its range began, on the clock of the trace.",
            "ns",
            nullable=False,
        ),
        whole("dur_ns", "Length of the range; null for a sample.", "ns"),
        whole("pid", "Process of a sample, as recorded; null where it is a device."),
        whole("device", "Ordinal of the device; null where none is recorded."),
        text("name", "Name of the counter."),
        text(
            "series",
            "Which of the values that the counter has at that moment; null where it has no name.",
        ),
        real("value", "The value, in the recorder's unit.", nullable=False),
        text(
            "range",
            "Name of the range that it was counted over, such as the kernel; null for a sample.",
        ),
        _SPAN,
    ),
)
STALLS: Final = Table(
    "stalls",
    "One row per interval in which the profiler, the driver or a wait held the host or a stream "
    "up, as far as the recorder says so; a call that waits is among the launches, too.",
    (
        whole("stall_id", "Row key, dense from 0 in start order.", nullable=False),
        _RANK,
        _START,
        whole(
            "dur_ns",
            "End minus start; of a `stream_wait` the time that the host took to queue the wait, "
            "not that of the stream.",
            "ns",
            nullable=False,
        ),
        _PID,
        whole("tid", "Host thread, where it is recorded."),
        whole("device", "Ordinal of the device; null where none is recorded."),
        whole("stream", "Queue that is waited for, or that waits."),
        text(
            "kind",
            "`profiler` (its own work), `module_load` (the driver loads or compiles code), "
            "`queue_full` (the host is ahead of the device), `sync` (the host waits for the "
            "device), `stream_wait` (a stream is to wait for an event), `device_wait` (queues of a "
            "device wait for one another, as the device recorded it) or `other`.",
        ),
        text("name", "What the recorder calls it."),
        whole("correlation_id", "Joins to `launches.correlation_id` in its process."),
        whole(
            "waits_for_correlation_id",
            "Of a wait for an event: the call that recorded the event, as `correlation_id`.",
        ),
        whole("waits_for_stream", "The queue that this event was recorded on."),
        _SPAN,
    ),
)
IDLE: Final = Table(
    "idle",
    "One row per part of a gap in which a device did nothing, with the one cause of it; their "
    "times and the busy time of a device add up to its recording window.",
    (
        whole(
            "gap_id",
            "Number of the gap in its rank, by device and in order of time; not dense where a "
            "rank has several recordings.",
            nullable=False,
        ),
        _RANK,
        whole("device", "Ordinal of the device."),
        whole("start_ns", "Start on the clock of the trace.", "ns", nullable=False),
        whole("time_ns", "Length of the part.", "ns", nullable=False),
        whole("count", "1; in sums the number of parts.", nullable=False),
        whole("step", "The step whose window holds it; null: outside of steps."),
        text("group", "What the causes are summed up in; see the page on idle time."),
        text("cause", "The cause; see the page on idle time."),
        text(
            "op",
            "The innermost op on the thread that decides; of a launch, and of what waits for the "
            "device, the op that launched what ran next.",
        ),
        text("source", "`path:line` of the op, else of the innermost frame there."),
        text("layer", "Layer of the op."),
        text("call", "Name of the GPU call that the host was in."),
        text(
            "thread",
            "Which thread decides: `launching`, which launched what ran next, or an `other` one "
            "of its process; null where none does.",
        ),
        text("note", "What else there is to say of the cause."),
        Column(
            "drained",
            pa.bool_(),
            "Whether the device ran dry while the host was in the call: the time is at most that "
            "of the call, and begins with the gap.",
            nullable=False,
        ),
        whole("op_id", "Joins to `ops.op_id`: the op."),
        whole("launch_id", "Joins to `launches.launch_id`: the call."),
        whole(
            "kernel_id",
            "Joins to `kernels.kernel_id` or `copies.kernel_id`: what ended the gap; null: the "
            "recording did.",
        ),
        _SPAN,
    ),
)
COLLECTIVES: Final = Table(
    "collectives",
    "One row per rank's part in one collective, a member. Members that belong together are an "
    "instance; see the page on many ranks.",
    (
        whole("collective_id", "Row key, dense from 0 in start order.", nullable=False),
        _RANK,
        whole("kernel_id", "Joins to `kernels.kernel_id`; null: no kernel, as with gloo."),
        whole("op_id", "Joins to `ops.op_id`: the outermost op of the collective."),
        whole("step", "The step that contains the launch, or the op."),
        _START,
        _DUR,
        whole("issued_ns", "Start of the launch, or of the op.", "ns"),
        whole("device", "Ordinal of the device; null without kernel."),
        whole("stream", "Queue in the device."),
        text(
            "kind",
            "`all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast`, `reduce`, "
            "`gather`, `scatter`, `send`, `recv`, `barrier` or `other`.",
        ),
        text(
            "transport",
            "`nccl`, `rccl`, `symmetric_memory`, `nvshmem`, `deepep`, `custom`, `gloo` or `mpi`.",
        ),
        text(
            "group_key",
            "What identifies the group on all ranks: its ranks, description and ordinal among the "
            "groups of the same ranks; null: not recorded.",
        ),
        text("group_name", "Its name on this rank; others may call it otherwise."),
        text("group_desc", "Its description."),
        whole("group_size", "Number of ranks in it."),
        Column("group_ranks", pa.list_(pa.int64()), "Its ranks, in its own order."),
        whole("seq", "Number of the collective in its group."),
        text("seq_source", "`recorded` or `marker`; null without number."),
        whole(
            "seq_since",
            "Of a marker: PyTorch's own number of the group when the annotation began to count.",
        ),
        whole("in_bytes", "What goes in on this rank.", "B"),
        whole("out_bytes", "What comes out on this rank.", "B"),
        whole("send_bytes_to_others", "What this rank sends to others.", "B"),
        whole("recv_bytes_from_others", "What this rank gets from others.", "B"),
        text("dtype", "Element type."),
        Column("uneven", pa.bool_(), "Whether the parts of an all-to-all differ in size."),
        whole("root", "The rank that it starts from or ends at."),
        whole("peer", "The other rank of a send or recv."),
        Column("asynchronous", pa.bool_(), "Whether the call did not wait for it."),
        text(
            "bytes_source",
            "`recorded`, `input_dims` (shapes of the inputs of the op, else of PyTorch's range in "
            "it), `payload`, `marker`; null: not known.",
        ),
        text("bytes_note", "Why bytes that were recorded are not used."),
        text("op", "Name of the outermost op of the collective."),
        _LAYER,
        _SOURCE,
        _DIRECTION,
        whole("coalesced", "How many calls the kernel does at once."),
        whole(
            "instance_id",
            "Equal for the members that belong together, on all ranks; null: not matched.",
        ),
        whole("members_recorded", "Members of the instance in the store."),
        whole(
            "wait_ns",
            "From the start to the last member's start; with members missing at least that. It is "
            "no lost time.",
            "ns",
        ),
        whole("transfer_ns", "The rest; with members missing at most that.", "ns"),
        whole(
            "last_rank",
            "Rank whose member of the instance started last; null: a tie, or not known.",
        ),
        whole("margin_ns", "How much later it started than the last but one.", "ns"),
        text(
            "match",
            "How the members were found: `seq`, `marker`, `order`, `order_kind`; `unmatched`.",
        ),
        text("match_note", "What else there is to say of the match."),
        _SPAN,
    ),
)
DEVICES: Final = Table(
    "devices",
    "One row per device that the recording lists.",
    (
        _RANK,
        whole("device", "Ordinal of the device.", nullable=False),
        text("device_type", "`cuda`, `hip`, `xpu` or, without GPU activity, `cpu`."),
        text("name", "The device's own name."),
        text("compute_capability", "Such as `9.0`; AMD: the gfx version's first two."),
        whole("multiprocessors", "Number of SMs or compute units; of a CPU threads."),
        real("clock_hz", "Highest clock of the multiprocessors.", "Hz"),
        whole("memory_bytes", "Size of the memory.", "B"),
        real("memory_bytes_per_s", "Bandwidth of the memory.", "B/s"),
        whole("cache_bytes", "Of a CPU: size of the last caches.", "B"),
        text(
            "flop_per_s",
            "Of a CPU: the highest rates that were measured on it, as JSON, by dtype.",
            "FLOP/s",
        ),
    ),
)
TRACE: Final = Table(
    "trace",
    "One row per recording.",
    (
        _RANK,
        text("source", "File name of the recording."),
        text("profiler", "`kineto` or `nsight`."),
        whole("world_size", "Number of processes in the job."),
        text("host", "Name of the machine, as recorded or in the file's name."),
        whole("start_ns", "First start of anything recorded.", "ns"),
        whole("end_ns", "Last end of anything recorded.", "ns"),
        whole("unix_ns", "Added to a time it gives ns since 1970; null: unknown.", "ns"),
        whole("event_count", "Events or rows read."),
        text("source_root", "The folder below which the user's own code is, if named."),
        text("system", "Operating system of the machine."),
        text("cpu", "Its CPU."),
        whole("machine_bytes", "Memory of the machine, or what a container may have.", "B"),
        text("uncounted", "Why the energy of its CPUs was not counted."),
        _SPAN,
    ),
)

TABLES: Final = {
    table.name: table
    for table in (
        KERNELS, COPIES, LAUNCHES, OPS, KERNEL_PARTS, ESTIMATES, SIGNATURES, GRAPH_NODES, STACKS,
        RANGES, MEMORY, MEMORY_TAGS, WEIGHTS, COUNTERS, STALLS, IDLE, COLLECTIVES, DEVICES, TRACE,
    )
}  # fmt: skip
