"""Judge kernels: did Tensor Cores do the work, could they have, and how near is the roof.

Names, dtypes and devices are judged once per distinct combination.

Where the name does not decide, the rate may: more FLOP/s than the peak of the vector lanes prove
that matrix units worked. The rate is taken from the lower bound of exact counts, and only for
matrix products and attention; a convolution may be fast because its algorithm multiplies less.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.hardware.devices import (
    DEVICES,
    Device,
    find_device,
    load_device,
    measured_device,
)
from pyprof2.analysis.hardware.roofline import vector_peak
from pyprof2.analysis.hardware.roofs import (
    ANSWERS,
    Roofs,
    floats,
    known,
    op_numbers,
    percentages,
    roofs_of,
    sums_of_op,
)
from pyprof2.analysis.hardware.tensor_core import eligible, tensor_core
from pyprof2.columns import combine_keys, text_array
from pyprof2.errors import UsageError, suggest
from pyprof2.recording import code_column, has_text, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.hardware.roofs import Found
    from pyprof2.analysis.intervals import Bool, Int

_CPU: Final = "cpu"
_COPIES: Final = ("memcpy", "memset")
_WHOLE_GRAPH: Final = re.compile(r"CUDA graph \d+\Z")
_PROVABLE: Final = ("matmul", "attention")
_MARGIN: Final = 1.05
"""How far above the vector peak a rate must be: clocks and data sheets agree to a few percent."""

JUDGED: Final = (
    "tensor_core", "tensor_core_eligible", "tensor_core_eligible_half", "tensor_core_evidence",
    "roofline_pct", "bound", "roofline_flag",
)  # fmt: skip
"""The columns that `judge` makes."""

JUDGED_BY: Final = (
    "device", "kernel", "category", "params", "compute_dtype", "cost_status", "cost_op_id",
    "cost_call_id", "op_time_ns", "flops", "flops_lo", "bytes_lo", "tflops", "gbps",
)  # fmt: skip
"""The columns that `judge` reads."""


@dataclass(frozen=True)
class Judged:
    """Rows with their verdicts, and the inputs of these.

    Attributes:
        table: the rows.
        place: of each row its device's position in `devices`.
        devices: rows of the canonical table `devices`, after an empty one, each with its peaks.
        roofs: of each row.
    """

    table: pa.Table
    place: Int
    devices: list[tuple[Mapping[str, Any], Device | None]]
    roofs: Roofs


def judge(
    kernels: pa.Table, devices: Sequence[Mapping[str, Any]], override: Path | str | None = None
) -> pa.Table:
    """Return kernels or copies with verdicts and roofs, replacing those they have.

    Args:
        kernels: rows of one rank's `kernels` or `copies`; at least the columns `JUDGED_BY`.
        devices: the rank's rows of the canonical table `devices`.
        override: a device's name, or a file that describes one, to use instead of the recorded.

    Raises:
        UsageError: `override` is neither.
    """
    return examine(kernels, devices, override).table


def examine(
    kernels: pa.Table,
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
    apart: Int | None = None,
) -> Judged:
    """Return the rows as `judge` does, with the inputs of the verdicts.

    Rows that have different numbers in `apart` are judged as if the others were not there.
    """
    place, found = devices_of(kernels, devices, override)
    op = op_numbers(kernels)
    if apart is not None:
        op = np.where(op >= 0, combine_keys(apart, op), -1)
    verdict = _tensor_cores(kernels, devices, place)
    answer, columns = _proven(kernels, op, place, found, verdict)
    roofs = roofs_of(kernels, op, place, found, answer)
    columns |= percentages(kernels, op, roofs)
    kept = kernels.select([name for name in kernels.column_names if name not in JUDGED])
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return Judged(kept, place, found, roofs)


def examine_ops(
    rows: pa.Table, devices: Sequence[Mapping[str, Any]], override: Path | str | None = None
) -> Judged:
    """Return op calls on the CPU with their roofs: the rates that were measured on it.

    Args:
        rows: op calls as rows of the canonical table `kernels`, each with itself as `cost_op_id`.
        devices: rows of the canonical table `devices`.
        override: a file that describes the CPU, to use instead; the name of a GPU is none.

    Raises:
        UsageError: `override` is neither.
    """
    if override is not None and find_device(str(override)) is not None:
        override = None
    cpus = [device for device in devices if device["device_type"] == _CPU]
    # A rank has one, of number 0.
    at = rows.column_names.index("device")
    zeros = pa.array(np.zeros(rows.num_rows, np.int64))
    place, found = devices_of(rows.set_column(at, "device", zeros), cpus, override)
    op = op_numbers(rows)
    roofs = roofs_of(rows, op, place, found, np.full(len(op), ANSWERS.index("no")))
    for name, column in percentages(rows, op, roofs).items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    return Judged(rows, place, found, roofs)


def devices_of(
    rows: pa.Table, devices: Sequence[Mapping[str, Any]], override: Path | str | None = None
) -> tuple[Int, list[tuple[Mapping[str, Any], Device | None]]]:
    """Return for each row its device's position in the list of recorded devices, and that list.

    Args:
        rows: have a `device`; of one rank, as `devices` are.
        devices: rows of the canonical table `devices`.
        override: as for `judge`.

    Raises:
        UsageError: `override` is no device.
    """
    forced = None if override is None else named_device(override)
    listed: list[Mapping[str, Any]] = [{}, *devices]
    number = {row["device"]: at for at, row in enumerate(listed) if at}
    alike = {row["name"] for row in devices}
    # As for the device's name: where all are alike, an ordinal that is not listed is one more.
    default = 1 if len(alike) == 1 else 0
    ordinal = int_column(rows, "device", -1)
    values, inverse = np.unique(ordinal, return_inverse=True)
    place = np.array([number.get(device, default) for device in values.tolist()] or [0])
    return place[inverse], [(row, forced or find_peaks(row)) for row in listed]


def named_device(override: Path | str) -> Device:
    """Return the device of this name, or that a file describes.

    Raises:
        UsageError: `override` is neither.
    """
    device = find_device(str(override))
    if device is not None:
        return device
    if Path(override).is_file():
        return load_device(Path(override))
    names = sorted(d.name for d in DEVICES)
    near = [name for name in names if str(override).lower() in name.lower()]
    hint = f"did you mean {', '.join(near)}? " if near else suggest(str(override), names)
    msg = (
        f"{override}: no such device and no such file; {hint}docs/devices.rst lists the known ones"
    )
    raise UsageError(msg)


def find_peaks(row: Mapping[str, Any]) -> Device | None:
    """Return the device that a row of the canonical table `devices` names, None if unknown."""
    if row.get("device_type") == _CPU:
        # The peaks of a CPU are in a marker only, which does not replace a device that is known.
        is_known = find_device(row.get("name") or "") is not None
        return None if is_known else measured_device(row)
    if not row.get("name"):
        return None
    found = find_device(
        row["name"], row.get("multiprocessors"), row.get("clock_hz"), row.get("memory_bytes")
    )
    recorded: float | None = row.get("memory_bytes_per_s")
    if found is None or found.memory_bytes_per_s is not None or not recorded:
        return found
    return replace(
        found, memory_bytes_per_s=recorded, source=f"{found.source}; bandwidth as recorded"
    )


def _tensor_cores(
    kernels: pa.Table, devices: Sequence[Mapping[str, Any]], place: Int
) -> tuple[Int, dict[str, Any]]:
    """Return the verdict of each row as a code into `ANSWERS`, -1 for copies, and its columns."""
    texts = [code_column(kernels, n) for n in ("kernel", "compute_dtype", "category", "params")]
    key = combine_keys(place, *(codes for codes, _ in texts))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rows: list[Mapping[str, Any]] = [{}, *devices]
    verdicts = [
        _verdict(
            [words[codes[at]] if codes[at] >= 0 else None for codes, words in texts],
            rows[place[at]],
        )
        for at in first.tolist()
    ]
    answers = np.array([ANSWERS.index(v[0]) if v[0] else -1 for v in verdicts] or [-1])[inverse]
    could, could_half = (
        np.array([-1 if is_able is None else int(is_able) for is_able in able] or [-1])[inverse]
        for able in ([v[1] for v in verdicts], [v[2] for v in verdicts])
    )
    return answers, {
        "tensor_core": text_array((answers, ANSWERS)),
        "tensor_core_eligible": pa.array(could > 0, mask=could < 0),
        "tensor_core_eligible_half": pa.array(could_half > 0, mask=could_half < 0),
        "tensor_core_evidence": text_array((inverse, [v[3] for v in verdicts])),
    }


def _verdict(
    words: Sequence[str | None], device: Mapping[str, Any]
) -> tuple[str | None, bool | None, bool | None, str | None]:
    """Return verdict, eligibility as it is and in half precision, and evidence of one kernel."""
    kernel, dtype, category, params = words
    if category in _COPIES:
        return None, None, None, None
    capability, kind = device.get("compute_capability"), device.get("device_type")
    found = tensor_core(kernel or "", dtype, capability, device_type=kind)
    # The work of the kernels of a whole graph is not known.
    of = None if _WHOLE_GRAPH.match(kernel or "") else category
    could, could_half = (
        eligible(of, of_dtype, sizes_of(params or ""), capability, kind)
        for of_dtype in (dtype, "f16")
    )
    return found.tensor_core, could, could_half, found.evidence


@cache
def sizes_of(params: str) -> dict[str, int]:
    """Return the whole numbers in `M=512,N=1024`."""
    parts = (part.partition("=") for part in params.split(","))
    return {name: int(value) for name, _, value in parts if value.isdecimal() and len(value) < 19}


def _proven(
    kernels: pa.Table,
    op: Int,
    place: Int,
    found: Found,
    verdict: tuple[Int, dict[str, Any]],
) -> tuple[Int, dict[str, Any]]:
    """Return verdicts in which a rate that only matrix units reach is a `yes`.

    The proof is for an op with one kernel name that does not decide and did a part of the FLOPs: if
    there are two, either may have used the matrix units, and if another kernel certainly did,
    the rate may be its.
    """
    answer, columns = verdict
    kernel, _ = code_column(kernels, "kernel")
    undecided: Bool = (answer == ANSWERS.index("unknown")) & (op >= 0)
    undecided &= has_text(kernels, "category", _PROVABLE)
    undecided &= has_text(kernels, "cost_status", ("ok",))
    undecided &= int_column(kernels, "flops", 0) > 0
    names = np.unique(np.stack((op[undecided], kernel[undecided])), axis=1)[0]
    ops, count = np.unique(names, return_counts=True)
    undecided &= np.isin(op, ops[count == 1]) & ~np.isin(op, op[answer == ANSWERS.index("yes")])
    if not undecided.any():
        return verdict
    rate = sums_of_op(op, floats(kernels, "flops_lo")) / known(
        int_column(kernels, "op_time_ns", -1)
    )
    dtype, dtypes = code_column(kernels, "compute_dtype")
    texts = list(columns["tensor_core_evidence"].dictionary.to_pylist())
    evidence = columns["tensor_core_evidence"].indices.to_numpy(zero_copy_only=False).copy()
    answer = answer.copy()
    for row in np.flatnonzero(undecided).tolist():
        kind = dtypes[dtype[row]] if dtype[row] >= 0 else None
        proof = _proof(found[place[row]][1], kind, float(rate[row]))
        if proof is not None:
            answer[row] = ANSWERS.index("yes")
            evidence[row] = len(texts)
            texts.append(proof)
    return answer, columns | {
        "tensor_core": text_array((answer, ANSWERS)),
        "tensor_core_evidence": text_array((evidence, texts)),
    }


def _proof(device: Device | None, kind: str | None, flops_per_ns: float) -> str | None:
    """Return why only matrix units reach a rate; None where others may."""
    peak = vector_peak(device, kind)
    if device is None or peak is None or not flops_per_ns * 1e9 > _MARGIN * peak:
        return None
    return (
        f"{flops_per_ns / 1e3:.1f} TFLOP/s exceed the vector peak of {peak / 1e12:.1f} for {kind} "
        f"on {device.name}: only matrix units can do that"
    )
