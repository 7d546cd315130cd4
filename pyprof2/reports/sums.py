"""A profile summed along axes, from whatever adds it up; pandas is not needed for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

from pyprof2.analysis.summaries.profile_columns import (
    MEANS,
    MORE_COLUMNS,
    OF_CALLS,
    OF_MODULES,
    SUMMARY_COLUMNS,
    UNSTORED,
)
from pyprof2.listings import in_order, taken
from pyprof2.reports import notes
from pyprof2.reports.heading import heading
from pyprof2.reports.query import GUESSED, KERNEL, Query
from pyprof2.reports.table import ADDITIVE, Content, lines
from pyprof2.tables import KERNELS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.summaries.stored_sums import StoredSums
    from pyprof2.listings import Listed
    from pyprof2.run import Run

_WIDE: Final = 1 << 16
_COLUMNS: Final = (
    *KERNELS.columns, *MEANS, *SUMMARY_COLUMNS, *MORE_COLUMNS, *OF_MODULES, *OF_CALLS,
)  # fmt: skip
_UNASKED: Final = {column.name for column in MORE_COLUMNS}


class Rows(Protocol):
    """The rows of axis `kernel` that fit a selection, or what stands for them."""

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that have some."""

    def sums(self, axes: Sequence[str], query: Query) -> Listed:
        """Return what `summarize` makes of them, with `MORE_COLUMNS`."""

    def total(self) -> dict[str, Any]:
        """Return `SUMMARY_COLUMNS` of all of them together."""

    def known_share(self, axis: str) -> float:
        """Return the share of their time that has a key along an axis."""

    def has_several(self, axis: str, line: str) -> bool:
        """Whether those of a line of code have more than one key along an axis."""


@dataclass(frozen=True)
class StoredRows:
    """What `parse` added up of the rows of a store."""

    all: StoredSums
    chosen: StoredSums

    @property
    def is_empty(self) -> bool:
        """Whether no row fits."""
        return not self.chosen.rows

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that have rows which fit."""
        return sorted({self.chosen.columns["rank"][row] for row in self.chosen.rows})

    def sums(self, axes: Sequence[str], query: Query) -> Listed:
        """Return what `summarize` makes of them, with `MORE_COLUMNS`."""
        return self.chosen.summarize(axes, query.depth, fold_numbers=query.fold_numbers)

    def total(self) -> dict[str, Any]:
        """Return `SUMMARY_COLUMNS` of all of them together."""
        return self.chosen.total()

    def known_share(self, axis: str) -> float:
        """Return the share of their time that has a key along an axis."""
        return self.chosen.known_share(axis)

    def has_several(self, axis: str, line: str) -> bool:
        """Whether those of a line of code have more than one key along an axis."""
        return self.chosen.has_several(axis, line)


@dataclass(frozen=True)
class StoredProfile:
    """A profile of which `parse` stored the sums."""

    run: Run
    query: Query
    rows: StoredRows

    @classmethod
    def of(cls, run: Run, query: Query) -> Self | None:
        """Return the profile; None where the sums do not tell what `query` asks for."""
        apart = not {"step", *UNSTORED}.isdisjoint(query.axes) or query.asked
        if query.axes == KERNEL or apart or query.selection["step"] is not None:
            return None
        sums = run.stored_sums
        if sums is None:
            return None
        return cls(run, query, StoredRows(sums, sums.select(query.selection)))

    @property
    def missing(self) -> str | None:
        """Why there is nothing to show; None where there is something."""
        return "nothing fits the selection" if self.rows.is_empty else None

    def write(self) -> None:
        """Write the profile in the form and to the place that are asked for."""
        write_sums(self.run, self.query, self.rows)


def write_sums(run: Run, query: Query, rows: Rows) -> None:
    """Write a row for each key along the axes, or along the one that says most."""
    axes = query.axes or (_telling_axis(rows),)
    sums = rows.sums(axes, query)
    order = in_order(sums, query.sort)
    ordered = taken(sums, order)
    names = query.columns or [name for name in sums if name not in _UNASKED]
    table = {name: ordered[name] for name in names}
    if not query.target.is_text:
        write_table(table, query)
        return
    remarks = [
        *(() if query.axes else notes.overview_notes(run, axes[0], rows.known_share)),
        *notes.missed_note(sums, axes),
        *(_step_remarks(run, rows) if "step" in axes else ()),
        *notes.none_note(run, sums, axes, rows.known_share),
        *notes.one_line_note(run, sums, axes, rows.has_several),
    ]
    flags = ordered["roofline_flag"].cells
    total = rows.total() | {
        name: sum(value or 0 for value in sums[name].cells)
        for name in query.asked
        if name in ADDITIVE
    }
    write_lines(run, query, Content.of(table, query, total, flags, remarks))


def _telling_axis(rows: Rows) -> str:
    """Return the axis that has a key for most of the time: ops, ranges, else kernel names."""
    *first, last = GUESSED
    known = (axis for axis in first if rows.is_empty or rows.known_share(axis) >= 0.5)
    return next(known, last)


def _step_remarks(run: Run, rows: Rows) -> Iterator[str]:
    from pyprof2.reports.steps import step_lines

    yield from notes.step_notes(run)
    yield from step_lines(run, list(rows.ranks))


def write_table(table: Listed, query: Query) -> None:
    """Write a file's worth: all rows, unless `--top` says otherwise."""
    rows = {n: c._replace(cells=c.cells[: query.top]) for n, c in table.items()}
    query.target.write_listed(rows, _COLUMNS)


def write_lines(run: Run, query: Query, content: Content) -> None:
    """Write a table for people to read, with all that is said around it."""
    width = _WIDE if query.target.form == "markdown" else query.target.line_width
    query.target.write_lines(lines(run, content, query, heading(run, width)))
