"""The memory of a store, a trace, a snapshot of the allocator, or a folder of either."""

from __future__ import annotations

import re
import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import TraceError
from pyprof2.store.places import place
from pyprof2.store.remote import here

if TYPE_CHECKING:
    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.analysis.memory.profile import MemoryProfile

_RANK: Final = re.compile(r"rank[-_]?(\d{1,9})(?!\d)")


def memory(
    path: Path | str,
    *,
    source_root: Path | str | None = None,
    progress: bool = False,
    span: int | str = "latest",
) -> MemoryProfile:
    """Return the memory that a recording says, as `pyprof2 memory` shows it.

    Args:
        path: a store, a trace, what `torch.cuda.memory._dump_snapshot` wrote, or a folder of
            traces or of snapshots, one per rank; or its address, or `-`.
        source_root: of a store or trace: the folder of the user's own code.
        progress: show a bar on stderr while parsing.
        span: of a store or trace: see `pyprof2.api.run.Run.of_span`.

    Raises:
        TraceError, StoreError: the path cannot be read.
        UsageError: there is no such span.
    """
    from pyprof2.api.run import load
    from pyprof2.api.run_memory import memory_by_device

    path = place(path)
    folder = tempfile.mkdtemp(prefix="pyprof2-")
    run = None
    try:
        with here([path], Path(folder, "brought"), progress=progress) as brought:
            (local,) = brought.paths
            if snapshots := snapshots_at(local):
                found = _of_snapshots(local, snapshots)
            else:
                run = load(local, source_root=source_root, progress=progress)
                found = memory_by_device(run.tables.of_span(span))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    if run is None:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        # It is read further when somebody asks when forward was.
        weakref.finalize(run.tables, shutil.rmtree, folder, ignore_errors=True)
    return replace(found, path=path)


def snapshots_at(path: Path) -> list[Path]:
    """Return the snapshot at a path, or those in the folder there; none: it is something else."""
    from pyprof2.parsers.snapshot import ENDINGS, is_snapshot

    if not path.is_dir():
        return [path] if is_snapshot(path) else []
    files = sorted(p for p in path.iterdir() if p.suffix in ENDINGS and not p.name.startswith("."))
    return [file for file in files if is_snapshot(file)]


def _of_snapshots(path: Path, files: list[Path]) -> MemoryProfile:
    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.analysis.memory.snapshots import curves_of_snapshot
    from pyprof2.parsers.snapshot import read_snapshot

    curves: list[MemoryCurve] = []
    settings: dict[str, Any] = {}
    for rank, file in _ranked(files).items():
        snapshot = read_snapshot(file)
        settings = settings or snapshot.settings
        curves += curves_of_snapshot(snapshot, rank)
    return MemoryProfile(path, curves, settings)


def _ranked(files: list[Path]) -> dict[int, Path]:
    """Return the files by rank, as their names say it; where any does not, in order.

    Raises:
        TraceError: two claim one rank.
    """
    if len(files) == 1:
        return {0: files[0]}
    found = [_RANK.search(file.name) for file in files]
    if not all(found):
        return dict(enumerate(files))
    ranks: dict[int, Path] = {}
    for match, file in zip(found, files, strict=True):
        rank = int(match[1]) if match else 0
        if rank in ranks:
            msg = f"{file}: rank {rank} is {ranks[rank].name} already; leave one of them out"
            raise TraceError(msg)
        ranks[rank] = file
    return ranks
