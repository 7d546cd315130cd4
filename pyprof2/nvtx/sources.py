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
    from types import FrameType

FILES_AT_MOST: Final = 50_000
"""Files that are remembered; code that is made while it runs has names without end."""


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
    """Finds the user's code on the stack."""

    def __init__(self) -> None:
        self._files: dict[str, bool] = {}

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the innermost frame of user code, from `frame` outwards."""
        files = self._files
        while frame is not None:
            path = frame.f_code.co_filename
            is_user = files.get(path)
            if is_user is None:
                if len(files) >= FILES_AT_MOST:
                    files.clear()
                is_user = files[path] = is_user_file(path)
            if is_user:
                return frame
            frame = frame.f_back
        return None


def source_of(frame: FrameType | None) -> str | None:
    """Return `path:line` of the call that a frame makes."""
    return None if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
