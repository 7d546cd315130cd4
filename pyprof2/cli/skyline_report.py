"""`pyprof2 skyline-report`: a recording in the files of Skyline and DeepView."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments
from pyprof2.errors import UsageError
from pyprof2.reports import files
from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

_EXAMPLES: Final = """examples:
  pyprof2 skyline-report net.pyprof2 -o net.sqlite               both reports
  pyprof2 skyline-report net.pyprof2 -o time.sqlite --report time --step 7
  pyprof2 skyline-report net.pyprof2 -o memory.sqlite --report memory
  pyprof2 skyline-report net.pyprof2 -o net.json --batch-size 64   DeepView"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "skyline-report",
        help="write it as Skyline's and DeepView's reports",
        description="Write what calls of one step cost, and what weights and activations take, as "
        "the SQLite files of Skyline's commands time and memory, version 1; FILE.json gets the "
        "JSON of DeepView's analysis. Files are for programs that read those: lines and memory "
        "show more.",
        epilog=_EXAMPLES,
    )
    arguments.add_input(command)
    command.add_argument(
        "--report",
        choices=("time", "memory", "both", "deepview"),
        help="which: both (the default) in one SQLite file, or one of them; deepview, the default "
        "for FILE.json",
    )
    _add_choices(command)
    arguments.add_file(command)
    arguments.add_source_root(command)
    command.set_defaults(run=run)


def _add_choices(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--step", type=int, metavar="N", help="which step; default: the one of median time"
    )
    command.add_argument(
        "--rank", type=int, metavar="N", help="which rank; default: the lowest that used a device"
    )
    command.add_argument(
        "--device",
        metavar="NAME",
        help="whose memory: cuda:0, cpu; default: the GPU of which most is allocated",
    )
    arguments.add_ledger(command)
    command.add_argument(
        "--batch-size",
        type=arguments.positive,
        metavar="N",
        help="samples in a step, for the throughput in DeepView's JSON",
    )


def run(args: argparse.Namespace) -> None:
    """Write `args.input` in Skyline's form.

    Raises:
        UsageError: options that do not go together, or no file is named.
    """
    report = _report(args)
    files.check_free(args.output, force=args.force)
    from pyprof2.reports.skyline.show import SkylineQuery, show
    from pyprof2.run import load

    loaded = load(args.input, source_root=args.source_root, progress=arguments.wants_progress(args))
    query = SkylineQuery(
        report, args.output, args.step, args.rank, args.device, args.ledger, args.batch_size
    )
    said = show(loaded, query)
    for line in [] if args.quiet else said:
        print(f"pyprof2: {clean(line)}", file=sys.stderr)


def _report(args: argparse.Namespace) -> str:
    """Return which report is asked for."""
    path: Path | None = args.output
    if path is None or (path.exists() and not path.is_file() and not path.is_dir()):
        msg = "a report is a file: name it with -o FILE.sqlite, or -o FILE.json"
        raise UsageError(msg)
    is_json = path.suffix.lower() == ".json"
    report: str = args.report or ("deepview" if is_json else "both")
    if is_json != (report == "deepview"):
        msg = f"--report {report}: DeepView's report is FILE.json, Skyline's are FILE.sqlite"
        raise UsageError(msg)
    if args.batch_size is not None and report != "deepview":
        msg = "--batch-size is for DeepView's JSON: Skyline's reports have no throughput"
        raise UsageError(msg)
    return report
