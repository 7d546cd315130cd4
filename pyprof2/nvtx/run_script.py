"""Run a script with the annotation on, and record it: the process behind `pyprof2 capture`.

The script runs as `python SCRIPT ARGS…` would run it, and ends as it ends there: with its exit
code, or with its own traceback.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import os
import runpy
import signal
import sys
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyprof2.nvtx import run_entry
from pyprof2.nvtx.annotation import Capture, begin_capture, end_capture, shutdown
from pyprof2.nvtx.recorders import BY_SIGNAL, NsysWindow, TorchRecorder, say

if TYPE_CHECKING:
    from types import TracebackType

INTERRUPTED: Final = BY_SIGNAL + signal.SIGINT

_OUR_FOLDER: Final = str(Path(__file__).parent)
_RUNPY: Final = (runpy.__file__, "<frozen runpy>")


def main(argv: list[str]) -> None:
    """Run what `argv` names, see `_parse`; exit as the script does."""
    args = _parse(argv)
    process = os.getpid()
    code = _run_to_its_end(args)
    if os.getpid() != process:
        _leave_fork(code)
    if args.exit_code is not None:
        args.exit_code.write_text(str(code & 0xFF))
    sys.exit(code)


def _run_to_its_end(args: argparse.Namespace) -> int:
    """Run the script, show what it does not catch as Python does, and return its exit code."""
    try:
        if args.is_entry:
            return run_entry.run(args, partial(_begin, args))
        _run(args)
    except SystemExit as stop:
        if stop.code is None or isinstance(stop.code, int):
            return stop.code or 0
        print(stop.code, file=sys.stderr)  # noqa: T201 -- what Python does
        return 1
    except BaseException as error:  # noqa: BLE001 -- whatever it is
        trace = _of_the_script(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _leave_fork(code: int) -> NoReturn:
    """End a process that the script forked, as Python does, but for what comes after Python.

    The library that records waits there for its thread, which only the parent has.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 -- joins the threads
    atexit._run_exitfuncs()  # noqa: SLF001 -- there is no other way
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_script", allow_abbrev=False)
    parser.add_argument("--trace", type=Path, help="what torch.profiler writes; without: nsys")
    parser.add_argument("--exit-code", type=Path, help="a file for it, which nsys may lose")
    parser.add_argument("--first", type=int, help="the first step to record")
    parser.add_argument("--last", type=int, help="and the last one")
    parser.add_argument("--snapshot", type=Path, help="and what memory is for; a file for a GPU's")
    parser.add_argument("--source-root", help="the folder of the user's own code")
    parser.add_argument("--memory", action="store_true", help="torch.profiler records it too")
    parser.add_argument("-m", dest="is_module", action="store_true")
    _add_entry(parser)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


def _add_entry(parser: argparse.ArgumentParser) -> None:
    """Declare what is for entry points alone; see `run_entry`."""
    parser.add_argument("--entry", dest="is_entry", action="store_true")
    parser.add_argument("--facts", type=Path, help="a file for what the run says of itself")
    parser.add_argument("--batch", type=int, help="the batch size; without: the default")
    parser.add_argument("--on-cpu", action="store_true", help="the CPU in place of a GPU")
    parser.add_argument("--threads", type=int, help="that share the work of an op")
    parser.add_argument("--memory-limit", type=int, help="bytes that a GPU gives at most")
    parser.add_argument("--timed", action="store_true", help="take times, record nothing")


def _run(args: argparse.Namespace) -> None:
    sys.argv = [args.script, *args.arguments]
    with ExitStack() as undo:
        _begin(args, undo)
        if args.is_module:
            runpy.run_module(args.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(args.script, run_name="__main__")


def _begin(args: argparse.Namespace, undo: ExitStack) -> None:
    """Begin to annotate, and to record when it is time; `undo` takes what ends it."""
    steps = None if args.first is None else range(args.first, args.last + 1)
    recorder: TorchRecorder | NsysWindow | None = None
    if args.trace is not None:
        recorder = TorchRecorder(
            args.trace, end_capture, memory=args.memory, snapshot=args.snapshot
        )
    elif steps is not None:
        recorder = NsysWindow(end_capture)
    undo.callback(shutdown)
    if recorder is not None:
        undo.callback(recorder.finish)
        if steps is not None:
            undo.callback(_say_where_it_ended, recorder, steps)
    sink: Any = "nvtx" if args.trace is None else "kineto"
    root = args.source_root or _own_folder(args)
    begin_capture(Capture(sink, steps, root, recorder, memory=args.snapshot is not None))


def _own_folder(args: argparse.Namespace) -> str:
    """Return the folder of the user's own code: the script's, or of a module the current one."""
    return str(Path.cwd() if args.is_module else Path(args.script).absolute().parent)


def _say_where_it_ended(recorder: TorchRecorder | NsysWindow, steps: range) -> None:
    if not recorder.has_begun:
        say(f"step {steps[0]} did not begin: the script made fewer steps, or none that shows")


def _of_the_script(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from where it is in the script, as without us."""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if path not in _RUNPY and not path.startswith(_OUR_FOLDER):
            break
        trace = trace.tb_next
    return trace
