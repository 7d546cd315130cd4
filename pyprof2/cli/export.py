"""`pyprof2 export`: a recording for other programs that show one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, messages
from pyprof2.errors import UsageError
from pyprof2.reports import files

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.api.run import Run

_OF = ("layers", "lines", "ops")
_MEASURES = ("time_ns", "flops", "bytes", "count")
_SKYLINE = ("time", "memory", "both")

_EXAMPLES: Final = """examples:
  pyprof2 export net.pyprof2 --perfetto -o net.pftrace
  pyprof2 export net.pyprof2 --folded --of lines
  pyprof2 export net.pyprof2 --skyline net.sqlite --step 7
  pyprof2 export net.pyprof2 --deepview net.json --batch-size 64"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "export",
        help="write it for Perfetto, Chrome, speedscope, Skyline or DeepView",
        description="Write a recording for other programs: with --perfetto all of it on a "
        "timeline, for https://ui.perfetto.dev, with --chrome for chrome://tracing and whatever "
        "reads its JSON; with --folded or --speedscope sums by stack, for flame graphs; with "
        "--skyline or --deepview the calls of one step and its weights and activations, for "
        "programs that read those files.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    _add_kinds(command)
    arguments.flags(
        command,
        no_findings="with --perfetto and --chrome: do not look for findings and the critical path",
    )
    _add_step_options(command)
    arguments.add(command, "rank output force source-root")
    command.set_defaults(run=run)
    # The old name of --skyline and --deepview works, and is not listed.
    old = commands.add_parser("skyline-report")
    arguments.add(old, "input")
    old.add_argument("--report", choices=(*_SKYLINE, "deepview"))
    _add_step_options(old, report=False)
    arguments.add(old, "rank output force source-root")
    old.set_defaults(run=_run_skyline_report)


def _add_kinds(command: argparse.ArgumentParser) -> None:
    kind = command.add_mutually_exclusive_group(required=True)
    arguments.flags(
        kind,
        perfetto="streams, threads, flows, counters, idle time and findings; FILE.pftrace",
        chrome="the same as JSON of Chrome's trace event format, 3.5 times as large; FILE.json",
        folded="a line for each stack, 'a;b;c 123'; FILE.txt",
        speedscope="the same stacks; FILE.speedscope.json",
    )
    kind.add_argument(
        "--skyline",
        type=arguments.output_folder,
        metavar="FILE",
        help="Skyline's reports time and memory, version 1, in one SQLite file",
    )
    kind.add_argument(
        "--deepview",
        type=arguments.output_folder,
        metavar="FILE",
        help="the JSON of DeepView's analysis",
    )
    command.add_argument(
        "--of",
        choices=_OF,
        help="frames of the stacks: layers (the default) or lines, each ending with the op, or "
        "ops, ending with the kernel",
    )
    command.add_argument(
        "--measure", choices=_MEASURES, help="what is added up; default: time_ns, of kernels"
    )


def _add_step_options(command: argparse.ArgumentParser, *, report: bool = True) -> None:
    group = command.add_argument_group("with --skyline and --deepview")
    if report:
        group.add_argument(
            "--report",
            choices=_SKYLINE,
            help="which of Skyline's reports; default: both",
        )
    group.add_argument(
        "--step", type=int, metavar="N", help="which step; default: the one of median time"
    )
    group.add_argument(
        "--device",
        metavar="NAME",
        help="device whose memory is written: cuda:0, cpu; default: the GPU with most allocated",
    )
    arguments.add(group, "ledger")
    arguments.counts(
        group,
        batch_size="samples in a step, for the throughput in DeepView's JSON; of an entry point by "
        "default as recorded",
    )
    group.add_argument(
        "--batches",
        type=arguments.sized_input,
        nargs="+",
        metavar="B=STORE|TRACE",
        help="recordings at two or more other batch sizes, for the throughput and the peak that "
        "DeepView's JSON predicts",
    )


def run(args: argparse.Namespace) -> None:
    """Write `args.input` for another program."""
    _check(args)
    if args.skyline or args.deepview:
        _write_step(args, args.deepview or args.skyline, args.report or "both")
        return
    files.check_free(args.output, force=args.force)
    loaded = arguments.loaded(args)
    if args.perfetto or args.chrome:
        from pyprof2.reports.perfetto.export import PerfettoQuery, show

        lacks = show(
            loaded, PerfettoQuery(args.output, args.rank, not args.no_findings, args.chrome)
        )
    else:
        from pyprof2.reports import stacks

        form = "folded" if args.folded else "speedscope"
        query = stacks.StacksQuery(
            args.of or "layers", args.measure or "time_ns", form, args.rank, args.output
        )
        lacks = stacks.show(loaded, query)
    messages.say(*lacks, quiet=args.quiet)


def _write_step(args: argparse.Namespace, path: Path, report: str) -> None:
    """Write the costs of a step, in the form of Skyline or DeepView."""
    report = "deepview" if args.deepview else report
    ending = files.ending_of(path)
    is_skyline = report != "deepview"
    only = "is for --deepview: Skyline's reports have no throughput"
    arguments.refuse({
        f"{path}: Skyline's reports are FILE.sqlite; FILE.json is --deepview":
            is_skyline and ending == ".json",
        f"{path}: Skyline's reports are a database, which is not compressed: FILE.sqlite":
            is_skyline and path.suffix.lower() == ".gz",
        f"{path}: DeepView's analysis is FILE.json; Skyline's reports are --skyline":
            not is_skyline and ending != ".json",
        f"--batch-size {only}": is_skyline and args.batch_size is not None,
        f"--batches {only}": is_skyline and args.batches is not None,
        f"{path}: not a file; name one":
            path.exists() and not path.is_file() and not path.is_dir(),
    })  # fmt: skip
    files.check_free(path, force=args.force)
    from pyprof2.reports.skyline.entries import SkylineQuery
    from pyprof2.reports.skyline.export import show

    loaded = arguments.loaded(args)
    query = SkylineQuery(
        report, path, args.step, args.rank, args.device, args.ledger, args.batch_size
    )
    if args.batches:
        query = replace(query, model=_model(args, loaded))
    messages.say(*show(loaded, query), quiet=args.quiet)


def _model(args: argparse.Namespace, run: Run) -> Model:
    """Return the model of a recording and those at other batch sizes.

    Raises:
        UsageError: its own batch size is not known, or one of theirs is given twice.
    """
    from pyprof2.api.batch import batch_model
    from pyprof2.reports.skyline.deepview import batch_of

    own = batch_of(run, args.batch_size)
    if own is None:
        msg = "--batches: name the batch size of the recording itself too: --batch-size N"
        raise UsageError(msg)
    sizes = [own, *(size for size, _ in args.batches)]
    words = f"--batches: {', '.join(map(str, sizes))}: a batch size is given twice"
    arguments.refuse({words: len(set(sizes)) < len(sizes)})
    return batch_model({own: run, **dict(args.batches)}, progress=arguments.wants_progress(args))


def _run_skyline_report(args: argparse.Namespace) -> None:
    words = "a report is a file: name it with -o FILE.sqlite, or -o FILE.json"
    arguments.refuse({words: args.output is None})
    is_json = files.ending_of(args.output) == ".json"
    report = args.report or ("deepview" if is_json else "both")
    args.deepview = args.output if report == "deepview" else None
    _write_step(args, args.output, report)


def _check(args: argparse.Namespace) -> None:
    """Raise for options that belong to another kind of export."""
    is_timeline, is_stacks = args.perfetto or args.chrome, args.folded or args.speedscope
    of_a_step = ("report", "step", "device", "ledger", "batch_size", "batches")
    arguments.refuse({
        "--of and --measure are for stacks: leave them out, or take --folded":
            not is_stacks and (args.of or args.measure),
        "--no-findings is for --perfetto and --chrome: nothing else has findings; leave it out":
            args.no_findings and not is_timeline,
        **{
            f"--{name.replace('_', '-')} is for --skyline and --deepview: leave it out":
                (is_timeline or is_stacks) and getattr(args, name) is not None
            for name in of_a_step
        },
        "--skyline and --deepview name their file themselves: leave -o out":
            args.output is not None and (args.skyline or args.deepview),
        "--report is for --skyline: leave it out": args.deepview and args.report,
    })  # fmt: skip
