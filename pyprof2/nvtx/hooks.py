"""Where the annotation hooks into PyTorch and Python; `undo` takes the functions that end it.

Where there is no hook, or none that does no harm, a function is replaced.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import autograd, distributed
from torch.autograd import profiler
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from pyprof2.errors import harmless
from pyprof2.markers import MEMBER, Marker
from pyprof2.nvtx.collective_marks import CollectiveMarks
from pyprof2.nvtx.compile_notes import notes
from pyprof2.nvtx.internals import (
    DISABLED,
    ENGINE,
    NO_TASK,
    STARTED,
    STOPPED,
    BatchIterator,
    Need,
    add_metadata,
    allow_disabling_saved_hooks,
    current_task,
    hide_frame,
    hook_collectives,
    inside_transform,
    is_compiled_graph,
    is_tracing,
    lacks,
    module_call,
    next_sequence_nr,
    profiler_runs,
    replace_module_call,
    wrap_compiled_call,
)
from pyprof2.nvtx.memory_tags import unpack
from pyprof2.nvtx.pairing import note_function
from pyprof2.nvtx.replacing import replace
from pyprof2.nvtx.weights import note_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from types import FrameType

    from pyprof2.nvtx.memory_tags import MemoryTags
    from pyprof2.nvtx.session import AnnotationSession
    from pyprof2.nvtx.steps import StepTracker


ON_DEMAND: Final = "KINETO_USE_DAEMON"
"""The variable with which torch lets other processes ask for recordings."""


def hook_modules(
    session: AnnotationSession,
    steps: StepTracker,
    undo: ExitStack,
    memory: MemoryTags | None = None,
) -> None:
    """Follow which module runs, and pass that on to the steps.

    Global module hooks would be the public way. But Dynamo takes another path for modules that
    have hooks, on which `torch.export` fails; torch's own path for them is slow; and they are not
    called when a forward is interrupted.
    """

    @functools.wraps(module_call)
    def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        if is_tracing():
            return module_call(module, *args, **kwargs)
        if steps.waiting and current_task() == NO_TASK:
            steps.called(module)
        observer = session.observer
        is_layer = (observer is not None and observer.enter_module(module)) or enter_module(
            session,
            module,
            sys._getframe(),  # noqa: SLF001 -- no other way to the caller
        )
        is_outermost = memory is not None and memory.enter(module, args, kwargs)
        result = None
        try:
            result = module_call(module, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if is_layer and (observer is None or not observer.leave_module(module)):
                session.leave(id(module))
            if is_outermost and memory is not None:
                memory.leave(result)
        return result

    session.begin(getattr(call, "__code__"))  # noqa: B009 -- its type has none
    undo.callback(replace_module_call(call))
    if hasattr(torch.nn.Module, "compile"):  # torch before 2.2 has none
        hook_compiled(session, undo)


def hook_compiled(session: AnnotationSession, undo: ExitStack) -> None:
    """Follow modules that are compiled in their places: calls run what is compiled alone."""
    ended: list[bool] = []

    def compiled(compile_: Callable[..., None], module: Any, *args: Any, **kwargs: Any) -> None:
        compile_(module, *args, **kwargs)

        def around(run: Callable[..., Any]) -> Callable[..., Any]:
            def call_compiled(*args: Any, **kwargs: Any) -> Any:
                if ended or is_tracing():
                    return run(*args, **kwargs)
                is_layer = enter_module(session, module, sys._getframe())  # noqa: SLF001
                try:
                    return run(*args, **kwargs)
                finally:
                    if is_layer:
                        session.leave(id(module))

            return call_compiled

        wrap_compiled_call(module, around)

    replace(torch.nn.Module, "compile", compiled, undo)
    undo.callback(ended.append, True)  # noqa: FBT003 -- a value


def enter_module(session: AnnotationSession, module: torch.nn.Module, call: FrameType) -> bool:
    """Note the call of a module, by a frame of the wrapper; return whether it is a layer."""
    is_layer = session.enter_module(module, call)
    if is_layer is not None:
        return is_layer
    layers, catalog = session.layers, session.catalog
    frame, source = call.f_back, None
    if not session.options.layers or is_compiled_graph(module, frame):
        return False
    state = session.state()
    state.last_backward = None
    if inside_transform() is not None:
        state.note_transform()
    layer = layers.find(module, state.open, frame)
    has_node = not torch.is_grad_enabled() and next_sequence_nr() != state.next_nr
    if has_node or session.marks_calls:
        source = session.source(frame)
    if has_node:
        note_function(state, catalog.function(state.scope.layer, source))
    scope = layer.forward if current_task() == NO_TASK else layer.recompute
    session.enter(id(module), scope, source, id(call))
    return True


def hook_optimizers(steps: StepTracker, undo: ExitStack, memory: MemoryTags | None = None) -> None:
    """Learn when a step ends, whenever and wherever the optimizer was made."""

    def stepped(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if not is_tracing():
            steps.optimizer_stepped(optimizer)
            if memory is not None:
                memory.optimizer_stepped(optimizer)

    undo.callback(register_optimizer_step_post_hook(stepped).remove)


@harmless(Need.BATCHES.value)
def hook_dataloaders(session: AnnotationSession, steps: StepTracker, undo: ExitStack) -> None:
    """Mark how long the training waits for batches, and pass that on to the steps."""

    def around(next_batch: Callable[[Any], Any], iterator: Any) -> Any:
        if is_tracing():
            return next_batch(iterator)
        steps.waits(iterator)
        marker = Marker("dataloader", name=type(iterator).__name__)
        token = id(marker)
        session.enter(token, session.catalog.scope(marker, "other"))
        try:
            return next_batch(iterator)
        except StopIteration:
            steps.got_no_batch(iterator)
            raise
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            session.leave(token)

    if not lacks(Need.BATCHES):
        replace(BatchIterator, "__next__", around, undo)


def hook_threads(session: AnnotationSession, undo: ExitStack) -> None:
    """Annotate every thread that is started from now on: modes do not cross over by themselves."""

    def around(run: Callable[[Any], None], thread: threading.Thread) -> None:
        session.enter_thread()
        try:
            run(thread)
        finally:
            session.leave_thread()

    # The first thing that every thread runs, also where a subclass overrides `run`.
    replace(threading.Thread, "_bootstrap_inner", around, undo)


@harmless(Need.COLLECTIVES.value)
def hook_c10d(session: AnnotationSession, undo: ExitStack) -> None:
    """Mark every collective: which of its group it is, and what it moves."""
    if not distributed.is_available() or lacks(Need.COLLECTIVES):
        return
    marks = CollectiveMarks(session)

    def around(op: Any, run: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        marks.mark(op, args)
        try:
            return run()
        except BaseException as error:
            hide_frame(error)
            raise

    hook_collectives(around, undo)


@harmless(Need.MEMORY.value)
def hook_memory(session: AnnotationSession, memory: MemoryTags, undo: ExitStack) -> None:
    """Follow what autograd saves on every thread, where backward begins and ends, and weights."""

    def around(run: Callable[[Any], None], thread: threading.Thread) -> None:
        memory.enter_thread()
        try:
            run(thread)
        finally:
            memory.leave_thread()

    note_lines(session.sources, undo)
    undo.callback(allow_disabling_saved_hooks(unpack))
    memory.enter_thread()
    undo.callback(memory.leave_thread)
    replace(threading.Thread, "_bootstrap_inner", around, undo)
    replace(torch.Tensor, "backward", memory.around_call, undo)
    for owner in (autograd, autograd.graph):
        replace(owner, ENGINE, memory.around_backward, undo)


class _Handover:
    """Hands over to torch's own recorder while it runs: it records the ops itself."""

    def __init__(
        self, session: AnnotationSession, steps: StepTracker, memory: MemoryTags | None
    ) -> None:
        self._session, self._steps, self._memory = session, steps, memory

    def begin(self, has_stacks: bool) -> None:  # noqa: FBT001 -- called from C++, too
        """Do what comes before a recording."""
        # It may have the source lines anyway.
        session = self._session
        session.marks_lines = session.options.source and not has_stacks
        if session.marks_lines and not lacks(Need.LINES):
            session.prepare_rows()
        session.write(kineto=True)

    def began(self) -> None:
        """Say again what goes on."""
        self._steps.mark_again()
        if self._memory is not None:
            self._memory.begin()

    def ends(self) -> None:
        """Add what was noted to the trace."""
        # Ops that other threads call until it has ended have no places.
        found = self._session.take_rows()
        if found is not None:
            add_metadata(MEMBER, found)
        notes.add_to_trace(self._session.layers)

    def ended(self) -> None:
        """Go on as before the recording."""
        self._session.marks_lines = False
        self._session.write(kineto=False)


@harmless(Need.PROFILER.value)
def hook_profiler(
    session: AnnotationSession,
    steps: StepTracker,
    undo: ExitStack,
    memory: MemoryTags | None = None,
) -> None:
    """Hand over to torch.profiler, and to recordings that another process asks for.

    These are made by the same recorder, and call no function in Python.
    """
    if lacks(Need.PROFILER):
        return
    handover = _Handover(session, steps, memory)

    def started(start: Callable[[], None]) -> None:
        starting = sys._getframe(2).f_locals.get("self")  # noqa: SLF001
        handover.begin(getattr(starting, "with_stack", False))
        start()
        handover.began()

    def disabled(disable: Callable[[], Any]) -> Any:
        handover.ends()
        return disable()

    def stopped(stop: Callable[[], None]) -> None:
        stop()
        handover.ended()

    replace(profiler, STARTED, started, undo)
    replace(profiler, DISABLED, disabled, undo)
    replace(profiler, STOPPED, stopped, undo)
    if profiler_runs():
        handover.begin(session.recorder is None)
    if ON_DEMAND in os.environ:
        session.follow_on_demand(handover)
