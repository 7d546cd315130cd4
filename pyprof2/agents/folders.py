"""Which recordings may be read: those in the folders that the server was started with.

A path is judged by where it leads, links followed. What is parsed is laid out in a folder of
its own first, so that nothing beside or above a recording is read unless it is inside too.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError
from pyprof2.store.folder import is_store
from pyprof2.store.remote import store_named_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_CAPTURES: Final = "capture_traces"
_LOGS: Final = "dedicated_log_torch_trace*.log"
_ENDINGS: Final = (".json", ".json.gz", ".sqlite", ".nsys-rep", ".pyprof2")
_MOST_FILES: Final = 10_000
_LISTED: Final = 60
_DEEP: Final = 4


@dataclass(frozen=True)
class Folders:
    """The folders that may be read.

    Attributes:
        roots: their real paths.
    """

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, paths: Sequence[Path]) -> Folders:
        """Return folders by their paths.

        Raises:
            TraceError: one is no folder.
        """
        wrong = next((path for path in paths if not path.is_dir()), None)
        if wrong is not None:
            msg = f"{wrong}: no folder; name the folders that recordings lie in"
            raise TraceError(msg)
        return cls(tuple(path.resolve() for path in paths))

    def holds(self, path: Path) -> bool:
        """Return whether a path leads into one of the folders."""
        try:
            real = path.resolve()
        except RuntimeError:  # a loop of links
            return False
        return any(real.is_relative_to(root) for root in self.roots)

    def find(self, name: str) -> Path:
        """Return the real path of a recording or store that is named.

        Args:
            name: below one of the folders, or absolute.

        Raises:
            TraceError: there is none, or it is outside of the folders, by a link too.
        """
        places = [] if "\0" in name or not name.strip() else [root / name for root in self.roots]
        inside = [place.resolve() for place in places if self.holds(place)]
        found = next((place for place in inside if place.exists()), None)
        # The message does not say whether what lies outside is there.
        if found is None or found in self.roots:
            msg = f"{name}: not in the folders of this server; open() lists what is"
            raise TraceError(msg)
        store = store_named_in(found)
        found = found if store is None else store.resolve()
        if any(not self.holds(each) for each in (found, *_below(found))):
            msg = f"{name}: leads out of the folders of this server"
            raise TraceError(msg)
        return found

    def lay_out(self, found: Path, stage: Path) -> Path:
        """Make links to a recording and to what belongs to it in a new folder, and return that.

        Args:
            found: what `find` gave, no store.
            stage: an empty folder, in a folder of nobody else's.
        """
        named = stage / found.name
        if found.is_dir():
            for path in _below(found):
                if path.is_file():
                    place = named / path.relative_to(found)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    _link(place, path.resolve())
            return named
        _link(named, found)
        for beside in (*found.parent.glob(_LOGS), *found.parent.glob(f"{_CAPTURES}/*")):
            if beside.is_file() and self.holds(beside):
                place = stage / beside.relative_to(found.parent)
                place.parent.mkdir(exist_ok=True)
                _link(place, beside.resolve())
        return named

    def listed(self) -> tuple[list[str], bool]:
        """Return the names of what can be opened, and whether there are more."""
        names: list[str] = []
        for root in self.roots:
            for path in _candidates(root, _DEEP):
                if not self.holds(path):
                    continue
                if len(names) == _LISTED:
                    return names, True
                names.append(str(path.relative_to(root)))
        return names, False


def _candidates(folder: Path, depth: int) -> Iterator[Path]:
    """Yield stores and files with the ending of a recording; stores are not looked into."""
    for path in sorted(folder.iterdir()):
        is_closed = path.is_dir() and not os.access(path, os.R_OK | os.X_OK)
        if path.name.startswith(".") or is_closed:
            continue
        if is_store(path) or (path.name.endswith(_ENDINGS) and path.is_file()):
            yield path
        elif depth and path.is_dir() and not path.is_symlink():
            yield from _candidates(path, depth - 1)


def _link(place: Path, target: Path) -> None:
    """Make a link to a file; a copy where nobody may make links (Windows)."""
    try:
        place.symlink_to(target)
    except OSError:
        shutil.copyfile(target, place)


def _below(found: Path) -> Iterator[Path]:
    """Yield what lies below a folder, links not followed.

    Raises:
        TraceError: it is too much to look at.
    """
    if not found.is_dir():
        return
    for count, path in enumerate(found.rglob("*")):
        if count >= _MOST_FILES:
            msg = f"{found.name}: more than {_MOST_FILES:,} files; name one recording"
            raise TraceError(msg)
        yield path
