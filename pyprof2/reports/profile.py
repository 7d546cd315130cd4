"""The profile of `prof`: its rows, their order and columns, written in the form asked for.

Notes below it say why its rows are what they are, and where to look next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from pyprof2.analysis.axes import COARSE, NONE, in_words, owners_in_words
from pyprof2.analysis.summaries.profile_columns import (
    AXES,
    MEANS,
    MORE_COLUMNS,
    OF_CALLS,
    OF_MODULES,
    OF_OWNERS,
    SHARE,
    SUMMARY_COLUMNS,
    UNSTORED,
    with_devices,
)
from pyprof2.api import run_profile, run_time
from pyprof2.columns import as_text
from pyprof2.frames import shown_line
from pyprof2.reports.cells import Listing, in_order, length, listed, taken
from pyprof2.reports.heading import heading, left_out, share_text
from pyprof2.reports.pyprof_columns import PYPROF_COLUMNS
from pyprof2.reports.query import FINER_AXES, GUESSED, KERNEL, SHARE_COLUMNS, Query, SortKey
from pyprof2.reports.table import ADDITIVE, Content, drawn, lines, pyprof_header, rows_shown
from pyprof2.tables import KERNELS
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from pyprof2.analysis.summaries.profile import Sums
    from pyprof2.api.run import Run
    from pyprof2.reports.cells import Listed


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
            return self._sums(())
        finer = FINER_AXES if query.axes == ("source",) else ()
        axes = with_devices(query.axes, self.run.summary["gpu_count"])
        keys = [AXES[axis] for axis in (*(axes or GUESSED), *finer)]
        return self._sums(keys, query.means)

    def _sums(self, keys: Sequence[str], means: Sequence[str] = ()) -> Sums:
        """Return the rows that fit the selection, added up by some columns."""
        return run_profile.sums_of(self.run.tables, keys, means=means, **self.query.selection)

    @property
    def missing(self) -> str | None:
        """Why there is nothing to show; None where there is something."""
        if len(self.sums.chosen) or self._has_only_ranges:
            return None
        if len(run_profile.sums_of(self.run.tables, ()).chosen):
            return "nothing fits the selection"
        return "there is nothing to profile in it"

    @property
    def _has_only_ranges(self) -> bool:
        """Whether ranges of the host are all that can be shown, and are asked for."""
        found = self.run.summary
        nothing = found["no_gpu"] and not found["op_count"]
        query = self.query
        chosen = [value for name, value in query.selection.items() if name != "copies"]
        is_plain = not (query.sort or query.columns or any(each is not None for each in chosen))
        return nothing and is_plain and found["range_count"] > 0 and query.axes in ((), ("range",))

    def _write_ranges(self) -> None:
        """Write the time of ranges on the host."""
        from pyprof2.analysis.summaries.range_times import INPUT, RANGE_TIMES, range_times

        query, run = self.query, self.run
        rows = range_times(run.table("ranges").select(INPUT), query.depth)
        if not query.target.is_text:
            query.target.write_frame(rows, RANGE_TIMES, query.top)
            return
        notes = ["no work of a GPU and no ops: the time of the ranges on the host"]
        target, shown = query.target, rows.head(rows_shown(query))
        table = drawn(shown, target).lines
        left = [f"{len(rows) - len(shown):,} more"] if len(shown) < len(rows) else []
        target.write_lines([*heading(run, target.line_width), *notes, "", *table, *left])

    def write(self) -> None:
        """Write the profile in the form and to the place that are asked for."""
        if self._has_only_ranges:
            self._write_ranges()
            return
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
        sums = self.sums if known else self._sums((AXES[axis],))
        return sums.known_share(axis)

    def _write_sums(self) -> None:
        """Write a row for each key along the axes, or along the one that says most."""
        run, query = self.run, self.query
        axes = with_devices(query.axes, run.summary["gpu_count"])
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

            of_steps = [*step_notes(run), *step_lines(run, self.sums.ranks)]
        remarks = [
            *(() if query.axes else overview_notes(run, axes[0], self.known_share)),
            *missed_note(sums, axes),
            *around_note(run, sums, axes),
            *stream_note(run, query.selection, axes),
            *of_steps,
            *none_note(run, sums, axes, self.known_share),
            *one_line_note(run, sums, axes, self.sums.has_several),
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
                column = AXES[axes[0]]
                rows = run_profile.with_shares(self.run.tables, rows, column, query.depth, **keys)
            if query.is_of_calls:
                rows = run_profile.with_calls(self.run.tables, rows, axes, query.depth, **keys)
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
        rows = run_profile.rows_of(self.run.tables, query.needed).reset_index(drop=True)
        chosen = select(rows, **query.selection)

        def column(name: str) -> pd.Series:
            if query.takes_pyprofs(name):
                return PYPROF_COLUMNS[name].make(rows).loc[chosen.index]
            if name == "dur_us":
                return chosen["dur_ns"] / 1000
            if name == "share_pct":
                return chosen["dur_ns"] / (chosen["dur_ns"].sum() or float("nan")) * 100
            return owners_in_words(chosen, name, coarse=query.target.is_text)

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
        values = values if is_number else as_text(values)
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
    if not query.target.is_text or chosen != _SELECTS_ALL or run.tables.first_ids or query.sort:
        return None
    if query.pyprof or not adds_up.isdisjoint(query.kernel_columns):
        return None
    stored = run_profile.stored_sums(run.tables)
    if stored is None or any(map(query.takes_pyprofs, query.kernel_columns)):
        return None
    return _first_stored(run, query)


def _first_stored(run: Run, query: Query) -> Listed | None:
    """Return these rows as they are stored; None where their ids are further back."""
    sets = {f"shared_{name}": name for name in COARSE if name in query.kernel_columns}
    wanted = {"kernel_id", "dur_ns", "roofline_flag", *query.kernel_columns, *sets}
    columns = [name for name in KERNELS.names if name in wanted.difference(_MADE)]
    found: Listed = {name: Listing([], is_text=_is_text(name)) for name in columns}
    for rank in run.tables.counted_ranks:
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


_WHOLE_PCT: Final = 100
_SAID_PCT: Final = 1
"""Ops with less of the time are not named."""
_ONE_LINE_PCT: Final = 50
_STEPS_SHOWN: Final = 10

NOT_PROPOSED: Final = ("rank", "device", "stream", *UNSTORED)
"""The axes that no note proposes."""


def overview_notes(run: Run, axis: str, known_share: Callable[[str], float]) -> Iterator[str]:
    """Say why the rows are what they are, and how to see more."""
    if axis != "op":
        what = "the kernels' names" if axis == "name" else "your ranges"
        share = f"{100 * known_share('op'):.1f} %"
        yield f"by {what}: only {share} of the time belongs to an op; see 'check'"
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield f"other sums: --by layer, source, direction, step, …; all {what} in order: --by kernel"


def around_note(run: Run, sums: Listed, axes: Sequence[str]) -> Iterator[str]:
    """Name the ops on the CPU whose FLOPs and bytes stand in the row of the op around them."""
    if tuple(axes) != ("op",) or not run.summary["no_gpu"]:
        return
    columns = (sums[name].cells for name in ("op", "flops", "costed_pct", "share_pct"))
    inside = [
        op for op, flops, costed, share in zip(*columns, strict=True)
        if flops is None and costed == _WHOLE_PCT and (share or 0) >= _SAID_PCT
    ]  # fmt: skip
    if inside:
        yield (
            f"FLOPs and bytes of {', '.join(inside)} stand in the row of the op around; rates of "
            "that row are over its whole time ('explain op:N')"
        )


def stream_note(run: Run, selection: Mapping[str, Any], axes: Sequence[str]) -> Iterator[str]:
    """Say of which devices streams are that were chosen by their numbers."""
    if not selection.get("stream") or "device" in axes or run.summary["gpu_count"] < 2:
        return
    sums = run_profile.sums_of(run.tables, ("device",), **selection)
    devices = sums.summarize(("device",))["device"].drop_null()
    if len(devices) > 1:
        own = ", ".join(map(str, sorted(devices.to_pylist())))
        yield f"streams of these numbers are of devices {own}: --device N or --by device,stream"


def none_note(
    run: Run, sums: Listed, axes: Sequence[str], known_share: Callable[[str], float]
) -> Iterator[str]:
    """Where no row has a key, name the axes that have some of the time."""
    keys = [sums[AXES[axis]].cells for axis in axes]
    if length(sums) != 1 or not all(key[0] is None or key[0] == NONE for key in keys):
        return
    known = {axis: known_share(axis) for axis in AXES if axis not in NOT_PROPOSED}
    best = sorted((a for a in known if known[a] > 0), key=known.__getitem__, reverse=True)
    what = "op calls" if run.summary["no_gpu"] else "kernels"
    yield (
        f"no {' or '.join(axes)} is known of these {what} (see 'check'); "
        f"there is --by {', '.join(best)}"
    )


def one_line_note(
    run: Run, sums: Listed, axes: Sequence[str], has_several: Callable[[str, str], bool]
) -> Iterator[str]:
    """Where one line has more than half of the time, name axes that take it apart.

    Args:
        run: the run.
        sums: along the axes.
        axes: their names.
        has_several: whether a line has more than one key along an axis.
    """
    if tuple(axes) != ("source",):
        return
    for line, share in zip(sums["source"].cells, sums["share_pct"].cells, strict=True):
        if line == NONE or not (share or 0) > _ONE_LINE_PCT:
            continue
        finer = [axis for axis in FINER_AXES if has_several(axis, line)]
        if finer:
            shown = shown_line(line, run.tables.source_roots)
            yield (
                f"one line of yours, {shown}, has {share:.1f} % of the time: "
                f"--by {' or '.join(finer)} takes it apart"
            )


def missed_note(sums: Listed, by: Sequence[str]) -> Iterator[str]:
    """Say how much time could have been on Tensor Cores and was not, if that is anything."""
    missed: dict[str, int] = {}
    reasons, times = (sums[n].cells for n in ("tensor_core_missed", "tensor_core_missed_ns"))
    for reason, missed_ns in zip(reasons, times, strict=True):
        if reason is not None:
            missed[reason] = missed.get(reason, 0) + missed_ns
    time = sum(missed.values())
    if time:
        share = share_text(time, sum(sums["time_ns"].cells))
        columns = ",".join(
            [*(AXES[axis] for axis in by), *(c.name for c in MORE_COLUMNS if "missed" in c.name)]
        )
        most = min(missed, key=lambda reason: (-missed[reason], reason))
        yield (
            f"could have used Tensor Cores and did not: {format_time(time)}, {share} of the time, "
            f"most for: {most}; where: -c {columns}"
        )


def step_notes(run: Run) -> Iterator[str]:
    """Give the time of a step, how busy the GPU is in it, and MFU, step by step."""
    steps = [row for row in run_time.utilization_rows(run.tables) if row["step"] is not None]
    if not steps or run.tables.mean_step_ns is None:
        return
    tables = run.tables
    count, wall = len(tables.windows) - len(tables.slow_starts), tables.mean_step_ns or 0
    busy = [row["busy_ns"] for row in steps if row["busy_ns"] is not None]
    is_one = run.summary["gpu_count"] == len(run.summary["ranks"])
    of_busy = share_text(int(sum(busy) / count), int(wall))
    # Steps of one number, in several spans, are rows that nothing keeps apart.
    share = f", {of_busy} of it busy" if is_one and len(busy) == count else ""
    ends = "" if run.summary["no_gpu"] else ", until the last work that it launched ends"
    yield f"a step takes {format_time(int(wall))} on average{left_out(run)}{ends}{share}"
    shares: dict[int, list[float]] = {}
    rated = [row for row in steps if row["mfu_pct"] is not None]
    for row in rated:
        shares.setdefault(row["step"], []).append(row["mfu_pct"])
    if shares:
        first = sorted(shares)[:_STEPS_SHOWN]
        shown = ", ".join(f"{step}: {format_rate(fmean(shares[step]))} %" for step in first)
        more = ", …" if len(shares) > len(first) else ""
        mean = fmean(row["peak_flop_per_s"] for row in rated) / 1e12
        peak = f"{mean:g} TFLOP/s, {rated[0]['peak']}"
        yield f"MFU by step: {shown}{more} (of that time at {peak})"
