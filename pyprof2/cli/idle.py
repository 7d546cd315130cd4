"""`pyprof2 idle`: why devices did nothing, one cause for every nanosecond of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 idle net.pyprof2                              groups and causes
  pyprof2 idle net.pyprof2 --by cause,source --top 20   which lines cause it
  pyprof2 idle net.pyprof2 --rank 0 -o gaps.csv         every part of a gap"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "idle",
        help="say why devices did nothing",
        description="Say why devices did nothing: every nanosecond without a kernel or a copy has "
        "one cause, and with the time in which a device was busy they add up to what was recorded.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    command.add_argument(
        "--by",
        type=arguments.names,
        metavar="AXIS[,AXIS…]",
        help="sum along: cause, group, source, op, layer, call, step, thread, device, rank, note, "
        "phase (of a server). By default a table shows groups, their causes, and what the host was "
        "doing; the other formats have a row for each part of a gap",
    )
    command.add_argument(
        "--normal-gap",
        type=partial(arguments.not_negative, what="a time in us,"),
        metavar="US",
        help="longest normal gap between two queued kernels, or from a launch to its start; "
        "default: 30",
    )
    arguments.add(command, f"rank span top format envelope {arguments.OUTPUT} source-root")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show why the devices of `args.input` did nothing."""
    target = arguments.target_of(args)
    from pyprof2.analysis.summaries.idle_profile import check_axes
    from pyprof2.reports.files import call
    from pyprof2.reports.idle import IdleQuery, show

    axes = tuple(args.by or ())
    check_axes(axes)
    loaded = arguments.loaded(args)
    target = arguments.with_sides(target, loaded, call("advise", input=str(args.input)))
    show(loaded, IdleQuery(axes, args.normal_gap, args.rank, args.top, target))
