"""FLOPs and bytes of a server's steps by a model, which is held against the recording first."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.serving.batches import DECODE, PREFILL, RequestSums
from pyprof2.analysis.serving.steps import INPUT as STEPS_INPUT
from pyprof2.analysis.serving.steps import steps_of_kernels
from pyprof2.errors import UsageError
from pyprof2.recording import code_column, has_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.serving.models import LanguageModel

INPUT: Final = STEPS_INPUT | {
    "kernels": (*STEPS_INPUT["kernels"], "category", "kernel_short"),
    "signatures": ("op", "inputs"),
}
"""The columns of the canonical tables that a model is held against."""

_SECOND_PARTS: Final = re.compile(r"reduce|segments|combine|merge", re.IGNORECASE)
"""Kernels that put together what others of the same attention have computed."""
_OF_LOGITS: Final = ("aten::argmax",)
_OF_VOCABULARY: Final = ("aten::mm", "aten::addmm", "aten::linear", "aten::embedding")
_LEAST_VOCAB: Final = 20_000
_PADDED_TO: Final = 128
_FLOPS_OF: Final = "bf16"
COLUMNS: Final = ("flops_least", "flops_most", "bytes_least", "bytes_most")


def check_model(
    model: LanguageModel,
    shards: int,
    tables_of_ranks: Iterable[Mapping[str, pa.Table]],
    pattern: re.Pattern[str] | None = None,
) -> list[str]:
    """Return what of a model the recording says too, which is at least how many layers it has.

    Args:
        model: on one rank.
        shards: how many ranks share its tensors.
        tables_of_ranks: canonical tables of each rank, with the columns `INPUT`.
        pattern: of the names of steps; see `batches.batch_from`.

    Raises:
        UsageError: they differ, or the layers were not recorded; it names both sides.
    """
    layers: set[int] = set()
    tensors: list[tuple[str, list[tuple[int, int]]]] = []
    for tables in tables_of_ranks:
        layers |= _recorded_layers(tables, pattern)
        tensors += _matrices(tables["signatures"])
    if len(layers) != 1:
        counts = f"attention kernels of its steps: {_listed(layers)}" if layers else "none is named"
        msg = f"the recording does not say how many layers the model has ({counts})"
        raise UsageError(msg)
    own = {model.vocab, -(-model.vocab // shards)}
    fit = {each + more for each in own for more in range(_PADDED_TO)}
    vocabs = {
        shapes[0][1] for op, shapes in tensors if op in _OF_LOGITS and shapes[0][1] >= _LEAST_VOCAB
    }
    # A matrix with a side as long as the vocabulary is its embedding, or the product with it.
    sides = {
        side
        for op, shapes in tensors
        if op in _OF_VOCABULARY
        for shape in shapes
        for side, other in (shape, shape[::-1])
        if other in fit and side < _LEAST_VOCAB
    }
    facts = (
        ("layers", layers, {model.layers}, model.layers),
        ("vocabulary", vocabs, fit, model.vocab),
        ("hidden size", sides, {model.hidden}, model.hidden),
    )
    wrong = [
        f"{name}: recorded {_listed(recorded)}, configuration {configured}"
        for name, recorded, right, configured in facts
        if recorded - right
    ]
    if wrong:
        msg = f"the configuration is of another model: {'; '.join(wrong)}"
        raise UsageError(msg)
    return [f"{name} {_listed(recorded)}" for name, recorded, *_ in facts if recorded]


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def _recorded_layers(tables: Mapping[str, pa.Table], pattern: re.Pattern[str] | None) -> set[int]:
    """Return how many attention kernels the steps have that are all prefill, or all decode."""
    phases, step = steps_of_kernels(tables, pattern)
    kernels = tables["kernels"]
    is_attention = has_text(kernels, "category", {"attention"})
    codes, names = code_column(kernels, "kernel_short")
    is_second = np.array([bool(_SECOND_PARTS.search(name or "")) for name in (*names, None)])
    is_first = is_attention & ~is_second[codes]
    counts = np.bincount(step[is_first & (step >= 0)], minlength=len(phases)).tolist()
    whole = (PREFILL, DECODE)
    return {n for n, phase in zip(counts, phases, strict=True) if n and phase in whole}


def _matrices(signatures: pa.Table) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return for ops at the vocabulary the shapes of their arguments that are matrices."""
    rows = signatures.filter(has_text(signatures, "op", {*_OF_LOGITS, *_OF_VOCABULARY}))
    found = []
    for op, text in zip(rows["op"].to_pylist(), rows["inputs"].to_pylist(), strict=True):
        each = [part.get("shape") for part in json.loads(text or "[]") if isinstance(part, dict)]
        shapes = [(shape[0], shape[1]) for shape in each if shape and len(shape) == 2]
        if shapes:
            found.append((op, shapes))
    return found


def costs_of_step(model: LanguageModel, row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the columns `COLUMNS` of a step; an end of an interval is null where it is not known.

    Args:
        model: on one rank.
        row: of the table `serving_steps`.
    """
    both = [
        RequestSums(*(row[f"{kind}_{name}"] for name in ("req", "sq", "sk", "sqsq", "sqsk")))
        for kind in "cg"
    ]
    context, generation = both
    if None in (context.sq, generation.sq, row["out_most"]):
        return dict.fromkeys(COLUMNS)
    tokens = int(context.sq or 0) + int(generation.sq or 0)
    # Where a prefill runs along, keys and values are made of the rows of latent attention.
    absorbed = not context.req
    flops = [model.attention_flops(each, absorbed=absorbed) for each in both]
    keys = [model.attention_bytes(each) for each in both]
    linear, weights = model.linear_flops(tokens, row["out_most"]), model.weight_bytes(tokens)
    least = [linear + sum(each.least for each in flops if each is not None)]
    least.append(weights.least + sum(each.least for each in keys if each is not None))
    most = [linear + sum(each.most for each in flops if each is not None), weights.most]
    most[1] += sum(each.most for each in keys if each is not None)
    return {
        "flops_least": least[0],
        "flops_most": None if None in flops else most[0],
        "bytes_least": least[1],
        "bytes_most": None if None in keys else most[1],
    }


def shares_of_peak(
    sums: Mapping[str, float | None], device: Device | None, time_ns: float | None
) -> dict[str, float | None]:
    """Return MFU and MBU in percent, of the peak for 16-bit types and of the memory's bandwidth.

    Args:
        sums: the columns `COLUMNS`, summed up.
        device: what ran it; None: not known.
        time_ns: how long it took.
    """
    peak = None if device is None else device.matrix_flop_per_s.get(_FLOPS_OF)
    rate = None if device is None else device.memory_bytes_per_s
    found: dict[str, float | None] = {}
    for name, kind, limit in (("mfu", "flops", peak), ("mbu", "bytes", rate)):
        for end in ("least", "most"):
            work = sums[f"{kind}_{end}"]
            known = work is not None and limit and time_ns
            found[f"{name}_{end}_pct"] = 1e11 * work / (limit * time_ns) if known else None  # type: ignore[operator]
    # No more than all can have been read, whatever number of experts the configuration allows.
    if (most := found["mbu_most_pct"]) is not None:
        found["mbu_most_pct"] = max(found["mbu_least_pct"] or 0, min(most, 100.0))
    return found
