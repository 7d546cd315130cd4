"""Arguments that commands share, and the types of their values."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import _SubParsersAction

    Commands = _SubParsersAction[Any]


def add_input(command: argparse.ArgumentParser) -> None:
    """Declare the store or trace to read."""
    command.add_argument(
        "input", type=Path, metavar="STORE|TRACE", help="what parse wrote, or a recording"
    )


def add_source_root(command: argparse.ArgumentParser) -> None:
    """Declare the folder of the user's own code."""
    command.add_argument(
        "--source-root",
        type=Path,
        metavar="DIR",
        help="your own code is below DIR; by default below the folder of the recorded script, "
        "or in no installed package",
    )


def wants_progress(args: argparse.Namespace) -> bool:
    """Return whether somebody may be looking at a progress bar."""
    return not args.quiet and sys.stderr.isatty()


def positive(text: str) -> int:
    """Return `text` as an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        msg = f"{text!r} is not a number of 1 or more"
        raise argparse.ArgumentTypeError(msg)
    return int(text)


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


def step_range(text: str) -> tuple[int, int]:
    """Return `A` or `A:B` as the first and the last step."""
    first, colon, last = text.partition(":")
    try:
        return int(first), int(last if colon else first)
    except ValueError as error:
        msg = f"{text!r} is not a step A or a range of steps A:B"
        raise argparse.ArgumentTypeError(msg) from error
