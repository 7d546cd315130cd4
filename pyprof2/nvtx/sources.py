"""Which line of the user's code makes a call, and which lines of libraries are in between."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

import pyprof2
from pyprof2.frames import is_generated, is_own_path
from pyprof2.markers import Marker, format_marker
from pyprof2.nvtx.internals import compiled_codes, is_continuation

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

FILES_AT_MOST: Final = 50_000
"""Files that are remembered; code that is made while it runs has names without end."""
FRAMES_AT_MOST: Final = 48
"""Frames of libraries that are told of a call; the user's own comes after them anyway."""

_NOBODYS, _LIBRARYS, _OWN = range(3)
_CELL: Final = re.compile(r"<ipython-input-(\d+)-\w+>|(?:.*/)?ipykernel_\d+/\d+\.py")


def _folders(*paths: str) -> tuple[str, ...]:
    return tuple({str(Path(path)) + os.sep for path in paths})


_OTHERS: Final = _folders(*(str(Path(m.__file__ or "").parent) for m in (torch, pyprof2)))
_STANDARD_LIBRARY: Final = _folders(*(sysconfig.get_path(n) for n in ("stdlib", "platstdlib")))
_PACKAGES: Final = _folders(
    *(sysconfig.get_path(name) for name in ("purelib", "platlib")),
    *site.getsitepackages(),
    site.getusersitepackages(),
)
"""Installed packages are user code, though their folder is inside the standard library's."""


def is_user_file(path: str) -> bool:
    """Return whether a person wrote a file, and it is not torch, pyprof2 or standard library."""
    if path.startswith(_OTHERS) or is_generated(path):
        return False
    return path.startswith(_PACKAGES) or not path.startswith(_STANDARD_LIBRARY)


def script_folder() -> str | None:
    """Return the folder of the program that runs, in which the user's own code is; None: unknown.

    Of a module or a notebook it is the current folder.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        return str(Path.cwd())
    path = _absolute(path)
    is_installed = path.startswith((sysconfig.get_path("scripts") + os.sep, *_OTHERS))
    return None if is_installed or not is_own_path(path) else str(Path(path).parent)


class Sources:
    """Finds the user's code on the stack."""

    def __init__(self, root: str | None = None) -> None:
        """Begin without any file.

        Args:
            root: the folder of the user's own code; None: all that is in no package is.
        """
        self._files: dict[str, int] = {}
        self._texts: dict[tuple[str, bool], str] = {}
        self._root = root

    def user_frames(self, frame: FrameType | None) -> list[FrameType]:
        """Return the frames outside of torch, from `frame` outwards to the user's own.

        What torch.compile compiled has lost its lines: of that it is the frame that called it.
        """
        files, compiled = self._files, compiled_codes()
        found: list[FrameType] = []
        inner: FrameType | None = None
        while frame is not None:
            code = frame.f_code
            kind = files.get(code.co_filename)
            if kind is None:
                kind = self._add(frame)
            if kind:
                if code in compiled and _has_lost_line(frame, inner):
                    inner = frame
                else:
                    found.append(frame)
                    if kind == _OWN:
                        break
            frame = frame.f_back
        return [*found[:FRAMES_AT_MOST], found[-1]] if len(found) > FRAMES_AT_MOST else found

    def text(self, source: str, *, recompute: bool) -> str:
        """Return the text of a marker for torch.profiler: the calls inside are made by a line."""
        key = source, recompute
        found = self._texts.get(key)
        if found is None:
            marker = Marker("source", source=source, recompute=recompute)
            found = self._texts[key] = format_marker(marker, quoteless=True)
        return found

    def _add(self, frame: FrameType) -> int:
        """Return whose the file of a frame is, and remember it."""
        if len(self._files) >= FILES_AT_MOST:
            self._files.clear()
        # Wherever a compiler of torch keeps its files, their modules are inside torch.
        package, _, _ = str(frame.f_globals.get("__name__")).partition(".")
        path = frame.f_code.co_filename
        whose = _NOBODYS
        if package != "torch" and (_CELL.fullmatch(path) or is_user_file(path)):
            shown = shown_path(path)
            is_own = not path.startswith(_PACKAGES) and is_own_path(shown, self._root)
            whose = _OWN if is_own else _LIBRARYS
        self._files[path] = whose
        return whose


def _has_lost_line(frame: FrameType, inner: FrameType | None) -> bool:
    """Return whether compiled code is not at a line of the user's.

    It calls graphs from its first line, and what is left of the function after a graph break from
    any. What it could not compile it calls from the line where that is written.
    """
    return frame.f_lineno == frame.f_code.co_firstlineno or (
        inner is not None and is_continuation(inner.f_code)
    )


def source_of(frames: Sequence[FrameType]) -> str | None:
    """Return `path:line` of each frame, one to a line; None where there is none."""
    if len(frames) == 1:
        return f"{shown_path(frames[0].f_code.co_filename)}:{frames[0].f_lineno}"
    return "\n".join(f"{shown_path(f.f_code.co_filename)}:{f.f_lineno}" for f in frames) or None


@lru_cache(FILES_AT_MOST)
def shown_path(path: str) -> str:
    """Return the path of a file from the root on, or `cell 3` for the file of a notebook's cell."""
    cell = _CELL.fullmatch(path)
    if cell is None:
        # Code that is made while it runs is in no file, whatever it is called.
        full = _absolute(path)
        return full if Path(full).exists() else path.replace("\n", " ")
    number = cell[1] or _number_of_cell(path)
    return path if number is None else f"cell {number}"


def _number_of_cell(path: str) -> str | None:
    """Return the number by which IPython shows the cell that it keeps in a file."""
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    name = getattr(getattr(get_shell(), "compile", None), "format_code_name", lambda _: None)
    match = re.search(r"\[(\d+)\]", str(name(path)))
    return match[1] if match else None


def _absolute(path: str) -> str:
    # Not resolved: what is found through a link is where the user put it.
    return os.path.abspath(path)  # noqa: PTH100
