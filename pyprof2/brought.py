"""What is to be read, brought here: from far away, or from standard input."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.errors import Pyprof2Error
from pyprof2.parsers.formats import ENDINGS
from pyprof2.places import STDIN, STDIN_NAME, Address, place
from pyprof2.remote import fetch
from pyprof2.store import is_store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_STORE: Final = ".pyprof2"
_LONGEST_PATH: Final = 4096


@dataclass(frozen=True)
class Found:
    """Files and folders that can be opened.

    Attributes:
        paths: where they are.
        names: the beginning of paths in the text of messages, and what the user knows it by.
    """

    paths: list[Path]
    names: list[tuple[str, str]]

    def told(self, text: str) -> str:
        """Return a text with the names that the user knows."""
        for ours, theirs in self.names:
            text = text.replace(ours, theirs)
        return text


@contextlib.contextmanager
def here(
    paths: Sequence[Path], folder: Path | None = None, *, progress: bool = False
) -> Iterator[Found]:
    """Bring what is not here; errors inside get the names that the user knows.

    Args:
        paths: files, folders, addresses of such, or `-`, which is standard input.
        folder: a new one for what is brought; by default one that goes in the end.
        progress: whether to show a bar on stderr.

    Raises:
        RemoteError: something cannot be brought.
    """
    if not any(isinstance(path, Address) or path == STDIN for path in paths):
        yield Found(list(paths), [])
        return
    with contextlib.ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyprof2-")))
        found = Found([], [])
        for number, path in enumerate(paths):
            own = folder / str(number)
            if isinstance(path, Address):
                found.paths.append(fetch(path, own, ENDINGS, progress=progress))
                found.names.append((str(found.paths[-1]), str(path)))
            elif path == STDIN:
                found.paths.append(_spool_stdin(own))
                found.names.append((str(found.paths[-1]), str(STDIN)))
            else:
                found.paths.append(path)
        try:
            yield found
        except Pyprof2Error as error:
            error.args = (found.told(str(error)),)
            raise


def store_named_in(path: Path) -> Path | None:
    """Return the store whose path is all that a file holds, as `pyprof2 parse > FILE` leaves it."""
    if not path.is_file() or path.stat().st_size > _LONGEST_PATH:
        return None
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    if len(lines) != 1 or not lines[0].endswith(_STORE) or "\0" in lines[0]:
        return None
    named = (place(lines[0]), path.parent / lines[0])
    return next((store for store in named if is_store(store)), None)


def _spool_stdin(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / STDIN_NAME
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path
