"""A run in the form of the JSON that `deepview analysis` writes, for programs that read it.

Numbers are those of Skyline's reports. Facts that a recording lacks are left out; the JSON schema
is in the documentation. As in DeepView's own files, counts of bytes are text: they are 64-bit
integers of protocol buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports.skyline.entries import WeightEntry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.reports.skyline.entries import Frame, MemoryReport, TimeReport

_NS_PER_MS: Final = 10**6
_NS_PER_S: Final = 10**9
_EPOCHS: Final = 50
_ITERATIONS: Final = 1000
"""Iterations of an epoch. Both are settings of DeepView's page; nobody measured them."""


@dataclass(frozen=True)
class DeepViewFacts:
    """The subject of a file: project, machine, step.

    Attributes:
        root: folder of the project; empty: not known.
        gpus: names of the devices that worked.
        entry: the file of the entry point, from `root`; empty: the recording is of none.
        machine: `host`, `system`, `cpu` and `machine_bytes` of the table `trace`.
        capacity: bytes of the device; None: not known.
        batch: samples in a step; None: not known, so there is no throughput.
        energy: joules of a step, by DeepView's word for the component; None: not measured.
        phases, tensor_core_pct: see `Entries.phases`.
        prediction: of recordings at other batch sizes; None: there are none.
        elsewhere: rows of `Run.predict`, each with DeepView's name of its device.
        ddp: as of `PredictedStep.ddp`; None: too little is known.
    """

    root: str
    gpus: list[str]
    entry: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    capacity: int | None = None
    batch: int | None = None
    energy: dict[str, float] | None = None
    phases: Sequence[Mapping[str, Any]] = ()
    tensor_core_pct: float | None = None
    prediction: Prediction | None = None
    elsewhere: Sequence[Mapping[str, Any]] = ()
    ddp: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Prediction:
    """Time and memory of a step at other batch sizes, as lines over the batch; None: not known.

    Attributes:
        most: samples per second that no batch size reaches.
        time: slope and bias, ms.
        memory: the same of the peak, bytes.
    """

    most: float | None
    time: tuple[float, float] | None
    memory: tuple[float, float] | None


def analysis_json(
    about: DeepViewFacts, time: TimeReport, memory: MemoryReport | None
) -> dict[str, Any]:
    """Return the file's object."""
    machine, size = about.machine, about.machine.get("machine_bytes")
    state = {
        "message_type": "analysis",
        "project_root": about.root,
        "project_entry_point": about.entry,
        # DeepView's own files have no `cpu` and no `memoryBytes`.
        "hardware_info": {
            "hostname": machine.get("host") or "",
            "os": machine.get("system") or "",
            "gpus": about.gpus,
        }
        | _known({"cpu": machine.get("cpu"), "memoryBytes": None if size is None else str(size)}),
        "throughput": _throughput(about, time),
        "breakdown": _breakdown(about, time, memory),
        "habitat": _habitat(about.elsewhere),
        "additionalProviders": "",
        "energy": _energy(about),
        "utilization": _utilization(about),
        "ddp": _ddp(about.ddp),
    }
    return {
        "analysisState": state,
        "epochs": _EPOCHS,
        "iterPerEpoch": _ITERATIONS,
        "encodedFiles": [],
    }


def _throughput(about: DeepViewFacts, time: TimeReport) -> dict[str, Any]:
    """Return samples per second of a step; a recording without steps has no throughput."""
    if about.batch is None or not time.wall_ns:
        return {}
    found: dict[str, Any] = {"samplesPerSecond": about.batch * _NS_PER_S / time.wall_ns}
    if about.prediction is None:
        return found
    lines = {"runTimeMs": about.prediction.time, "peakUsageBytes": about.prediction.memory}
    return _known(
        found
        | {"predictedMaxSamplesPerSecond": about.prediction.most}
        | {
            name: None if line is None else {"slope": line[0], "bias": line[1]}
            for name, line in lines.items()
        }
    )


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


def _known(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known values: an unknown one has no key."""
    return {name: value for name, value in values.items() if value is not None}


def _utilization(about: DeepViewFacts) -> dict[str, Any]:
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
        for phase in about.phases
    ]
    return _known({"phases": phases or None, "tensorUtilizationPct": about.tensor_core_pct})


def _energy(about: DeepViewFacts) -> dict[str, Any]:
    if not about.energy:
        return {}
    components = [
        {"componentType": name, "consumptionJoules": joules}
        for name, joules in about.energy.items()
    ]
    found: dict[str, Any] = {
        "totalConsumption": sum(about.energy.values()),
        "components": components,
    }
    return found | ({} if about.batch is None else {"batchSize": about.batch})


def _breakdown(
    about: DeepViewFacts, time: TimeReport, memory: MemoryReport | None
) -> dict[str, Any]:
    found: dict[str, Any] = {"operationTree": _tree(time, memory)}
    if time.wall_ns:
        found["iterationRunTimeMs"] = time.wall_ns / _NS_PER_MS
    if about.batch is not None:
        found["batchSize"] = about.batch
    if about.capacity is not None:
        found["memoryCapacityBytes"] = str(about.capacity)
    if memory is not None and memory.weights:
        found["weightTree"] = _weights(memory)
    if memory is not None and memory.peak_bytes is not None:
        found["peakUsageBytes"] = str(memory.peak_bytes)
    return found


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
