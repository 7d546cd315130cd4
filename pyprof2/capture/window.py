"""Record some steps of a training that runs, and cost next to nothing before and after them.

Before them only the steps of optimizers are counted, or the calls of `pyprof2.step`. The annotation
and torch.profiler begin with the first step that is wanted, and end when the one after the last
begins; then PyTorch is as it was.
"""

from __future__ import annotations

import atexit
import functools
from contextlib import ExitStack
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.compiler import is_compiling
from torch.optim.optimizer import register_optimizer_step_post_hook

from pyprof2.capture.graph_captures import GraphCaptures
from pyprof2.capture.recorders import TorchRecorder
from pyprof2.errors import harmless, say
from pyprof2.nvtx.annotation import (
    Capture,
    begin_capture,
    count_from,
    current_session,
    end_capture,
    is_captured,
    listen_for_steps,
    restore,
)
from pyprof2.nvtx.compile_notes import notes
from pyprof2.nvtx.internals import (
    NO_TASK,
    BatchIterator,
    Need,
    current_task,
    hide_from_dynamo,
    is_tracing,
    lack,
    module_call,
    profiler_runs,
    replace_module_call,
)
from pyprof2.nvtx.replacing import replace
from pyprof2.nvtx.steps import OptimizerClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch.optim import Optimizer
    from torch.utils.hooks import RemovableHandle

_TAKEN: Final = "a profiler records this process already: pyprof2.record records nothing"


class StepsRecording:
    """Waits for the first of some steps, and records them."""

    def __init__(self, path: Path, steps: range | None, at_end: Callable[[], None]) -> None:
        """Prepare; nothing begins yet.

        Args:
            path: of the trace.
            steps: which, in one piece; None: everything from `begin` to `finish`.
            at_end: called once, when the trace is written or it is clear that none will be.
        """
        self._path = path
        self._steps = steps
        self._at_end = at_end
        self._thread = get_ident()
        self._before = -1 if steps is None else steps[0] - 1
        self._clock = OptimizerClock()
        self._said: int | None = None
        self._counter: RemovableHandle | None = None
        self._recorder: TorchRecorder | None = None
        self._waiting = ExitStack()
        self._graphs: GraphCaptures | None = None
        self._notes = ExitStack()

    @harmless("nothing is recorded")
    def begin(self, step: int = 0) -> None:
        """Begin to look out for the steps, on the thread that trains.

        Args:
            step: the number of the one that comes first.
        """
        if self._steps is not None and (why := lack(Need.ALL)) is not None:
            say(f"{why}, so nothing is recorded; the script runs on")
            self.cancel()
            return
        self._thread = get_ident()
        self._clock = OptimizerClock(step)
        self._graphs = GraphCaptures(self._path)
        atexit.register(self.finish)
        # Graphs that run in the recorded steps are compiled in those before.
        notes.begin(self._notes, keep_cache=False)
        # Where ops are marked anyway, the annotation itself finds the steps.
        if self._steps is None or step in self._steps or current_session() is not None:
            self._record()
            return
        self._counter = register_optimizer_step_post_hook(self._count())
        self._waiting.callback(self._counter.remove)
        self._waiting.callback(listen_for_steps(self._step_ended))

    @harmless("the recording is not whole")
    def finish(self) -> None:
        """End, and keep what was recorded; afterwards it does nothing."""
        atexit.unregister(self.finish)
        self._waiting.close()
        if self._recorder is not None:
            self._recorder.finish()
        else:
            if self._graphs is not None:
                self._graphs.close()
            self._end()

    def cancel(self) -> bool:
        """End without a word, unless it records already; return whether it has ended."""
        if self._recorder is not None:
            return False
        self._at_end = _nothing
        self.finish()
        return True

    # -- while it waits ------------------------------------------------------------------------

    def _count(self) -> Callable[[Optimizer, Any, Any], None]:
        """Return what counts the steps of optimizers, in next to no time: it runs in each."""
        clock, before, thread = self._clock, self._before, self._thread

        def stepped(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            if is_compiling() or get_ident() != thread or current_task() != NO_TASK:
                return
            clock.stepped(optimizer)
            if clock.step >= before and clock.next == before + 1:
                self._wait_for_work()

        return stepped

    def _step_ended(self) -> None:
        """Learn from the program that a step ends; from now on it alone says so."""
        if self._counter is not None:
            self._counter.remove()
        self._said = 0 if self._said is None else self._said + 1
        if self._said == self._before:
            self._record()

    def _wait_for_work(self) -> None:
        """Record as soon as the training goes on: with a batch, or with the call of a module."""

        @functools.wraps(module_call)
        def call(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if not self._is_mine():
                return module_call(module, *args, **kwargs)
            self._record()
            return torch.nn.Module.__call__(module, *args, **kwargs)

        def wait(next_batch: Callable[[Any], Any], iterator: Any) -> Any:
            if not self._is_mine():
                return next_batch(iterator)
            self._record()
            return BatchIterator.__next__(iterator)

        self._waiting.callback(replace_module_call(call))
        if BatchIterator is not None:
            replace(BatchIterator, "__next__", wait, self._waiting)

    def _is_mine(self) -> bool:
        """Return whether this is the training itself: nothing compiled, no helper."""
        is_captured = self._graphs is not None and self._graphs.is_open
        is_free = not is_tracing() and current_task() == NO_TASK and not is_captured
        return is_free and get_ident() == self._thread

    # -- while it records ----------------------------------------------------------------------

    @harmless("nothing is recorded")
    def _record(self) -> None:
        self._waiting.close()
        if is_captured() or profiler_runs():
            say(_TAKEN)
            return
        session = current_session()
        before = None if session is None else session.options

        def ended() -> None:
            end_capture()
            restore(before)
            self._end()

        self._recorder = TorchRecorder(self._path, ended, ends_process=False, graphs=self._graphs)
        begin_capture(Capture("kineto", self._steps, recorder=self._recorder))
        count_from(self._clock, self._said)

    def _end(self) -> None:
        self._notes.close()
        at_end, self._at_end = self._at_end, _nothing
        at_end()


def _nothing() -> None:
    """Be called once the end is over."""


hide_from_dynamo((__name__,))
