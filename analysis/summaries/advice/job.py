"""Rules on the job: communication, memory, and what the TensorBoard plugin warned of beside."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.summaries.advice.facts import RankFacts, ends, is_comm, is_pinned
from pyprof2.analysis.summaries.advice.findings import RuleFinding, how_to_record, unknown
from pyprof2.analysis.summaries.advice.ranks import exposed_with_cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Bool

EXPOSED_PCT: Final = 10
COPIES_PCT: Final = 10
MEMORY_PCT: Final = 90
UTILIZATION_PCT: Final = 50
_NEEDED: Final = (
    "kernel_id", "start_ns", "dur_ns", "device", "category", "copy_kind", "source",
)  # fmt: skip
"""Columns of kernels and copies together, as few as possible."""

_BESIDE: Final = (
    "copy the next batch on a stream of its own while this one is worked on: non_blocking=True, "
    "the memory is pinned already; fewer bytes, or keep them on the device"
)
NCCL_SINCE: Final = 3.5
"""The compute capability from which NCCL works."""


def exposed_communication(facts: RankFacts) -> RuleFinding | None:
    """Collectives ran while no other work did: the device was busy, but with waiting.

    How much of it is transfer, and how much is waiting for other ranks, one rank does not know;
    where all were recorded the finding says it, and at stake is what a replay gains in which
    nothing waits for a transfer. Waits for ranks are no lost time: what a late rank costs is
    another finding.
    """
    kernels = facts["kernels"]
    own = kernels[is_comm(kernels)]
    exposed = exposed_ns(facts)
    share = facts.share(exposed)
    if share < EXPOSED_PCT:
        return None
    ids = own.sort_values("dur_ns", ascending=False, kind="stable")["kernel_id"]
    job = facts.job
    known = exposed_with_cause(facts, job, exposed) if job and job.is_replayed else None
    if known is not None:
        return replace(known, evidence={"kernels": ids})
    times = own.groupby("kernel_short", observed=True)["dur_ns"].sum().sort_values(ascending=False)
    text = f"{share:.1f} % of the time only collectives ran; most in {times.index[0]}"
    return RuleFinding(text, exposed, 0, exposed, "time in which only they ran", {"kernels": ids})


def exposed_ns(facts: RankFacts) -> int:
    """Return the time in which collectives ran, and neither other kernels nor copies."""
    marks = np.concatenate([is_comm(facts[name]) for name in ("kernels", "copies")])
    return _alone_ns(_work(facts), marks)


def copies(facts: RankFacts) -> RuleFinding | None:
    """The device waits for what it is sent, or sends: nothing but copies to and fro ran.

    On a stream of their own they run beside kernels: copy the next batch while this one is worked
    on. That takes pinned memory, and gains no more than the rest of the time, which is what is
    expected. More is gained if less is copied: smaller types, and what stays on the device.
    """
    work = _work(facts)
    kinds = [kind for kind in work["copy_kind"].dropna().unique() if not kind.startswith("d2d")]
    crosses = work["copy_kind"].isin(kinds).to_numpy(bool)
    exposed = _alone_ns(work, crosses)
    share = facts.share(exposed)
    if share < COPIES_PCT:
        # Too many copies may not say where to.
        is_copy = (work["category"] == "memcpy").to_numpy(bool)
        exposed = _alone_ns(work, crosses | (is_copy & work["copy_kind"].isna().to_numpy()))
        share = facts.share(exposed)
        if share < COPIES_PCT:
            return None
        text = f"{share:.1f} % of the time only copies ran, some of no known direction"
        wanted = "a profiler that records the direction of copies"
        return unknown(text, wanted, hi_ns=exposed, lo_ns=0)
    own = work[crosses].sort_values("dur_ns", ascending=False, kind="stable")
    most, line = (_most(own, name) for name in ("copy_kind", "source"))
    text = (
        f"{share:.1f} % of the time only copies to and from the device ran, those inside of it "
        f"left out; most are {most}"
    )
    # Beside other work they still take their time: what it takes is all that they can hide in.
    won = min(exposed, facts.window_ns - exposed)
    ids = {"copies": own["kernel_id"]}
    found = RuleFinding(text, exposed, 0, won, "time in which only they ran", ids, line)
    return replace(found, remedy=_BESIDE) if is_pinned(own) else found


def _most(rows: pd.DataFrame, column: str) -> str | None:
    """Return the value that owns most of the time; None where none is known."""
    times = rows.groupby(column, observed=True)["dur_ns"].sum()
    return str(times.idxmax()) if len(times) else None


def _work(facts: RankFacts) -> pd.DataFrame:
    return pd.concat([facts[name][list(_NEEDED)] for name in ("kernels", "copies")])


def _alone_ns(work: pd.DataFrame, marks: Bool) -> int:
    """Return the time in which marked rows ran, and no others of their device."""
    return sum(
        union_length(*ends(rows)) - union_length(*ends(rows[~marked]))
        for rows, marked in _by_device(work, marks)
    )


def _by_device(work: pd.DataFrame, marks: Bool) -> Iterator[tuple[pd.DataFrame, Bool]]:
    device = work["device"].fillna(-1).to_numpy("int64")
    times = work[["start_ns", "dur_ns"]]
    for each in np.unique(device).tolist():
        yield times[device == each], marks[device == each]


def memory_limit(facts: RankFacts) -> RuleFinding | None:
    """The allocated memory came near that of the device: the next longer input may not fit.

    Near the limit PyTorch releases and allocates again, which waits for the device.
    """
    sizes = {row.get("device"): row.get("memory_bytes") for row, _ in facts.devices}
    peaks = {
        curve.device: pc.max(curve.events["allocated_bytes"]).as_py()
        for curve in facts.memory.curves
        if curve.device_type != "cpu"
    }
    known = {
        device: 100 * peak / sizes[device]
        for device, peak in peaks.items()
        if peak is not None and sizes.get(device)
    }
    if not known:
        return unknown(
            "how much memory was allocated is not recorded", how_to_record(facts, "memory")
        )
    device, share = max(known.items(), key=lambda item: float(item[1]))
    if share <= MEMORY_PCT:
        return None
    return RuleFinding(f"{share:.0f} % of the memory of device {device} was allocated")


def data_parallel(facts: RankFacts) -> RuleFinding | None:
    """`DataParallel` drives all devices from one Python thread, and copies the model each step."""
    devices = pd.concat([facts[name]["device"] for name in ("kernels", "copies")]).nunique()
    if devices < 2 or not _names(facts, "DataParallel.forward"):
        return None
    return RuleFinding(f"DataParallel on {devices} devices")


def backend_without_nccl(facts: RankFacts) -> RuleFinding | None:
    """`DistributedDataParallel` over Gloo or MPI moves gradients through the host."""
    if not _names(facts, "DistributedDataParallel.forward"):
        return None
    backends = [name for name in ("nccl", "gloo", "mpi") if _names(facts, f"{name}:", start=True)]
    is_nccl = facts["kernels"]["kernel"].astype(str).str.contains("nccl|rccl", case=False).any()
    versions = [row.get("compute_capability") for row, _ in facts.devices]
    is_able = any(float(version) >= NCCL_SINCE for version in versions if version)
    if is_nccl or "nccl" in backends or not is_able or not backends:
        return None
    return RuleFinding(f"DistributedDataParallel over {backends[0]}")


def low_utilization(facts: RankFacts) -> RuleFinding | None:
    """Kernels ran in less than half of the time.

    Alone it says nothing that one could act on: it is shown only beside a finding on the host.
    """
    kernels = facts["kernels"]
    marks = np.ones(len(kernels), bool)
    busy = sum(union_length(*ends(rows)) for rows, _ in _by_device(kernels, marks))
    share = facts.share(busy)
    if share >= UTILIZATION_PCT:
        return None
    return RuleFinding(f"kernels ran in {share:.1f} % of the time")


def _names(facts: RankFacts, text: str, *, start: bool = False) -> bool:
    """Whether an op or a range has the text in its name, or begins with it."""
    names = {*facts["ops"]["op"].dropna().unique(), *facts["ranges"]["name"].dropna().unique()}
    if start:
        return any(name.startswith(text) for name in names)
    # `DataParallel` is also the end of another class's name.
    return any(text in name and f"Distributed{text}" not in name for name in names)
