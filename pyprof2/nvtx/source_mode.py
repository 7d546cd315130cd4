"""Mark under torch.profiler which line of user code makes a call."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pyprof2.markers import Marker, format_marker
from pyprof2.nvtx.internals import (
    NO_TASK,
    RecordFunction,
    current_task,
    insert_function_mode,
    is_tracing,
    remove_function_mode,
    uses_dynamo,
)
from pyprof2.nvtx.sources import source_of

if TYPE_CHECKING:
    from pyprof2.nvtx.session import Session


class SourceMode(TorchFunctionMode):
    """Puts a range around every call of PyTorch from Python, on the thread that it is on.

    The ops that a call makes are inside its range. Compiled functions are guarded by the modes
    that are on: they would be compiled anew for this one, so it stays away from programs that
    compile.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self._texts: dict[tuple[str | None, bool], str] = {}
        self._on = False

    def enter(self) -> None:
        """Begin on the calling thread."""
        if not self._on and not uses_dynamo():
            self._on = True
            insert_function_mode(self)

    def leave(self) -> None:
        """End on the calling thread."""
        if self._on:
            self._on = False
            remove_function_mode(self)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_tracing() or not self._session.recording:
            return func(*args, **(kwargs or {}))
        frame = self._session.sources.user_frame(sys._getframe(1))  # noqa: SLF001
        recompute = current_task() != NO_TASK and torch.is_grad_enabled()
        with RecordFunction(self._text(source_of(frame), recompute=recompute)):
            return func(*args, **(kwargs or {}))

    def _text(self, source: str | None, *, recompute: bool) -> str:
        key = source, recompute
        text = self._texts.get(key)
        if text is None:
            marker = Marker("source", source=source, recompute=recompute)
            text = self._texts[key] = format_marker(marker, quoteless=True)
        return text
