"""Axes that tables are summed along, as names that a user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import refuse, suggest
from pyprof2.signatures import CATEGORIES, DIRECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pandas as pd

SEPARATOR: Final = " / "
"""The text between the names of ranges inside one another."""
OWNED: Final = ("op", "layer", "source")
"""The axes along which a kernel of compiled code may have several keys."""
COARSE: Final = (*OWNED, "direction")
"""The axes that show `shared_…` where their own column is null: several keys, or of a replayed
kernel that nothing explains the key of the graph's launch, see `launch_text`."""
NONE: Final = "(none)"
"""The key of the rows whose text is null."""
VALUES: Final = {"direction": DIRECTIONS, "category": CATEGORIES}
"""The columns of which all values are known, with these."""
_OWNERS: Final = "\x1f"
"""The character before each owner of what has several; no name begins with it."""
_SHARED: Final = "(shared: "
_OF_LAUNCH: Final = "(graph launched in "


def join_owners(owners: Sequence[str]) -> str | None:
    """Return the text that stands for several owners of one kernel; None for one, or none."""
    if len(owners) < 2:
        return None
    return "".join(_OWNERS + owner for owner in sorted(owners, key=_place))


def split_owners(text: str) -> list[str]:
    """Return the owners that a text stands for: itself, where it is just one."""
    return text[1:].split(_OWNERS) if text.startswith(_OWNERS) else [text]


def _place(owner: str) -> tuple[str, int]:
    """Return what owners are in the order of: lines of a file by number."""
    path, colon, line = owner.rpartition(":")
    return (path, int(line)) if colon and line.isdecimal() else (owner, -1)


def shared_text(owners: Sequence[str]) -> str:
    """Return several owners in words, `(shared: net.py:7, train.py:41, 42)`; just one as it is."""
    if len(owners) == 1:
        return owners[0]
    words, last = [], None
    for owner in sorted(owners, key=_place):
        path, line = _place(owner)
        words.append(str(line) if line >= 0 and path == last else owner)
        last = path if line >= 0 else None
    return f"{_SHARED}{', '.join(words)})"


def launch_text(owner: str) -> str:
    """Return the key of replayed kernels whose own one is unknown, from the launch of their graph.

    It is coarser than a key of a kernel itself, and is not summed with `owner`.
    """
    return f"{_OF_LAUNCH}{owner})"


def is_of_launch(text: str) -> bool:
    """Return whether a key is one of `launch_text`."""
    return text.startswith(_OF_LAUNCH)


def in_words(text: str) -> str:
    """Return the owners that a text stands for in words."""
    return shared_text(split_owners(text))


def owners_in_words(rows: pd.DataFrame, name: str, *, coarse: bool) -> pd.Series:
    """Return a column of rows, along an axis of `COARSE` with several owners in words.

    Args:
        rows: with the column, and `shared_` with it where a kernel may have several.
        name: of the column.
        coarse: whether replayed kernels that nothing explains have the key of their launch.
    """
    from pyprof2.columns import as_text

    shared = f"shared_{name}"
    if name not in COARSE or shared not in rows:
        return rows[name]
    owners = as_text(rows[shared].dropna())
    if not coarse:
        owners = owners[~owners.map(is_of_launch).astype(bool)]
    if owners.empty:
        return rows[name]
    words = {each: in_words(each) for each in owners.unique()}
    return owners.map(words).reindex(rows.index).fillna(as_text(rows[name]))


def in_shared_text(text: str, change: Callable[[str], str]) -> str:
    """Return a key of an axis with a change made to each owner that it names."""
    if is_of_launch(text):
        return launch_text(change(text.removeprefix(_OF_LAUNCH).removesuffix(")")))
    if not text.startswith(_SHARED):
        return change(text)
    owners = text.removeprefix(_SHARED).removesuffix(")").split(", ")
    return f"{_SHARED}{', '.join(map(change, owners))})"


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
            hint = suggest(axis, known)
            refuse(f"no axis {axis!r} {of}; {hint}there are {', '.join(known)}")
        if axis in axes[:at]:
            refuse(f"axis {axis!r} is named twice; name it once")


def check_names(name: str, wanted: Collection[Any]) -> None:
    """Raise unless rows can have these values in a column of `VALUES`; `(none)` is null.

    Raises:
        UsageError: a name is unknown.
    """
    known = (*VALUES[name], NONE)
    for each in wanted:
        if each not in known:
            hint = suggest(each, known)
            refuse(f"no {name} {each!r}; {hint}there are {', '.join(known)}")
