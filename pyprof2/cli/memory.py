"""`pyprof2 memory`: who holds the memory of a device, at its peak and over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.cli import arguments, entry_points
from pyprof2.store.places import place

if TYPE_CHECKING:
    import argparse

_EXAMPLES: Final = """examples:
  pyprof2 memory net.pyprof2                          at the peak
  pyprof2 memory snapshot.pickle --at oom --by line   when memory ran out
  pyprof2 memory before.pickle after.pickle           what the second holds more"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "memory",
        help="say who holds the memory of a device",
        description="Say who holds the memory of a device, at the peak or another moment: by "
        "category, layer, line and op. The rows of a device add up to what is allocated, to the "
        "byte. Reads what torch.cuda.memory._dump_snapshot writes, too. Of two, it shows what the "
        "second holds more. With --entry FILE an entry point is run and recorded first.",
        epilog=_EXAMPLES,
    )
    command.add_argument(
        "input", type=place, nargs="?", metavar="STORE|TRACE|SNAPSHOT", help="what was recorded"
    )
    command.add_argument(
        "other", type=place, nargs="?", metavar="B", help="another one, to compare it with"
    )
    _add_selection(command)
    arguments.add(command, f"format {arguments.OUTPUT} source-root")
    entry_points.add_to(command)
    command.set_defaults(run=run)


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--by",
        type=arguments.names,
        metavar="AXIS[,AXIS…]",
        help="sum along: category, certainty, layer, line, op, phase, released, step, line_before",
    )
    command.add_argument(
        "--at",
        choices=("peak", "end", "backward", "oom"),
        default="peak",
        help="the moment: the peak (default), the end, the start of a backward, or out of memory",
    )
    arguments.flags(
        command,
        timeline="show the whole recording",
        weights="show parameters and buffers by name, with their gradients, what the optimizer "
        "keeps for them, and the line that made them",
        events="show each block: its op, size, and when it was allocated and released",
        statistics="show the calls of each op, and how much it allocated and released, by itself "
        "and with the ops inside",
    )
    command.add_argument(
        "--between",
        type=arguments.milliseconds,
        metavar="A:B",
        help="with --statistics: only from A to B, in ms since the begin of the recording",
    )
    command.add_argument("--device", metavar="NAME", help="only this device: cuda:0, 0, cpu")
    arguments.add(command, "rank span top")
    command.add_argument(
        "--fits", metavar="DEVICE", help="say whether it would fit a device, such as A100-80"
    )
    command.add_argument(
        "--memory",
        type=arguments.byte_count,
        metavar="SIZE",
        help="the same for a device with so much memory, such as 80GB or 79.1GiB",
    )


def run(args: argparse.Namespace) -> None:
    """Show who holds the memory of `args.input`.

    Raises:
        UsageError: options that do not go together.
    """
    target = arguments.target_of(args)
    from pyprof2.analysis.hardware.devices import capacity_bytes
    from pyprof2.analysis.memory.live import check_axes
    from pyprof2.api.memory import memory
    from pyprof2.reports.memory import MemoryQuery, show, show_difference
    from pyprof2.reports.op_memory import show_events

    axes = tuple(args.by or ())
    check_axes(axes)
    capacity = args.memory if args.fits is None else capacity_bytes(args.fits)
    query = MemoryQuery(axes, args.at, args.timeline, args.weights, args.top, capacity, target)
    _check(args)
    with entry_points.recording(args) as first:
        if args.statistics:
            from pyprof2.reports.op_memory import show_statistics

            run = arguments.loaded(args, first)
            device, rank = args.device, args.rank
            show_statistics(run, args.between, args.top, target, device=device, rank=rank)
            return
        progress = arguments.wants_progress(args)
        found = [
            memory(path, source_root=args.source_root, progress=progress, span=args.span).only(
                args.device, args.rank
            )
            for path in (first, args.other)
            if path is not None
        ]
        if args.events:
            show_events(found[0], args.top, target)
        elif len(found) == 1:
            show(found[0], query)
        else:
            show_difference(found[0], found[1], query)


def _check(args: argparse.Namespace) -> None:
    """Raise for options that do not go together."""
    pairs = {
        "--fits and --memory say the same: leave one out": args.fits and args.memory,
        "--timeline shows one recording: leave the second out": args.timeline and args.other,
        "--timeline has rows of its own: leave --by out": args.timeline and args.by,
        "--weights has rows of its own: leave --by and --timeline out": args.weights
        and (args.by or args.timeline),
        "--weights shows one recording: leave the second out": args.weights and args.other,
    }
    own = [name for name in ("events", "statistics", "timeline", "weights") if getattr(args, name)]
    others = [name for name in ("by", "other", "fits", "memory") if getattr(args, name) is not None]
    if {"events", "statistics"} & {*own} and (len(own) > 1 or others):
        pairs["--events and --statistics have rows of their own, of one recording"] = True
    if args.between is not None and not args.statistics:
        pairs["--between is a window of --statistics: add it"] = True
    arguments.refuse(pairs)
