"""The comparison on the page: the figures of `pyprof2 compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports.comparison import heading_lines, parts_by, term_rows
from pyprof2.reports.page.steps import part_label, step_parts_of, whole_parts_of
from pyprof2.reports.page.values import records, table

if TYPE_CHECKING:
    import pandas as pd

    from pyprof2.analysis.summaries.compare import Side
    from pyprof2.api.comparison import Compared
    from pyprof2.api.run import Run

AXES: Final = ("layer", "op", "signature")
MOST_PARTS: Final = 2000


def comparison_of(compared: Compared) -> dict[str, Any]:
    """Return the terms of a difference, their parts along each axis, and both steps."""
    found = compared.comparison
    terms = term_rows(found)
    known = [name for name in terms if terms.empty or terms[name].notna().any()]
    a, b = compared.names
    before, after = (float(time) for time in found.step_ns)
    runs = zip((compared.a, compared.b), compared.sides, strict=True)
    axes = [axis for axis in AXES if found.details[axis].notna().any()]
    return {
        "a": a,
        "b": b,
        "a_step_ns": before,
        "b_step_ns": after,
        "steps": list(found.steps),
        "comparable": compared.differences,
        "remarks": compared.remarks,
        "verdict": heading_lines(compared),
        "terms": _in_words(terms[known]),
        "totals": records(found.totals.assign(
            a_ns=found.totals["a_ns"].map(float), b_ns=found.totals["b_ns"].map(float)
        )),
        "by": {axis: _in_words(parts_by(found, [axis]).head(MOST_PARTS)) for axis in axes},
        "parts": [_parts(run, side) for run, side in runs],
    }  # fmt: skip


def _in_words(terms: pd.DataFrame) -> dict[str, Any]:
    """Return rows whose terms are words: a cause of idle time is the name of a value elsewhere."""
    return table(terms.assign(term=terms["term"].str.replace("_", " ")))


def _parts(run: Run, side: Side) -> dict[str, Any]:
    """Return the sums of the parts of a side's steps, and the number of windows."""
    windows = side.windows[["rank", "step", "start_ns"]].drop_duplicates()
    parts = step_parts_of(run)
    if parts.empty:
        parts = whole_parts_of(run)
        parts = parts[parts["rank"].isin(windows["rank"])]
        count = len(parts[["rank", "device"]].drop_duplicates())
    else:
        parts = parts.merge(windows, on=["rank", "step", "start_ns"])
        count = len(parts[["rank", "device", "step", "start_ns"]].drop_duplicates())
    sums = parts.groupby("part", sort=False, observed=True)["time_ns"].sum().reset_index()
    labels = [part_label(part) for part in sums["part"]]
    return {"windows": count, "sums": records(sums.assign(label=labels))}
