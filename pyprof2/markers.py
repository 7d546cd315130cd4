"""Markers: the texts that the annotation writes into a recording, and the parsers read.

A marker is one JSON object whose first key gives the version of the format, followed by its kind
and the fields of that kind; a field that is unknown, or false, is left out::

    {"pyprof2":2,"kind":"op","op":"aten::mm","inputs":[{"shape":[8,4],"dtype":"f32"},…],
     "device":"cpu","layer":"blocks.0.mlp","source":"train.py:12","direction":"forward"}

========== ========================================================== ========================
kind       what it marks                                              fields
========== ========================================================== ========================
op         a range: one call of an op                                 op, inputs, device,
                                                                      layer, source,
                                                                      direction, recompute,
                                                                      forward, accumulate,
                                                                      root, outermost;
                                                                      bytes, group, ranks
layer      a range: one call of a module                              layer, module, recompute,
                                                                      root, outermost
source     a range: calls made by one line of user code               source, recompute
optimizer  a range: one step of an optimizer                          name
zero_grad  a range: an optimizer clears gradients                     name
dataloader a range: the training waits for a batch                    name
step       an instant: what `event` says of steps; without one the    step, event
           step begins, and the one before it ends, and without a
           number no step begins
process    an instant: who this process is                            rank, world_size, torch,
                                                                      source_root, host,
                                                                      system, name, bytes,
                                                                      uncounted
entry      an instant: the steps are iterations of an entry    name, batch, device
           point: its file, and `cpu` where that took the place
           of a GPU
window     a range: the steps that a recorder was asked for
memory     an instant: what blocks of memory are for                  moment, name, device,
                                                                      bytes, category,
                                                                      blocks, weights
cpu        an instant: what the CPU can do, as measured               name, threads,
                                                                      flop_per_s, bytes_per_s,
                                                                      cache_bytes
energy     a range without length: what counters have counted         joules, idle_joules,
           since the first such range                                 idle_seconds
collective a range without length inside a call of c10d: which        op, group, desc, ranks
           collective of its group it is, and what it moves           or span, number, since,
                                                                      peer, dtype, in_bytes,
                                                                      out_bytes, sent_bytes,
                                                                      received_bytes,
                                                                      uneven, waits
========== ========================================================== ========================

A step is known to be one only when an optimizer steps, so the events of steps are what happened,
and the reader makes steps of them: `begins`, what may become a step does, and what was before is
over; `over`, and nothing begins; `stepped`, an optimizer has made its step, and what began is step
`step`, or part of it; `batch`, the wait for batch `step` of a DataLoader begins, or without a
number there are no more; `ended`, the program says that step `step` ends.

Of memory, a marker with a `moment` alone says where the training is; those that follow it say
which blocks are for what, each with an address and a size in bytes, as far as that is new, and
which `weights` there are, each with its name, dtype, address of its storage, bytes of its own, of
its gradient and of the optimizer's state for it, and the lines that made it. The moments:
`begins`, the first iteration of an entry point that is recorded does, and `bytes` is all that is
allocated on `device`; `forward`, a forward with gradients begins; `call`, a module is called
without; `backward` begins, and what autograd holds it holds now; `gradients`, it has ended;
`optimizer`, the optimizer `name` has made its step.

Which path a layer gets in reports is known only when all of a process was read: where two roots or
more were called, the name of the root stands in front, see `pyprof2.parsers._labels`.

`inputs` is the JSON form of `pyprof2.signatures`, in the order of the op's schema, defaults
included, with two liberties: strides stand only where a tensor is not contiguous, and
`{"same":0}` is a list of tensors equal to input 0. Arguments that name a dtype, a layout or a
memory format are PyTorch's number for it.

A recorder that copies range names into JSON without escaping them gets the *quoteless* form:
`'` stands for `"`, and what would need escaping is percent-encoded. `parse_marker` reads both.

The range of an op carries a number as its payload, see `pack_payload`. Where the recorder keeps
payloads, a collective has its `number` there, and an instant its `step`, or `NO_SEQUENCE`: so their
texts are the same every time.

Nothing here is trusted: `parse_marker` gives None for every text that is not a marker, or that
claims what cannot be (see the page *Limits* of the documentation), and never raises or evaluates.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from inspect import get_annotations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import quote, unquote

from pyprof2.signatures import Input, Scalar, Tensor, is_possible, plain_input

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

VERSION: Final = 2
"""The version of the format. In version 1 the numbers of steps stand in the text."""

VERSIONS: Final = (1, VERSION)
"""Those that are read. Texts of another version are not parsed."""

DOMAIN: Final = "pyprof2"
"""The NVTX domain that holds the markers. Texts in it that are no markers are the user's own."""

MAX_TEXT_BYTES: Final = 60_000
"""A longer text loses its inputs: some profilers mix up texts beyond 64 KiB."""

NO_SEQUENCE: Final = -1
"""The payload of an op that made no autograd node, or whose node has no number."""

_SEQUENCE_BITS: Final = 40
_MAX_INPUTS: Final = 256
BLOCKS_AT_MOST: Final = 1000
"""So many a marker of memory names: its text stays below `MAX_TEXT_BYTES`."""
WEIGHTS_AT_MOST: Final = 64
"""So many weights: the same, with paths of ordinary length."""
_MAX_TEXT_LENGTH: Final = 4 * MAX_TEXT_BYTES
"""Nobody writes longer ones: the quoteless form takes at most a few times the room."""
_MAX_INT: Final = (1 << 63) - 1

Kind: TypeAlias = Literal[
    "op",
    "layer",
    "source",
    "optimizer",
    "zero_grad",
    "dataloader",
    "step",
    "process",
    "cpu",
    "energy",
    "entry",
    "window",
    "memory",
    "collective",
]
Direction: TypeAlias = Literal["forward", "backward", "optimizer", "other"]
Moment: TypeAlias = Literal["begins", "forward", "call", "backward", "gradients", "optimizer"]
HeldFor: TypeAlias = Literal[
    "parameter", "buffer", "gradient", "optimizer_state", "input", "activation", "output"
]
Weight: TypeAlias = tuple[str, str, int, int, int | None, int | None, str | None]
"""Name, dtype, address; bytes: own, of the gradient, of the optimizer's state; lines."""
StepEvent: TypeAlias = Literal["begins", "over", "stepped", "batch", "ended"]


@dataclass(frozen=True, slots=True)
class Marker:
    """The content of a marker; None where it says nothing.

    Attributes:
        kind: what it marks.
        op: name of the op, such as `aten::mm`.
        inputs: what the op was called with, in the order of its schema.
        device: of the op's first tensor, or the one it creates, such as `cuda:0`.
        layer: path of the innermost module below its root; of a backward op that of its forward op.
        root: name of the root module; None: the layer has no path, it is a module without others.
        outermost: whether the layer is the root itself; then `layer` is its class.
        module: class of the layer's module.
        source: `path:line` of frames of the forward call, one to a line: from the innermost
            outside of torch out to the user's own.
        direction: of the op.
        recompute: whether activation checkpointing runs it again, inside backward.
        forward: name of the forward op of a backward op.
        accumulate: whether it adds up a gradient; its layer is that of the node before it.
        name: class of the optimizer or of the data loader's iterator; of the CPU its own, which a
            process has too; of an entry point its file.
        step: number of the step, or of the batch.
        event: what happened to the step.
        rank, world_size: of the process in the job.
        torch: version of PyTorch.
        source_root: the folder below which the user's own code is.
        bytes: of a collective: the size of its larger buffer; of memory: all that is allocated; of
            a process: the memory of its machine, or what it may have of it.
        host: name of the machine.
        system: its operating system.
        uncounted: why nothing counts its energy.
        group, ranks: of a collective: name and members of its process group.
        threads: that share the work of an op on the CPU.
        flop_per_s: highest rates that were measured, by dtype.
        bytes_per_s: highest bandwidth of the memory that was measured.
        cache_bytes: size of the last cache before the memory.
        joules: by the name of the counter.
        idle_joules, idle_seconds: what counters counted before the program began, and for how long.
        moment: where the training is.
        category: what the blocks are for.
        blocks: address and size of each.
        weights: parameters or buffers.
        batch: samples in a step.
        desc: of a collective: the description of its group.
        span: its ranks, where they are evenly spaced: the first one, how many, and how far apart.
        number: of the collective in its group, from 0; of a send or recv to or from its peer.
        since: PyTorch's own number of the group when this began to count; None: it has none.
        peer: the other rank of a send or recv; the rank that a broadcast begins at, or that a
            reduce ends at.
        dtype: of its elements.
        in_bytes, out_bytes: what goes in and comes out on this rank.
        sent_bytes, received_bytes: what of it goes to others and comes from others.
        uneven: whether the parts of an all-to-all differ in size.
        waits: whether the call returns only when the collective has ended.
    """

    kind: Kind
    op: str | None = None
    inputs: tuple[Input, ...] | None = None
    device: str | None = None
    layer: str | None = None
    module: str | None = None
    source: str | None = None
    direction: Direction | None = None
    recompute: bool = False
    forward: str | None = None
    accumulate: bool = False
    name: str | None = None
    step: int | None = None
    event: StepEvent | None = None
    rank: int | None = None
    world_size: int | None = None
    torch: str | None = None
    source_root: str | None = None
    bytes: int | None = None
    group: str | None = None
    ranks: tuple[int, ...] | None = None
    threads: int | None = None
    flop_per_s: dict[str, float] | None = None
    bytes_per_s: float | None = None
    cache_bytes: int | None = None
    joules: dict[str, float] | None = None
    idle_joules: dict[str, float] | None = None
    idle_seconds: float | None = None
    moment: Moment | None = None
    category: HeldFor | None = None
    blocks: tuple[tuple[int, int], ...] | None = None
    weights: tuple[Weight, ...] | None = None
    batch: int | None = None
    desc: str | None = None
    span: tuple[int, int, int] | None = None
    number: int | None = None
    since: int | None = None
    peer: int | None = None
    dtype: str | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    uneven: bool = False
    waits: bool = False
    root: str | None = None
    outermost: bool = False
    host: str | None = None
    system: str | None = None
    uncounted: str | None = None


WINDOW: Final = f'{{"pyprof2":{VERSION},"kind":"window"}}'
"""The marker around the steps that a recorder was asked for."""

CAPTURES: Final = "capture_traces"
"""Beside a recording, the folder of those that were made while graphs were captured."""
DEVICES_KEY: Final = "pyprof2_devices"
"""The key of a memory snapshot under which `pyprof2 capture` puts what is used of each device."""
COMPILED_KEY: Final = "pyprof2_compiled"
"""The key of a trace under which our annotation puts its notes of compiled graphs."""
COMPILED_VERSION: Final = 1
"""The version of these notes."""


def format_marker(marker: Marker, *, quoteless: bool = False) -> str:
    """Return the text of a marker; in the quoteless form for recorders that escape nothing."""
    inputs = None if marker.inputs is None else _format_inputs(marker.inputs)
    text = _encode(marker, inputs, quoteless=quoteless)
    if inputs is not None and len(text) > MAX_TEXT_BYTES:
        text = _encode(marker, None, quoteless=quoteless)
    return text.decode()


class OpTexts:
    """The texts of the markers of one op at one place, which differ in inputs and device alone.

    They are those of `format_marker`, made faster.
    """

    __slots__ = ("_head", "_rest")

    def __init__(self, marker: Marker) -> None:
        """Take a marker that has neither inputs nor a device."""
        head = format_marker(Marker("op", op=marker.op)).removesuffix("}")
        self._head, self._rest = head, format_marker(marker).removeprefix(head)

    def text(self, inputs: tuple[Input, ...] | None, device: str | None) -> str:
        """Return the text of a call."""
        rest = self._rest if device is None else f',"device":"{device}"{self._rest}'
        if inputs is not None:
            known = _json(_format_inputs(inputs))
            text = f'{self._head},"inputs":{known}{rest}'
            if len(text.encode()) <= MAX_TEXT_BYTES:
                return text
        return f"{self._head}{rest}"


def _encode(marker: Marker, inputs: list[Any] | None, *, quoteless: bool) -> bytes:
    fields: dict[str, Any] = {"pyprof2": VERSION}
    for name in Marker.__slots__:
        value = inputs if name == "inputs" else getattr(marker, name)
        if value is not None and value is not False:
            fields[name] = value
    if quoteless:
        return _json(_map_texts(fields, percent_encode)).encode().replace(b'"', b"'")
    try:
        return _json(fields).encode()
    except UnicodeEncodeError:  # half a surrogate pair: a file name that is not UTF-8
        return _json(_map_texts(fields, _valid_unicode)).encode()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _map_texts(value: Any, function: Callable[[str], str]) -> Any:
    """Return `value` with `function` applied to each text in it, keys of objects aside."""
    match value:
        case str():
            return function(value)
        case list() | tuple():
            return [_map_texts(part, function) for part in value]
        case dict():
            return {key: _map_texts(part, function) for key, part in value.items()}
        case _:
            return value


def percent_encode(text: str) -> str:
    """Return a text that spells `text` and needs neither an escape nor a quote."""
    return quote(_valid_unicode(text), safe=" !#$&()*+,/:;<=>?@[]^`{|}~")


def _valid_unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _format_inputs(inputs: tuple[Input, ...]) -> list[Any]:
    seen: dict[tuple[Tensor, ...], int] = {}
    items: list[Any] = []
    for index, item in enumerate(inputs):
        if isinstance(item, tuple) and item:
            first = seen.setdefault(item, index)
            if first < index:
                items.append({"same": first})
                continue
        items.append(plain_input(item))
    return items


class _TextReader(NamedTuple):
    """The decoders of texts: of markers, and of the member of places.

    Attributes:
        marker: the type of a marker, as it stands in its text.
        markers, places: decoders.
        convert: makes a value of a type of plain objects.
        decode: makes plain objects of JSON.
        unset: the value of an input that has none.
        errors: that a text which is not one raises.
    """

    marker: Any
    markers: Any
    places: Any
    convert: Callable[..., Any]
    decode: Callable[[str], Any]
    unset: object
    errors: tuple[type[Exception], ...]


@cache
def _reader() -> _TextReader:
    """Return it; msgspec is imported here, as a program that is only recorded may lack it."""
    import msgspec

    def whole(least: int, most: int) -> Any:
        return Annotated[int, msgspec.Meta(ge=least, le=most)]

    def real(most: float, *, positive: bool = True) -> Any:
        bounds = msgspec.Meta(gt=0, le=most) if positive else msgspec.Meta(ge=0, le=most)
        return Annotated[float, bounds]

    # Without these names type checkers take what is computed here for annotations.
    fixed: Any = tuple
    several: Any = list
    named: Any = dict
    count, place, size = whole(0, _MAX_INT), whole(0, 10**9 - 1), whole(0, 1 << 53)
    address, row = whole(1, _MAX_INT), whole(0, (1 << 62) - 1)
    block, lines = fixed[address, size], str | None
    weight = fixed[str, str, address, size, size | None, size | None, lines]
    joules = named[str, real(1e15, positive=False)]
    # Limits: no job is larger; the fastest CPUs do some 1e13 FLOP/s and move 1e12 bytes per second.
    limits = {
        "step": size, "rank": place, "world_size": place, "bytes": size,
        "ranks": fixed[place, ...], "threads": whole(0, 1 << 20),
        "flop_per_s": named[str, real(1e16)], "bytes_per_s": real(1e14), "cache_bytes": size,
        "joules": joules, "idle_joules": joules, "idle_seconds": real(3600),
        "blocks": Annotated[fixed[block, ...], msgspec.Meta(max_length=BLOCKS_AT_MOST)],
        "weights": Annotated[fixed[weight, ...], msgspec.Meta(max_length=WEIGHTS_AT_MOST)],
        "batch": count, "span": fixed[place, place, place], "number": count, "since": count,
        "peer": place, "in_bytes": size, "out_bytes": size, "sent_bytes": size,
        "received_bytes": size,
    }  # fmt: skip
    atom = bool | whole(-_MAX_INT, _MAX_INT) | float | str | None
    # How deep values may nest is bounded here, so that no text can exhaust the stack.
    value = atom | several[atom | several[atom]]
    shape = fixed[count, ...] | None
    item = msgspec.defstruct(
        "Item",
        [
            ("shape", shape, None), ("dtype", str | None, None), ("strides", shape, None),
            ("same", count | None, None), ("value", value | msgspec.UnsetType, msgspec.UNSET),
        ],
    )  # fmt: skip
    # The fields of a marker as they stand in its text: those of `Marker`, with its version.
    types = get_annotations(Marker, eval_str=True) | {n: each | None for n, each in limits.items()}
    types["inputs"] = several[item | several[item] | None] | None
    kind = types.pop("kind")
    optional = [(name, each, False if each is bool else None) for name, each in types.items()]
    marker = msgspec.defstruct("Wire", [("pyprof2", Literal[1, 2]), ("kind", kind), *optional])
    places = msgspec.defstruct(
        "Places",
        [
            ("pyprof2", Literal[1]), ("by", IdKind), ("ids", several[row]), ("rows", several[row]),
            ("places", several[fixed[str, lines, lines, bool, lines]]),
        ],
        forbid_unknown_fields=True,
    )  # fmt: skip
    return _TextReader(
        marker, msgspec.json.Decoder(marker), msgspec.json.Decoder(places), msgspec.convert,
        msgspec.json.decode, msgspec.UNSET,
        (msgspec.MsgspecError, RecursionError, UnicodeError),
    )  # fmt: skip


def parse_marker(text: str) -> Marker | None:
    """Return the marker that `text` spells; None if it is none, or one of another version."""
    wire = _decode(text)
    if wire is None:
        return None
    inputs = None if wire.inputs is None else _parse_inputs(wire.inputs)
    if inputs is None and wire.inputs is not None:
        return None
    fields = {name: getattr(wire, name) for name in Marker.__slots__ if name != "inputs"}
    return Marker(inputs=inputs, **fields)


def _decode(text: str) -> Any:
    """Return the fields of a marker's text; a quoteless one is decoded as a whole."""
    if len(text) > _MAX_TEXT_LENGTH:
        return None
    reader = _reader()
    try:
        if text.startswith('{"pyprof2":'):
            return reader.markers.decode(text)
        if text.startswith("{'pyprof2':") and '"' not in text:
            fields = reader.decode(text.replace("'", '"'))
            return reader.convert(_map_texts(fields, unquote), reader.marker)
    except reader.errors:
        pass
    return None


def _parse_inputs(items: list[Any]) -> tuple[Input, ...] | None:
    """Return the inputs; None if one of them is no input."""
    if len(items) > _MAX_INPUTS:
        return None
    inputs: list[Input] = []
    for item in items:
        parsed: Input | Literal[False]
        if item is None:
            parsed = None
        elif isinstance(item, list):
            tensors = [_parse_tensor(each) for each in item]
            parsed = False if False in tensors else tuple(t for t in tensors if t is not False)
        elif item.same is not None:
            parsed = inputs[item.same] if item.same < len(inputs) else False
        elif item.value is not _reader().unset:
            parsed = Scalar(item.value)
        else:
            parsed = _parse_tensor(item)
        if parsed is False:
            return None
        inputs.append(parsed)
    return tuple(inputs)


def _parse_tensor(item: Any) -> Tensor | Literal[False]:
    if item.shape is None or len(item.strides or item.shape) != len(item.shape):
        return False
    if not is_possible(item.shape):
        return False
    return Tensor(item.shape, item.dtype, item.strides)


def parse_version(text: str) -> int | None:
    """Return the version of the format that a marker of any version is written in, or None."""
    if text.startswith(("{'pyprof2':", '{"pyprof2":')):
        digits = text[len("{'pyprof2':") :].split(",", 1)[0].rstrip("}")
        if digits.isascii() and digits.isdigit() and len(digits) < len(str(_MAX_INT)):
            return int(digits)
    return None


def pack_payload(sequence_nr: int, thread_nr: int) -> int:
    """Return the payload of an op: autograd's number, above it that of the forward thread.

    Autograd counts nodes on each thread by itself, so its number alone does not say whose node it
    is. Threads are numbered from 0 in the order in which they were first annotated: on the first
    thread, in most programs the only one, the payload is the sequence number.
    """
    return (thread_nr << _SEQUENCE_BITS) | sequence_nr


def parse_payload(payload: int | None) -> tuple[int, int] | None:
    """Return (sequence number, number of the forward thread); None where there is no node."""
    if payload is None or not 0 <= payload <= _MAX_INT:
        return None
    return payload & ((1 << _SEQUENCE_BITS) - 1), payload >> _SEQUENCE_BITS


KINDS: Final[tuple[str, ...]] = get_args(Kind)
"""All kinds of markers."""


LAUNCHERS: Final = {
    "torchrun": "torchrun",
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate": "accelerate launch",
    "accelerate-launch": "accelerate launch",
    "accelerate.commands.launch": "accelerate launch",
    "accelerate.commands.accelerate_cli": "accelerate launch",
    "deepspeed": "deepspeed --no_local_rank --module",
    "deepspeed.launcher.runner": "deepspeed --no_local_rank --module",
}
"""Launchers that are Python, by program and module, and how each starts a module."""

_SLURM: Final = "SLURM_PROCID"
_VARIABLES: Final = (
    ("RANK", "WORLD_SIZE"),  # torchrun, accelerate, deepspeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # Open MPI
    ("PMIX_RANK", "PMIX_SIZE"),  # PMIx: Open MPI 5, PRRTE, srun --mpi=pmix
    ("PMI_RANK", "PMI_SIZE"),  # MPICH, Intel MPI, Cray
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),  # jsrun
    (_SLURM, "SLURM_NTASKS"),  # srun
)
"""The variables of rank and number of ranks. The first one that is set counts: what starts a
process itself stands ahead of what the job was started with."""


class PlaceInJob(NamedTuple):
    """The place of a process in its job; None for what is not known."""

    rank: int | None
    size: int | None


def place_in_job(environment: Mapping[str, str] = os.environ) -> PlaceInJob:
    """Return the rank of this process as its launcher says it, and of how many."""
    for of_rank, of_size in _VARIABLES:
        rank, size = (_number(environment.get(name, "")) for name in (of_rank, of_size))
        # Slurm sets it in whatever it runs, also where that is one process, or starts others.
        if rank is not None and (of_rank != _SLURM or (size or 0) > 1):
            return PlaceInJob(rank, size)
    return PlaceInJob(None, None)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


MEMBER: Final = "pyprof2"
"""The name of what a trace has where a profiler records the ops itself: where they were called,
as a member of the JSON object that the trace is::

    {"pyprof2":1,"by":"record_function_id","ids":[7,2,…],"rows":[0,0,1,…],
     "places":[["aten::addmm","blocks.0","net",false,"model.py:12"],…]}

Each id is the difference to the one before, the first to 0; the op that the profiler gave the id is
at the place of the same row. A place is the name of the op, what markers call layer, root and
outermost, and source. Texts are percent-encoded: recorders copy them as they are."""

ROWS_AT_MOST: Final = 3_000_000
"""Rows that a trace gets at most: readers refuse metadata of over 32 MB."""

IdKind: TypeAlias = Literal["record_function_id", "external_id"]
"""The ids that profilers give ops."""


class OpPlace(NamedTuple):
    """Where an op was called; None where that is not known."""

    op: str
    layer: str | None
    root: str | None
    outermost: bool
    source: str | None


@dataclass(frozen=True)
class PlacesById:
    """Where ops were called, by their ids.

    Attributes:
        by: which of their ids these are.
        ids: in ascending order.
        rows: of each id the place.
        places: by number.
    """

    by: IdKind
    ids: NDArray[np.int64]
    rows: NDArray[np.int64]
    places: Sequence[OpPlace]


def format_places(found: PlacesById) -> str:
    """Return the text of the member."""
    import numpy as np  # what only reads the markers of Nsight does without

    ids = np.diff(found.ids, prepend=np.zeros(1, np.int64))
    texts = [
        tuple(percent_encode(part) if isinstance(part, str) else part for part in place)
        for place in found.places
    ]
    rows = found.rows.tolist()
    return _json({"pyprof2": 1, "by": found.by, "ids": ids.tolist(), "rows": rows, "places": texts})


def parse_places(text: bytes) -> PlacesById | None:
    """Return what `format_places` wrote; None: it wrote another text."""
    reader = _reader()
    try:
        wire = reader.places.decode(text)
        places = [
            OpPlace(*(unquote(part) if isinstance(part, str) else part for part in place))  # type: ignore[arg-type]
            for place in wire.places
        ]
    except reader.errors:
        return None
    import numpy as np

    ids, rows = np.array(wire.ids, np.int64), np.array(wire.rows, np.int64)
    if len(ids) != len(rows) or rows.max(initial=-1) >= len(places):
        return None
    ids = np.cumsum(ids)
    # A sum that does not fit begins anew below 0.
    return None if (ids < 0).any() else PlacesById(wire.by, ids, rows, places)
