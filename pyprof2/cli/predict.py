"""`pyprof2 predict`: what a step would take on other devices, and on more of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyprof2.cli import arguments

if TYPE_CHECKING:
    import argparse

_EXAMPLES = """examples:
  pyprof2 predict net.pyprof2 --on all
  pyprof2 predict net.pyprof2 --on "H100 SXM,A100 PCIe 80GB" --format csv
  pyprof2 predict net.pyprof2 --on "H100 SXM" --ranks 1,2,4,8 --link nvlink4
  pyprof2 predict net.pyprof2 --on all --price "H100 SXM"=2.0 --price L4=0.7
  pyprof2 predict --calibrate a.pyprof2 b.pyprof2 -o b.json"""


def add_to(commands: arguments.Commands) -> None:
    """Declare the command and its arguments."""
    command = commands.add_parser(
        "predict",
        help="say what a step would take on other GPUs, and on more of them",
        description="Say what a recorded step would take on other GPUs, or on several that train "
        "with data parallelism: from the FLOPs and bytes of its kernels and a few fitted numbers, "
        "each time with an interval, and null where nothing can be known.",
        epilog=_EXAMPLES,
    )
    arguments.add(command, "input", nargs="?")
    command.add_argument(
        "--on",
        metavar="NAME[,NAME…]|all",
        help="the devices, by the names of the table of devices; all: the whole table",
    )
    command.add_argument(
        "--device",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a device that a JSON file describes, with watts and eta if they are known",
    )
    command.add_argument(
        "--recorded-on",
        metavar="NAME|FILE",
        help="the device that was recorded, where the recording or the table does not know it",
    )
    command.add_argument(
        "--step", type=int, metavar="N", help="this step; by default that of median time"
    )
    _add_question(command)
    command.add_argument(
        "--calibrate",
        nargs=2,
        type=Path,
        metavar=("A", "B"),
        help="of recordings of one program on two devices: write a file that describes B's, with "
        "the shares of its peaks that make A's prediction right",
    )
    arguments.add(command, f"span format {arguments.OUTPUT} source-root")
    command.set_defaults(run=run)


def _add_question(command: argparse.ArgumentParser) -> None:
    """Declare what is asked beside the devices."""
    command.add_argument(
        "--ranks",
        type=_counts,
        default=[],
        metavar="N[,N…]",
        help="so many devices, each with the samples of the recorded step",
    )
    command.add_argument(
        "--link",
        metavar="NAME|GB/s",
        help="between them: nvlink3, nvlink4, pcie4, pcie5, or GB/s in one direction",
    )
    arguments.flags(
        command, no_overlap="gradients are added up after the backward pass, not beside it"
    )
    command.add_argument(
        "--level",
        type=_level,
        default=80.0,
        metavar="PCT",
        help="the probability of the intervals in %%; default: 80",
    )
    arguments.counts(
        command, batch_size="samples in a step of one rank, where the recording does not say it"
    )
    command.add_argument(
        "--price",
        type=_price,
        action="append",
        default=[],
        metavar="[DEVICE=]N",
        help="money per hour of a device; without a name, of the one that was recorded",
    )
    command.add_argument(
        "--deadline",
        type=_deadline,
        metavar="STEPS:HOURS",
        help="name the cheapest device that is sure to do so many steps in so many hours",
    )


def _counts(text: str) -> list[int]:
    return [arguments.positive(word) for word in arguments.names(text)]


def _level(text: str) -> float:
    value = arguments.not_negative(text, "a probability in %")
    if not 0 < value < 100:
        arguments.unfit(f"{text!r} is not between 0 and 100")
    return value


def _price(text: str) -> tuple[str | None, float]:
    """Return the device, None for the recorded one, and its price."""
    name, equals, number = text.rpartition("=")
    if equals and not name.strip():
        arguments.unfit(f'{text!r} names no device; as in "H100 SXM"=2.0')
    return name.strip() or None, arguments.not_negative(number, "a price")


def _deadline(text: str) -> tuple[int, float]:
    steps, _, hours = text.partition(":")
    return arguments.positive(steps), arguments.not_negative(hours, "a number of hours")


def run(args: argparse.Namespace) -> None:
    """Show the predictions of `args.input`, or write the file of a device."""
    if args.calibrate is not None:
        _calibrate(args)
        return
    target = arguments.target_of(args)
    arguments.refuse({
        "name a recording, and devices with --on or --device: pyprof2 predict STORE --on all":
            args.input is None or not (args.on or args.device),
        "--ranks: say what links the devices: --link nvlink4, pcie4, or GB/s in one direction":
            any(count > 1 for count in args.ranks) and args.link is None,
        "--deadline: say what devices cost, with --price":
            args.deadline is not None and not args.price,
    })  # fmt: skip
    from pyprof2.api.prediction import PredictedStep, Question, asked_devices, frame_of, priced
    from pyprof2.reports.prediction import Deadline, show

    devices = asked_devices(args.on, args.device)
    prediction = PredictedStep(arguments.loaded(args, device=args.recorded_on).tables, args.step)
    question = Question(
        args.ranks, args.link, not args.no_overlap, args.level / 100, args.batch_size,
        priced(args.price, prediction.source),
    )  # fmt: skip
    frame = frame_of([row for each in devices for row in prediction.rows_of(each, question)])
    deadline = None if args.deadline is None else Deadline(*args.deadline)
    show(frame, prediction, target, question.level, deadline)


def _calibrate(args: argparse.Namespace) -> None:
    """Write the file of the second recording's device."""
    import msgspec

    from pyprof2.api.calibration import calibrated
    from pyprof2.api.run import load
    from pyprof2.reports import files

    words = "--calibrate is alone: of two recordings, with -o FILE"
    arguments.refuse({words: args.input is not None or args.on or args.device})
    files.check_free(args.output, force=args.force)
    progress = arguments.wants_progress(args)
    one, other = (load(path, progress=progress).tables for path in args.calibrate)
    content = msgspec.json.format(files.json_text(calibrated(one, other)), indent=2)
    files.write_text(content + "\n", args.output)
