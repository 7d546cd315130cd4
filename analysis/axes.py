"""Axes that tables are summed along, as names that a user gives."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SEPARATOR: Final = " / "
"""The text between the names of ranges inside one another."""


def check_known_once(axes: Sequence[str], known: Collection[str], of: str) -> None:
    """Raise unless all axes are known and each is named once.

    Args:
        axes: the names that were given.
        known: the names that there are, in the order in which a message lists them.
        of: what the message says after the name: `of memory`.

    Raises:
        UsageError: an axis is unknown, or named twice.
    """
    for at, axis in enumerate(axes):
        if axis not in known:
            near = difflib.get_close_matches(axis, known, n=3, cutoff=0.5)
            hint = f"did you mean {', '.join(near)}? " if near else ""
            msg = f"no axis {axis!r} {of}; {hint}there are {', '.join(known)}"
            raise UsageError(msg)
        if axis in axes[:at]:
            msg = f"axis {axis!r} is named twice; name it once"
            raise UsageError(msg)
