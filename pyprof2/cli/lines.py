"""`pyprof2 lines`: the cost of each line of code, as a tree of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, entry_points

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 lines net.pyprof2
  pyprof2 lines net.pyprof2 --within blocks.1 --phase backward
  pyprof2 lines net.pyprof2 --step 3:5 -o lines.csv   the whole tree"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "lines",
        help="say what each line of code costs",
        description="Say what each line of code costs: a tree of files, the lines that call, and "
        "the ops that they call, forward and backward. Its times add up to those of the steps. Of "
        "a recording, or of an entry point that is run: pyprof2 lines --entry entry_point.py",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input", nargs="?")
    arguments.add(command, "ledger")
    command.add_argument(
        "--phase",
        choices=("forward", "recompute", "backward", "optimizer", "other"),
        help="only this part of the time",
    )
    command.add_argument(
        "--within",
        metavar="MODULE",
        help="only what runs in this module, such as blocks.1 or blocks.*.mlp",
    )
    arguments.counts(command, depth="cut the tree below N nodes")
    command.add_argument(
        "--step",
        type=arguments.step_range,
        metavar="A[:B]",
        help="only step A, or the steps from A to B; default: all, without a first one that is "
        "an outlier",
    )
    arguments.add(command, "rank span")
    arguments.add(command, "top", help="show N rows of the table; default: 30")
    arguments.add(command, f"format {arguments.OUTPUT} source-root")
    entry_points.add_to(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show the costs of the lines of code in `args.input`."""
    target = arguments.target_of(args)
    from pyprof2.analysis.summaries.line_profile import LineQuery
    from pyprof2.reports.lines import show

    query = LineQuery(args.ledger, args.phase, args.step, args.rank, args.within, args.depth)
    with entry_points.recording(args) as path:
        show(arguments.loaded(args, path), query, target, args.top)
