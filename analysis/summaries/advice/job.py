"""Rules on the job: communication, memory, and what the TensorBoard plugin warned of beside."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.summaries.advice.facts import TIMES, RankFacts, by_device, ends, is_pinned
from pyprof2.analysis.summaries.advice.findings import RuleFinding, unknown
from pyprof2.analysis.summaries.advice.ranks import exposed_with_cause
from pyprof2.columns import join_rows

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.intervals import Bool

EXPOSED_PCT: Final = 10
COPIES_PCT: Final = 10
MEMORY_PCT: Final = 90
UTILIZATION_PCT: Final = 50
_WORK: Final = ("kernels", "copies")
_CROSSES: Final = re.compile("^(?!d2d)")
"""Kinds of copies that are not inside of a device."""
_NCCL: Final = re.compile("nccl|rccl", re.IGNORECASE)

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
    exposed = exposed_ns(facts)
    share = facts.share(exposed)
    if share < EXPOSED_PCT:
        return None
    columns = ("kernel_id", "dur_ns", "kernel_short")
    own = facts.rows("kernels", *columns, where=facts.comm("kernels"))
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
    return _alone_ns(facts, np.concatenate([facts.comm(name) for name in _WORK]))


def copies(facts: RankFacts) -> RuleFinding | None:
    """The device waits for what it is sent, or sends: nothing but copies to and fro ran.

    On a stream of their own they run beside kernels: copy the next batch while this one is worked
    on. That takes pinned memory, and gains no more than the rest of the time, which is what is
    expected. More is gained if less is copied: smaller types, and what stays on the device.
    """
    crosses = [facts.named(name, "copy_kind", _CROSSES) for name in _WORK]
    exposed = _alone_ns(facts, np.concatenate(crosses), COPIES_PCT)
    share = facts.share(exposed)
    if share < COPIES_PCT:
        # Too many copies may not say where to.
        either = [
            crosses[at]
            | (facts.are(name, "category", ("memcpy",)) & facts.lacks(name, "copy_kind"))
            for at, name in enumerate(_WORK)
        ]
        exposed = _alone_ns(facts, np.concatenate(either), COPIES_PCT)
        share = facts.share(exposed)
        if share < COPIES_PCT:
            return None
        text = f"{share:.1f} % of the time only copies ran, some of no known direction"
        wanted = "a profiler that records the direction of copies"
        return unknown(text, wanted, hi_ns=exposed, lo_ns=0)
    columns = ("kernel_id", "dur_ns", "copy_kind", "source")
    both = zip(_WORK, crosses, strict=True)
    own = join_rows(facts.rows(name, *columns, where=mask) for name, mask in both)
    own = own.sort_values("dur_ns", ascending=False, kind="stable")
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


def _alone_ns(facts: RankFacts, marks: Bool, least_pct: float = 0) -> int:
    """Return the time in which marked kernels and copies ran, and no others of their device.

    Args:
        facts: of the rank.
        marks: of kernels, and then of copies.
        least_pct: a share of the time; 0 is returned where they did not run so long, all together.
    """
    work = facts.work(*TIMES)
    time_ns = int(work["dur_ns"].to_numpy("int64")[marks].sum())
    if not time_ns or facts.share(time_ns) < least_pct:
        return 0
    return facts.busy_ns - sum(
        union_length(*ends(rows[~marked])) for rows, marked in by_device(work, marks)
    )


def memory_limit(facts: RankFacts) -> RuleFinding | None:
    """The allocated memory came near that of the device: the next longer input may not fit.

    Near the limit PyTorch releases and allocates again, which waits for the device.
    """
    sizes = {row.get("device"): row.get("memory_bytes") for row, _ in facts.devices}
    peaks = (
        {}
        if facts.lacks_totals
        else {
            curve.device: pc.max(curve.events["allocated_bytes"]).as_py()
            for curve in facts.memory.curves
            if curve.device_type != "cpu"
        }
    )
    known = {
        device: 100 * peak / sizes[device]
        for device, peak in peaks.items()
        if peak is not None and sizes.get(device)
    }
    if not known:
        return unknown(
            "how much memory was allocated is not recorded", f"memory: {facts.advice.memory}"
        )
    device, share = max(known.items(), key=lambda item: float(item[1]))
    if share <= MEMORY_PCT:
        return None
    return RuleFinding(f"{share:.0f} % of the memory of device {device} was allocated")


def data_parallel(facts: RankFacts) -> RuleFinding | None:
    """`DataParallel` drives all devices from one Python thread, and copies the model each step."""
    devices = facts.work("device")["device"].nunique()
    if devices < 2 or not _names(facts, "DataParallel.forward"):
        return None
    return RuleFinding(f"DataParallel on {devices} devices")


def backend_without_nccl(facts: RankFacts) -> RuleFinding | None:
    """`DistributedDataParallel` over Gloo or MPI moves gradients through the host."""
    if not _names(facts, "DistributedDataParallel.forward"):
        return None
    backends = [name for name in ("nccl", "gloo", "mpi") if _names(facts, f"{name}:", start=True)]
    is_nccl = facts.named("kernels", "kernel", _NCCL).any()
    versions = [row.get("compute_capability") for row, _ in facts.devices]
    is_able = any(float(version) >= NCCL_SINCE for version in versions if version)
    if is_nccl or "nccl" in backends or not is_able or not backends:
        return None
    return RuleFinding(f"DistributedDataParallel over {backends[0]}")


def low_utilization(facts: RankFacts) -> RuleFinding | None:
    """Kernels ran in less than half of the time.

    Alone it says nothing that one could act on: it is shown only beside a finding on the host.
    """
    kernels = facts.rows("kernels", *TIMES)
    busy = sum(
        union_length(*ends(rows)) for rows, _ in by_device(kernels, np.ones(len(kernels), bool))
    )
    share = facts.share(busy)
    if share >= UTILIZATION_PCT:
        return None
    return RuleFinding(f"kernels ran in {share:.1f} % of the time")


def _names(facts: RankFacts, text: str, *, start: bool = False) -> bool:
    """Whether an op or a range has the text in its name, or begins with it."""
    columns = (facts.rows("ops", "op")["op"], facts.rows("ranges", "name")["name"])
    names = {name for column in columns for name in column.dropna().unique()}
    if start:
        return any(name.startswith(text) for name in names)
    # `DataParallel` is also the end of another class's name.
    return any(text in name and f"Distributed{text}" not in name for name in names)
