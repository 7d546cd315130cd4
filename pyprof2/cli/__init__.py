"""The command line: one module per command; here errors become exit codes.

Results go to stdout, progress and problems to stderr. Exit codes: 0 fine, 1 an error that
pyprof2 explains in one line, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
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
    StoreError,
    TerminatedError,
    UsageError,
    is_shortage,
    shortage,
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

_OF_WRONG_VALUES: Final = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors that damaged or foreign values of a store may raise."""

_GROUPS: Final = {
    "Record": ("capture", "watch", "demo"),
    "Read": ("parse", "prof", "lines", "memory", "energy", "check"),
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
    """

    def __init__(self, **texts: Any) -> None:
        super().__init__(formatter_class=_Formatter, allow_abbrev=False, **texts)
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
            near = difflib.get_close_matches(str(value), map(str, action.choices or ()), cutoff=0.5)
            if near:
                error.message = f"{error.message}; did you mean {' or '.join(near)}?"
            raise

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        lines = [clean(line) for line in message.split("\n")]
        super()._print_message("\n".join(lines), file)


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
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Characters that the encoding of the terminal lacks are escaped, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    verbose = False
    try:
        # SIGTERM ends the program as `sys.exit` does, so that nothing temporary is left. A program
        # around this one may handle it otherwise; and only the main thread may handle it.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        words = _with_command(sys.argv[1:] if argv is None else argv)
        command = next((word for word in words if word not in _COMMON), None)
        args = build_parser(command).parse_args(words)
        verbose = args.verbose
        _run(args, reads=command in _READING)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed the error, or the help
        return _flush(stop.code)
    except BrokenPipeError:
        return _flush(FINE)
    except (KeyboardInterrupt, Pyprof2Error, OSError) as error:
        if verbose:
            for line in traceback.format_exc().splitlines():
                print(clean(line), file=sys.stderr)
        code, message = _explain(error)
        print(f"pyprof2: {clean(message)}", file=sys.stderr)
        return code
    return FINE


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
    near = difflib.get_close_matches(word, _COMMANDS, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "'pyprof2 --help' lists them"
    msg = f"no command {word!r}, and no file of this name; {hint}"
    raise UsageError(msg)


def _run(args: argparse.Namespace, *, reads: bool) -> None:
    """Run the command; where memory is short, the error says so, whatever library raised it."""
    try:
        with warnings.catch_warnings():
            # `messages.warn` says what is left out, with all else that is wrong with a store.
            warnings.simplefilter("ignore", LeftOutWarning)
            if reads:
                from pyprof2.cli.deferred import import_arrow

                import_arrow()
            _run_on_store(args)
    except (Exception, KeyboardInterrupt) as error:  # whatever it is, it is raised
        # Arrow has errors of several classes for it, and parsers those of formats.
        named = getattr(args, "input", None) or getattr(args, "traces", None)
        if not is_shortage(error) or (named is None and isinstance(error, MemoryShortError)):
            raise
        # A trace is named as the user did, not its temporary store.
        raise shortage(error, named[0] if isinstance(named, list) else named or "it") from error


def _run_on_store(args: argparse.Namespace) -> None:
    """Run the command; where a store's values make it fail, refuse the store."""
    try:
        args.run(args)
    except _OF_WRONG_VALUES as error:
        if is_shortage(error):
            raise
        from pyprof2.store.folder import is_store

        named = getattr(args, "input", None)
        store = named[0] if isinstance(named, list) else named
        if store is None or isinstance(error, Pyprof2Error) or not is_store(store):
            raise
        msg = (
            f"{store}: its tables hold what cannot be used ({type(error).__name__}; -v shows "
            "where); make the store anew with 'pyprof2 parse'"
        )
        raise StoreError(msg) from error


def _terminate(number: int, _frame: object) -> NoReturn:
    raise TerminatedError(_BY_SIGNAL + number)


def _explain(error: KeyboardInterrupt | Pyprof2Error | OSError) -> tuple[int, str]:
    """Return the exit code and the line of the error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        place = error.filename or "output"
        return ERROR, f"{place}: {error.strerror or error}; check the space and the permissions"
    return USAGE if isinstance(error, UsageError) else ERROR, str(error)


def _flush(code: str | int | None) -> int:
    """Flush stdout; a reader that has gone away is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again on exit, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code if isinstance(code, int) else FINE
