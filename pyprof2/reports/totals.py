"""`prof --summary`: the totals of a recording, as lines or as one JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.errors import UsageError
from pyprof2.reports import files
from pyprof2.reports.breakdown import device_lines
from pyprof2.reports.heading import heading
from pyprof2.reports.headline import figures
from pyprof2.reports.notes import step_notes

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.reports.query import Query
    from pyprof2.run import Run

_FORMATS: Final = ("table", "json")
_UNKNOWN: Final = "-"


def check(query: Query) -> None:
    """Raise unless the totals can be shown as `query` asks.

    Raises:
        UsageError: they have no rows to choose, or not this format.
    """
    if query.target.form not in _FORMATS:
        msg = f"--summary comes as {' or '.join(_FORMATS)}, not as {query.target.form}"
        raise UsageError(msg)
    selection = {name: value for name, value in query.selection.items() if value is not None}
    if query.columns or query.sort or query.top or selection != {"copies": True}:
        msg = "--summary is of the whole recording: leave selection, columns and rows out"
        raise UsageError(msg)


def show(run: Run, query: Query) -> None:
    """Write the totals: what stands above tables, or all of them as JSON."""
    if query.target.form == "json":
        totals = run.summary | {
            "figures": [each._asdict() for each in figures(run)],
            "ledger": _records(run.ledger),
            "utilization": _records(run.utilization),
        }
        files.write_text(f"{files.json_text(totals)}\n", query.target.path)
        return
    lines = [*heading(run, query.target.line_width), *device_lines(run)]
    found = figures(run)
    width = max((len(each.name) for each in found), default=0)
    size = max((len(each.value or _UNKNOWN) for each in found), default=0)
    lines += [""] * bool(found)
    lines += [f"{n:{width}}  {value or _UNKNOWN:>{size}}  {note}" for n, value, note in found]
    query.target.write_lines([*lines, *step_notes(run)])


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as objects of Python's own types, null as None."""
    names = [str(name) for name in frame.columns]
    columns = [frame[name].astype(object).where(frame[name].notna(), None) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
