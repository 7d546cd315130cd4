"""`pyprof2 lines`: what each line of code costs, as a tree of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.cli import arguments, entry

if TYPE_CHECKING:
    import argparse


def add_to(commands: arguments.Commands, common: argparse.ArgumentParser) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "lines",
        parents=[common],
        help="say what each line of code costs",
        description="Say what each line of code costs: a tree of files, the lines that call, and "
        "the ops that they call, forward and backward. Its times add up to those of the steps. Of "
        "a recording, or of an entry point that is run: pyprof2 lines --entry entry_point.py",
        allow_abbrev=False,
    )
    arguments.add_input(command, required=False)
    command.add_argument(
        "--ledger",
        choices=("device", "host"),
        help="time of kernels and copies, or of the thread of the step; default: device, where "
        "one worked",
    )
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
    command.add_argument(
        "--depth", type=arguments.positive, metavar="N", help="cut the tree below N nodes"
    )
    _add_choices(command)
    arguments.add_format(command)
    arguments.add_output(command)
    arguments.add_source_root(command)
    entry.add_to(command)
    command.set_defaults(run=run)


def _add_choices(command: argparse.ArgumentParser) -> None:
    """Declare which steps and ranks, and how much of them."""
    command.add_argument(
        "--step",
        type=arguments.step_range,
        metavar="A[:B]",
        help="only step A, or the steps from A to B; default: all, without a first one that is "
        "an outlier",
    )
    command.add_argument("--rank", type=int, metavar="N", help="only this rank")
    command.add_argument(
        "--top", type=arguments.positive, metavar="N", help="show N rows of the table; default: 30"
    )


def run(args: argparse.Namespace) -> None:
    """Show what the lines of code in `args.input` cost."""
    target = arguments.target_of(args)
    from pyprof2.analysis.summaries.line_profile import LineQuery
    from pyprof2.reports.lines import show
    from pyprof2.run import load

    query = LineQuery(args.ledger, args.phase, args.step, args.rank, args.within, args.depth)
    with entry.recording(args) as path:
        progress = arguments.wants_progress(args)
        show(load(path, source_root=args.source_root, progress=progress), query, target, args.top)
