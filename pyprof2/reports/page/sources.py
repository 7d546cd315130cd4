"""Source code on the page: only files below the folder that the user names.

A recording names files, and may be anybody's: it must not be able to put a file of the reader's
into a page that is then passed on. So nothing is read but Python files below that folder, whose
names do not begin with a dot, that are no links to elsewhere and no devices.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from pyprof2.frames import is_absolute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LARGEST: Final = 1 << 20
"""Bytes of the largest file that is embedded."""
MOST: Final = 4 << 20
"""Bytes of all files together."""
_SUFFIXES: Final = (".py", ".pyw", ".pyx")


def sources_of(lines: Iterable[str], root: Path) -> list[dict[str, Any]]:
    """Return the files that lines are of: `path`, as the lines name it, and its `lines`.

    Args:
        lines: `path:line`, those with the most time first.
        root: the folder of the user's own code.
    """
    paths = dict.fromkeys(line.rpartition(":")[0] for line in lines)
    return list(_within(_files(paths, Path(os.path.realpath(root)))))


def _within(files: Iterable[tuple[str, bytes]]) -> Iterator[dict[str, Any]]:
    """Give the files until they are too much together."""
    left = MOST
    for path, content in files:
        left -= len(content)
        if left < 0:
            return
        yield {"path": path, "lines": content.decode(errors="replace").split("\n")}


def _files(paths: Iterable[str], root: Path) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        content = _read(path, root)
        if content is not None:
            yield path, content


def _read(path: str, root: Path) -> bytes | None:
    """Return the content of a file below `root`; None for any that is not to be read."""
    place = _below(path, root)
    if place is None:
        return None
    try:
        # A file of a moment ago may be a link or a pipe now: neither is followed.
        with open(place, "rb", opener=_opened) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(LARGEST + 1)
    except (OSError, ValueError):
        return None
    return None if len(content) > LARGEST or b"\0" in content else content


def _opened(path: str, flags: int) -> int:
    # Windows has neither, and no such files.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _below(path: str, root: Path) -> Path | None:
    """Return the place of a file, links followed; None if that is not below `root`."""
    plain = PurePosixPath(path)
    if "\0" in path or ".." in plain.parts or plain.suffix not in _SUFFIXES:
        return None
    if is_absolute(path) and not plain.is_absolute():
        return None
    try:
        place = Path(os.path.realpath(root / plain))
    except (OSError, ValueError):
        return None
    if not place.is_relative_to(root) or place.suffix not in _SUFFIXES:
        return None
    hidden = any(part.startswith(".") for part in place.relative_to(root).parts)
    return None if hidden else place
