"""Small tables of Python's own values: the shown rows of a profile, without DataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pandas as pd


class Listing(NamedTuple):
    """A column: its cells, None for null, and whether they are text."""

    cells: list[Any]
    is_text: bool


Listed: TypeAlias = "dict[str, Listing]"
"""Columns of equal length, by name."""


def listed(frame: pd.DataFrame) -> Listed:
    """Return the columns of a DataFrame."""
    from pandas.api.types import is_numeric_dtype

    found = {}
    for name in frame.columns:
        values = frame[name]
        plain = values.astype(object).where(values.notna(), None).tolist()
        found[str(name)] = Listing(plain, not is_numeric_dtype(values.dtype))
    return found


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a DataFrame as objects of Python's own values, null as None."""
    names = [str(name) for name in frame.columns]
    columns = [frame[name].astype(object).where(frame[name].notna(), None) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def length(table: Mapping[str, Listing]) -> int:
    """Return the number of rows."""
    return len(next(iter(table.values())).cells) if table else 0


def taken(table: Mapping[str, Listing], rows: Iterable[int]) -> Listed:
    """Return these rows, in this order."""
    order = list(rows)
    return {
        name: Listing([column.cells[row] for row in order], column.is_text)
        for name, column in table.items()
    }


def in_order(table: Mapping[str, Listing], keys: Sequence[tuple[str, bool]]) -> list[int]:
    """Return the rows in the order of columns; null comes last, and ties stay.

    Args:
        table: the columns.
        keys: which, the most significant first, and whether it rises; text always does.
    """
    order = list(range(length(table)))
    for name, rises in reversed(keys):
        values, is_text = table[name]
        known = [row for row in order if values[row] is not None]
        # Reversed before and after, so that what falls keeps its ties too.
        falls = not (rises or is_text)
        known = known[::-1] if falls else known
        known.sort(key=values.__getitem__)
        null = [row for row in order if values[row] is None]
        order = (known[::-1] if falls else known) + null
    return order
