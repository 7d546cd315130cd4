"""One annotation, from `init` to `shutdown`: whether it writes at the moment, and what."""

from __future__ import annotations

import re
import sys
import weakref
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from pyprof2.markers import NO_SEQUENCE, Marker, format_marker
from pyprof2.nvtx.internals import (
    Need,
    RecordFunction,
    dispatch_modes,
    insert_mode,
    lacks,
    next_sequence_nr,
    remove_mode,
    without_torch_function,
)
from pyprof2.nvtx.knowledge import Knowledge
from pyprof2.nvtx.ops import OpMode
from pyprof2.nvtx.threads import UNKNOWN_NR, ThreadState

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

    from pyprof2.markers import StepEvent
    from pyprof2.nvtx.catalog import OpScope
    from pyprof2.nvtx.options import Options
    from pyprof2.nvtx.schema import UserFunction
    from pyprof2.nvtx.sinks import Sink

_ENTER: Final = "profiler::_record_function_enter"
_OPTIMIZER: Final = re.compile(r"Optimizer\.(?P<what>step|zero_grad)#(?P<name>[^.]*)")
OWN_RECORDS: Final = ("enumerate(DataLoader)#", "ProfilerStep#")
"""Begin texts of ranges that are marked in another way."""


class Recorder(Protocol):
    """Records this process, or has it recorded: what the annotation asks of it."""

    def record(self) -> None:
        """Begin, unless it records already."""

    def finish(self) -> None:
        """End, and keep what was recorded."""

    def discard(self) -> None:
        """Forget what was recorded, and wait for the start of recording."""

    def step(self) -> None:
        """Learn that a step begins."""


class AnnotationSession(Knowledge):
    """The state of the annotation: what it writes at the moment, and what it knows.

    Attributes:
        observer: the compiled one; None: it was not needed yet, or there is none.
        kineto: whether torch.profiler runs and gets the markers. It records the ops itself.
        marks_lines: whether it gets the lines of user code too: it does not record stacks.
        recording: whether the step is one of those to record.
        recorder: who records, if `pyprof2 capture` does.
    """

    def __init__(
        self, options: Options, sink: Sink | None, recorder: Recorder | None = None
    ) -> None:
        super().__init__(options, sink)
        self.recorder = recorder
        self.observer: Any = None
        self.kineto = False
        self.marks_lines = False
        self.recording = options.steps is None
        self._optimizers: dict[str, OpScope] = {}
        self._modes: weakref.WeakSet[OpMode] = weakref.WeakSet()

    @property
    def writes_ops(self) -> bool:
        """Whether ops get ranges at the moment."""
        return self.sink is not None and self.recording and not self.kineto

    @property
    def marks_calls(self) -> bool:
        """Whether the lines that call modules are marked: ops say their own ones only."""
        return self.marks_lines or (self.options.source and self.writes_ops)

    @property
    def writes(self) -> bool:
        """Whether anything is written at the moment."""
        return self.recording and (self.kineto or self.sink is not None)

    # -- whether ops are marked ----------------------------------------------------------------

    def enter_thread(self) -> None:
        """Mark the ops of the calling thread from now on, whenever ops are marked."""
        self.local.annotated = True
        self._adjust_thread()

    def leave_thread(self) -> None:
        """Leave the calling thread as it was."""
        self.local.annotated = False
        self._adjust_thread()

    def close(self) -> None:
        """Stop marking ops, on all threads."""
        self.leave_thread()
        for mode in list(self._modes):
            mode.active = False

    def write(self, *, recording: bool | None = None, kineto: bool | None = None) -> None:
        """Change what is written from now on."""
        if recording is not None:
            self.recording = recording
            if self.recorder is not None:
                self.recorder.record() if recording else self.recorder.finish()
        self.kineto = self.kineto if kineto is None else kineto
        for mode in list(self._modes):
            if self.writes_ops and not mode.active:
                mode.home.next_nr = UNKNOWN_NR
            mode.active = self.writes_ops
        self._adjust_thread()

    def _adjust_thread(self) -> None:
        """Put the mode on the calling thread, or take it off.

        On other threads it stays where it is and lets everything through: a thread's modes are its
        own.
        """
        is_annotated = self.writes_ops and getattr(self.local, "annotated", False)
        wanted = is_annotated and not lacks(Need.OPS)
        mode: OpMode | None = getattr(self.local, "mode", None)
        if wanted and mode is None and self.sink is not None:
            state = self.state()
            state.next_nr = next_sequence_nr()
            mode = self.local.mode = OpMode(self, self.sink, state, self.note_record)
            self._modes.add(mode)
            insert_mode(mode)
        elif not wanted and mode is not None:
            mode.active = False
            self.local.mode = None
            remove_mode(mode)

    # -- ranges other than those of ops --------------------------------------------------------

    def enter(self, token: int, scope: OpScope, source: str | None = None, frame: int = 0) -> None:
        """Go into a scope on the calling thread, and open its range.

        Another range says the line of user code that goes into it, if given.
        """
        state = self.state()
        end = None
        if self.kineto and self.recording:
            if scope.text is None:
                scope.text = format_marker(scope.marker, quoteless=True)
            end = _open_record(RecordFunction(scope.text))
            if source is not None:
                text = self.sources.text(source, recompute=scope.recompute)
                end = _both(_open_record(RecordFunction(text)), end)
        elif self.messages is not None and self.writes_ops:
            if scope.message is None:
                scope.message = self.messages.lasting(scope.marker)
            if source is None:
                end = self._push(state, scope.message)
            else:
                line = self.messages.of_line(source, recompute=scope.recompute)
                outer = self._push(state, line)
                end = _both(self._push(state, scope.message), outer)
        state.enter(token, scope, end, frame)

    def enter_text(self, token: int, text: str) -> None:
        """Open a range with a text of the user's own; the scope stays as it is."""
        state = self.state()
        end = None
        if self.kineto and self.recording:
            end = _open_record(torch.profiler.record_function(text))
        elif self.messages is not None and self.writes_ops:
            end = self._push(state, self.messages.of_text(text))
        state.enter(token, None, end)

    def leave(self, token: int) -> None:
        """Come out of what was entered with `token`, and close its range."""
        self.state().leave(token)

    def open_function(
        self, op: UserFunction, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], object] | None:
        """Open the range of a wrapped function, and return what ends it; None: nothing does."""
        if not self.recording:
            return None
        if self.kineto:
            # The caller of the wrapper.
            source = self.source(sys._getframe(1).f_back) if self.options.source else None  # noqa: SLF001
            inputs = op.describe(args, kwargs, set())
            marker = Marker("op", op=op.name, inputs=inputs, source=source)
            return _open_record(RecordFunction(format_marker(marker, quoteless=True)))
        mode = next((m for m in dispatch_modes() if isinstance(m, OpMode) and m.active), None)
        if mode is None or self.sink is None:
            return None
        with without_torch_function():
            # Its caller may have no Python frame, as hooks in threads of autograd.
            mode.begin(op, args, kwargs, sys._getframe(1).f_back)  # noqa: SLF001
        return partial(self.sink.pop, self.sink.domain)

    def mark(self, marker: Marker, step: int | None = None) -> None:
        """Mark an instant.

        Args:
            marker: what it says.
            step: of the marker, which is the payload where there is one: texts are kept.
        """
        if self.kineto and self.recording:
            if marker.event is not None:  # several in every step
                before, after = _around_step(marker.event)
                number = "" if step is None else f"'step':{step},"
                text = f"{before}{number}{after}"
            else:
                text = format_marker(marker, quoteless=True)
            _open_record(RecordFunction(text))()
        elif self.sink is not None and self.messages is not None and self.writes_ops:
            payload = NO_SEQUENCE if step is None else step
            message = self.messages.of_marker(marker)
            self.messages.push(message, self.state().attributes, payload, self.sink.mark)

    def mark_range(self, marker: Marker, number: int | None = None) -> None:
        """Write a range without length, for what is to be a row of table `ranges`.

        Args:
            marker: what it says.
            number: of the marker, which is the payload where there is one: texts are kept.
        """
        if self.kineto and self.recording:
            self.mark(marker if number is None else replace(marker, number=number))
        elif self.messages is not None and self.writes_ops:
            message = self.messages.of_marker(marker)
            end = self._push(self.state(), message, NO_SEQUENCE if number is None else number)
            if end is not None:
                end()

    def _push(
        self, state: ThreadState, message: Any, payload: int = NO_SEQUENCE
    ) -> Callable[[], object] | None:
        if self.sink is None or self.messages is None:
            return None
        self.messages.push(message, state.attributes, payload, self.sink.push)
        return partial(self.sink.pop, self.sink.domain)

    def note_record(self, op: str, args: tuple[Any, ...], result: Any) -> None:
        """Follow a range of torch.profiler: the ops for them are called whether it runs or not.

        So steps of optimizers are seen, also when they fail, and the user's ranges.
        """
        if not op.startswith(_ENTER):
            self.leave(hash(args[0]))
            return
        text = args[0]
        if text.startswith(OWN_RECORDS):
            return
        self.enter_record(hash(result), text)

    def enter_record(self, token: int, text: str) -> None:
        """Go into a range of torch.profiler: the step of an optimizer, or a text of the user's."""
        scope = self.optimizer_scope(text)
        if scope is None:
            self.enter_text(token, text)
        else:
            self.enter(token, scope)

    def optimizer_scope(self, text: str) -> OpScope | None:
        """Return the scope of a range of torch.profiler; None: no optimizer has opened it."""
        scope = self._optimizers.get(text)
        found = None if scope else _OPTIMIZER.match(text)
        if found:
            is_step = found["what"] == "step"
            marker = Marker("optimizer" if is_step else "zero_grad", name=found["name"])
            scope = self.catalog.scope(marker, "optimizer" if is_step else "other")
            self._optimizers[text] = scope
        return scope

    def begin(self, module_call: CodeType) -> None:
        """Learn which code calls modules, before anything is marked."""

    def prepare_rows(self) -> None:
        """Get ready to note where ops are called that a torch.profiler records from now on."""

    def take_rows(self) -> str | None:
        """Return what was noted, as a member of the trace, and end that; None: nothing was."""
        return None

    def follow_on_demand(self, follower: object) -> None:
        """Learn where recordings begin and end that another process asks for, if that can be."""

    def enter_module(self, module: torch.nn.Module, call: FrameType) -> bool | None:  # noqa: ARG002
        """Note the call of a module in a way of its own, by a frame of the wrapper.

        Returns whether it is a layer; None: it has no way of its own.
        """
        return None


@cache
def _around_step(event: StepEvent) -> tuple[str, str]:
    """Return the text of a marker of steps, for torch.profiler, up to the number and behind it."""
    text = format_marker(Marker("step", event=event), quoteless=True)
    before, name, after = text.partition("'event':")
    return before, name + after


def _both(*ends: Callable[[], object] | None) -> Callable[[], object]:
    def end() -> None:
        for each in ends:
            if each is not None:
                each()

    return end


def _open_record(record: Any) -> Callable[[], object]:
    record.__enter__()
    return partial(record.__exit__, None, None, None)
