"""What a text in a recording says, whichever profiler recorded it: our markers, and plain text.

Nothing is evaluated; what is no marker is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from pyprof2.markers import VERSION, Marker, parse_marker, parse_version
from pyprof2.recording import Signature
from pyprof2.signatures import Input, OpCall, Tensor, format_inputs, format_signature

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.recording import Spool

_STEP: Final = re.compile(
    r"(?:profiler|train(?:ing)?[ _-]?)?(?:step|iteration|iter)[ _:#=-]{0,2}\d{1,18}", re.IGNORECASE
)
_LAYER_PREFIX: Final = "layer:"
_WORK_NAMES: Final = {
    "optimizer": "Optimizer.step",
    "zero_grad": "Optimizer.zero_grad",
    "dataloader": "enumerate(DataLoader)",
}
"""How PyTorch names the ranges that our markers of these kinds stand for."""


@dataclass(frozen=True, slots=True)
class Label:
    """What a text says.

    Attributes:
        what: an op; a range of another kind; an instant at which a step begins, or which says
            who the process is, or what its CPU can do; or nothing that we know how to use.
        name: of the op, or the range's text.
        kind: of a range, as in the canonical table `ranges`.
        signature: of an op, if its inputs are known.
        layer, source, direction, recompute, accumulate: of an op, as our marker says them.
        marker: the marker itself, if it is one.
        problem: what is wrong with the text, in words.
    """

    what: Literal["op", "range", "step", "process", "cpu", "nothing"]
    name: str
    kind: str | None = None
    signature: Signature | None = None
    layer: str | None = None
    source: str | None = None
    direction: str | None = None
    recompute: bool = False
    accumulate: bool = False
    marker: Marker | None = None
    problem: str | None = None


def new_signature(op: str, inputs: Sequence[Input]) -> Signature:
    """Return the signature of an op with these inputs."""
    call = OpCall(op, tuple(inputs))
    has_shapes = any(_has_shape(item) for item in inputs)
    return Signature(op, format_signature(call), format_inputs(call.inputs), has_shapes)


def _has_shape(item: Input) -> bool:
    parts = item if isinstance(item, tuple) else (item,)
    return any(isinstance(part, Tensor) and len(part.shape) > 0 for part in parts)


def label_text(text: str) -> Label:
    """Return what a text says that is neither an op nor a marker."""
    if _STEP.fullmatch(text):
        return Label("range", text, "step")
    if text.startswith(_LAYER_PREFIX):
        return Label("range", text.removeprefix(_LAYER_PREFIX), "layer")
    return Label("range", text, "annotation")


def label_marker(text: str) -> Label:
    """Return what a text of our own domain says: a marker, or a range of the user's own."""
    marker = parse_marker(text)
    if marker is not None:
        return _label_marker(marker)
    version = parse_version(text)
    if version is None:
        return label_text(text)
    problem = "a broken marker" if version == VERSION else "a marker of another version of pyprof2"
    return Label("nothing", text, problem=f"{problem}: dropped")


def _label_marker(marker: Marker) -> Label:
    if marker.kind == "op":
        return _label_op(marker)
    if marker.kind in ("step", "process", "cpu"):
        return Label(marker.kind, "", marker=marker)
    if marker.kind in _WORK_NAMES:
        return Label("range", f"{_WORK_NAMES[marker.kind]}#{marker.name or ''}", "annotation")
    if marker.kind == "layer" and marker.layer:
        return Label("range", marker.layer, "layer")
    if marker.kind == "source" and marker.source:
        return Label("range", marker.source, "source")
    return Label("nothing", "")


def _label_op(marker: Marker) -> Label:
    if not marker.op:
        return Label("nothing", "", problem="a broken marker: dropped")
    return Label(
        "op",
        marker.op,
        signature=None if marker.inputs is None else new_signature(marker.op, marker.inputs),
        layer=marker.layer or None,
        source=marker.source or None,
        direction=marker.direction,
        recompute=marker.recompute,
        accumulate=marker.accumulate,
        marker=marker,
    )


def cpu_device(marker: Marker) -> dict[str, Any]:
    """Return the CPU as a row of the canonical table `devices`."""
    return {
        "device": 0,
        "device_type": "cpu",
        "name": marker.name,
        "multiprocessors": marker.threads,
        "memory_bytes_per_s": marker.bytes_per_s,
        "flop_per_s": msgspec.json.encode(marker.flop_per_s or {}).decode(),
        "cache_bytes": marker.cache_bytes,
    }


class StepMark(NamedTuple):
    """An instant at which a step begins; without a number none does."""

    start_ns: int
    pid: int | None
    tid: int | None
    number: int | None


def append_steps(
    spool: Spool, marks: Sequence[StepMark], last_op_ns: int | None, end_ns: int
) -> None:
    """Append the steps of a process: each lasts from its mark to the next one, or to the end.

    Args:
        spool: takes them up as ranges, on the threads that marked their beginnings.
        marks: the beginnings, in any order.
        last_op_ns: when the last op of the recording began; a step that begins later is none, as
            the loop only asked for another batch, and there was none.
        end_ns: of the recording.
    """
    marks = sorted(marks, key=lambda mark: mark.start_ns)
    while marks and last_op_ns is not None and marks[-1].start_ns > last_op_ns:
        end_ns = marks.pop().start_ns
    ends = [mark.start_ns for mark in marks[1:]] + [end_ns]
    steps = [(m, end) for m, end in zip(marks, ends, strict=bool(marks)) if m.number is not None]
    texts = spool.texts["ranges"]
    columns = {
        "start_ns": [mark.start_ns for mark, _ in steps],
        "dur_ns": [max(0, end - mark.start_ns) for mark, end in steps],
        "pid": [mark.pid for mark, _ in steps],
        "tid": [mark.tid for mark, _ in steps],
        "name": [texts["name"][f"step#{mark.number}"] for mark, _ in steps],
        "kind": [texts["kind"]["step"]] * len(steps) if steps else [],
    }
    spool.append("ranges", columns, len(steps))
