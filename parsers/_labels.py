"""The meaning of a text in a recording of any profiler: our markers, and plain text.

Nothing is evaluated; what is no marker is text.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from pyprof2.markers import VERSIONS, Marker, format_marker, parse_marker, parse_version
from pyprof2.parsers._names import NAME_MAX
from pyprof2.parsers._pyprof_markers import MarkerError, parse_call, parse_stack
from pyprof2.parsers._steps import MAYBE_STEP
from pyprof2.problems import MARKER_BROKEN, MARKER_PEAKS, MARKER_VERSION
from pyprof2.recording import Signature
from pyprof2.signatures import (
    Input,
    OpCall,
    Scalar,
    format_inputs,
    format_signature,
    has_shape,
)

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyprof2.recording import Spool, TextCodes

_PROFILER_STEP: Final = re.compile(r"ProfilerStep#\d")
_STEP: Final = re.compile(
    r"(?:profiler|train(?:ing)?[ _-]?)?(?:step|iteration|iter)[ _:#=-]{0,2}\d{1,18}", re.IGNORECASE
)
_LAYER_PREFIX: Final = "layer:"
_STACK_PREFIX: Final = "{'traceMarker':"
_CALL: Final = re.compile(r"\{'mod': '[^']*', 'op':")
# Other markers of PyProf and DLProf: about modules, and about the program.
_OTHERS_MARKER: Final = re.compile(r"\{'(?:mod|strRepr)':|\{\"model_config\":")
_WORK_NAMES: Final = {
    "optimizer": "Optimizer.step",
    "zero_grad": "Optimizer.zero_grad",
    "dataloader": "enumerate(DataLoader)",
}
"""How PyTorch names the ranges that our markers of these kinds stand for."""


class LayerPath(NamedTuple):
    """A layer as our marker says it: which path that is depends on what else there is.

    It stands in place of the path among the texts of a spool until `name_layers`.

    Attributes:
        path: below the root; of the root, and of a module without others, its class.
        root: its name; None: of a module without others, or as version 1 of the markers says it.
        outermost: whether it is the root itself.
    """

    path: str
    root: str | None
    outermost: bool


@dataclass(frozen=True, slots=True)
class Label:
    """The meaning of a text.

    Attributes:
        what: an op; a range of another kind; an instant that says something of a step, or
            who the process is, what its CPU can do, what its memory is for, or what is run; or
            nothing that we know how to use.
        name: of the op, or the range's text.
        kind: of a range, as in the canonical table `ranges`; see also `StepRanges`.
        signature: of an op, if its inputs are known.
        layer, stack, direction, recompute, accumulate: of an op, as our marker says them.
        marker: the marker itself, if it is one.
        path: of the layer that it says, or is.
        problem: what is wrong with the text, as a slug of the register of problems.
    """

    what: Literal["op", "range", "step", "process", "cpu", "memory", "entry", "nothing"]
    name: str
    kind: str | None = None
    signature: Signature | None = None
    layer: str | None = None
    stack: str | None = None
    direction: str | None = None
    recompute: bool = False
    accumulate: bool = False
    marker: Marker | None = None
    problem: str | None = None
    path: LayerPath | None = None

    @property
    def text(self) -> str | LayerPath:
        """The text or path that stands for a range among the texts of a spool."""
        return self.name if self.kind != "layer" or self.path is None else self.path


def new_signature(op: str, inputs: Sequence[Input]) -> Signature:
    """Return the signature of an op with these inputs."""
    call = OpCall(op, tuple(inputs))
    has_shapes = any(map(has_shape, inputs))
    return Signature(op, format_signature(call), format_inputs(call.inputs), has_shapes)


def label_text(text: str) -> Label:
    """Return what a text says that is neither an op nor a marker."""
    if _PROFILER_STEP.match(text):
        return Label("range", text, "step")
    if text.startswith(_LAYER_PREFIX):
        return Label("range", text.removeprefix(_LAYER_PREFIX), "layer")
    try:
        # Markers of PyProf: the line of a call, and what was called.
        if text.startswith(_STACK_PREFIX):
            stack = parse_stack(text)
            return Label("range", stack or text, "source" if stack else "marker")
        if _CALL.match(text):
            op, inputs = parse_call(text)
            return Label("op", op, signature=new_signature(op, inputs))
    except MarkerError as error:
        return Label("nothing", text, problem=error.problem)
    kind = "marker" if _OTHERS_MARKER.match(text) else "annotation"
    return Label("range", text, MAYBE_STEP if _STEP.fullmatch(text) else kind)


def may_be_step(text: str) -> bool:
    """Return whether a range may be a step: the schedule's, or one that is called like one."""
    return label_text(text).kind in ("step", MAYBE_STEP)


def label_marker(text: str) -> Label:
    """Return what a text of our own domain says: a marker, or a range of the user's own."""
    marker = parse_marker(text)
    if marker is not None:
        if marker.kind == "op":
            return _label_op(marker)
        if marker.kind in ("step", "process", "cpu", "memory", "entry"):
            return Label(marker.kind, "", marker=marker)
        return _label_range(marker)
    version = parse_version(text)
    if version is None:
        return label_text(text[:NAME_MAX])
    problem = MARKER_BROKEN if version in VERSIONS else MARKER_VERSION
    return Label("nothing", text, problem=problem)


def _label_range(marker: Marker) -> Label:
    """Return what a marker says that is a row of table `ranges`."""
    if marker.kind in _WORK_NAMES:
        return Label("range", f"{_WORK_NAMES[marker.kind]}#{marker.name or ''}", "annotation")
    if marker.kind == "layer" and marker.layer:
        return Label("range", marker.layer, "layer", path=_layer_path(marker))
    if marker.kind == "source" and marker.source:
        return Label("range", marker.source, "source")
    if marker.kind == "energy":
        # Counters have names of their own, so the text stays as it is for whoever adds them up.
        return Label("range", format_marker(marker), "energy")
    if marker.kind == "collective":
        return Label("range", format_marker(marker), "collective", marker=marker)
    return Label("nothing", "")


def _label_op(marker: Marker) -> Label:
    if not marker.op:
        return Label("nothing", "", problem=MARKER_BROKEN)
    return Label(
        "op",
        marker.op,
        signature=_marked_signature(marker.op, marker),
        layer=marker.layer or None,
        stack=marker.source or None,
        direction=marker.direction,
        recompute=marker.recompute,
        accumulate=marker.accumulate,
        marker=marker,
        path=_layer_path(marker),
    )


def _layer_path(marker: Marker) -> LayerPath | None:
    return LayerPath(marker.layer, marker.root, marker.outermost) if marker.layer else None


def name_layers(spool: Spool, others: Iterable[LayerPath] = ()) -> Callable[[LayerPath], str]:
    """Give the layers of a process their paths, when all of it was read; return who names others.

    Where there are several roots with modules, the name of each stands in front; a lone one has
    none. A layer that would have the path of another one gets a number.

    Args:
        spool: of the process; its texts become the paths.
        others: layers that are in none of its tables.

    Returns:
        the path of each.
    """
    places = ("ops", "layer"), ("ranges", "name")
    layers = {
        key: None
        for table, column in places
        for key in spool.texts[table][column]
        if isinstance(key, LayerPath)
    } | dict.fromkeys(others)
    are_many = len({layer.root for layer in layers} - {None}) > 1
    names: dict[Any, str] = {}
    taken: set[str] = set()
    for layer in sorted(layers, key=lambda layer: layer.root is not None):
        path, root, outermost = layer
        if are_many and root is not None:
            path = root if outermost else f"{root}.{path}"
        numbered = (f"{path}#{number}" for number in itertools.count(2))
        text = next(text for text in itertools.chain((path,), numbered) if text not in taken)
        taken.add(text)
        names[layer] = text
    for table, column in places if layers else ():
        spool.rename(table, column, names)

    def name(layer: LayerPath) -> str:
        has_root = are_many and layer.root is not None
        inside = layer.root if layer.outermost else f"{layer.root}.{layer.path}"
        return names.get(layer) or (str(inside) if has_root else layer.path)

    return name


def _marked_signature(op: str, marker: Marker) -> Signature | None:
    """Return the signature of a marked op; of a collective its group and bytes are a last input.

    The text for people leaves them out.
    """
    if marker.inputs is None and marker.bytes is None:
        return None
    inputs = marker.inputs or ()
    found = new_signature(op, inputs)
    if marker.bytes is None:
        return found
    said = {"group_name": marker.group, "group_ranks": marker.ranks, "marked_bytes": marker.bytes}
    known = {key: value for key, value in said.items() if value is not None}
    return found._replace(inputs=format_inputs((*inputs, Scalar(known))))


def entry_of(marker: Marker | None) -> dict[str, Any] | None:
    """Return what a marker says of the entry point that was run; see `Recording.entry`."""
    if marker is None or not marker.name or not marker.batch:
        return None
    on_cpu = marker.device == "cpu"
    return {"file": marker.name, "batch_size": marker.batch, "on_cpu": on_cpu}


def machine_of(marker: Marker | None) -> dict[str, Any]:
    """Return what the marker of a process says of its machine, as columns of table `trace`."""
    if marker is None:
        return {}
    return {
        "system": marker.system,
        "cpu": marker.name,
        "machine_bytes": marker.bytes,
        "uncounted": marker.uncounted,
    }


def cpu_device(marker: Marker, *, used_gpu: bool, problems: Counter[str]) -> dict[str, Any] | None:
    """Return the CPU as a row of the canonical table `devices`.

    None, and a problem, where the recording's own facts say otherwise: a CPU is measured only where
    no GPU works.
    """
    if used_gpu:
        problems[MARKER_PEAKS] += 1
        return None
    return {
        "device": 0,
        "device_type": "cpu",
        "name": marker.name,
        "multiprocessors": marker.threads,
        "memory_bytes_per_s": marker.bytes_per_s,
        "flop_per_s": msgspec.json.encode(marker.flop_per_s or {}).decode(),
        "cache_bytes": marker.cache_bytes,
    }


_WEIGHTS: Final = ("parameter", "buffer")
_DEVICE: Final = re.compile(r"(?P<type>[a-z]{1,20})(?::(?P<number>\d{1,6}))?")


def tag_columns(marker: Marker, time_ns: int, codes: Mapping[str, TextCodes]) -> dict[str, Any]:
    """Return the columns of what a marker says: its moment, or a row for each of its blocks.

    Args:
        marker: of kind `memory`; one that says nothing gives no rows.
        time_ns: when it was.
        codes: of the texts of the table.
    """
    if marker.weights is not None:
        return {"time_ns": []}
    moment = None if marker.moment is None else codes["moment"][marker.moment]
    device = _device_of(marker)
    if marker.blocks is None:
        name = None if marker.name is None else codes["name"][marker.name]
        row = {"time_ns": [time_ns], "moment": [moment], "name": [name]}
        if device is None or marker.bytes is None:
            return row
        of_device = {"device_type": [codes["device_type"][device[0]]], "device": [device[1]]}
        return row | of_device | {"bytes": [marker.bytes]}
    count = len(marker.blocks)
    if device is None or marker.category is None or not count:
        return {"time_ns": []}
    return {
        "time_ns": [time_ns] * count,
        "moment": [moment] * count,
        "device_type": [codes["device_type"][device[0]]] * count,
        "device": [device[1]] * count,
        "address": [address for address, _ in marker.blocks],
        "bytes": [size for _, size in marker.blocks],
        "category": [codes["category"][marker.category]] * count,
    }


def weight_columns(marker: Marker, time_ns: int, codes: Mapping[str, TextCodes]) -> dict[str, Any]:
    """Return the columns of the raw table `weights`: a row for each weight that a marker names.

    Args:
        marker: of kind `memory`; one without weights gives no rows.
        time_ns: when it was.
        codes: of the texts of the table.
    """
    device = _device_of(marker)
    if not marker.weights or device is None or marker.category not in _WEIGHTS:
        return {"time_ns": []}
    count = len(marker.weights)
    names, dtypes, addresses, sizes, gradients, states, lines = zip(*marker.weights, strict=True)
    own = [(text or "").partition("\n") for text in lines]

    def coded(column: str, words: Iterable[str]) -> list[int | None]:
        return [codes[column][word] if word else None for word in words]

    return {
        "time_ns": [time_ns] * count,
        "name": coded("name", names),
        "category": coded("category", [marker.category] * count),
        "dtype": coded("dtype", dtypes),
        "device_type": coded("device_type", [device[0]] * count),
        "device": [device[1]] * count,
        "address": addresses,
        "bytes": sizes,
        "gradient_bytes": gradients,
        "state_bytes": states,
        "source": coded("source", [first for first, _, _ in own]),
        "callers": coded("callers", [others for _, _, others in own]),
    }


def _device_of(marker: Marker) -> tuple[str, int | None] | None:
    """Return kind and ordinal of a marker's device; the CPU has no ordinal. None: it names none."""
    found = _DEVICE.fullmatch(marker.device or "")
    if found is None:
        return None
    number = found["number"] if found["type"] != "cpu" else None
    return found["type"], None if number is None else int(number)
