"""`pyprof2 check`: the facts of a recording, missing ones, and how to record those."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments
from pyprof2.reports import check

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 check net.json.gz
  pyprof2 check net.pyprof2 --format json   for a program that reads it"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "check",
        help="say what a recording has and lacks",
        description="Say what a recording has and lacks, with counts, and for each lack how to "
        "record it next time. The exit code is 0 whatever it finds, 1 if it cannot be read.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    command.add_argument("--format", choices=check.FORMATS, help="default: table")
    arguments.add(command, "envelope source-root")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show what `args.input` has and lacks."""
    from pyprof2.reports.files import call

    target, loaded = arguments.target_of(args), arguments.loaded(args)
    target = arguments.with_sides(target, loaded, call("prof", input=str(args.input)))
    check.write(loaded.check(), target)
