"""A table as Markdown; nothing is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.reports.cells import clean, escape_markdown, render_markdown
from pyprof2.reports.table import Shown, flag_notes

if TYPE_CHECKING:
    from pyprof2.reports.query import Query


def lines(shown: Shown, query: Query) -> list[str]:
    """Return the lines, under a title that names what the profile is of."""
    notes = [*shown.notes, *flag_notes(shown.marked, shown.flags, ())]
    remarks = [f"- {escape_markdown(clean(note))}" for note in notes]
    found = [f"**{escape_markdown(clean(query.input.name))}**"]
    for line in shown.heading:
        found += ["", escape_markdown(line)]
    table = render_markdown(shown.frame, shown.footer, shown.marked)
    return [*found, "", table, *([""] if remarks else []), *remarks]
