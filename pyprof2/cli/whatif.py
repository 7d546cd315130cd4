"""`pyprof2 whatif`: the gain of a run if something took another time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse

_AXES = ("op", "layer", "kernel", "category")
_OLD = "kind"
"""The old name of `category`."""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "whatif",
        help="say what a run would gain without something",
        description="Say what a run, of one rank or many, would gain if something took another "
        "time: by replay of what waited for what, as an interval, or only a bound where the "
        "recording does not say enough.",
        epilog="examples:\n"
        "  pyprof2 whatif run.pyprof2 --scale 'op=aten::mm=0.5'\n"
        "  pyprof2 whatif job.pyprof2 --rank 3 --ideal --overlap\n"
        "  pyprof2 whatif rank0.json rank1.json rank2.json --rank 1\n"
        "  pyprof2 whatif job.pyprof2 --transfers 0.5 --format csv",
    )
    arguments.add_ranks(command)
    command.add_argument(
        "--scale",
        action="append",
        type=_scaled,
        default=[],
        metavar="AXIS=REGEX=FACTOR",
        help="kernels and copies whose op, layer, kernel or category fits REGEX take FACTOR as "
        "long; may be given several times, each by itself",
    )
    command.add_argument(
        "--rank",
        type=int,
        action="append",
        metavar="N",
        help="rank N takes as long as the others; of several, all of them together",
    )
    arguments.flags(command, ideal="all ranks take the median of theirs")
    command.add_argument(
        "--transfers",
        type=partial(arguments.not_negative, what="a factor"),
        metavar="FACTOR",
        help="transfers of matched collectives take FACTOR as long",
    )
    arguments.flags(command, overlap="the bound of perfect overlap of everything")
    arguments.add(command, f"span one-clock format {arguments.OUTPUT} source-root")
    command.set_defaults(run=run)


def _scaled(text: str) -> tuple[str, str, float]:
    """Return `AXIS=REGEX=FACTOR` in its parts; the regular expression may hold `=`."""
    axis, _, rest = text.partition("=")
    pattern, _, factor = rest.rpartition("=")
    if axis not in (*_AXES, _OLD) or not pattern:
        arguments.unfit(f"{text!r} is not AXIS=REGEX=FACTOR with one of {', '.join(_AXES)}")
    return axis, pattern, arguments.not_negative(factor, "a factor")


def run(args: argparse.Namespace) -> None:
    """Show the gains of changes to `args.input`."""
    target = arguments.target_of(args)
    asked = args.scale or args.rank is not None or args.transfers is not None
    words = "name a change: --scale, --rank, --ideal, --transfers or --overlap"
    arguments.refuse({words: not (asked or args.ideal or args.overlap)})
    from pyprof2.api.job import JobOfRanks
    from pyprof2.reports.ranks import show_gains

    run = arguments.loaded(args)
    gains = JobOfRanks(run.tables, args.one_clock).what_if(
        scale=args.scale, rank=args.rank, ideal=args.ideal, transfers=args.transfers,
        overlap=args.overlap,
    )  # fmt: skip
    show_gains(gains, run, target)
