"""`memory --events` and `--statistics`: blocks one by one, and the allocations of each op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.memory.op_memory import EVENT_COLUMNS, STATISTICS_COLUMNS, block_events
from pyprof2.api import run_memory
from pyprof2.columns import as_text
from pyprof2.errors import refuse
from pyprof2.reports.table import drawn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.analysis.memory.profile import MemoryProfile
    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target
    from pyprof2.tables import Column

_ROWS_SHOWN: Final = 50
_NOTHING: Final = "no allocation is recorded; record with profile(profile_memory=True)"
_DROPPABLE: Final = ("source", "layer")
_MOMENTS: Final = ("allocated_ns", "released_ns")


def show_events(profile: MemoryProfile, top: int | None, target: Target) -> None:
    """Write a row for each block: who allocated it, when, and until when it lived."""
    parts = [block_events(curve) for curve in profile.curves]
    rows = pd.concat(parts, ignore_index=True) if parts else _none(EVENT_COLUMNS)
    _write(rows, EVENT_COLUMNS, top, target, profile.begins)


def show_statistics(
    run: Run,
    window_ms: tuple[float, float] | None,
    top: int | None,
    target: Target,
    *,
    device: str | None = None,
    rank: int | None = None,
) -> None:
    """Write a row for each device and op: its calls, allocations and releases.

    Args:
        run: the run.
        window_ms: since the begin of the recording; None: all of it.
        top: how many rows.
        target: where to write.
        device: only this one, such as `cuda:0`, `0` or `cpu`.
        rank: only this one.

    Raises:
        UsageError: the window ends before it begins.
    """
    if window_ms is not None and window_ms[0] > window_ms[1]:
        refuse(f"--between {window_ms[0]:g}:{window_ms[1]:g}: it ends before it begins; swap them")
    rows = run_memory.memory_by_op(run.tables, window_ms)
    if rank is not None:
        rows = rows[rows["rank"] == rank]
    if device is not None:
        number = as_text(rows["device"])
        name = rows["device_type"].where(rows["device"].isna(), rows["device_type"] + ":" + number)
        rows = rows[(name == device) | (number == device)]
    _write(rows, STATISTICS_COLUMNS, top, target)


def _none(columns: Sequence[Column]) -> pd.DataFrame:
    return pd.DataFrame(columns=[column.name for column in columns])


def _write(
    rows: pd.DataFrame,
    columns: Sequence[Column],
    top: int | None,
    target: Target,
    begins: Mapping[int, int] | None = None,
) -> None:
    if not target.is_text:
        target.write_frame(rows, columns, top)
        return
    if not len(rows):
        target.write_lines([_NOTHING])
        return
    shown = rows.head(top or _ROWS_SHOWN)
    if "allocated_ns" in shown:
        # On the clock of the trace they would be numbers of nineteen digits; of a snapshot it is
        # not known when its recording began.
        earliest = rows[list(_MOMENTS)].min(axis=1).groupby(rows["rank"], observed=True).min()
        begin = shown["rank"].map({**earliest, **(begins or {})})
        shown = shown.assign(**{name: shown[name] - begin for name in _MOMENTS})
    if len(set(rows["rank"])) == 1:
        shown = shown.drop(columns="rank")
    alike = [str(name) for name in shown if str(name).endswith("_bytes") or name in _MOMENTS]
    lines = drawn(shown, target, droppable=_DROPPABLE, alike=alike).lines
    if len(shown) < len(rows):
        lines.append(
            f"{len(shown):,} of {len(rows):,} rows; more with --top N, all with --format csv"
        )
    target.write_lines(lines)
