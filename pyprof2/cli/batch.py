"""`pyprof2 batch`: time and memory at a batch size that was not tried."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.cli import arguments, entry_points, messages
from pyprof2.errors import Pyprof2Error
from pyprof2.reports import files

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyprof2.analysis.summaries.batch.limits import Tried
    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.api.run import Run
    from pyprof2.capture.sweep import Sweep
    from pyprof2.reports.batch import BatchQuery

_EXAMPLES: Final = """examples:
  pyprof2 batch 8=b8.pyprof2 16=b16.pyprof2 32=b32.pyprof2   those, and 64
  pyprof2 batch 8=b8.pyprof2 16=b16.pyprof2 32=b32.pyprof2 --at 24 --memory 80GB
  pyprof2 batch 8=b8.pyprof2 16=b16.pyprof2 32=b32.pyprof2 -o dials.html"""

NOTHING_TO_VERIFY: Final = (
    "nothing to verify: larger batch sizes take no longer here, so none is suggested; name larger "
    "ones with --batches"
)


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "batch",
        help="say what other batch sizes take in time and memory",
        description="Say what a step takes in time and memory at batch sizes that were not tried, "
        "from recordings at three or more others: each number with an interval, and how sure it "
        "is. Or run an entry point at four batch sizes, each in fresh processes, and say it from "
        "that: pyprof2 batch --entry entry_point.py --batches 4,8,16,32 --at 24",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "inputs",
        nargs="*",
        type=arguments.sized_input,
        metavar="B=STORE|TRACE",
        help="a batch size, and what was recorded with it",
    )
    _add_questions(command)
    _add_entry(command)
    command.add_argument(
        "--code",
        type=Path,
        metavar="FILE",
        help="a program or a YAML file: the page that -o NAME.html writes, with dials to drag, "
        "makes a patch of its batch size",
    )
    arguments.add(command, f"format {arguments.OUTPUT}")
    command.set_defaults(run=run)


def _add_questions(command: argparse.ArgumentParser) -> None:
    """Declare the questions to the model."""
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
        help="memory of the device, such as 80GB or 79.1GiB",
    )
    capacity.add_argument("--device", metavar="NAME", help="the device, such as A100-80")
    command.add_argument(
        "--csv-files",
        type=Path,
        metavar="DIR",
        help="write measure-batches.csv and prediction-models.csv there too, as Skyline does; the "
        "folder is made",
    )


def _add_entry(command: argparse.ArgumentParser) -> None:
    """Declare the entry point to run, if any."""
    entry_points.add_to(command, batch=False, devices=True)
    command.add_argument(
        "--batches",
        type=_batches,
        metavar="B[,B…]",
        help="run these batch sizes, three or more; default: four that double, around that of the "
        "entry point, and on to that of --at as long as its interval is wide",
    )
    command.add_argument(
        "--rounds",
        type=partial(arguments.positive, least=2),  # how far they differ needs two
        metavar="N",
        help="take the time of each batch size in N processes, 2 or more, of which the fastest "
        "counts; default: 5",
    )
    arguments.flags(
        command,
        verify="then run the batch size that is suggested (the largest that is sure to fit, or "
        "where that is not known one with 90 %% of the throughput) and the next one",
    )


def _batches(text: str) -> list[int]:
    """Return batch sizes, of which none comes twice."""
    found = [arguments.positive(word) for word in arguments.names(text)]
    if len(set(found)) != len(found):
        arguments.unfit(f"{text!r} has a batch size twice")
    return found


def _asked(text: str) -> tuple[list[int], dict[str, int]]:
    """Return the batch sizes, and the dimensions that have a value."""
    batches: list[int] = []
    given: dict[str, int] = {}
    for word in arguments.names(text):
        name, equals, number = word.rpartition("=")
        if not number.isdecimal() or int(number) < 1 or bool(name) != bool(equals):
            arguments.unfit(
                f"{word!r} is neither a batch size nor a dimension with its value, as S=128"
            )
        if equals:
            given[name] = int(number)
        else:
            batches.append(int(number))
    return batches, given


def run(args: argparse.Namespace) -> None:
    """Show time and memory of other batch sizes.

    Raises:
        UsageError, CaptureError: the arguments do not go together, or what is to run is missing.
    """
    is_page = args.output is not None and files.ending_of(args.output) == ".html"
    arguments.refuse({
        "--code is for the page with dials: say -o NAME.html too":
            args.code is not None and not is_page,
        f"--format {args.format} is no page: leave it out, or give -o another suffix":
            is_page and args.format not in (None, "table"),
    })  # fmt: skip
    target = arguments.target_of(args, pages=True)
    others = _others(args)
    _check_csv_files(args)
    _check(args)
    from pyprof2.analysis.hardware.devices import capacity_bytes
    from pyprof2.reports.batch import BatchQuery, show

    capacity = args.memory if args.device is None else capacity_bytes(args.device)
    batches, given = args.at or ([], {})
    query = BatchQuery(tuple(batches), given, capacity, target)
    runs: dict[int, Run] = {}
    if args.entry is None:
        model, runs = _of_recordings(args)
        query = _elsewhere(query, runs, others)
    else:
        model, query = _of_entry(args, query)
    if is_page:
        _write_page(model, query, runs, args)
    else:
        show(model, query)
    if args.csv_files is not None:
        from pyprof2.reports.skyline.deepview import write_sweep

        messages.say(*write_sweep(model, args.csv_files), quiet=args.quiet)


def _others(args: argparse.Namespace) -> str | None:
    """Return the other devices that recordings are to be held against, and take them out.

    Raises:
        UsageError: an entry point is to run on them.
    """
    if args.entry is None:
        others, args.on = args.on, None
        return others  # type: ignore[no-any-return]
    words = f"--on {args.on}: with --entry only cpu; other GPUs are for recordings"
    arguments.refuse({words: args.on not in (None, "cpu")})
    return None


def _elsewhere(query: BatchQuery, runs: dict[int, Run], others: str | None) -> BatchQuery:
    if others is None:
        return query
    from pyprof2.api.batch import elsewhere
    from pyprof2.api.prediction import asked_devices

    return replace(query, elsewhere=elsewhere(runs, asked_devices(others, ())))


def _check(args: argparse.Namespace) -> None:
    """See that the arguments go together.

    Raises:
        UsageError, CaptureError: they do not, or what is to run is missing.
    """
    arguments.refuse({
        f"--{name} runs code, and no recording is run: say --entry FILE, or leave it out":
            args.entry is None and getattr(args, name)
        for name in ("batches", "rounds", "verify")
    })  # fmt: skip
    entry_points.check(
        args, args.inputs, "recordings at three or more batch sizes, as 8=net8.pyprof2"
    )
    sizes = [batch for batch, _ in args.inputs]
    arguments.refuse({
        f"--batches: a batch model needs three or more, better four; given: {args.batches}":
            args.batches and len(args.batches) < 3,
        **{
            f"batch size {size} is given twice; a model needs different ones":
                sizes.count(size) > 1
            for size in sizes
        },
    })  # fmt: skip


def _code(model: Model, path: Path | None) -> dict[str, Any] | None:
    if path is None:
        return None
    from pyprof2.lsp.batch_size import code_of

    return code_of(path, [int(size) for size in model.batches])


def _write_page(
    model: Model, query: BatchQuery, runs: dict[int, Run], args: argparse.Namespace
) -> None:
    """Write the page with the dials, and print where it is."""
    from pyprof2 import __version__
    from pyprof2.api.batch import held_by_category
    from pyprof2.reports.cells import clean
    from pyprof2.reports.dials import DialsQuery, elsewhere_by_batch, parts_of_page

    code = _code(model, args.code)
    values = [] if code is None else [place["value"] for place in code["places"] if place["value"]]
    held = held_by_category(runs)
    asked = DialsQuery(query, __version__, values, code, held, elsewhere_by_batch(runs))
    files.write_parts(parts_of_page(model, asked), args.output)
    print(clean(str(args.output)))


def _check_csv_files(args: argparse.Namespace) -> None:
    """Make their folder, and raise unless the files may be written."""
    if args.csv_files is None:
        return
    try:
        args.csv_files.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{args.csv_files}: no folder can be made there: {error.strerror}; name another"
        raise Pyprof2Error(msg) from error
    from pyprof2.reports.skyline.deepview import paths_in

    for path in paths_in(args.csv_files):
        files.check_free(path, force=args.force)


def _of_recordings(args: argparse.Namespace) -> tuple[Model, dict[int, Run]]:
    """Return the model of recordings, and these by batch size."""
    from pyprof2.api.batch import batch_model
    from pyprof2.api.run import load

    progress = arguments.wants_progress(args)
    runs = {size: load(path, progress=progress) for size, path in dict(args.inputs).items()}
    return batch_model(runs), runs


def _of_entry(args: argparse.Namespace, query: BatchQuery) -> tuple[Model, BatchQuery]:
    """Run the entry point, and return its model, and the query with sizes that were tried."""
    from tqdm import tqdm

    from pyprof2.capture.sweep import ROUNDS, measure

    rounds = args.rounds or ROUNDS
    total = len(args.batches or range(4)) * (1 + rounds) + 2 * (1 + rounds) * args.verify
    shown = arguments.wants_progress(args)
    with tqdm(total=total, disable=not shown, unit="run", desc="running", leave=False) as bar:
        sweep = measure(entry_points.run_of(args), args.batches, rounds, bar.update, query.batches)
        model = sweep.model()
        tried = _tried(args, sweep, model, query, bar.update) if args.verify else {}
    if not args.quiet:
        sizes = ", ".join(map(str, sorted(sweep.facts)))
        messages.say(f"ran {args.entry} with batch sizes of {sizes}")
        entry_points.say_place(next(iter(sweep.facts.values())))
        for batch, error in sweep.failed.items():
            messages.say(f"a batch size of {batch} is left out: {error}")
    return model, replace(query, tried=tried)


def _tried(
    args: argparse.Namespace, sweep: Sweep, model: Model, query: BatchQuery,
    on_run: Callable[[], object],
) -> dict[int, Tried]:  # fmt: skip
    """Run the batch size that the model suggests, and the next one."""
    from pyprof2.analysis.summaries.batch.limits import limits, suggested
    from pyprof2.capture.sweep import ROUNDS, verify

    found = limits(model, query.capacity or model.recordings[-1].capacity, query.given)
    batch = suggested(found)
    if batch is None:
        messages.say(NOTHING_TO_VERIFY)
        return {}
    # A size that fits another device is tried with as much memory as that device has.
    run = replace(
        entry_points.run_of(args),
        memory_limit=query.capacity if found.largest is not None else None,
    )
    rounds = args.rounds or ROUNDS
    sizes = (batch, batch + 1)
    return {size: verify(run, size, sweep.clock, rounds, on_run) for size in sizes}
