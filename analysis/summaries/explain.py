"""Everything that is known of one kernel or op, with what it rests on.

A section for each question is plain data; it is None where the question does not arise.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyprof2.analysis.compiled.costs import FORMULA, SIZES_FROM
from pyprof2.analysis.costs import formula_text, load_extensions
from pyprof2.analysis.costs.comm import bandwidth
from pyprof2.analysis.hardware.missed_tensor_cores import advice_on, missed_reasons
from pyprof2.analysis.hardware.roofline import FLAG_PCT
from pyprof2.analysis.hardware.verdict import JUDGED, examine, examine_ops
from pyprof2.analysis.linking.user_ranges import BORROWED
from pyprof2.analysis.summaries.explained_rows import ESTIMATE, LAUNCH, Explained, Reference
from pyprof2.analysis.summaries.rows import op_calls
from pyprof2.columns import text_array
from pyprof2.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.hardware.roofs import Roofs
    from pyprof2.analysis.hardware.verdict import Judged
    from pyprof2.analysis.summaries.explained_rows import RowPlace, Tables

LINK_MEANINGS: Final = {
    "external_id": "the launch by correlation id; the op by the recorder's own id, and it encloses "
    "the launch",
    "correlation": "the launch by correlation id; the op is the innermost one on the launch's "
    "thread that encloses the launch",
    "range": "the op is the range around the launch",
    "graph": "a graph launch that nothing explains: its ops ran when the graph was captured",
    "graph_id": "a graph launch; the node's own id names the captured launch, and its op",
    "graph_names": "a graph launch; the op is that of the captured or eager launch of this name at "
    "its place in the graph",
    "graph_order": "a graph launch; the op is that of the captured launch at its place: names were "
    "not recorded at capture, the kinds of work agree",
    "compiled": "a launch of a compiled graph: found in its code by name and order",
    "self": "the row is the op itself",
    "none": "no op encloses the launch, or there is no launch in the recording",
}
"""How each kind of link was made."""

RANGE_MEANINGS: Final = (
    "your ranges that are open on its thread when it begins; of a kernel: when it is launched",
    "its thread runs autograd and has none of yours: these are open on the only one that has any",
)
"""How ranges were found: on the own thread; borrowed from another one."""

_KERNEL: Final = (
    "kernel_id", "kernel", "category", "device", "device_name", "stream", "step", "start_ns",
    "dur_ns", "copy_kind", "grid", "block", "registers", "shared_bytes", "occupancy_pct",
)  # fmt: skip
_OP: Final = (
    "op_id", "op", "start_ns", "dur_ns", "self_ns", "step", "layer", "source",
    "library_source", "source_evidence", "direction", "recompute", "sequence_nr", "category",
)  # fmt: skip
_COUNTS: Final = ("flops", "bytes", "flops_lo", "flops_hi", "bytes_lo", "bytes_hi")
_SHARED: Final = ("kernel_id", "kernel_short", "op", "dur_ns", "cost_role", "flops", "bytes")
"""The columns that are shown of kernels that share an op's counts, by time if they work."""
_SHARING: Final = (
    *_SHARED, "kernel", "category", "device_type", "compute_dtype", "op_time_ns", "tflops", "gbps",
    "intensity", *JUDGED,
)  # fmt: skip
"""The columns that all that is said of such kernels rests on."""
_REFERENCE: Final = re.compile(r"(kernel|op):(\d{1,18})")


Facts: TypeAlias = "dict[str, Any]"


def parse_reference(text: str) -> Reference:
    """Return the row that `kernel:7` or `op:7` names.

    Raises:
        UsageError: it is neither.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        refuse(f"{text!r}: no reference; give kernel:N or op:N, the row's kernel_id or op_id")
    return Reference(found[1], int(found[2]))


class Explainer:
    """All that is known of some kernels, copies and ops of one rank."""

    def __init__(
        self,
        tables: Tables,
        references: Collection[Reference],
        override: Path | str | None = None,
    ) -> None:
        """Read what is known of them.

        Args:
            tables: of a rank, each in order of its ids.
            references: the rows to explain.
            override: a device's name, or a file that describes one, to use instead of the recorded.

        Raises:
            UsageError: there is no such row, or `override` is no device.
        """
        load_extensions()
        self.rows = Explained(tables, references)
        self._override = override
        # To judge them one by one would take longer than all else.
        rows, which, self._sets = self.rows.sets()
        self._judged = examine(rows, self.rows.devices, override, which)
        missed = text_array(missed_reasons(self._judged.table))
        self._table = self._judged.table.select(_SHARING).append_column("missed", missed)

    def judged(self, place: RowPlace) -> tuple[list[Facts], Facts | None]:
        """Return the rows that share the counts of a place, and what the roof of its op is."""
        own, owner = self._sets[place], self.rows.ops.owner(place.op)
        shared = self._table.slice(own.start, own.stop - own.start).to_pylist()
        if place.table is not None or owner is None or self.rows.has_gpu:
            return shared, roof_of(self._judged, own.start, shared)
        call = op_calls(*self.rows.op_table(owner))
        judged = examine_ops(call, self.rows.devices, self._override)
        return shared, roof_of(judged, 0, judged.table.to_pylist())


def explain(known: Explainer, reference: Reference) -> Facts:
    """Return all that is known of a kernel, a copy or an op.

    Args:
        known: made for this reference, and perhaps for others.
        reference: the row.

    Returns:
        `reference`: the row; `kernel`: what the profiler says of it; `op`, and the ops around that;
        `link`: how the op was found; `node`: of a kernel of a replayed graph, the node that it is,
        and its op; `range`: the user's own ranges around it; `pair`: its forward op, or its
        backward nodes; `cost`: the counts, and how they were made; `communication`: of a
        collective, its bandwidth; `sharing`: what each kernel of the op got of the counts;
        `tensor_core`: the verdicts; `roof`: what the roof is made of; `parts`: of a kernel of
        compiled code, the nodes that it does the work of.
    """
    rows, place = known.rows, known.rows.places[reference]
    facts, op, owner = rows.activities.get(place), place.op, rows.ops.owner(place.op)
    shared, roof = known.judged(place)
    cost = _cost(rows, (op, owner), facts)
    has_counts = owner is not None or (facts is not None and facts["cost_call_id"] is not None)
    # The op's rates and roof are not those of a helper kernel.
    has_roof = has_counts and not (facts is not None and _is_helper(facts))
    return {
        "reference": str(reference),
        "kernel": None if facts is None else _kernel(facts),
        "op": None if op is None else _op(rows, op),
        "link": None if facts is None else _link(rows, facts),
        "node": None if facts is None else _node(rows, facts),
        "range": _range(facts or rows.op(op or 0)),
        "pair": None if op is None else _pair(rows, op),
        "cost": cost,
        "communication": _communication(cost, shared),
        "sharing": [_picked(row, _SHARED) for row in shared] or None if has_counts else None,
        "tensor_core": _tensor_core(shared, facts),
        "roof": roof if has_roof else None,
        "parts": rows.parts(place) or None,
    }


def _kernel(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the profiler says of a kernel, of a copy its bytes too."""
    is_copy = row["copy_kind"] is not None or row["category"] in {"memcpy", "memset"}
    return _picked(row, (*_KERNEL, "bytes") if is_copy else _KERNEL)


def _picked(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _op(rows: Explained, op: int) -> dict[str, Any]:
    return _picked(rows.op(op), _OP) | {
        "signature": rows.ops.signature(op),
        "inside": [rows.ops.named(outer) for outer in list(rows.ops.around(op))[1:]],
    }


def _link(rows: Explained, row: Mapping[str, Any]) -> dict[str, Any]:
    launch = row["launch_id"]
    return {
        "link": row["link"],
        "meaning": LINK_MEANINGS.get(row["link"] or ""),
        "note": row["link_note"],
        "correlation_id": row["correlation_id"],
        "launch": None if launch is None else _picked(rows.launches.row(launch), LAUNCH),
    }


_NODE: Final = (
    "graph_node", "file", "capture", "node", "candidates", "sizes_equal", "sizes_known", "op",
    "signature", "layer", "source", "direction", "forward_op", "category", "params", "cost_status",
    "cost_note", *_COUNTS,
)  # fmt: skip


def _node(rows: Explained, row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is known of the node of a graph that a kernel is."""
    node = row["graph_node"]
    return None if node is None else _picked(rows.nodes.row(node), _NODE)


def _is_helper(row: Mapping[str, Any]) -> bool:
    """Whether a kernel has a part in an op's cost, but does not do its work."""
    return row["cost_role"] not in {None, "main"}


def _range(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the user's own ranges around a kernel's launch or an op, and on whose thread."""
    if row["range"] is None:
        return None
    borrowed = BORROWED in (row["link_note"] or "")
    return {"range": row["range"], "borrowed": borrowed, "meaning": RANGE_MEANINGS[borrowed]}


def _pair(rows: Explained, op: int) -> dict[str, Any]:
    """Return the forward op of an op in backward, and the nodes of an op in forward."""
    ops = rows.ops
    forward = ops.forward(op)
    nodes = next((found for outer in ops.around(op) if (found := ops.nodes_of(outer))), [])
    named = None
    if forward is not None:
        fields = ("layer", "source", "sequence_nr")
        named = ops.named(forward) | _picked(rows.op(forward), fields)
    return {
        "sequence_nr": rows.op(op)["sequence_nr"],
        "forward": named,
        "backward": [ops.named(node) for node in nodes],
    }


def _cost(
    rows: Explained, which: tuple[int | None, int | None], row: Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """Return the counts of the op that accounts for the row, with how they were made."""
    (op, owner), ops = which, rows.ops
    if op is None:
        return None if row is None else _picked(row, ("cost_status", "cost_note"))
    if owner is None and row is not None and row["link"] == "graph":
        # The work of a replay has nothing to do with the op around its launch.
        return _picked(row, ("cost_status", "cost_note"))
    of = op if owner is None else owner
    facts = rows.op(of)
    is_of_nodes = facts["shapes_from"] == SIZES_FROM
    formula = FORMULA if is_of_nodes else formula_text(ops.named(of)["op"])
    found = rows.estimate(facts["estimate_id"])
    shapes_op = facts["shapes_op_id"]
    other = None if shapes_op is None else ops.named(shapes_op)
    return _picked(facts, ("cost_status", "cost_note", "params", *_COUNTS, "shapes_from")) | {
        "of": ops.named(of),
        "formula": None if formula is None else formula._asdict(),
        **{name: found.get(name) for name in ESTIMATE},
        "dtype": facts["compute_dtype"],
        "shapes_op": other and other | {"signature": ops.signature(shapes_op)},
        "counted_inside": [] if owner is not None else ops.counted_inside(of),
    }


def _communication(
    cost: Mapping[str, Any] | None, shared: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the bandwidth of a collective, over the time of all its kernels."""
    if cost is None or cost.get("bytes_read") is None or not shared:
        return None
    time = shared[0]["op_time_ns"] or 0
    found = bandwidth(cost["params"] or "", cost["bytes_read"], cost["bytes_written"], time)
    return None if found is None else found._asdict()


def _tensor_core(
    shared: Sequence[Mapping[str, Any]], row: Mapping[str, Any] | None
) -> list[dict[str, Any]] | None:
    """Return the verdict of the kernel, or of all kernels of the op, once per name."""
    own = (each for each in shared if row is None or each["kernel_id"] == row["kernel_id"])
    first: dict[str, Mapping[str, Any]] = {}
    for each in own:
        first.setdefault(each["kernel"], each)
    wanted = (
        "kernel_id", "kernel_short", "tensor_core", "tensor_core_eligible",
        "tensor_core_eligible_half", "compute_dtype",
    )  # fmt: skip
    found = [
        _picked(facts, wanted)
        | {"evidence": facts["tensor_core_evidence"], "missed": facts["missed"]}
        | {"advice": None if facts["missed"] is None else advice_on(facts["missed"])}
        for facts in first.values()
        if facts["tensor_core"] is not None
    ]
    return found or None


_NO_PEAKS: Final = "no peaks are known of the device: name it, or a file, with --device"
_NO_CPU_PEAKS: Final = (
    "the CPU was not measured: pyprof2.init() and pyprof2 capture do that; or give a file that "
    "describes it with --device"
)


def roof_of(judged: Judged, begin: int, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return what the roof of an op is made of; None without kernels.

    Args:
        judged: among others all kernels of the op, one after another.
        begin: where they begin.
        rows: they themselves.
    """
    if not rows:
        return None
    # The first kernel that works has the rates.
    first = next((number for number, row in enumerate(rows) if not _is_helper(row)), 0)
    at, row = begin + first, rows[first]
    recorded, device = judged.devices[judged.place[at]]
    best = {each["tensor_core"] for each in rows}
    facts = {
        "recorded_device": recorded.get("name"),
        "device": None if device is None else device.name,
        "device_source": None if device is None else device.source,
        "unit": "matrix" if "yes" in best else "unknown" if "unknown" in best else "vector",
        "device_type": row["device_type"],
        "category": row["category"],
        "dtype": row["compute_dtype"],
        "time_ns": row["op_time_ns"],
        "flag": row["roofline_flag"],
        **_limits(judged.roofs, at, *(_sum(rows, name) for name in ("flops", "bytes"))),
        **{name: row[name] for name in ("tflops", "gbps", "intensity", "roofline_pct", "bound")},
    }
    speed = facts["cache_bytes_per_s"]
    cached = _in_cache(facts) and speed is not None
    cache_ns = float(facts["bytes"] / speed * 1e9) if cached else None
    return facts | {"cache_ns": cache_ns, "unknown_because": _why_unknown(facts)}


def _limits(limits: Roofs, at: int, flops: int | None, nbytes: int | None) -> dict[str, Any]:
    """Return what the op did, what the device can do, and how long it needs at least."""
    peak, bandwidth = float(limits.peak[at]), float(limits.bandwidth[at])
    saving = limits.savings[limits.saving[at]] if limits.saving[at] >= 0 else None
    return {
        "peak_flop_per_s": _known(peak if saving is None else peak / saving.factor),
        "saving": None if saving is None else saving._asdict(),
        "memory_bytes_per_s": _known(bandwidth),
        "cache_bytes": _known(float(limits.cache[at])),
        "cache_bytes_per_s": _known(float(limits.cache_bandwidth[at])),
        "flops": flops,
        "bytes": nbytes,
        "compute_ns": _needed(flops, peak),
        "memory_ns": _needed(nbytes, bandwidth),
    }


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> int | None:
    counts = [row[name] for row in rows]
    return None if None in counts else sum(counts)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _needed(count: int | None, per_s: float) -> float | None:
    """Return the ns that a count takes at least; None where it or the rate is not known."""
    if count == 0:
        return 0.0
    return None if count is None or math.isnan(per_s) else count / per_s * 1e9


def _in_cache(facts: dict[str, Any]) -> bool:
    """Whether the bytes came faster than the memory gives them, and fit in the cache."""
    needed, cache = facts["memory_ns"], facts["cache_bytes"]
    if needed is None or cache is None or not facts["time_ns"]:
        return False
    return bool(needed > FLAG_PCT / 100 * facts["time_ns"] and facts["bytes"] <= cache)


def _why_unknown(facts: dict[str, Any]) -> str | None:
    """Say why there is no percentage; None where there is one."""
    if facts["roofline_pct"] is not None:
        return None
    either = ", nor whether matrix units did it" if facts["unit"] == "unknown" else ""
    dtype = facts["dtype"] or "an unknown dtype"
    reasons = (
        (
            facts["category"] == "comm",
            "the links between devices bound a collective, and what they can do is not recorded",
        ),
        (facts["device"] is None, _NO_CPU_PEAKS if facts["device_type"] == "cpu" else _NO_PEAKS),
        (None in (facts["flops"], facts["bytes"]), "the op's FLOPs or bytes are not known"),
        (
            not facts["flops"] and not facts["bytes"],
            "the op moves nothing and computes nothing",
        ),
        (facts["compute_ns"] is None, f"the peak for {dtype} is not known{either}"),
        (facts["memory_bytes_per_s"] is None, "cards of this name differ in their memory"),
        (
            _in_cache(facts),
            "its bytes came out of the cache, whose bandwidth the vendor does not state",
        ),
    )
    refuted = "the counts are an estimate that the clock refutes; their lower bound is possible"
    return next((reason for holds, reason in reasons if holds), refuted)
