"""Read Kineto traces: the Chrome JSON that `torch.profiler` exports, plain or gzip.

Only this module, and those that begin with its name, know Kineto's words. Tried with the dialects
of 2021 (capital categories, string thread ids, whole µs), 2022-23 (the external id repeats the
correlation id), 2024 (ns in decimals, absolute or on a base time) to 2026, from NVIDIA, AMD and
CPU-only machines.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.frames import frame_line
from pyprof2.parsers._json import AROUND_BYTES_MAX, JsonStream, inflate, open_trace
from pyprof2.parsers._kineto_events import (
    EventDecoder,
    GpuArgs,
    Job,
    LaunchArgs,
    MemoryArgs,
    OpArgs,
    StallArgs,
)
from pyprof2.parsers._kineto_inputs import RecordedCall, signature_of
from pyprof2.parsers._kineto_values import (
    Numbers,
    copy_kind_code,
    dim3_code,
    first_of,
    parse_us,
    to_address,
    to_int,
)
from pyprof2.parsers._labels import cpu_device, label_marker, label_text
from pyprof2.parsers._names import cut_path, cut_stack
from pyprof2.parsers._op_names import is_dispatch, is_named_like_op
from pyprof2.parsers._stalls import overhead_kind, wait_kind
from pyprof2.parsers._steps import OpSpan, StepMark, StepRanges
from pyprof2.recording import (
    ANNOTATED_INPUTS,
    ANNOTATED_PEAKS,
    ANNOTATED_RANK,
    ANNOTATED_STEPS,
    UNNEEDED,
    Recording,
    Signature,
    Spool,
    TextCodes,
    host_pids,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from pyprof2.markers import Marker
    from pyprof2.parsers._kineto_events import Event
    from pyprof2.parsers._labels import Label

_CATEGORIES: Final = {
    "cpu_op": "op", "operator": "op",
    "user_annotation": "annotation", "python_function": "python",
    "kernel": "kernel", "mtia_ccp_events": "kernel",
    "gpu_memcpy": "memcpy", "memcpy": "memcpy",
    "gpu_memset": "memset", "memset": "memset",
    "runtime": "launch", "overhead": "overhead", "cuda_sync": "wait",
}  # fmt: skip
# Before 2022 annotations stood among the ops.
_ANNOTATION_NAME: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#"
)
# Our markers stand among them always.
_MARKER_NAME: Final = re.compile(r"\{['\"]pyprof2['\"]:")
_NO_OP_NAME: Final = re.compile(f"{_ANNOTATION_NAME.pattern}|{_MARKER_NAME.pattern}")
# The name of our own marker begins with a brace, and no op's does.
_WORK: Final = re.compile(
    rb'"cat":\s{0,9}"(?:cpu_op",\s{0,9}"name":\s{0,9}"[^{]|kernel"|gpu_memcpy"|gpu_memset")'
)
_WORK_BYTES: Final = 80
"""No less than any text that the pattern finds."""
_MARKS: Final = f"marks of a moment{UNNEEDED}"
_ARROWS: Final = f"arrows between launches and GPU work{UNNEEDED}"
_SKIPPED_PHASES: Final = {
    "M": f"names of processes and threads{UNNEEDED}",
    "C": f"counters{UNNEEDED}",
    "i": _MARKS,
}
_SKIPPED_CATEGORIES: Final = {
    "ac2g": _ARROWS, "async": _ARROWS, "async_cpu_to_gpu": _ARROWS, "async_gpu": _ARROWS,
    "trace": f"the recorder's own span{UNNEEDED}",
    "gpu_user_annotation": f"annotations repeated for the GPU{UNNEEDED}",
    "cuda_event": f"CUDA events{UNNEEDED}",
    "cuda_profiler_range": f"hardware counters{UNNEEDED}",
    "hardware_counters": f"hardware counters{UNNEEDED}",
}  # fmt: skip
_MARKER: Final = "marker"
_RECORDED_OPS: Final = ("aten::", "autograd::", "c10d::")
_NO_OP: Final = "a marker of an op that the profiler records itself: not used"
_OTHER_RANK: Final = "a marker of another rank than the file's: not used"
_INTERNAL: Final = "internal"
_MODULE_PREFIX: Final = "nn.Module: "
_DURATION_MAX_NS: Final = 10**15  # 11 days: longer ones are overflows of the recorder
_NO_ID: Final = (1 << 32) - 1
_RANK_END: Final = 10**9
_TIME_MAX_NS: Final = 4 * 10**18  # the year 2096; start + duration still fits int64
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuse1"}


def holds_work(path: Path) -> bool:
    """Return whether there is an op or a kernel among the events of a trace."""
    with open_trace(path) as file:
        end = b""
        for block in inflate(file):
            if _WORK.search(end + block):
                return True
            end = block[-_WORK_BYTES:]
    return False


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
        self._decoder = EventDecoder(stream)
        self._numbers = Numbers(stream.problems)
        self._ignored: Counter[str] = Counter()
        self._annotated: Counter[str] = Counter()
        self._events = 0
        self._known: dict[tuple[str, str], str | None] = {}
        self._names = TextCodes()
        self._op_names: dict[str, bool] = {}
        self._has_inputs = False
        self._kinds: list[tuple[int, int]] = []
        self._signatures = TextCodes()
        self._span = [_TIME_MAX_NS, -_TIME_MAX_NS]
        self._same_ids = [0, 0]
        self._threads = TextCodes()
        self._labels: dict[str, Label] = {}
        self._stacks: dict[str, int | None] = {}
        self._process: Marker | None = None
        self._cpu: Marker | None = None
        self._ranges = StepRanges(spool)
        self._op_span = OpSpan()

    def add(self, text: bytes) -> None:
        """Append the events of one JSON array."""
        groups: dict[str, list[Event]] = {}
        events = self._decoder.events(text)
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
                self._ignored[_skipped(members[0].ph, members[0].cat)] += len(members)
                if not members[0].ph:
                    self._stream.count_damaged(len(members))
            else:
                self._add_group(group, members)

    def _add_group(self, group: str, events: list[Event]) -> None:
        if group == "memory?":
            memory = [e for e in events if e.name == "[memory]"]
            if len(memory) < len(events):
                self._ignored[_MARKS] += len(events) - len(memory)
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
            self._add_calls(events)
        elif group in ("annotation", "python"):
            self._add_ranges(group, events)
        elif group == "launch":
            self._add_launches(events)
        elif group in ("overhead", "wait"):
            self._add_stalls(group, events)
        else:
            self._add_activities(group, events)

    def _times(
        self, events: list[Event], *, may_be_zero: bool = True, in_span: bool = True
    ) -> tuple[list[Event], dict[str, Any]]:
        """Return the events whose times make sense, and their columns start_ns and dur_ns."""
        start, start_ok = parse_us([e.ts for e in events])
        dur, dur_ok = parse_us([e.dur for e in events])
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
        if len(start) and in_span:
            self._span[0] = min(self._span[0], int(start.min()))
            self._span[1] = max(self._span[1], int((start + dur).max()))
        return events, {"start_ns": start, "dur_ns": dur}

    def _thread(self, events: list[Event]) -> dict[str, Any]:
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
        number = to_int(value)
        if number is not None or value is None:
            return number
        digits = re.search(r"\d+", str(value))
        number = to_int(digits[0].lstrip("0") or "0") if digits else None
        return -(1 << 40) - self._threads[value] if number is None else number

    def _add_calls(self, events: list[Event]) -> None:
        """Append ops, and what PyTorch recorded like ops, such as what its compiler does."""
        events, times = self._times(events)
        args = self._decoder.args(events, OpArgs)
        self._has_inputs = self._has_inputs or any(a.dims or a.old_dims for a in args)
        is_op = np.array([self._is_op(e.name, a) for e, a in zip(events, args, strict=True)], bool)
        if not is_op.all():
            others = [events[at] for at in np.flatnonzero(~is_op).tolist()]
            self._append_ranges(_INTERNAL, others, {k: v[~is_op] for k, v in times.items()})
            kept = np.flatnonzero(is_op).tolist()
            events, args = [events[at] for at in kept], [args[at] for at in kept]
            times = {name: values[is_op] for name, values in times.items()}
        self._append_ops(events, args, times)

    def _is_op(self, name: str, args: OpArgs) -> bool:
        """Whether an event is an op: by its name, else by its number or its inputs."""
        named = self._op_names.get(name)
        if named is None:
            named = self._op_names[name] = is_named_like_op(name)
        if named or args.sequence_nr is not None or args.backend is not None:
            return True
        if args.dims or args.old_dims:
            return not is_dispatch(name)
        return not self._has_inputs and " " not in name

    def _append_ops(
        self, events: list[Event], args: Sequence[OpArgs], columns: dict[str, Any]
    ) -> None:
        if events:
            start = columns["start_ns"]
            self._op_span.add(int(start.min()), int(start.max()))
        texts = self.spool.texts["ops"]
        codes = texts["op"]
        columns |= self._thread(events) | {
            "op": [codes[e.name] for e in events],
            "signature_id": self._signature_ids(events, args),
            "sequence_nr": self._numbers.ints([a.sequence_nr for a in args]),
            "forward_thread": self._numbers.ints([a.forward_thread for a in args]),
            "recorded_id": self._external_ids(args),
            "stack": [self._stack(a.stack) for a in args],
            "layer": [self._layer(a.modules) for a in args],
        }
        self.spool.append("ops", columns, len(events))

    def _signature_ids(self, events: list[Event], args: Sequence[OpArgs]) -> list[int | None]:
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

    def _stack(self, stack: str | None) -> int | None:
        """Return the code of an old `Call stack`, without the frames of torch."""
        if not stack or not isinstance(stack, str):
            return None
        if stack not in self._stacks:
            frames = cut_stack(stack, self._problems).split(";")
            found = (frame_line(frame.strip()) for frame in frames)
            text = "\n".join(line for line in found if line)
            self._stacks[stack] = self.spool.texts["ops"]["stack"][text] if text else None
        return self._stacks[stack]

    def _layer(self, modules: str | None) -> int | None:
        """Return the code of a `Module Hierarchy`."""
        path = cut_path(modules, self._problems) if modules else None
        return self.spool.texts["ops"]["layer"][path] if path else None

    def _add_ranges(self, group: str, events: list[Event]) -> None:
        self._append_ranges(group, *self._times(events))

    def _append_ranges(self, group: str, events: list[Event], columns: dict[str, Any]) -> None:
        names = self._names
        codes = [names[group, e.name] for e in events]
        if len(names) > len(self._kinds):
            self._classify_names()
        kinds = np.array(self._kinds, np.int32)[codes] if codes else np.empty((0, 2), np.int32)
        columns |= self._thread(events) | {"name": kinds[:, 0], "kind": kinds[:, 1]}
        self._ranges.append(columns, len(events))

    def _add_markers(self, events: list[Event]) -> None:
        """Append what our annotation wrote among the ops."""
        groups: dict[str, list[Event]] = {}
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
            if marker is not None:
                self._ranges.mark(StepMark(start, pid, tid, marker.step, marker.event))

    def _add_wrapped(self, events: list[Event]) -> None:
        """Append calls of functions that the user wrapped; their markers say all of them.

        Ops of PyTorch's the profiler records itself: what claims to be another one is not used.
        """
        own = [e for e in events if not self._labels[e.name].name.startswith(_RECORDED_OPS)]
        if len(own) < len(events):
            self._problems[_NO_OP] += len(events) - len(own)
        events, columns = self._times(own)
        labels = [self._labels[e.name] for e in events]
        texts = self.spool.texts["ops"]
        columns |= self._thread(events) | {
            "op": [texts["op"][label.name] for label in labels],
            "stack": [None if x.stack is None else texts["stack"][x.stack] for x in labels],
            "signature_id": [
                None if label.signature is None else self._signatures[label.signature]
                for label in labels
            ],
            "recorded_id": self._external_ids(self._decoder.args(events, OpArgs)),
        }
        self._annotated[ANNOTATED_INPUTS] += sum(label.signature is not None for label in labels)
        self.spool.append("ops", columns, len(events))

    def finish(self) -> None:
        """Append what could not be before the end of the recording was known."""
        self._annotated[ANNOTATED_STEPS] += self._ranges.finish(self._op_span, self._span[1])

    def _classify_names(self) -> None:
        """Give each new name of a range its text and its kind."""
        texts = self.spool.texts["ranges"]
        for group, name in list(self._names)[len(self._kinds) :]:
            kind, text = _range_kind(group, name)
            self._kinds.append((texts["name"][text], texts["kind"][kind]))

    def _add_launches(self, events: list[Event]) -> None:
        events, columns = self._times(events)
        args = self._decoder.args(events, LaunchArgs)
        codes = self.spool.texts["launches"]["name"]
        columns |= self._thread(events) | {
            "name": [codes[e.name] for e in events],
            "correlation_id": self._numbers.ints([a.correlation for a in args]),
            "recorded_id": self._external_ids(args),
        }
        self.spool.append("launches", columns, len(events))

    def _add_stalls(self, group: str, events: list[Event]) -> None:
        """Append overheads and waits. They are no work: the span does not hold them."""
        events, columns = self._times(events, may_be_zero=False, in_span=False)
        args = self._decoder.args(events, StallArgs)
        texts = self.spool.texts["stalls"]
        kind_of = overhead_kind if group == "overhead" else wait_kind
        columns |= {
            "name": [texts["name"][e.name] for e in events],
            "kind": [texts["kind"][kind_of(e.name)] for e in events],
            "device": _known(self._numbers.ints([a.device for a in args])),
            "stream": _known(self._numbers.ints([a.stream for a in args])),
            "correlation_id": _known(self._numbers.ints([a.correlation for a in args]), least=1),
            "waits_for_correlation_id": _known(
                self._numbers.ints([a.recorded_by for a in args]), least=1
            ),
        }
        if group == "overhead":  # a wait stands on the device and its stream
            thread = self._thread(events)
            columns |= {"pid": _known(thread["pid"]), "tid": _known(thread["tid"], least=1)}
        self.spool.append("stalls", columns, len(events))

    def _add_activities(self, kind: str, events: list[Event]) -> None:
        # The driver hands over records that it never filled in: they have no time at all.
        events, columns = self._times(events, may_be_zero=False)
        args = self._decoder.args(events, GpuArgs)
        texts = self.spool.texts["activities"]
        correlation, external = (
            self._numbers.ints([a.correlation for a in args]),
            self._external_ids(args),
        )
        self._same_ids[0] += pc.sum(pc.equal(correlation, external)).as_py() or 0
        self._same_ids[1] += len(events)
        kind_code = texts["kind"][kind]
        columns |= {
            "correlation_id": correlation,
            "recorded_id": external,
            "device": self._numbers.ints(
                [first_of(a.device, a.in_device, e.pid) for a, e in zip(args, events, strict=True)]
            ),
            "stream": self._thread_ids(
                [first_of(a.stream, e.tid) for a, e in zip(args, events, strict=True)]
            ),
            "kernel": [texts["kernel"][e.name] for e in events],
            "kind": [kind_code] * len(events),
            "bytes": self._numbers.ints([a.bytes for a in args]),
            "grid": [dim3_code(texts["grid"], a.grid) for a in args],
            "block": [dim3_code(texts["block"], a.block) for a in args],
            "registers": self._numbers.ints([a.registers for a in args]),
            "shared_bytes": self._numbers.ints([a.shared_bytes for a in args]),
            "blocks_per_sm": self._numbers.floats([a.blocks_per_sm for a in args]),
            "occupancy_pct": self._numbers.floats([a.occupancy for a in args]),
            "graph_node_id": self._numbers.ints([a.graph_node or None for a in args]),
        }
        if kind == "memcpy":
            copies = texts["copy_kind"]
            columns["copy_kind"] = [copy_kind_code(copies, e.name) for e in events]
        self.spool.append("activities", columns, len(events))

    def _add_memory(self, events: list[Event]) -> None:
        start, good = parse_us([e.ts for e in events])
        good &= _is_sensible(start)
        if not good.all():
            self._problems["an event without a sensible time: dropped"] += int((~good).sum())
            events = [e for e, ok in zip(events, good.tolist(), strict=True) if ok]
        args = self._decoder.args(events, MemoryArgs)
        codes = self.spool.texts["memory"]["device_type"]
        types = [to_int(a.device_type) for a in args]
        columns = self._thread(events) | {
            "time_ns": start[good],
            "device_type": [codes[_DEVICE_TYPES[t]] if t in _DEVICE_TYPES else None for t in types],
            "device": [
                d if d is None or d >= 0 else None for d in (to_int(a.device) for a in args)
            ],
            "address": [to_address(a.address) for a in args],
            "bytes": self._numbers.ints([a.bytes for a in args]),
            "allocated_bytes": self._numbers.ints([a.allocated for a in args]),
            "reserved_bytes": self._numbers.ints([a.reserved for a in args]),
        }
        self.spool.append("memory", columns, len(events))

    def _add_flows(self, events: list[Event]) -> None:
        time, good = parse_us([e.ts for e in events])
        ids = self._numbers.ints([e.id for e in events])
        columns = self._thread(events) | {
            "flow_id": ids,
            "end": [e.ph == "f" for e in events],
            "time_ns": pa.array(time, mask=~good),
        }
        self.spool.append("flows", columns, len(events))

    def _external_ids(self, args: Iterable[Any]) -> pa.Array:
        ids = [a.old_external_id if a.external_id is None else a.external_id for a in args]
        return self._numbers.ints(ids)

    def _devices(self) -> list[dict[str, Any]]:
        """Return the devices that the file lists; without GPU work the CPU that was measured."""
        if self._cpu is not None:
            used_gpu = self.spool.counts["activities"] > 0
            cpu = cpu_device(self._cpu, used_gpu=used_gpu, problems=self._problems)
            if cpu is not None:
                self._annotated[ANNOTATED_PEAKS] += 1
                return [cpu]
        launches = self.spool.texts["launches"]["name"]
        hip = any(name.startswith("hip") for name in launches)
        hip |= "hip_runtime_version" in self._stream.around
        listed = self._stream.member("deviceProperties", list[Any]) or []
        return [_device(d, "hip" if hip else "cuda") for d in listed if isinstance(d, dict)]

    def recording(self) -> Recording:
        """Return what was read, with what the file says of itself."""
        stream = self._stream
        job = stream.member("distributedInfo", Job, AROUND_BYTES_MAX) or Job()
        process = self._process
        claimed = process and process.rank
        rank = first_of(to_int(job.rank), claimed)
        if claimed is not None:
            self._annotated[ANNOTATED_RANK] += to_int(job.rank) is None
            self._problems[_OTHER_RANK] += rank != claimed
        world_size = first_of(to_int(job.world_size), process and process.world_size)
        same, count = self._same_ids
        trusted = same * 2 <= count
        if not trusted:
            self._problems["the file's external ids repeat the correlation ids: not used"] += 1
        base = stream.member("baseTimeNanoseconds", Any)
        # Without a base time, times are since 1970, unless they are too small to be.
        absolute = 0 if self._span[0] > 10**18 else None
        return Recording(
            self.spool,
            rank=rank if rank is not None and 0 <= rank < _RANK_END else None,
            host=stream.member("host_name", str),
            pids=host_pids(self.spool),
            signatures=[
                key if isinstance(key, Signature) else signature_of(RecordedCall(*key))
                for key in self._signatures
            ],
            devices=self._devices(),
            trace={
                "source": stream.path.name,
                "profiler": "kineto",
                "world_size": world_size,
                "start_ns": self._span[0] if self._span[1] >= self._span[0] else None,
                "end_ns": self._span[1] if self._span[1] >= self._span[0] else None,
                "unix_ns": absolute if base is None else to_int(base),
                "event_count": self._events,
            },
            problems=self._problems,
            ignored=self._ignored,
            annotated=+self._annotated,
            trusts_recorded_id=trusted,
            source_root=process.source_root if process else None,
        )


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


def _skipped(phase: str, category: str) -> str:
    """Say what events are that no table has: of a known kind, or of one that may matter."""
    if not phase:
        return "events without a phase"
    if phase in _SKIPPED_PHASES:
        return _SKIPPED_PHASES[phase]
    known = _SKIPPED_CATEGORIES.get(category.lower())
    return known or f"events of an unknown kind: phase {phase}, category {category or 'none'}"


def _range_kind(group: str, name: str) -> tuple[str, str]:
    """Return the kind of a range, and its text without what only says the kind."""
    if group == "python":
        is_module = name.startswith(_MODULE_PREFIX)
        return ("module", name.removeprefix(_MODULE_PREFIX)) if is_module else (group, name)
    if group == _INTERNAL:
        return group, name
    label = label_marker(name) if group == _MARKER else label_text(name)
    return label.kind or "annotation", label.name


def _known(ids: pa.Array, least: int = 0) -> pa.Array:
    """Return ids; null for -1, signed or not, and for others below `least`: none was recorded."""
    known = pc.and_(pc.greater_equal(ids, least), pc.not_equal(ids, _NO_ID))
    return pc.if_else(known, ids, None)


def _is_sensible(time: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (time >= -_TIME_MAX_NS) & (time <= _TIME_MAX_NS)


def _comm_key(args: OpArgs) -> tuple[Any, ...] | None:
    if not args.collective:
        return None
    return (args.collective, args.in_count, args.out_count, args.comm_dtype, args.group_size)


def _device(properties: dict[str, Any], device_type: str) -> dict[str, Any]:
    major, minor = (to_int(properties.get(f"compute{part}")) for part in ("Major", "Minor"))
    units = first_of(properties.get("numSms"), properties.get("maxComputeUnits"))
    name = properties.get("name")
    return {
        "device": to_int(properties.get("id")) or 0,
        "device_type": "xpu" if "maxComputeUnits" in properties else device_type,
        "name": name if isinstance(name, str) else None,
        "compute_capability": None if major is None or minor is None else f"{major}.{minor}",
        "multiprocessors": to_int(units),
        "clock_hz": None,
        "memory_bytes": to_int(
            first_of(properties.get("totalGlobalMem"), properties.get("maxMemAllocSize"))
        ),
        "memory_bytes_per_s": None,
    }
