"""`pyprof2 compare`: why one run is slower than another."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, messages
from pyprof2.store.places import place

if TYPE_CHECKING:
    from pyprof2.api.comparison import Gate

RANK: Final = "rank"
FAILED: int = 3
"""The exit code where a gate fails."""

_EXAMPLES: Final = """examples:
  pyprof2 compare before.pyprof2 after.pyprof2
  pyprof2 compare before.pyprof2 after.pyprof2 --steps 2:5 --by layer,op
  pyprof2 compare before.pyprof2 after.pyprof2 --fail-on 'time>3%'   for CI"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "compare",
        help="say what makes one run slower than another",
        description="Say what makes the steps of B slower or faster than those of A: terms that "
        "add up to the difference exactly, each with two standard errors around it.",
        epilog=_EXAMPLES,
    )
    for name in "ab":
        command.add_argument(
            name, type=place, metavar=name.upper(), help="what parse wrote, or a recording"
        )
    _add_selection(command)
    _add_output(command)
    command.set_defaults(run=run)


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--steps",
        type=arguments.step_range,
        metavar="A[:B]",
        help="only step A, or A to B, of both; by default all but the first",
    )
    command.add_argument(
        "--by",
        type=arguments.names,
        metavar="AXIS[,AXIS…]",
        help="sum the parts along: layer, op, signature, source, range; rank, alone: a row for "
        "each rank; phase or phase,kind, of an inference server: for a token that went in",
    )
    arguments.add(command, "top", help="only N parts")
    arguments.flags(
        command, allow_mismatch="compare runs of different devices or workloads all the same"
    )
    command.add_argument(
        "--fail-on",
        type=_gate,
        action="append",
        default=[],
        metavar="METRIC>N%|ms|us|MB",
        help="exit with 3 where METRIC rose by more, even at the lower end of its interval: time, "
        "busy, idle, idle.CAUSE, memory",
    )


def _add_output(command: argparse.ArgumentParser) -> None:
    arguments.add(command, "format envelope csv-safe output")
    arguments.add(command, "force width")


def _gate(text: str) -> Gate:
    from pyprof2.api.comparison import parse_gate
    from pyprof2.errors import UsageError

    try:
        return parse_gate(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> None:
    """Compare `args.a` with `args.b`.

    Raises:
        SystemExit: with code 3, where a gate fails.
    """
    target = arguments.target_of(args)
    from pyprof2.api.comparison import compare, failures
    from pyprof2.reports.comparison import ComparisonQuery, show
    from pyprof2.reports.files import call

    axes = tuple(args.by or ())
    by_rank = axes == (RANK,)
    axes = () if by_rank else axes
    if "phase" in axes and set(axes) <= {"phase", "kind"}:
        from pyprof2.api.run import load
        from pyprof2.reports.serving import show_serving_difference

        progress = arguments.wants_progress(args)
        runs = [load(each, progress=progress) for each in (args.a, args.b)]
        show_serving_difference(runs, [str(args.a), str(args.b)], axes, target)
        return
    found = compare(
        args.a, args.b, steps=args.steps, by=axes, force=args.allow_mismatch,
        progress=arguments.wants_progress(args),
    )  # fmt: skip
    target = arguments.with_sides(target, found.b, call("advise", input=str(args.b)))
    show(found, ComparisonQuery(axes, by_rank, args.top, target))
    failed = failures(found, args.fail_on)
    messages.say(*failed)
    if failed:
        raise SystemExit(FAILED)
