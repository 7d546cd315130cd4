"""The profile: which rows, in which order, with which columns; then in the form asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from pyprof2.analysis.summaries.profile import select, summarize, total_row
from pyprof2.analysis.summaries.profile_columns import AXES
from pyprof2.listings import listed
from pyprof2.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports.notes import NOT_TOLD
from pyprof2.reports.query import KERNEL, SHARE_COLUMNS, Query, SortKey
from pyprof2.reports.sums import write_lines, write_sums
from pyprof2.reports.table import ADDITIVE, Content, pyprof_header, rows_shown
from pyprof2.tables import KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyprof2.listings import Listed
    from pyprof2.run import Run
    from pyprof2.tables import Column


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

    @property
    def is_empty(self) -> bool:
        """Whether no row fits the selection."""
        return not len(self.chosen)

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that have rows which fit."""
        return sorted(set(self.chosen["rank"].tolist()))

    @cached_property
    def _keys(self) -> pd.DataFrame:
        """Time and keys of the rows along every axis; they are read where a note needs them."""
        wanted = {
            "dur_ns",
            *(AXES[axis] for axis in AXES if axis not in NOT_TOLD),
        }
        if wanted <= set(self.chosen.columns):
            return self.chosen
        return self.run.rows(wanted).reset_index(drop=True).loc[self.chosen.index]

    def sums(self, axes: Sequence[str], query: Query) -> Listed:
        """Return what `summarize` makes of the rows, with `MORE_COLUMNS`."""
        found = summarize(
            self.chosen, axes, query.depth, fold_numbers=query.fold_numbers, more=True,
            means=query.means,
        )  # fmt: skip
        if query.tells_of_calls:
            found = self.run.with_calls(
                found, axes, query.depth, fold_numbers=query.fold_numbers, **query.selection
            )
        return listed(found)

    def total(self) -> dict[str, Any]:
        """Return `SUMMARY_COLUMNS` of all rows together."""
        (total,) = total_row(self.chosen).to_dict("records")
        return {str(name): value for name, value in total.items()}

    def known_share(self, axis: str) -> float:
        """Return the share of the time of the rows that has a key along an axis."""
        rows = self.chosen if AXES[axis] in self.chosen else self._keys
        time = rows["dur_ns"]
        return float(time[rows[AXES[axis]].notna()].sum() / (time.sum() or 1))

    def has_several(self, axis: str, line: str) -> bool:
        """Whether the rows of a line of code have more than one key along an axis."""
        of_line = self.chosen[self.chosen["source"] == line]
        return len(of_line[AXES[axis]].unique()) > 1

    @property
    def missing(self) -> str | None:
        """Why there is nothing to show; None where there is something."""
        if not self.is_empty:
            return None
        return (
            "nothing fits the selection" if len(self.rows) else "there is nothing to profile in it"
        )

    def write(self) -> None:
        """Write the profile in the form and to the place that are asked for."""
        if self.query.axes == KERNEL:
            _write_kernels(self)
        else:
            write_sums(self.run, self.query, self)


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
    total = profile.total()
    total |= {
        "dur_ns": total["time_ns"],
        "sil": total["time_ns"],
        "dur_us": total["time_ns"] / 1000,
    }
    first, rest = frame.head(rows_shown(query)), frame.iloc[rows_shown(query) :]
    sums = {str(n): rest[n].sum(min_count=1) for n in rest.columns if n in ADDITIVE}
    flags = listed(chosen[["roofline_flag"]].loc[first.index])["roofline_flag"].cells
    content = Content(listed(first), len(frame), sums, total, flags)
    write_lines(profile.run, query, content)


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
