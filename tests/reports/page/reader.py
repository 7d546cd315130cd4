"""Read the data of a page and sum it up as `docs/report-data.rst` says, in plain Python.

What the program on the page does, row by row and written by itself: it shares no code with pyprof2.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    Row = dict[str, Any]
    Group = list[int]


def data_of(file: Path) -> str:
    """Return the data in a page as it stands there."""
    found: list[str] = re.findall(r'<script type="[^"]*" id="document">([^<]*)<', file.read_text())
    assert len(found) == 1
    return found[0]


def document_of(file: Path) -> dict[str, Any]:
    """Return the data in a page."""
    document: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(data_of(file))))
    return document


def values(column: Any) -> list[Any]:
    """Return the values of a column, of text or not."""
    if isinstance(column, list):
        return column
    return [None if at < 0 else column["texts"][at] for at in column["ids"]]


def rows_of(table: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a table."""
    columns = {name: values(column) for name, column in table["columns"].items()}
    assert {len(column) for column in columns.values()} <= {table["rows"]}
    return [
        dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
    ] or []


def profile(
    document: Mapping[str, Any],
    axis: Callable[[Row], Any],
    selected: Callable[[Row], bool] = lambda _: True,
) -> dict[Any, Row]:
    """Return the columns of the profile by key."""
    cube = rows_of(document["cube"])
    groups: dict[Any, Group] = defaultdict(list)
    for at, row in enumerate(cube):
        if selected(row):
            groups[axis(row)].append(at)
    key_of = {at: key for key, group in groups.items() for at in group}
    calls = _calls(document["calls"], key_of)
    helpers = _helpers(document["helpers"], key_of)
    whole = sum(row["time_ns"] for row in cube if selected(row))
    return {
        key: {
            column["name"]: _value(column, cube, group, helpers[key], calls[key], whole)
            for column in document["columns"]
        }
        for key, group in groups.items()
    }


def _set(sets: Mapping[str, list[int]], at: int) -> list[int]:
    return sets["rows"][sets["first"][at] : sets["first"][at + 1]]


def _calls(calls: Mapping[str, Any], key_of: Mapping[int, Any]) -> dict[Any, int]:
    found: dict[Any, int] = defaultdict(int)
    for at, number in enumerate(calls["op_calls"]):
        for key in {key_of[row] for row in _set(calls["with"], at) if row in key_of}:
            found[key] += number
    return found


def _helpers(helpers: Mapping[str, Any], key_of: Mapping[int, Any]) -> dict[Any, list[Row]]:
    found: dict[Any, list[Row]] = defaultdict(list)
    for at, row in enumerate(helpers["row"]):
        if row not in key_of:
            continue
        key = key_of[row]
        if any(key_of.get(other, ()) == key for other in _set(helpers["with"], at)):
            sums = {name: column[at] for name, column in helpers["columns"].items()}
            found[key].append({"row": row} | sums)
    return found


def _value(
    column: Row, cube: list[Row], group: Group, helpers: list[Row], calls: int, whole: int
) -> Any:
    of, rows = column["of"], [cube[at] for at in group]
    counts = (_sum(rows, name) for name in of.get("known", ()))
    if "known" in of and _sum(rows, of["among"]) and not all(counts):
        return None
    return _made(of, rows + helpers, calls, whole)


def _made(of: Row, rows: list[Row], calls: int, whole: int) -> Any:
    match of:
        case {"calls": True}:
            return calls
        case {"share": name, "scale": scale}:
            return scale * _sum(rows, name) / whole if whole else None
        case {"ratio": [above, below], "scale": scale}:
            under = _sum(rows, below)
            return scale * _sum(rows, above) / under if under else None
        case {"min": name}:
            return min(_known(rows, name), default=None)
        case {"max": name}:
            return max(_known(rows, name), default=None)
        case {"sum": name}:
            return sum(_known(rows, name)) if _known(rows, name) else None
    raise AssertionError(of)


def _known(rows: Iterable[Row], name: str) -> list[Any]:
    return [row[name] for row in rows if row.get(name) is not None]


def _sum(rows: Iterable[Row], name: str) -> Any:
    return sum(_known(rows, name))
