"""The canonical tables `kernels`, `copies` and `launches`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.assembly.compiled_links import op_names, shared_columns
from pyprof2.analysis.axes import COARSE, SEPARATOR, launch_text
from pyprof2.analysis.categories import first_category
from pyprof2.analysis.costs.attribute import (
    COUNTS,
    ROLES,
    STATUSES,
    UNKNOWN,
    OwnedWork,
    owned_work,
    share_costs,
)
from pyprof2.analysis.hardware.kernel_names import (
    category_by_name,
    is_helper,
    only_moves,
    short_name,
)
from pyprof2.analysis.hardware.verdict import judge
from pyprof2.analysis.linking.kernels import LINKS, UNSURE, Launches, LinkedActivities
from pyprof2.analysis.linking.pair import TIED
from pyprof2.analysis.linking.ranges import link_steps, link_steps_of_devices
from pyprof2.analysis.linking.threads import NO_ID
from pyprof2.analysis.linking.user_ranges import with_borrowed
from pyprof2.columns import (
    TextColumn,
    int_array,
    lookup,
    merge_texts,
    named,
    only,
    row_of,
    slices_of_groups,
    text_array,
)
from pyprof2.recording import Recording, code_column, int_column
from pyprof2.signatures import DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.assembly.linked import Linked
    from pyprof2.analysis.costs.attribute import Shares
    from pyprof2.analysis.intervals import Int

_SLICE: Final = 1 << 16
_RECORDED: Final = (
    "start_ns", "dur_ns", "correlation_id", "device", "stream", "kernel", "copy_kind", "grid",
    "block", "registers", "shared_bytes", "blocks_per_sm", "occupancy_pct", "graph_node_id",
)  # fmt: skip
_REPLAY: Final = "replay of a CUDA graph: what its kernels work on was not recorded with it"
_NO_LAUNCH, _NO_OP, _ACCUMULATE, _BY_NUMBER, _WHOLE_GRAPH, _UNSURE, _TIED = range(7)
_NOTES: Final = [
    "no launch in the recording",
    "launched outside of any op",
    "layer and source of the node that ran before AccumulateGrad",
    "forward op found by number alone: C++ nodes share numbers with helper ops",
    "a whole graph in one row: its kernels were not recorded",
    UNSURE,
    TIED,
]


def activity_tables(
    recording: Recording, linked: Linked, activity_id: Int
) -> Iterator[tuple[str, Iterator[pa.Table]]]:
    """Yield the names of `launches`, `kernels` and `copies` with their rows, in parts.

    They lack the column `rank`. All kernels of an op are in one part: they share its cost.

    Args:
        recording: the raw tables.
        linked: what was found in them.
        activity_id: of each GPU activity its id.
    """
    launches, found = linked.launches, linked.activities
    call, cost_call = (lookup(activity_id, each, -1) for each in (found.call, found.cost_call))
    found = replace(found, id=activity_id, call=call, cost_call=cost_call)
    yield "launches", _launch_parts(recording, launches, found)
    for name, kept in (("kernels", found.is_kernel), ("copies", ~found.is_kernel)):
        chosen = found.at(kept)
        owner = lookup(linked.costs.owner, chosen.op, -1)
        owner = np.where(chosen.node >= 0, len(linked.ops) + chosen.launch, owner)
        parts = (chosen.at(rows) for rows in slices_of_groups(owner, _SLICE))
        yield name, (_activity_part(recording, linked, part) for part in parts)


def _activity_part(recording: Recording, linked: Linked, found: LinkedActivities) -> pa.Table:
    raw = recording.read("activities", None, found.row)
    columns = {name: raw[name] for name in _RECORDED}
    columns |= _op_columns(linked, found)
    columns |= _cost_columns(linked, found, raw)
    columns |= _device_columns(recording, int_column(raw, "device", -1))
    threads, launch = linked.threads, found.launch
    start = lookup(linked.launches.start, launch, NO_ID)
    thread = lookup(linked.launches.thread, launch, 0)
    step = link_steps(linked.steps, threads, thread, start)
    by_time = link_steps_of_devices(linked.steps, threads, found.start)
    columns |= {
        name: int_array(np.where(launch >= 0, values, NO_ID), NO_ID)
        for name, values in (
            ("pid", threads.pid(thread)),
            ("tid", threads.tid(thread)),
            ("launch_ns", start),
        )
    }
    columns["step"] = int_array(np.where(launch >= 0, step, by_time), NO_ID)
    around = linked.launch_ranges.at(launch)
    link = found.link
    if linked.compiled is not None:
        link = np.where(linked.compiled.are_known(found.op), LINKS.index("compiled"), link)
    columns |= {
        "launch_id": int_array(launch, -1),
        "kernel_id": pa.array(found.id),
        "link": text_array((link, LINKS)),
        "link_note": text_array(with_borrowed(_notes(linked, found), around.borrowed)),
        "graph_node": int_array(found.node, -1),
        "call_id": int_array(found.call, -1),
        "range": text_array(_ranges(recording, raw, (around.path, linked.paths))),
    }
    return judge(pa.table(columns), recording.devices)


def _ranges(recording: Recording, raw: pa.Table, around: TextColumn) -> TextColumn:
    """Return the user's own ranges around launches; inside of them what is noted of a node."""
    notes = recording.node_notes
    node = int_column(raw, "graph_node_id", NO_ID)
    ids = np.array(sorted(notes), np.int64)
    noted = row_of(ids, node) if len(ids) else np.full(len(node), -1)
    if not (noted >= 0).any():
        return around
    path, paths = around
    texts = [notes[number] for number in ids.tolist()]
    pairs, at = np.unique(np.stack((path, noted)), axis=1, return_inverse=True)
    parts = (
        (paths[own] if own >= 0 else None, texts[note] if note >= 0 else None)
        for own, note in pairs.T.tolist()
    )
    joined = [SEPARATOR.join(filter(None, each)) for each in parts]
    return at.reshape(-1), joined


def _launch_parts(
    recording: Recording, launches: Launches, found: LinkedActivities
) -> Iterator[pa.Table]:
    count = np.bincount(found.launch[found.launch >= 0], minlength=len(launches.row))
    names = ["start_ns", "dur_ns", "pid", "tid", "name", "correlation_id"]
    for at in range(0, len(launches.row), _SLICE):
        rows = slice(at, at + _SLICE)
        raw = recording.read("launches", names, launches.row[rows])
        yield pa.table(
            dict(zip(names, raw.columns, strict=True))
            | {
                "launch_id": pa.array(np.arange(at, at + raw.num_rows)),
                "op_id": int_array(launches.op[rows], -1),
                "kernel_count": pa.array(count[rows].astype(np.int64)),
            }
        )


def _op_columns(linked: Linked, found: LinkedActivities) -> dict[str, Any]:
    """Return the columns that each activity has from its op, or from its node of a graph."""
    ops, op = linked.ops, found.op
    texts: dict[str, TextColumn] = {
        "signature": (linked.signature, linked.texts),
        "layer": linked.layer,
        "source": linked.source,
        "library_source": linked.library_source,
        "direction": (linked.direction, DIRECTIONS),
    }
    # The number is that of the autograd node or forward op around, which decides the direction.
    numbers = {
        "op_id": np.where(op >= 0, op, NO_ID),
        "recompute": lookup(ops.recompute.astype(np.int64), op, NO_ID),
        "sequence_nr": lookup(ops.sequence, lookup(ops.marked, op, -1), -1),
        "forward_op_id": lookup(linked.pairs.forward, op, -1),
        "stack_id": lookup(linked.stack, op, -1),
    }
    for name in ("sequence_nr", "forward_op_id", "stack_id"):
        numbers[name] = np.where(numbers[name] < 0, NO_ID, numbers[name])
    if linked.graphs is not None:
        numbers = {
            name: np.where(found.node >= 0, linked.graphs.number(name, found.node), values)
            for name, values in numbers.items()
        }
    recompute = numbers.pop("recompute")
    known = {
        name: _or_of_node(linked, found, name, (lookup(codes, op, -1), words))
        for name, (codes, words) in texts.items()
    } | {"op": _or_of_node(linked, found, "op", op_names(linked, op))}
    return {
        **{name: text_array(column) for name, column in known.items()},
        "recompute": pa.array(recompute > 0, mask=recompute == NO_ID),
        **{name: int_array(values, NO_ID) for name, values in numbers.items()},
        **_shared_columns(linked, found, known),
    }


def _shared_columns(
    linked: Linked, found: LinkedActivities, known: dict[str, TextColumn]
) -> dict[str, pa.Array]:
    """Return what axes show of activities that do not have just one op, layer, line or direction.

    Several, of compiled code; of the replay of a graph that nothing explains those of its launch.
    """
    shared = shared_columns(linked, found.op, found.node)
    launches = linked.launches
    # A graph that was recorded as a whole is one activity, and its launch's op is its own.
    replayed = lookup(launches.is_graph.astype(np.int64), found.launch, 0) > 0
    launch = np.where(replayed & ~found.is_whole_graph, found.launch, -1)
    if not (launch >= 0).any():
        return shared
    op = lookup(launches.op, launch, -1)
    of_op: dict[str, TextColumn] = {
        "op": op_names(linked, op),
        "layer": (lookup(linked.layer[0], op, -1), linked.layer[1]),
        "source": (lookup(linked.source[0], op, -1), linked.source[1]),
        "direction": (lookup(linked.direction, op, -1), DIRECTIONS),
    }
    around = (lookup(linked.launch_layer[0], launch, -1), linked.launch_layer[1])
    of_op["layer"] = merge_texts(of_op["layer"], around)
    for name in COARSE:
        codes, words = only(of_op[name], known[name][0] < 0)
        column: TextColumn = codes, [word and launch_text(word) for word in words]
        if (own := f"shared_{name}") in shared:
            column = merge_texts(code_column(pa.table({own: shared[own]}), own), column)
        shared[own] = text_array(column)
    return shared


def _or_of_node(
    linked: Linked, found: LinkedActivities, name: str, column: TextColumn
) -> TextColumn:
    """Return a column of text with what is known of nodes of graphs."""
    if linked.graphs is None:
        return column
    codes, words = merge_texts(linked.graphs.text(name, found.node), column)
    return codes, words


def _work(linked: Linked, found: LinkedActivities, op: Int) -> OwnedWork:
    """Return the work that each activity has a part in: of an op, or of a replay's call of one."""
    work, graphs = owned_work(linked.costs, op), linked.graphs
    is_node = (found.cost_call >= 0) & found.is_kernel
    if graphs is None or not is_node.any():
        return work
    node = np.where(is_node, found.node, -1)
    totals = {}
    for name in COUNTS:
        total = graphs.number(name, node)
        total = np.where(total == NO_ID, UNKNOWN, total)
        totals[name] = np.where(is_node, total, work.totals[name])
    return OwnedWork(
        np.where(is_node, len(linked.ops) + found.cost_call, work.owner),
        totals,
        np.where(is_node, graphs.number("is_nested", node) > 0, work.is_nested),
        np.where(is_node, graphs.number("in_product", node) > 0, work.in_product),
    )


def _cost_columns(linked: Linked, found: LinkedActivities, raw: pa.Table) -> dict[str, Any]:
    """Return each kernel's share of its op's cost; of a copy the bytes that were recorded."""
    costs = linked.costs
    kernel, kernels = code_column(raw, "kernel")
    helper, moves = (
        np.array([test(text) for text in kernels] or [False])[kernel]
        for test in (is_helper, only_moves)
    )
    # The work of a whole graph is not that of the op around its launch.
    has_cost = found.is_kernel & ~found.is_whole_graph
    op = np.where(has_cost, found.op, -1)
    shares = share_costs(_work(linked, found, op), found.dur, helper, moves)
    is_op = (shares.owner >= 0) & (shares.owner < len(linked.ops))
    owner = np.where(is_op, shares.owner, found.op)
    owner = np.where(has_cost, owner, -1)
    estimate = lookup(costs.estimate, owner, -1)
    copied = np.where(found.is_kernel, UNKNOWN, int_column(raw, "bytes", UNKNOWN))
    counts = {
        name: np.where(found.is_kernel, values, copied if "bytes" in name else 0)
        for name, values in shares.counts.items()
    }
    time = np.where(found.is_kernel, shares.op_time, found.dur)
    cost_op = np.where(is_op, shares.owner, NO_ID)
    if linked.graphs is not None:
        of_node = linked.graphs.number("cost_op_id", found.node)
        cost_op = np.where((shares.owner >= 0) & ~is_op, of_node, cost_op)

    def of_estimate(name: str, words: Sequence[str | None]) -> pa.Array:
        codes, texts = _or_of_node(linked, found, name, (estimate, words))
        return text_array((np.where(found.is_kernel, codes, -1), texts))

    return {name: int_array(values, UNKNOWN) for name, values in counts.items()} | {
        "kernel_short": text_array((kernel, [short_name(text) for text in kernels])),
        "category": text_array(_categories(linked, found, raw, estimate)),
        "params": of_estimate("params", costs.texts("params")),
        **_cost_status(linked, found, owner, copied),
        "compute_dtype": of_estimate("compute_dtype", costs.texts("dtype")),
        "cost_op_id": int_array(cost_op, NO_ID),
        "cost_call_id": int_array(np.where(is_op, -1, found.cost_call), -1),
        "cost_role": text_array((shares.role, ROLES)),
        "op_time_ns": int_array(np.where(shares.owner >= 0, shares.op_time, -1), -1),
        **_rates(shares, np.where(found.is_kernel, shares.op_bytes, copied), time),
    }


def _rates(shares: Shares, op_bytes: Int, time: Int) -> dict[str, pa.Array]:
    """Return TFLOP/s, GB/s and FLOP/byte of the ops; null where either part is not known.

    Only kernels that do the work have them: the helpers beside them do not run at the op's rates.
    """
    is_helper_role = shares.role > ROLES.index("main")

    def ratio(part: Int, whole: Int, scale: float) -> pa.Array:
        known = (part != UNKNOWN) & (whole > 0) & ~is_helper_role
        values = np.divide(part, whole * scale, out=np.zeros(len(part)), where=known)
        return pa.array(values, mask=~known)

    # FLOPs per ns are GFLOP/s, and bytes per ns are GB/s.
    return {
        "tflops": ratio(shares.op_flops, time, 1e3),
        "gbps": ratio(op_bytes, time, 1.0),
        "intensity": ratio(shares.op_flops, op_bytes, 1.0),
    }


def _categories(
    linked: Linked, found: LinkedActivities, raw: pa.Table, estimate: Int
) -> TextColumn:
    """Return the category: a copy's kind; communication by name; by op; else by name."""
    costs = linked.costs
    kernel, kernels = code_column(raw, "kernel")
    # A kernel that copies or clears is not one of the runtime's copies.
    named_so = {"memcpy": "copy", "memset": "copy"}
    words = [category_by_name(text) for text in kernels]
    has_name = found.is_kernel & ~found.is_whole_graph
    by_name = (np.where(has_name, kernel, -1), [named_so.get(w or "", w) for w in words])
    op = np.where(found.is_whole_graph, -1, found.op)
    return first_category(
        len(found.row),
        [
            only(code_column(raw, "kind"), ~found.is_kernel),
            named(by_name, "comm"),
            _or_of_node(
                linked, found, "category", (lookup(costs.category, op, -1), costs.categories)
            ),
            (estimate, costs.estimate_categories()),
            by_name,
        ],
    )


def _cost_status(
    linked: Linked, found: LinkedActivities, op: Int, copied: Int
) -> dict[str, pa.Array]:
    """Return status and note; a replay that nothing explains has neither op nor shapes."""
    status = lookup(linked.costs.status, op, STATUSES.index("no_op"))
    status[found.node >= 0] = -1
    of_copy = np.where(copied >= 0, STATUSES.index("ok"), STATUSES.index("no_shapes"))
    status = np.where(found.is_kernel, status, of_copy)
    status[found.is_whole_graph] = STATUSES.index("no_formula")
    of_op, notes = linked.costs.note
    is_unknown = (found.link == LINKS.index("graph")) & found.is_kernel
    note = np.where(is_unknown, len(notes), lookup(of_op, op, -1))
    note[found.is_whole_graph] = len(notes) + 1
    own: dict[str, TextColumn] = {
        "cost_status": (status, STATUSES),
        "cost_note": (note, [*notes, _REPLAY, _NOTES[_WHOLE_GRAPH]]),
    }
    kernels = replace(found, node=np.where(found.is_kernel, found.node, -1))
    return {
        name: text_array(_or_of_node(linked, kernels, name, column)) for name, column in own.items()
    }


def _device_columns(recording: Recording, ordinal: Int) -> dict[str, Any]:
    """Return name and type of each activity's device.

    Where all listed devices are alike, others are taken to be so too: recorders shift ordinals.
    """
    devices = recording.devices
    kinds = {d["device_type"] for d in devices}
    default = {d["name"] for d in devices}
    names = {d["device"]: d["name"] for d in devices}
    fallback = default.pop() if len(default) == 1 else None
    ordinals, place = np.unique(ordinal, return_inverse=True)
    words = [names.get(value, fallback) for value in ordinals.tolist()]
    kind = np.full(len(ordinal), 0 if len(kinds) == 1 else -1)
    return {
        "device_name": text_array((place, words)),
        "device_type": text_array((kind, list(kinds))),
    }


def _notes(linked: Linked, found: LinkedActivities) -> TextColumn:
    """Return the note on each activity's link."""
    pairs = linked.pairs
    note = np.where(found.op < 0, _NO_OP, -1)
    note[found.launch < 0] = _NO_LAUNCH
    note[found.is_unsure] = _UNSURE
    in_backward = lookup(linked.direction, found.op, -1) == DIRECTIONS.index("backward")
    note[in_backward & (lookup(pairs.accumulate, found.op, -1) >= 0)] = _ACCUMULATE
    note[lookup(pairs.unsure.astype(np.int64), found.op, 0) > 0] = _BY_NUMBER
    note[lookup(pairs.tied.astype(np.int64), found.op, 0) > 0] = _TIED
    note[found.is_whole_graph] = _WHOLE_GRAPH
    notes: TextColumn = note, _NOTES
    if linked.compiled is not None:
        notes = merge_texts(linked.compiled.note(found.op), notes)
    if linked.graphs is None:
        return notes
    return merge_texts((found.replay_note, list(linked.graphs.notes)), notes)
