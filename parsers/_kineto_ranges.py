"""The raw table of ranges of a Kineto recording, and what our own markers say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.parsers._chosen_steps import StepSpan
from pyprof2.parsers._columns import flags
from pyprof2.parsers._kineto_columns import Call
from pyprof2.parsers._labels import (
    label_marker,
    label_text,
    may_be_step,
    name_layers,
    tag_columns,
    weight_columns,
)
from pyprof2.parsers._steps import OpSpan, StepMark, StepRanges
from pyprof2.problems import MARKER_OF_OP
from pyprof2.recording import ANNOTATED_INPUTS, ANNOTATED_STEPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyprof2.markers import Marker
    from pyprof2.parsers._kineto_columns import EventColumns
    from pyprof2.parsers._kineto_values import TableContext
    from pyprof2.parsers._labels import Label, LayerPath

INTERNAL: Final = "internal"
"""The kind of ranges of what PyTorch recorded like ops, such as what its compiler does."""
_MARKER: Final = "marker"
_RECORDED_OPS: Final = ("aten::", "autograd::", "c10d::")
_MODULE_PREFIX: Final = "nn.Module: "
_NUMBER: Final = re.compile(rb"\d")


class RangeTables:
    """Appends ranges, and what markers stand for.

    Attributes:
        process, cpu, entry: what our annotation says of the process, of its CPU, and of the entry
            point that is run.
        name_layer: names a layer of it.
        steps: its steps, once `finish` has found them.
    """

    def __init__(self, shared: TableContext) -> None:
        self.process: Marker | None = None
        self.entry: Marker | None = None
        self.cpu: Marker | None = None
        self.name_layer: Callable[[LayerPath], str] = lambda layer: layer.path
        self._shared = shared
        self._labels: dict[str, Label] = {}
        self.steps = StepRanges(shared.spool)

    def finish(self, ops: OpSpan, layers: Iterable[LayerPath]) -> dict[LayerPath, str]:
        """Append what could not be before the end of the recording was known.

        Args:
            ops: when the first and the last op began.
            layers: that are known from elsewhere.

        Returns:
            the path of each layer.
        """
        end = self._shared.span[1]
        self._shared.annotated[ANNOTATED_STEPS] += self.steps.finish(ops, end)
        self.name_layer = name_layers(self._shared.spool, others=layers)
        return {layer: self.name_layer(layer) for layer in layers}

    def add(self, events: EventColumns) -> None:
        """Append ranges whose group is their kind."""
        self.append(events.group, events)

    def add_of_devices(self, events: EventColumns) -> None:
        """Append the user's ranges as devices saw them: of each a range for every stream.

        Process and thread are device and stream; those of one range have one text as `domain`.
        """
        events, columns = self._shared.times(events, in_span=False)
        numbers = self._shared.numbers.ints(events.args["external_id"]).to_pylist()
        texts = self._shared.spool.texts["ranges"]["domain"]
        columns["domain"] = pa.array(
            [None if number is None else texts[f"range {number}"] for number in numbers], pa.int32()
        )
        self.append_timed(events.group, events, columns)
        may_be = self._shared.meaning("", "step", may_be_step).flags(events.name)
        own = zip(
            events.name[may_be].to_list(),
            columns["start_ns"][may_be].tolist(),
            columns["dur_ns"][may_be].tolist(),
            np.array(numbers, object)[may_be].tolist(),
            strict=True,
        )
        for name, start, dur, number in own:
            is_scheduled = label_text(name).kind == "step"
            span = StepSpan(start, start + dur, None, None, name, is_scheduled)
            self.steps.see(span, number)

    def append(self, kind: str, events: EventColumns) -> None:
        """Append ranges of a kind whose times make sense."""
        self.append_timed(kind, *self._shared.times(events))

    def append_timed(self, kind: str, events: EventColumns, columns: dict[str, Any]) -> None:
        """Append ranges of a kind whose times are known already."""
        texts, meaning = self._shared.spool.texts["ranges"], self._shared.meaning
        kind_code = meaning(kind, "kind", lambda name: texts["kind"][_range_kind(kind, name)[0]])
        name_code = meaning(kind, "name", lambda name: texts["name"][_range_kind(kind, name)[1]])
        columns["kind"] = kind_code.codes(events.name)
        columns["name"] = name_code.codes(events.name)
        if "frame" in events.args:
            ints = self._shared.numbers.ints
            columns["frame_id"] = ints(events.args["frame"])
            columns["frame_caller"] = ints(events.args["caller"])
        if "dims" in events.args:
            columns["signature_id"] = self._signature_ids(events)
        self.steps.append(columns | self._shared.thread(events), len(events))

    def _signature_ids(self, events: EventColumns) -> pa.Array:
        """Return the signatures of ranges that were called with tensors; null for all others."""
        dims = events.args["dims"]
        has_sizes = [text is not None and _NUMBER.search(text) for text in dims.to_list()]
        called, found = flags(has_sizes), np.full(len(events), -1, np.int64)
        if called.any():
            own = events.where(called)
            texts = (column.to_list() for column in (own.name, own.args["dims"], own.args["types"]))
            found[called] = [
                self._shared.signatures[Call(name, sizes, types or b"", b"", b"", None)]
                for name, sizes, types in zip(*texts, strict=True)
            ]
        return pa.array(found, mask=found < 0)

    def add_markers(self, events: EventColumns) -> None:
        """Append what our annotation wrote among the ops."""
        labels = [self._label(name) for name in events.name.to_list()]
        for label in labels:
            if label.problem is not None:
                self._shared.problems[label.problem] += 1
        whats = np.array([label.what for label in labels], object)
        self.append(_MARKER, events.where(whats == "range"))
        self._add_wrapped(events.where(whats == "op"))
        for label in labels:
            if label.what in ("process", "cpu", "entry"):
                setattr(self, label.what, label.marker)
        self._add_memory_tags(events.where(whats == "memory"))
        marks, columns = self._shared.times(events.where(whats == "step"))
        pids, tids = (ids.to_pylist() for ids in self._shared.thread(marks).values())
        starts = columns["start_ns"].tolist()
        for name, start, pid, tid in zip(marks.name.to_list(), starts, pids, tids, strict=True):
            marker = self._label(name).marker
            if marker is not None:
                self.steps.mark(StepMark(start, pid, tid, marker.step, marker.event))

    def _label(self, name: str) -> Label:
        label = self._labels.get(name)
        if label is None:
            label = label_marker(name)
            if label.what not in ("memory", "step"):  # there is one of each, and many of them
                self._labels[name] = label
        return label

    def _add_memory_tags(self, events: EventColumns) -> None:
        """Append what the program says of its memory: a row per moment, block, and weight."""
        events, columns = self._shared.times(events)
        spool = self._shared.spool
        for name, start in zip(events.name.to_list(), columns["start_ns"].tolist(), strict=True):
            marker = label_marker(name).marker
            if marker is None:
                continue
            for table, rows_of in (("memory_tags", tag_columns), ("weights", weight_columns)):
                rows = rows_of(marker, start, spool.texts[table])
                spool.append(table, rows, len(rows["time_ns"]))

    def _add_wrapped(self, events: EventColumns) -> None:
        """Append calls of functions that the user wrapped; their markers say all of them.

        Ops of PyTorch's the profiler records itself: a marker that names another one is not used.
        """
        names = events.name.to_list()
        own = flags(not self._label(name).name.startswith(_RECORDED_OPS) for name in names)
        if not own.all():
            self._shared.problems[MARKER_OF_OP] += int((~own).sum())
        events, columns = self._shared.times(events.where(own))
        labels = [self._label(name) for name in events.name.to_list()]
        texts = self._shared.spool.texts["ops"]
        columns |= self._shared.thread(events) | {
            "op": [texts["op"][label.name] for label in labels],
            "stack": [None if x.stack is None else texts["stack"][x.stack] for x in labels],
            "signature_id": [
                None if label.signature is None else self._shared.signatures[label.signature]
                for label in labels
            ],
            "recorded_id": self._shared.numbers.ints(events.args["external_id"]),
        }
        self._shared.annotated[ANNOTATED_INPUTS] += sum(
            label.signature is not None for label in labels
        )
        self._shared.spool.append("ops", columns, len(events))


def _range_kind(group: str, name: str) -> tuple[str, str | LayerPath]:
    """Return the kind of a range, and its text without what only says the kind."""
    if group == "python":
        is_module = name.startswith(_MODULE_PREFIX)
        return ("module", name.removeprefix(_MODULE_PREFIX)) if is_module else (group, name)
    if group in (INTERNAL, "device annotation"):
        return group, name
    label = label_marker(name) if group == _MARKER else label_text(name)
    return label.kind or "annotation", label.text
