"""What-ifs as text, for people, or as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyprof2.analysis.job.what_if import MODEL_ERROR_MAX, NOT_MODELLED
from pyprof2.reports import cells
from pyprof2.reports.table import drawn
from pyprof2.units import format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from pyprof2.reports.files import Target

_SHOWN: Final = (
    "what", "gain_ns", "lo_ns", "hi_ns", "gain_pct", "bound_ns", "model_error_pct", "note",
)  # fmt: skip


def show(gains: pd.DataFrame, target: Target) -> None:
    """Write what changes would gain."""
    if not target.is_text:
        target.write_frame(gains)
        return
    frame = gains[list(_SHOWN)]
    frame = frame.loc[:, frame.notna().any()]
    window = int(gains["window_ns"].iloc[0])
    first = cells.bold(f"of {format_time(window)} that were recorded")
    table = drawn(frame, target, droppable=["model_error_pct"]).lines
    notes = cells.wrapped(notes_on(gains), target.line_width)
    target.write_lines([first, "", *table, "", *notes])


def notes_on(gains: pd.DataFrame) -> Iterator[str]:
    """Give what the columns mean, and what is not modelled."""
    yield "gain: by replay; lo, hi: without and with what was inferred of waits between streams"
    if gains["gain_ns"].isna().any():
        limit = f"{100 * MODEL_ERROR_MAX:g} %"
        alone = f"it stands alone where the replay is off by more than {limit}"
        yield f"bound: no more can be gained; {alone}"
    yield NOT_MODELLED
