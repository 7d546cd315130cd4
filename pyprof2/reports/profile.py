"""The profile of `prof`: its rows, their order and columns, written in the form asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyprof2.analysis.axes import OWNED, in_words, owners_in_words
from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    MEANS,
    MORE_COLUMNS,
    OF_CALLS,
    OF_MODULES,
    OF_OWNERS,
    SHARE,
    SUMMARY_COLUMNS,
)
from pyprof2.reports import notes
from pyprof2.reports.heading import heading
from pyprof2.reports.listings import Listing, in_order, length, listed, taken
from pyprof2.reports.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports.query import FINER_AXES, GUESSED, KERNEL, SHARE_COLUMNS, Query, SortKey
from pyprof2.reports.table import ADDITIVE, Content, lines, pyprof_header, rows_shown
from pyprof2.tables import KERNELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.api.run import Run
    from pyprof2.reports.listings import Listed

_WIDE: Final = 1 << 16
_COLUMNS: Final = (
    *KERNELS.columns, *MEANS, *SUMMARY_COLUMNS, *MORE_COLUMNS, *OF_OWNERS, SHARE, *OF_MODULES,
    *OF_CALLS,
)  # fmt: skip
_UNASKED: Final = {column.name for column in MORE_COLUMNS}
_MADE: Final = ("dur_us", "share_pct")
_SELECTS_ALL: Final = {"copies": True}
_TABLES: Final = ("kernels", "copies")


@dataclass(frozen=True)
class Profile:
    """A profile that somebody asks for."""

    run: Run
    query: Query

    @cached_property
    def sums(self) -> Sums:
        """The rows that fit the selection, added up by the keys of the axes."""
        query = self.query
        if query.axes == KERNEL:
            return self.run.sums((), **query.selection)
        finer = FINER_AXES if query.axes == ("source",) else ()
        keys = [AXES[axis] for axis in (*(query.axes or GUESSED), *finer)]
        return self.run.sums(keys, means=query.means, **query.selection)

    @property
    def missing(self) -> str | None:
        """Why there is nothing to show; None where there is something."""
        if len(self.sums.chosen):
            return None
        every = self.run.sums(())
        return (
            "nothing fits the selection"
            if len(every.chosen)
            else ("there is nothing to profile in it")
        )

    def write(self) -> None:
        """Write the profile in the form and to the place that are asked for."""
        if self.query.axes != KERNEL:
            self._write_sums()
            return
        first = _first_rows(self.run, self.query)
        if first is None:
            self._write_kernels()
            return
        # A table of the first kernels needs only a sum of the rest.
        total = self._total_of_kernels()
        time, durations = total["time_ns"], first["dur_ns"].cells
        made = first | {
            "dur_us": Listing([each / 1000 for each in durations], is_text=False),
            "share_pct": Listing([_share(each, time) for each in durations], is_text=False),
        }
        rest_ns = time - sum(durations)
        sums = {"dur_ns": rest_ns, "dur_us": rest_ns / 1000, "share_pct": _share(rest_ns, time)}
        names = self.query.kernel_columns
        rest = {name: sums[name] for name in names if name in sums}
        table = {name: made[name] for name in names}
        flags = made["roofline_flag"].cells
        _write_lines(self.run, self.query, Content(table, total["count"], rest, total, flags))

    def known_share(self, axis: str) -> float:
        """Return the share of the time of the rows that has a key along an axis."""
        known = axis == "step" or AXES[axis] in self.sums.keys
        sums = self.sums if known else self.run.sums((AXES[axis],), **self.query.selection)
        return sums.known_share(axis)

    def _write_sums(self) -> None:
        """Write a row for each key along the axes, or along the one that says most."""
        run, query = self.run, self.query
        axes = query.axes
        if not axes:
            # The first axis that has a key for most of the time: ops, ranges, else kernel names.
            *first, last = GUESSED
            known = (a for a in first if not len(self.sums.chosen) or self.known_share(a) >= 0.5)
            axes = (next(known, last),)
        sums = self._summed(axes)
        ordered = taken(sums, in_order(sums, query.sort))
        names = query.columns or [name for name in sums if name not in _UNASKED]
        table = {name: ordered[name] for name in names}
        if not query.target.is_text:
            rows = {n: c._replace(cells=c.cells[: query.top]) for n, c in table.items()}
            query.target.write_listed(rows, _COLUMNS)
            return
        of_steps: list[str] = []
        if "step" in axes:
            from pyprof2.reports.steps import step_lines

            of_steps = [*notes.step_notes(run), *step_lines(run, self.sums.ranks)]
        remarks = [
            *(() if query.axes else notes.overview_notes(run, axes[0], self.known_share)),
            *notes.missed_note(sums, axes),
            *of_steps,
            *notes.none_note(run, sums, axes, self.known_share),
            *notes.one_line_note(run, sums, axes, self.sums.has_several),
        ]
        total = self.sums.total() | {
            name: sum(value or 0 for value in sums[name].cells)
            for name in query.asked
            if name in ADDITIVE
        }
        flags = ordered["roofline_flag"].cells
        _write_lines(run, query, Content.of(table, query, total, flags, remarks))

    def _summed(self, axes: Sequence[str]) -> Listed:
        query = self.query
        asked = {*query.columns, *(key.column for key in query.sort)}
        found = self.sums.summarize(
            axes, query.depth, fold_numbers=query.fold_numbers, means=query.means,
            owners=not asked.isdisjoint(each.name for each in OF_OWNERS),
        )  # fmt: skip
        if query.is_of_calls or query.gives_shares:
            from pyprof2.analysis.summaries.profile import frame

            rows, keys = frame(found), {"fold_numbers": query.fold_numbers} | query.selection
            if query.gives_shares:
                rows = self.run.with_shares(rows, AXES[axes[0]], query.depth, **keys)
            if query.is_of_calls:
                rows = self.run.with_calls(rows, axes, query.depth, **keys)
            return listed(rows)
        return {
            each.name: Listing(found[each.name].to_pylist(), pa.types.is_string(each.type))
            for each in found.schema
        }

    def _write_kernels(self) -> None:
        """Write a row for each kernel that is chosen; PyProf's columns count by all rows."""
        import pandas as pd

        from pyprof2.analysis.summaries.profile import select

        query = self.query
        rows = self.run.rows(query.needed).reset_index(drop=True)
        chosen = select(rows, **query.selection)

        def column(name: str) -> pd.Series:
            if query.takes_pyprofs(name):
                return PYPROF_COLUMNS[name].make(rows).loc[chosen.index]
            if name == "dur_us":
                return chosen["dur_ns"] / 1000
            if name == "share_pct":
                return chosen["dur_ns"] / (chosen["dur_ns"].sum() or float("nan")) * 100
            return owners_in_words(chosen, name)

        order = _order(query.sort, column, chosen.index)
        frame = pd.DataFrame(
            {name: column(name) for name in query.kernel_columns}, index=chosen.index
        ).loc[order]
        if not query.target.is_text:
            frame = frame if query.top is None else frame.head(query.top)
            if query.pyprof and query.target.form == "csv":
                frame = frame.rename(columns=pyprof_header)
            query.target.write_frame(frame, (*KERNELS.columns, *SHARE_COLUMNS))
            return
        first, rest = frame.head(rows_shown(query)), frame.iloc[rows_shown(query) :]
        sums = {str(n): rest[n].sum(min_count=1) for n in rest.columns if n in ADDITIVE}
        flags = listed(chosen[["roofline_flag"]].loc[first.index])["roofline_flag"].cells
        content = Content(listed(first), len(frame), sums, self._total_of_kernels(), flags)
        _write_lines(self.run, query, content)

    def _total_of_kernels(self) -> dict[str, Any]:
        total = self.sums.total()
        time = total["time_ns"]
        return total | {"dur_ns": time, "sil": time, "dur_us": time / 1000}


def _order(
    keys: Sequence[SortKey], column: Callable[[str], pd.Series], index: pd.Index
) -> pd.Index:
    """Return the index in the order of the keys; null comes last, ties stay."""
    from pandas.api.types import is_numeric_dtype

    for key in reversed(keys):
        values = column(key.column).loc[index]
        is_number = is_numeric_dtype(values.dtype)
        values = values if is_number else values.astype("str")
        index = values.sort_values(ascending=key.rises or not is_number, kind="stable").index
    return index


def _write_lines(run: Run, query: Query, content: Content) -> None:
    """Write a table for people to read, with heading and notes."""
    width = _WIDE if query.target.form == "markdown" else query.target.line_width
    query.target.write_lines(lines(run, content, query, heading(run, width)))


def _first_rows(run: Run, query: Query) -> Listed | None:
    """Return as many kernels as a table shows.

    None where more of them are needed, sums of all that are not stored, or rows whose ids are
    further back in their tables.
    """
    chosen = {name: value for name, value in query.selection.items() if value is not None}
    # The sums over all rows of other columns that add up are not stored.
    adds_up = {*ADDITIVE} - {"dur_ns", *_MADE}
    if not query.target.is_text or chosen != _SELECTS_ALL or run.first_ids or query.sort:
        return None
    if query.pyprof or not adds_up.isdisjoint(query.kernel_columns):
        return None
    if run.stored_sums is None or any(map(query.takes_pyprofs, query.kernel_columns)):
        return None
    return _first_stored(run, query)


def _first_stored(run: Run, query: Query) -> Listed | None:
    """Return these rows as they are stored; None where their ids are further back."""
    sets = {f"shared_{name}": name for name in OWNED if name in query.kernel_columns}
    wanted = {"kernel_id", "dur_ns", "roofline_flag", *query.kernel_columns, *sets}
    columns = [name for name in KERNELS.names if name in wanted.difference(_MADE)]
    found: Listed = {name: Listing([], is_text=_is_text(name)) for name in columns}
    for rank in run.counted_ranks:
        count = rows_shown(query) - length(found)
        # Kernels and copies number their rows together: no more are needed of both.
        tables = [rank.parts(name).read(0, columns).slice(0, count) for name in _TABLES]
        both = {name: [c for table in tables for c in table[name].to_pylist()] for name in columns}
        ids = both["kernel_id"]
        order = sorted(range(len(ids)), key=ids.__getitem__)[:count]
        rows = taken({n: Listing(each, is_text=_is_text(n)) for n, each in both.items()}, order)
        whole = sum(rank.parts(name).row_count for name in _TABLES)
        if rows["kernel_id"].cells != list(range(min(count, whole))):
            return None
        for name, column in found.items():
            column.cells.extend(rows[name].cells)
        if length(found) >= rows_shown(query):
            break
    for shared, name in sets.items():
        cells = zip(found[shared].cells, found[name].cells, strict=True)
        words = [in_words(each) if each else own for each, own in cells]
        found[name] = Listing(words, is_text=True)
    return found


def _share(part: int, whole: int) -> float | None:
    return part / whole * 100 if whole else None


def _is_text(name: str) -> bool:
    kind = KERNELS.schema([name]).field(0).type
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind))
