"""The members of a rank: its part in every collective, as either profiler recorded it.

A member is keyed by its kernel. One without kernel, as with gloo, is keyed by its outermost op; on
a rank that ran communication kernels, an op without one was either of a group of one rank, or its
kernel is not in the recording. Rows inside one another (`c10d::allreduce_`,
`record_param_comms`, `nccl:all_reduce`) are one member.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.hardware.kernel_names import elements_of
from pyprof2.analysis.intervals import Nest
from pyprof2.analysis.job.collective_calls import DescribedCall, describe, together, with_range
from pyprof2.analysis.job.collective_rows import (
    RANGE_WORDS,
    is_collective_op,
    is_comm_op,
    kind_of,
    transport_of,
)
from pyprof2.analysis.job.members import (
    markers_of_ops,
    on_workers,
    ops_around,
    with_group_keys,
    with_markers,
)
from pyprof2.columns import lookup, row_of
from pyprof2.recording import code_column, int_column
from pyprof2.tables import COLLECTIVES, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyprof2.analysis.intervals import Int
    from pyprof2.markers import Marker
    from pyprof2.tables import Table

FOUND: Final = (
    "instance_id", "members_recorded", "wait_ns", "transfer_ns", "last_rank", "margin_ns", "match",
    "match_note",
)  # fmt: skip
"""The columns of table `collectives` that are found from all ranks."""

_KEYS: Final = ("collective_id", "rank", "start_ns", "dur_ns")
_DEPTH_MAX: Final = 64
_TAKEN: Final = ("step", "layer", "source", "direction")
_WHOLE: Final = {column.name for column in COLLECTIVES.columns if column.type == pa.int64()}


def collectives_of_rank(tables: Mapping[str, pa.Table], rank: int) -> pa.Table:
    """Return the table `collectives` of a rank, without the columns that need the other ranks.

    Args:
        tables: the columns `INPUT` of the rank's canonical tables.
        rank: its number.
    """
    ops = _CommOps(tables["ops"], tables["signatures"], tables["ranges"], rank)
    if not ops.communicate and not pc.any(_is_comm(tables["kernels"])).as_py():
        return COLLECTIVES.empty()
    markers = ops.markers(tables["ranges"])
    chosen = tables["kernels"].filter(_is_comm(tables["kernels"])).drop_columns(["category"])
    kernels = chosen.to_pandas(types_mapper=_nullable)
    texts = ("kernel_short", "device_type", *_TAKEN[1:])
    kernels = kernels.astype(dict.fromkeys(texts, object))
    frame = _members_of_kernels(kernels, ops, tables["ranges"], markers)
    alone = ops.without_kernel(frame)
    of_ops = on_workers(_members_of_ops(alone, ops, markers), tables["ranges"], ops.said_by_ranges)
    frame = pd.concat([frame, of_ops], ignore_index=True)
    frame = frame.sort_values(["start_ns", "dur_ns"], ascending=[True, False], kind="stable")
    frame = with_group_keys(frame.reset_index(drop=True))
    frame.insert(0, "collective_id", np.arange(len(frame)))
    return as_table(COLLECTIVES, frame.assign(rank=rank, span=0))


def as_table(table: Table, frame: pd.DataFrame) -> pa.Table:
    """Return a frame as a table of the store; columns that it lacks are null."""
    arrays = {}
    for column in table.columns:
        if column.name not in frame:
            continue
        values = frame[column.name].to_numpy(object)
        kind = pa.string() if column.type == TEXT else column.type
        found = pa.array(
            [
                None if v is None or v is pd.NA or (isinstance(v, float) and np.isnan(v)) else v
                for v in values
            ],
            kind,
        )
        arrays[column.name] = found.dictionary_encode() if column.type == TEXT else found
    return table.conform(pa.table(arrays))


def with_found(own: pa.Table, members: pd.DataFrame) -> pa.Table:
    """Return a rank's table `collectives` with the columns `FOUND`.

    Args:
        own: the table, in the order of `collective_id`.
        members: the rows of the rank as `reduce_job` returns them.
    """
    rows = members.sort_values("collective_id")
    # The span is known to the table itself.
    found = as_table(COLLECTIVES, rows[[*_KEYS, *FOUND]].assign(span=0))
    for name in FOUND:
        at = own.column_names.index(name)
        own = own.set_column(at, own.schema.field(at), found[name])
    return own


def _is_comm(kernels: pa.Table) -> pa.ChunkedArray:
    return pc.equal(kernels["category"].cast(pa.string()), "comm")


def _nullable(kind: pa.DataType) -> Any:
    return {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}.get(kind)


class _CommOps:
    """The ops of a rank that communicate, and the description of each.

    Attributes:
        frame: of all ops, by position.
        outer: of each op, the outermost one around it that communicates, or -1.
        described: of each outermost op, the ops inside that have a signature.
    """

    def __init__(self, ops: pa.Table, signatures: pa.Table, ranges: pa.Table, rank: int) -> None:
        self.table = ops
        self._id = int_column(ops, "op_id", -1)
        self._parent = row_of(self._id, int_column(ops, "parent_op_id", -1))
        self._code, self._names = code_column(ops, "op")
        self._comm, self._collective = (
            np.array([*map(test, self._names), False])[self._code]
            for test in (is_comm_op, is_collective_op)
        )
        self._said = _Descriptions(signatures, rank)
        self._signature = int_column(ops, "signature_id", -1)
        own = np.flatnonzero(self._comm)
        self.outer = self._outermost(own)
        self.described: dict[int, list[int]] = {}
        for row in own[self._signature[own] >= 0].tolist():
            self.described.setdefault(int(self.outer[row]), []).append(row)
        self._called = _CalledRanges.of(ranges, self._said)
        self._ranges_in: dict[int, list[DescribedCall]] = {}
        around = ops_around(self._called.rows, ops, own)
        for at, outer in enumerate(lookup(self.outer, around, -1).tolist()):
            self._ranges_in.setdefault(outer, []).append(self._called.says[at])

    @property
    def communicate(self) -> bool:
        """Whether any of them does."""
        return bool(self._comm.any())

    def _outermost(self, rows: Int) -> Int:
        """Return the outermost op that communicates, by position, for these ops; else -1."""
        found = np.full(len(self._id), -1, np.int64)
        at, best = rows.copy(), rows.copy()
        for _ in range(_DEPTH_MAX):
            at = np.where(at >= 0, self._parent[at], -1)
            if not (at >= 0).any():
                break
            best = np.where((at >= 0) & self._comm[at], at, best)
        found[rows] = best
        return found

    def positions(self, op_ids: Int) -> Int:
        """Return for ops by id the outermost one around them that communicates, or -1."""
        at = row_of(self._id, op_ids)
        for _ in range(_DEPTH_MAX):
            inside = (at >= 0) & (lookup(self._comm, at, 1) == 0)
            if not inside.any():
                break
            at = np.where(inside, lookup(self._parent, at, -1), at)
        return lookup(self.outer, at, -1)

    def said(self, outer: int, elements: Sequence[str] = ()) -> tuple[DescribedCall, int]:
        """Return the best description of an outermost op, and the position of the op it is of.

        Args:
            outer: its position.
            elements: the element type that its kernel names.
        """
        rows = self.described.get(outer, ())
        found = [(self._said[int(self._signature[row]), *elements], row) for row in rows]
        best = next((each for each in found if each[0].is_recorded), None)
        best = best or next((each for each in found if each[0].bytes_source), None)
        said, row = best or next(iter(found), (DescribedCall(), outer))
        return with_range(said, self._names[self._code[outer]], self._ranges_in.get(outer, ())), row

    def said_around(self, kernels: pd.DataFrame, rows: Int) -> dict[int, DescribedCall]:
        """Return, for kernels launched outside of ops, what the range around their launch says.

        A range around the launches of several kernels is left out.
        """
        if not len(rows) or not self._called.says:
            return {}
        chosen = kernels.iloc[rows]
        thread, time = (chosen[c].fillna(-2).to_numpy(np.int64) for c in ("tid", "launch_ns"))
        found = self._called.around(thread, time)
        alone = (found >= 0) & (np.bincount(found + 1, minlength=1)[found + 1] == 1)
        pairs = zip(rows[alone].tolist(), found[alone].tolist(), strict=True)
        return {row: self._called.says[at] for row, at in pairs}

    def recorded_without(self, used: Int) -> Int:
        """Return the outermost ops beside `used` that the recorder describes, of several ranks."""
        rest = np.setdiff1d(np.array(sorted(self.described), np.int64), used)
        said = [self.said(row)[0] for row in rest.tolist()]
        keep = [each.is_recorded and each.kind != "other" and each.size != 1 for each in said]
        found: Int = rest[np.array(keep, bool)]
        return found

    @property
    def said_by_ranges(self) -> dict[int, DescribedCall]:
        """The descriptions by PyTorch's ranges that were called with tensors, by their rows."""
        return dict(zip(self._called.places.tolist(), self._called.says, strict=True))

    def markers(self, ranges: pa.Table) -> dict[int, list[Marker]]:
        """Return the markers of our annotation inside of each outermost op."""
        found: dict[int, list[Marker]] = {}
        inside = markers_of_ops(ranges, self.table, np.flatnonzero(self._comm))
        for row in sorted(inside):  # by position: in order of time
            found.setdefault(int(self.outer[row]), []).extend(inside[row])
        return found

    def column(self, name: str, rows: Int) -> list[Any]:
        """Return the values of a column at these positions; None at -1."""
        taken: list[Any] = self.table[name].take(pa.array(rows, mask=rows < 0)).to_pylist()
        return taken

    def without_kernel(self, members: pd.DataFrame) -> Int:
        """Return the outermost collectives that no member of a kernel has.

        Where kernels communicate, only those of groups of one rank: the kernels of the others are
        not in the recording.
        """
        outermost = np.flatnonzero((self.outer == np.arange(len(self.outer))) & self._comm)
        used = row_of(self._id, members["op_id"].fillna(-1).to_numpy(np.int64))
        chosen = outermost[~np.isin(outermost, used)]
        keep = []
        has_kernels = len(members) > 0
        has_gloo = any(name.startswith("gloo:") for name in self._names)
        for row in chosen.tolist():
            said, _ = self.said(row)
            name = self._names[self._code[row]]
            is_own = bool(self._collective[row]) or said.kind not in (None, "other")
            of_worker = has_gloo and not name.startswith("gloo:")
            keep.append(is_own and (said.size == 1 or not (has_kernels or of_worker)))
        found: Int = chosen[np.array(keep, bool)]
        return found


@dataclass(frozen=True)
class _CalledRanges:
    """PyTorch's own ranges of collectives whose inputs were recorded.

    Attributes:
        places: of table `ranges`, the rows that they are.
        rows: these.
        says: the description of each, with its kind.
    """

    places: Int
    rows: pa.Table
    says: list[DescribedCall]

    @classmethod
    def of(cls, ranges: pa.Table, said: _Descriptions) -> _CalledRanges:
        """Return those among the ranges of a rank."""
        signature = int_column(ranges, "signature_id", -1)
        code, names = code_column(ranges, "name")
        kinds = [kind_of(name) if is_comm_op(name) else None for name in names]
        has_kind = np.array([*(kind is not None for kind in kinds), False])[code]
        chosen = np.flatnonzero(has_kind & (signature >= 0))
        pairs = zip(signature[chosen].tolist(), code[chosen].tolist(), strict=True)
        says = [replace(said[number,], kind=kinds[name]) for number, name in pairs]
        return cls(chosen, ranges.take(pa.array(chosen)), says)

    def around(self, thread: Int, time: Int) -> Int:
        """Return the position of the innermost range around each time on a thread; -1: none."""
        start, dur, own = (int_column(self.rows, c, -1) for c in ("start_ns", "dur_ns", "tid"))
        found: Int = Nest.of(own, start, start + dur).innermost(thread, time)
        return found


class _Descriptions(dict[tuple[Any, ...], DescribedCall]):
    """The description by each distinct signature and element types, found when first asked for."""

    def __init__(self, signatures: pa.Table, rank: int) -> None:
        self._rank = rank
        columns = (signatures[name].to_pylist() for name in ("signature_id", "op", "inputs"))
        self._texts = {key: texts for key, *texts in zip(*columns, strict=True)}

    def __missing__(self, key: tuple[Any, ...]) -> DescribedCall:
        signature, *elements = key
        op, inputs = self._texts[signature]
        found = self[key] = describe(op, inputs, self._rank, elements)
        return found


def _members_of_kernels(
    kernels: pd.DataFrame, ops: _CommOps, ranges: pa.Table, markers: Mapping[int, list[Marker]]
) -> pd.DataFrame:
    at = ops.positions(kernels["op_id"].fillna(-1).to_numpy(np.int64))
    calls = _coalesced(kernels, at, ops)
    at[list(calls)] = [rows[0] for rows in calls.values()]
    by_range = _ranges_around(kernels, ranges)
    shorts = kernels["kernel_short"].tolist()
    elements = [elements_of(short or "") for short in shorts]
    says = [
        ops.said(row, own) if row >= 0 else (DescribedCall(), -1)
        for row, own in zip(at.tolist(), elements, strict=True)
    ]
    for row, said in ops.said_around(kernels, np.flatnonzero(at < 0)).items():
        says[row] = said, -1
    for row, several in calls.items():
        says[row] = together([ops.said(each)[0] for each in several]), says[row][1]
    names = ops.column("op", at)
    kinds = [
        said.kind or kind_of(name or "") or kind_of(around or "") or kind_of(short) or "other"
        for (said, _), name, around, short in zip(says, names, by_range, shorts, strict=True)
    ]
    types = kernels["device_type"].tolist()
    carried = [
        transport_of(short or "") or transport_of(name or "")
        for short, name in zip(shorts, names, strict=True)
    ]
    carried = [
        "rccl" if word == "nccl" and kind == "hip" else word
        for word, kind in zip(carried, types, strict=True)
    ]
    frame = kernels.rename(columns={"launch_ns": "issued_ns"}).drop(columns="op_id")
    frame = frame.assign(
        kind=pd.Series(kinds, dtype=object),
        op=pd.Series(names, dtype=object),
        op_id=pd.array(ops.column("op_id", at), "Int64"),
        seq=pd.array(ops.column("comm_seq", np.array([row for _, row in says], np.int64)), "Int64"),
        coalesced=[len(calls.get(row, (0,))) for row in range(len(kernels))],
        transport=pd.Series(carried, dtype=object),
    )
    frame = _with_descriptions(frame, [said for said, _ in says])
    frame = _typed(with_markers(frame, at, markers))
    return _share_bytes(frame).drop(columns=["kernel_short", "device_type", "pid", "tid"])


def _coalesced(kernels: pd.DataFrame, at: Int, ops: _CommOps) -> dict[int, list[int]]:
    """Return for kernels outside of collectives the calls that they carry out, by position.

    NCCL launches the calls of one of its groups together at its end: those without a kernel of
    their own, on the same thread, between the launch of the kernel before and this one.
    """
    missing = np.flatnonzero((at < 0) & kernels["launch_ns"].notna().to_numpy())
    waiting = ops.recorded_without(at)
    if not len(missing) or not len(waiting):
        return {}
    start, tid = (int_column(ops.table, name, -1)[waiting] for name in ("start_ns", "tid"))
    launch, thread = (kernels[name].fillna(-1).to_numpy(np.int64) for name in ("launch_ns", "tid"))
    order, found = np.sort(launch), {}
    for row in missing.tolist():
        place = np.searchsorted(order, launch[row]) - 1
        since = order[place] if place >= 0 else -1
        inside = (tid == thread[row]) & (start < launch[row]) & (start > since)
        if inside.any():
            found[row] = waiting[inside].tolist()
    return found


def _ranges_around(kernels: pd.DataFrame, ranges: pa.Table) -> list[str | None]:
    """Return the innermost range of NCCL's own around each launch."""
    code, names = code_column(ranges, "name")
    own = np.array([*(bool(RANGE_WORDS.search(name)) for name in names), False])
    chosen = ranges.filter(pa.array(own[code]))
    if not chosen.num_rows or not len(kernels):
        return [None] * len(kernels)
    start = int_column(chosen, "start_ns", 0)
    tid = int_column(chosen, "tid", -1)
    nest = Nest.of(tid, start, start + int_column(chosen, "dur_ns", 0))
    thread, time = (kernels[c].fillna(-2).to_numpy(np.int64) for c in ("tid", "launch_ns"))
    found = nest.innermost(thread, time)
    words: list[str | None] = chosen["name"].take(pa.array(found, mask=found < 0)).to_pylist()
    return [None if word is None or word.endswith("GroupEnd") else word for word in words]


def _members_of_ops(rows: Int, ops: _CommOps, markers: Mapping[int, list[Marker]]) -> pd.DataFrame:
    says = [ops.said(row) for row in rows.tolist()]
    names = ops.column("op", rows)
    frame = pd.DataFrame(
        {
            "op": names,
            "op_id": pd.array(ops.column("op_id", rows), "Int64"),
            "start_ns": ops.column("start_ns", rows),
            "dur_ns": ops.column("dur_ns", rows),
            "issued_ns": ops.column("start_ns", rows),
            "kind": [
                said.kind or kind_of(name) or "other"
                for (said, _), name in zip(says, names, strict=True)
            ],
            "transport": [transport_of(name) for name in names],
            "seq": ops.column("comm_seq", np.array([row for _, row in says], np.int64)),
            "coalesced": 1,
        }
        | {name: ops.column(name, rows) for name in _TAKEN}
    )
    frame = _with_descriptions(frame, [said for said, _ in says])
    return _typed(with_markers(frame, rows, markers))


_SAID: Final[Mapping[str, Callable[[DescribedCall], Any]]] = {
    "group_name": lambda d: d.name,
    "group_desc": lambda d: d.desc,
    "group_size": lambda d: d.size,
    "group_ranks": lambda d: None if d.ranks is None else list(d.ranks),
    "in_bytes": lambda d: d.in_bytes,
    "out_bytes": lambda d: d.out_bytes,
    "send_bytes_to_others": lambda d: d.sent,
    "recv_bytes_from_others": lambda d: d.received,
    "dtype": lambda d: d.dtype,
    "uneven": lambda d: d.uneven,
    "root": lambda d: d.root,
    "peer": lambda d: d.peer,
    "asynchronous": lambda d: d.asynchronous,
    "bytes_source": lambda d: d.bytes_source,
    "bytes_note": lambda d: d.note,
}
_COUNTS: Final = ("in_bytes", "out_bytes", "send_bytes_to_others", "recv_bytes_from_others")


def _with_descriptions(frame: pd.DataFrame, says: list[DescribedCall]) -> pd.DataFrame:
    columns = {
        name: pd.Series([read(d) for d in says], dtype=object) for name, read in _SAID.items()
    }
    frame = frame.reset_index(drop=True).assign(**columns)
    source = frame["seq"].notna().map({True: "recorded", False: None})
    return frame.assign(seq_source=source.astype(object))


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Return whole numbers as such: floats would round times."""
    for name in _WHOLE & set(frame):
        frame[name] = pd.array(list(frame[name]), "Int64")
    return frame


def _share_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each kernel of an op that split into several its share, by duration; sums stay exact."""
    several = frame["op_id"].notna() & frame.duplicated("op_id", keep=False)
    if not several.any():
        return frame
    frame = frame.copy()
    for _, rows in frame[several].groupby("op_id", observed=True):
        time = np.cumsum(np.maximum(1, rows["dur_ns"].to_numpy(np.int64)))
        for name in _COUNTS:
            total = rows[name].iloc[0]
            if total is pd.NA:
                continue
            until = [int(total) * int(t) // int(time[-1]) for t in time]
            frame.loc[rows.index, name] = pd.array(np.diff([0, *until]).tolist(), "Int64")
    return frame
