"""Tables for people, as text or Markdown: of any report; of a profile with heading and notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyprof2.analysis.axes import in_shared_text
from pyprof2.analysis.hardware.roofline import FLAG_COMPUTE, FLAG_SAVING
from pyprof2.analysis.summaries.profile_columns import (
    OF_CALLS,
    OF_MODULES,
    SHARE,
    SUMMARY_COLUMNS,
    ProfileColumn,
)
from pyprof2.frames import shown_line
from pyprof2.reports import cells
from pyprof2.reports.cells import Listing, length, listed, taken
from pyprof2.reports.pyprof_columns import PYPROF_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from pyprof2.api.run import Run
    from pyprof2.reports.cells import Listed
    from pyprof2.reports.files import Target
    from pyprof2.reports.query import Query

    Footer = list[tuple[str, dict[str, Any]]]

_TABLE_ROWS: Final = 50
_OVERVIEW_ROWS: Final = 20
_OF_KERNELS: Final = {
    "step": 6, "signature": 7, "kernel_id": 12, "tensor_core": 14, "layer": 17,
}  # fmt: skip
_DROPPABLE: Final = sorted(
    places := _OF_KERNELS | {c.name: c.dropped for c in SUMMARY_COLUMNS if c.dropped is not None},
    key=places.__getitem__,
)
"""The columns that a narrow terminal does without, the first one first: of rows for each kernel,
and of sums."""
# Which columns hold a line of code; the last one is PyProf's.
_LINES: Final = ("source", "library_source")
ADDITIVE: Final = {"dur_us", "dur_ns", "sil"} | {
    column.name
    for column in (*SUMMARY_COLUMNS, SHARE, *OF_CALLS, *OF_MODULES)
    if isinstance(column, ProfileColumn) and column.adds_up
}
"""Columns that add up over rows, so that a line can stand for those not shown."""

_HALF_PCT: Final = 50
_COUNTS: Final = [column.name for column in SUMMARY_COLUMNS if column.counted]
_PARTLY: Final = "of the costed part alone: less than half of the row's time"
_FLAGS_OF_FLOPS: Final = (FLAG_SAVING, FLAG_COMPUTE)


class Drawn(NamedTuple):
    """A table as lines of text.

    Attributes:
        lines: of the table.
        left_out: columns for which a line has no room.
    """

    lines: list[str]
    left_out: list[str]


def drawn(
    rows: pd.DataFrame | Listed,
    target: Target,
    footer: Sequence[tuple[str, Mapping[str, Any]]] = (),
    *,
    droppable: Sequence[str] = (),
    marked: Mapping[str, Sequence[bool]] | None = None,
    alike: Sequence[str] = (),
) -> Drawn:
    """Return a table in the form of text that `target` names; Markdown leaves nothing out.

    Args:
        rows: those to show.
        target: the form, and the width of a line.
        footer: further rows below a line; this and what follows is as for `cells.render`.
        droppable: columns that a narrow terminal may do without, the first one first.
        marked: by column, which of its values have a mark before them.
        alike: columns that are in the unit of their largest number.
    """
    if target.form == "markdown":
        return Drawn(cells.render_markdown(rows, footer, marked, alike).splitlines(), [])
    text, left_out = cells.render(rows, footer, target.line_width, droppable, marked, alike)
    return Drawn(text.splitlines(), left_out)


@dataclass(frozen=True)
class Content:
    """The rows of a table, with sums and notes.

    Attributes:
        first: the rows that are shown, in order.
        count: of all rows.
        rest: sums over those not shown, by column.
        total: of all rows, by column.
        flags: of the rows that are shown, why a rate that is above a roof may be right.
        notes: further lines below the table.
    """

    first: Listed
    count: int
    rest: dict[str, Any]
    total: dict[str, Any]
    flags: Sequence[str | None]
    notes: Sequence[str] = ()

    @classmethod
    def of(
        cls, table: Listed, query: Query, total: dict[str, Any], flags: Sequence[str | None],
        notes: Sequence[str],
    ) -> Content:  # fmt: skip
        """Return the content of a table of which all rows are there, with the flag of each."""
        count, shown = length(table), rows_shown(query)
        rest = {
            name: _added_up(column.cells[shown:])
            for name, column in table.items()
            if name in ADDITIVE
        }
        return cls(taken(table, range(min(shown, count))), count, rest, total, flags[:shown], notes)


def rows_shown(query: Query) -> int:
    """Return how many rows a table has at most."""
    return query.top or (_TABLE_ROWS if query.axes else _OVERVIEW_ROWS)


def lines(run: Run, content: Content, query: Query, heading: Sequence[str]) -> list[str]:
    """Return the lines of a profile: heading, table, and notes."""
    first, notes, target = content.first, list(content.notes), query.target
    if length(first) < content.count:
        more = f"{length(first):,} of {content.count:,} rows; more with --top N, all with --csv"
        notes.insert(0, more)
    footer = _footer(content)
    first = with_short_lines(first, run.tables.source_roots)
    if query.pyprof:
        first = {pyprof_header(name): column for name, column in first.items()}
        footer = [
            (words, {pyprof_header(name): row[name] for name in row}) for words, row in footer
        ]
    partly = _partly_counted(first)
    marked = _marked(first, content.flags)
    for name, few in partly.items():
        both = zip(few, marked.get(name, few), strict=True)
        marked[name] = [one or other for one, other in both]
    droppable: list[str] = []
    if not (query.columns or query.pyprof):
        # The keys of sums, which come first, stay. Without a GPU the kernel is the op.
        names = list(first)
        keys = names[: names.index("count")] if "count" in names else []
        least = ["kernel_short"] if run.summary["no_gpu"] else []
        droppable = [name for name in (*least, *_DROPPABLE) if name not in keys]
    table = drawn(first, target, footer, droppable=droppable, marked=marked)
    if table.left_out:
        names = sorted(table.left_out, key=list(first).index)
        notes.append(f"columns that did not fit (-w, -c): {', '.join(names)}")
    # The meaning of the marks, each flag once.
    marks = [marked[name] for name in marked if name not in table.left_out]
    seen = zip(content.flags, zip(*marks, strict=True), strict=False)
    flagged = [flag for flag, marks_of_row in seen if flag and any(marks_of_row)]
    if any(any(marks) for name, marks in partly.items() if name not in table.left_out):
        flagged.insert(0, _PARTLY)
    notes += [f"{cells.MARK} {flag}" for flag in dict.fromkeys(flagged)]
    if target.form == "markdown":
        title = f"**{cells.escape_markdown(cells.clean(query.input.name))}**"
        above = [line for each in heading for line in ("", cells.escape_markdown(each))]
        remarks = [f"- {cells.escape_markdown(cells.clean(note))}" for note in notes]
        return [title, *above, "", *table.lines, *([""] if remarks else []), *remarks]
    header, *body = table.lines
    header = header if target.path else cells.bold(header)
    return [*heading, "", header, *body, *cells.wrapped(notes, target.line_width)]


def pyprof_header(name: str) -> str:
    """Return PyProf's header of a column, where it has one."""
    return PYPROF_COLUMNS[name].header if name in PYPROF_COLUMNS else name


def with_short_lines(rows: pd.DataFrame | Listed, roots: Sequence[str]) -> Listed:
    """Return rows whose lines of code begin at the user's folder, instead of at the disk's root.

    Args:
        rows: of any table.
        roots: the user's folders.
    """
    table = rows if isinstance(rows, dict) else listed(rows)
    short: dict[str, Listing] = {
        name: Listing(
            [
                line and in_shared_text(line, lambda each: shown_line(each, roots))
                for line in table[name].cells
            ],
            is_text=True,
        )
        for name in _LINES
        if name in table
    }
    if "trace" in table:
        innermost = [line and line.rpartition(",")[2] for line in table["trace"].cells]
        short["trace"] = Listing([shown_line(line, roots) for line in innermost], is_text=True)
    return table | short


def _marked(rows: Listed, flags: Sequence[str | None]) -> dict[str, list[bool]]:
    """Return by column which of the rates are above a roof, so that a flag says why."""
    words = [flag or "" for flag in flags]
    of_flops = [word.startswith(_FLAGS_OF_FLOPS) for word in words]
    of_bytes = [bool(word) and not flops for word, flops in zip(words, of_flops, strict=True)]
    marks = {"tflops": of_flops, "gbps": of_bytes}
    return {name: marks[name] for name in marks if name in rows}


def _partly_counted(rows: Listed) -> dict[str, list[bool]]:
    """Return by column which counts and rates are of less than half of the time of their row."""
    if "costed_pct" not in rows:
        return {}
    few = [known is not None and known < _HALF_PCT for known in rows["costed_pct"].cells]
    return {
        name: [is_few and bool(value) for is_few, value in zip(few, rows[name].cells, strict=True)]
        for name in _COUNTS
        if name in rows
    }


def _footer(content: Content) -> Footer:
    """Return the rows below the table: the sum of those not shown, and the total."""
    names, total = list(content.first), content.total
    footer = [("total", {name: total[name] for name in names if name in total})]
    rest = content.count - length(content.first)
    if rest:
        footer.insert(0, (f"{rest:,} more", content.rest))
    return footer


def _added_up(values: Sequence[Any]) -> Any:
    """Return the sum of the known values; None where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
