"""The command line: one module per command; here errors become exit codes.

Results go to stdout, progress and problems to stderr. Exit codes: 0 fine, 1 an error that
pyprof2 explains in one line, 2 wrong usage, 130 interrupted.

An error that pyprof2 does not raise on purpose is its own fault, and the message says so. A store
is called damaged only where reading its tables finds damage.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shlex
import signal
import sys
import threading
import traceback
import warnings
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyprof2 import __version__
from pyprof2.cli import arguments
from pyprof2.errors import (
    LeftOutWarning,
    MemoryShortError,
    Pyprof2Error,
    TerminatedError,
    UsageError,
    fault,
    is_shortage,
    shortage,
    suggest,
)
from pyprof2.reports.cells import clean
from pyprof2.store.places import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from _typeshed import SupportsWrite

__all__ = ["build_parser", "main"]

FINE: Final = 0
ERROR: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
_BY_SIGNAL: Final = 128

_GROUPS: Final = {
    "Record": ("capture", "watch", "demo"),
    "Read": ("parse", "prof", "lines", "memory", "energy", "sql", "check"),
    "Explain": ("idle", "advise", "explain", "whatif", "batch", "predict"),
    "Many runs": ("ranks", "compare"),
    "Export": ("report", "export"),
    "Editor": ("lsp", "mcp"),
}
"""The commands, by what `--help` groups them under; the module of its name declares each."""
_COMMANDS: Final = tuple(name for group in _GROUPS.values() for name in group)

_READING: Final = {*_COMMANDS, "spend", "skyline-report"}.difference(
    *(_GROUPS[name] for name in ("Record", "Editor")), ("parse",)
)
"""The commands that read stores: they take memory by the same rules as `parse`."""

_NEEDED_TO_READ: Final = (
    "adbc_driver_manager", "adbc_driver_sqlite", "isal", "msgspec", "numpy", "pandas", "pyarrow",
    "sqlalchemy", "tabulate", "tqdm",
)  # fmt: skip
"""The packages that a program which is only recorded does without."""

_OLD_NAMES: Final = ("spend", "skyline-report")
"""Names that work and are not listed: of `energy`, and of `export --skyline`."""

_STARTED_BY_EDITOR: Final = ("interactive",)
"""The command that Skyline's users type first."""

_COMMON: Final = ("-v", "--verbose", "-q", "--quiet")
"""Options that may stand before a command."""


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command line, or of one command alone, which is sooner made.

    Args:
        command: its name; any other word is taken for none.
    """
    parser = _Parser(
        prog="pyprof2",
        description="Turn a recording of a PyTorch program into a profile of every GPU kernel.",
        epilog="Start with: pyprof2 demo",
    )
    parser.add_argument("--version", action="version", version=f"pyprof2 {__version__}")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh"),
        help="print the completion script of a shell",
    )
    parser.set_defaults(verbose=False, quiet=False)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in (command,) if command in _COMMANDS else _COMMANDS:
        import_module(f"pyprof2.cli.{name}").add_to(commands)
    return parser


class _Parser(argparse.ArgumentParser):
    """The parser of pyprof2 and of each of its commands.

    Messages show arguments as text that no terminal acts on, options have their whole names, texts
    of several lines keep them, and common options may stand before and after a command's name.
    An error is one line, and an option that has one value is not given twice.
    """

    def __init__(self, **texts: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **texts)
        for name in (None, "store"):
            self.register("action", name, _StoreOnce)
        group = self.add_mutually_exclusive_group()
        group.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            default=argparse.SUPPRESS,
            help="show where an error came from",
        )
        group.add_argument(
            "-q",
            "--quiet",
            action="store_true",
            default=argparse.SUPPRESS,
            help="no progress and no hints on stderr",
        )

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            hint = suggest(str(value), map(str, action.choices or ()))
            error.message = f"{error.message}; {hint}".rstrip(" ;")
            raise

    def error(self, message: str) -> NoReturn:
        """End the program with one line, which says where the options are listed."""
        self.exit(USAGE, f"{self.prog}: {message}; '{self.prog} --help' lists the options\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        lines = [clean(line) for line in message.split("\n")]
        super()._print_message("\n".join(lines), file)


class _StoreOnce(argparse.Action):
    """Stores the value of an argument; a second value is an error, as only one would count."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        stored = vars(namespace).setdefault("options_given", set())
        if option is not None and self.dest in stored:
            parser.error(f"{option} is given twice; give it once")
        stored.add(self.dest)
        setattr(namespace, self.dest, values)


class _Formatter(arguments.WithExamples):
    """Lists the commands in groups."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - it has no other name
            return super()._format_action(action)
        listed = {each.dest: each for each in action._get_subactions()}  # noqa: SLF001
        parts = []
        for title, group in _GROUPS.items():
            parts.append(f"{' ' * self._current_indent}{title}\n")
            self._indent()
            parts += map(super()._format_action, (listed[name] for name in group))
            self._dedent()
        return "".join(parts)


class _PrintCompletion(argparse.Action):
    """Prints the completion script of a shell and ends; shtab writes it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        _option: str | None = None,
    ) -> None:
        try:
            import shtab
        except ImportError:
            parser.error("completion needs the package shtab; install 'pyprof2[completion]'")
        # argparse lists the actions of a parser, and its commands, nowhere else.
        choices = [action.choices for action in parser._actions]  # noqa: SLF001
        commands = [each for own in choices if isinstance(own, dict) for each in own.values()]
        for command in [parser, *commands]:
            for action in command._actions:  # noqa: SLF001
                if action.type in (Path, place):
                    action.complete = shtab.FILE
        print(shtab.complete(parser, str(values)))
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, and return the exit code."""
    _open_closed_streams()
    given = sys.argv[1:] if argv is None else argv
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the encoding of the terminal lacks are escaped, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    args = argparse.Namespace(verbose=any(word in ("-v", "--verbose") for word in given))
    try:
        # SIGTERM ends the program as `sys.exit` does, so that nothing temporary is left. A program
        # around this one may handle it otherwise; and only the main thread may handle it.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        words = _with_command(given)
        command = next((word for word in words if word not in _COMMON), None)
        args = _parse(words, command)
        _run(args, reads=command in _READING)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed the error, or the help
        return _flush(stop.code)
    except BrokenPipeError:
        return _flush(FINE)
    except (KeyboardInterrupt, Exception) as error:  # noqa: BLE001 - the last place that can
        code, message = _explain(error, _inputs(args))
        with contextlib.suppress(BrokenPipeError):
            for line in traceback.format_exc().splitlines() if args.verbose else ():
                print(clean(line), file=sys.stderr)
            print(f"pyprof2: {clean(message)}", file=sys.stderr)
        return code
    return FINE


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that is closed.

    Otherwise Python has None there, and the next file that is opened gets the number of the stream:
    what anybody writes to it would go into that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _parse(words: Sequence[str], command: str | None) -> argparse.Namespace:
    """Return the arguments.

    Args:
        words: of the command line.
        command: the one among them, if any.

    Raises:
        UsageError: a command has more words than it takes, or an option that it does not have.
    """
    parser = build_parser(command)
    args, rest = parser.parse_known_args(words)
    if not rest:
        return args
    msg = f"{command}: unknown: {' '.join(rest)}; 'pyprof2 {command} --help' lists the options"
    options = [word.partition("=")[0] for word in rest if word.startswith("-")]
    if options:
        commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))  # noqa: SLF001
        known = commands.choices[str(command)]._option_string_actions  # noqa: SLF001
        hint = suggest(options[0], known)
        msg = (
            f"{command}: no option {options[0]}; {hint}'pyprof2 {command} --help' lists the options"
        )
    elif isinstance(getattr(args, "input", None), Path):
        traces = shlex.join(map(str, [args.input, *rest]))
        msg = f"{command} reads one recording or store; to join several: pyprof2 parse {traces}"
    raise UsageError(msg)


def _with_command(words: Sequence[str]) -> list[str]:
    """Return the words with `prof` before a file that stands where a command is expected.

    Raises:
        UsageError: the word is no command, and no file either.
    """
    at = next((at for at, word in enumerate(words) if word not in _COMMON), len(words))
    word = words[at] if at < len(words) else "-h"
    if word.startswith("-") or word in (*_COMMANDS, *_OLD_NAMES):
        return list(words)
    if Path(word).exists() or Path(word).suffix or os.sep in word:
        return [*words[:at], "prof", *words[at:]]
    if word in _STARTED_BY_EDITOR:
        msg = (
            f"no command {word!r}: the editor starts 'pyprof2 lsp' itself; for the lines of "
            "an entry point: pyprof2 lines --entry FILE"
        )
        raise UsageError(msg)
    hint = suggest(word, _COMMANDS) or "'pyprof2 --help' lists them"
    msg = f"no command {word!r}, and no file of this name; {hint.rstrip()}"
    raise UsageError(msg)


def _run(args: argparse.Namespace, *, reads: bool) -> None:
    """Run the command; where memory is short, the error says so, whatever library raised it."""
    try:
        with warnings.catch_warnings():
            # `messages.warn` says what is left out, with all else that is wrong with a store.
            warnings.simplefilter("ignore", LeftOutWarning)
            if reads:
                from pyprof2.pipeline.allocation import give_memory_back

                give_memory_back()
            args.run(args)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is raised
        # Arrow has errors of several classes for it, and parsers those of formats.
        named = _inputs(args)
        if not is_shortage(error) or (not named and isinstance(error, MemoryShortError)):
            raise
        # A trace is named as the user did, not its temporary store.
        raise shortage(error, named[0] if named else "it") from error


def _inputs(args: argparse.Namespace) -> list[Any]:
    """Return the recordings and stores that the user names."""
    named: list[Any] = []
    for name in ("input", "traces", "inputs", "a", "b", "other", "against"):
        given = getattr(args, name, None)
        named += given if isinstance(given, list) else [given]
    # Those of `batch` are pairs of a batch size and a path.
    paths = (each[-1] if isinstance(each, tuple) else each for each in named)
    return [path for path in paths if path is not None]


def _terminate(number: int, _frame: object) -> NoReturn:
    raise TerminatedError(_BY_SIGNAL + number)


def _explain(error: BaseException, inputs: Sequence[Path]) -> tuple[int, str]:
    """Return the exit code and the line of the error.

    Args:
        error: that ended the command.
        inputs: the recordings and stores that it was to read.
    """
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        place = error.filename or "output"
        return ERROR, f"{place}: {error.strerror or error}; check the space and the permissions"
    if isinstance(error, Pyprof2Error):
        return USAGE if isinstance(error, UsageError) else ERROR, str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in _NEEDED_TO_READ:
        return ERROR, (
            "reading needs packages that recording does not, the first missing one is "
            f"{error.name}; read elsewhere, or: pip install pyprof2"
        )
    try:
        if inputs:
            from pyprof2.store.folder import check_tables, is_store

            for path in filter(is_store, inputs):
                check_tables(path)
    except Pyprof2Error as damage:
        return ERROR, str(damage)
    return ERROR, f"{fault(error)}; -v shows where"


def _flush(code: str | int | None) -> int:
    """Flush stdout; a reader that has gone away is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again on exit, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code if isinstance(code, int) else FINE
