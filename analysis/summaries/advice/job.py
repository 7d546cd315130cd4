"""Rules on the job: communication, memory, and what the TensorBoard plugin warned of beside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.summaries.advice.facts import Facts, ends, is_comm
from pyprof2.analysis.summaries.advice.findings import Found, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

EXPOSED_PCT: Final = 10
MEMORY_PCT: Final = 90
UTILIZATION_PCT: Final = 50
NCCL_SINCE: Final = 3.5
"""The compute capability from which NCCL works."""


def exposed_communication(facts: Facts) -> Found | None:
    """Collectives ran while no other work did: the device was busy, but with waiting.

    How much of it is transfer, and how much is waiting for other ranks, one rank cannot tell.
    """
    kernels = facts["kernels"]
    own = kernels[is_comm(kernels)]
    exposed = exposed_ns(facts)
    share = facts.share(exposed)
    if share < EXPOSED_PCT:
        return None
    times = own.groupby("kernel_short", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    text = f"{share:.1f} % of the time only collectives ran; most in {times.index[0]}"
    ids = own.sort_values("dur_ns", ascending=False, kind="stable")["kernel_id"]
    return Found(text, exposed, 0, exposed, "time in which only they ran", {"kernels": ids})


def exposed_ns(facts: Facts) -> int:
    """Return the time in which collectives ran, and neither other kernels nor copies."""
    work = pd.concat([facts[name] for name in ("kernels", "copies")])
    return sum(
        union_length(*ends(rows)) - union_length(*ends(rows[~talks]))
        for rows, talks in _by_device(work, is_comm(work))
    )


def _by_device(
    work: pd.DataFrame, marks: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Iterator[tuple[pd.DataFrame, np.ndarray[tuple[int], np.dtype[np.bool_]]]]:
    device = work["device"].fillna(-1).to_numpy("int64")
    for each in np.unique(device).tolist():
        yield work[device == each], marks[device == each]


def memory_limit(facts: Facts) -> Found | None:
    """The allocated memory came near that of the device: the next longer input may not fit.

    Near the limit PyTorch releases and allocates again, which waits for the device.
    """
    rows = facts["memory"]
    rows = rows[(rows["device_type"] != "cpu").to_numpy(bool) & rows["allocated_bytes"].notna()]
    sizes = {row.get("device"): row.get("memory_bytes") for row, _ in facts.devices}
    peaks = rows.groupby("device")["allocated_bytes"].max()
    known = {
        device: 100 * peak / sizes[device] for device, peak in peaks.items() if sizes.get(device)
    }
    if not known:
        needs = "memory: profile(profile_memory=True); nsys: --cuda-memory-usage=true"
        return unknown("how much memory was allocated is not recorded", needs)
    device, share = max(known.items(), key=lambda item: float(item[1]))
    if share <= MEMORY_PCT:
        return None
    return Found(f"{share:.0f} % of the memory of device {device} was allocated")


def data_parallel(facts: Facts) -> Found | None:
    """`DataParallel` drives all devices from one Python thread, and copies the model each step."""
    devices = pd.concat([facts[name]["device"] for name in ("kernels", "copies")]).nunique()
    if devices < 2 or not _names(facts, "DataParallel.forward"):
        return None
    return Found(f"DataParallel on {devices} devices")


def backend_without_nccl(facts: Facts) -> Found | None:
    """`DistributedDataParallel` over Gloo or MPI moves gradients through the host."""
    if not _names(facts, "DistributedDataParallel.forward"):
        return None
    backends = [name for name in ("nccl", "gloo", "mpi") if _names(facts, f"{name}:", start=True)]
    is_nccl = facts["kernels"]["kernel"].astype(str).str.contains("nccl|rccl", case=False).any()
    versions = [row.get("compute_capability") for row, _ in facts.devices]
    is_able = any(float(version) >= NCCL_SINCE for version in versions if version)
    if is_nccl or "nccl" in backends or not is_able or not backends:
        return None
    return Found(f"DistributedDataParallel over {backends[0]}")


def low_utilization(facts: Facts) -> Found | None:
    """Kernels ran in less than half of the time.

    Alone it says nothing that one could act on: it is told only beside a finding on the host.
    """
    kernels = facts["kernels"]
    marks = np.ones(len(kernels), bool)
    busy = sum(union_length(*ends(rows)) for rows, _ in _by_device(kernels, marks))
    share = facts.share(busy)
    if share >= UTILIZATION_PCT:
        return None
    return Found(f"kernels ran in {share:.1f} % of the time")


def _names(facts: Facts, text: str, *, start: bool = False) -> bool:
    """Whether an op or a range has the text in its name, or begins with it."""
    names = {*facts["ops"]["op"].dropna().unique(), *facts["ranges"]["name"].dropna().unique()}
    if start:
        return any(name.startswith(text) for name in names)
    # `DataParallel` is also the end of another class's name.
    return any(text in name and f"Distributed{text}" not in name for name in names)
