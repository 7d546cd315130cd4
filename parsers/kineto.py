"""Read Kineto traces: the Chrome JSON that `torch.profiler` exports, plain or gzip.

Only this module knows Kineto's words. Tried with the dialects of 2021 (capital categories, string
thread ids, whole µs), 2022-23 (the external id repeats the correlation id), 2024 (ns in decimals,
absolute or on a base time) to 2026, from NVIDIA, AMD and CPU-only machines.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal, InvalidOperation
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Raw

from pyprof2.frames import user_source
from pyprof2.parsers._json import (
    AROUND_BYTES_MAX,
    CHUNK_BYTES,
    DECODE_ERRORS,
    JsonStream,
)
from pyprof2.parsers._kineto_inputs import RecordedCall, signature_of
from pyprof2.parsers._labels import StepMark, append_steps, cpu_device, label_marker
from pyprof2.recording import Recording, Signature, Spool, TextCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyprof2.markers import Marker
    from pyprof2.parsers._labels import Label

_NO_BYTES: Final = b""
_Number = int | float | str | None
_Text = str | None


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Raw = Raw(_NO_BYTES)
    dur: Raw = Raw(_NO_BYTES)
    id: int | str | None = None
    args: Raw = Raw(_NO_BYTES)


class _OpArgs(msgspec.Struct, gc=False):
    external_id: _Number = msgspec.field(default=None, name="External id")
    old_external_id: _Number = msgspec.field(default=None, name="external id")
    sequence_nr: _Number = msgspec.field(default=None, name="Sequence number")
    forward_thread: _Number = msgspec.field(default=None, name="Fwd thread id")
    dims: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input Dims")
    old_dims: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input dims")
    strides: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input Strides")
    types: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Input type")
    values: Raw = msgspec.field(default=Raw(_NO_BYTES), name="Concrete Inputs")
    stack: _Text = msgspec.field(default=None, name="Call stack")
    modules: _Text = msgspec.field(default=None, name="Module Hierarchy")
    collective: _Text = msgspec.field(default=None, name="Collective name")
    in_count: _Number = msgspec.field(default=None, name="In msg nelems")
    out_count: _Number = msgspec.field(default=None, name="Out msg nelems")
    group_size: _Number = msgspec.field(default=None, name="Group size")
    comm_dtype: _Text = msgspec.field(default=None, name="dtype")


class _GpuArgs(msgspec.Struct, gc=False):
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


class _LaunchArgs(msgspec.Struct, gc=False):
    external_id: _Number = msgspec.field(default=None, name="External id")
    old_external_id: _Number = msgspec.field(default=None, name="external id")
    correlation: _Number = None


class _MemoryArgs(msgspec.Struct, gc=False):
    device_type: _Number = msgspec.field(default=None, name="Device Type")
    device: _Number = msgspec.field(default=None, name="Device Id")
    address: _Number = msgspec.field(default=None, name="Addr")
    bytes: _Number = msgspec.field(default=None, name="Bytes")
    allocated: _Number = msgspec.field(default=None, name="Total Allocated")
    reserved: _Number = msgspec.field(default=None, name="Total Reserved")


class _Job(msgspec.Struct):
    rank: Any = None
    world_size: Any = None


_CATEGORIES: Final = {
    "cpu_op": "op", "operator": "op",
    "user_annotation": "annotation", "python_function": "python",
    "kernel": "kernel", "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy", "memcpy": "memcpy",
    "gpu_memset": "memset", "memset": "memset",
    "runtime": "launch",
}  # fmt: skip
# Before 2022 annotations stood among the ops.
_ANNOTATION_NAME: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#"
)
# Our markers stand among them always.
_MARKER_NAME: Final = re.compile(r"\{['\"]pyprof2['\"]:")
_NO_OP_NAME: Final = re.compile(f"{_ANNOTATION_NAME.pattern}|{_MARKER_NAME.pattern}")
_STEP_NAME: Final = re.compile(r"ProfilerStep#(\d{1,18})")
_MARKER: Final = "marker"
_MODULE_PREFIX: Final = "nn.Module: "
_LAYER_PREFIX: Final = "layer:"
_DIM3: Final = re.compile(rb"\[\d{1,10},\d{1,10},\d{1,10}\]")
_COPY_KINDS: Final = {
    "HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d", "HtoH": "h2h", "PtoP": "p2p",
    "HtoA": "h2d", "AtoH": "d2h", "AtoA": "d2d", "AtoD": "d2d", "DtoA": "d2d",
}  # fmt: skip
_COPY_NAME: Final = re.compile(r"Memcpy (\w+)(?: \((\w[\w ]*) -> (\w[\w ]*)\))?")
_DIGITS_MAX: Final = 36  # what fits a decimal128 in any case
_DURATION_MAX_NS: Final = 10**15  # 11 days: longer ones are overflows of the recorder
_TIME_MAX_NS: Final = 4 * 10**18  # the year 2096; start + duration still fits int64
_WRONG_TYPE: Final = "a field of an event of the wrong type: left out"
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuse1"}


def looks_like(head: bytes) -> bool:
    """Whether a file that begins with `head` may be a Kineto trace: gzip, or JSON."""
    return head.startswith(b"\x1f\x8b") or head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] in (
        b"{",
        b"[",
    )


def read_recordings(
    path: Path, folder: Path, on_progress: Callable[[int], None] | None = None
) -> list[Recording]:
    """Return the recording in `path`; its raw tables are spooled into `folder`.

    `on_progress` is called with the position in the file.

    Raises:
        TraceError: the file cannot be read, is not JSON, or has no list of events.
    """
    stream = JsonStream(path, "traceEvents", on_progress)
    reader = _Reader(Spool(folder), stream)
    try:
        for text in stream.chunks():
            reader.add(text)
        reader.finish()
    finally:
        reader.spool.finish()
    return [reader.recording()]


class _Reader:
    """Takes the events of a file chunk by chunk and appends them to the raw tables."""

    def __init__(self, spool: Spool, stream: JsonStream) -> None:
        self.spool = spool
        self._stream = stream
        self._problems = stream.problems
        self._ignored: Counter[str] = Counter()
        self._events = 0
        self._known: dict[tuple[str, str], str | None] = {}
        self._names = TextCodes()
        self._kinds: list[tuple[int, int]] = []
        self._signatures = TextCodes()
        self._span = [_TIME_MAX_NS, -_TIME_MAX_NS]
        self._same_ids = [0, 0]
        self._threads = TextCodes()
        self._labels: dict[str, Label] = {}
        self._process: Marker | None = None
        self._cpu: Marker | None = None
        self._steps: list[StepMark] = []
        self._last_op_ns: int | None = None

    def add(self, text: bytes) -> None:
        """Append the events of one JSON array."""
        groups: dict[str, list[_Event]] = {}
        events = self._decode(text)
        self._events += len(events)
        for event in events:
            key = (event.ph, event.cat)
            try:
                group = self._known[key]
            except KeyError:
                group = self._known[key] = _group_of(*key)
            groups.setdefault(group or f"{event.ph} {event.cat}", []).append(event)
        for group, members in groups.items():
            if self._known.get((members[0].ph, members[0].cat)) is None:
                self._ignored[group] += len(members)
                if not members[0].ph:
                    self._stream.count_damaged(len(members))
            else:
                self._add_group(group, members)

    def _decode(self, text: bytes) -> list[_Event]:
        try:
            return _EVENTS.decode(text)
        except UnicodeDecodeError:
            return self._decode_singly(self._stream.salvage(text))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return self._decode_singly(self._raw_events(text))

    def _raw_events(self, text: bytes) -> list[Raw]:
        if len(text) > 3 * CHUNK_BYTES // 2:  # no list of events: these are never that long
            return self._stream.salvage(text)
        try:
            return _RAWS.decode(text)
        except DECODE_ERRORS:
            return self._stream.salvage(text)

    def _decode_singly(self, raws: list[Raw]) -> list[_Event]:
        events = []
        for raw in raws:
            try:
                events.append(_EVENT.decode(raw))
            except (msgspec.ValidationError, *DECODE_ERRORS):
                event = _coerce(bytes(raw), _Event)
                if event is None:
                    self._problems["an event that is no event: dropped"] += 1
                    self._stream.count_damaged()
                    if self._stream.is_given_up:
                        break
                else:
                    self._problems[_WRONG_TYPE] += 1
                    events.append(event)
        return events

    def _add_group(self, group: str, events: list[_Event]) -> None:
        if group == "memory?":
            memory = [e for e in events if e.name == "[memory]"]
            if len(memory) < len(events):
                self._ignored["instants"] += len(events) - len(memory)
            self._add_memory(memory)
        elif group == "flow":
            self._add_flows(events)
        elif group == "op":
            others = [e for e in events if _NO_OP_NAME.match(e.name)]
            if others:
                events = [e for e in events if not _NO_OP_NAME.match(e.name)]
                annotations = [e for e in others if _ANNOTATION_NAME.match(e.name)]
                self._add_ranges("annotation", annotations)
                self._add_markers([e for e in others if _MARKER_NAME.match(e.name)])
            self._add_ops(events)
        elif group in ("annotation", "python"):
            self._add_ranges(group, events)
        elif group == "launch":
            self._add_launches(events)
        else:
            self._add_activities(group, events)

    def _times(
        self, events: list[_Event], *, may_be_zero: bool = True
    ) -> tuple[list[_Event], dict[str, Any]]:
        """Return the events whose times make sense, and their columns start_ns and dur_ns."""
        start, start_ok = _parse_us([e.ts for e in events])
        dur, dur_ok = _parse_us([e.dur for e in events])
        negative = dur_ok & (dur < 0)
        if negative.any():
            self._problems["a negative duration: taken as 0"] += int(negative.sum())
            dur = np.maximum(dur, 0)
        good = start_ok & dur_ok & _is_sensible(start) & (dur <= _DURATION_MAX_NS)
        if not may_be_zero:
            good &= (start != 0) | (dur != 0)
        if not good.all():
            self._problems["an event without a sensible time: dropped"] += int((~good).sum())
            events = [e for e, ok in zip(events, good.tolist(), strict=True) if ok]
            start, dur = start[good], dur[good]
        if len(start):
            self._span[0] = min(self._span[0], int(start.min()))
            self._span[1] = max(self._span[1], int((start + dur).max()))
        return events, {"start_ns": start, "dur_ns": dur}

    def _thread(self, events: list[_Event]) -> dict[str, Any]:
        return {
            "pid": self._thread_ids([e.pid for e in events]),
            "tid": self._thread_ids([e.tid for e in events]),
        }

    def _thread_ids(self, values: list[int | str | None]) -> Any:
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            return pa.array([self._thread_id(value) for value in values], pa.int64())

    def _thread_id(self, value: int | str | None) -> int | None:
        """Return a number for a thread that is named by text: its digits, or one of its own."""
        number = _to_int(value)
        if number is not None or value is None:
            return number
        digits = re.search(r"\d+", str(value))
        number = _to_int(digits[0].lstrip("0") or "0") if digits else None
        return -(1 << 40) - self._threads[value] if number is None else number

    def _add_ops(self, events: list[_Event]) -> None:
        events, columns = self._times(events)
        if events:
            latest = int(columns["start_ns"].max())
            self._last_op_ns = max(latest, self._last_op_ns or latest)
        args = self._args(events, _OP_ARGS, _OpArgs)
        texts = self.spool.texts["ops"]
        codes = texts["op"]
        columns |= self._thread(events) | {
            "op": [codes[e.name] for e in events],
            "signature_id": self._signature_ids(events, args),
            "sequence_nr": self._ints([a.sequence_nr for a in args]),
            "forward_thread": self._ints([a.forward_thread for a in args]),
            "recorded_id": self._external_ids(args),
            "source": [self._stack_source(a.stack) for a in args],
            "layer": [texts["layer"][a.modules] if a.modules else None for a in args],
        }
        self.spool.append("ops", columns, len(events))

    def _signature_ids(self, events: list[_Event], args: Sequence[_OpArgs]) -> list[int | None]:
        codes = self._signatures
        return [
            codes[
                event.name, bytes(a.dims or a.old_dims), bytes(a.types),
                bytes(a.strides), bytes(a.values), _comm_key(a),
            ]
            if a.dims or a.old_dims or a.collective
            else None
            for event, a in zip(events, args, strict=True)
        ]  # fmt: skip

    def _stack_source(self, stack: Any) -> int | None:
        """Return the code of the innermost user frame of an old `Call stack`."""
        if not stack or not isinstance(stack, str):
            return None
        frames = (user_source(frame.strip()) for frame in stack.split(";"))
        source = next((frame for frame in frames if frame), None)
        return None if source is None else self.spool.texts["ops"]["source"][source]

    def _add_ranges(self, group: str, events: list[_Event]) -> None:
        events, columns = self._times(events)
        names = self._names
        codes = [names[group, e.name] for e in events]
        if len(names) > len(self._kinds):
            self._classify_names()
        kinds = np.array(self._kinds, np.int32)[codes] if codes else np.empty((0, 2), np.int32)
        columns |= self._thread(events) | {"name": kinds[:, 0], "kind": kinds[:, 1]}
        self.spool.append("ranges", columns, len(events))

    def _add_markers(self, events: list[_Event]) -> None:
        """Append what our annotation wrote among the ops."""
        groups: dict[str, list[_Event]] = {}
        for event in events:
            label = self._labels.get(event.name)
            if label is None:
                label = self._labels[event.name] = label_marker(event.name)
            if label.problem is not None:
                self._problems[label.problem] += 1
            groups.setdefault(label.what, []).append(event)
        self._add_ranges(_MARKER, groups.get("range", []))
        self._add_wrapped(groups.get("op", []))
        for event in groups.get("process", []):
            self._process = self._labels[event.name].marker
        for event in groups.get("cpu", []):
            self._cpu = self._labels[event.name].marker
        marks, columns = self._times(groups.get("step", []))
        pids, tids = (ids.to_pylist() for ids in self._thread(marks).values())
        for event, start, pid, tid in zip(
            marks, columns["start_ns"].tolist(), pids, tids, strict=True
        ):
            marker = self._labels[event.name].marker
            self._steps.append(StepMark(start, pid, tid, None if marker is None else marker.step))

    def _add_wrapped(self, events: list[_Event]) -> None:
        """Append calls of functions that the user wrapped; their markers say all of them."""
        events, columns = self._times(events)
        labels = [self._labels[e.name] for e in events]
        codes = self.spool.texts["ops"]["op"]
        columns |= self._thread(events) | {
            "op": [codes[label.name] for label in labels],
            "signature_id": [
                None if label.signature is None else self._signatures[label.signature]
                for label in labels
            ],
            "recorded_id": self._external_ids(self._args(events, _OP_ARGS, _OpArgs)),
        }
        self.spool.append("ops", columns, len(events))

    def finish(self) -> None:
        """Append what could not be before the end of the recording was known."""
        if "step" not in self.spool.texts["ranges"]["kind"]:  # else the user's own numbers count
            append_steps(self.spool, self._steps, self._last_op_ns, self._span[1])

    def _classify_names(self) -> None:
        """Give each new name of a range its text and its kind."""
        texts = self.spool.texts["ranges"]
        for group, name in list(self._names)[len(self._kinds) :]:
            kind, text = _range_kind(group, name)
            self._kinds.append((texts["name"][text], texts["kind"][kind]))

    def _add_launches(self, events: list[_Event]) -> None:
        events, columns = self._times(events)
        args = self._args(events, _LAUNCH_ARGS, _LaunchArgs)
        codes = self.spool.texts["launches"]["name"]
        columns |= self._thread(events) | {
            "name": [codes[e.name] for e in events],
            "correlation_id": self._ints([a.correlation for a in args]),
            "recorded_id": self._external_ids(args),
        }
        self.spool.append("launches", columns, len(events))

    def _add_activities(self, kind: str, events: list[_Event]) -> None:
        # The driver hands over records that it never filled in: they have no time at all.
        events, columns = self._times(events, may_be_zero=False)
        args = self._args(events, _GPU_ARGS, _GpuArgs)
        texts = self.spool.texts["activities"]
        correlation, external = self._ints([a.correlation for a in args]), self._external_ids(args)
        self._same_ids[0] += pc.sum(pc.equal(correlation, external)).as_py() or 0
        self._same_ids[1] += len(events)
        kind_code = texts["kind"][kind]
        columns |= {
            "correlation_id": correlation,
            "recorded_id": external,
            "device": self._ints(
                [_first(a.device, a.in_device, e.pid) for a, e in zip(args, events, strict=True)]
            ),
            "stream": self._thread_ids(
                [_first(a.stream, e.tid) for a, e in zip(args, events, strict=True)]
            ),
            "kernel": [texts["kernel"][e.name] for e in events],
            "kind": [kind_code] * len(events),
            "bytes": self._ints([a.bytes for a in args]),
            "grid": [_dim3(texts["grid"], a.grid) for a in args],
            "block": [_dim3(texts["block"], a.block) for a in args],
            "registers": self._ints([a.registers for a in args]),
            "shared_bytes": self._ints([a.shared_bytes for a in args]),
            "blocks_per_sm": self._floats([a.blocks_per_sm for a in args]),
            "occupancy_pct": self._floats([a.occupancy for a in args]),
            "graph_node_id": self._ints([a.graph_node or None for a in args]),
        }
        if kind == "memcpy":
            copies = texts["copy_kind"]
            columns["copy_kind"] = [_copy_kind(copies, e.name) for e in events]
        self.spool.append("activities", columns, len(events))

    def _add_memory(self, events: list[_Event]) -> None:
        start, good = _parse_us([e.ts for e in events])
        good &= _is_sensible(start)
        if not good.all():
            self._problems["an event without a sensible time: dropped"] += int((~good).sum())
            events = [e for e, ok in zip(events, good.tolist(), strict=True) if ok]
        args = self._args(events, _MEMORY_ARGS, _MemoryArgs)
        codes = self.spool.texts["memory"]["device_type"]
        types = [_to_int(a.device_type) for a in args]
        columns = self._thread(events) | {
            "time_ns": start[good],
            "device_type": [codes[_DEVICE_TYPES[t]] if t in _DEVICE_TYPES else None for t in types],
            "device": [
                d if d is None or d >= 0 else None for d in (_to_int(a.device) for a in args)
            ],
            "address": [_to_address(a.address) for a in args],
            "bytes": self._ints([a.bytes for a in args]),
            "allocated_bytes": self._ints([a.allocated for a in args]),
            "reserved_bytes": self._ints([a.reserved for a in args]),
        }
        self.spool.append("memory", columns, len(events))

    def _add_flows(self, events: list[_Event]) -> None:
        time, good = _parse_us([e.ts for e in events])
        ids = self._ints([e.id for e in events])
        columns = self._thread(events) | {
            "flow_id": ids,
            "end": [e.ph == "f" for e in events],
            "time_ns": pa.array(time, mask=~good),
        }
        self.spool.append("flows", columns, len(events))

    def _external_ids(self, args: Iterable[Any]) -> pa.Array:
        ids = [a.old_external_id if a.external_id is None else a.external_id for a in args]
        return self._ints(ids)

    def _ints(self, values: list[Any]) -> pa.Array:
        """Return whole numbers as a column; what is none is null, and counted."""
        try:
            column = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            column = None
        if column is None or column.type not in (pa.int64(), pa.null()):
            column = pa.array([_to_int(value) for value in values], pa.int64())
            self._count_lost(values, column)
        return column.cast(pa.int64())

    def _floats(self, values: list[Any]) -> pa.Array:
        """Return numbers as a column; what is none is null, and counted."""
        try:
            return pa.array(values, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            column = pa.array([_to_float(value) for value in values], pa.float64())
            self._count_lost(values, column)
            return column

    def _count_lost(self, values: list[Any], column: pa.Array) -> None:
        lost = column.null_count - values.count(None)
        if lost:
            self._problems[_WRONG_TYPE] += lost

    def _args(self, events: list[_Event], decoder: Any, kind: type[Any]) -> list[Any]:
        """Return the decoded `args` of each event; what does not decode is left out."""
        raws = [e.args or b"{}" for e in events]
        try:
            return list(decoder.decode(b"[" + b",".join(raws) + b"]"))
        except (msgspec.ValidationError, *DECODE_ERRORS):
            return [self._coerce_args(bytes(raw), kind) for raw in raws]

    def _coerce_args(self, raw: bytes, kind: type[Any]) -> Any:
        text = raw.decode("utf-8", "replace").encode()
        if text != raw:
            self._problems["text that is not UTF-8: repaired"] += 1
            raw = text
        try:
            return msgspec.json.decode(raw, type=kind)
        except (msgspec.ValidationError, *DECODE_ERRORS):
            self._problems[_WRONG_TYPE] += 1
            return _coerce(raw, kind) or kind()

    def recording(self) -> Recording:
        """Return what was read, with what the file says of itself."""
        stream = self._stream
        launches = self.spool.texts["launches"]["name"]
        hip = any(name.startswith("hip") for name in launches)
        hip |= "hip_runtime_version" in stream.around
        listed = stream.member("deviceProperties", list[Any]) or []
        devices = [_device(d, "hip" if hip else "cuda") for d in listed if isinstance(d, dict)]
        if self._cpu is not None and not self.spool.counts["activities"]:
            devices = [cpu_device(self._cpu)]
        job = stream.member("distributedInfo", _Job, AROUND_BYTES_MAX) or _Job()
        process = self._process
        rank = _first(_to_int(job.rank), process and process.rank)
        world_size = _first(_to_int(job.world_size), process and process.world_size)
        same, count = self._same_ids
        trusted = same * 2 <= count
        if not trusted:
            self._problems["the file's external ids repeat the correlation ids: not used"] += 1
        base = stream.member("baseTimeNanoseconds", Any)
        # Without a base time, times are since 1970, unless they are too small to be.
        absolute = 0 if self._span[0] > 10**18 else None
        return Recording(
            self.spool,
            rank=rank if rank is not None and rank >= 0 else None,
            signatures=[
                key if isinstance(key, Signature) else signature_of(RecordedCall(*key))
                for key in self._signatures
            ],
            devices=devices,
            trace={
                "source": stream.path.name,
                "profiler": "kineto",
                "world_size": world_size,
                "start_ns": self._span[0] if self._span[1] >= self._span[0] else None,
                "end_ns": self._span[1] if self._span[1] >= self._span[0] else None,
                "unix_ns": absolute if base is None else _to_int(base),
                "event_count": self._events,
            },
            problems=self._problems,
            ignored=self._ignored,
            trusts_recorded_id=trusted,
        )


_EVENTS: Final = msgspec.json.Decoder(list[_Event])
_EVENT: Final = msgspec.json.Decoder(_Event)
_RAWS: Final = msgspec.json.Decoder(list[Raw])
_FIELDS: Final = msgspec.json.Decoder(dict[str, Raw])
_OP_ARGS: Final = msgspec.json.Decoder(list[_OpArgs])
_GPU_ARGS: Final = msgspec.json.Decoder(list[_GpuArgs])
_LAUNCH_ARGS: Final = msgspec.json.Decoder(list[_LaunchArgs])
_MEMORY_ARGS: Final = msgspec.json.Decoder(list[_MemoryArgs])


def _group_of(phase: str, category: str) -> str | None:
    """Return where events of a phase and category belong; None: nowhere."""
    if phase == "X":
        category = category.lower()
        if category.endswith(("_runtime", "_driver")):
            return "launch"
        return _CATEGORIES.get(category)
    if phase == "i" and category in ("", "cpu_instant_event"):
        return "memory?"
    return "flow" if phase in ("s", "f") and category == "fwdbwd" else None


def _range_kind(group: str, name: str) -> tuple[str, str]:
    """Return the kind of a range, and its text without what only says the kind."""
    if group == _MARKER:
        label = label_marker(name)
        return label.kind or "annotation", label.name
    if group == "python":
        is_module = name.startswith(_MODULE_PREFIX)
        return ("module", name.removeprefix(_MODULE_PREFIX)) if is_module else (group, name)
    if _STEP_NAME.match(name):
        return "step", name
    if name.startswith(_LAYER_PREFIX):
        return "layer", name.removeprefix(_LAYER_PREFIX)
    return group, name


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


def _parse_us(values: Sequence[Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return decimal texts of µs as int64 ns, and which of them are numbers that fit.

    Exact: the digits go through decimals, never through floats. Digits finer than a ns are
    rounded half up.
    """
    if not values:
        return np.empty(0, np.int64), np.empty(0, bool)
    lengths = np.fromiter((len(memoryview(v)) for v in values), np.int32, len(values))
    digits = b"".join(values)
    # Arrow crashes on some exponents, and is silently wrong on numbers that are too long.
    if lengths.max() > _DIGITS_MAX or b"e" in digits or b"E" in digits:
        return _parse_us_singly(values)
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    texts = pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(digits))
    try:
        decimals = texts.cast(pa.decimal128(28, 3))
    except pa.ArrowInvalid:
        try:
            decimals = pc.round(texts.cast(pa.decimal128(38, 15)), 3, "half_up").cast(
                pa.decimal128(28, 3)
            )
        except pa.ArrowInvalid:
            return _parse_us_singly(values)
    # A decimal128 is two words, the low one first; the values that fit int64 need only that.
    words = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2)
    return words[:, 0].copy(), words[:, 1] == (words[:, 0] >> 63)


def _parse_us_singly(
    values: Sequence[Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    times = [_parse_us_text(bytes(value)) for value in values]
    good = np.array([time is not None for time in times])
    return np.array([time or 0 for time in times], np.int64), good


def _parse_us_text(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode().strip('"'))
        if not value.is_finite() or (value and value.adjusted() > 18):
            return None
    except (InvalidOperation, ValueError):  # among them bytes that are no text
        return None
    # Ties go up, also below zero.
    rounding = ROUND_HALF_DOWN if value.is_signed() else ROUND_HALF_UP
    time = int(value.quantize(Decimal("0.001"), rounding).scaleb(3))
    return time if abs(time) < 1 << 62 else None


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _is_sensible(time: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (time >= -_TIME_MAX_NS) & (time <= _TIME_MAX_NS)


def _to_int(value: Any) -> int | None:
    """Return a whole number that fits int64, given as a number or as text; else None."""
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    is_whole = not isinstance(value, float) or number == value
    return number if is_whole and -(1 << 63) <= number < 1 << 63 else None


def _to_address(value: Any) -> int | None:
    """Return an address, which some recorders print as a signed number."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number & ((1 << 64) - 1) if -(1 << 63) <= number < 1 << 64 else None


def _to_float(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if np.isfinite(number) else None


def _dim3(codes: TextCodes, raw: Raw) -> int | None:
    """Return the code of `x,y,z`; None for what is no list of three counts."""
    text = b"".join(bytes(raw).split())
    return codes[text[1:-1].decode()] if _DIM3.fullmatch(text) else None


def _copy_kind(codes: TextCodes, name: str) -> int | None:
    match = _COPY_NAME.match(name)
    if not match or match[1] not in _COPY_KINDS:
        return None
    hosts = {word.lower() for word in match.groups()[1:] if word in ("Pageable", "Pinned")}
    return codes[" ".join([_COPY_KINDS[match[1]], *sorted(hosts)])]


def _comm_key(args: _OpArgs) -> tuple[Any, ...] | None:
    if not args.collective:
        return None
    return (args.collective, args.in_count, args.out_count, args.comm_dtype, args.group_size)


def _device(properties: dict[str, Any], device_type: str) -> dict[str, Any]:
    major, minor = (_to_int(properties.get(f"compute{part}")) for part in ("Major", "Minor"))
    units = _first(properties.get("numSms"), properties.get("maxComputeUnits"))
    name = properties.get("name")
    return {
        "device": _to_int(properties.get("id")) or 0,
        "device_type": "xpu" if "maxComputeUnits" in properties else device_type,
        "name": name if isinstance(name, str) else None,
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "multiprocessors": _to_int(units),
        "clock_hz": None,
        "memory_bytes": _to_int(
            _first(properties.get("totalGlobalMem"), properties.get("maxMemAllocSize"))
        ),
        "memory_bytes_per_s": None,
    }
