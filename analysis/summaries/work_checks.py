"""Work without counts, off the Tensor Cores, or beyond what its device can do, as findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.hardware.missed_tensor_cores import advice_on, missed_time
from pyprof2.analysis.hardware.roofs import floats, known, op_numbers, sums_of_op
from pyprof2.analysis.hardware.verdict import devices_of, find_peaks
from pyprof2.analysis.summaries.findings import Finding
from pyprof2.analysis.summaries.ledger import sum_by, uncosted_ops
from pyprof2.problems import FORMULA_FAILED
from pyprof2.recording import code_column, int_column
from pyprof2.tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import pyarrow as pa

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.problems import Advice

NEEDED: Final = {
    "kernels": ("op", "kernel", "category", "cost_status", "cost_note", "dur_ns", "layer",
                "tensor_core", "tensor_core_eligible", "tensor_core_eligible_half", "flops",
                "compute_dtype", "params", "device_type"),
    "ops": ("op", "category", "cost_status", "cost_note", "self_ns"),
}  # fmt: skip
"""The columns that `CountedWork.of` takes of each table."""

_OPS_SHOWN: Final = 5
_PLACES_SHOWN: Final = 3
_LEAST_PCT: Final = 0.05
_OWN_FORMULA: Final = (
    "register a formula of your own, pyprof2.analysis.costs.cost_of, and parse the recording again"
)
_MEND: Final = "mend the formula, and parse the recording again"
_PARTLY_RECORDED: Final = "this version of PyTorch does not record these inputs; another one may"
_NAME_IT: Final = "name a device like it, or a file that describes it, with --device"
_WORDS: Final = {"no_formula": "no formula", "no_shapes": "no shapes"}


@dataclass(frozen=True)
class CountedWork:
    """The work of a rank, with and without counts.

    Attributes:
        time_ns: all GPU time, without a GPU all op time.
        uncosted: see `pyprof2.analysis.summaries.ledger.uncosted_ops`.
        missed: see `pyprof2.analysis.hardware.missed_tensor_cores.missed_time`.
    """

    time_ns: int
    uncosted: pd.DataFrame
    missed: pd.DataFrame

    @classmethod
    def of(cls, parts: Iterable[pa.Table], time_ns: int, *, has_gpu: bool) -> CountedWork:
        """Return what the columns `NEEDED` of a rank's kernels say; without a GPU of its ops."""
        import pandas as pd

        uncosted, missed = [], [missed_time(TABLES["kernels"].schema().empty_table())]
        for rows in parts:
            uncosted.append(uncosted_ops(rows, has_gpu=has_gpu))
            missed += [missed_time(rows)] if has_gpu else []
        return cls(time_ns, pd.concat(uncosted), pd.concat(missed))


def find_work(ranks: Sequence[CountedWork], advice: Advice) -> Iterator[Finding]:
    """Yield the findings on the work of kernels, of all ranks together.

    First the ops without counts that own most of the time, those without a formula and those
    without shapes; then the time that could have been on Tensor Cores, by reason. Shares are of
    all GPU time.

    Args:
        ranks: of each rank.
        advice: of the format of the recordings.
    """
    import pandas as pd

    total = sum(each.time_ns for each in ranks)
    uncosted = pd.concat([each.uncosted for each in ranks])
    uncosted = sum_by(uncosted, ["op", "bin", "cost_note"], total)
    for kind in _WORDS:
        yield from _uncosted(uncosted, kind, advice.inputs)
    missed = pd.concat([each.missed for each in ranks])
    rows = sum_by(missed, ["reason", "place"], total)
    sums = rows.groupby("reason", observed=True)[["count", "time_ns", "share_pct"]].sum()
    for reason, row in sums.sort_values("time_ns", ascending=False).iterrows():
        places = rows[(rows["reason"] == reason) & (rows["share_pct"] >= _LEAST_PCT)]
        most = [f"{p.place} {p.share_pct:.1f} %" for p in places.head(_PLACES_SHOWN).itertuples()]
        where = f" (most in {', '.join(most)})" if most else ""
        text = f"Tensor Cores could have worked, but did not: {reason}{where}"
        count, share = int(row["count"]), float(row["share_pct"])
        yield Finding("info", text, count, share, advice_on(str(reason)))


def _uncosted(ops: pd.DataFrame, kind: str, record_shapes: str) -> Iterator[Finding]:
    ops = ops[ops["bin"] == kind]
    shown = ops[ops["share_pct"] >= _LEAST_PCT].head(_OPS_SHOWN)
    for row in shown.to_dict("records"):
        why = f" ({row['cost_note']})" if row["cost_note"] else ""
        advice = _PARTLY_RECORDED if row["cost_note"] else record_shapes
        if str(row["cost_note"]).startswith(FORMULA_FAILED):
            advice = _MEND
        elif kind == "no_formula":
            advice = "" if row["cost_note"] else _OWN_FORMULA
        text = f"{_WORDS[kind]}: {row['op']}{why}"
        yield Finding("lack", text, row["count"], row["share_pct"], advice)
    rest = ops.iloc[len(shown) :]
    if len(rest):
        count, share = int(rest["count"].sum()), float(rest["share_pct"].sum())
        yield Finding("lack", f"{_WORDS[kind]}: all other ops", count, share)


def find_devices(devices: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield a finding for each name of a device without known peaks."""
    counts = Counter(str(device["name"] or "") for device in devices if find_peaks(device) is None)
    for name, count in sorted(counts.items()):
        what = name or "the device, which has no name"
        text = f"no peaks known of {what}: no roofs, no MFU"
        yield Finding("lack", text, count, None, _NAME_IT)


_MARGIN: Final = 1.05
"""Clocks and data sheets agree to a few percent."""
_SPARSITY: Final = 2
"""Peaks are dense, and structured sparsity doubles them."""
_CACHES_SERVE: Final = 20
"""Caches move more than the memory: at most some ten times as much."""
_EXEMPT: Final = ("conv", "comm")
_TOO_MUCH: Final = "kernels with more FLOPs or bytes than their device can do in their time"
_NOT_DONE: Final = (
    "their shapes, formulas, times or the device are wrong: pyprof2 explain kernel:N says which "
    "were used"
)
COUNTED: Final = (
    "device",
    "category",
    "compute_dtype",
    "cost_op_id",
    "cost_call_id",
    "op_time_ns",
    "flops_lo",
    "bytes_lo",
)
"""The columns that say which counts a kernel has, and what its device is."""


def find_impossible_work(
    kernels: pa.Table,
    devices: Sequence[Mapping[str, Any]],
    rank: int,
    override: Path | str | None = None,
) -> Iterator[Finding]:
    """Yield how many kernels of a rank have counts beyond what their device can do in their time.

    Args:
        kernels: columns `COUNTED` of the rank's `kernels`.
        devices: rows of the canonical table `devices`.
        rank: its number.
        override: a device's name, or a file that describes one, to use instead of the recorded.
    """
    place, found = devices_of(kernels, devices, override)
    limits = np.array([_limits(device) for _, device in found])[place]
    category, words = code_column(kernels, "category")
    dtype, dtypes = code_column(kernels, "compute_dtype")
    # A convolution may multiply less than its FLOPs say, and links bound a collective; not every
    # peak of 4-bit types is known.
    is_exempt = np.array([*(word in _EXEMPT for word in words), False])[category]
    is_exempt |= np.array([*((kind or "").startswith("f4") for kind in dtypes), False])[dtype]
    # FLOP/s and bytes per second that each kernel's op had at least; NaN: not known.
    op = op_numbers(kernels)
    seconds = known(int_column(kernels, "op_time_ns", -1)) / 1e9
    counts = [floats(kernels, name) for name in ("flops_lo", "bytes_lo")]
    counted = [np.where(op >= 0, sums_of_op(op, column), np.nan) for column in counts]
    rates = np.stack(counted, axis=1) / seconds[:, None]
    too_many = (rates > limits).any(axis=1) & ~is_exempt
    if (count := int(too_many.sum())) > 0:
        yield Finding("problem", _TOO_MUCH, count, 100 * count / len(too_many), _NOT_DONE, rank)


def _limits(device: Device | None) -> tuple[float, float]:
    """Return what no FLOP/s and no bytes per second of a device exceed; infinite if unknown."""
    if device is None or not device.memory_bytes_per_s:
        return np.inf, np.inf
    peaks = [*device.matrix_flop_per_s.values(), *device.vector_flop_per_s.values()]
    cache = device.l2_bytes_per_s or 0.0
    bandwidth = max(_CACHES_SERVE * device.memory_bytes_per_s, cache)
    return _MARGIN * _SPARSITY * max(peaks, default=np.inf), _MARGIN * bandwidth
