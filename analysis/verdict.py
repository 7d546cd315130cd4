"""Judge kernels: did Tensor Cores do the work, could they have, and how near is the roof.

Names, dtypes and devices are judged once per distinct combination. All kernels of an op share its
rates, so they share its roof too: that of the units its main kernels ran on.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.devices import DEVICES, Device, find_device, load_device
from pyprof2.analysis.intervals import Int, combine_keys
from pyprof2.analysis.roofline import peak_for, roofline
from pyprof2.analysis.tensor_core import eligible, tensor_core
from pyprof2.columns import TextColumn, text_array
from pyprof2.errors import UsageError
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COPIES: Final = ("memcpy", "memset")
_ANSWERS: Final = ["unknown", "no", "yes"]
"""By how much they say of an op: one kernel that used Tensor Cores decides for all."""

_JUDGED: Final = (
    "tensor_core", "tensor_core_eligible", "tensor_core_evidence", "roofline_pct", "bound",
    "roofline_flag",
)  # fmt: skip


def judge(
    kernels: pa.Table, devices: Sequence[Mapping[str, Any]], override: Path | str | None = None
) -> pa.Table:
    """Return kernels or copies with verdicts and roofs, replacing those they have.

    Args:
        kernels: rows of the canonical tables `kernels` or `copies`, with rates.
        devices: rows of the canonical table `devices`.
        override: a device's name, or a file that describes one, to use instead of the recorded.

    Raises:
        UsageError: `override` is neither.
    """
    forced = None if override is None else _forced_device(override)
    place, found = _devices_of(kernels, devices, forced)
    answer, columns = _tensor_cores(kernels, devices, place)
    columns |= _roofs(kernels, place, found, answer)
    kept = kernels.select([name for name in kernels.column_names if name not in _JUDGED])
    for name, column in columns.items():
        kept = kept.append_column(name, column)
    return kept


def _forced_device(override: Path | str) -> Device:
    device = find_device(str(override))
    if device is not None:
        return device
    if Path(override).is_file():
        return load_device(Path(override))
    known = ", ".join(sorted(d.name for d in DEVICES))
    msg = f"{override}: no such device and no such file; known are {known}"
    raise UsageError(msg)


def _devices_of(
    kernels: pa.Table, devices: Sequence[Mapping[str, Any]], forced: Device | None
) -> tuple[Int, list[tuple[Mapping[str, Any], Device | None]]]:
    """Return for each row its device's position in the list, which holds what was recorded."""
    rows: list[Mapping[str, Any]] = [{}, *devices]
    number = {row["device"]: at for at, row in enumerate(rows) if at}
    alike = {row["name"] for row in devices}
    # As for the device's name: where all are alike, an ordinal that is not listed is one more.
    default = 1 if len(alike) == 1 else 0
    ordinal = int_column(kernels, "device", -1)
    values, inverse = np.unique(ordinal, return_inverse=True)
    place = np.array([number.get(value, default) for value in values.tolist()] or [0])[inverse]
    return place, [(row, forced or _find(row)) for row in rows]


def _find(row: Mapping[str, Any]) -> Device | None:
    if not row.get("name"):
        return None
    return find_device(
        row["name"], row.get("multiprocessors"), row.get("clock_hz"), row.get("memory_bytes")
    )


def _tensor_cores(
    kernels: pa.Table, devices: Sequence[Mapping[str, Any]], place: Int
) -> tuple[Int, dict[str, Any]]:
    """Return the verdict of each row as a code into `_ANSWERS`, -1 for copies, and its columns."""
    texts = [code_column(kernels, n) for n in ("kernel", "compute_dtype", "category", "params")]
    key = combine_keys(place, *(codes for codes, _ in texts))
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    rows = [{}, *devices]
    verdicts = [_verdict(*_words(texts, at), rows[place[at]]) for at in first.tolist()]
    answers = np.array([_ANSWERS.index(v[0]) if v[0] else -1 for v in verdicts] or [-1])[inverse]
    could = np.array([-1 if v[1] is None else int(v[1]) for v in verdicts] or [-1])[inverse]
    return answers, {
        "tensor_core": text_array((answers, _ANSWERS)),
        "tensor_core_eligible": pa.array(could > 0, mask=could < 0),
        "tensor_core_evidence": text_array((inverse, [v[2] for v in verdicts])),
    }


def _words(texts: Sequence[TextColumn], at: int) -> list[str | None]:
    return [words[codes[at]] if codes[at] >= 0 else None for codes, words in texts]


def _verdict(
    kernel: str | None,
    dtype: str | None,
    category: str | None,
    params: str | None,
    device: Mapping[str, Any],
) -> tuple[str | None, bool | None, str | None]:
    """Return verdict, eligibility and evidence of one distinct kernel."""
    if category in _COPIES:
        return None, None, None
    capability, kind = device.get("compute_capability"), device.get("device_type")
    found = tensor_core(kernel or "", dtype, capability, device_type=kind)
    could = eligible(category, dtype, _sizes(params or ""), capability, kind)
    return found.tensor_core, could, found.evidence


@cache
def _sizes(params: str) -> dict[str, int]:
    """Return the whole numbers in `M=512,N=1024`."""
    parts = (part.partition("=") for part in params.split(","))
    return {name: int(value) for name, _, value in parts if value.isdecimal() and len(value) < 19}


def _roofs(
    kernels: pa.Table,
    place: Int,
    found: Sequence[tuple[Mapping[str, Any], Device | None]],
    answer: Int,
) -> dict[str, Any]:
    """Return share of the roof, what bounds the op, and the flag; copies have no roof."""
    op, time = (int_column(kernels, name, -1) for name in ("cost_op_id", "op_time_ns"))
    dtype, dtypes = code_column(kernels, "compute_dtype")
    of_op = _best_of_op(op, np.maximum(answer, 0))
    key = combine_keys(place, dtype, of_op)
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    limits = [
        _limits(
            found[place[at]][1], dtypes[dtype[at]] if dtype[at] >= 0 else None, _ANSWERS[of_op[at]]
        )
        for at in first.tolist()
    ]
    peak, low, bandwidth, l2 = np.array(limits or [[np.nan] * 4], float)[inverse].T
    base = np.where(op >= 0, time, np.nan)
    roof = roofline(
        _floats(kernels, "tflops") * base * 1e3,
        _floats(kernels, "gbps") * base,
        base,
        peak,
        bandwidth,
        l2_bytes=l2,
        peak_flops_low=low,
    )
    pct = roof.roofline_pct
    return {
        "roofline_pct": pa.array(pct, mask=np.isnan(pct)),
        "bound": pa.array(roof.bound, pa.string()).dictionary_encode(),
        "roofline_flag": pa.array(roof.flag, pa.string()).dictionary_encode(),
    }


def _best_of_op(op: Int, answer: Int) -> Int:
    """Return for each row the strongest verdict among the kernels of its op."""
    best = np.zeros(int(op.max(initial=-1)) + 2, np.int64)
    np.maximum.at(best, op, answer)
    return best[op]


def _limits(device: Device | None, dtype: str | None, answer: str) -> tuple[float, ...]:
    """Return compute peak, what it is not below, memory bandwidth, and cache; NaN: unknown."""
    if device is None:
        return (np.nan,) * 4
    peak = peak_for(device, dtype, answer)
    values = (peak.flops, peak.low, device.memory_bytes_per_s, device.l2_bytes)
    return tuple(np.nan if value is None else float(value) for value in values)


def _floats(kernels: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    values: np.ndarray[Any, np.dtype[np.float64]] = kernels[name].to_numpy()
    return values
