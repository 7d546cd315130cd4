"""Pictures of many ranks for notebooks: the heat map of a report, and each rank's parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pyprof2.analysis.job.rank_parts import PARTS
from pyprof2.errors import UsageError
from pyprof2.reports.notebook import escape
from pyprof2.reports.page.columns import column_values
from pyprof2.reports.page.job import HEAT, heat_of, standing_out
from pyprof2.reports.ranks import by_rank
from pyprof2.reports.slow_rank import answers

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from pyprof2.job import JobOfRanks

_MS: Final = 1e6
_WORDS: Final = {
    "compute_only": "computing alone", "comm_only": "communicating alone",
    "copy_only": "copying alone", "comp_comm": "computing beside communication",
    "copy_overlap": "copies beside something", "idle": "idle",
}  # fmt: skip


def heat_map(go: Any, job: JobOfRanks, measure: str) -> Figure:
    """Return a field for each rank, or group of them, and step; those that stand out at the top.

    Args:
        go: plotly's module of figures.
        job: the ranks.
        measure: one of `HEAT`.

    Raises:
        UsageError: there is no such measure, or no device did anything.
    """
    if measure not in HEAT:
        msg = f"no measure {measure!r}; there are {', '.join(HEAT)}"
        raise UsageError(msg)
    _check(job)
    found = heat_of(job.parts, standing_out(job, by_rank(job)))
    row, at, value = (column_values(found["cells"], name) for name in ("row", "column", measure))
    field = np.full((len(found["rows"]), len(found["steps"])), np.nan)
    for place, step, ns in zip(row, at, value, strict=True):
        field[place, step] = np.nan if ns is None else ns / _MS
    labels = [escape(each["label"]) for each in found["rows"]]
    figure = go.Figure(
        go.Heatmap(
            z=field, x=found["steps"], y=labels, colorscale="Blues", colorbar={"title": "ms"},
            hovertemplate="%{y}, step %{x}: %{z:.6f} ms<extra></extra>",
        )
    )  # fmt: skip
    said = "<br>".join(escape(text) for text in answers(job)[:3])
    figure.update_layout(title=f"{measure.removesuffix('_ns')} by rank and step<br>{said}")
    figure.update_xaxes(type="category", title="step")
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def bars_of_parts(go: Any, job: JobOfRanks) -> Figure:
    """Return a bar for each rank: the parts that its recorded time is made of.

    Raises:
        UsageError: no device did anything.
    """
    _check(job)
    ranks = by_rank(job)
    figure = go.Figure()
    names = [f"rank {rank}" for rank in ranks["rank"]]
    for part in PARTS:
        time = ranks[f"{part}_ns"].astype("float64") / _MS
        if time.any():
            figure.add_bar(x=names, y=time, name=_WORDS[part])
    figure.update_layout(barmode="stack", title="Parts of each rank", xaxis={"type": "category"})
    figure.update_yaxes(title="ms")
    return figure


def _check(job: JobOfRanks) -> None:
    if job.parts.empty:
        msg = "no work of a device was recorded, so there is nothing to draw"
        raise UsageError(msg)
