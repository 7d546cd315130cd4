"""Run a script as `python` runs it, and have it recorded: the process behind `pyprof2 capture`.

The script is `__main__` until the process ends. It is annotated and recorded from the moment at
which it has imported torch, so what it sets before that, such as variables of the environment,
works. Recording ends with its last thread that is not a daemon, before what it left to `atexit`.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import os
import pkgutil
import runpy
import signal
import sys
import threading
import traceback
from contextlib import ExitStack
from functools import partial
from importlib import machinery, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyprof2.capture.runner import BY_SIGNAL, STDIN
from pyprof2.errors import harmless

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, ModuleType

INTERRUPTED: Final = BY_SIGNAL + signal.SIGINT

_TORCH: Final = "torch"
_ANNOTATION: Final = "pyprof2.nvtx"


def main(argv: list[str]) -> None:
    """Run what `argv` names, see `_parse`; exit as the script does."""
    args = _parse(argv)
    process = os.getpid()
    recording = ExitStack()
    code, error = 0, None
    try:
        if args.is_entry:
            from pyprof2.capture import recorders, run_entry

            code = run_entry.run(args, partial(recorders.begin, args))
        else:
            begin = partial(_begin, args, recording)
            # As soon as the script has imported torch.
            if _TORCH in sys.modules:
                begin()
            else:
                sys.meta_path.insert(0, _Watch(begin))
            _run(args)
    except BaseException as caught:  # noqa: BLE001 -- whatever it is
        code, error = _show(caught), caught
    if os.getpid() != process:
        _leave_fork(code)
    _join_threads()
    _end(recording, error)
    if args.exit_code is not None:
        args.exit_code.write_text(str(code & 0xFF))
    sys.exit(code)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script", allow_abbrev=False)
    parser.add_argument("--trace", type=Path, help="what torch.profiler writes; without: nsys")
    parser.add_argument("--exit-code", type=Path, help="a file for it, which nsys may lose")
    parser.add_argument("--environment", type=Path, help="a file of variables to set")
    parser.add_argument("--first", type=int, help="the first step to record")
    parser.add_argument("--last", type=int, help="and the last one")
    parser.add_argument("--snapshot", type=Path, help="and what memory is for; a file for a GPU's")
    parser.add_argument("--source-root", help="the folder of the user's own code")
    parser.add_argument("--memory", action="store_true", help="torch.profiler records it too")
    parser.add_argument("--keep-cache", action="store_true", help="graphs may be of caches")
    parser.add_argument("-m", dest="is_module", action="store_true")
    parser.add_argument("-c", dest="is_code", action="store_true")
    _add_entry(parser)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    args = parser.parse_args(argv)
    is_file = not (args.is_module or args.is_code or args.script == STDIN)
    args.folder = Path(args.script).absolute().parent if is_file else Path.cwd()
    return args


def _add_entry(parser: argparse.ArgumentParser) -> None:
    """Declare what is for entry points alone; see `pyprof2.capture.run_entry`."""
    parser.add_argument("--entry", dest="is_entry", action="store_true")
    parser.add_argument("--facts", type=Path, help="a file for what the run says of itself")
    parser.add_argument("--batch", type=int, help="the batch size; without: the default")
    parser.add_argument("--on-cpu", action="store_true", help="the CPU in place of a GPU")
    parser.add_argument("--threads", type=int, help="that share the work of an op")
    parser.add_argument("--memory-limit", type=int, help="bytes that a GPU gives at most")
    parser.add_argument("--timed", action="store_true", help="take times, record nothing")


# -- as the interpreter runs it ----------------------------------------------------------------


@harmless("nothing is recorded")
def _begin(args: argparse.Namespace, recording: ExitStack) -> None:
    from pyprof2.capture import recorders

    recorders.begin(args, recording)


@harmless("the recording is not whole")
def _end(recording: ExitStack, error: BaseException | None) -> None:
    recording.__exit__(None if error is None else type(error), error, None)


def _run(args: argparse.Namespace) -> None:
    """Run the script, with `__main__`, `sys.argv` and `sys.path` as Python leaves them to it."""
    names = vars(sys.modules["__main__"])
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]
    if args.is_module:
        _name_arguments(["-m", args.script], "-m", args.arguments)
        _import_from(str(args.folder))
        runpy._run_module_as_main(args.script)  # type: ignore[attr-defined]  # noqa: SLF001 -- what Python calls
    elif args.is_code:
        _name_arguments(["-c", args.script], "-c", args.arguments)
        _import_from("")
        _execute(compile(args.script, "<string>", "exec", dont_inherit=True), names)
    elif args.script == STDIN:
        _name_arguments([STDIN], STDIN, args.arguments)
        _import_from("")
        names |= {"__file__": "<stdin>", "__cached__": None}
        _execute(compile(sys.stdin.buffer.read(), "<stdin>", "exec", dont_inherit=True), names)
    else:
        _name_arguments([args.script], args.script, args.arguments)
        # Python writes the path into `__file__` with its links and `..`.
        if sys.platform == "win32":
            path = os.path.abspath(args.script)  # noqa: PTH100 -- see above
        else:
            path = os.path.join(os.getcwd(), args.script)  # noqa: PTH109, PTH118 -- see above
        _run_path(path, names)


def _name_arguments(how: Sequence[str], first: str, arguments: Sequence[str]) -> None:
    """Let `sys` say with which arguments Python runs."""
    # Ahead of `-c`, our program and its arguments stand the options of the interpreter.
    own = len(sys.orig_argv) - len(sys.argv) - 1
    sys.orig_argv = [*sys.orig_argv[:own], *how, *arguments]
    sys.argv = [first, *arguments]


def _import_from(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path.insert(0, folder)


def _run_path(path: str, names: dict[str, Any]) -> None:
    """Run a file, or what is in a folder or an archive."""
    if pkgutil.get_importer(path) is not None:
        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", alter_argv=False)  # type: ignore[attr-defined]  # noqa: SLF001 -- see above
        return
    _import_from(os.path.dirname(os.path.realpath(path)))  # noqa: PTH120 -- as Python does
    with io.open_code(path) as file:
        compiled = pkgutil.read_code(file)
    loader = machinery.SourceFileLoader if compiled is None else machinery.SourcelessFileLoader
    names |= {"__file__": path, "__cached__": None, "__loader__": loader("__main__", path)}
    if compiled is None:
        with io.open_code(path) as file:
            compiled = compile(file.read(), path, "exec", dont_inherit=True)
    _execute(compiled, names)


def _execute(code: CodeType, names: dict[str, Any]) -> None:
    exec(code, names)  # noqa: S102 -- asked for


# -- from when on it is recorded ---------------------------------------------------------------


class _Watch:
    """Calls a function when torch has been imported for the first time.

    It stands among the finders of modules. Where the annotation is imported first, which imports
    torch, the function is called when it is there too.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._process = os.getpid()
        self._under_way = 0
        self._is_looking = False

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> machinery.ModuleSpec | None:
        """Find what is watched as the other finders do, and get to know when it is there."""
        if name not in (_TORCH, _ANNOTATION) or self._is_looking:
            return None
        self._is_looking = True
        try:
            spec = util.find_spec(name)
        finally:
            self._is_looking = False
        if spec is not None and spec.loader is not None:
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            self._under_way += 1
            try:
                execute(module)
            finally:
                self._under_way -= 1
            if not self._under_way:
                sys.meta_path.remove(self)
                # It is there as a whole: a thread that imports it is not to wait for this one.
                module.__spec__._initializing = False  # type: ignore[union-attr]  # noqa: SLF001
                # A process that the script has forked is not recorded.
                if os.getpid() == self._process:
                    self._then()

        loader.exec_module = exec_module


# -- how it ends -------------------------------------------------------------------------------


def _show(error: BaseException) -> int:
    """Show an error as Python does that nobody has caught, and return the exit code."""
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)  # noqa: T201 -- what Python does
        return 1
    trace = error.__traceback__
    # From where it is in the script, as without us.
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as stop:
        return _show(stop)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _join_threads() -> None:
    """Wait for the threads that the script has left, as Python does ahead of `atexit`."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 -- there is no other way
    except BaseException:  # noqa: BLE001 -- whatever it is
        print(f"Exception ignored in: {threading!r}", file=sys.stderr)  # noqa: T201 -- as Python
        traceback.print_exc()


def _leave_fork(code: int) -> NoReturn:
    """End a process that the script forked, as Python does, but for what comes after Python.

    The library that records waits there for its thread, which only the parent has.
    """
    _join_threads()
    atexit._run_exitfuncs()  # noqa: SLF001 -- there is no other way
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code & 0xFF)
