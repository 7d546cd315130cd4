"""One module per trace format; which one reads a file is decided by the file's content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError
from pyprof2.parsers.formats import ENDINGS, FORMATS, NSYS_SQLITE, find_format, other_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.recording import Recording

_HEAD_BYTES: Final = 4096


def read_recordings(
    path: Path, folder: Path, on_progress: Callable[[int], None] | None = None
) -> list[Recording]:
    """Return the recordings in a trace file, one per process; their tables go into `folder`.

    Args:
        path: the trace.
        folder: where the raw tables are spooled; it must stay as long as they are read.
        on_progress: called with the position in the file, in bytes.

    Raises:
        TraceError: the file cannot be read, or is no trace that this version reads.
    """
    head = _head(path)
    if (other := other_file(path.name, head)) is not None:
        msg = f"{path}: {other}"
        raise TraceError(msg)
    # An empty file has the suffix of its format, or is said to be empty by the first.
    found = find_format(path.name, head) or (None if head else FORMATS[0])
    if found is None:
        readable = ", and ".join(known.source for known in FORMATS)
        msg = f"{path}: not a trace; pyprof2 reads {readable}"
        raise TraceError(msg)
    from pyprof2.parsers._odd_frames import examine_frames
    from pyprof2.parsers._odd_work import examine_work

    recordings = found.load_reader().read_recordings(path, folder, on_progress)
    for recording in recordings:
        examine_work(recording, path)
        examine_frames(recording)
    return recordings


def holds_work(path: Path) -> bool:
    """Return whether any op or GPU activity is in a trace; reads no further than the first.

    Raises:
        TraceError: the file cannot be read.
    """
    found = find_format(path.name, _head(path)) or FORMATS[0]
    return found.load_reader().holds_work(path)


def _head(path: Path) -> bytes:
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            msg = f"{path}: no file but a pipe or a device; write it to a file, and name that"
            raise TraceError(msg)
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except OSError as error:
        msg = f"{path}: {error.strerror or error}; name a trace file or a folder of them"
        raise TraceError(msg) from error


def find_traces(path: Path) -> list[Path]:
    """Return the trace files that a path names: itself, or those in the folder.

    In a folder, files count whose name ends as recordings of some format do; hidden files do not,
    nor does a report whose export is there as well.

    Raises:
        TraceError: the path does not exist, or the folder has no traces.
    """
    if not path.is_dir():
        _head(path)
        return [path]
    try:
        files = sorted(p for p in path.iterdir() if p.name.endswith(ENDINGS) and p.is_file())
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error
    names = {file.name for file in files}
    # A report whose export is there as well is not read.
    exported = {
        name
        for name in names
        for report, export in (pair for known in FORMATS for pair in known.exports)
        if name.endswith(report) and name.removesuffix(report) + export in names
    }
    traces = [p for p in files if not p.name.startswith(".") and p.name not in exported]
    if not traces:
        msg = f"{path}: no traces in this folder; name one that has {', '.join(ENDINGS)} files"
        if any(file.suffix in (".parquet", ".arrow") for file in path.iterdir()):
            msg = f"{path}: no traces in this folder; {NSYS_SQLITE}"
        raise TraceError(msg)
    return traces
