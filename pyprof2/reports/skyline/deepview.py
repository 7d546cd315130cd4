"""A run in the form of the JSON that `deepview analysis` writes, for programs that read it.

Numbers are those of Skyline's reports. What a recording does not say is left out; its JSON schema
is in the documentation. As in DeepView's own files, counts of bytes are text: they are 64-bit
integers of protocol buffers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.reports.skyline.entries import Frame, MemoryReport, TimeReport

_NS_PER_MS: Final = 10**6
_NS_PER_S: Final = 10**9
_EPOCHS: Final = 50
_ITERATIONS: Final = 1000
"""Of an epoch. Both are settings of DeepView's page that every file has; nobody measured them."""


@dataclass(frozen=True)
class Analysis:
    """What a file is about.

    Attributes:
        root: folder of the project; empty: not known.
        gpus: names of the devices that worked.
        capacity: bytes of the device; None: not known.
        batch: samples in a step; None: not known, so there is no throughput.
        energy: joules of a step, by DeepView's word for the component; None: not measured.
    """

    root: str
    gpus: list[str]
    capacity: int | None = None
    batch: int | None = None
    energy: dict[str, float] | None = None


def analysis_json(about: Analysis, time: TimeReport, memory: MemoryReport | None) -> dict[str, Any]:
    """Return the file's object."""
    state = {
        "message_type": "analysis",
        "project_root": about.root,
        "project_entry_point": "",
        "hardware_info": {"hostname": "", "os": "", "gpus": about.gpus},
        "throughput": _throughput(about, time),
        "breakdown": _breakdown(about, time, memory),
        "habitat": {},
        "additionalProviders": "",
        "energy": _energy(about),
        "utilization": {},
        "ddp": {},
    }
    return {
        "analysisState": state,
        "epochs": _EPOCHS,
        "iterPerEpoch": _ITERATIONS,
        "encodedFiles": [],
    }


def _throughput(about: Analysis, time: TimeReport) -> dict[str, Any]:
    """Return samples per second of a step; a recording without steps has no throughput."""
    if about.batch is None or not time.wall_ns:
        return {}
    return {"samplesPerSecond": about.batch * _NS_PER_S / time.wall_ns}


def _energy(about: Analysis) -> dict[str, Any]:
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


def _breakdown(about: Analysis, time: TimeReport, memory: MemoryReport | None) -> dict[str, Any]:
    found: dict[str, Any] = {"operationTree": _tree(time, memory)}
    if time.wall_ns:
        found["iterationRunTimeMs"] = time.wall_ns / _NS_PER_MS
    if about.batch is not None:
        found["batchSize"] = about.batch
    if about.capacity is not None:
        found["memoryCapacityBytes"] = str(about.capacity)
    if memory is not None:
        found["weightTree"] = _weights(memory)
        if memory.peak_bytes is not None:
            found["peakUsageBytes"] = str(memory.peak_bytes)
    return found


def _weights(memory: MemoryReport) -> list[dict[str, Any]]:
    """Return a root with the weights below it."""
    own = [(w.name, w.size_bytes, w.grad_bytes) for w in memory.weights]
    sizes = [("Model", sum(size for _, size, _ in own), sum(grad for *_, grad in own)), *own]
    return [
        {
            "name": name,
            "numChildren": 0 if at else len(memory.weights),
            "contexts": [],
            "weight": {"sizeBytes": str(size), "gradSizeBytes": str(grad)},
        }
        for at, (name, size, grad) in enumerate(sizes)
    ]


# -- the tree of operations ----------------------------------------------------------------------


@dataclass
class _Node:
    """A call site, or an op at one; its numbers are those of all that is below."""

    name: str
    frame: Frame | None = None
    forward_ns: int = 0
    backward_ns: int | None = None
    size_bytes: int = 0
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
    for kept in memory.activations if memory is not None else []:
        for node in _path(root, kept.frames, kept.op):
            node.size_bytes += kept.size_bytes
    return list(_preorder(root))


def _path(root: _Node, frames: tuple[Frame, ...], op: str) -> Iterator[_Node]:
    """Give the nodes from the root to an op."""
    node = root
    yield node
    for frame in reversed(frames):
        node = node.below(frame, f"{frame.path}:{frame.line}")
        yield node
    yield node.below(None, op)


def _preorder(root: _Node) -> Iterator[dict[str, Any]]:
    waiting: list[tuple[_Node, Frame | None]] = [(root, None)]
    while waiting:
        node, line = waiting.pop()
        line = node.frame or line
        own = sorted(node.children.values(), key=lambda n: -(n.forward_ns + (n.backward_ns or 0)))
        waiting += [(child, line) for child in reversed(own)]
        yield _node_json(node, line)


def _node_json(node: _Node, line: Frame | None) -> dict[str, Any]:
    """Return a node; its context is the line that it is at."""
    contexts = [] if line is None else [_context(line)]
    total = node.forward_ns + (node.backward_ns or 0)
    operation: dict[str, Any] = {
        "forwardMs": node.forward_ns / _NS_PER_MS,
        # Protocol buffers spell it so in JSON; it stands for an op without backward.
        "backwardMs": "NaN" if node.backward_ns is None else node.backward_ns / _NS_PER_MS,
        "sizeBytes": str(node.size_bytes),
        "contextInfoMap": [
            {
                "context": context,
                "runTimeMs": total / _NS_PER_MS,
                "sizeBytes": str(node.size_bytes),
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
