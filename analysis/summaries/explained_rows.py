"""The rows that explanations rest on: few of many, found by their ids before they are read whole.

Only ids are read at once of a table with millions of rows. They say which rows a reference leads
to: the kernel, its launch, its op, the op that accounts for it, the kernels that share its counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.verdict import JUDGED
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.columns import short
from pyprof2.errors import UsageError
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import GRAPH_NODES, KERNELS, OPS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyprof2.analysis.intervals import Int

LAUNCH: Final = ("launch_id", "name", "start_ns", "pid", "tid", "kernel_count")
ESTIMATE: Final = ("flops_formula", "flops_numbers", "bytes_read", "bytes_written")
_UNUSED: Final = (
    "rank", "pid", "tid", "depth", "forward_thread", "recorded_id", "stack_id", "graph_node_id",
    *JUDGED,
)  # fmt: skip
_WORK: Final = tuple(name for name in KERNELS.names if name not in _UNUSED)
_OF_OPS: Final = tuple(name for name in OPS.names if name == "rank" or name not in _UNUSED)
_NODE_NAME: Final = re.compile(r"\w*Backward\d*|.*CppNode<.*")
_GPU: Final = ("kernels", "copies")


class Tables(Protocol):
    """The canonical tables of one rank."""

    def read(self, name: str, columns: Collection[str] | None = None) -> pa.Table:
        """Return columns of a table."""

    def rows(self, name: str, at: Int, columns: Collection[str]) -> pa.Table:
        """Return columns of the rows at ascending positions."""


class Reference(NamedTuple):
    """A row of table `kernels` or `copies`, or of `ops`."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


class RowPlace(NamedTuple):
    """Where a reference leads to.

    Attributes:
        table: `kernels` or `copies`, None for an op.
        row: the position there.
        op: of the row, or the op itself; None: no op is known.
    """

    table: str | None
    row: int
    op: int | None


class _Index:
    """Which rows have a number, found for many numbers by sorting once."""

    def __init__(self, numbers: Int) -> None:
        self._order = short(np.argsort(numbers, kind="stable"))
        self._sorted = numbers[self._order]

    def __getitem__(self, number: int) -> Int:
        """Return the rows with this number, in their order."""
        first, last = np.searchsorted(self._sorted, [number, number + 1])
        return self._order[first:last]


@dataclass(frozen=True)
class _Some:
    """Some rows of a table, by their positions in it, ascending."""

    at: Int
    table: pa.Table

    @classmethod
    def of(cls, tables: Tables, name: str, at: Collection[int], columns: Collection[str]) -> _Some:
        """Read rows of a table."""
        places = np.array(sorted(set(at)), np.int64)
        # In one chunk: to take rows out of many chunks is slow.
        return cls(places, tables.rows(name, places, columns).combine_chunks())

    def rows(self, at: Sequence[int] | Int) -> pa.Table:
        """Return the rows at some positions, all of which were read."""
        return self.table.take(pa.array(np.searchsorted(self.at, at)))

    def row(self, at: int) -> dict[str, Any]:
        """Return a row as plain values."""
        return self._plain[int(np.searchsorted(self.at, at))]

    @cached_property
    def _plain(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table.to_pylist()
        return found


class OpIds:
    """How the ops of one rank belong together, and what is short of each, by id.

    Attributes:
        parent, forward: the op around each, and its forward op; -1: none.
        count: how many there are.
    """

    def __init__(self, tables: Tables) -> None:
        """Read the ids, column by column: together they are many."""

        def column(name: str) -> pa.Table:
            pa.default_memory_pool().release_unused()  # of the column before
            return tables.read("ops", [name]).select([name])

        def numbers(name: str) -> Int:
            return short(int_column(column(name), name, -1))

        self.parent, self.forward = numbers("parent_op_id"), numbers("forward_op_id")
        self.count = len(self.parent)
        self._names, self._texts = code_column(column("op"), "op")
        self._signature = numbers("signature_id")
        self._signatures = tables.read("signatures", ["signature"])["signature"]
        self._is_inner = has_text(column("cost_status"), "cost_status", ("in_parent",))
        known, self._counts = np.zeros(self.count, bool), np.zeros(self.count, bool)
        for name in ("flops", "bytes"):
            count = int_column(column(name), name, -1)
            known |= count >= 0
            self._counts |= count > 0
        self._is_known = known

    @cached_property
    def _inside(self) -> _Index:
        return _Index(self.parent)

    @cached_property
    def _nodes(self) -> _Index:
        """The autograd nodes by their forward op."""
        is_node = np.array([*(bool(_NODE_NAME.fullmatch(text)) for text in self._texts), False])
        return _Index(np.where(is_node[self._names], self.forward, -1))

    @cached_property
    def calls(self) -> Int:
        """The ops that are rows of the profile where there is no GPU activity."""
        names = pa.DictionaryArray.from_arrays(pa.array(self._names), pa.array(self._texts))
        return np.flatnonzero(~is_engine(pa.chunked_array([names])))

    def named(self, op: int) -> dict[str, Any]:
        """Return number and name of an op."""
        return {"op_id": op, "op": self._texts[self._names[op]]}

    def signature(self, op: int) -> str | None:
        """Return an op with its inputs as text; None where these were not recorded."""
        number = int(self._signature[op])
        text: str | None = self._signatures[number].as_py() if number >= 0 else None
        return text

    def around(self, op: int) -> Iterator[int]:
        """Give the op and those around it, the innermost first."""
        while op >= 0:
            yield op
            op = int(self.parent[op])

    def nodes_of(self, op: int) -> list[int]:
        """Return the autograd nodes whose forward op this is."""
        found: list[int] = self._nodes[op].tolist()
        return found

    def owner(self, op: int | None) -> int | None:
        """Return the op that accounts for an op: itself, or the nearest one around that does."""
        if op is None:
            return None
        # Where the ops inside account for the work, none around does.
        owner = next((outer for outer in self.around(op) if not self._is_inner[outer]), None)
        return owner if owner is not None and self._is_known[owner] else None

    def counted_inside(self, op: int) -> list[dict[str, Any]]:
        """Return the outermost ops inside an op that account for work of theirs."""
        found, todo = [], self._inside[op].tolist()
        while todo:
            inner = todo.pop(0)
            if self._counts[inner]:
                found.append(self.named(inner))
            else:
                todo += self._inside[inner].tolist()
        return found


class Explained:
    """The rows of one rank that explanations of some references rest on.

    Attributes:
        ops: how all ops belong together.
        devices: the rows of table `devices`.
        has_gpu: whether devices did anything.
    """

    def __init__(self, tables: Tables, references: Collection[Reference]) -> None:
        """Read them.

        Args:
            tables: of the rank.
            references: the rows to explain.

        Raises:
            UsageError: there is no such row.
        """
        self.ops = OpIds(tables)
        self.devices: list[dict[str, Any]] = tables.read("devices").to_pylist()

        def numbers(name: str, column: str) -> Int:
            return short(int_column(tables.read(name, [column]), column, -1))

        self._id_of = {name: numbers(name, "kernel_id") for name in _GPU}
        self.has_gpu = any(map(len, self._id_of.values()))
        self._by_id = {name: _Index(each) for name, each in self._id_of.items()}
        self._op_of = {name: numbers(name, "op_id") for name in _GPU}
        self._by_owner = _Index(numbers("kernels", "cost_op_id"))
        self._call_of = numbers("kernels", "cost_call_id")
        self._by_call = _Index(self._call_of)
        self._places = {reference: self._find(reference) for reference in references}
        self._kernel_ids = {place: self._kernel_id(place) for place in self._places.values()}
        parts = tables.read("kernel_parts")
        wanted = pa.array(list(self._kernel_ids.values()), pa.int64())
        self._parts = parts.filter(pc.is_in(parts["kernel_id"], wanted))
        self._read(tables)

    def _kernel_id(self, place: RowPlace) -> int:
        """Return the number of the row of the profile at a place, -1 for none."""
        if place.table is not None:
            return int(self._id_of[place.table][place.row])
        row = np.searchsorted(self.ops.calls, place.op or 0)
        is_row = not self.has_gpu and row < len(self.ops.calls)
        return int(row) if is_row and self.ops.calls[row] == place.op else -1

    def place(self, reference: Reference) -> RowPlace:
        """Return where a reference leads to."""
        return self._places[reference]

    def _read(self, tables: Tables) -> None:
        places = set(self._places.values())
        ops = {place.op for place in places if place.op is not None}
        owners = {owner for op in ops if (owner := self.ops.owner(op)) is not None}
        at = {name: {p.row for p in places if p.table == name} for name in _GPU}
        at["kernels"].update(*(self._by_owner[owner].tolist() for owner in owners))
        calls = {int(self._call_of[row]) for row in list(at["kernels"])} - {-1}
        at["kernels"].update(*(self._by_call[call].tolist() for call in calls))
        self._work = {name: _Some.of(tables, name, at[name], _WORK) for name in _GPU}
        forward = {int(self.ops.forward[op]) for op in ops} - {-1}
        self._ops = _Some.of(tables, "ops", ops | owners | forward, _OF_OPS)
        nodes = set().union(*(_numbers(some.table, "graph_node") for some in self._work.values()))
        self._nodes = _Some.of(tables, "graph_nodes", nodes, GRAPH_NODES.names)
        launches = set().union(*(_numbers(some.table, "launch_id") for some in self._work.values()))
        self._launches = _Some.of(tables, "launches", launches, LAUNCH)
        estimates = _numbers(self._ops.table, "estimate_id")
        self._estimates = _Some.of(tables, "estimates", estimates, ESTIMATE)

    def _find(self, reference: Reference) -> RowPlace:
        """Return where a reference leads to.

        Without GPU activity the rows of the profile are ops, and have a `kernel_id` too.
        """
        kind, number = reference
        if kind == "kernel" and self.has_gpu:
            for name in _GPU:
                for row in self._by_id[name][number].tolist()[:1]:
                    op = int(self._op_of[name][row])
                    return RowPlace(name, row, op if op >= 0 else None)
            raise _absent(reference, sum(map(len, self._id_of.values())))
        ops = self.ops.calls if kind == "kernel" else range(self.ops.count)
        if number >= len(ops):
            raise _absent(reference, len(ops))
        return RowPlace(None, -1, int(ops[number]))

    def parts(self, place: RowPlace) -> list[dict[str, Any]]:
        """Return the nodes of a compiled graph that a row does the work of."""
        number = self._kernel_ids.get(place, -1)
        rows = self._parts.filter(pc.equal(self._parts["kernel_id"], number))
        found: list[dict[str, Any]] = rows.drop_columns(["rank", "span", "kernel_id"]).to_pylist()
        return found

    def work(self, place: RowPlace) -> pa.Table | None:
        """Return the kernel or copy of a place, as a table; None for an op."""
        return None if place.table is None else self._work[place.table].rows([place.row])

    def no_work(self) -> pa.Table:
        """Return table `kernels` without rows."""
        return self._work["kernels"].rows([])

    def sharing(self, owner: int) -> pa.Table:
        """Return the kernels that share the counts of an op, in their order."""
        return self._work["kernels"].rows(self._by_owner[owner])

    def of_call(self, call: int) -> pa.Table:
        """Return the kernels that share the counts of an op's call in a replay, in their order."""
        return self._work["kernels"].rows(self._by_call[call])

    def node(self, node: int) -> dict[str, Any]:
        """Return what is known of a node of a graph."""
        return self._nodes.row(node)

    def op(self, op: int) -> dict[str, Any]:
        """Return an op as it stands in its table."""
        return self._ops.row(op)

    def op_table(self, op: int) -> tuple[pa.Table, pa.Table]:
        """Return an op as a table, and its signature as the only one of another."""
        row = self._ops.rows([op])
        at = row.column_names.index("signature_id")
        number = pa.array([None if self.ops.signature(op) is None else 0], pa.int64())
        signatures = pa.table({"signature": pa.array([self.ops.signature(op)], pa.string())})
        return row.set_column(at, "signature_id", number), signatures

    def launch(self, launch: int) -> dict[str, Any]:
        """Return a launch."""
        return self._launches.row(launch)

    def estimate(self, estimate: int | None) -> dict[str, Any]:
        """Return how the counts of an op came about; empty: that is not known."""
        return {} if estimate is None else self._estimates.row(estimate)


def _numbers(table: pa.Table, column: str) -> set[int]:
    numbers: list[int] = table[column].drop_null().unique().to_pylist()
    return set(numbers)


def _absent(reference: Reference, count: int) -> UsageError:
    rows = f"{reference.kind}:0 to {reference.kind}:{count - 1}" if count else "no such rows"
    return UsageError(f"{reference}: not in the recording; there are {rows}")
