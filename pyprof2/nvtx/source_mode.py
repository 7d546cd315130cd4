"""Mark under torch.profiler which line of user code calls a function of PyTorch."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pyprof2.nvtx.internals import (
    NO_TASK,
    RecordFunction,
    current_task,
    hide_frame,
    insert_function_mode,
    is_tracing,
    remove_function_mode,
    uses_dynamo,
)

if TYPE_CHECKING:
    from pyprof2.nvtx.session import AnnotationSession


class SourceMode(TorchFunctionMode):
    """Puts a range around every call of PyTorch from Python, on the thread that it is on.

    The ops that a call makes are inside its range. Compiled functions are guarded by the modes
    that are on: they would be compiled anew for this one, so it stays away from programs that
    compile.
    """

    def __init__(self, session: AnnotationSession) -> None:
        super().__init__()
        self._session = session
        self._is_on = self._is_everywhere = False
        self._local = threading.local()

    def begin(self, *, every_thread: bool) -> None:
        """Begin on the calling thread, and perhaps on every one that is started from now on."""
        self._is_on, self._is_everywhere = True, every_thread
        self._insert()

    def end(self) -> None:
        """End on all threads; on others than the calling one it lets everything through."""
        self._is_on = False
        self.leave_thread()

    def enter_thread(self) -> None:
        """Begin on a thread that has just started, if it is on everywhere."""
        if self._is_on and self._is_everywhere:
            self._insert()

    def leave_thread(self) -> None:
        """End on the calling thread."""
        if getattr(self._local, "has_mode", False):
            self._local.has_mode = False
            remove_function_mode(self)

    def _insert(self) -> None:
        if not getattr(self._local, "has_mode", False) and not uses_dynamo():
            self._local.has_mode = True
            insert_function_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_marked = self._is_on and self._session.recording and not is_tracing()
        try:
            source = self._session.source(sys._getframe(1)) if is_marked else None  # noqa: SLF001
            if source is None:
                return func(*args, **(kwargs or {}))
            recompute = current_task() != NO_TASK and torch.is_grad_enabled()
            with RecordFunction(self._session.sources.text(source, recompute=recompute)):
                return func(*args, **(kwargs or {}))
        except BaseException as error:
            hide_frame(error)
            raise
