"""A run in the form of the JSON that `deepview analysis` writes, for programs that read it.

Numbers are those of Skyline's reports. Facts that a recording lacks are left out; the JSON schema
is in the documentation. As in DeepView's own files, counts of bytes are text: they are 64-bit
integers of protocol buffers.

A batch model is written as the two CSV files of `skyline-evaluate` too: measurements and fits.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.hardware.devices import device_named
from pyprof2.analysis.summaries.batch.limits import limits
from pyprof2.analysis.summaries.batch.model import MEMORY, STEP
from pyprof2.api.prediction import PredictedStep, Question
from pyprof2.reports import files
from pyprof2.reports.skyline.entries import WeightEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.api.run import Run
    from pyprof2.reports.skyline.entries import (
        Entries,
        Frame,
        MemoryReport,
        SkylineQuery,
        TimeReport,
    )


DEEPVIEW: Final = {
    "P100": "P100 PCIe", "P4000": "P4000", "RTX2070": "RTX 2070", "RTX2080Ti": "RTX 2080 Ti",
    "T4": "T4", "V100": "V100 SXM2", "A100": "A100 SXM 40GB", "RTX3090": "RTX 3090", "A40": "A40",
    "A4000": "RTX A4000", "RTX4000": "Quadro RTX 4000", "L4": "L4", "H100": "H100 SXM",
}  # fmt: skip
"""The devices that DeepView predicts, by its names."""
_MACHINE: Final = ("host", "system", "cpu", "machine_bytes")
_COMPONENTS: Final = {
    "rapl": "ENERGY_CPU_DRAM",
    "nvml": "ENERGY_NVIDIA",
    "nvml-power": "ENERGY_NVIDIA",
}
_NS_PER_MS: Final = 10**6
_NS_PER_S: Final = 10**9
_EPOCHS: Final = 50
_ITERATIONS: Final = 1000
"""Iterations of an epoch. Both are settings of DeepView's page; nobody measured them."""


def analysis_json(
    run: Run, query: SkylineQuery, entries: Entries, time: TimeReport, memory: MemoryReport | None
) -> dict[str, Any]:
    """Return the file's object."""
    (rank, *_) = run.tables.of(query.rank)
    batch = batch_of(run, query.batch)
    devices = rank.devices()
    gpus = [device for device in devices if device["device_type"] != "cpu"]
    machine: dict[str, Any] = next(iter(rank.read("trace", _MACHINE).to_pylist()), {})
    size = machine.get("machine_bytes")
    capacity = next((d["memory_bytes"] for d in devices if d["memory_bytes"]), None)
    root, file = next(iter(run.tables.source_roots), ""), _entry_of(run).get("file", "")
    of_batch = _known({"batchSize": batch})
    state = {
        "message_type": "analysis",
        "project_root": root,
        "project_entry_point": file.removeprefix(root).lstrip("/\\"),
        # DeepView's own files have no `cpu` and no `memoryBytes`.
        "hardware_info": {
            "hostname": machine.get("host") or "",
            "os": machine.get("system") or "",
            "gpus": [str(device["name"]) for device in gpus if device["name"]],
        }
        | _known({"cpu": machine.get("cpu"), "memoryBytes": _text(size)}),
        "throughput": _throughput(time, batch, query.model),
        "breakdown": {"operationTree": _tree(time, memory)}
        | _known({
            "iterationRunTimeMs": time.wall_ns / _NS_PER_MS if time.wall_ns else None,
            **of_batch,
            "memoryCapacityBytes": _text(capacity if gpus or capacity else size),
            "weightTree": _weights(memory) if memory is not None and memory.weights else None,
            "peakUsageBytes": None if memory is None else _text(memory.peak_bytes),
        }),
        "habitat": _habitat(elsewhere(run, query.step)),
        "additionalProviders": "",
        "energy": _energy(run, rank.rank, of_batch),
        "utilization": _utilization(*entries.phases(time.step)),
        "ddp": _ddp(PredictedStep(run.tables, query.step).ddp((2, 4)) if gpus else None),
    }  # fmt: skip
    return {
        "analysisState": state,
        "epochs": _EPOCHS,
        "iterPerEpoch": _ITERATIONS,
        "encodedFiles": [],
    }


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values: an unknown one has no key."""
    return {name: value for name, value in values.items() if value is not None}


def _text(count: int | None) -> str | None:
    return None if count is None else str(count)


def _throughput(time: TimeReport, batch: int | None, model: Model | None) -> dict[str, Any]:
    """Return samples per second of a step; a recording without steps has no throughput."""
    if batch is None or not time.wall_ns:
        return {}
    found: dict[str, Any] = {"samplesPerSecond": batch * _NS_PER_S / time.wall_ns}
    if model is None:
        return found
    most = limits(model, None)
    found["predictedMaxSamplesPerSecond"] = most.asymptote if most.measure == STEP else None
    # The model around the batch size of the recording.
    lines = lines_at(model, model.nearest(batch, {}))
    for name, line in zip(("runTimeMs", "peakUsageBytes"), lines, strict=True):
        found[name] = None if line is None else {"slope": line[0], "bias": line[1]}
    return _known(found)


def elsewhere(run: Run, step: int | None) -> list[dict[str, Any]]:
    """Return what the step takes on DeepView's devices; nothing where no device worked."""
    if run.summary["no_gpu"]:
        return []
    prediction, question = PredictedStep(run.tables, step), Question()
    rows = []
    for name, ours in DEEPVIEW.items():
        (row,) = prediction.rows_of(device_named(ours), question)
        known = {key: row.get(key) for key in ("step_ms", "lo_ms", "hi_ms", "why")}
        rows.append({"name": name} | known)
    return rows


def _entry_of(run: Run) -> dict[str, Any]:
    """Return the entry point in the manifest; empty: the recording is of none."""
    ranks = run.tables.manifest["ranks"]
    return next((dict(rank["entry"]) for rank in ranks if "entry" in rank), {})


def batch_of(run: Run, given: int | None) -> int | None:
    """Return the samples in a step: as given, else as recorded, of an entry point."""
    batch: int | None = given or _entry_of(run).get("batch_size")
    return batch


def _habitat(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the devices with a value as DeepView has them, and all with intervals and reasons."""
    if not rows:
        return {}
    names = {
        "deviceName": "name",
        "runtimeMs": "step_ms",
        "loMs": "lo_ms",
        "hiMs": "hi_ms",
        "why": "why",
    }
    all_of = [_known({key: row[name] for key, name in names.items()}) for row in rows]
    usual = ("deviceName", "runtimeMs")
    return {
        "predictions": [{n: row[n] for n in usual} for row in all_of if "runtimeMs" in row],
        "intervals": all_of,
    }


def _ddp(found: Mapping[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {}
    return {
        "forwardTimeMs": found["forward_ns"] / _NS_PER_MS,
        "bucketSizes": found["bytes"],
        "computationTimes": [
            {"ngpus": count, "expectedMaxTimes": [ns / _NS_PER_MS for ns in each]}
            for count, each in found["slowest_ns"].items()
        ],
    }


def _utilization(
    found: Sequence[Mapping[str, Any]], tensor_core_pct: float | None
) -> dict[str, Any]:
    """Return how busy each phase was; nothing for a recording without phases."""
    phases = [
        _known(
            {
                "name": phase["phase"],
                "spanMs": phase["span_ns"] / _NS_PER_MS,
                "cpuMs": phase["host_ns"] / _NS_PER_MS,
                "gpuMs": phase["device_ns"] / _NS_PER_MS if "device_ns" in phase else None,
                "utilizationPct": phase["utilization_pct"],
            }
        )
        for phase in found
    ]
    return _known({"phases": phases or None, "tensorUtilizationPct": tensor_core_pct})


def _energy(run: Run, rank: int, of_batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return joules of a step by DeepView's words; without a part that is not known."""
    rows = run.energy[run.energy["rank"] == rank]
    sums: dict[str, float] = {}
    for counter, joules in zip(rows["counter"], rows["joules_per_step"], strict=True):
        word = _COMPONENTS.get(counter.partition(":")[0])
        if word is not None and not pd.isna(joules):
            sums[word] = sums.get(word, 0.0) + float(joules)
    if not sums:
        return {}
    components = [
        {"componentType": name, "consumptionJoules": joules} for name, joules in sums.items()
    ]
    return {"totalConsumption": sum(sums.values()), "components": components, **of_batch}


def _weights(memory: MemoryReport) -> list[dict[str, Any]]:
    """Return a root with the weights below it."""
    known = [w.grad_bytes for w in memory.weights if w.grad_bytes is not None]
    size = sum(weight.size_bytes for weight in memory.weights)
    root = WeightEntry("Model", size, sum(known) if known else None)
    return [
        {
            "name": weight.name,
            "numChildren": 0 if at else len(memory.weights),
            "contexts": [_context(frame) for frame in weight.frames],
            "weight": {"sizeBytes": str(weight.size_bytes)}
            | ({} if weight.grad_bytes is None else {"gradSizeBytes": str(weight.grad_bytes)}),
        }
        for at, weight in enumerate([root, *memory.weights])
    ]


# -- the tree of operations ----------------------------------------------------------------------


@dataclass
class _Node:
    """A call site, or an op at one; its numbers are those of all that is below."""

    name: str
    frame: Frame | None = None
    forward_ns: int = 0
    backward_ns: int | None = None
    size_bytes: int | None = None
    calls: int = 0
    children: dict[tuple[Frame | None, str], _Node] = field(default_factory=dict)

    def below(self, frame: Frame | None, name: str) -> _Node:
        """Return the child of a line, or of an op."""
        return self.children.setdefault((frame, name), _Node(name, frame))

    def add(self, forward_ns: int, backward_ns: int | None, calls: int) -> None:
        """Add a call's times."""
        self.forward_ns += forward_ns
        self.calls += calls
        if backward_ns is not None:
            self.backward_ns = (self.backward_ns or 0) + backward_ns


def _tree(time: TimeReport, memory: MemoryReport | None) -> list[dict[str, Any]]:
    """Return the nodes in preorder: each line below those that led to it, ops as leaves."""
    root = _Node("Model")
    for entry in time.entries:
        for node in _path(root, entry.frames, entry.op):
            node.add(entry.forward_ns, entry.backward_ns, int(entry.is_forward))
    activations = [] if memory is None else memory.activations
    for kept in activations:
        for node in _path(root, kept.frames, kept.op):
            node.size_bytes = (node.size_bytes or 0) + kept.size_bytes
    # Where something is known to be kept, the rest keeps nothing; else it is unknown.
    rest = 0 if activations else None
    nodes = []
    waiting: list[tuple[_Node, Frame | None]] = [(root, None)]
    while waiting:
        node, line = waiting.pop()
        line = node.frame or line
        own = sorted(node.children.values(), key=lambda n: -(n.forward_ns + (n.backward_ns or 0)))
        waiting += [(child, line) for child in reversed(own)]
        nodes.append(_node_json(node, line, rest if node.size_bytes is None else node.size_bytes))
    return nodes


def _path(root: _Node, frames: tuple[Frame, ...], op: str) -> Iterator[_Node]:
    """Give the nodes from the root to an op."""
    node = root
    yield node
    for frame in reversed(frames):
        node = node.below(frame, f"{frame.path}:{frame.line}")
        yield node
    yield node.below(None, op)


def _node_json(node: _Node, line: Frame | None, size: int | None) -> dict[str, Any]:
    """Return a node; its context is the line that it is at."""
    kept = {} if size is None else {"sizeBytes": str(size)}
    contexts = [] if line is None else [_context(line)]
    total = node.forward_ns + (node.backward_ns or 0)
    operation: dict[str, Any] = {
        "forwardMs": node.forward_ns / _NS_PER_MS,
        # Protocol buffers spell it so in JSON; it stands for an op without backward.
        "backwardMs": "NaN" if node.backward_ns is None else node.backward_ns / _NS_PER_MS,
        **kept,
        "contextInfoMap": [
            {
                "context": context,
                "runTimeMs": total / _NS_PER_MS,
                **kept,
                "invocations": node.calls,
            }
            for context in contexts
        ],
    }
    return {
        "name": node.name,
        "numChildren": len(node.children),
        "contexts": contexts,
        "operation": operation,
    }


def _context(frame: Frame) -> dict[str, Any]:
    parts = [part for part in frame.path.replace("\\", "/").split("/") if part]
    return {"filePath": {"components": parts}, "lineNumber": frame.line}


MEASURED: Final = "measure-batches.csv"
MODELS: Final = "prediction-models.csv"
_MEASURED_COLUMNS: Final = ("batch_size", "trial", "samples_per_second", "memory_usage_bytes")
_MODEL_COLUMNS: Final = (
    "batch_size", "run_time_ms_slope", "run_time_ms_bias", "memory_usage_bytes_slope",
    "memory_usage_bytes_bias",
)  # fmt: skip

_Row = tuple[float | int | None, ...]


def paths_in(folder: Path) -> list[Path]:
    """Return the files that `write_sweep` writes into a folder."""
    return [folder / name for name in (MEASURED, MODELS)]


def write_sweep(model: Model, folder: Path) -> list[str]:
    """Write both files into a folder, and return lines on unknown values."""
    measured, models = paths_in(folder)
    _write(measured, _MEASURED_COLUMNS, _measured(model))
    # For each recorded batch size the lines that touch the model there.
    unknown = (None, None)
    rows = (
        (each.batch, *(time or unknown), *(memory or unknown))
        for at, each in enumerate(model.recordings)
        for time, memory in [lines_at(model, at)]
    )
    _write(models, _MODEL_COLUMNS, rows)
    return list(_lacks(model))


def _write(path: Path, columns: Sequence[str], rows: Iterator[_Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    files.write_text(text.getvalue(), path)


def _measured(model: Model) -> Iterator[_Row]:
    """Give a row for each step; one without a rate for a recording without steps."""
    has_memory = _has_memory(model)
    for each in model.recordings:
        peak = max(each.memory.peaks.values()) if each.memory and has_memory else None
        for trial, time in enumerate(each.step_ns or [None]):
            rate = None if not time else each.batch * _NS_PER_S / time
            yield each.batch, trial, rate, peak


_Line = tuple[float, float]


def lines_at(model: Model, at: int) -> tuple[_Line | None, _Line | None]:
    """Return slope and bias of time, ms, and of memory, bytes, at a recording; None: not known."""
    batch, alike = model.recordings[at].batch, not model.work.differs
    time = _tangent(model, STEP, at, batch) if alike and model.has_steps else None
    memory = _tangent(model, MEMORY, at, batch) if alike and _has_memory(model) else None
    return None if time is None else (time[0] / _NS_PER_MS, time[1] / _NS_PER_MS), memory


def _tangent(model: Model, measure: str, at: int, batch: int) -> tuple[float, float]:
    """Return slope and bias: the value of one more sample, and that of the line at no sample."""
    here, next_one = (model.modelled(measure, at, size, {}) for size in (batch, batch + 1))
    slope = next_one - here
    return slope, here - slope * batch


def _has_memory(model: Model) -> bool:
    """Whether the peaks are of all memory, not only of what was allocated while it recorded."""
    known = all(each.memory is not None and not each.memory.over_base for each in model.recordings)
    return known and bool(model.memory)


def _lacks(model: Model) -> Iterator[str]:
    if not model.has_steps:
        yield "no samples_per_second and no run_time_ms: not all recordings have step ranges"
    if not _has_memory(model):
        yield "no memory_usage_bytes: what was allocated before the recordings is not known"
    if model.work.differs:
        yield f"{MODELS} has no models: the recordings differ in more than the batch"
