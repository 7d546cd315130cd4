"""The comparison on the page: what `pyprof2 compare` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.reports.comparison import heading_lines, parts_by, term_rows
from pyprof2.reports.page.columns import records, table

if TYPE_CHECKING:
    from pyprof2.comparison import Compared

AXES: Final = ("layer", "op", "signature")
MOST_PARTS: Final = 2000


def comparison_of(compared: Compared) -> dict[str, Any]:
    """Return the terms of a difference, and their parts along each axis."""
    found = compared.comparison
    a, b = compared.names
    before, after = (float(time) for time in found.step_ns)
    return {
        "a": a,
        "b": b,
        "a_step_ns": before,
        "b_step_ns": after,
        "steps": list(found.steps),
        "comparable": compared.differences,
        "remarks": compared.remarks,
        "verdict": heading_lines(compared),
        "terms": table(term_rows(found)),
        "totals": records(found.totals.assign(
            a_ns=found.totals["a_ns"].map(float), b_ns=found.totals["b_ns"].map(float)
        )),
        "by": {
            axis: table(parts_by(found, [axis]).head(MOST_PARTS)) for axis in AXES
        },
    }  # fmt: skip
