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
from pyprof2.parsers._columns import Meaning, flags
from pyprof2.parsers._kineto_inputs import signature_of
from pyprof2.parsers._kineto_values import (
    Numbers,
    addresses,
    copy_kind_code,
    dim3_code,
    to_int,
    whole_numbers,
)
from pyprof2.parsers._labels import label_marker, label_text
from pyprof2.parsers._memory_tags import tag_columns
from pyprof2.parsers._names import NAME_MAX, cut_path, cut_stack
from pyprof2.parsers._op_names import is_dispatch, is_named_like_op
from pyprof2.parsers._stalls import overhead_kind, wait_kind
from pyprof2.parsers._steps import OpSpan, StepMark, StepRanges
from pyprof2.problems import EVENT_TIME, MARKER_OF_OP, NEGATIVE_DURATION, PATH_CUT, with_detail
from pyprof2.recording import (
    ANNOTATED_INPUTS,
    ANNOTATED_STEPS,
    Signature,
    Spool,
    TextCodes,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyprof2.markers import Marker
    from pyprof2.parsers._columns import Bool, Int, Texts, Values
    from pyprof2.parsers._kineto_columns import Call, EventColumns, Scan
    from pyprof2.parsers._labels import Label

# Before 2022 annotations stood among the ops.
_ANNOTATION_NAME: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#"
)
# Our markers stand among them always.
_MARKER_NAME: Final = re.compile(r"\{['\"]pyprof2['\"]:")
_IS_CALL, _IS_ANNOTATION, _IS_MARKER = range(3)
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
        scanned: how many events there were, by the scanner that read them.
        span: the first start and the last end of what the program did.
        process, cpu, entry: what our annotation says of the process, of its CPU, and of the entry
            point that is run.
    """

    def __init__(self, spool: Spool, problems: Counter[str]) -> None:
        self.spool = spool
        self.problems = problems
        self.skipped: Counter[str] = Counter()
        self.annotated: Counter[str] = Counter()
        self.scanned: Counter[str] = Counter()
        self.span = [_TIME_MAX_NS, -_TIME_MAX_NS]
        self.process: Marker | None = None
        self.entry: Marker | None = None
        self.cpu: Marker | None = None
        self._numbers = Numbers(problems)
        self._has_inputs = False
        self._signatures = TextCodes()
        self._meanings: dict[tuple[str, str], Meaning] = {}
        self._same_ids = [0, 0]
        self._threads = TextCodes()
        self._labels: dict[str, Label] = {}
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
        self.scanned[scan.scanner] += scan.count
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
            key if isinstance(key, Signature) else signature_of(key) for key in self._signatures
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

    def _thread_ids(self, values: Values) -> pa.Array:
        column = values.as_ints()
        if column is not None:
            return column
        # Texts among them: once per distinct one.
        known = values.to_list()
        ids = {value: self._thread_id(value) for value in dict.fromkeys(known)}
        return pa.array([ids[value] for value in known], pa.int64())

    def _meaning(self, table: str, column: str, of_text: Callable[[Any], int | None]) -> Meaning:
        """Return what texts mean in a column, which is remembered."""
        found = self._meanings.get((table, column))
        if found is None:
            found = self._meanings[table, column] = Meaning(of_text)
        return found

    def _coded(self, table: str, column: str, texts: Texts) -> pa.Array:
        """Return texts as codes of the dictionary of a column of a raw table."""
        codes = self.spool.texts[table][column]
        return self._meaning(table, column, codes.__getitem__).column(texts)

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
        kind = self._meaning("", "kind of op", _kind_of_op).codes(events.name)
        if kind.any():
            self._append_ranges("annotation", events.where(kind == _IS_ANNOTATION))
            self._add_markers(events.where(kind == _IS_MARKER))
            events = events.where(kind == _IS_CALL)
        self._add_calls(events)

    def _add_calls(self, events: EventColumns) -> None:
        """Append ops, and what PyTorch recorded like ops, such as what its compiler does."""
        events, times = self._times(events)
        is_op = self._are_ops(events)
        if not is_op.all():
            others = {name: values[~is_op] for name, values in times.items()}
            self._append_timed(_INTERNAL, events.where(~is_op), others)
            events = events.where(is_op)
            times = {name: values[is_op] for name, values in times.items()}
        self._append_ops(events, times)

    def _are_ops(self, events: EventColumns) -> Bool:
        """Return which events are ops: by their name, else by their number or their inputs."""
        args, names = events.args, events.name
        has_inputs = self._meaning("", "inputs", lambda call: bool(call.dims)).flags(args["call"])
        self._has_inputs = self._has_inputs or bool(has_inputs.any())
        named = self._meaning("", "op", is_named_like_op).flags(names)
        is_op: Bool = named | args["sequence_nr"].known | (args["backend"].codes >= 0)
        if is_op.all():
            return is_op
        is_op |= has_inputs & ~self._meaning("", "dispatch", is_dispatch).flags(names)
        if not self._has_inputs:
            is_op |= self._meaning("", "one word", lambda name: " " not in name).flags(names)
        return is_op

    def _append_ops(self, events: EventColumns, columns: dict[str, Any]) -> None:
        if len(events):
            start = columns["start_ns"]
            self._op_span.add(int(start.min()), int(start.max()))
        args = events.args
        columns |= self._thread(events) | {
            "op": self._coded("ops", "op", events.name),
            "signature_id": self._meaning("", "signature", self._signature).column(args["call"]),
            "sequence_nr": self._numbers.ints(args["sequence_nr"]),
            "forward_thread": self._numbers.ints(args["forward_thread"]),
            "recorded_id": self._numbers.ints(args["external_id"]),
            "comm_seq": self._numbers.ints(args["comm_seq"]),
            "stack": self._meaning("ops", "stack", self._stack).column(args["stack"]),
            "layer": self._layers(args["modules"]),
        }
        self.spool.append("ops", columns, len(events))

    def _signature(self, call: Call) -> int | None:
        return self._signatures[call] if call.dims or call.comm else None

    def _stack(self, stack: str) -> int | None:
        """Return the code of an old `Call stack`, without the frames of torch."""
        if not stack:
            return None
        frames = cut_stack(stack, self.problems).split(";")
        found = (frame_line(frame.strip()) for frame in frames)
        text = "\n".join(line for line in found if line)
        return self.spool.texts["ops"]["stack"][text] if text else None

    def _layers(self, modules: Texts) -> pa.Array:
        """Return the codes of a `Module Hierarchy`; each that is cut is counted."""
        is_long = self._meaning("", "long path", lambda path: len(path) > NAME_MAX)
        if (cut := int(is_long.flags(modules).sum())) > 0:
            self.problems[PATH_CUT] += cut
        return self._meaning("ops", "layer", self._layer).column(modules)

    def _layer(self, modules: str) -> int | None:
        path = cut_path(modules, Counter()) if modules else None
        return self.spool.texts["ops"]["layer"][path] if path else None

    def _add_ranges(self, events: EventColumns) -> None:
        self._append_ranges(events.group, events)

    def _append_ranges(self, kind: str, events: EventColumns) -> None:
        self._append_timed(kind, *self._times(events))

    def _append_timed(self, kind: str, events: EventColumns, columns: dict[str, Any]) -> None:
        for column, part in (("kind", 0), ("name", 1)):
            codes = self.spool.texts["ranges"][column]
            meaning = self._meaning(kind, column, _code_of_range(kind, part, codes))
            columns[column] = meaning.codes(events.name)
        self._ranges.append(columns | self._thread(events), len(events))

    def _add_markers(self, events: EventColumns) -> None:
        """Append what our annotation wrote among the ops."""
        labels = [self._label(name) for name in events.name.to_list()]
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
            elif label.what == "entry":
                self.entry = label.marker
        self._add_memory_tags(events.where(whats == "memory"))
        self._add_step_marks(events.where(whats == "step"))

    def _label(self, name: str) -> Label:
        label = self._labels.get(name)
        if label is None:
            label = label_marker(name)
            if label.what != "memory":  # each of them is long, and there is one of each
                self._labels[name] = label
        return label

    def _add_memory_tags(self, events: EventColumns) -> None:
        """Append what the program says of its memory: a row per moment, and one per block."""
        events, columns = self._times(events)
        for name, start in zip(events.name.to_list(), columns["start_ns"].tolist(), strict=True):
            marker = label_marker(name).marker
            if marker is not None:
                tags = tag_columns(marker, start, self.spool.texts["memory_tags"])
                self.spool.append("memory_tags", tags, len(tags["time_ns"]))

    def _add_step_marks(self, events: EventColumns) -> None:
        marks, columns = self._times(events)
        pids, tids = (ids.to_pylist() for ids in self._thread(marks).values())
        starts = columns["start_ns"].tolist()
        for name, start, pid, tid in zip(marks.name.to_list(), starts, pids, tids, strict=True):
            marker = self._label(name).marker
            if marker is not None:
                self._ranges.mark(StepMark(start, pid, tid, marker.step, marker.event))

    def _add_wrapped(self, events: EventColumns) -> None:
        """Append calls of functions that the user wrapped; their markers say all of them.

        Ops of PyTorch's the profiler records itself: what claims to be another one is not used.
        """
        names = events.name.to_list()
        own = flags(not self._label(name).name.startswith(_RECORDED_OPS) for name in names)
        if not own.all():
            self.problems[MARKER_OF_OP] += int((~own).sum())
        events, columns = self._times(events.where(own))
        labels = [self._label(name) for name in events.name.to_list()]
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
        columns |= self._thread(events) | {
            "name": self._coded("launches", "name", events.name),
            "correlation_id": self._numbers.ints(events.args["correlation"]),
            "recorded_id": self._numbers.ints(events.args["external_id"]),
        }
        self.spool.append("launches", columns, len(events))

    def _add_stalls(self, events: EventColumns) -> None:
        """Append overheads and waits. They are no work: the span does not hold them."""
        events, columns = self._times(events, may_be_zero=False, in_span=False)
        is_overhead = events.group == "overhead"
        kinds, kind_of = (
            self.spool.texts["stalls"]["kind"],
            overhead_kind if is_overhead else wait_kind,
        )
        kind = self._meaning("stalls", events.group, lambda name: kinds[kind_of(name)])
        columns |= {
            "name": self._coded("stalls", "name", events.name),
            "kind": kind.column(events.name),
            "device": self._ids(events.args["device"]),
            "stream": self._ids(events.args["stream"]),
            "correlation_id": self._ids(events.args["correlation"], least=1),
            "waits_for_correlation_id": self._ids(events.args["recorded_by"], least=1),
        }
        if is_overhead:  # a wait stands on the device and its stream
            thread = self._thread(events)
            columns |= {"pid": _known(thread["pid"]), "tid": _known(thread["tid"], least=1)}
        self.spool.append("stalls", columns, len(events))

    def _ids(self, values: Values, least: int = 0) -> pa.Array:
        return _known(self._numbers.ints(values), least)

    def _add_activities(self, events: EventColumns) -> None:
        # The driver hands over records that it never filled in: they have no time at all.
        events, columns = self._times(events, may_be_zero=False)
        texts, args, ints = self.spool.texts["activities"], events.args, self._numbers.ints
        correlation, external = ints(args["correlation"]), ints(args["external_id"])
        self._same_ids[0] += pc.sum(pc.equal(correlation, external)).as_py() or 0
        self._same_ids[1] += len(events)
        columns |= {
            "correlation_id": correlation,
            "recorded_id": external,
            "device": ints(args["device"].filled(events.pid)),
            "stream": self._thread_ids(args["stream"].filled(events.tid)),
            "kernel": self._coded("activities", "kernel", events.name),
            "kind": np.full(len(events), texts["kind"][events.group], np.int32),
            "bytes": ints(args["bytes"]),
            "grid": self._dim3("grid", args["grid"]),
            "block": self._dim3("block", args["block"]),
            "registers": ints(args["registers"]),
            "shared_bytes": ints(args["shared_bytes"]),
            "blocks_per_sm": self._numbers.floats(args["blocks_per_sm"]),
            "occupancy_pct": self._numbers.floats(args["occupancy"]),
            "graph_node_id": ints(args["graph_node"].without_zeros()),
        }
        if events.group == "memcpy":
            kinds = self._meaning(
                "activities", "copy_kind", lambda name: copy_kind_code(texts["copy_kind"], name)
            )
            columns["copy_kind"] = kinds.column(events.name)
        self.spool.append("activities", columns, len(events))

    def _dim3(self, column: str, texts: Texts) -> pa.Array:
        codes = self.spool.texts["activities"][column]
        return self._meaning("activities", column, lambda raw: dim3_code(codes, raw)).column(texts)

    def _add_memory(self, events: EventColumns) -> None:
        good = events.timed & _is_sensible(events.start_ns)
        if not good.all():
            self.problems[EVENT_TIME] += int((~good).sum())
            events = events.where(good)
        args, ints = events.args, self._numbers.ints
        device = whole_numbers(args["device"])
        columns = self._thread(events) | {
            "time_ns": events.start_ns,
            "device_type": self._device_types(whole_numbers(args["device_type"])),
            "device": pc.if_else(pc.greater_equal(device, 0), device, None),
            "address": addresses(args["address"]),
            "bytes": ints(args["bytes"]),
            "allocated_bytes": ints(args["allocated"]),
            "reserved_bytes": ints(args["reserved"]),
        }
        self.spool.append("memory", columns, len(events))

    def _device_types(self, numbers: pa.Array) -> pa.Array:
        """Return PyTorch's numbers of kinds of devices as codes; null for one of no known kind."""
        codes = self.spool.texts["memory"]["device_type"]
        kinds = {n: _DEVICE_TYPES.get(n) for n in pc.unique(numbers).to_pylist()}
        column = pa.nulls(len(numbers), pa.int32())
        for number, kind in kinds.items():
            if kind is not None:
                column = pc.if_else(pc.equal(numbers, number).fill_null(False), codes[kind], column)  # noqa: FBT003
        return column

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


def _kind_of_op(name: str) -> int:
    if _MARKER_NAME.match(name):
        return _IS_MARKER
    return _IS_ANNOTATION if _ANNOTATION_NAME.match(name) else _IS_CALL


def _code_of_range(group: str, part: int, codes: TextCodes) -> Callable[[str], int]:
    """Return what gives the code of the kind (part 0) or the text (1) of a range."""
    return lambda name: codes[_range_kind(group, name)[part]]


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
