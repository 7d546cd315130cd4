"""`pyprof2 export`: a recording for other programs that show one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyprof2.cli import arguments
from pyprof2.errors import UsageError
from pyprof2.reports import files

if TYPE_CHECKING:
    import argparse

_OF = ("layers", "lines", "ops")
_MEASURES = ("time_ns", "flops", "bytes", "count")


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "export",
        help="write it for Perfetto, speedscope or a flame graph",
        description="Write a recording for other programs: with --perfetto all of it on a "
        "timeline, for https://ui.perfetto.dev; with --folded or --speedscope sums by stack, for "
        "flame graphs.",
    )
    arguments.add_input(command)
    kind = command.add_mutually_exclusive_group(required=True)
    kind.add_argument(
        "--perfetto",
        action="store_true",
        help="streams, threads, flows, counters, idle time and findings; FILE.pftrace",
    )
    kind.add_argument(
        "--folded", action="store_true", help="a line for each stack, 'a;b;c 123'; FILE.txt"
    )
    kind.add_argument(
        "--speedscope", action="store_true", help="the same stacks; FILE.speedscope.json"
    )
    _add_stack_options(command)
    command.add_argument(
        "--no-findings",
        action="store_true",
        help="of --perfetto: do not look for findings and the critical path",
    )
    arguments.add_rank(command)
    arguments.add_file(command)
    command.set_defaults(run=run)


def _add_stack_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--of",
        choices=_OF,
        help="what stacks are made of: layers (the default) or lines, each ending with the op, or "
        "ops, ending with the kernel",
    )
    command.add_argument(
        "--measure", choices=_MEASURES, help="what is added up; default: time_ns, of kernels"
    )


def run(args: argparse.Namespace) -> None:
    """Write `args.input` for another program."""
    _check(args)
    files.check_free(args.output, force=args.force)
    from pyprof2.run import load

    loaded = load(args.input, progress=arguments.wants_progress(args))
    if args.perfetto:
        from pyprof2.reports.perfetto.export import PerfettoQuery, show

        lacks = show(loaded, PerfettoQuery(args.output, args.rank, not args.no_findings))
    else:
        from pyprof2.reports import folded

        form = "folded" if args.folded else "speedscope"
        query = folded.FoldedQuery(
            args.of or "layers", args.measure or "time_ns", form, args.rank, args.output
        )
        lacks = folded.show(loaded, query)
    for line in [] if args.quiet else lacks:
        print(f"pyprof2: {line}", file=sys.stderr)


def _check(args: argparse.Namespace) -> None:
    """Raise for options that are of another kind."""
    if args.perfetto and (args.of or args.measure):
        msg = "--of and --measure are of stacks: leave them out, or take --folded"
        raise UsageError(msg)
    if args.no_findings and not args.perfetto:
        msg = "--no-findings is for --perfetto: stacks have no findings; leave it out"
        raise UsageError(msg)
