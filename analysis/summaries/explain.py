"""Everything that is known of one kernel or op, with what it rests on.

A section for each question is plain data; it is None where the question does not arise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.costs import load_extensions
from pyprof2.analysis.costs.comm import bandwidth
from pyprof2.analysis.costs.formula_text import formula_text
from pyprof2.analysis.hardware.missed_tensor_cores import advice_on, missed_reasons
from pyprof2.analysis.hardware.verdict import examine, examine_ops
from pyprof2.analysis.linking.user_ranges import BORROWED
from pyprof2.analysis.summaries.roof_text import roof_of
from pyprof2.analysis.summaries.rows import is_engine, only_helps, op_calls
from pyprof2.errors import UsageError
from pyprof2.recording import code_column, int_column
from pyprof2.tables import KERNELS, OPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyprof2.analysis.hardware.verdict import Judged
    from pyprof2.analysis.intervals import Int

LINK_MEANINGS: Final = {
    "external_id": "the launch by correlation id; the op by the recorder's own id, and it encloses "
    "the launch",
    "correlation": "the launch by correlation id; the op is the innermost one on the launch's "
    "thread that encloses the launch",
    "range": "the op is the range around the launch",
    "graph": "a graph launch: the op is the one around the replay, if any",
    "self": "the row is the op itself",
    "none": "no op encloses the launch, or there is no launch in the recording",
}
"""How each kind of link was made."""

RANGE_MEANINGS: Final = (
    "your ranges that are open on its thread when it begins; of a kernel: when it is launched",
    "its thread never has a range of yours: these are open on the only thread that has one open",
)
"""How ranges were found: on the own thread; borrowed from another one."""

_LAUNCH: Final = ("launch_id", "name", "start_ns", "pid", "tid", "kernel_count")
_UNUSED: Final = (
    "rank", "pid", "tid", "depth", "forward_thread", "recorded_id", "stack_id", "graph_node_id",
)  # fmt: skip
_WORK_COLUMNS: Final = tuple(name for name in KERNELS.names if name not in _UNUSED)
EXPLAINED: Final = {
    "kernels": _WORK_COLUMNS,
    "copies": _WORK_COLUMNS,
    "launches": _LAUNCH,
    "ops": tuple(name for name in OPS.names if name == "rank" or name not in _UNUSED),
    **dict.fromkeys(("signatures", "estimates", "devices")),
}
"""The columns of the tables that an explanation rests on; None: all."""

_KERNEL: Final = (
    "kernel_id", "kernel", "category", "device", "device_name", "stream", "step", "start_ns",
    "dur_ns", "copy_kind", "grid", "block", "registers", "shared_bytes", "occupancy_pct",
)  # fmt: skip
_OP: Final = (
    "op_id", "op", "start_ns", "dur_ns", "self_ns", "step", "layer", "source",
    "library_source", "direction", "recompute", "sequence_nr", "category",
)  # fmt: skip
_ESTIMATE: Final = ("flops_formula", "flops_numbers", "bytes_read", "bytes_written")
_COUNTS: Final = ("flops", "bytes", "flops_lo", "flops_hi", "bytes_lo", "bytes_hi")
_NODE_NAME: Final = re.compile(r"\w*Backward\d*|.*CppNode<.*")
_REFERENCE: Final = re.compile(r"(kernel|op):(\d{1,18})")


class Reference(NamedTuple):
    """A row of table `kernels` or `copies`, or of `ops`."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.number}"


Facts: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True)
class Explanation:
    """What is known of one kernel or op.

    Attributes:
        reference: the row.
        kernel: what the profiler says of it.
        op: its op, and the ops around that.
        link: how the op was found.
        range: the user's own ranges around it.
        pair: its forward op, or its backward nodes.
        cost: the counts, and how they were made.
        communication: of a collective, its bandwidth.
        sharing: what each kernel of the op got of the counts.
        tensor_core: the verdicts.
        roof: what the roof is made of.
    """

    reference: str
    kernel: Facts | None
    op: Facts | None
    link: Facts | None
    range: Facts | None
    pair: Facts | None
    cost: Facts | None
    communication: Facts | None
    sharing: list[Facts] | None
    tensor_core: list[Facts] | None
    roof: Facts | None


@dataclass(frozen=True)
class _Ops:
    """The ops of one rank and how they belong together, by id."""

    table: pa.Table
    signatures: pa.Table
    parent: Int
    forward: Int
    nodes: Mapping[int, list[int]]

    @classmethod
    def of(cls, ops: pa.Table, signatures: pa.Table) -> _Ops:
        """Take the tables of one rank, in order of their ids."""
        parent, forward = (int_column(ops, name, -1) for name in ("parent_op_id", "forward_op_id"))
        codes, names = code_column(ops, "op")
        is_node = np.array([*(bool(_NODE_NAME.fullmatch(text)) for text in names), False])[codes]
        rows = np.flatnonzero(is_node & (forward >= 0))
        nodes: dict[int, list[int]] = {}
        for row, of in zip(rows.tolist(), forward[rows].tolist(), strict=True):
            nodes.setdefault(of, []).append(row)
        return cls(ops, signatures, parent, forward, nodes)

    def row(self, op: int) -> dict[str, Any]:
        """Return an op as it stands in its table."""
        return _first(self.table.slice(op, 1))

    def named(self, op: int) -> dict[str, Any]:
        """Return number and name of an op."""
        return {"op_id": op, "op": str(self.table["op"][op].as_py())}

    def signature(self, op: int) -> str | None:
        """Return an op with its inputs as text; None where these were not recorded."""
        number = self.table["signature_id"][op].as_py()
        text: str | None = None
        if number is not None:
            text = self.signatures["signature"][number].as_py()
        return text

    def around(self, op: int) -> Iterator[int]:
        """Give the op and those around it, the innermost first."""
        while op >= 0:
            yield op
            op = int(self.parent[op])

    def nodes_of(self, op: int) -> list[int]:
        """Return the autograd nodes whose forward op this is."""
        return self.nodes.get(op, [])


def parse_reference(text: str) -> Reference:
    """Return the row that `kernel:7` or `op:7` names.

    Raises:
        UsageError: it is neither.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        msg = f"{text!r}: no reference; give kernel:N or op:N, the row's kernel_id or op_id"
        raise UsageError(msg)
    return Reference(found[1], int(found[2]))


class _Places:
    """Where rows with a number stand in a table, found for many numbers by sorting once."""

    def __init__(self, table: pa.Table, column: str) -> None:
        numbers = int_column(table, column, -1)
        self._table, self._order = table, np.argsort(numbers, kind="stable")
        self._sorted = numbers[self._order]

    def rows(self, number: int) -> pa.Table:
        """Return the rows with this number, in their order."""
        first, last = np.searchsorted(self._sorted, [number, number + 1])
        return self._table.take(pa.array(self._order[first:last]))


class Explainer:
    """All that is known of the kernels, copies and ops of one rank; for many of them."""

    def __init__(self, tables: Mapping[str, pa.Table], override: Path | str | None = None) -> None:
        """Take the tables of a rank.

        Args:
            tables: the canonical tables `kernels`, `copies`, `launches`, `ops`, `estimates`,
                `signatures` and `devices`, each in order of its ids.
            override: a device's name, or a file that describes one, to use instead of the recorded.
        """
        load_extensions()
        self.tables = tables
        self.override = override
        self.ops = _Ops.of(self.tables["ops"], self.tables["signatures"])
        self.by_id = [_Places(self.tables[name], "kernel_id") for name in ("kernels", "copies")]
        self.by_owner = _Places(self.tables["kernels"], "cost_op_id")
        self.devices = self.tables["devices"].to_pylist()


def explain(
    tables: Mapping[str, pa.Table] | Explainer,
    reference: Reference,
    override: Path | str | None = None,
) -> Explanation:
    """Return all that is known of a kernel, a copy or an op.

    Args:
        tables: as for `Explainer`, or one, which is faster for many references.
        reference: the row.
        override: a device's name, or a file that describes one, to use instead of the recorded;
            what an `Explainer` was made with holds.

    Raises:
        UsageError: there is no such row, or `override` is no device.
    """
    known = tables if isinstance(tables, Explainer) else Explainer(tables, override)
    tables, ops = known.tables, known.ops
    row, op = _find(known, reference)
    owner = _owner(ops, op)
    shared, judged = _judge(known, row, owner)
    cost = _cost(ops, tables["estimates"], (op, owner), row)
    return Explanation(
        reference=str(reference),
        kernel=None if row is None else _kernel(_first(row)),
        op=None if op is None else _op(ops, op),
        link=None if row is None else _link(tables["launches"], _first(row)),
        range=_range(_first(tables["ops"].slice(op or 0, 1) if row is None else row)),
        pair=None if op is None else _pair(ops, op),
        cost=cost,
        communication=_communication(cost, shared),
        sharing=_sharing(shared, owner),
        tensor_core=_tensor_core(judged.table, row),
        roof=None if owner is None or _helps(row) else roof_of(judged),
    )


def _judge(known: Explainer, row: pa.Table | None, owner: int | None) -> tuple[pa.Table, Judged]:
    """Return the rows that share the counts, and what is said of them, or of the op itself."""
    tables, devices = known.tables, known.devices
    shared = tables["kernels"].slice(0, 0) if row is None else row
    if owner is not None:
        shared = known.by_owner.rows(owner)
    has_gpu = any(tables[name].num_rows for name in ("kernels", "copies"))
    if row is None and owner is not None and not has_gpu:
        one = op_calls(tables["ops"].slice(owner, 1), tables["signatures"])
        return shared, examine_ops(one, devices, known.override)
    return shared, examine(shared, devices, known.override)


def _find(known: Explainer, reference: Reference) -> tuple[pa.Table | None, int | None]:
    """Return the kernel or copy, and its op.

    Without GPU activity the rows of the profile are ops, and have a `kernel_id` too.
    """
    kind, number = reference
    tables = known.tables
    gpu = [tables[name] for name in ("kernels", "copies")]
    if kind == "kernel" and any(table.num_rows for table in gpu):
        for place in known.by_id:
            row = place.rows(number)
            if row.num_rows:
                return row, row["op_id"][0].as_py()
        raise _absent(reference, sum(table.num_rows for table in gpu))
    ops = np.arange(tables["ops"].num_rows)
    if kind == "kernel":
        ops = ops[~is_engine(tables["ops"]["op"])]
    if number >= len(ops):
        raise _absent(reference, len(ops))
    return None, int(ops[number])


def _absent(reference: Reference, count: int) -> UsageError:
    rows = f"{reference.kind}:0 to {reference.kind}:{count - 1}" if count else "no such rows"
    return UsageError(f"{reference}: not in the recording; there are {rows}")


def _owner(ops: _Ops, op: int | None) -> int | None:
    """Return the op that accounts for an op: itself, or the nearest one around that does."""
    if op is None:
        return None
    status, flops, nbytes = (ops.table[name] for name in ("cost_status", "flops", "bytes"))
    owner = next(outer for outer in ops.around(op) if status[outer].as_py() != "in_parent")
    # An op whose work the ops inside account for has a status, but no counts.
    return owner if flops[owner].is_valid or nbytes[owner].is_valid else None


def _first(table: pa.Table) -> dict[str, Any]:
    row: dict[str, Any] = table.slice(0, 1).to_pylist()[0]
    return row


def _kernel(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the profiler says of a kernel, of a copy its bytes too."""
    is_copy = row["copy_kind"] is not None or row["category"] in {"memcpy", "memset"}
    return _picked(row, (*_KERNEL, "bytes") if is_copy else _KERNEL)


def _picked(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _op(ops: _Ops, op: int) -> dict[str, Any]:
    return _picked(ops.row(op), _OP) | {
        "signature": ops.signature(op),
        "inside": [ops.named(outer) for outer in list(ops.around(op))[1:]],
    }


def _link(launches: pa.Table, row: Mapping[str, Any]) -> dict[str, Any]:
    launch = row["launch_id"]
    found = None if launch is None else _first(launches.slice(launch, 1))
    return {
        "link": row["link"],
        "meaning": LINK_MEANINGS.get(row["link"] or ""),
        "note": row["link_note"],
        "correlation_id": row["correlation_id"],
        "launch": None if found is None else _picked(found, _LAUNCH),
    }


def _range(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the user's own ranges around a kernel's launch or an op, and on whose thread."""
    if row["range"] is None:
        return None
    borrowed = BORROWED in (row["link_note"] or "")
    return {"range": row["range"], "borrowed": borrowed, "meaning": RANGE_MEANINGS[borrowed]}


def _pair(ops: _Ops, op: int) -> dict[str, Any]:
    """Return the forward op of an op in backward, and the nodes of an op in forward."""
    forward = int(ops.forward[op])
    nodes = next((found for outer in ops.around(op) if (found := ops.nodes_of(outer))), [])
    named = None
    if forward >= 0:
        fields = ("layer", "source", "sequence_nr")
        named = ops.named(forward) | _picked(ops.row(forward), fields)
    return {
        "sequence_nr": ops.row(op)["sequence_nr"],
        "forward": named,
        "backward": [ops.named(node) for node in nodes],
    }


def _cost(
    ops: _Ops,
    estimates: pa.Table,
    which: tuple[int | None, int | None],
    row: pa.Table | None,
) -> dict[str, Any] | None:
    """Return the counts of the op that accounts for the row, with how they were made."""
    op, owner = which
    if op is None:
        return None if row is None else _picked(_first(row), ("cost_status", "cost_note"))
    if owner is None and row is not None and _first(row)["link"] == "graph":
        # What a replay does has nothing to do with the op around its launch.
        return _picked(_first(row), ("cost_status", "cost_note"))
    of = op if owner is None else owner
    facts, formula = ops.row(of), formula_text(ops.named(of)["op"])
    estimate = facts["estimate_id"]
    found = {} if estimate is None else _first(estimates.slice(estimate, 1))
    shapes_op = facts["shapes_op_id"]
    other = None if shapes_op is None else ops.named(shapes_op)
    return _picked(facts, ("cost_status", "cost_note", "params", *_COUNTS, "shapes_from")) | {
        "of": ops.named(of),
        "formula": None if formula is None else formula._asdict(),
        **{name: found.get(name) for name in _ESTIMATE},
        "dtype": facts["compute_dtype"],
        "shapes_op": other and other | {"signature": ops.signature(shapes_op)},
        "counted_inside": [] if owner is not None else _counted_inside(ops, of),
    }


def _communication(cost: Mapping[str, Any] | None, shared: pa.Table) -> dict[str, Any] | None:
    """Return the bandwidth of a collective, over the time of all its kernels."""
    if cost is None or cost.get("bytes_read") is None or not shared.num_rows:
        return None
    time = shared["op_time_ns"][0].as_py() or 0
    found = bandwidth(cost["params"] or "", cost["bytes_read"], cost["bytes_written"], time)
    return None if found is None else found._asdict()


def _counted_inside(ops: _Ops, op: int) -> list[dict[str, Any]]:
    """Return the outermost ops inside an op that account for work of theirs."""
    found, todo = [], np.flatnonzero(ops.parent == op).tolist()
    counts = [int_column(ops.table, name, -1) for name in ("flops", "bytes")]
    counted = np.maximum(*counts) > 0
    while todo:
        inner = todo.pop(0)
        if counted[inner]:
            found.append(ops.named(inner))
        else:
            todo += np.flatnonzero(ops.parent == inner).tolist()
    return found


def _sharing(shared: pa.Table, owner: int | None) -> list[dict[str, Any]] | None:
    """Return what each kernel got of the op's counts, which go by time to those that work."""
    if owner is None or not shared.num_rows:
        return None
    names = ("kernel_id", "kernel_short", "op", "dur_ns", "cost_role", "flops", "bytes")
    return [_picked(row, names) for row in shared.to_pylist()]


def _helps(row: pa.Table | None) -> bool:
    """Say whether the row is a kernel that only helps: the op's rates and roof are not its own."""
    return row is not None and bool(only_helps(row).any())


def _tensor_core(judged: pa.Table, row: pa.Table | None) -> list[dict[str, Any]] | None:
    """Return the verdict of the kernel, or of all kernels of the op, once per name."""
    if row is not None:
        number = row["kernel_id"][0].as_py()
        judged = judged.filter(pc.equal(judged["kernel_id"], number))
    codes, reasons = missed_reasons(judged)
    names = judged["kernel"].cast(pa.string()).to_pylist()
    first = sorted({name: at for at, name in reversed(list(enumerate(names)))}.values())
    wanted = ("kernel_id", "kernel_short", "tensor_core", "tensor_core_eligible")
    found = []
    for at in first:
        facts = _first(judged.slice(at, 1))
        if facts["tensor_core"] is not None:
            missed = reasons[codes[at]] if codes[at] >= 0 else None
            found.append(
                _picked(facts, wanted)
                | {"evidence": facts["tensor_core_evidence"], "missed": missed}
                | {"advice": None if missed is None else advice_on(missed)}
            )
    return found or None
