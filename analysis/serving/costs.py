"""FLOPs and bytes of a server's steps by a model, which is held against the recording first."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from pyprof2.analysis.serving import facts, kinds
from pyprof2.analysis.serving.batches import RequestSums
from pyprof2.analysis.serving.models import Between, KindCost, LanguageModel, added
from pyprof2.analysis.serving.quantisation import DENSE_BITS, DENSE_TYPE
from pyprof2.analysis.serving.steps import INPUT as STEPS_INPUT
from pyprof2.analysis.serving.steps import OUTSIDE, StepsWork, work_of_steps
from pyprof2.errors import refuse
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.intervals import Int

_OF_WORK: Final = ("kernel_id", "flops", "bytes", "cost_status")
INPUT: Final = STEPS_INPUT | {
    "kernels": tuple(
        dict.fromkeys([*STEPS_INPUT["kernels"], *kinds.COLUMNS, *facts.COLUMNS, *_OF_WORK])
    ),
    "copies": (*STEPS_INPUT["copies"], *_OF_WORK),
}
"""The columns of the canonical tables that kinds of layer and facts about a model follow from."""

_COSTED: Final = ("ok",)
COLUMNS: Final = (
    "flops_least", "flops_most", "bytes_least", "bytes_most", "math_ns_least", "math_ns_most",
)  # fmt: skip

FROM_MODEL: Final = "model"
FROM_SHAPES: Final = "shapes"
_EIGHT_BITS: Final = re.compile(r"E4m3.*E2m1|E2m1.*E4m3|fp8.*fp4|f8.*mxfp4")
"""Products of weights of 4 bits with values of 8."""


class ServedRank(NamedTuple):
    """A rank of a server: its steps, and the activities of its devices.

    Attributes:
        rank: its number.
        work: the steps, and which activities are theirs: kernels, then copies.
        kernel_id: of each activity.
        kind: of each activity, a code into `kinds.KINDS`.
        flops, bytes: of each by the shapes of its op; -1: not known.
        costed: whether they are known.
        facts: what it says of the model.
        expert_type: in which products with experts are computed by their kernels; None: they do
            not say.
    """

    rank: int
    work: StepsWork
    kernel_id: Int
    kind: Int
    flops: Int
    bytes: Int
    costed: Int
    facts: facts.Facts
    expert_type: str | None


def served_rank(
    tables: Mapping[str, pa.Table], rank: int, pattern: re.Pattern[str] | None = None
) -> ServedRank:
    """Return what a rank did for a server.

    Args:
        tables: canonical ones of the rank, with the columns `INPUT`.
        rank: its number.
        pattern: of the names of steps; see `batches.batch_from`.
    """
    kernels, copies = tables["kernels"], tables["copies"]
    work = work_of_steps(tables, pattern)
    of_kernels = kinds.kinds_of(kernels, work.step[: kernels.num_rows])
    both = (kernels, copies)
    kernel_id, flops, moved = (
        np.concatenate([int_column(table, name, -1) for table in both])
        for name in ("kernel_id", "flops", "bytes")
    )
    costed = []
    for table in both:
        codes, words = code_column(table, "cost_status")
        costed.append(np.array([word in _COSTED for word in (*words, None)])[codes])
    codes, names = code_column(kernels, "kernel_short")
    own = np.unique(codes[of_kernels == kinds.KINDS.index(kinds.EXPERTS)]).tolist()
    is_mixed = any(_EIGHT_BITS.search(names[code]) for code in own if code >= 0)
    return ServedRank(
        rank,
        work,
        kernel_id,
        np.append(of_kernels, np.full(copies.num_rows, kinds.KINDS.index(kinds.COPY))),
        flops,
        moved,
        np.concatenate(costed),
        facts.recorded_facts(kernels, of_kernels, work),
        "f8" if is_mixed else None,
    )


def all_facts(ranks: Iterable[ServedRank]) -> facts.Facts:
    """Return what any of the ranks says of the model."""
    found: facts.Facts = {}
    for rank in ranks:
        for name, values in rank.facts.items():
            found.setdefault(name, set()).update(values)
    return found


def with_cache(model: LanguageModel, recorded: facts.Facts) -> LanguageModel:
    """Return a model whose keys and values have the bits that the recording says, if it does."""
    bits = recorded.get(facts.CACHE_BITS, set())
    return replace(model, cache_bits=int(next(iter(bits)))) if len(bits) == 1 else model


def check_model(model: LanguageModel, recorded: facts.Facts) -> list[str]:
    """Return what of a model the recording says too, which is at least how many layers it has.

    Args:
        model: on one rank.
        recorded: see `all_facts`.

    Raises:
        UsageError: they differ, or the layers were not recorded; it names both sides.
    """
    layers = recorded.get(facts.LAYERS, set())
    if len(layers) != 1:
        words = f"attention in its steps: {facts.listed(layers)} times" if layers else "none named"
        refuse(f"the recording does not say how many layers the model has ({words})")
    expected = facts.expected_of(model)
    if wrong := facts.contradictions(recorded, expected):
        refuse(f"the configuration is of another model: {'; '.join(wrong)}")
    return [f"{name} {facts.listed(recorded[name])}" for name in expected if name in recorded]


def costs_of_step(
    model: LanguageModel, row: Mapping[str, Any], device: Device | None, expert_type: str | None
) -> dict[str, float | None]:
    """Return the columns `COLUMNS` of a step; an end of an interval is null where it is not known.

    Args:
        model: on one rank.
        row: of the table `serving_steps`.
        device: what ran it; None: not known.
        expert_type: see `ServedRank`.
    """
    both = [
        RequestSums(*(row[f"{kind}_{name}"] for name in ("req", "sq", "sk", "sqsq", "sqsk")))
        for kind in "cg"
    ]
    found: dict[str, float | None] = dict.fromkeys(COLUMNS)
    if not (costs := model.costs(*both)):
        return found
    peaks = {} if device is None else device.matrix_flop_per_s
    times = {}
    for kind, cost in costs.items():
        is_known = kind == kinds.EXPERTS and expert_type and model.expert.bits < DENSE_BITS
        peak = peaks.get((expert_type if is_known else None) or model.type_of(kind))
        if cost.flops == (0, 0):
            times[kind] = Between(0, 0)
        elif peak and cost.flops is not None:
            times[kind] = Between(*(1e9 * each / peak for each in cost.flops))
    for name, parts in (
        ("flops", [cost.flops for cost in costs.values()]),
        ("bytes", [cost.bytes for cost in costs.values()]),
        ("math_ns", [times.get(kind) for kind in costs]),
    ):
        if name == "math_ns" and not any(peaks):
            continue
        found[f"{name}_least"] = sum(each.least for each in parts if each is not None)
        if None not in parts:
            found[f"{name}_most"] = sum(each.most for each in parts if each is not None)
    return found


def ridge_of(device: Device | None) -> float | None:
    """Return the FLOPs in 16-bit types that a device does while it reads a byte; None: unknown."""
    peak = None if device is None else device.matrix_flop_per_s.get(DENSE_TYPE)
    rate = None if device is None else device.memory_bytes_per_s
    return peak / rate if peak and rate else None


def shares_of_peak(
    sums: Mapping[str, float | None], device: Device | None, time_ns: float | None
) -> dict[str, float | None]:
    """Return MFU and MBU in percent: of the peaks of the types, and of the memory's bandwidth.

    Args:
        sums: the columns `COLUMNS`, summed up.
        device: what ran it; None: not known.
        time_ns: how long it took.
    """
    rate = None if device is None else device.memory_bytes_per_s
    found: dict[str, float | None] = {}
    for end in ("least", "most"):
        math_ns, moved = sums[f"math_ns_{end}"], sums[f"bytes_{end}"]
        is_timed = math_ns is not None and time_ns
        found[f"mfu_{end}_pct"] = 100 * math_ns / time_ns if is_timed else None  # type: ignore[operator]
        is_timed = moved is not None and rate and time_ns
        found[f"mbu_{end}_pct"] = 1e11 * moved / (rate * time_ns) if is_timed else None  # type: ignore[operator]
    # No more than all can have been read, whatever number of experts the configuration allows.
    if (most := found["mbu_most_pct"]) is not None:
        found["mbu_most_pct"] = max(found["mbu_least_pct"] or 0, min(most, 100.0))
    return found


class _Sums(NamedTuple):
    """Sums over the activities of a phase and kind.

    Attributes:
        works: how many there are.
        device_ns, costed_ns: their own time, and that of those whose work is known by shapes.
        flops, bytes: of these.
    """

    works: int
    device_ns: int
    costed_ns: int
    flops: int
    bytes: int


def kinds_of_phases(
    ranks: Sequence[ServedRank], model: LanguageModel | None = None, device: Device | None = None
) -> list[dict[str, Any]]:
    """Return a row for each phase and kind of layer that has work: columns of `serving_kinds`.

    Args:
        ranks: what they did.
        model: on one rank; None: FLOPs and bytes are those that shapes of ops say.
        device: what ran it; None: not known.
    """
    sums: dict[tuple[str | None, str], _Sums] = {}
    for rank in ranks:
        for key, own in _sums_of(rank):
            before = sums.get(key, _Sums(0, 0, 0, 0, 0))
            sums[key] = _Sums(*map(sum, zip(before, own, strict=True)))
    of_model = {} if model is None else _costs_of_phases(ranks, model)
    rows = []
    for (phase, kind), own in sums.items():
        cost = of_model.get((phase, kind))
        if model is not None and (phase, kinds.LINEAR) in sums and kind in model.weights:
            # Some of its products may be among those that nothing distinguishes.
            cost = None
        rows.append(_row(phase, kind, own, cost, device))
    return rows


def experts_touched(ranks: Iterable[ServedRank], model: LanguageModel) -> dict[str | None, float]:
    """Return how many experts of a layer a step of each phase reads if each has one chance."""
    found: dict[str | None, list[float]] = {}
    for rank in ranks:
        for batch in rank.work.batches:
            if (tokens := batch.tokens) is not None and model.experts:
                found.setdefault(batch.phase, []).append(model.experts_touched(tokens))
    return {phase: sum(each) / len(each) for phase, each in found.items()}


def _sums_of(rank: ServedRank) -> Iterator[tuple[tuple[str | None, str], _Sums]]:
    """Yield phase, kind and sums of a rank."""
    phases = [each.phase for each in rank.work.batches]
    names = list(dict.fromkeys([*phases, OUTSIDE]))
    of_step = np.array([names.index(phase) for phase in (*phases, OUTSIDE)])
    key = of_step[rank.work.step] * len(kinds.KINDS) + rank.kind
    found, at = np.unique(key, return_inverse=True)
    own_ns, costed = rank.work.own_ns, rank.costed
    flops, moved = (np.where(each > 0, each, 0) * costed for each in (rank.flops, rank.bytes))
    columns = [np.ones(len(at), np.int64), own_ns, own_ns * costed, flops, moved]
    totals = np.zeros((len(found), len(columns)), np.int64)
    for place, column in enumerate(columns):
        np.add.at(totals[:, place], at, column)
    for code, values in zip(found.tolist(), totals.tolist(), strict=True):
        phase, kind = divmod(code, len(kinds.KINDS))
        yield (names[phase], kinds.KINDS[kind]), _Sums(*values)


def _costs_of_phases(
    ranks: Iterable[ServedRank], model: LanguageModel
) -> dict[tuple[str | None, str], KindCost]:
    """Return what each kind takes in all steps of a phase by the model; None: of one not known."""
    found: dict[tuple[str | None, str], KindCost] = {}
    unknown: set[str | None] = set()
    for rank in ranks:
        for batch in rank.work.batches:
            costs = model.costs(batch.context, batch.generation)
            if not costs:
                unknown.add(batch.phase)
            for kind, cost in costs.items():
                before = found.get((batch.phase, kind), KindCost(Between(0, 0), Between(0, 0)))
                found[batch.phase, kind] = KindCost(
                    added((before.flops, cost.flops)), added((before.bytes, cost.bytes))
                )
    return {key: cost for key, cost in found.items() if key[0] not in unknown}


def _row(
    phase: str | None, kind: str, own: _Sums, cost: KindCost | None, device: Device | None
) -> dict[str, Any]:
    """Return the row of a phase and kind."""
    is_costed = own.costed_ns == own.device_ns
    source = FROM_SHAPES if is_costed else None
    costed_ns, work = own.costed_ns, cost or KindCost(None, None)
    if work != (None, None):
        source = FROM_MODEL
        costed_ns = max(costed_ns, own.device_ns if None not in work else 0)
    elif is_costed:
        work = KindCost(*(Between(each, each) for each in (own.flops, own.bytes)))
    row: dict[str, Any] = {
        "phase": phase,
        "kind": kind,
        "count": own.works,
        "device_ns": own.device_ns,
        "costed_pct": 100 * costed_ns / own.device_ns if own.device_ns else None,
        "cost_from": source,
    }
    rate = None if device is None else device.memory_bytes_per_s
    for name, unit, scale, each in zip(
        ("flops", "bytes"), ("tflops", "gbps"), (1e3, 1.0), work, strict=True
    ):
        for end in ("least", "most"):
            value: float | None = None if each is None else getattr(each, end)
            if (name, end, kind) == ("bytes", "most", kinds.EXPERTS) and value and rate:
                # No more experts can have been read than the memory gives in their time.
                value = max(row["bytes_least"], min(value, rate * own.device_ns / 1e9))
            row[f"{name}_{end}"] = value
            row[f"{unit}_{end}"] = None
            if value is not None and own.device_ns:
                row[f"{unit}_{end}"] = value / own.device_ns / scale
    return row
