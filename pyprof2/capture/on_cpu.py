"""Run on the CPU what a program asks of a GPU: `.cuda()`, `device="cuda"`, `.to("cuda:0")`.

For entry points on a machine without a GPU, whose code is to run as it is. Code that asks whether
there is a GPU (`torch.cuda.is_available`) gets the truth, and what only a GPU has (events, streams,
graphs) fails as it does without this.
"""

from __future__ import annotations

import re
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Self

import torch
from torch.overrides import TorchFunctionMode

from pyprof2.frames import is_own_path
from pyprof2.nvtx.internals import hide_frame

if TYPE_CHECKING:
    from types import FrameType, TracebackType

_CUDA: Final = re.compile(r"cuda(?::\d+)?")
_CUDA_TYPE: Final = "torch.cuda."
_MOVES: Final = frozenset({"to", "cuda", "_parse_to"})
"""Functions to which a number that comes first is a GPU's."""


class OnCpu(TorchFunctionMode):
    """Rewrites on the thread that it is on every device of CUDA to the CPU.

    Attributes:
        count: how many calls asked for a GPU.
        first: `path:line` of the user's own code at the first of them.
    """

    def __init__(self, root: str) -> None:
        """Begin without a call.

        Args:
            root: the folder of the user's own code.
        """
        super().__init__()
        self.count = 0
        self.first: str | None = None
        self._root = root
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        """Begin; to wait for a GPU does nothing from now on."""
        for name in ("synchronize", "set_device"):
            original = getattr(torch.cuda, name)
            setattr(torch.cuda, name, lambda *_, **__: None)
            self._undo.callback(setattr, torch.cuda, name, original)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End."""
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        self._undo.close()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with the CPU in place of a GPU."""
        name = getattr(func, "__name__", "")
        kwargs = kwargs or {}
        try:
            if name in ("cuda", "pin_memory") and args and isinstance(args[0], torch.Tensor):
                self._note(sys._getframe(1))  # noqa: SLF001 -- no other way to the caller
                return args[0]
            new_args = self._placed(name, args)
            new_kwargs = _placed_by_name(kwargs)
            if new_args is not args or new_kwargs is not kwargs:
                self._note(sys._getframe(1))  # noqa: SLF001
            return func(*new_args, **new_kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def _placed(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return positional arguments with the CPU in place of GPUs; the same where none is."""
        found = tuple(_on_cpu(value) for value in args)
        if name in _MOVES:
            found = tuple(
                "cpu" if type(value) is int and at < 2 else value for at, value in enumerate(found)
            )
        changed = any(new is not old for new, old in zip(found, args, strict=True))
        return found if changed else args

    def _note(self, frame: FrameType | None) -> None:
        self.count += 1
        while self.first is None and frame is not None:
            if is_own_path(frame.f_code.co_filename, self._root):
                self.first = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back


def _placed_by_name(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return named arguments with the CPU in place of a GPU; the same where none is."""
    changed = {}
    device = kwargs.get("device")
    if device is not None:
        new = "cpu" if type(device) is int else _on_cpu(device)
        if new is not device:
            changed["device"] = new
    if kwargs.get("pin_memory"):
        changed["pin_memory"] = False
    return kwargs | changed if changed else kwargs


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str):
        if _CUDA.fullmatch(value):
            return "cpu"
        if value.startswith(_CUDA_TYPE):
            return "torch." + value.removeprefix(_CUDA_TYPE)
    return value
