"""The command line: one module per command; here errors become exit codes.

Results go to stdout, progress and problems to stderr. Exit codes: 0 fine, 1 an error that
pyprof2 explains in one line, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

from pyprof2 import __version__
from pyprof2.cli import capture, check, demo, explain, parse, prof
from pyprof2.cli.text import clean
from pyprof2.errors import Pyprof2Error, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["build_parser", "capture", "check", "demo", "explain", "main", "parse", "prof"]

FINE: Final = 0
ERROR: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130

_COMMANDS: Final = (capture, parse, prof, explain, check, demo)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="pyprof2",
        description="Turn a recording of a PyTorch program into a profile of every GPU kernel.",
        epilog="Start with: pyprof2 demo",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"pyprof2 {__version__}")
    parser.set_defaults(verbose=False, quiet=False)
    _add_common(parser)
    common = argparse.ArgumentParser(add_help=False)
    _add_common(common)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands, common)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    """Declare what every command takes, before its name and after it."""
    group = parser.add_mutually_exclusive_group()
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` names, and return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What the encoding of the terminal cannot show is escaped, not an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    verbose = False
    try:
        args = build_parser().parse_args(argv)
        verbose = args.verbose
        args.run(args)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has said what is wrong, or shown the help
        return _flush(stop.code)
    except BrokenPipeError:
        return _flush(FINE)
    except (KeyboardInterrupt, Pyprof2Error, OSError) as error:
        if verbose:
            traceback.print_exc()
        code, message = _explain(error)
        print(f"pyprof2: {clean(message)}", file=sys.stderr)
        return code
    return FINE


def _explain(error: KeyboardInterrupt | Pyprof2Error | OSError) -> tuple[int, str]:
    """Return the exit code and the line that says what is wrong."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, "interrupted"
    if isinstance(error, OSError):
        place = error.filename or "output"
        return ERROR, f"{place}: {error.strerror or error}; check the space and the permissions"
    return USAGE if isinstance(error, UsageError) else ERROR, str(error)


def _flush(code: str | int | None) -> int:
    """Write out what is left; a reader that has gone away is not an error."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes again on exit, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code if isinstance(code, int) else FINE
