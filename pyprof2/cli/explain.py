"""`pyprof2 explain`: the facts of one kernel or op, and their evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.cli import arguments
from pyprof2.errors import UsageError
from pyprof2.reports import explanation

if TYPE_CHECKING:
    import argparse


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "explain",
        help="say what a number of one kernel or op rests on",
        description="Say all that is known of one kernel or op and what it rests on: its inputs, "
        "the formula with its numbers, the link, the forward-backward pair, the Tensor Core "
        "verdict, the roof. Of a prediction: which kernels make the difference, and why.",
    )
    arguments.add(command, "input")
    command.add_argument(
        "reference",
        metavar="kernel:N|op:N|predict:DEVICE",
        help="the row: its kernel_id or op_id, as prof shows them; or a prediction",
    )
    command.add_argument(
        "--rank", type=int, metavar="N", help="rank of the row, where there are several"
    )
    arguments.add(command, "device")
    command.add_argument("--format", choices=explanation.FORMATS, help="default: text")
    arguments.add(command, "envelope source-root")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Explain `args.reference`."""
    from pyprof2.analysis.summaries.explain import parse_reference
    from pyprof2.api.run_findings import PREDICTION

    if not args.reference.startswith(PREDICTION):
        parse_reference(args.reference)
    target, loaded = arguments.target_of(args), arguments.loaded(args, device=args.device)
    try:
        facts = loaded.explain(args.reference, args.rank)
    except UsageError as error:
        msg = f"{args.input}: {error}"
        raise UsageError(msg) from error
    if args.envelope:
        from pyprof2.reports.files import call

        following = call("prof", input=str(args.input), by="kernel")
        arguments.with_sides(target, loaded, following).write_enveloped(facts)
        return
    explanation.write(facts, args.format or "text")
