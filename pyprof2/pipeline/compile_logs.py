"""Logs of torch's compiler that say what the kernels of compiled graphs are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.errors import TraceError
from pyprof2.own_files import of_their_owner
from pyprof2.parsers.torch_trace import LOG_NAME, find_logs, read_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyprof2.recording import CompiledGraph, CompileEvent, Recording


def find_compile_logs(files: Sequence[Path], named: Path | None) -> list[Path]:
    """Return the logs: those that are named, else those beside the recordings, of their owner.

    Raises:
        TraceError: there is none in the folder that is named.
    """
    if named is None:
        folders = dict.fromkeys(file.parent for file in files)
        beside = [path for folder in folders for path in find_logs(folder)]
        return of_their_owner(beside, files, "--torch-trace")
    found = find_logs(named)
    if not found:
        msg = f"{named}: no {LOG_NAME} in it; name that of TORCH_TRACE, or torch_compile_debug"
        raise TraceError(msg)
    return found


def add_compiled(
    recordings: Sequence[Recording], logs: Sequence[Path]
) -> list[tuple[Path, TraceError]]:
    """Give recordings what logs say of their graphs; return the logs that cannot be read.

    What our own annotation noted in a recording is better: such a one needs no log. A log that says
    of which rank it is goes with that rank alone.
    """
    wanted = [each for each in recordings if not each.compiled]
    failed: list[tuple[Path, TraceError]] = []
    graphs: list[tuple[int | None, CompiledGraph]] = []
    events: list[tuple[int | None, CompileEvent]] = []
    for path in logs if wanted else ():
        try:
            found = read_log(path)
            graphs += found.graphs
            events += found.events
        except TraceError as error:
            failed.append((path, error))
    for recording in wanted:
        own = (None, recording.rank or 0)
        recording.compiled = [graph for rank, graph in graphs if rank in own]
        recording.compile_events += [event for rank, event in events if rank in own]
    return failed
