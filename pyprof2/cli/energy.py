"""`pyprof2 energy`: the time, energy, carbon and money of a step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments
from pyprof2.store.places import place

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 energy monday.pyprof2 tuesday.pyprof2           one run after another
  pyprof2 energy net.pyprof2 --price 2.50 --steps 50000   what an epoch costs
  pyprof2 energy net.pyprof2 --grams-per-kwh 380 --pue 1.2"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "energy",
        help="time, energy, carbon and money of a step",
        description="Show what a step takes: its time with an interval, the energy that counters "
        "of the recording machine counted, and, with the carbon intensity and the price that you "
        "give, grams of CO2 and money. Several recordings are shown one after another. Where no "
        "energy was counted there is none, and no carbon; nothing is looked up.",
        epilog=_EXAMPLES,
    )
    _add_arguments(command)
    # The old name works, and is not listed.
    _add_arguments(commands.add_parser("spend"))


def _add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "inputs",
        nargs="+",
        type=place,
        metavar="STORE|TRACE",
        help="what parse wrote, or recordings; in the order in which they are shown",
    )
    command.add_argument(
        "--price",
        type=partial(arguments.not_negative, what="a price"),
        metavar="N",
        help="price of an hour of all machines that the job runs on, in any currency",
    )
    command.add_argument(
        "--grams-per-kwh",
        type=partial(arguments.not_negative, what="a number of grams"),
        metavar="N",
        help="carbon intensity of the electricity, in grams of CO2 equivalent; your supplier, or "
        "the statistics of your country, state it",
    )
    command.add_argument(
        "--pue",
        type=_pue,
        default=1.0,
        metavar="N",
        help="power usage effectiveness of the building; default: 1",
    )
    command.add_argument(
        "--steps",
        type=arguments.positive,
        default=1,
        metavar="N",
        help="show N steps, such as those of an epoch; default: one",
    )
    arguments.add(command, f"format {arguments.OUTPUT}")
    command.set_defaults(run=run)


def _pue(text: str) -> float:

    value = arguments.not_negative(text, "a power usage effectiveness")
    if value < 1:
        arguments.unfit(f"{text!r} is less than 1: no power usage effectiveness (PUE) is")
    return value


def run(args: argparse.Namespace) -> None:
    """Show time, energy, carbon and money of the steps of `args.inputs`."""
    target = arguments.target_of(args)
    from pyprof2.analysis.summaries.spending import Rates
    from pyprof2.api.run import load
    from pyprof2.reports.energy import show

    progress = arguments.wants_progress(args)
    runs = [(str(path), load(path, progress=progress)) for path in args.inputs]
    show(runs, Rates(args.price, args.grams_per_kwh, args.pue, args.steps), target)
