"""`prof --by step --breakdown plugin`: steps by what was at work, and the devices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.time.plugin_steps import COLUMNS
from pyprof2.reports import cells
from pyprof2.reports.table import drawn
from pyprof2.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from pyprof2.reports.query import Query
    from pyprof2.run import Run

_NOTHING: Final = "nothing ran on the host, of which there are steps"


def show(run: Run, query: Query) -> None:
    """Write a row for each step, and below them their mean, as the plugin shows it."""
    rows = run.plugin_steps
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
