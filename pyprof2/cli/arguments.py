"""Arguments that commands share, and the types of their values."""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyprof2.errors import UsageError
from pyprof2.reports import files
from pyprof2.store.places import STDIN, place

if TYPE_CHECKING:
    from argparse import _SubParsersAction
    from collections.abc import Mapping

    from pyprof2.api.run import Run

    Commands = _SubParsersAction[Any]
    from argparse import _ArgumentGroup

    Declares = argparse.ArgumentParser | _ArgumentGroup

_SIZE: Final = re.compile(
    r"(?P<number>\d{1,18}(?:\.\d{1,18})?)\s*(?P<unit>[KMGT]?)(?P<binary>i?)B?",
    re.IGNORECASE | re.ASCII,
)
SPAN_HELP: Final = (
    "where a worker was recorded several times: its Nth recording, from 0 on, the latest, or all; "
    "by default the latest"
)
OUTPUT: Final = "csv-safe output force width"
"""Where to write, as `target_of` reads it."""
_THOUSANDS: Final = ("", "K", "M", "G", "T")


class WithExamples(argparse.HelpFormatter):
    """Keeps the lines of a text that has several, such as examples below the options."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if "\n" in text else super()._fill_text(text, width, indent)


def add(command: Declares, names: str, **changed: Any) -> None:
    """Declare arguments that several commands have, by their names without dashes, in this order.

    `changed` takes the place of what `_SHARED` has for each of them.
    """
    for name in names.split():
        words, given = _SHARED[name]
        command.add_argument(*words, **given | changed)


def flags(command: Declares, **helps: str) -> None:
    """Declare options without a value, by their names with `_` for a dash, in this order."""
    for name, text in helps.items():
        command.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)


def counts(command: Declares, **helps: str) -> None:
    """Declare options that take a number of 1 or more; see `flags`."""
    for name, text in helps.items():
        words = f"--{name.replace('_', '-')}"
        command.add_argument(words, type=positive, metavar="N", help=text)


def add_ranks(command: argparse.ArgumentParser) -> None:
    """Declare the recordings of a job: one, or that of each rank."""
    words = "what parse wrote, a folder of recordings, or the recordings of all ranks"
    add(command, "input", nargs="+", help=words)


def loaded(args: argparse.Namespace, path: Path | None = None, *, device: str | None = None) -> Run:
    """Return the run of what a command is to read, of the span that is asked for.

    Args:
        args: those of the command.
        path: to read instead of its `input`.
        device: whose roofs to hold times against.
    """
    from pyprof2.api.run import load

    given = path or args.input
    found = given[0] if isinstance(given, list) and len(given) == 1 else given
    progress = wants_progress(args)
    run = load(found, device=device, source_root=args.source_root, progress=progress)
    return run.of_span(args.span) if hasattr(args, "span") else run


def with_sides(target: files.Target, run: Run, *following: dict[str, Any]) -> files.Target:
    """Return a target that has what the numbers of a run rest on, where that is asked for.

    Args:
        target: where to write.
        run: the recording.
        *following: calls that lead on.
    """
    if target.sides is None:
        return target
    from pyprof2.reports.files import evidence_of

    return replace(target, sides=(evidence_of(run), following))


def target_of(args: argparse.Namespace, *, pages: bool = False) -> files.Target:
    """Return where to write, and in which form.

    Args:
        args: of the command.
        pages: whether the command writes an HTML page into a file of that name.

    Raises:
        UsageError: an option is for another form, or the file's ending names none.
        OutputExistsError: the file is there, and `--force` is not given.
    """
    endings = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".md": "markdown"}
    names = ("output", "width", "csv_safe", "force", "envelope")
    output, width, is_safe, force, has_sides = (getattr(args, name, None) for name in names)
    ending = "" if output is None else files.ending_of(output)
    form = "json" if has_sides else args.format or endings.get(ending, "table")
    texts = ("", ".txt", ".log", *((".html",) if pages else ()))
    refuse({
        f"{output}: no format ends in {ending}; name it .csv, .json, .parquet, .md or .txt, or add "
        "--format": not (has_sides or args.format or ending in texts or ending in endings),
        f"--envelope is for json, not for {args.format}: leave it out": has_sides
        and args.format not in (None, "json"),
        f"--width is for tables, not for {form}: leave it out": width is not None
        and form != "table",
        f"--csv-safe is for csv, not for {form}: leave it out": is_safe and form != "csv",
    })  # fmt: skip
    files.check_free(output, force=bool(force))
    return files.Target(form, output, width, bool(is_safe), ({}, ()) if has_sides else None)


def refuse(wrong: Mapping[str, object]) -> None:
    """Raise the first of some errors whose condition holds.

    Raises:
        UsageError: one does.
    """
    for message, holds in wrong.items():
        if holds:
            raise UsageError(message)


def unfit(message: str) -> NoReturn:
    """Refuse the value of an option.

    Raises:
        ArgumentTypeError: always; argparse adds the option's name.
    """
    raise argparse.ArgumentTypeError(message)


def wants_progress(args: argparse.Namespace) -> bool:
    """Return whether somebody may be looking at a progress bar."""
    return not args.quiet and sys.stderr.isatty()


def positive(text: str, least: int = 1) -> int:
    """Return `text` as an integer of at least 1, or of `least`."""
    if not text.isdecimal() or int(text) < least:
        unfit(f"{text!r} is not a number of {least} or more")
    return int(text)


def not_negative(text: str, what: str) -> float:
    """Return `text` as a number of at least 0; `what` names it in the message."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        unfit(f"{text!r} is not {what} of 0 or more")
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
        unfit(f"{text!r} is not a size, as 80GB or 79.1GiB")
    return size


def names(text: str) -> list[str]:
    """Return the names in `text`, which commas separate."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        unfit(f"{text!r} has an empty name")
    return found


def numbers(text: str) -> list[int]:
    """Return the whole numbers in `text`, which commas separate."""
    try:
        return [int(name) for name in names(text)]
    except ValueError:
        unfit(f"{text!r} are not numbers with commas between")


def span(text: str) -> int | str:
    """Return the number of a span, `latest` or `all`."""
    if text in ("latest", "all"):
        return text
    if not text.isdecimal():
        unfit(f"{text!r} is not the number of a span, latest or all")
    return int(text)


def milliseconds(text: str) -> tuple[float, float]:
    """Return a window `A:B` in ms."""
    first, colon, last = text.partition(":")
    try:
        found = float(first), float(last)
    except ValueError:
        found = math.nan, math.nan
    if not colon or not all(map(math.isfinite, found)):
        unfit(f"{text!r} is no window in ms, such as 100:250")
    return found


def output_file(text: str) -> Path | None:
    """Return the file that a text names; None, which is stdout, for `-`."""
    return None if text == str(STDIN) else place(text)


def output_folder(text: str) -> Path:
    """Return the path for what cannot go to stdout: a folder, or several files."""
    if text == str(STDIN):
        unfit("this cannot be written to stdout: give a name")
    return place(text)


def step_range(text: str) -> tuple[int, int]:
    """Return `A` or `A:B` as the first and the last step."""
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError:
        unfit(f"{text!r} is not a step A or a range of steps A:B")


def sized_input(text: str) -> tuple[int, Path]:
    """Return the batch size and the path of `B=PATH`."""
    number, equals, path = text.partition("=")
    if not equals or not path or not number.isdecimal() or int(number) < 1:
        unfit(f"{text!r} is not a batch size, an equals sign and a recording, as 8=net8.pyprof2")
    return int(number), place(path)


def _option(*words: str, **given: Any) -> tuple[tuple[str, ...], dict[str, Any]]:
    return words, given


_SHARED: Final = {
    words[-1].lstrip("-"): (words, given)
    for words, given in (
        _option(
            "input",
            type=place,
            metavar="STORE|TRACE",
            help="what parse wrote, or a recording; or its address, as s3://bucket/net.json.gz; "
            "or -, a recording on stdin",
        ),
        _option(
            "--source-root",
            type=Path,
            metavar="DIR",
            help="your own code is below DIR; by default below the folder of the recorded script, "
            "or in no installed package",
        ),
        _option(
            "--device",
            metavar="NAME|FILE",
            help="use the roofs of this device, or of a JSON file",
        ),
        _option("--rank", type=int, metavar="N", help="only this rank"),
        _option(
            "--span",
            type=span,
            default="latest",
            metavar="N|latest|all",
            help=SPAN_HELP,
        ),
        _option("--top", type=positive, metavar="N", help="only N rows"),
        _option(
            "--ledger",
            choices=("device", "host"),
            help="time of kernels and copies, or of the thread of the step; default: device, "
            "where one worked",
        ),
        _option(
            "-o",
            "--output",
            type=output_file,
            metavar="FILE",
            help="write to FILE; -: to stdout, the default",
        ),
        _option("--force", action="store_true", help="replace FILE if it is there"),
        _option("-w", "--width", type=positive, metavar="WIDTH", help="width of the table"),
        _option(
            "--csv-safe",
            action="store_true",
            help="put an apostrophe before cells of text that a spreadsheet would compute",
        ),
        _option(
            "--format",
            choices=files.FORMATS,
            help="default: table. FILE.csv, .json, .parquet or .md says it too; "
            "FILE.csv.gz is compressed",
        ),
        _option(
            "--envelope",
            action="store_true",
            help="JSON as agents get it: {schema, data, evidence, next}, with null in words",
        ),
        _option(
            "--one-clock",
            action="store_true",
            help="all ranks ran on one machine, where the recordings do not say it",
        ),
    )
}
"""The arguments that several commands have, by their names without dashes."""
