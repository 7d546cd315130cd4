"""Arguments that commands share, and the types of their values."""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import UsageError
from pyprof2.reports import files
from pyprof2.store.places import place

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    from pyprof2.api.run import Run

    Commands = _SubParsersAction[Any]

_SIZE: Final = re.compile(
    r"(?P<number>\d{1,18}(?:\.\d{1,18})?)\s*(?P<unit>[KMGT]?)(?P<binary>i?)B?",
    re.IGNORECASE | re.ASCII,
)
_THOUSANDS: Final = ("", "K", "M", "G", "T")


class WithExamples(argparse.HelpFormatter):
    """Keeps the lines of a text that has several, such as examples below the options."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def add_input(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare the store or trace to read."""
    command.add_argument(
        "input",
        type=place,
        nargs=None if required else "?",
        metavar="STORE|TRACE",
        help="what parse wrote, or a recording; or its address, as s3://bucket/net.json.gz; or -, "
        "a recording on stdin",
    )


def add_ranks(command: argparse.ArgumentParser) -> None:
    """Declare the recordings of a job: one, or that of each rank."""
    command.add_argument(
        "input",
        type=place,
        nargs="+",
        metavar="STORE|TRACE",
        help="what parse wrote, a folder of recordings, or the recordings of all ranks",
    )


def recordings_of(args: argparse.Namespace) -> Path | list[Path]:
    """Return what `add_ranks` took, as `pyprof2.load` takes it."""
    paths: list[Path] = args.input
    return paths if len(paths) > 1 else paths[0]


def add_source_root(command: argparse.ArgumentParser) -> None:
    """Declare the folder of the user's own code."""
    command.add_argument(
        "--source-root",
        type=Path,
        metavar="DIR",
        help="your own code is below DIR; by default below the folder of the recorded script, "
        "or in no installed package",
    )


def add_roofs(command: argparse.ArgumentParser) -> None:
    """Declare the device to hold times against."""
    command.add_argument(
        "--device", metavar="NAME|FILE", help="use the roofs of this device, or of a JSON file"
    )


def add_output(command: argparse.ArgumentParser | argparse._ArgumentGroup, force: str = "") -> None:
    """Declare where to write; `target_of` reads it.

    Args:
        command: or a group of its arguments.
        force: what `--force` does beside replacing a file.
    """
    command.add_argument(
        "--csv-safe",
        action="store_true",
        help="put an apostrophe before cells of text that a spreadsheet would compute",
    )
    add_file(command, force)
    command.add_argument("-w", "--width", type=positive, metavar="WIDTH", help="width of the table")


def add_rank(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare the one rank to show."""
    command.add_argument("--rank", type=int, metavar="N", help="only this rank")


def add_span(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, default: str | None = "latest"
) -> None:
    """Declare the one recording of several to show; `default` None: it depends on the axes."""
    command.add_argument(
        "--span",
        type=span,
        default=default,
        metavar="N|latest|all",
        help="where a worker was recorded several times: its Nth recording, from 0 on, the latest, "
        f"or all; by default the latest{'' if default else ', with --by span all'}",
    )


def add_top(
    command: argparse.ArgumentParser | argparse._ArgumentGroup, meaning: str = "only N rows"
) -> None:
    """Declare the most rows to show; `meaning` is the help."""
    command.add_argument("--top", type=positive, metavar="N", help=meaning)


def add_ledger(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare whose time is shared out."""
    command.add_argument(
        "--ledger",
        choices=("device", "host"),
        help="time of kernels and copies, or of the thread of the step; default: device, where "
        "one worked",
    )


def add_file(command: argparse.ArgumentParser | argparse._ArgumentGroup, force: str = "") -> None:
    """Declare the file to write; arguments as of `add_output`."""
    command.add_argument("-o", "--output", type=place, metavar="FILE", help="write to FILE")
    command.add_argument("--force", action="store_true", help=f"{force}replace FILE if it is there")


def add_format(command: argparse.ArgumentParser) -> None:
    """Declare the form of the output."""
    command.add_argument(
        "--format",
        choices=files.FORMATS,
        help="default: table. FILE.csv, .json, .parquet or .md says it too; "
        "FILE.csv.gz is compressed",
    )


def add_envelope(command: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Declare JSON in the form of the answers to agents; `with_sides` fills it."""
    command.add_argument(
        "--envelope",
        action="store_true",
        help="JSON as agents get it: {schema, data, evidence, next}, with null in words",
    )


def is_enveloped(args: argparse.Namespace) -> bool:
    """Return whether that form is asked for.

    Raises:
        UsageError: so is another one.
    """
    if args.envelope and args.format not in (None, "json"):
        msg = f"--envelope is for json, not for {args.format}: leave it out"
        raise UsageError(msg)
    return bool(args.envelope)


def with_sides(target: files.Target, run: Run, *following: dict[str, Any]) -> files.Target:
    """Return a target that has what the numbers of a run rest on, where that is asked for.

    Args:
        target: where to write.
        run: the recording.
        *following: calls that lead on.
    """
    if target.sides is None:
        return target
    from pyprof2.reports.envelope import evidence_of

    return replace(target, sides=(evidence_of(run), following))


def target_of(args: argparse.Namespace) -> files.Target:
    """Return where to write, and in which form.

    Raises:
        UsageError: an option is for another form.
        OutputExistsError: the file is there, and `--force` is not given.
    """
    endings = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "markdown"}
    ending = "" if args.output is None else files.ending_of(args.output)
    has_sides = hasattr(args, "envelope") and is_enveloped(args)
    form = "json" if has_sides else args.format or endings.get(ending, "table")
    if args.width is not None and form != "table":
        msg = f"--width is for tables, not for {form}: leave it out"
        raise UsageError(msg)
    if args.csv_safe and form != "csv":
        msg = f"--csv-safe is for csv, not for {form}: leave it out"
        raise UsageError(msg)
    files.check_free(args.output, force=args.force)
    return files.Target(
        form, args.output, args.width, args.csv_safe, ({}, ()) if has_sides else None
    )  # fmt: skip


def wants_progress(args: argparse.Namespace) -> bool:
    """Return whether somebody may be looking at a progress bar."""
    return not args.quiet and sys.stderr.isatty()


def positive(text: str) -> int:
    """Return `text` as an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def not_negative(text: str, what: str) -> float:
    """Return `text` as a number of at least 0; `what` names it in the message."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        msg = f"{text!r} is not {what} of 0 or more"
        raise argparse.ArgumentTypeError(msg)
    return value


def byte_count(text: str) -> int:
    """Return a size of memory in bytes: `80GB` of 1000³ each, `79.1GiB` of 1024³.

    Upper and lower case are the same, and the B may be left out.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = match["unit"].upper() if match else ""
    # An i without a letter before it is no unit.
    if match is None or (match["binary"] and not unit):
        size = 0
    else:
        base = 1024 if match["binary"] else 1000
        size = round(float(match["number"]) * base ** _THOUSANDS.index(unit))
    if not 0 < size < 1 << 63:
        msg = f"{text!r} is not a size, as 80GB or 79.1GiB"
        raise argparse.ArgumentTypeError(msg)
    return size


def names(text: str) -> list[str]:
    """Return the names in `text`, which commas separate."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        msg = f"{text!r} has an empty name"
        raise argparse.ArgumentTypeError(msg)
    return found


def numbers(text: str) -> list[int]:
    """Return the whole numbers in `text`, which commas separate."""
    try:
        return [int(name) for name in names(text)]
    except ValueError as error:
        msg = f"{text!r} are not numbers with commas between"
        raise argparse.ArgumentTypeError(msg) from error


def span(text: str) -> int | str:
    """Return the number of a span, `latest` or `all`."""
    if text in ("latest", "all"):
        return text
    if not text.isdecimal():
        msg = f"{text!r} is not the number of a span, latest or all"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


def milliseconds(text: str) -> tuple[float, float]:
    """Return a window `A:B` in ms."""
    first, colon, last = text.partition(":")
    try:
        found = float(first), float(last)
    except ValueError:
        found = math.nan, math.nan
    if not colon or not all(map(math.isfinite, found)):
        msg = f"{text!r} is no window in ms, such as 100:250"
        raise argparse.ArgumentTypeError(msg)
    return found


def step_range(text: str) -> tuple[int, int]:
    """Return `A` or `A:B` as the first and the last step."""
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError as error:
        msg = f"{text!r} is not a step A or a range of steps A:B"
        raise argparse.ArgumentTypeError(msg) from error


def sized_input(text: str) -> tuple[int, Path]:
    """Return the batch size and the path of `B=PATH`."""
    number, equals, path = text.partition("=")
    if not equals or not path or not number.isdecimal() or int(number) < 1:
        msg = f"{text!r} is not a batch size, an equals sign and a recording, as 8=net8.pyprof2"
        raise argparse.ArgumentTypeError(msg)
    return int(number), place(path)
