"""`prof --summary` and `--breakdown`: totals of a recording, and steps as the plugin does."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.time.plugin_steps import COLUMNS
from pyprof2.api import run_profile, run_time
from pyprof2.errors import refuse
from pyprof2.reports import cells, files
from pyprof2.reports.cells import records
from pyprof2.reports.heading import figures, heading
from pyprof2.reports.profile import step_notes
from pyprof2.reports.table import drawn
from pyprof2.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from pyprof2.api.run import Run
    from pyprof2.reports.query import Query


_FORMATS: Final = ("table", "json")
_UNKNOWN: Final = "-"


def check(query: Query) -> None:
    """Raise unless the totals can be shown as `query` asks.

    Raises:
        UsageError: they have no rows to choose, or not this format.
    """
    if query.target.form not in _FORMATS:
        refuse(f"--summary comes as {' or '.join(_FORMATS)}, not as {query.target.form}")
    selection = {name: value for name, value in query.selection.items() if value is not None}
    if query.columns or query.sort or query.top or selection != {"copies": True}:
        refuse("--summary is of the whole recording: leave selection, columns and rows out")


def show(run: Run, query: Query) -> None:
    """Write the totals: the heading of tables, or all of them as JSON."""
    if query.target.form == "json":
        totals = run.summary | {
            "figures": [each._asdict() for each in figures(run)],
            "ledger": records(run_profile.ledger(run.tables)),
            "utilization": records(run_time.utilization(run.tables)),
        }
        if query.target.sides is not None:
            query.target.write_enveloped(totals)
            return
        files.write_text(f"{files.json_text(totals)}\n", query.target.path)
        return
    lines = [*heading(run, query.target.line_width), *device_lines(run)]
    found = figures(run)
    width = max((len(each.name) for each in found), default=0)
    size = max((len(each.value or _UNKNOWN) for each in found), default=0)
    lines += [""] * bool(found)
    lines += [f"{n:{width}}  {value or _UNKNOWN:>{size}}  {note}" for n, value, note in found]
    query.target.write_lines([*lines, *step_notes(run)])


_NOTHING: Final = "nothing ran on the host, of which there are steps"


def show_breakdown(run: Run, query: Query) -> None:
    """Write a row for each step, and below them their mean, as the plugin shows it."""
    rows = run_time.plugin_steps(run.tables)
    rank, step = query.selection["rank"], query.selection["step"]
    if rank is not None:
        rows = rows[rows["rank"] == rank]
    if step is not None:
        rows = rows[rows["step"].between(*step).to_numpy(dtype=bool, na_value=False)]
    if not query.target.is_text:
        query.target.write_frame(rows, COLUMNS, query.top)
        return
    if not len(rows):
        query.target.write_lines([*device_lines(run), _NOTHING])
        return
    times = [str(name) for name in rows.columns if str(name).endswith("_ns")]
    mean = {name: rows[name].mean() for name in times}
    share = {name: f"{100 * mean[name] / (mean['total_ns'] or 1):.2f} %" for name in times}
    shown = rows.head(query.top or len(rows))
    shown = shown if len(set(rows["rank"])) > 1 else shown.drop(columns="rank")
    table = drawn(shown, query.target, [("mean", mean)], alike=times)
    shares = ", ".join(f"{name.removesuffix('_ns')} {share[name]}" for name in times[:-1])
    query.target.write_lines([*device_lines(run), "", *table.lines, "", f"mean: {shares}"])


def device_lines(run: Run) -> Iterator[str]:
    """Say of each kind of device its name, memory and compute capability, as recorded."""
    rows = run.devices.to_dict("records")
    known = [row for row in rows if pd.notna(row["name"]) or pd.notna(row["memory_bytes"])]
    found = Counter(", ".join(_facts(row)) for row in known)
    for text, count in found.items():
        yield f"{f'{count} × ' if count > 1 else ''}{cells.clean(text)}"


def _facts(device: Mapping[Hashable, Any]) -> Iterator[str]:
    # Kineto writes an empty name where the driver gives none, as on AMD's MI300.
    yield device["name"] if pd.notna(device["name"]) and device["name"] else "device not named"
    if pd.notna(device["memory_bytes"]):
        yield format_bytes(device["memory_bytes"])
    if pd.notna(device["compute_capability"]):
        yield f"compute capability {device['compute_capability']}"
