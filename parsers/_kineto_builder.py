"""The table builder of the Kineto reader: columns of events become the raw tables.

It knows what the values of the columns mean, and what a recording of a version says in which
words; how they stood in the file it does not see.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2 import skipped
from pyprof2.frames import frame_line
from pyprof2.parsers._kineto_inputs import RecordedCall, signature_of
from pyprof2.parsers._kineto_values import (
    Numbers,
    copy_kind_code,
    dim3_code,
    filled,
    to_address,
    to_int,
)
from pyprof2.parsers._labels import label_marker, label_text
from pyprof2.parsers._names import cut_path, cut_stack
from pyprof2.parsers._op_names import is_dispatch, is_named_like_op
from pyprof2.parsers._stalls import overhead_kind, wait_kind
from pyprof2.parsers._steps import OpSpan, StepMark, StepRanges
from pyprof2.problems import EVENT_TIME, MARKER_OF_OP, NEGATIVE_DURATION, with_detail
from pyprof2.recording import (
    ANNOTATED_INPUTS,
    ANNOTATED_STEPS,
    Signature,
    Spool,
    TextCodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyprof2.markers import Marker
    from pyprof2.parsers._kineto_columns import Bool, EventColumns, Int, Scan
    from pyprof2.parsers._labels import Label

# Before 2022 annotations stood among the ops.
_ANNOTATION_NAME: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#"
)
# Our markers stand among them always.
_MARKER_NAME: Final = re.compile(r"\{['\"]pyprof2['\"]:")
_NO_OP_NAME: Final = re.compile(f"{_ANNOTATION_NAME.pattern}|{_MARKER_NAME.pattern}")
_SKIPPED_PHASES: Final = {"M": skipped.NAMES, "i": skipped.MARKS}
_SKIPPED_CATEGORIES: Final = {
    "ac2g": skipped.ARROWS,
    "async": skipped.ARROWS,
    "async_cpu_to_gpu": skipped.ARROWS,
    "async_gpu": skipped.ARROWS,
    "trace": skipped.OWN_SPAN,
    "gpu_user_annotation": skipped.GPU_ANNOTATIONS,
    "cuda_event": skipped.CUDA_EVENTS,
    "cuda_profiler_range": skipped.HARDWARE_COUNTERS,
    "hardware_counters": skipped.HARDWARE_COUNTERS,
}
_MARKER: Final = "marker"
_RECORDED_OPS: Final = ("aten::", "autograd::", "c10d::")
_INTERNAL: Final = "internal"
_MODULE_PREFIX: Final = "nn.Module: "
_DURATION_MAX_NS: Final = 10**15  # 11 days: longer ones are overflows of the recorder
_NO_ID: Final = (1 << 32) - 1
_TIME_MAX_NS: Final = 4 * 10**18  # the year 2096; start + duration still fits int64
_DEVICE_TYPES: Final = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 20: "privateuse1"}


class TableBuilder:
    """Appends columns of events to the raw tables of one process.

    Attributes:
        spool: the raw tables.
        problems, skipped, annotated: as in `Recording`.
        event_count: how many events there were.
        span: the first start and the last end of what the program did.
        process, cpu: what our annotation says of the process, and of its CPU.
    """

    def __init__(self, spool: Spool, problems: Counter[str]) -> None:
        self.spool = spool
        self.problems = problems
        self.skipped: Counter[str] = Counter()
        self.annotated: Counter[str] = Counter()
        self.event_count = 0
        self.span = [_TIME_MAX_NS, -_TIME_MAX_NS]
        self.process: Marker | None = None
        self.cpu: Marker | None = None
        self._numbers = Numbers(problems)
        self._names = TextCodes()
        self._op_names: dict[str, bool] = {}
        self._has_inputs = False
        self._kinds: list[tuple[int, int]] = []
        self._signatures = TextCodes()
        self._same_ids = [0, 0]
        self._threads = TextCodes()
        self._labels: dict[str, Label] = {}
        self._stacks: dict[str, int | None] = {}
        self._ranges = StepRanges(spool)
        self._op_span = OpSpan()
        self._append = {
            "op": self._add_ops, "annotation": self._add_ranges, "python": self._add_ranges,
            "launch": self._add_launches, "kernel": self._add_activities,
            "memcpy": self._add_activities, "memset": self._add_activities,
            "overhead": self._add_stalls, "wait": self._add_stalls, "memory": self._add_memory,
            "flow": self._add_flows, "counter": self._skip_counters,
        }  # fmt: skip

    def add(self, scan: Scan) -> None:
        """Append what was scanned of a piece of the file."""
        self.event_count += scan.count
        for events in scan.groups:
            self._append[events.group](events)
        for (phase, category), count in scan.skipped.items():
            key = _skipped(phase, category)
            self.skipped[key] += count

    def finish(self) -> None:
        """Append what could not be before the end of the recording was known."""
        self.annotated[ANNOTATED_STEPS] += self._ranges.finish(self._op_span, self.span[1])

    @property
    def trusts_external_ids(self) -> bool:
        """Whether the external ids of launches are more than their correlation ids again."""
        same, count = self._same_ids
        return same * 2 <= count

    def signatures(self) -> list[Signature]:
        """Return the signatures of ops, by `signature_id`."""
        return [
            key if isinstance(key, Signature) else signature_of(RecordedCall(*key))
            for key in self._signatures
        ]

    def _times(
        self, events: EventColumns, *, may_be_zero: bool = True, in_span: bool = True
    ) -> tuple[EventColumns, dict[str, Any]]:
        """Return the events whose times make sense, and their columns start_ns and dur_ns."""
        start, dur = events.start_ns, events.dur_ns
        negative = events.timed & (dur < 0)
        if negative.any():
            self.problems[NEGATIVE_DURATION] += int(negative.sum())
            dur = np.maximum(dur, 0)
        good = events.timed & _is_sensible(start) & (dur <= _DURATION_MAX_NS)
        if not may_be_zero:
            good &= (start != 0) | (dur != 0)
        if not good.all():
            self.problems[EVENT_TIME] += int((~good).sum())
            events, start, dur = events.where(good), start[good], dur[good]
        if len(start) and in_span:
            self.span[0] = min(self.span[0], int(start.min()))
            self.span[1] = max(self.span[1], int((start + dur).max()))
        return events, {"start_ns": start, "dur_ns": dur}

    def _thread(self, events: EventColumns) -> dict[str, Any]:
        return {"pid": self._thread_ids(events.pid), "tid": self._thread_ids(events.tid)}

    def _thread_ids(self, values: Sequence[int | str | None]) -> Any:
        try:
            return pa.array(values, pa.int64())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            # Texts among them: once per distinct one.
            ids = {value: self._thread_id(value) for value in dict.fromkeys(values)}
            return pa.array([ids[value] for value in values], pa.int64())

    def _thread_id(self, value: int | str | None) -> int | None:
        """Return a number for a thread that is named by text: its digits, or one of its own."""
        number = to_int(value)
        if number is not None or value is None:
            return number
        digits = re.search(r"\d+", str(value))
        number = to_int(digits[0].lstrip("0") or "0") if digits else None
        return -(1 << 40) - self._threads[value] if number is None else number

    def _add_ops(self, events: EventColumns) -> None:
        """Append ops, and what else stands among them: our markers, old annotations."""
        match = _NO_OP_NAME.match
        if any(map(match, events.name)):
            is_other = _flags(map(match, events.name))
            others, events = events.where(is_other), events.where(~is_other)
            is_marker = _flags(_MARKER_NAME.match(name) for name in others.name)
            self._append_ranges("annotation", others.where(~is_marker))
            self._add_markers(others.where(is_marker))
        self._add_calls(events)

    def _add_calls(self, events: EventColumns) -> None:
        """Append ops, and what PyTorch recorded like ops, such as what its compiler does."""
        events, times = self._times(events)
        args = events.args
        self._has_inputs = self._has_inputs or any(args["dims"])
        keys = zip(events.name, args["sequence_nr"], args["backend"], args["dims"], strict=True)
        is_op = np.array([self._is_op(*key) for key in keys], bool)
        if not is_op.all():
            others = {name: values[~is_op] for name, values in times.items()}
            self._append_timed(_INTERNAL, events.where(~is_op), others)
            events = events.where(is_op)
            times = {name: values[is_op] for name, values in times.items()}
        self._append_ops(events, times)

    def _is_op(self, name: str, sequence_nr: object, backend: object, dims: bytes) -> bool:
        """Whether an event is an op: by its name, else by its number or its inputs."""
        named = self._op_names.get(name)
        if named is None:
            named = self._op_names[name] = is_named_like_op(name)
        if named or sequence_nr is not None or backend is not None:
            return True
        if dims:
            return not is_dispatch(name)
        return not self._has_inputs and " " not in name

    def _append_ops(self, events: EventColumns, columns: dict[str, Any]) -> None:
        if len(events):
            start = columns["start_ns"]
            self._op_span.add(int(start.min()), int(start.max()))
        codes, args = self.spool.texts["ops"]["op"], events.args
        columns |= self._thread(events) | {
            "op": [codes[name] for name in events.name],
            "signature_id": self._signature_ids(events),
            "sequence_nr": self._numbers.ints(args["sequence_nr"]),
            "forward_thread": self._numbers.ints(args["forward_thread"]),
            "recorded_id": self._numbers.ints(args["external_id"]),
            "comm_seq": self._numbers.ints(args["comm_seq"]),
            "stack": [self._stack(stack) for stack in args["stack"]],
            "layer": [self._layer(path) for path in args["modules"]],
        }
        self.spool.append("ops", columns, len(events))

    def _signature_ids(self, events: EventColumns) -> list[int | None]:
        codes, args = self._signatures, events.args
        inputs = (args[name] for name in ("dims", "types", "strides", "values"))
        keys = zip(events.name, *inputs, args["collective"], strict=True)
        return [codes[key] if key[1] or key[5] else None for key in keys]

    def _stack(self, stack: object) -> int | None:
        """Return the code of an old `Call stack`, without the frames of torch."""
        if not stack or not isinstance(stack, str):
            return None
        if stack not in self._stacks:
            frames = cut_stack(stack, self.problems).split(";")
            found = (frame_line(frame.strip()) for frame in frames)
            text = "\n".join(line for line in found if line)
            self._stacks[stack] = self.spool.texts["ops"]["stack"][text] if text else None
        return self._stacks[stack]

    def _layer(self, modules: str | None) -> int | None:
        """Return the code of a `Module Hierarchy`."""
        path = cut_path(modules, self.problems) if modules else None
        return self.spool.texts["ops"]["layer"][path] if path else None

    def _add_ranges(self, events: EventColumns) -> None:
        self._append_ranges(events.group, events)

    def _append_ranges(self, kind: str, events: EventColumns) -> None:
        self._append_timed(kind, *self._times(events))

    def _append_timed(self, kind: str, events: EventColumns, columns: dict[str, Any]) -> None:
        names = self._names
        codes = [names[kind, name] for name in events.name]
        if len(names) > len(self._kinds):
            self._classify_names()
        kinds = np.array(self._kinds, np.int32)[codes] if codes else np.empty((0, 2), np.int32)
        columns |= self._thread(events) | {"name": kinds[:, 0], "kind": kinds[:, 1]}
        self._ranges.append(columns, len(events))

    def _classify_names(self) -> None:
        """Give each new name of a range its text and its kind."""
        texts = self.spool.texts["ranges"]
        for group, name in list(self._names)[len(self._kinds) :]:
            kind, text = _range_kind(group, name)
            self._kinds.append((texts["name"][text], texts["kind"][kind]))

    def _add_markers(self, events: EventColumns) -> None:
        """Append what our annotation wrote among the ops."""
        labels = [self._label(name) for name in events.name]
        for label in labels:
            if label.problem is not None:
                self.problems[label.problem] += 1
        whats = np.array([label.what for label in labels], object)
        self._append_ranges(_MARKER, events.where(whats == "range"))
        self._add_wrapped(events.where(whats == "op"))
        for label in labels:
            if label.what == "process":
                self.process = label.marker
            elif label.what == "cpu":
                self.cpu = label.marker
        self._add_step_marks(events.where(whats == "step"))

    def _label(self, name: str) -> Label:
        label = self._labels.get(name)
        if label is None:
            label = self._labels[name] = label_marker(name)
        return label

    def _add_step_marks(self, events: EventColumns) -> None:
        marks, columns = self._times(events)
        pids, tids = (ids.to_pylist() for ids in self._thread(marks).values())
        starts = columns["start_ns"].tolist()
        for name, start, pid, tid in zip(marks.name, starts, pids, tids, strict=True):
            marker = self._label(name).marker
            if marker is not None:
                self._ranges.mark(StepMark(start, pid, tid, marker.step, marker.event))

    def _add_wrapped(self, events: EventColumns) -> None:
        """Append calls of functions that the user wrapped; their markers say all of them.

        Ops of PyTorch's the profiler records itself: what claims to be another one is not used.
        """
        own = _flags(not self._label(n).name.startswith(_RECORDED_OPS) for n in events.name)
        if not own.all():
            self.problems[MARKER_OF_OP] += int((~own).sum())
        events, columns = self._times(events.where(own))
        labels = [self._label(name) for name in events.name]
        texts = self.spool.texts["ops"]
        columns |= self._thread(events) | {
            "op": [texts["op"][label.name] for label in labels],
            "stack": [None if x.stack is None else texts["stack"][x.stack] for x in labels],
            "signature_id": [
                None if label.signature is None else self._signatures[label.signature]
                for label in labels
            ],
            "recorded_id": self._numbers.ints(events.args["external_id"]),
        }
        self.annotated[ANNOTATED_INPUTS] += sum(label.signature is not None for label in labels)
        self.spool.append("ops", columns, len(events))

    def _add_launches(self, events: EventColumns) -> None:
        events, columns = self._times(events)
        codes = self.spool.texts["launches"]["name"]
        columns |= self._thread(events) | {
            "name": [codes[name] for name in events.name],
            "correlation_id": self._numbers.ints(events.args["correlation"]),
            "recorded_id": self._numbers.ints(events.args["external_id"]),
        }
        self.spool.append("launches", columns, len(events))

    def _add_stalls(self, events: EventColumns) -> None:
        """Append overheads and waits. They are no work: the span does not hold them."""
        events, columns = self._times(events, may_be_zero=False, in_span=False)
        is_overhead = events.group == "overhead"
        texts, kind_of = self.spool.texts["stalls"], overhead_kind if is_overhead else wait_kind
        columns |= {
            "name": [texts["name"][name] for name in events.name],
            "kind": [texts["kind"][kind_of(name)] for name in events.name],
            "device": self._ids(events.args["device"]),
            "stream": self._ids(events.args["stream"]),
            "correlation_id": self._ids(events.args["correlation"], least=1),
            "waits_for_correlation_id": self._ids(events.args["recorded_by"], least=1),
        }
        if is_overhead:  # a wait stands on the device and its stream
            thread = self._thread(events)
            columns |= {"pid": _known(thread["pid"]), "tid": _known(thread["tid"], least=1)}
        self.spool.append("stalls", columns, len(events))

    def _ids(self, values: Sequence[Any], least: int = 0) -> pa.Array:
        return _known(self._numbers.ints(values), least)

    def _add_activities(self, events: EventColumns) -> None:
        # The driver hands over records that it never filled in: they have no time at all.
        events, columns = self._times(events, may_be_zero=False)
        texts, args, ints = self.spool.texts["activities"], events.args, self._numbers.ints
        correlation, external = ints(args["correlation"]), ints(args["external_id"])
        self._same_ids[0] += pc.sum(pc.equal(correlation, external)).as_py() or 0
        self._same_ids[1] += len(events)
        grids, blocks, kernels = texts["grid"], texts["block"], texts["kernel"]
        columns |= {
            "correlation_id": correlation,
            "recorded_id": external,
            "device": ints(filled(args["device"], events.pid)),
            "stream": self._thread_ids(filled(args["stream"], events.tid)),
            "kernel": [kernels[name] for name in events.name],
            "kind": [texts["kind"][events.group]] * len(events),
            "bytes": ints(args["bytes"]),
            "grid": [dim3_code(grids, text) for text in args["grid"]],
            "block": [dim3_code(blocks, text) for text in args["block"]],
            "registers": ints(args["registers"]),
            "shared_bytes": ints(args["shared_bytes"]),
            "blocks_per_sm": self._numbers.floats(args["blocks_per_sm"]),
            "occupancy_pct": self._numbers.floats(args["occupancy"]),
            "graph_node_id": ints([node or None for node in args["graph_node"]]),
        }
        if events.group == "memcpy":
            columns["copy_kind"] = [copy_kind_code(texts["copy_kind"], n) for n in events.name]
        self.spool.append("activities", columns, len(events))

    def _add_memory(self, events: EventColumns) -> None:
        good = events.timed & _is_sensible(events.start_ns)
        if not good.all():
            self.problems[EVENT_TIME] += int((~good).sum())
            events = events.where(good)
        args, ints = events.args, self._numbers.ints
        codes = self.spool.texts["memory"]["device_type"]
        types, devices = (list(map(to_int, args[name])) for name in ("device_type", "device"))
        columns = self._thread(events) | {
            "time_ns": events.start_ns,
            "device_type": [codes[_DEVICE_TYPES[t]] if t in _DEVICE_TYPES else None for t in types],
            "device": [d if d is None or d >= 0 else None for d in devices],
            "address": [to_address(address) for address in args["address"]],
            "bytes": ints(args["bytes"]),
            "allocated_bytes": ints(args["allocated"]),
            "reserved_bytes": ints(args["reserved"]),
        }
        self.spool.append("memory", columns, len(events))

    def _add_flows(self, events: EventColumns) -> None:
        columns = self._thread(events) | {
            "flow_id": self._numbers.ints(events.args["flow_id"]),
            "end": events.args["end"],
            "time_ns": pa.array(events.start_ns, mask=~events.timed),
        }
        self.spool.append("flows", columns, len(events))

    def _skip_counters(self, events: EventColumns) -> None:
        self.skipped[skipped.COUNTERS] += len(events)


def _skipped(phase: str, category: str) -> str:
    """Return what events are that no table has: of a known kind, or of one that may matter."""
    if not phase:
        return skipped.NO_PHASE
    if phase in _SKIPPED_PHASES:
        return _SKIPPED_PHASES[phase]
    detail = f"phase {phase}, category {category or 'none'}"
    unknown = with_detail(skipped.UNKNOWN_EVENT, detail)
    return _SKIPPED_CATEGORIES.get(category.lower(), unknown)


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


def _is_sensible(time: Int) -> Bool:
    return (time >= -_TIME_MAX_NS) & (time <= _TIME_MAX_NS)


def _flags(found: Iterable[object]) -> Bool:
    return np.array([bool(flag) for flag in found], bool)
