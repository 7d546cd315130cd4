"""Time, energy, carbon and money of steps, as text for people, or as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd

from pyprof2.analysis.summaries.spending import spending
from pyprof2.columns import with_text
from pyprof2.reports import cells
from pyprof2.reports.table import drawn
from pyprof2.result_tables import SPENDING
from pyprof2.units import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.summaries.spending import Rates
    from pyprof2.api.run import Run
    from pyprof2.reports.files import Target

_NO_ENERGY: Final = "no energy was counted"
_WHY_UNKNOWN: Final = "see Energy of a step in the documentation of recording"
_BESIDE: Final = (
    "Counters of CPUs are of all programs on a machine: do not add those of its ranks up."
)


def show(runs: list[tuple[str, Run]], rates: Rates, target: Target) -> None:
    """Write the time, energy and money of steps, one recording after another.

    Args:
        runs: names and recordings.
        rates: what the user gives.
        target: where to write.
    """
    parts = [
        spending(run.steps, run.energy, rates).assign(recording=name)[SPENDING.names]
        for name, run in runs
    ]
    rows = pd.concat(parts, ignore_index=True)
    if not target.is_text:
        texts = [column.name for column in SPENDING.columns if str(column.type) == "string"]
        # A column of nulls alone would have no type.
        target.write_frame(with_text(rows, texts), SPENDING.columns)
        return
    table = [] if rows.empty else ["", *_table(rows, target)]
    target.write_lines([*_heading(rates), *table, *_notes(runs, rows)])


def _why(run: Run) -> str:
    """Return the recorded reason why no energy was counted."""
    said = run.table("trace")["uncounted"].to_pylist()
    return next((text for text in said if text), _WHY_UNKNOWN)


def _table(rows: pd.DataFrame, target: Target) -> list[str]:
    shown = rows.dropna(axis="columns", how="all").copy()
    for name in ("value", "lo", "hi"):
        if name in shown:
            # Four digits, however small: a step of a tenth of a second costs some 0.0001.
            said = [None if pd.isna(value) else f"{value:.4g}" for value in shown[name]]
            shown[name] = pd.Series(said, dtype=object)
    return drawn(shown, target).lines


def _heading(rates: Rates) -> Iterator[str]:
    of = "a step" if rates.steps == 1 else f"{rates.steps} steps"
    given = [
        *([] if rates.price is None else [f"{format_rate(rates.price)} an hour"]),
        *([] if rates.grams_per_kwh is None else [f"{format_rate(rates.grams_per_kwh)} g/kWh"]),
        *([] if rates.pue == 1 else [f"PUE {rates.pue:g}"]),
    ]
    yield cells.bold(f"what {of} takes" if rates.steps == 1 else f"what {of} take")
    if given:
        yield f"as given: {', '.join(given)}"


def _notes(runs: list[tuple[str, Run]], rows: pd.DataFrame) -> Iterator[str]:
    counted = set(rows.loc[rows["measure"] == "energy", "recording"])
    for name, run in runs:
        if name not in counted:
            yield cells.clean(f"{name}: {_NO_ENERGY}: {_why(run)}")
        if run.steps.empty:
            yield f"{cells.clean(name)}: no steps are recorded"
    if rows.loc[rows["measure"] == "energy", "counter"].duplicated().any():
        yield _BESIDE
