"""The recordings of a workspace, and the files in it that they are of."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, TypedDict

from pyprof2.frames import LARGEST, is_absolute
from pyprof2.lsp.costs import costs_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyprof2.lsp.costs import Costs, FileCosts

_STORE: Final = ".pyprof2"
_TRACES: Final = (".json.gz", ".pt.trace.json", ".nsys-rep", ".sqlite")
"""Suffixes of recordings; other JSON is much more often something else."""
_SKIPPED: Final = {"node_modules", "__pycache__", "site-packages", "build", "dist"}
_DEEPEST: Final = 5
_MOST_ENTRIES: Final = 20_000
_MOST_TRIED: Final = 6
"""So many recordings are looked at for one that is of the workspace: reading takes seconds."""

SAME, CHANGED, MISSING, UNKNOWN = "same", "changed", "missing", "unknown"
"""The state of a recorded file now; unknown: its recorded content is not known."""


class FoundRecording(TypedDict):
    """A recording that belongs to a workspace, or why there is none.

    Attributes:
        costs: of its lines; None: there is no recording.
        local: the path here of each file that it names.
        states: `SAME`, `CHANGED`, `MISSING` or `UNKNOWN` of each.
        before: by path here the text that was recorded, of those that are the same.
        passed: recordings that are newer, and why they were passed over.
    """

    costs: Costs | None
    local: dict[str, str]
    states: dict[str, str]
    before: dict[str, str]
    passed: list[str]


def search(roots: Sequence[str]) -> list[Path]:
    """Return the recordings below folders, the newest first."""
    found = {path for root in roots for path in _below(Path(root))}
    stores = {path.name.removesuffix(_STORE) for path in found if path.suffix == _STORE}
    kept = [p for p in found if p.suffix == _STORE or p.name.partition(".")[0] not in stores]
    return sorted(kept, key=_written_at, reverse=True)


def _written_at(path: Path) -> float:
    try:
        # The folder of a store changes when something is put beside its tables.
        return (path / "manifest.json" if path.suffix == _STORE else path).stat().st_mtime
    except OSError:
        return 0.0


def _below(root: Path) -> Iterator[Path]:
    """Yield recordings below a folder: no links, no hidden folders, not all too deep."""
    left, waiting = _MOST_ENTRIES, [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        for entry in _entries(folder):
            left -= 1
            if left < 0:
                return
            if entry.is_dir(follow_symlinks=False):
                if Path(entry.path).suffix == _STORE:
                    if Path(entry.path, "manifest.json").is_file():
                        yield Path(entry.path)
                elif depth < _DEEPEST and entry.name not in _SKIPPED and entry.name[0] != ".":
                    waiting.append((entry.path, depth + 1))
            elif entry.name.endswith(_TRACES) and entry.is_file(follow_symlinks=False):
                yield Path(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def newest(
    roots: Sequence[str],
    more: Sequence[str],
    mapped: Mapping[str, str],
    opened: Sequence[str] = (),
) -> FoundRecording:
    """Return the newest recording that has lines of an open file, else of any below the roots.

    Args:
        roots: the folders of the workspace.
        more: other folders to search.
        mapped: folders as they are called where it was recorded, and here.
        opened: the files that are open, with links resolved; none: any file counts.
    """
    from pyprof2.errors import Pyprof2Error

    passed: list[str] = []
    of_others: FoundRecording | None = None
    for path in search([*roots, *more])[:_MOST_TRIED]:
        try:
            found = read(path, roots, mapped)
        except (Pyprof2Error, OSError) as error:
            passed.append(f"{path.name}: {error}")
            continue
        if set(found["states"].values()) & {SAME, CHANGED, UNKNOWN}:
            found["passed"] = [*passed]
            if not opened or any(
                os.path.realpath(here) in opened for here in found["local"].values()
            ):
                return found
            of_others = of_others or found
            continue
        passed.append(f"{path.name}: no line of it is of a file of this workspace{_where(found)}")
    return of_others or FoundRecording(costs=None, local={}, states={}, before={}, passed=passed)


def _where(found: FoundRecording) -> str:
    """Return the folder that `pathMap` could map; empty: the files have none in common."""
    folders = [PurePosixPath(name).parent for name in found["states"] if name.startswith("/")]
    folder = os.path.commonpath(folders) if folders else "/"
    return "" if folder == "/" else f"; its files are in {folder}: see pathMap"


def read(
    path: Path, roots: Sequence[str], mapped: Mapping[str, str], within: str | None = None
) -> FoundRecording:
    """Return a recording with where its files are here.

    Raises:
        TraceError, StoreError: it cannot be read.
        UsageError: there is no such module.
    """
    costs = costs_of(path, within)
    local, states, before = {}, {}, {}
    for name, file in costs["files"].items():
        place = locate(name, costs["root"], roots, mapped)
        states[name], content = _state(place, file, costs["recorded_at"])
        if place is not None:
            local[name] = str(place)
            if states[name] == SAME:
                before[str(place)] = content.decode("utf-8", "replace")
    return FoundRecording(costs=costs, local=local, states=states, before=before, passed=[])


def locate(
    name: str, recorded_root: str | None, roots: Sequence[str], mapped: Mapping[str, str]
) -> Path | None:
    """Return the file here that a recording names; None: there is none in the workspace.

    A path of another machine is looked for below each root from the recorded root on.
    """
    for there, here in mapped.items():
        if name.startswith(there.rstrip("/") + "/"):
            return _file(Path(here, name[len(there.rstrip("/")) + 1 :]))
    found = _file(Path(name)) if is_absolute(name) else None
    if found and any(found.is_relative_to(root) for root in roots):
        return found
    relative = name
    if is_absolute(name):
        if recorded_root is None or not name.startswith(recorded_root.rstrip("/") + "/"):
            return None
        relative = name[len(recorded_root.rstrip("/")) + 1 :]
    if ".." in PurePosixPath(relative).parts:
        return None
    return next((found for root in roots if (found := _file(Path(root, relative)))), None)


def _file(path: Path) -> Path | None:
    try:
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def _state(place: Path | None, file: FileCosts, recorded_at: float) -> tuple[str, bytes]:
    """Return the state of a file, and its content; without hashes its age decides."""
    if place is None:
        return MISSING, b""
    try:
        with place.open("rb") as opened:
            content = opened.read(LARGEST + 1)
        written = place.stat().st_mtime
    except OSError:
        return MISSING, b""
    if len(content) > LARGEST:
        return UNKNOWN, b""
    if file["sha256"] is not None:
        is_same = hashlib.sha256(content).hexdigest() == file["sha256"]
        return SAME if is_same else CHANGED, content
    return UNKNOWN if written > recorded_at else SAME, content
