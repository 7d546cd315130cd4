"""`pyprof2 prof`: the profile, of every kernel or summed along axes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, messages
from pyprof2.reports import files

if TYPE_CHECKING:
    import argparse

    from pyprof2.api.run import Run
    from pyprof2.reports.query import Query

_EXAMPLES: Final = """examples:
  pyprof2 prof net.pyprof2
  pyprof2 prof net.pyprof2 --by layer,direction --top 20
  pyprof2 prof net.pyprof2 --category matmul -o matmul.csv   every kernel"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "prof",
        help="show the profile",
        description="Show the profile: a row for every kernel and copy, or summed along axes. "
        "A recording without GPU activity has a row for every op call.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input")
    _add_shape(command)
    _add_serving(command)
    _add_selection(command)
    _add_output(command)
    arguments.add(
        command,
        "device",
        metavar="N[,…]|NAME|FILE",
        help="only the work of these devices, by number; or the roofs of a device by its name, or "
        "of a JSON file",
    )
    arguments.add(command, "source-root")
    command.set_defaults(run=run)


def _add_shape(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("rows and columns")
    group.add_argument(
        "--by",
        type=arguments.names,
        metavar="AXIS[,AXIS…]",
        help="sum along: name (or kernel_name; column kernel), op, signature, layer, range, "
        "source, library, stack, direction, step, device, stream, rank, category, span, "
        "tensor_core, grid, block, registers, shared_bytes; or kernel: a row for each, in order; "
        "or, of an inference server, phase (prefill, decode, …), kind (of layer) or both. By "
        "default a table sums along what says most, and the other formats have a row for each "
        "kernel",
    )
    group.add_argument(
        "-c",
        "--columns",
        type=arguments.names,
        metavar="COLS",
        help="these columns, in this order, by their names or headers; some are made only when "
        "asked for, of kernels, of op calls (--by op, signature, stack, …) and of modules (--by "
        "layer): the documentation of the tables lists them under Sums along an axis",
    )
    group.add_argument(
        "--sort",
        type=arguments.names,
        metavar="[+]COL[,[+]COL…]",
        help="largest first, text from A to Z; +COL: smallest first",
    )
    arguments.add(group, "top")
    arguments.counts(
        group, depth="with --by layer or range: cut their paths after N names, and sum"
    )
    arguments.flags(
        group,
        fold_numbers="with --by layer or range: put together what differs in numbers alone",
        pyprof="PyProf's columns, headers and words",
    )


def _add_serving(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("inference servers")
    group.add_argument(
        "--step-pattern",
        metavar="REGEX",
        help="with --by phase or kind: ranges whose whole name it matches are steps too; groups "
        "phase, requests, c_req, c_sq, … g_sqsk name what it says",
    )
    group.add_argument(
        "--model",
        type=Path,
        metavar="CONFIG",
        help="with --by phase or kind: the model's config.json of Hugging Face: FLOPs, bytes, MFU "
        "and MBU, if it is the model of the recording",
    )
    arguments.counts(
        group, tp="with --model or --price: how many ranks share its tensors (tensor parallel)"
    )
    group.add_argument(
        "--price",
        type=partial(arguments.not_negative, what="a price"),
        metavar="N",
        help="with --by phase: price of a device for an hour, in any currency: that of a million "
        "tokens, of the prompt in prefill, of the output in decode",
    )


def _add_selection(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("selection")
    arguments.add(group, "rank")
    arguments.add(group, "span", default=None, help=f"{arguments.SPAN_HELP}, with --by span all")
    group.add_argument(
        "--step", type=arguments.step_range, metavar="A[:B]", help="only step A, or A to B"
    )
    group.add_argument(
        "--layer",
        metavar="REGEX",
        help="only layers in which REGEX is found; here and below without a capital in it any "
        "case fits",
    )
    group.add_argument("--op", metavar="REGEX", help="only ops in which REGEX is found")
    group.add_argument("--kernel", metavar="REGEX", help="only kernel names with REGEX in them")
    group.add_argument(
        "--range", metavar="REGEX", help="only ranges of yours in whose path REGEX is found"
    )
    for name, values in (
        ("direction", "forward, backward, optimizer, other"),
        ("category", "such as matmul, conv, comm, memcpy"),
        ("stream", "numbers"),
    ):
        group.add_argument(
            f"--{name}",
            type=arguments.numbers if name == "stream" else arguments.names,
            metavar=f"{name.upper()}[,…]",
            help=f"only these: {values}",
        )
    arguments.flags(group, no_copies="without memcpy and memset")


def _add_output(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        choices=files.FORMATS,
        help="table (default) and markdown show the first rows; the others have all rows and "
        "columns, times in ns. FILE.csv, .json, .parquet or .md says it too",
    )
    form.add_argument(
        "--csv",
        dest="format",
        action="store_const",
        const="csv",
        help="the same as --format csv",
    )
    group.add_argument(
        "--breakdown",
        choices=("plugin",),
        help="with --by step: the time of each step by what was at work, as the TensorBoard plugin "
        "of PyTorch's profiler counts it; name, memory and compute capability of the devices",
    )
    arguments.flags(
        group, summary="only the totals: of the recording, the ledger, and each step's utilization"
    )
    arguments.add(group, f"envelope {arguments.OUTPUT}")


def run(args: argparse.Namespace) -> None:
    """Show the profile of `args.input`."""
    from pyprof2.api import run_serving
    from pyprof2.cli.query import asks_for_serving, check_breakdown, has_no_choice, read_query
    from pyprof2.reports.files import call

    by_serving = asks_for_serving(args)
    query = read_query(args, by=[] if by_serving else args.by)
    if args.summary:
        from pyprof2.reports import totals  # it takes pandas, which a table of sums does not

        totals.check(query)
    if args.breakdown:
        check_breakdown(query)
    args.span = query.span
    loaded = arguments.loaded(args, device=args.device)
    following = [call(name, input=str(args.input)) for name in ("idle", "advise", "check")]
    target = arguments.with_sides(query.target, loaded, *following)
    query = replace(query, target=target)
    if args.breakdown:
        from pyprof2.reports.totals import show_breakdown

        show_breakdown(loaded, query)
    elif args.summary:
        from pyprof2.reports import totals

        totals.show(loaded, query)
    elif by_serving or (
        args.by == ["step"]
        and has_no_choice(args)
        and not loaded.summary.get("steps")
        and run_serving.is_of_server(loaded.tables)
    ):
        from pyprof2.reports.serving import ServingQuery, show_serving

        rank = query.selection["rank"]
        asked = ServingQuery(
            tuple(args.by), args.model, args.tp, args.step_pattern, args.price, rank
        )
        show_serving(loaded, asked, query.target)
    else:
        show(loaded, query, quiet=args.quiet)


def show(loaded: Run, query: Query, *, quiet: bool = False) -> None:
    """Show the profile that `query` asks for, and on stderr problems of the recording."""
    from pyprof2.api import run_findings
    from pyprof2.reports.profile import Profile

    profile = Profile(loaded, query)
    if not quiet:
        messages.say_why_empty(profile.missing, query.input)
        messages.warn(run_findings.warnings(loaded.tables), query.input)
    profile.write()
