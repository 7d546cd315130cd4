"""One module per trace format; which one reads a file is decided by the file's content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.errors import TraceError
from pyprof2.parsers._other_files import other_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyprof2.recording import Recording

_NSIGHT_MAGICS: Final = (b"SQLite format 3\x00", b"NVIDIA Tegra Profiler Report")
_NSIGHT_SUFFIXES: Final = (".nsys-rep", ".sqlite")
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
    from pyprof2.parsers import kineto

    head = _head(path)
    if (other := other_file(path.name, head)) is not None:
        msg = f"{path}: {other}"
        raise TraceError(msg)
    is_nsight = head.startswith(_NSIGHT_MAGICS)
    if is_nsight or (path.suffix in _NSIGHT_SUFFIXES and not kineto.looks_like(head)):
        from pyprof2.parsers import nsight

        return nsight.read_recordings(path, folder, on_progress)
    if head and not kineto.looks_like(head):
        msg = (
            f"{path}: not a trace; pyprof2 reads the JSON that torch.profiler exports, and the "
            "SQLite that nsys exports"
        )
        raise TraceError(msg)
    return kineto.read_recordings(path, folder, on_progress)


def holds_work(path: Path) -> bool:
    """Return whether any op or GPU activity is in a trace; reads no further than the first.

    Raises:
        TraceError: the file cannot be read.
    """
    if _head(path).startswith(_NSIGHT_MAGICS):
        from pyprof2.parsers import nsight

        return nsight.holds_work(path)
    from pyprof2.parsers import kineto

    return kineto.holds_work(path)


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

    In a folder, files count whose name ends in `.json`, `.gz`, `.sqlite` or `.nsys-rep`; hidden
    files do not, nor does a report of nsys whose export is there as well.

    Raises:
        TraceError: the path does not exist, or the folder has no traces.
    """
    if not path.is_dir():
        _head(path)
        return [path]
    endings = (".json", ".gz", *_NSIGHT_SUFFIXES)
    try:
        files = sorted(p for p in path.iterdir() if p.name.endswith(endings) and p.is_file())
    except OSError as error:
        msg = f"{path}: {error.strerror or error}"
        raise TraceError(msg) from error
    exported = {file.stem for file in files if file.suffix == ".sqlite"}
    traces = [
        file
        for file in files
        if not file.name.startswith(".")
        and not (file.suffix == ".nsys-rep" and file.stem in exported)
    ]
    if not traces:
        msg = f"{path}: no traces in this folder; name one that has {', '.join(endings)} files"
        raise TraceError(msg)
    return traces
