"""Run a script with the annotation on, and record it: the process behind `pyprof2 capture`.

Usage: python -m pyprof2.nvtx.run_script RECORDING [-m] SCRIPT ARGS…

`RECORDING` is the trace that torch.profiler writes, or `-`: somebody else, such as nsys, records
the NVTX ranges. The script runs as `python SCRIPT ARGS…` would run it, and ends as it ends there:
with its exit code, or with its own traceback.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.nvtx.annotation import init, introduce, shutdown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

NO_RECORDING: Final = "-"
_BY_SIGNAL: Final = 128
INTERRUPTED: Final = _BY_SIGNAL + signal.SIGINT

_OUR_FILES: Final = frozenset((__file__, runpy.__file__, "<frozen runpy>"))


def main(argv: list[str]) -> None:
    """Run what `argv` names: the recording, perhaps `-m`, the script and its arguments."""
    recording, *rest = argv
    is_module = rest[0] == "-m"
    script, *arguments = rest[is_module:]
    sys.argv = [script, *arguments]
    if not is_module:
        # As Python does it: a script imports from its own folder, a module from the current one.
        sys.path[0] = str(Path(script).resolve().parent)
    sys.excepthook = _show_without_us
    with _marked() if recording == NO_RECORDING else _recorded(Path(recording)):
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(script, run_name="__main__")


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    """Write NVTX ranges."""
    init(sink="nvtx")
    try:
        yield
    finally:
        shutdown()


@contextlib.contextmanager
def _recorded(path: Path) -> Iterator[None]:
    """Record everything with torch.profiler, and write it, whole or not at all, also on errors."""
    from torch.profiler import profile

    init(sink="kineto")
    profiler = profile(record_shapes=True)
    signal.signal(signal.SIGTERM, _end)
    profiler.start()
    introduce()
    try:
        yield
    finally:
        profiler.stop()
        shutdown()
        # The end of the name says whether torch compresses it.
        unfinished = path.with_name(f".{os.getpid()}.{path.name}")
        try:
            profiler.export_chrome_trace(str(unfinished))
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)


def _end(number: int, _frame: object) -> None:
    """End the script as if it had asked for it, so that what was recorded is written."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_BY_SIGNAL + number)


def _show_without_us(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Show a traceback that begins in the script, as without us."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OUR_FILES:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except KeyboardInterrupt as interrupt:
        # Python itself ends a script so, but not a module.
        _show_without_us(KeyboardInterrupt, interrupt, interrupt.__traceback__)
        sys.exit(INTERRUPTED)
