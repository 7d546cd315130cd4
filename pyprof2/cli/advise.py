"""`pyprof2 advise`: what to change, and how much time is at stake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 advise net.pyprof2
  pyprof2 advise net.pyprof2 --device 'H100 SXM'   with its roofs
  pyprof2 advise net.pyprof2 -o advice.json        a row for each rule"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "advise",
        help="say what to change, and how much time is at stake",
        description="Say what to change: findings with the time at stake, from least to most, and "
        "what they rest on. A table shows what fires and what cannot be judged; the other formats "
        "have a row for each rule.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, f"input rank device span format envelope {arguments.OUTPUT} source-root")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show what to change in the program that `args.input` is a recording of."""
    target = arguments.target_of(args)
    from pyprof2.reports.advice import AdviceQuery, show
    from pyprof2.reports.files import call

    loaded = arguments.loaded(args, device=args.device)
    target = arguments.with_sides(target, loaded, call("idle", input=str(args.input)))
    show(loaded, AdviceQuery(args.rank, target))
