"""A table as text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pyprof2.reports import cells
from pyprof2.reports.table import Shown, flag_notes

if TYPE_CHECKING:
    from pyprof2.reports.query import Query


def lines(shown: Shown, query: Query) -> list[str]:
    """Return the lines of a table that fits the terminal, or the width asked for."""
    width = cells.terminal_width(query.target.width)
    table, left_out = cells.render(shown.frame, shown.footer, width, shown.droppable, shown.marked)
    header, body = table.split("\n", 1)
    header = header if query.target.path else cells.bold(header)
    notes = [*shown.notes, *flag_notes(shown.marked, shown.flags, left_out)]
    if left_out:
        names = sorted(left_out, key=list(shown.frame).index)
        notes.insert(len(shown.notes), f"columns that did not fit (-w, -c): {', '.join(names)}")
    found = [*shown.heading, "", header, body]
    for note in notes:
        found += textwrap.wrap(cells.clean(note), width, break_on_hyphens=False)
    return found
