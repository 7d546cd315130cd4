"""Which line of the user's code makes a call, and which lines of libraries are in between."""

from __future__ import annotations

import os
import re
import site
import sys
import sysconfig
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

import pyprof2
from pyprof2.frames import is_generated, is_own_path
from pyprof2.markers import Marker, format_marker
from pyprof2.nvtx.internals import compiled_codes, is_continuation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

FILES_AT_MOST: Final = 50_000
"""Files that are remembered; code that is made while it runs has names without end."""
FRAMES_AT_MOST: Final = 48
"""Frames of libraries that are given for a call; the user's own comes after them anyway."""

PLACES_AT_MOST: Final = 50_000
"""Places that are remembered."""
TRAILS_AT_MOST: Final = 4
"""Ways outwards from one line that are remembered."""

_NOBODYS, _LIBRARYS, _OWN, _MODULE_CALL = range(4)
_lasti: Final[Callable[[FrameType], int]] = attrgetter("f_lasti")
_code: Final[Callable[[FrameType], CodeType]] = attrgetter("f_code")
_HOOKS: Final = "pyprof2.nvtx.hooks"
"""The module of ours that is on the stack wherever a module is called."""
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


def is_torch_file(path: str) -> bool:
    """Return whether a file is torch's, or ours."""
    return path.startswith(_OTHERS)


def is_user_file(path: str) -> bool:
    """Return whether a person wrote a file, and it is not torch, pyprof2 or standard library."""
    if is_torch_file(path) or is_generated(path):
        return False
    return path.startswith(_PACKAGES) or not path.startswith(_STANDARD_LIBRARY)


def is_installed_file(path: str) -> bool:
    """Return whether a file is in a folder of installed packages."""
    return path.startswith(_PACKAGES)


def script_folder() -> str | None:
    """Return the folder of the program that runs, in which the user's own code is; None: unknown.

    For a module or a notebook it is the current folder.
    """
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or getattr(main, "__spec__", None) is not None:
        return str(Path.cwd())
    path = _absolute(path)
    is_installed = path.startswith((sysconfig.get_path("scripts") + os.sep, *_OTHERS))
    return None if is_installed or not is_own_path(path) else str(Path(path).parent)


def _line(frame: FrameType) -> str:
    return f"{shown_path(frame.f_code.co_filename)}:{frame.f_lineno}"


class CallPlace:
    """Where a call is made: the frames outside of torch, the innermost first, the user's own last.

    Equal places are the same object.

    Attributes:
        lines: `path:line` of each frame.
        source: the same as text, one to a line.
    """

    __slots__ = ("_codes", "lines", "source")

    def __init__(self, frames: Sequence[FrameType], outer: CallPlace | None) -> None:
        """Describe some frames, and what is outside of them if they do not end in the own one."""
        lines = tuple(map(_line, frames)) + (() if outer is None else outer.lines)
        is_long = len(lines) > FRAMES_AT_MOST
        self.lines: tuple[str, ...] = (*lines[:FRAMES_AT_MOST], lines[-1]) if is_long else lines
        self.source = "\n".join(self.lines)
        # A place is found by the ids of codes: as long as they are kept no other code gets one.
        self._codes = tuple(frame.f_code for frame in frames)


UNKNOWN: Final = CallPlace((), None)
"""Stands for a place that was not looked for."""


class CallRange:
    """A range that is open, perhaps around the call of a module.

    Attributes:
        frame: the id of the frame of ours that calls the module; 0: it is of no module.
        place: from where that is called, once it was looked for.
    """

    __slots__ = ("frame", "place")

    def __init__(self, frame: int) -> None:
        self.frame = frame
        self.place: CallPlace | None = UNKNOWN


class Trail:
    """The frames from a call outwards to that of a module, or to the user's own: a guess.

    To see that the next call is made by the same ones costs less than to look at each anew.

    Attributes:
        steps: the code of each frame, and how far it is.
        to_module: whether they end in the call of a module.
        places: what they lead to, by the place from where that module is called.
    """

    __slots__ = ("_inner", "_outermost", "places", "steps", "to_module")

    def __init__(self, steps: tuple[tuple[CodeType, int], ...], *, to_module: bool) -> None:
        self.steps = steps
        self._inner, self._outermost = steps[:-1], steps[-1]
        self.to_module = to_module
        self.places: dict[CallPlace | None, CallPlace] = {}

    def last_of(self, frame: FrameType | None) -> FrameType | None:
        """Return the outermost of the frames, from `frame` outwards; None if they are others."""
        # For every op, and every frame of a library around it: nothing here that is not needed.
        for code, lasti in self._inner:
            if frame is None or frame.f_code is not code or frame.f_lasti != lasti:
                return None
            frame = frame.f_back
        code, lasti = self._outermost
        is_same = frame is not None and frame.f_code is code and frame.f_lasti == lasti
        return frame if is_same else None


class Sources:
    """Finds the user's code on the stack."""

    def __init__(self, root: str | None = None) -> None:
        """Begin without any file.

        Args:
            root: the folder of the user's own code; None: all that is in no package is.
        """
        self._files: dict[str, int] = {}
        self._places: dict[Any, CallPlace] = {}
        self._trails: dict[tuple[int, int], tuple[Trail, ...]] = {}
        self._texts: dict[tuple[str, bool], str] = {}
        self._root = root

    def place(self, frame: FrameType | None, ranges: Sequence[CallRange]) -> CallPlace | None:
        """Return where a call is made, from `frame` outwards to the user's own code; None: nowhere.

        Code that torch.compile compiled has lost its lines: its place is that of its caller.

        Args:
            frame: of the call.
            ranges: that are open on this thread, the innermost last. As long as a module runs,
                the frames around its call stay where they are: they are looked at once.
        """
        if frame is None:
            return None
        for trail in self._trails.get((id(frame.f_code), frame.f_lasti), ()):
            last = trail.last_of(frame)
            if last is None:
                continue
            call = _range_of(last, ranges) if trail.to_module else None
            if (call is None) != trail.to_module:
                outer = None if call is None else self._outside(last, call, ranges)
                found = trail.places.get(outer)
                if found is not None:
                    return found
            break
        return self._walk(frame, ranges)

    def kind_of(self, frame: FrameType) -> int:
        """Return whose code a frame runs: nobody's, a library's, or the user's own."""
        kind = self._files.get(frame.f_code.co_filename)
        kind = self._add(frame) if kind is None else kind
        return _NOBODYS if kind == _MODULE_CALL else kind

    def own_lines(self, frame: FrameType | None) -> list[str]:
        """Return the lines of the user's own code around a frame, the innermost first."""
        found: list[str] = []
        while frame is not None and len(found) < FRAMES_AT_MOST:
            kind = self._files.get(frame.f_code.co_filename)
            if (self._add(frame) if kind is None else kind) == _OWN:
                found.append(_line(frame))
            frame = frame.f_back
        return found

    def _outside(
        self, frame: FrameType, call: CallRange, ranges: Sequence[CallRange]
    ) -> CallPlace | None:
        """Return from where a module is called, whose call a frame of ours is."""
        if call.place is UNKNOWN:
            # The next one is the same for nearly all modules, and no good beginning of a trail.
            outer = frame.f_back
            if outer is not None and self._files.get(outer.f_code.co_filename) == _NOBODYS:
                outer = outer.f_back
            call.place = self.place(outer, ranges)
        return call.place

    def _walk(self, start: FrameType, ranges: Sequence[CallRange]) -> CallPlace | None:
        """Return the same as `place`, whose first calls come from here."""
        passed: list[FrameType] = []
        found: list[FrameType] = []
        for frame, kind in self._outwards(start):
            passed.append(frame)
            call = _range_of(frame, ranges) if kind == _MODULE_CALL else None
            if call is not None:
                outer = self._outside(frame, call, ranges)
                return self._remember(passed, found, outer, to_module=True)
            if kind in (_LIBRARYS, _OWN):
                found.append(frame)
            if kind == _OWN:
                return self._remember(passed, found, None, to_module=False)
        return self._intern(found, None)

    def _outwards(self, frame: FrameType | None) -> Iterator[tuple[FrameType, int]]:
        """Yield frames and what they are, up to the user's own."""
        compiled = compiled_codes()
        inner: FrameType | None = None
        while frame is not None:
            kind = self._files.get(frame.f_code.co_filename)
            if kind is None:
                kind = self._add(frame)
            # Compiled code calls graphs from its first line, and the rest of the function after a
            # graph break from any. It calls what it could not compile from the line of that.
            if (kind and frame.f_code in compiled) and (
                frame.f_lineno == frame.f_code.co_firstlineno
                or (inner is not None and is_continuation(inner.f_code))
            ):
                inner, kind = frame, _NOBODYS
            # The frames around code that lost its line are looked at together with it.
            yield frame, _NOBODYS if kind == _MODULE_CALL and inner is not None else kind
            if kind == _OWN:
                return
            frame = frame.f_back

    def _remember(
        self,
        passed: Sequence[FrameType],
        found: Sequence[FrameType],
        outer: CallPlace | None,
        *,
        to_module: bool,
    ) -> CallPlace | None:
        """Return the place of the frames that were found, and remember all that led to it."""
        place = self._intern(found, outer)
        if place is not None:
            key = id(passed[0].f_code), passed[0].f_lasti
            steps = tuple((frame.f_code, frame.f_lasti) for frame in passed)
            known = self._trails.get(key, ())
            trail = next((trail for trail in known if trail.steps == steps), None)
            if trail is None:
                trail = Trail(steps, to_module=to_module)
                self._trails[key] = (trail, *known[: TRAILS_AT_MOST - 1])
            trail.places[outer] = place
        return place

    def _intern(self, frames: Sequence[FrameType], outer: CallPlace | None) -> CallPlace | None:
        """Return the place of some frames inside of another one, the same for the same lines."""
        if not frames:
            return outer
        key: Any
        if len(frames) == 1:
            key = outer, id(frames[0].f_code), frames[0].f_lasti
        else:
            key = outer, *map(_lasti, frames), *map(id, map(_code, frames))
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= PLACES_AT_MOST:
                self._places.clear()
                self._trails.clear()
            found = self._places[key] = CallPlace(frames, outer)
        return found

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
        module = str(frame.f_globals.get("__name__"))
        package, _, _ = module.partition(".")
        path = frame.f_code.co_filename
        whose = _MODULE_CALL if module == _HOOKS else _NOBODYS
        if package != "torch" and (_CELL.fullmatch(path) or is_user_file(path)):
            shown = shown_path(path)
            is_own = not is_installed_file(path) and is_own_path(shown, self._root)
            whose = _OWN if is_own else _LIBRARYS
        self._files[path] = whose
        return whose


def _range_of(frame: FrameType, ranges: Sequence[CallRange]) -> CallRange | None:
    """Return the open range of a module whose call a frame is; None: it has none."""
    # A frame that runs has an id of its own.
    wanted = id(frame)
    for found in reversed(ranges):  # on the critical path: no generator
        if found.frame == wanted:
            return found
    return None


@lru_cache(FILES_AT_MOST)
def shown_path(path: str) -> str:
    """Return the path of a file from the root on, or `cell 3` for the file of a notebook's cell."""
    cell = _CELL.fullmatch(path)
    if cell is None:
        # Code that is made while it runs is in no file, whatever it is called.
        full = _absolute(path)
        return full if Path(full).exists() else path.replace("\n", " ")
    if cell[1]:
        return f"cell {cell[1]}"
    # IPython knows by which number it shows the cell that it keeps in a file.
    get_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    name = getattr(getattr(get_shell(), "compile", None), "format_code_name", lambda _: None)
    match = re.search(r"\[(\d+)\]", str(name(path)))
    return f"cell {match[1]}" if match else path


def _absolute(path: str) -> str:
    # Not resolved: what is found through a link is where the user put it.
    return os.path.abspath(path)  # noqa: PTH100
