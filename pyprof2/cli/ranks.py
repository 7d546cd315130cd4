"""`pyprof2 ranks`: which rank is slow, and where a job of many ranks loses its time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse

_VIEWS = (
    "rank", "step", "collective", "kind", "op", "layer", "match", "clock", "score", "straggler",
    "imbalance", "bubble", "link", "path", "blame",
)  # fmt: skip


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "ranks",
        help="say where a job of many ranks loses its time",
        description="Say which rank is slow, by how much, and in which op and line; then where a "
        "job of many ranks loses its time: what each rank did, who waited for whom, and what the "
        "critical path is made of.",
        epilog="examples:\n"
        "  pyprof2 ranks job.pyprof2\n"
        "  pyprof2 ranks rank0.json rank1.json rank2.json\n"
        "  pyprof2 ranks job.pyprof2 --by collective -o collectives.csv\n"
        "  pyprof2 ranks job.pyprof2 --by layer\n"
        "  pyprof2 ranks job.pyprof2 --by blame --top 10",
    )
    arguments.add_ranks(command)
    command.add_argument(
        "--by",
        choices=_VIEWS,
        default="rank",
        help="a row for each rank (default); rank and step; collective of a rank; kind, group and "
        "size of collectives; op of a rank that communicates; layer and direction that "
        "communicate; way in which they were matched; clock of a rank; score; straggler; load "
        "imbalance of a step; pipeline bubble of a step; slow link; stretch of the critical path; "
        "part of it by excess over other ranks",
    )
    arguments.add(command, "rank", help="only rows of this rank")
    arguments.add(command, f"top one-clock format {arguments.OUTPUT} source-root")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Show which rank of `args.input` is slow, and where the job loses its time."""
    target = arguments.target_of(args)
    from pyprof2.api.job import JobOfRanks
    from pyprof2.reports.ranks import RanksQuery, show

    job = JobOfRanks(arguments.loaded(args).tables, args.one_clock)
    show(job, RanksQuery(args.by, args.rank, args.top, target))
