"""Recordings that say what the kernels of replayed graphs are: captures, or eager steps."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from pyprof2.analysis.assembly.graph_templates import TemplateFinder
from pyprof2.analysis.assembly.linked import SharedFindings, link_recording
from pyprof2.analysis.linking.windows import windows_of
from pyprof2.errors import TraceError
from pyprof2.markers import CAPTURES
from pyprof2.own_files import of_their_owner
from pyprof2.parsers import find_traces, read_recordings
from pyprof2.pipeline.ranks import claimed, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyprof2.analysis.graphs.nodes import Templates
    from pyprof2.recording import Recording

DETAILS: Final = "execution_details.json"
"""In such a folder, what is said of each file: how large its batches are, in which mode."""
_DETAILS_MAX: Final = 1 << 24


class _Details(msgspec.Struct):
    """The facts that the folder of captures has on a file."""

    file: str
    batch_size: int | None = None
    mode: str | None = None


@dataclass(frozen=True)
class CaptureFile:
    """A recording that may hold templates.

    Attributes:
        path: the file.
        batch: the size of the batch that was captured, where its folder says it.
    """

    path: Path
    batch: int | None = None

    def source(self) -> dict[str, Any]:
        """Return what the manifest says of it."""
        return {
            "path": str(self.path),
            "bytes": self.path.stat().st_size,
            "sha256": digest_of(self.path),
        }


def find_capture_files(
    files: Sequence[Path], named: Iterable[Path], *, beside: bool
) -> list[CaptureFile]:
    """Return the recordings with captures.

    Args:
        files: the recordings that are read; none of these is one.
        named: files, and folders of them.
        beside: whether to look for a folder `capture_traces` beside the recordings, of their
            owner, where none is named.

    Raises:
        TraceError: a file that is named does not exist.
    """
    places = list(named)
    if not places and beside:
        folders = dict.fromkeys(file.parent / CAPTURES for file in files)
        beside_them = [each for each in folders if each.is_dir()]
        places = of_their_owner(beside_them, files, "--capture")
    read = {file.absolute() for file in files}
    found: dict[Path, CaptureFile] = {}
    for place in places:
        batches = _batches(place if place.is_dir() else place.parent)
        # A folder that nobody named may be empty.
        empty = place.is_dir() and beside and not any(place.iterdir())
        for path in [] if empty else find_traces(place):
            if path.absolute() not in read and path.name != DETAILS:
                found[path.absolute()] = CaptureFile(path, batches.get(path.name))
    return list(found.values())


def _batches(folder: Path) -> Mapping[str, int | None]:
    """Return the size of the batch that a folder says of each of its files."""
    file = folder / DETAILS
    if not file.is_file() or file.stat().st_size > _DETAILS_MAX:
        return {}
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[_Details])
    except (msgspec.DecodeError, RecursionError):
        return {}
    return {Path(row.file).name: row.batch_size for row in rows}


def read_templates(
    file: CaptureFile, folder: Path, root: str | None
) -> list[Templates] | TraceError:
    """Return the templates in a recording, one for each process, or why it cannot be read.

    Args:
        file: the recording.
        folder: for what is needed meanwhile.
        root: the folder of the user's own code, as it was asked for.
    """
    with tempfile.TemporaryDirectory(prefix="scratch-capture-", dir=folder) as spool:
        try:
            recordings = read_recordings(file.path, Path(spool))
        except TraceError as error:
            return error
        ranks = claimed([(file.path, each) for each in recordings])
        found = []
        for number, (recording, rank) in enumerate(zip(recordings, ranks, strict=True)):
            windows = Path(spool, f"windows-{number}")
            windows.mkdir()
            found.append(_templates(recording, rank, root, windows))
    if file.batch is not None:
        for each in found:
            each.each = [
                replace(one, batch=file.batch if one.batch is None else one.batch)
                for one in each.each
            ]
    return found


def _templates(recording: Recording, rank: int | None, root: str | None, folder: Path) -> Templates:
    shared, finder = SharedFindings(recording), TemplateFinder(recording, rank)
    counts: Counter[str] = Counter()
    for window in windows_of(recording, folder).each:
        shared.first_op = counts["ops"]
        linked = link_recording(window.recording, root or recording.source_root, shared)
        finder.learn(window.recording, linked, shared)
        counts["ops"] += len(linked.ops)
    return finder.templates


def same_captures(sources: Sequence[Mapping[str, Any]], files: Sequence[CaptureFile]) -> bool:
    """Return whether a store was made with these captures, as its manifest says it."""
    known = sorted((s["bytes"], s["sha256"]) for s in sources)
    sizes = sorted(file.path.stat().st_size for file in files)
    if sizes != [size for size, _ in known]:
        return False
    return sorted((f.path.stat().st_size, digest_of(f.path)) for f in files) == known
