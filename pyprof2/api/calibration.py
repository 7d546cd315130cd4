"""A description of a device that makes a prediction right, from one program on two devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.prediction.model import COMPUTE_BOUND, MEMORY_BOUND, least, predict
from pyprof2.analysis.prediction.parameters import FULL, HALF, MEMORY, eta_of, shipped
from pyprof2.api.prediction import PredictedStep
from pyprof2.errors import UsageError, refuse

if TYPE_CHECKING:
    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.prediction.model import Work
    from pyprof2.api.run_tables import RunTables

_ROUNDS: Final = 8
"""Each share moves a little what the other kernels are bound by."""
_ENOUGH: Final = 0.05
"""The part of the time below which kernels say too little of a share."""
_ALIKE: Final = 0.05
"""By so much may the FLOPs of one program differ on two devices."""
_LEAST, _MOST = 0.02, 1.5
_WHATS: Final = (FULL, HALF, MEMORY)


def calibrated(one: RunTables, other: RunTables) -> dict[str, Any]:
    """Return a description of the second recording's device, with the shares of its peaks.

    They are those with which the first recording's prediction has as much time in kernels that
    each of compute and memory bounds as the second one.

    Raises:
        UsageError: a device is not known, both are the same, or the programs differ.
    """
    sides = []
    for run in (one, other):
        prediction = PredictedStep(run)
        if prediction.source is None:
            refuse(f"{run.label}: its device is not in the table of devices: nothing to calibrate")
        sides.append((prediction.source, prediction.own.work))
    (source, here), (target, there) = sides
    if source.name == target.name:
        refuse(f"both recordings are of {source.name}: calibrate with two devices")
    counts = [float(np.nansum(work.flops)) for work in (here, there)]
    if abs(counts[0] - counts[1]) > _ALIKE * max(counts) or not max(counts):
        said = " and ".join(f"{count:.4g}" for count in counts)
        msg = f"{one.label} and {other.label}: steps of {said} FLOPs, so not of one program"
        raise UsageError(msg)
    parameters, eta = shipped(), dict(target.eta)
    whole = float(there.time.sum())
    for _ in range(_ROUNDS):
        device = replace(target, eta=eta)
        found = predict(here, source, device, parameters)
        ours = _sums(here, found.time, found.group, source, device)
        true = _sums(there, there.time, _groups(there, device), device, device)
        for what in _WHATS:
            if min(ours[what], true[what]) > _ENOUGH * whole:
                value = eta_of(parameters, device, what).value * ours[what] / true[what]
                eta[what] = float(np.clip(value, _LEAST, _MOST))
    if not eta:
        refuse(f"{other.label}: no kernels with counts of FLOPs and bytes: record shapes")
    return _description(target, eta, f"one program, recorded on it and on a {source.name}")


def _groups(work: Work, device: Device) -> Int:
    """Return what bounds each on its own device; other numbers: nothing that is known."""
    terms = least(work, device, device, shipped())
    bound = np.where(terms.compute > terms.memory, COMPUTE_BOUND, MEMORY_BOUND)
    unknown = np.isnan(terms.total) | work.is_kept | (work.kind < 0)
    return np.where(unknown | ((work.flops == 0) & (work.bytes == 0)), -1, bound)


def _sums(work: Work, time: Floats, group: Int, source: Device, device: Device) -> dict[str, float]:
    """Return the time of kernels by the share that decides it."""
    of = np.array([*(unit.share_of(device, source) for unit in work.units), ""])[work.unit]
    sums = {
        what: float(time[(group == COMPUTE_BOUND) & (of == what)].sum()) for what in (FULL, HALF)
    }
    return sums | {MEMORY: float(time[group == MEMORY_BOUND].sum())}


def _description(device: Device, eta: dict[str, float], source: str) -> dict[str, Any]:
    """Return a device as `load_device` reads it."""
    tera = {
        name: {dtype: peak / 1e12 for dtype, peak in peaks.items()}
        for name, peaks in (
            ("vector_tflops", device.vector_flop_per_s),
            ("matrix_tflops", device.matrix_flop_per_s),
        )
    }
    known = {
        "l2_mib": device.l2_bytes and device.l2_bytes / (1 << 20),
        "l2_gb_per_s": device.l2_bytes_per_s and device.l2_bytes_per_s / 1e9,
        "compute_capability": device.compute_capability, "watts": device.watts,
    }  # fmt: skip
    return {
        "name": f"{device.name} (calibrated)",
        "memory_gb_per_s": (device.memory_bytes_per_s or 0) / 1e9,
        **tera,
        "vendor": device.vendor,
        **{name: value for name, value in known.items() if value is not None},
        "source": device.source,
        "eta": {what: round(eta[what], 4) for what in _WHATS if what in eta},
        "eta_source": source,
    }
