"""Idle time as text, for people, or as a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.idle_profile import (
    OUTLINE,
    SUMMARY_COLUMNS,
    idle_outline,
    summarize_idle,
)
from pyprof2.api import run_time
from pyprof2.reports import cells, files
from pyprof2.reports.table import drawn, with_short_lines
from pyprof2.tables import IDLE
from pyprof2.units import counted, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from pyprof2.api.run import Run

_ROWS_SHOWN: Final = 50
_NOTHING: Final = "neither work of a device nor an op was recorded, so nothing is idle"
_HOST: Final = "no device worked: what follows is what steps waited for, ops included"


@dataclass(frozen=True)
class IdleQuery:
    """Which idle time to show, and where.

    Attributes:
        axes: along which to sum; none: in a table by group and cause, else not at all.
        normal_gap_us: see `run_time.idle_table`.
        rank: only this one; None: all.
        top: how many rows; None: what suits the format.
        target: where to write.
    """

    axes: tuple[str, ...]
    normal_gap_us: float | None
    rank: int | None
    top: int | None
    target: files.Target


def show(run: Run, query: IdleQuery) -> None:
    """Write the idle time.

    Raises:
        UsageError: the rank was not recorded.
    """
    target = query.target
    options = (query.rank, query.normal_gap_us)
    if query.axes or target.is_text:
        axes = dict.fromkeys((*(query.axes or OUTLINE), "note"))
        idle, windows = run_time.idle_sums_and_windows(run.tables, tuple(axes), *options)
    else:
        idle, windows = run_time.idle_and_windows(run.tables, *options)
    if windows.empty and target.is_text:
        target.write_lines([_NOTHING])
        return
    recorded_ns = int(windows["window_ns"].sum())
    if not target.is_text:
        rows = summarize_idle(idle, query.axes, recorded_ns) if query.axes else idle
        known = (*IDLE.columns, *SUMMARY_COLUMNS) if query.axes else IDLE.columns
        target.write_frame(rows, known, query.top)
        return
    outline = (
        summarize_idle(idle, query.axes, recorded_ns)
        if query.axes
        else idle_outline(idle, recorded_ns)
    )
    table = _table(run, outline, windows, query)
    target.write_lines([*_heading(windows), "", *table, *_notes(idle)])


def _heading(windows: pd.DataFrame) -> Iterator[str]:
    """Give the recorded and the idle time of each device, or rank without one."""
    if "span_ns" not in windows:
        for row in windows.to_dict("records"):
            yield cells.bold(
                f"rank {row['rank']}, CPU: recorded {format_time(row['window_ns'])}, in ops "
                f"{format_time(row['busy_ns'])}, waiting or outside of ops "
                f"{format_time(row['idle_ns'])} ({_pct(row['idle_ns'], row['window_ns'])})"
            )
        yield _HOST
        return
    for row in windows.to_dict("records"):
        device = "a device" if row["device"] is None else f"device {row['device']}"
        place = f"rank {row['rank']}, {device}"
        yield cells.bold(
            f"{place}: recorded {format_time(row['window_ns'])}, "
            f"busy {format_time(row['busy_ns'])}, idle {format_time(row['idle_ns'])} "
            f"({_pct(row['idle_ns'], row['window_ns'])})"
        )
        yield (
            f"of it between the first activity and the last: {format_time(row['span_idle_ns'])} "
            f"({_pct(row['span_idle_ns'], row['span_ns'])} of {format_time(row['span_ns'])})"
        )


def _table(run: Run, rows: pd.DataFrame, windows: pd.DataFrame, query: IdleQuery) -> list[str]:
    """Return the lines of the table, and of rows left out."""
    count = query.top or (_ROWS_SHOWN if query.axes else len(rows))
    shown = rows.head(count).drop(columns=["mean_ns", "max_ns"], errors="ignore")
    table = drawn(with_short_lines(shown, run.tables.source_roots), query.target, _footer(windows))
    rest = len(rows) - len(shown)
    more = [f"{counted(rest, 'more row')}: --top {len(rows)}"] if rest else []
    return [*table.lines, *more]


def _footer(windows: pd.DataFrame) -> list[tuple[str, dict[str, Any]]]:
    recorded = int(windows["window_ns"].sum())
    idle = int(windows["idle_ns"].sum())
    words = (
        ("waiting or outside of ops", "in ops") if "span_ns" not in windows else ("idle", "busy")
    )
    parts = dict(zip((*words, "recorded"), (idle, recorded - idle, recorded), strict=True))
    return [
        (name, {"time_ns": time, "window_pct": 100 * time / max(1, recorded)})
        for name, time in parts.items()
    ]


def _notes(idle: pd.DataFrame) -> Iterator[str]:
    """Give the notes that rows have, each with the time that it is of, the longest first."""
    times = idle.groupby("note", observed=True)["time_ns"].sum().sort_values(ascending=False)
    for at, (note, time) in enumerate(times.items()):
        yield from ([""] if at == 0 else [])
        yield f"{format_time(int(time))}: {note}"


def _pct(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"
