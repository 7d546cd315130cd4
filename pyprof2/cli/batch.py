"""`pyprof2 batch`: time and memory at a batch size that was not tried."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments
from pyprof2.errors import UsageError
from pyprof2.reports import files

if TYPE_CHECKING:
    from pyprof2.analysis.summaries.batch.model import Model

_EXAMPLES: Final = """examples:
  pyprof2 batch 8=b8.pyprof2 16=b16.pyprof2 32=b32.pyprof2   those, and 64
  pyprof2 batch 8=b8.pyprof2 16=b16.pyprof2 32=b32.pyprof2 --at 24 --memory 80GB"""


def add_to(commands: arguments.Commands, common: argparse.ArgumentParser) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "batch",
        parents=[common],
        help="say what other batch sizes take in time and memory",
        description="Say what a step takes in time and memory at batch sizes that were not tried, "
        "from recordings at three or more others: each number with an interval, and how sure it "
        "is.",
        epilog=_EXAMPLES,
        formatter_class=arguments.WithExamples,
        allow_abbrev=False,
    )
    command.add_argument(
        "inputs",
        nargs="+",
        type=_sized_input,
        metavar="B=STORE|TRACE",
        help="a batch size, and what was recorded with it",
    )
    command.add_argument(
        "--at",
        type=_asked,
        metavar="B[,B…][,NAME=N]",
        help="answer for these batch sizes, where a dimension that differs otherwise is N; by "
        "default those recorded, and the double of the largest",
    )
    capacity = command.add_mutually_exclusive_group()
    capacity.add_argument(
        "--memory",
        type=arguments.byte_count,
        metavar="SIZE",
        help="of the device, such as 80GB or 79.1GiB",
    )
    capacity.add_argument("--device", metavar="NAME", help="the device, such as A100-80")
    command.add_argument(
        "--csv-files",
        type=Path,
        metavar="DIR",
        help="write measure-batches.csv and prediction-models.csv there too, as Skyline does",
    )
    arguments.add_format(command)
    arguments.add_output(command)
    command.set_defaults(run=run)


def _sized_input(text: str) -> tuple[int, Path]:
    """Return the batch size and the path of `B=PATH`."""
    number, equals, path = text.partition("=")
    if not equals or not path or not number.isdecimal() or int(number) < 1:
        msg = f"{text!r} is not a batch size, an equals sign and a recording, as 8=net8.pyprof2"
        raise argparse.ArgumentTypeError(msg)
    return int(number), Path(path)


def _asked(text: str) -> tuple[list[int], dict[str, int]]:
    """Return the batch sizes, and the dimensions that have a value."""
    batches: list[int] = []
    given: dict[str, int] = {}
    for word in arguments.names(text):
        name, equals, number = word.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or bool(name) != bool(equals):
            msg = f"{word!r} is neither a batch size nor a dimension with its value, as S=128"
            raise argparse.ArgumentTypeError(msg)
        if equals:
            given[name] = int(number)
        else:
            batches.append(int(number))
    return batches, given


def run(args: argparse.Namespace) -> None:
    """Show what other batch sizes take."""
    target = arguments.target_of(args)
    _check_csv_files(args)
    from pyprof2.analysis.hardware.capacities import capacity_bytes
    from pyprof2.batches import batch_model
    from pyprof2.reports.batch import BatchQuery, show

    sizes = [batch for batch, _ in args.inputs]
    if twice := next((size for size in sizes if sizes.count(size) > 1), None):
        msg = f"batch size {twice} is given twice; a model needs different ones"
        raise UsageError(msg)
    capacity = args.memory if args.device is None else capacity_bytes(args.device)
    batches, given = args.at or ([], {})
    model = batch_model(dict(args.inputs), progress=arguments.wants_progress(args))
    show(model, BatchQuery(tuple(batches), given, capacity, target))
    if args.csv_files is not None:
        _write_csv_files(model, args)


def _check_csv_files(args: argparse.Namespace) -> None:
    """Raise unless the files may be written."""
    if args.csv_files is None:
        return
    from pyprof2.reports.sweep_files import paths_in

    for path in paths_in(args.csv_files):
        files.check_free(path, force=args.force)


def _write_csv_files(model: Model, args: argparse.Namespace) -> None:
    from pyprof2.reports import sweep_files

    for line in sweep_files.show(model, args.csv_files):
        if not args.quiet:
            print(f"pyprof2: {line}", file=sys.stderr)
