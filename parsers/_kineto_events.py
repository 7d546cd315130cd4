"""The events of a Kineto trace: decoded all at once, and field by field where one is broken."""

from __future__ import annotations

import contextlib
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Raw

from pyprof2.parsers._json import CHUNK_BYTES, DECODE_ERRORS
from pyprof2.parsers._names import NAME_MAX, cut_name
from pyprof2.problems import NO_EVENT, NOT_UTF8, WRONG_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.parsers._json import JsonStream


_NO_BYTES: Final = b""
_Number = int | float | str | None
_Text = str | None
_Args = TypeVar("_Args")


class Event(msgspec.Struct, gc=False):
    """An event; what the file has besides is not read."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = Raw(_NO_BYTES)
    dur: Raw = Raw(_NO_BYTES)
    id: int | str | None = None
    args: Raw = Raw(_NO_BYTES)


class _Named(Event, gc=False):
    """An event whose name is not too long: nearly all are."""

    name: Annotated[str, msgspec.Meta(max_length=NAME_MAX)] = ""


class OpArgs(msgspec.Struct, gc=False):
    """The arguments of an op."""

    external_id: _Number = msgspec.field(default=None, name="External id")
    old_external_id: _Number = msgspec.field(default=None, name="external id")
    sequence_nr: _Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: _Number = msgspec.field(default=None, name="Fwd thread id")
    dims: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input Dims")
    old_dims: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input dims")
    strides: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input Strides")
    types: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input type")
    values: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Concrete Inputs")
    backend: _Text = msgspec.field(default=None, name="kernel_backend")
    stack: _Text = msgspec.field(default=None, name="Call stack")
    modules: _Text = msgspec.field(default=None, name="Module Hierarchy")
    collective: _Text = msgspec.field(default=None, name="Collective name")
    in_count: _Number = msgspec.field(default=None, name="In msg nelems")
    out_count: _Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: _Number = msgspec.field(default=None, name="Group size")
    comm_dtype: _Text = msgspec.field(default=None, name="dtype")
    group_name: _Number = msgspec.field(default=None, name="Process Group Name")
    group_id: _Number = msgspec.field(default=None, name="Process Group ID")
    group_desc: _Text = msgspec.field(default=None, name="Process Group Description")
    group_ranks: _Text = msgspec.field(default=None, name="Process Group Ranks")
    first_rank: _Number = msgspec.field(default=None, name="Global rank start")
    rank_stride: _Number = msgspec.field(default=None, name="Global rank stride")
    in_split: _Text = msgspec.field(default=None, name="In split size")
    out_split: _Text = msgspec.field(default=None, name="Out split size")
    other_rank: _Number = msgspec.field(default=None, name="Rank")
    source_rank: _Number = msgspec.field(default=None, name="Src Rank")
    target_rank: _Number = msgspec.field(default=None, name="Dst Rank")
    is_async: Any = msgspec.field(default=None, name="Is asynchronized op")
    comm_seq: _Number = msgspec.field(default=None, name="Seq")


class GpuArgs(msgspec.Struct, gc=False):
    """The arguments of a kernel or copy."""

    external_id: _Number = msgspec.field(default=None, name="External id")
    old_external_id: _Number = msgspec.field(default=None, name="external id")
    correlation: _Number = None
    device: _Number = None
    in_device: _Number = msgspec.field(default=None, name="inDevice")
    stream: _Text | int = None
    bytes: _Number = None
    grid: Raw = Raw(_NO_BYTES)
    block: Raw = Raw(_NO_BYTES)
    registers: _Number = msgspec.field(default=None, name="registers per thread")
    shared_bytes: _Number = msgspec.field(default=None, name="shared memory")
    blocks_per_sm: _Number = msgspec.field(default=None, name="blocks per SM")
    occupancy: _Number = msgspec.field(default=None, name="est. achieved occupancy %")
    graph_node: _Number = msgspec.field(default=None, name="graph node id")


class LaunchArgs(msgspec.Struct, gc=False):
    """The arguments of a call of the runtime."""

    external_id: _Number = msgspec.field(default=None, name="External id")
    old_external_id: _Number = msgspec.field(default=None, name="external id")
    correlation: _Number = None


class StallArgs(msgspec.Struct, gc=False):
    """The arguments of a wait; an overhead has none."""

    device: _Number = None
    stream: _Number = None
    correlation: _Number = None
    recorded_by: _Number = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class MemoryArgs(msgspec.Struct, gc=False):
    """The arguments of an allocation or release."""

    device_type: _Number = msgspec.field(default=None, name="Device Type")
    device: _Number = msgspec.field(default=None, name="Device Id")
    address: _Number = msgspec.field(default=None, name="Addr")
    bytes: _Number = msgspec.field(default=None, name="Bytes")
    allocated: _Number = msgspec.field(default=None, name="Total Allocated")
    reserved: _Number = msgspec.field(default=None, name="Total Reserved")


class Job(msgspec.Struct):
    """What the file says of the job."""

    rank: Any = None
    world_size: Any = None


_NAMED: Final = msgspec.json.Decoder(list[_Named])
_EVENTS: Final = msgspec.json.Decoder(list[Event])
_EVENT: Final = msgspec.json.Decoder(Event)
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_ARGS: Final[dict[type[Any], msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(list[kind])  # type: ignore[valid-type]
    for kind in (OpArgs, GpuArgs, LaunchArgs, StallArgs, MemoryArgs)
}


class EventDecoder:
    """Decodes the events of a stream, and counts what was wrong with them in its problems."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream
        self._problems = stream.problems

    def events(self, text: bytes) -> list[Event]:
        """Return the events of one JSON array; what is no event is dropped."""
        try:
            return list(_NAMED.decode(text))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            events = self._any_events(text)
        for event in events:
            event.name = cut_name(event.name, self._problems)
        return events

    def _any_events(self, text: bytes) -> list[Event]:
        try:
            return _EVENTS.decode(text)
        except UnicodeDecodeError:
            return self._singly(self._stream.salvage(text))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return self._singly(self._raws(text))

    def _raws(self, text: bytes) -> list[Raw]:
        if len(text) > 3 * CHUNK_BYTES // 2:  # no list of events: these are never that long
            return self._stream.salvage(text)
        try:
            return _RAWS.decode(text)
        except DECODE_ERRORS:
            return self._stream.salvage(text)

    def _singly(self, raws: list[Raw]) -> list[Event]:
        events = []
        for raw in raws:
            try:
                events.append(_EVENT.decode(raw))
            except (msgspec.ValidationError, *DECODE_ERRORS):
                event = _coerce(bytes(raw), Event)
                if event is None:
                    self._problems[NO_EVENT] += 1
                    self._stream.count_damaged()
                    if self._stream.is_given_up:
                        break
                else:
                    self._problems[WRONG_TYPE] += 1
                    events.append(event)
        return events

    def args(self, events: Sequence[Event], kind: type[_Args]) -> list[_Args]:
        """Return the arguments of each event; what does not decode is left out."""
        raws = [e.args or b"{}" for e in events]
        try:
            return list(_ARGS[kind].decode(b"[" + b",".join(raws) + b"]"))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return [self._coerce_args(bytes(raw), kind) for raw in raws]

    def _coerce_args(self, raw: bytes, kind: type[_Args]) -> _Args:
        text = raw.decode("utf-8", "replace").encode()
        if text != raw:
            self._problems[NOT_UTF8] += 1
            raw = text
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.ValidationError, *DECODE_ERRORS):
            self._problems[WRONG_TYPE] += 1
            return _coerce(raw, kind) or kind()


def _coerce(raw: bytes, kind: Any) -> Any:
    """Return a struct with the fields that have the right type; None if `raw` is no object."""
    try:
        fields = _FIELDS.decode(raw)
    except (msgspec.ValidationError, *DECODE_ERRORS):
        return None
    found = kind()
    for key, (name, decoder) in _decoders(kind).items():
        if key in fields:
            with contextlib.suppress(msgspec.ValidationError, *DECODE_ERRORS):
                setattr(found, name, decoder.decode(fields[key]))
    return found


@cache
def _decoders(kind: type[Any]) -> dict[str, tuple[str, msgspec.json.Decoder[Any]]]:
    """Return name and decoder of each field, by its key in the file."""
    return {
        info.encode_name: (info.name, msgspec.json.Decoder(info.type))
        for info in msgspec.structs.fields(kind)
    }
