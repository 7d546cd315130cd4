"""`pyprof2 advise`: what to change, and how much time is at stake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyprof2.cli import arguments
from pyprof2.reports import files

if TYPE_CHECKING:
    import argparse


def add_to(commands: arguments.Commands, common: argparse.ArgumentParser) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "advise",
        parents=[common],
        help="say what to change, and how much time is at stake",
        description="Say what to change: findings with the time at stake, from least to most, and "
        "what they rest on. A table shows what fires and what cannot be judged; the other formats "
        "have a row for each rule.",
        allow_abbrev=False,
    )
    arguments.add_input(command)
    command.add_argument("--rank", type=int, metavar="N", help="only this rank")
    command.add_argument(
        "--device", metavar="NAME|FILE", help="use the roofs of this device, or of a JSON file"
    )
    command.add_argument(
        "--format",
        choices=files.FORMATS,
        help="default: table. FILE.csv, .json, .parquet or .md says it too",
    )
    command.add_argument("-o", "--output", type=Path, metavar="FILE", help="write to FILE")
    command.add_argument("--force", action="store_true", help="replace FILE if it is there")
    command.add_argument(
        "-w", "--width", type=arguments.positive, metavar="WIDTH", help="width of the table"
    )
    arguments.add_source_root(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show what to change in the program that `args.input` is a recording of."""
    files.check_free(args.output, force=args.force)
    from pyprof2.cli.query import format_of
    from pyprof2.reports.advice import AdviceQuery, show
    from pyprof2.run import load

    form = args.format or format_of(args.output)
    query = AdviceQuery(args.rank, form, args.output, args.width)
    loaded = load(
        args.input, device=args.device, source_root=args.source_root,
        progress=arguments.wants_progress(args),
    )  # fmt: skip
    show(loaded, query)
