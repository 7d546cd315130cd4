"""Messages on stderr about a recording, beside progress and errors."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Final

from pyprof2.reports.cells import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WARNINGS_SHOWN: Final = 3


def say(*lines: str, quiet: bool = False) -> None:
    """Print messages to stderr, unless nobody wants them."""
    for line in () if quiet else lines:
        print(f"pyprof2: {clean(line)}", file=sys.stderr)


def warn(lines: Sequence[str], path: Path) -> None:
    """Print the first few problems of the recording at `path` to stderr."""
    say(*(f"{path}: {line}" for line in lines[:_WARNINGS_SHOWN]))
    if lines:
        more = len(lines) - _WARNINGS_SHOWN
        also = f"{more} more, and what to do: " if more > 0 else "what to do: "
        say(f"{also}pyprof2 check {shlex.quote(str(path))}")


def say_why_empty(why: str | None, path: Path) -> None:
    """Print to stderr why there is nothing to show of `path`; None: there is something."""
    if why is not None:
        say(f"{path}: {why}")
