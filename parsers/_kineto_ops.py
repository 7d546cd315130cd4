"""The raw table of ops of a Kineto recording, and what else stands among them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from pyprof2.frames import frame_line
from pyprof2.parsers._kineto_inputs import signature_of
from pyprof2.parsers._kineto_ranges import INTERNAL, RangeTables
from pyprof2.parsers._names import NAME_MAX, cut_path, cut_stack, is_dispatch, is_named_like_op
from pyprof2.parsers._steps import OpSpan
from pyprof2.problems import PATH_CUT
from pyprof2.recording import Signature

if TYPE_CHECKING:
    import pyarrow as pa

    from pyprof2.parsers._columns import Bool, Texts
    from pyprof2.parsers._kineto_columns import Call, EventColumns
    from pyprof2.parsers._kineto_values import TableContext

# Before 2022 annotations stood among the ops.
_ANNOTATION_NAME: Final = re.compile(
    r"ProfilerStep#|Optimizer\.(?:step|zero_grad)#|enumerate\(DataLoader\)#"
)
# Our markers stand among them always.
_MARKER_NAME: Final = re.compile(r"\{['\"]pyprof2['\"]:")
_IS_CALL, _IS_ANNOTATION, _IS_MARKER = range(3)


class OpTable:
    """Appends ops.

    Attributes:
        span: when the first and the last began.
    """

    def __init__(self, shared: TableContext, ranges: RangeTables) -> None:
        self.span = OpSpan()
        self._shared = shared
        self._ranges = ranges
        self._has_inputs = False

    def signatures(self) -> list[Signature]:
        """Return the signatures of ops, by `signature_id`."""
        return [
            key if isinstance(key, Signature) else signature_of(key)
            for key in self._shared.signatures
        ]

    def add(self, events: EventColumns) -> None:
        """Append ops, and what else stands among them: our markers, old annotations."""
        kind = self._shared.meaning("", "kind of op", _kind_of_op).codes(events.name)
        if kind.any():
            self._ranges.append("annotation", events.where(kind == _IS_ANNOTATION))
            self._ranges.add_markers(events.where(kind == _IS_MARKER))
            events = events.where(kind == _IS_CALL)
        # Events that PyTorch recorded like ops, such as those of its compiler, are ranges.
        events, times = self._shared.times(events)
        is_op = self._are_ops(events)
        if not is_op.all():
            others = {name: values[~is_op] for name, values in times.items()}
            self._ranges.append_timed(INTERNAL, events.where(~is_op), others)
            events = events.where(is_op)
            times = {name: values[is_op] for name, values in times.items()}
        if len(events):
            self.span.add(int(times["start_ns"].min()), int(times["start_ns"].max()))
        shared, args = self._shared, events.args
        columns = (
            times
            | shared.thread(events)
            | {
                "op": shared.coded("ops", "op", events.name),
                "signature_id": shared.meaning("", "signature", self._signature).column(
                    args["call"]
                ),
                "sequence_nr": shared.numbers.ints(args["sequence_nr"]),
                "forward_thread": shared.numbers.ints(args["forward_thread"]),
                "recorded_id": shared.numbers.ints(args["external_id"]),
                "record_id": shared.numbers.ints(args["record_id"]),
                "comm_seq": shared.numbers.ints(args["comm_seq"]),
                "stack": shared.meaning("ops", "stack", self._stack).column(args["stack"]),
                "layer": self._layers(args["modules"]),
            }
        )
        shared.spool.append("ops", columns, len(events))

    def _are_ops(self, events: EventColumns) -> Bool:
        """Return which events are ops: by their name, else by their number or their inputs."""
        args, names = events.args, events.name
        has_inputs = self._shared.meaning("", "inputs", lambda call: bool(call.dims)).flags(
            args["call"]
        )
        self._has_inputs = self._has_inputs or bool(has_inputs.any())
        named = self._shared.meaning("", "op", is_named_like_op).flags(names)
        is_op: Bool = named | args["sequence_nr"].known | (args["backend"].codes >= 0)
        if is_op.all():
            return is_op
        is_op |= has_inputs & ~self._shared.meaning("", "dispatch", is_dispatch).flags(names)
        if not self._has_inputs:
            is_op |= self._shared.meaning("", "one word", lambda name: " " not in name).flags(names)
        return is_op

    def _signature(self, call: Call) -> int | None:
        return self._shared.signatures[call] if call.dims or call.comm else None

    def _stack(self, stack: str) -> int | None:
        """Return the code of an old `Call stack`, without the frames of torch."""
        if not stack:
            return None
        frames = cut_stack(stack, self._shared.problems).split(";")
        found = (frame_line(frame.strip()) for frame in frames)
        text = "\n".join(line for line in found if line)
        return self._shared.spool.texts["ops"]["stack"][text] if text else None

    def _layers(self, modules: Texts) -> pa.Array:
        """Return the codes of a `Module Hierarchy`; each that is cut is counted."""
        is_long = self._shared.meaning("", "long path", lambda path: len(path) > NAME_MAX)
        if (cut := int(is_long.flags(modules).sum())) > 0:
            self._shared.problems[PATH_CUT] += cut
        return self._shared.meaning("ops", "layer", self._layer).column(modules)

    def _layer(self, modules: str) -> int | None:
        path = cut_path(modules, Counter()) if modules else None
        return self._shared.spool.texts["ops"]["layer"][path] if path else None


def _kind_of_op(name: str) -> int:
    if _MARKER_NAME.match(name):
        return _IS_MARKER
    return _IS_ANNOTATION if _ANNOTATION_NAME.match(name) else _IS_CALL
