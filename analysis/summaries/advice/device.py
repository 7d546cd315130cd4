"""Rules on the device: kernels that take longer than what they do needs.

The most that a remedy gains is the time of the kernels less their floor: what the device needs for
their FLOPs and bytes at its peak rates. It is expected to gain that of the kernels after which the
next one was already queued. At least it gains nothing: no remedy is sure to reach the floor.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.summaries.advice.facts import (
    RankFacts,
    codes,
    ends,
    int_values,
    matches,
    rows_at,
)
from pyprof2.analysis.summaries.advice.findings import RuleFinding, unknown
from pyprof2.analysis.summaries.advice.floors import (
    COVERED,
    above_floor,
    bandwidth,
    best_peak,
    half_peak,
    known_share,
    matrix_peak,
    plain_peak,
    won_ns,
)
from pyprof2.columns import distinct, join_rows, row_of, values_of
from pyprof2.recording import int_column
from pyprof2.signatures import DTYPE_BITS, tensors_in
from pyprof2.units import counted, format_bytes

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.summaries.advice.floors import Peak

MISSED_PCT: Final = 2
HALF_PCT: Final = 10
LAYOUT_PCT: Final = 3
OPTIMIZER_KERNELS: Final = 100
SHORT_NS: Final = 10_000
SMALL_GRID: Final = 0.5
SMALL_PCT: Final = 5

OF_KERNELS: Final = (
    "kernel_id", "start_ns", "dur_ns", "source", "place", "flops", "bytes", "compute_dtype",
)  # fmt: skip
"""The columns that what is found of kernels is made of."""
_FAR: Final = 1 << 62
_INSIDE: Final = re.compile("^d2d")
_PRODUCTS: Final = ("matmul", "conv")
_CHAINED: Final = ("elementwise", "norm")
_CONVERTS: Final = re.compile(
    r"nchwToNhwc|nhwcToNchw|[Tt]ranspose(?!d?_?[Cc]onv)|convertTensor|[Ss]ubTensor|CopyTensor"
)
_FILLS: Final = re.compile(r"fill|zero|full|ones|arange|linspace|eye")
_MATRIX_CODE: Final = re.compile(r"[Gg]emm|GEMM|mma|Cijk|conv(?!ertTensor)")
_FUSED: Final = re.compile(r"multi_tensor|_foreach|fused", re.IGNORECASE)
_FLOAT16: Final = (
    "torch.autocast('cuda', dtype=torch.float16) with a GradScaler: the device has no units for "
    "bfloat16"
)

_ABOVE_ROOF: Final = "time of these kernels less what their FLOPs and bytes need on {units}"


def tensor_cores_unused(facts: RankFacts) -> RuleFinding | None:
    """Shapes and dtype would allow Tensor Cores, and another kernel was chosen.

    Sizes that are no multiples of 8, float32 without TF32, or an algorithm that the library
    prefers. Only kernels that do a part of their op's FLOPs count.
    """
    missed = facts.rows("kernels", *OF_KERNELS, "missed", where=~facts.lacks("kernels", "missed"))
    share = facts.kernel_share(missed["dur_ns"].sum())
    if share < MISSED_PCT:
        return _unjudged(facts, MISSED_PCT)
    reasons = missed.groupby("missed", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    words = "; ".join(str(reason) for reason in reasons.index[:2])
    text = f"{share:.1f} % of the kernels' time, in {counted(len(missed), 'kernel')}: {words}"
    limit = _ABOVE_ROOF.format(units="matrix units")
    return of_floors(facts, missed, matrix_peak, text, limit)


def half_precision(facts: RankFacts) -> RuleFinding | None:
    """Products in float32, on a device that is faster with 16-bit types.

    With autocast, or bfloat16 weights, they move half the bytes and may use the matrix units.
    Whether the result is still good enough only training says.
    """
    wanted = facts.are("kernels", "category", _PRODUCTS)
    wanted = wanted & facts.are("kernels", "compute_dtype", ("f32",))
    wanted = wanted & ~facts.are("kernels", "tensor_core", ("yes",))
    is_faster = np.array(
        [
            (half_peak(device, "f32") or 0) > (plain_peak(device, "f32") or np.inf)
            for _, device in facts.devices
        ],
        bool,
    )
    single = facts.rows("kernels", *OF_KERNELS, where=wanted)
    single = single[is_faster[single["place"].to_numpy("int64")]]
    share = facts.kernel_share(single["dur_ns"].sum())
    if share < HALF_PCT:
        return _unjudged(facts, HALF_PCT)
    text = f"{share:.1f} % of the kernels' time, in {len(single)} products in f32 without TF32"
    limit = _ABOVE_ROOF.format(units="units for 16-bit types")
    found = of_floors(facts, single, half_peak, text, limit, fewer=2)
    ran_on = [facts.devices[place][1] for place in set(single["place"].tolist())]
    has_bfloat16 = all(best_peak(device, "bf16") for device in ran_on)
    return replace(found, remedy=None if has_bfloat16 else _FLOAT16)


def layout_and_casts(facts: RankFacts) -> RuleFinding | None:
    """Kernels that only move data: conversions of layout or dtype, and copies on the device.

    Layouts that change between ops (`channels_last` for all of a network or none of it), casts
    in every step, `contiguous()` after `transpose()`.
    """
    names = facts.named("kernels", "kernel_short", _CONVERTS)
    names = names & ~facts.named("kernels", "kernel_short", _MATRIX_CODE)
    moves = facts.are("kernels", "category", ("copy",)) & ~facts.named("kernels", "op", _FILLS)
    columns = (*OF_KERNELS, "op", "kernel_short")
    inside = facts.rows("copies", *columns, where=facts.named("copies", "copy_kind", _INSIDE))
    both = join_rows([facts.rows("kernels", *columns, where=moves | names), inside])
    time_ns = int(both["dur_ns"].sum())
    share = 100 * time_ns / max(1, facts.kernel_time_ns + int(inside["dur_ns"].sum()))
    if share < LAYOUT_PCT:
        return None
    most = ", ".join(_most(both, "op") or _most(both, "kernel_short"))
    text = f"{share:.1f} % of the time of kernels and copies inside, in {len(both)}; most in {most}"
    return of_kernels(facts, both, both["dur_ns"].to_numpy(float), text, "their time")


def unfused_optimizer(facts: RankFacts) -> RuleFinding | None:
    """The optimizer runs a few kernels for each parameter, each shorter than its launch.

    `foreach=True` or `fused=True` updates many parameters with one. The host is done sooner, too:
    what it launches next comes earlier, so idle time elsewhere may go with the gaps here.
    """
    wanted = facts.are("kernels", "direction", ("optimizer",))
    columns = (*OF_KERNELS, "kernel", "op", "step", "launch_id")
    own = facts.rows("kernels", *columns, where=wanted)
    if len(own) < OPTIMIZER_KERNELS or own["dur_ns"].median() >= SHORT_NS:
        return None
    if matches(own["kernel"], _FUSED).any() or matches(own["op"], _FUSED).any():
        return None
    if not facts.has_steps:
        text = f"{len(own)} short kernels of an optimizer, in an unknown number of steps"
        return unknown(text, f"steps: {facts.advice.steps}", evidence=_evidence(own))
    per_step = len(own) / max(1, own["step"].nunique())
    if per_step < OPTIMIZER_KERNELS:
        return None
    ids, before = own["kernel_id"].to_numpy(np.int64), 0
    marks = np.zeros(int(ids.max()) + 2, bool)
    marks[ids] = True
    for part in facts.tables.parts("idle", ("kernel_id", "time_ns")):
        follows = marks[np.minimum(int_column(part, "kernel_id", -1), len(marks) - 1)]
        before += int(int_column(part, "time_ns", 0)[follows].sum())
    above = above_floor(facts, own, plain_peak)
    text = (
        f"{per_step:.0f} kernels of the optimizer in a step, half of them below "
        f"{own['dur_ns'].median() / 1e3:.1f} us"
    )
    won = won_ns(facts, own, above) + before
    spans = _host_spans(facts, own)
    hi_ns = int(above.sum()) + max(before, min(union_length(*spans), facts.host_idle_ns))
    limit = "their time less what their bytes need, and what the host takes to launch them"
    return RuleFinding(text, hi_ns, 0, won, limit, _evidence(own), top_line(own), removed=spans)


def _host_spans(facts: RankFacts, rows: pd.DataFrame) -> tuple[Int, Int]:
    """Return when the first launch of some kernels of each step begins, and the last one ends."""
    calls = facts.rows("launches", "launch_id", "start_ns", "dur_ns")
    at = row_of(calls["launch_id"].to_numpy(np.int64), int_values(rows["launch_id"]))
    start, end = (times[at[at >= 0]] for times in ends(calls))
    steps, step = distinct(int_values(rows["step"])[at >= 0])
    first, last = np.full(len(steps), _FAR), np.full(len(steps), -_FAR)
    np.minimum.at(first, step, start)
    np.maximum.at(last, step, end)
    return first, last


def elementwise_chains(facts: RankFacts) -> RuleFinding | None:
    """Kernels one after another on tensors of one size, each limited by the memory.

    Fused (`torch.compile`), tensors between them need not be written and read. Tensors that
    autograd keeps of the forward pass are still written. That one reads what the other wrote is not
    recorded: so the least is nothing, and the same op again is taken for other work.
    """
    wanted = facts.are("kernels", "category", _CHAINED)
    columns = ("dur_ns", "stream", "layer", "direction", "op", "bound", "signature")
    chained = facts.rows("kernels", *columns, where=wanted)
    time_ns = chained["dur_ns"].to_numpy("int64")
    if facts.kernel_share(time_ns.sum()) < LAYOUT_PCT:
        return None
    size = _sizes(chained)
    if facts.kernel_share(time_ns[np.isnan(size)].sum()) >= SMALL_PCT:
        return unknown("elementwise kernels of unknown sizes", f"shapes: {facts.advice.shapes}")
    order, follows = _follows(facts, wanted, chained, size)
    if not follows.any():
        return None
    rows, size = np.flatnonzero(wanted)[order[follows]], size[order]
    own = facts.rows("kernels", *OF_KERNELS, "direction", where=rows_at(rows, len(wanted)))
    own = own.iloc[np.searchsorted(np.sort(rows), rows)]
    # A tensor in between is written and read in vain; one that backward needs is only read.
    trains = facts.are("kernels", "direction", ("backward",)).any()
    is_kept = trains & (own["direction"] == "forward").to_numpy(bool)
    spared = size[follows] * np.where(is_kept, 1.0, 2.0)
    saved = np.nan_to_num(1e9 * spared / bandwidth(facts, own))
    # Both kernels move it, and caches may have helped: no kernel is saved twice.
    saved = np.minimum(saved, own["dur_ns"].to_numpy(float))
    text = (
        f"{counted(len(own), 'kernel goes', 'kernels go')} on with what the one before wrote: "
        f"{format_bytes(float(spared.sum()))}"
    )
    limit = "bytes that need not be moved, at the memory's bandwidth"
    return of_kernels(facts, own, saved, text, limit)


def small_grids(facts: RankFacts) -> RuleFinding | None:
    """Kernels with fewer blocks than half of the multiprocessors leave the others idle.

    Larger batches, or several of them at once on streams, or split reductions. Kernels that
    communicate are meant to be small.
    """
    long = (facts.rows("kernels", "dur_ns")["dur_ns"] > SHORT_NS).to_numpy(bool)
    columns = (*OF_KERNELS, "blocks_per_sm", "grid", "op", "kernel_short")
    own = facts.rows("kernels", *columns, where=~facts.comm("kernels") & long)
    blocks = _blocks_per_sm(facts, own)
    lacks = facts.kernel_share(own.loc[np.isnan(blocks), "dur_ns"].sum())
    small = own[blocks < SMALL_GRID]
    share = facts.kernel_share(small["dur_ns"].sum())
    if share < SMALL_PCT:
        if lacks < SMALL_PCT:
            return None
        return unknown(f"{lacks:.1f} % of the kernels' time without a size of the grid",
                       "launch geometry: a newer profiler")  # fmt: skip
    unused = small["dur_ns"].to_numpy(float) * (1 - blocks[blocks < SMALL_GRID])
    text = (
        f"{share:.1f} % of the kernels' time, in {counted(len(small), 'kernel')}; most in "
        + ", ".join(_most(small, "op") or _most(small, "kernel_short"))
    )
    limit = "their time, times the share of multiprocessors without a block"
    return of_kernels(facts, small, unused, text, limit)


def of_floors(
    facts: RankFacts,
    rows: pd.DataFrame,
    peak: Peak,
    text: str,
    limit: str,
    fewer: int = 1,
) -> RuleFinding:
    """Return a finding on kernels that could be as fast as their floor.

    It has no gain where the floors of most of them are not known.
    """
    known = known_share(facts, rows, peak)
    if known < COVERED:
        text += f"; what they need at least is known for {100 * known:.0f} % of that time"
        return unknown(text, f"shapes: {facts.advice.shapes}", evidence=_evidence(rows))
    saved = above_floor(facts, rows, peak, fewer)
    return of_kernels(facts, rows, saved, text, limit)


def of_kernels(
    facts: RankFacts, rows: pd.DataFrame, saved: Floats, text: str, limit: str
) -> RuleFinding:
    """Return a finding on kernels that could be shorter.

    Args:
        facts: of the rank.
        rows: the kernels.
        saved: by how much each could be, in ns.
        text: in words.
        limit: what that is.
    """
    won = won_ns(facts, rows, saved)
    return RuleFinding(text, int(saved.sum()), 0, won, limit, _evidence(rows), top_line(rows))


def _unjudged(facts: RankFacts, least_pct: float) -> RuleFinding | None:
    """Return what says that the dtypes of too many products are not known; None if they are."""
    wanted = facts.are("kernels", "category", _PRODUCTS) & facts.lacks("kernels", "compute_dtype")
    lost = facts.rows("kernels", "kernel_id", "dur_ns", where=wanted)
    share = facts.kernel_share(lost["dur_ns"].sum())
    if share < least_pct:
        return None
    text = f"{share:.1f} % of the kernels' time in products whose dtypes and sizes are not known"
    return unknown(text, f"shapes: {facts.advice.shapes}", evidence=_evidence(lost))


def _sizes(rows: pd.DataFrame) -> Floats:
    """Return the bytes of the largest tensor that the op of each kernel got; NaN: not known."""
    from pyprof2.analysis.costs.operands import numel

    code, texts = codes(rows["signature"]), rows["signature"].cat.categories
    sizes = np.full(len(texts) + 1, np.nan)
    for at in values_of(code[code >= 0]).tolist():
        sizes[at] = max(
            (numel(t.shape) * DTYPE_BITS[t.dtype] / 8 for t in tensors_in(texts[at])
             if t.dtype in DTYPE_BITS),
            default=np.nan,
        )  # fmt: skip
    return sizes[code]


def _follows(facts: RankFacts, wanted: Bool, rows: pd.DataFrame, size: Floats) -> tuple[Int, Bool]:
    """Return the order of kernels by stream and time, and which go on with what one wrote.

    Args:
        facts: of the rank.
        wanted: which kernels.
        rows: of them.
        size: bytes of the largest tensor of each.

    Returns:
        Also which, in this order, go on with what the kernel before them on the stream wrote.
    """
    in_order = facts.by_stream[1]
    place = np.empty(len(in_order), np.int64)
    place[in_order] = np.arange(len(in_order))
    place = place[: len(wanted)][wanted]  # kernels stand before copies
    order = np.argsort(np.where(rows["stream"].isna(), place + len(in_order), place))
    before = np.r_[order[:1], order[:-1]]
    follows: Bool = place[order] == place[before] + 1
    for name in ("stream", "layer", "direction", "op"):
        value = codes(rows[name])
        follows &= (value[order] == value[before]) != (name == "op")
    by_memory = (rows["bound"] == "memory").to_numpy(bool)
    follows &= by_memory[order] & by_memory[before] & (size[order] == size[before])
    return order, follows


def _blocks_per_sm(facts: RankFacts, rows: pd.DataFrame) -> Floats:
    """Return the blocks per multiprocessor, from the grid where it is not recorded; or NaN."""
    recorded = rows["blocks_per_sm"].to_numpy("float64", na_value=np.nan)
    counts = [row.get("multiprocessors") for row, _ in facts.devices]
    units = np.array([count or np.nan for count in counts], float)
    code, texts = pd.factorize(rows["grid"])
    blocks = [float(np.prod([int(n) for n in str(grid).split(",")])) for grid in texts]
    # Some profilers write a grid of 0 blocks, which none has.
    grids = np.array([*blocks, np.nan], float)[code]
    counted = np.where(grids > 0, grids, np.nan) / units[rows["place"].to_numpy("int64")]
    return np.where(np.isnan(recorded), counted, recorded)


def _evidence(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the ids of kernels and copies, which are numbered together, the longest first."""
    order = np.argsort(-rows["dur_ns"].to_numpy(np.int64), kind="stable")
    return {"kernels": pd.Series(rows["kernel_id"].to_numpy()[order])}


def _most(rows: pd.DataFrame, column: str, most: int = 3) -> list[str]:
    """Return the values that own most of the time."""
    times = rows.groupby(column, observed=True)["dur_ns"].sum()
    return [str(v) for v in times.sort_values(ascending=False, kind="stable").index[:most]]


def top_line(rows: pd.DataFrame) -> str | None:
    """Return the line that owns most of the time; None: no line is known."""
    return next(iter(_most(rows, "source", 1)), None)
