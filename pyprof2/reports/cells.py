"""Tables for a terminal: units in the headers, text cut to fit, nothing a trace says obeyed.

Names come from recordings, so whatever a terminal might act on is shown as an escape.

The shown rows are small tables of Python's own values, without DataFrames.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
import unicodedata
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from pyprof2 import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pandas as pd


NULL: Final = "-"
MARK: Final = "*"

_GAP: Final = 2
_NARROWEST: Final = 12
_WIDTH_OF_A_PIPE: Final = 120
# Stands behind a character that takes two cells, so that its text is as long as it is wide.
# It is of a category that `clean` escapes, so no recording can bring one in.
_FILLER: Final = "\ue000"
# Stands for a blank that a text begins with, which tabulate would cut off: it shows the depth in a
# tree.
_INDENT: Final = "\ue001"
_MARKDOWN: Final = re.compile(r"[\\`*_\[\]<>|~&$]")

_HEADERS: Final = {"kernel_id": "id", "tensor_core": "TC", "sil": "sil ns"}
# A path or an op is known by its end, arguments by their start, any other name by both.
_CUT_AT_START: Final = frozenset(
    {"op", "layer", "module", "source", "library_source", "stack", "trace"}
)
_CUT_AT_END: Final = frozenset(
    {
        "kernel",
        "signature",
        "params",
        "cost_note",
        "link_note",
        "tensor_core_evidence",
        "roofline_flag",
    }
)
_WEIGHTS: Final = {"kernel": 2, "kernel_short": 2, "signature": 2, "line": 2, "stack": 2}
_INSTANTS: Final = frozenset({"start_ns", "launch_ns"})
# The unit in the header, and the digits after the point.
_SUFFIXES: Final = {"us": ("us", 3), "pct": ("%", 1)}


@dataclass(slots=True)
class Cells:
    """One column of a table as text, top to bottom; without its header."""

    name: str
    header: str
    texts: list[str]
    is_text: bool

    @property
    def width(self) -> int:
        """The width that nothing is cut at."""
        return max(map(len, [self.header, *self.texts]))

    @property
    def is_empty(self) -> bool:
        """Whether there is no value to see."""
        return all(value in {NULL, ""} for value in self.texts)


def clean(text: str) -> str:
    r"""Return `text` on one line, with escapes for unprintable characters: `\n`, `\x1b`."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def wrapped(
    texts: Iterable[str],
    width: int,
    first: str = "",
    others: str = "",
    *,
    break_long_words: bool = True,
) -> list[str]:
    """Return texts, each on lines of `width` at most.

    Args:
        texts: paragraphs, shown as by `clean`.
        width: of a line.
        first: what stands before the first line of each.
        others: what stands before its other lines.
        break_long_words: whether a word that is longer than a line is cut.
    """
    found = []
    for text in texts:
        found += textwrap.wrap(
            clean(text), width, initial_indent=first, subsequent_indent=others,
            break_long_words=break_long_words, break_on_hyphens=False,
        )  # fmt: skip
    return found


def terminal_width(chosen: int | None) -> int:
    """Return `chosen`, or the width of the terminal, or a fixed width where there is none."""
    return chosen or shutil.get_terminal_size((_WIDTH_OF_A_PIPE, 24)).columns


def bold(text: str) -> str:
    """Return `text` in bold, where stdout is a terminal and `NO_COLOR` is not set."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return f"\x1b[1m{text}\x1b[0m"


@cache
def _headers_said() -> dict[str, str]:
    """Return the headers that do not follow from a column's name."""
    from pyprof2.analysis.summaries.profile_columns import MEANS, SUMMARY_COLUMNS

    return _HEADERS | {c.name: c.header for c in (*SUMMARY_COLUMNS, *MEANS) if c.header}


def headers(name: str) -> set[str]:
    """Return the headers that a column may have: its unit depends on its values."""
    base, _, suffix = name.rpartition("_")
    found = {_headers_said().get(name, name)}
    if name.startswith("flops"):
        found |= {name.replace("flops", unit.label) for unit in units.FLOPS}
    elif "bytes" in name:
        found |= {name.replace("bytes", unit.label) for unit in units.BYTES}
    elif suffix == "ns":
        found |= {f"{base} {unit.label}" for unit in (units.NANOSECONDS, *units.TIMES)}
    elif suffix in _SUFFIXES:
        found.add(f"{base} {_SUFFIXES[suffix][0]}")
    return found


def render(
    frame: pd.DataFrame | Listed,
    footer: Sequence[tuple[str, Mapping[str, Any]]],
    width: int,
    droppable: Sequence[str] = (),
    marked: Mapping[str, Sequence[bool]] | None = None,
    alike: Sequence[str] = (),
) -> tuple[str, list[str]]:
    """Return the table as text, and the columns that had to be left out.

    Args:
        frame: the rows to show.
        footer: further rows below a line: what each is, and its values by column. What they
            lack stays blank, and the first column where all are blank says what they are.
        width: the widest that a line may be.
        droppable: columns that may be left out for that, the first one first; those without a
            value go before all others.
        marked: by column, which of its values have a mark before them.
        alike: columns of numbers that are all in the unit of their largest one.
    """
    columns = _format_columns(_listed(frame), footer, marked or {}, alike)
    columns, left_out = _drop_columns(columns, width, droppable)
    columns = _label(columns, [words for words, _ in footer])
    _shorten_texts(columns, width)
    return _aligned(columns, footer), left_out


def _aligned(columns: Sequence[Cells], footer: Sequence[object]) -> str:
    """Return the columns side by side, with a line above the footer."""
    import tabulate

    rows: list[Any] = [[column.header for column in columns], tabulate.SEPARATING_LINE]
    rows += [list(row) for row in zip(*(c.texts for c in columns), strict=True)]
    if footer:
        rows.insert(-len(footer), tabulate.SEPARATING_LINE)
    sides = ["left" if column.is_text else "right" for column in columns]
    # The header is a row of its own: tabulate makes columns two wider than their headers. It takes
    # each character for one cell, as where wcwidth is not installed: a wide one has a filler.
    before, tabulate.WIDE_CHARS_MODE = tabulate.WIDE_CHARS_MODE, False
    try:
        table = tabulate.tabulate(rows, tablefmt="simple", disable_numparse=True, colalign=sides)
    finally:
        tabulate.WIDE_CHARS_MODE = before
    lines = table.replace(_FILLER, "").replace(_INDENT, " ").splitlines()[1:-1]
    return "\n".join(line.rstrip() for line in lines)


def render_markdown(
    frame: pd.DataFrame | Listed,
    footer: Sequence[tuple[str, Mapping[str, Any]]],
    marked: Mapping[str, Sequence[bool]] | None = None,
    alike: Sequence[str] = (),
) -> str:
    """Return the table as Markdown, whole, its last rows in bold; arguments as of `render`."""
    import tabulate

    table = _listed(frame)
    columns = _format_columns(table, footer, marked or {}, alike)
    columns = _label(columns, [words for words, _ in footer])
    cells = [[escape_markdown(_plain(text)) for text in c.texts] for c in columns]
    height = length(table)
    for texts in cells:
        texts[height:] = [f"**{words}**" if words else "" for words in texts[height:]]
    return tabulate.tabulate(
        [list(row) for row in zip(*cells, strict=True)],
        headers=[escape_markdown(column.header.replace(_FILLER, "")) for column in columns],
        tablefmt="pipe",
        disable_numparse=True,
        colalign=["left" if column.is_text else "right" for column in columns],
    )


def _format_columns(
    frame: Listed,
    footer: Sequence[tuple[str, Mapping[str, Any]]],
    marked: Mapping[str, Sequence[bool]],
    alike: Sequence[str] = (),
) -> list[Cells]:
    """Return all columns as text, the rows and the footer, with the marks."""
    together = [value for name in alike for value in frame[name].cells if not _is_word(value)]
    largest = max(map(abs, together), default=None)
    columns = [
        _format_column(
            name,
            column,
            [row.get(name, "") for _, row in footer],
            largest if name in alike else None,
        )
        for name, column in frame.items()
    ]
    for column in columns:
        marks = marked.get(column.name, ())
        column.texts[: len(marks)] = [
            MARK + cell if mark else cell for mark, cell in zip(marks, column.texts, strict=False)
        ]
    return columns


def _listed(frame: pd.DataFrame | Listed) -> Listed:
    return frame if isinstance(frame, dict) else listed(frame)


def _plain(text: str) -> str:
    return text.replace(_FILLER, "").replace(_INDENT, " ")


def escape_markdown(text: str) -> str:
    """Return `text` so that Markdown, and HTML in it, shows it as it is."""
    return _MARKDOWN.sub(r"\\\g<0>", text)


def _format_column(
    name: str, column: Listing, footer: list[Any], largest: float | None = None
) -> Cells:
    """Return the column as text; its unit follows from its name and the largest value."""
    values, is_text = column
    items = [*values, *footer]
    # The rows determine the unit; a total would make them too small to see.
    numbers, totals = ([i for i in part if not _is_word(i)] for part in (values, footer))
    largest = max(numbers or totals, key=abs, default=0) if largest is None else largest
    largest = largest if isinstance(largest, bool) else abs(largest)
    label, form = (name, str) if is_text else _number_format(name, largest)
    cells = [
        clean(item) if isinstance(item, str) else NULL if _is_word(item) else form(item)
        for item in items
    ]
    return Cells(
        name, _widen(_headers_said().get(name, label)), [_widen(cell) for cell in cells], is_text
    )


def _label(columns: list[Cells], words: Sequence[str]) -> list[Cells]:
    """Return the columns with the last rows saying what they are, where all these are blank."""
    height = len(columns[0].texts) - len(words)
    for column in columns:
        if not any(column.texts[height:]):
            column.texts[height:] = words
            return columns
    return [Cells("", "", [""] * height + list(words), is_text=True), *columns]


def _is_word(item: Any) -> bool:
    """Return whether `item` is text or null, so no number."""
    if item is None or isinstance(item, str):
        return True
    if isinstance(item, (int, float)):
        return item != item  # noqa: PLR0124 -- NaN is not itself
    import pandas as pd

    return bool(pd.isna(item))


def _number_format(name: str, largest: float) -> tuple[str, Callable[[Any], str]]:
    """Return the header, with the unit, and the function from a number to its text."""
    base, _, suffix = name.rpartition("_")
    if name.startswith("flops") or "bytes" in name:
        word, unit = (
            ("flops", units.flop_unit(largest))
            if name.startswith("flops")
            else ("bytes", units.byte_unit(largest))
        )
        return name.replace(word, unit.label), lambda v: units.format_rate(v / unit.size)
    if name in _INSTANTS:
        return f"{base} ns", str
    if suffix == "ns":
        unit = units.time_unit(largest)
        return f"{base} {unit.label}", lambda value: f"{value / unit.size:.3f}"
    if suffix in _SUFFIXES:
        label, decimals = _SUFFIXES[suffix]
        decimals += base == "share"  # small shares add up as well
        return f"{base} {label}", lambda value: f"{value:.{decimals}f}"
    if isinstance(largest, bool):
        return name, lambda value: "yes" if value else "no"
    return name, str if isinstance(largest, int) else units.format_rate


def _widen(text: str) -> str:
    """Return `text` with a filler behind each character that takes two cells, and its indent."""
    if text.startswith(" "):
        inner = text.lstrip(" ")
        return _INDENT * (len(text) - len(inner)) + _widen(inner)
    if text.isascii():
        return text
    return "".join(
        char + _FILLER if unicodedata.east_asian_width(char) in "WF" else char for char in text
    )


def _drop_columns(
    columns: list[Cells], width: int, droppable: Sequence[str]
) -> tuple[list[Cells], list[str]]:
    """Return the columns that fit when texts are cut, and the names of the others."""
    by_name = {column.name: column for column in columns}
    candidates = [name for name in droppable if name in by_name]
    candidates.sort(key=lambda name: not by_name[name].is_empty)
    kept, left_out = columns, []
    for name in candidates:
        if sum(_narrowest(kept, width)) + _GAP * (len(kept) - 1) <= width:
            break
        left_out.append(name)
        kept = [column for column in kept if column.name != name]
    return kept, left_out


def _narrowest(columns: list[Cells], width: int) -> list[int]:
    """Return how narrow each column may become; the fewer texts, the wider they stay."""
    texts = sum(column.is_text for column in columns)
    floor = max(_NARROWEST, width * 3 // (5 * texts + 5))
    return [
        min(c.width, max(floor, 9 * _WEIGHTS.get(c.name, 1))) if c.is_text else c.width
        for c in columns
    ]


def _shorten_texts(columns: list[Cells], width: int) -> None:
    """Cut the texts in place so that the table fits in `width`."""
    room = _narrowest(columns, width)
    spare = width - sum(room) - _GAP * (len(columns) - 1)
    while spare > 0:
        growing = [i for i, column in enumerate(columns) if room[i] < column.width]
        if not growing:
            break
        room[min(growing, key=lambda i: room[i] / _WEIGHTS.get(columns[i].name, 1))] += 1
        spare -= 1
    for column, cells in zip(columns, room, strict=True):
        if column.is_text:
            column.texts = [shorten(text, cells, column.name) for text in column.texts]


def shorten(text: str, width: int, column: str) -> str:
    """Return `text` in at most `width` characters; where it is cut depends on the column."""
    if len(text) <= width:
        return text
    try:
        "…".encode(sys.stdout.encoding or "utf-8")
        mark = "…"
    except UnicodeEncodeError:
        mark = "~"
    room = width - len(mark)
    key = column.lower()
    if key == "kernel":
        text = text.removeprefix("void ")
        if len(text) <= width:
            return text
    head = 0 if key in _CUT_AT_START else room if key in _CUT_AT_END else room // 2
    start, end = text[:head], text[len(text) - (room - head) :]
    # Half of a wide character is a blank.
    if text[head] == _FILLER:
        start = f"{start[:-1]} "
    if end.startswith(_FILLER):
        end = f" {end[1:]}"
    return start + mark + end


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
