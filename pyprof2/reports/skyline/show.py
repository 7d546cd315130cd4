"""What `pyprof2 export --skyline` and `--deepview` write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.batch.limits import limits
from pyprof2.analysis.summaries.batch.model import STEP
from pyprof2.errors import Pyprof2Error
from pyprof2.reports import files
from pyprof2.reports.skyline.deepview import Analysis, Prediction, analysis_json
from pyprof2.reports.skyline.entries import Entries
from pyprof2.reports.skyline.sqlite import write_report
from pyprof2.reports.sweep_files import lines_at
from pyprof2.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.reports.skyline.entries import MemoryReport, TimeReport
    from pyprof2.run import Run

REPORTS: Final = ("time", "memory", "both", "deepview")
_MACHINE: Final = ("host", "system", "cpu", "machine_bytes")
_COMPONENTS: Final = {
    "rapl": "ENERGY_CPU_DRAM",
    "nvml": "ENERGY_NVIDIA",
    "nvml-power": "ENERGY_NVIDIA",
}
_NO_MEMORY: Final = (
    "no allocation is recorded, so there is no memory report; record with "
    "profile(profile_memory=True)"
)
_FUNCTIONS: Final = (
    "frames of torch.profiler: a line is where its function begins; pyprof2.init() records calls"
)


@dataclass(frozen=True)
class SkylineQuery:
    """What is asked for.

    Attributes:
        report: one of `REPORTS`.
        path: the file to write.
        step, rank, device, ledger: see `Entries`.
        batch: samples in a step; None: those that the recording says.
        model: of this batch size and others; None: nothing is recorded of others.
    """

    report: str
    path: Path
    step: int | None = None
    rank: int | None = None
    device: str | None = None
    ledger: str | None = None
    batch: int | None = None
    model: Model | None = None


def show(run: Run, query: SkylineQuery) -> list[str]:
    """Write what is asked for, and return lines that say what it is of, and what it lacks.

    Raises:
        Pyprof2Error: only the memory report is asked for, and no memory is recorded.
        UsageError: there is no such step, rank, device or ledger.
    """
    entries = Entries(run, query.rank)
    time = None if query.report == "memory" else entries.time(query.ledger, query.step)
    memory = None if query.report == "time" else entries.memory(query.device)
    if query.report == "memory" and memory is None:
        msg = f"{run.path}: {_NO_MEMORY}"
        raise Pyprof2Error(msg)
    if query.report == "deepview" and time is not None:
        content = analysis_json(_about(run, query, entries, time), time, memory)
        files.write_text(files.json_text(content) + "\n", query.path)
    else:
        write_report(query.path, time, memory)
    return list(_said(run, query, time, memory))


def _about(run: Run, query: SkylineQuery, entries: Entries, time: TimeReport) -> Analysis:
    (rank, *_) = run.tables_of(query.rank)
    devices = rank.devices()
    gpus = [d for d in devices if d["device_type"] != "cpu"]
    machine: dict[str, Any] = next(iter(rank.read("trace", _MACHINE).to_pylist()), {})
    capacity = next((d["memory_bytes"] for d in devices if d["memory_bytes"]), None)
    root, file = next(iter(run.source_roots), ""), _entry_of(run).get("file", "")
    phases, tensor_core_pct = entries.phases(time.step)
    return Analysis(
        root=root,
        entry=file.removeprefix(root).lstrip("/\\"),
        gpus=[str(d["name"]) for d in gpus if d["name"]],
        machine=machine,
        capacity=capacity if gpus or capacity else machine.get("machine_bytes"),
        batch=batch_of(run, query.batch),
        energy=_energy(run, rank.rank),
        phases=phases,
        tensor_core_pct=tensor_core_pct,
        prediction=_prediction(run, query),
    )


def _entry_of(run: Run) -> dict[str, Any]:
    """Return what the manifest says of the entry point; empty: the recording is of none."""
    return next((dict(rank["entry"]) for rank in run.manifest["ranks"] if "entry" in rank), {})


def batch_of(run: Run, given: int | None) -> int | None:
    """Return the samples in a step: what is given, else as recorded, of an entry point."""
    batch: int | None = given or _entry_of(run).get("batch_size")
    return batch


def _prediction(run: Run, query: SkylineQuery) -> Prediction | None:
    """Return what a model says around the batch size of the recording."""
    batch = batch_of(run, query.batch)
    if query.model is None or batch is None:
        return None
    time, memory = lines_at(query.model, query.model.nearest(batch, {}))
    found = limits(query.model, None)
    return Prediction(found.asymptote if found.measure == STEP else None, time, memory)


def _energy(run: Run, rank: int) -> dict[str, float]:
    """Return joules of a step by DeepView's words; without a part that is not known."""
    found = run.energy[run.energy["rank"] == rank]
    sums: dict[str, float] = {}
    for counter, joules in zip(found["counter"], found["joules_per_step"], strict=True):
        word = _COMPONENTS.get(counter.partition(":")[0])
        if word is not None and not pd.isna(joules):
            sums[word] = sums.get(word, 0.0) + float(joules)
    return sums


def _said(
    run: Run, query: SkylineQuery, time: TimeReport | None, memory: MemoryReport | None
) -> Iterator[str]:
    if time is not None:
        step = "the whole recording" if time.step is None else f"step {time.step}"
        calls = counted(len(time.entries), "call")
        yield f"times: {calls} of {step}, rank {time.rank}, {time.ledger}"
        if run.lines_are_functions:
            yield _FUNCTIONS
    if memory is not None:
        yield f"memory: of {memory.device}"
        yield from memory.lacks
    elif query.report != "time":
        yield _NO_MEMORY
    if query.report == "deepview" and batch_of(run, query.batch) is None:
        yield "no throughput: the recording does not say how many samples a step has; --batch-size"
