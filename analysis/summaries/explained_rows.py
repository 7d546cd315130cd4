"""The rows that explanations rest on: few of many, found by their ids before they are read whole.

Of ids only the parts are read that may hold one that is asked for. They say which rows a
reference leads to: the kernel, its launch, its op, the op that accounts for it, the kernels that
share its counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.verdict import JUDGED
from pyprof2.analysis.summaries.rows import is_engine
from pyprof2.errors import UsageError
from pyprof2.tables import GRAPH_NODES, KERNELS, OPS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyprof2.analysis.chunked import ChunkedTable
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

    def parts(self, name: str) -> ChunkedTable:
        """Return a table whose rows are read part by part."""


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


class _Columns:
    """The columns of a table, of which no more parts are read than hold what is asked for."""

    def __init__(self, tables: Tables, name: str) -> None:
        self._parts = tables.parts(name)
        self.count = self._parts.row_count
        self._read = cache(lambda part, column: self._parts.read(part, [column])[column])
        self._numbers = cache(lambda *part: self._read(*part).fill_null(-1).to_numpy())
        self._bounds = cache(self._parts.bounds)

    def at(self, column: str, row: int) -> Any:
        """Return the value of a row."""
        part = int(np.searchsorted(self._parts.offsets, row, "right")) - 1
        return self._read(part, column)[row - int(self._parts.offsets[part])].as_py()

    def where(self, column: str, number: int) -> list[int]:
        """Return the rows with a number, in their order."""
        least, most = self._bounds(column)
        found: list[int] = []
        for part in np.flatnonzero((least <= number) & (number <= most)).tolist():
            rows = np.flatnonzero(self._numbers(part, column) == number)
            found += (rows + self._parts.offsets[part]).tolist()
        return found

    def all(self, column: str) -> pa.ChunkedArray:
        """Return the whole column."""
        parts = range(len(self._parts))
        return pa.chunked_array([c for part in parts for c in self._read(part, column).chunks])


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
        count: how many there are.
    """

    def __init__(self, tables: Tables) -> None:
        self._ops = _Columns(tables, "ops")
        self.count = self._ops.count
        self._signatures = _Columns(tables, "signatures")

    def forward(self, op: int) -> int | None:
        """Return the forward op of an op."""
        found: int | None = self._ops.at("forward_op_id", op)
        return found

    @cached_property
    def calls(self) -> Int:
        """The ops that are rows of the profile where there is no GPU activity."""
        return np.flatnonzero(~is_engine(self._ops.all("op")))

    def named(self, op: int) -> dict[str, Any]:
        """Return number and name of an op."""
        return {"op_id": op, "op": self._ops.at("op", op)}

    def signature(self, op: int) -> str | None:
        """Return an op with its inputs as text; None where these were not recorded."""
        number = self._ops.at("signature_id", op)
        return None if number is None else self._signatures.at("signature", number)

    def around(self, op: int) -> Iterator[int]:
        """Give the op and those around it, the innermost first."""
        while op is not None:
            yield op
            op = self._ops.at("parent_op_id", op)

    def nodes_of(self, op: int) -> list[int]:
        """Return the autograd nodes whose forward op this is."""
        found = self._ops.where("forward_op_id", op)
        return [node for node in found if _NODE_NAME.fullmatch(self._ops.at("op", node))]

    def owner(self, op: int | None) -> int | None:
        """Return the op that accounts for an op: itself, or the nearest one around that does."""
        if op is None:
            return None
        # Where the ops inside account for the work, none around does.
        status = partial(self._ops.at, "cost_status")
        owner = next((outer for outer in self.around(op) if status(outer) != "in_parent"), None)
        return owner if owner is not None and self._most_counted(owner) >= 0 else None

    def _most_counted(self, op: int) -> int:
        """Return the greater one of the counts of an op; -1: it has none."""
        counts = (self._ops.at(name, op) for name in ("flops", "bytes"))
        return max(-1 if count is None else count for count in counts)

    def counted_inside(self, op: int) -> list[dict[str, Any]]:
        """Return the outermost ops inside an op that account for work of theirs."""
        found, todo = [], self._ops.where("parent_op_id", op)
        while todo:
            inner = todo.pop(0)
            if self._most_counted(inner) > 0:
                found.append(self.named(inner))
            else:
                todo += self._ops.where("parent_op_id", inner)
        return found


class Explained:
    """The rows of one rank that explanations of some references rest on.

    Attributes:
        ops: how all ops belong together.
        devices: the rows of table `devices`.
        has_gpu: whether devices did anything.
        places: where references lead to.
        nodes, launches: rows of the tables `graph_nodes` and `launches`.
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
        self._gpu = {name: _Columns(tables, name) for name in _GPU}
        self.has_gpu = any(each.count for each in self._gpu.values())
        self.places = {reference: self._find(reference) for reference in references}
        self._kernel_ids = {place: self._kernel_id(place) for place in self.places.values()}
        parts = tables.read("kernel_parts")
        wanted = pa.array(list(self._kernel_ids.values()), pa.int64())
        self._parts = parts.filter(pc.is_in(parts["kernel_id"], wanted))
        self._read(tables)

    def _kernel_id(self, place: RowPlace) -> int:
        """Return the number of the row of the profile at a place, -1 for none."""
        if place.table is not None:
            number: int = self._gpu[place.table].at("kernel_id", place.row)
            return number
        if self.has_gpu:
            return -1
        row = int(np.searchsorted(self.ops.calls, place.op or 0))
        return row if place.op in self.ops.calls[row : row + 1] else -1

    def _read(self, tables: Tables) -> None:
        places = set(self.places.values())
        ops = {place.op for place in places if place.op is not None}
        owners = {owner for op in ops if (owner := self.ops.owner(op)) is not None}
        self._shared = {place: self._sharing(place) for place in self._kernel_ids}
        at = {name: {p.row for p in places if p.table == name} for name in _GPU}
        for name, rows in self._shared.values():
            at[name].update(rows)
        self._work = {name: _Some.of(tables, name, at[name], _WORK) for name in _GPU}
        forward = {each for op in ops if (each := self.ops.forward(op)) is not None}
        self._ops = _Some.of(tables, "ops", ops | owners | forward, _OF_OPS)
        nodes = set().union(*(_numbers(some.table, "graph_node") for some in self._work.values()))
        self.nodes = _Some.of(tables, "graph_nodes", nodes, GRAPH_NODES.names)
        launches = set().union(*(_numbers(some.table, "launch_id") for some in self._work.values()))
        self.launches = _Some.of(tables, "launches", launches, LAUNCH)
        estimates = _numbers(self._ops.table, "estimate_id")
        self._estimates = _Some.of(tables, "estimates", estimates, ESTIMATE)

    def _find(self, reference: Reference) -> RowPlace:
        """Return where a reference leads to.

        Without GPU activity the rows of the profile are ops, and have a `kernel_id` too.
        """
        kind, number = reference
        if kind == "kernel" and self.has_gpu:
            for name, columns in self._gpu.items():
                for row in columns.where("kernel_id", number)[:1]:
                    return RowPlace(name, row, columns.at("op_id", row))
            raise _absent(reference, sum(each.count for each in self._gpu.values()))
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

    @cached_property
    def activities(self) -> dict[RowPlace, dict[str, Any]]:
        """The kernels and copies of places."""
        found: dict[RowPlace, dict[str, Any]] = {}
        for name, some in self._work.items():
            own = [place for place in self._kernel_ids if place.table == name]
            found |= zip(own, some.rows([place.row for place in own]).to_pylist(), strict=True)
        return found

    def sets(self) -> tuple[pa.Table, Int, dict[RowPlace, slice]]:
        """Return the rows that share counts, set by set, the set of each, and those of places."""
        first = {"kernels": 0, "copies": len(self._work["kernels"].at)}
        of = {
            place: tuple((first[name] + np.searchsorted(self._work[name].at, rows)).tolist())
            for place, (name, rows) in self._shared.items()
        }
        sets = list(dict.fromkeys(of.values()))
        ends = np.cumsum([0, *map(len, sets)])
        slices = {own: slice(*ends[at : at + 2].tolist()) for at, own in enumerate(sets)}
        every = pa.concat_tables([some.table for some in self._work.values()])
        rows = every.unify_dictionaries().combine_chunks().take(pa.array(chain(*sets), pa.int64()))
        which = np.repeat(np.arange(len(sets)), np.diff(ends))
        return rows, which, {place: slices[own] for place, own in of.items()}

    def _sharing(self, place: RowPlace) -> tuple[str, list[int]]:
        """Return the table and the rows of it that share the counts of a place.

        They are the kernels of an op's call in a replay, or of the op that accounts for the row; a
        row without either is alone, and so are copies.
        """
        owner, kernels = self.ops.owner(place.op), self._gpu["kernels"]
        if place.table is not None:
            call = self._gpu[place.table].at("cost_call_id", place.row)
            if call is not None:
                return "kernels", kernels.where("cost_call_id", call)
        if owner is not None:
            return "kernels", kernels.where("cost_op_id", owner)
        return place.table or "kernels", [place.row][: place.table is not None]

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

    def estimate(self, estimate: int | None) -> dict[str, Any]:
        """Return how the counts of an op came about; empty: that is not known."""
        return {} if estimate is None else self._estimates.row(estimate)


def _numbers(table: pa.Table, column: str) -> set[int]:
    numbers: list[int] = table[column].drop_null().unique().to_pylist()
    return set(numbers)


def _absent(reference: Reference, count: int) -> UsageError:
    rows = f"{reference.kind}:0 to {reference.kind}:{count - 1}" if count else "no such rows"
    return UsageError(f"{reference}: not in the recording; there are {rows}")
