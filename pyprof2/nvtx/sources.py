"""Which line of the user's code makes a call."""

from __future__ import annotations

import os
import site
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

CODES_AT_MOST: Final = 50_000
"""Code objects that are remembered; code that is made while it runs has no end."""


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({str(Path(path)) + os.sep for path in paths})


_OTHERS: Final = ("<", *_folders(*(str(Path(m.__file__ or "").parent) for m in (torch, pyprof2))))
_STANDARD_LIBRARY: Final = _folders(*(sysconfig.get_path(n) for n in ("stdlib", "platstdlib")))
_PACKAGES: Final = _folders(
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)
"""Installed packages are user code, though their folder is inside the standard library's."""


def is_user_file(path: str) -> bool:
    """Return whether a file is not torch, pyprof2, the standard library or no file at all."""
    if path.startswith(_OTHERS):
        return False
    return path.startswith(_PACKAGES) or not path.startswith(_STANDARD_LIBRARY)


class Sources:
    """Knows which code is the user's.

    Attributes:
        codes: by id of the code object, whether it is. Reading it is faster than a call.
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        """Begin without any; `forget` is called when ids of codes become invalid."""
        self.codes: dict[int, bool] = {}
        self._kept: list[CodeType] = []
        self._forget = forget

    def add(self, code: CodeType) -> bool:
        """Return whether a code object that was not met before is the user's."""
        if len(self._kept) >= CODES_AT_MOST:
            self.codes.clear()
            self._kept.clear()
            self._forget()
        # As long as it is kept no other code gets its id.
        self._kept.append(code)
        is_user = self.codes[id(code)] = is_user_file(code.co_filename)
        return is_user

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of user code, from `frame` outwards."""
        while frame is not None:
            code = frame.f_code
            is_user = self.codes.get(id(code))
            if is_user is None:
                is_user = self.add(code)
            if is_user:
                return frame
            frame = frame.f_back
        return None


def source_of(frame: FrameType | None) -> str | None:
    """Return `path:line` of the call that a frame makes."""
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
