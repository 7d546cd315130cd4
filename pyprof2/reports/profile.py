"""The profile: which rows, in which order, with which columns; then in the form asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.profile import (
    AXES,
    MORE_COLUMNS,
    SUMMARY_COLUMNS,
    select,
    summarize,
    total_row,
)
from pyprof2.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports import cells, markdown, notes, text
from pyprof2.reports.heading import heading
from pyprof2.reports.query import GUESSED, KERNEL, SHARE_COLUMNS, Query, SortKey
from pyprof2.reports.table import Content, pyprof_header, shown
from pyprof2.tables import KERNELS, Column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyprof2.run import Run

_WIDE: Final = 1 << 16


@dataclass(frozen=True)
class Profile:
    """The rows of a profile: all that there are, and those that fit the selection."""

    run: Run
    query: Query
    rows: pd.DataFrame
    chosen: pd.DataFrame

    @classmethod
    def of(cls, run: Run, query: Query) -> Profile:
        """Return the rows of `run` that `query` is about."""
        rows = run.rows(query.needed).reset_index(drop=True)
        return cls(run, query, rows, select(rows, **query.selection))

    def known_shares(self) -> dict[str, float]:
        """Return for each axis the share of the time that has a key along it."""
        axes = [axis for axis in AXES if axis not in ("rank", "stream")]
        rows = self.run.rows({"dur_ns", *(AXES[axis] for axis in axes)}).reset_index(drop=True)
        return {axis: notes.known_share(rows.loc[self.chosen.index], axis) for axis in axes}

    @property
    def missing(self) -> str | None:
        """Why there is nothing to show; None where there is something."""
        if len(self.chosen):
            return None
        return (
            "nothing fits the selection" if len(self.rows) else "there is nothing to profile in it"
        )

    def write(self) -> None:
        """Write the profile in the form and to the place that are asked for."""
        if self.query.axes == KERNEL:
            _write_kernels(self)
        else:
            _write_sums(self)


def _write_kernels(profile: Profile) -> None:
    """Write a row for each of those chosen; PyProf's columns count by all rows."""
    rows, chosen, query = profile.rows, profile.chosen, profile.query

    def column(name: str) -> pd.Series:
        if query.takes_pyprofs(name):
            return PYPROF_COLUMNS[name].make(rows).loc[chosen.index]
        if name == "dur_us":
            return chosen["dur_ns"] / 1000
        if name == "share_pct":
            return chosen["dur_ns"] / (chosen["dur_ns"].sum() or float("nan")) * 100
        return chosen[name]

    order = _order(query.sort, column, chosen.index)
    frame = pd.DataFrame(
        {name: column(name) for name in query.kernel_columns}, index=chosen.index
    ).loc[order]
    if not query.target.is_text:
        _write(frame, query, (*KERNELS.columns, *SHARE_COLUMNS))
        return
    total = _total(chosen)
    total |= {
        "dur_ns": total["time_ns"],
        "sil": total["time_ns"],
        "dur_us": total["time_ns"] / 1000,
    }
    _write_table(profile, Content(frame, total, chosen["roofline_flag"]))


def _write_sums(profile: Profile) -> None:
    """Write a row for each key along the axes, or along the one that says most."""
    run, chosen, query = profile.run, profile.chosen, profile.query
    axes = query.axes or (_telling_axis(chosen),)
    sums = summarize(chosen, axes, query.depth, fold_numbers=query.fold_numbers, more=True)
    frame = sums.loc[_order(query.sort, sums.__getitem__, sums.index)]
    unasked = {column.name for column in MORE_COLUMNS}
    frame = frame[list(query.columns or [name for name in frame if name not in unasked])]
    if not query.target.is_text:
        _write(frame, query, (*KERNELS.columns, *SUMMARY_COLUMNS, *MORE_COLUMNS))
        return
    remarks = [
        *(() if query.axes else notes.overview_notes(run, chosen, axes[0])),
        *notes.missed_note(sums, axes),
        *(_step_remarks(profile) if "step" in axes else ()),
        *notes.none_note(run, sums, axes, profile.known_shares),
        *notes.one_line_note(run, chosen, sums, axes),
    ]
    _write_table(profile, Content(frame, _total(chosen), sums["roofline_flag"], remarks))


def _step_remarks(profile: Profile) -> Iterator[str]:
    from pyprof2.reports.steps import step_lines

    yield from notes.step_notes(profile.run)
    yield from step_lines(profile.run, sorted(set(profile.chosen["rank"].tolist())))


def _telling_axis(rows: pd.DataFrame) -> str:
    """Return the axis that has a key for most of the time: ops, ranges, else kernel names."""
    *first, last = GUESSED
    known = (axis for axis in first if rows.empty or notes.known_share(rows, axis) >= 0.5)
    return next(known, last)


def _total(chosen: pd.DataFrame) -> dict[str, Any]:
    (total,) = total_row(chosen).to_dict("records")
    return {str(name): value for name, value in total.items()}


def _order(
    keys: Sequence[SortKey], column: Callable[[str], pd.Series], index: pd.Index
) -> pd.Index:
    """Return the index in the order of the keys; null comes last, ties stay."""
    for key in reversed(keys):
        values = column(key.column).loc[index]
        is_number = pd.api.types.is_numeric_dtype(values.dtype)
        values = values if is_number else values.astype("str")
        index = values.sort_values(ascending=key.rises or not is_number, kind="stable").index
    return index


def _write(frame: pd.DataFrame, query: Query, columns: Sequence[Column]) -> None:
    """Write a file's worth: all rows, unless `--top` says otherwise."""
    frame = frame if query.top is None else frame.head(query.top)
    if query.pyprof and query.target.form == "csv":
        frame = frame.rename(columns=pyprof_header)
    query.target.write_frame(frame, columns)


def _write_table(profile: Profile, content: Content) -> None:
    run, query = profile.run, profile.query
    form = markdown if query.target.form == "markdown" else text
    width = _WIDE if form is markdown else cells.terminal_width(query.target.width)
    lines = form.lines(shown(run, content, query, heading(run, width)), query)
    query.target.write_lines(lines)
