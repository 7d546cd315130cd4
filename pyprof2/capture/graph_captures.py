"""Captures of CUDA graphs, each kept as a recording of its own beside that of the steps.

The steps that are wanted mostly come after the captures, and are replays, whose ops only a
recording of the capture knows. So a profiler runs while a graph is captured, unless another one
does. It starts before the capture and stops after it: both may wait for the device, which a
capture forbids. (So the hooks that torch has since 2.14 do not serve: `capture_begin` calls them
when the capture has begun, and none when it fails. They see no graph that it does not see.)
Whatever goes wrong with it is no error of the program.
"""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.profiler import profile

from pyprof2.capture.outputs import write_trace
from pyprof2.errors import say
from pyprof2.markers import CAPTURES
from pyprof2.nvtx.internals import all_threads_config, profiler_runs, profiler_starts
from pyprof2.nvtx.replacing import replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MOST: Final = 64
"""So many captures are recorded: each takes some tenths of a second."""
_SUFFIX: Final = ".json.gz"
_ENOUGH: Final = f"{MOST} captures of CUDA graphs are recorded; later ones are not"


class GraphCaptures:
    """Records what is captured, until it is closed.

    Attributes:
        is_busy: whether it starts a profiler right now, which takes nothing from another recorder.
        count: how many recordings it has written.
    """

    def __init__(self, trace: Path) -> None:
        """Begin to look out for captures.

        Args:
            trace: the recording of the steps, beside which those of captures are to be found.
        """
        self.is_busy = False
        self.count = 0
        self._folder = trace.parent / CAPTURES
        self._stem = trace.name.removesuffix(_SUFFIX)
        self._lock = threading.RLock()
        self._open = 0
        self._is_whole = True
        self._profiler: profile | None = None
        self._waiting: list[Callable[[], None]] = []
        self._undo = ExitStack()
        around = {"capture_begin": self._begin, "capture_end": self._end}
        for name, function in around.items():
            if hasattr(torch.cuda.CUDAGraph, name):
                replace(torch.cuda.CUDAGraph, name, function, self._undo)
        for owner, name in profiler_starts():
            replace(owner, name, self._make_way, self._undo)
        os.register_at_fork(after_in_child=self._forget)

    def close(self) -> None:
        """Look out no more; a capture that goes on is not recorded."""
        with self._lock:
            self._stop(write=False)
            self._undo.close()

    @property
    def is_open(self) -> bool:
        """Whether a graph is captured at the moment."""
        return self._open > 0

    def after(self, function: Callable[[], None]) -> bool:
        """Call a function when no graph is captured any more; return whether it has to wait."""
        with self._lock:
            if self._open:
                self._waiting.append(function)
            return bool(self._open)

    def _forget(self) -> None:
        """Leave a forked process as if nobody looked out."""
        self._profiler = None
        self._undo.close()

    def _begin(self, begin: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            if not self._open:
                self._start()
            self._open += 1
        try:
            return begin(*args, **kwargs)
        except BaseException:
            self._ended(is_whole=False)
            raise

    def _end(self, end: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        is_whole = False
        try:
            found = end(*args, **kwargs)
            is_whole = True
        finally:
            self._ended(is_whole=is_whole)
        return found

    def _ended(self, *, is_whole: bool) -> None:
        with self._lock:
            self._is_whole &= is_whole
            self._open = max(0, self._open - 1)
            if self._open:
                return
            self._stop(write=self._is_whole)
            waiting, self._waiting = self._waiting, []
        for function in waiting:
            function()

    def _start(self) -> None:
        self._is_whole = True
        if self.count >= MOST or profiler_runs():
            return
        self.is_busy = True
        try:
            started = profile(
                record_shapes=True, with_stack=True, experimental_config=all_threads_config()
            )
            started.start()
            self._profiler = started
        except Exception as error:  # noqa: BLE001 -- the program goes on without
            say(f"a capture of a CUDA graph is not recorded: {error}")
        finally:
            self.is_busy = False

    def _stop(self, *, write: bool) -> None:
        stopped, self._profiler = self._profiler, None
        if stopped is None:
            return
        try:
            stopped.stop()
            if write:
                self._folder.mkdir(parents=True, exist_ok=True)
                name = f"{self._stem}-graph-{self.count + 1}{_SUFFIX}"
                write_trace(stopped, self._folder / name)
                self.count += 1
                if self.count == MOST:
                    say(_ENOUGH)
        except Exception as error:  # noqa: BLE001 -- the program goes on without
            say(f"a capture of a CUDA graph is not recorded: {error}")

    def _make_way(self, start: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Give up where a profiler starts that is not this one."""
        if not self.is_busy:
            with self._lock:
                self._stop(write=False)
        return start(*args, **kwargs)
