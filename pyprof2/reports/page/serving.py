"""The steps of an inference server on the page: phases on a line of time, kinds of layer, rates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyprof2.api import run_serving
from pyprof2.columns import as_text
from pyprof2.reports.page.values import from_zero, records
from pyprof2.reports.serving import costs_in_words, phases

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.api.run import Run

MOST_STEPS: Final = 2000
_STEPS: Final = (
    "rank", "serving_step", "phase", "requests", "new_tokens", "start_ns", "span_ns", "busy_ns",
    "gap_ns", "host_ns", "wait_ns",
)  # fmt: skip


def serving_of(
    run: Run, zero: dict[int, int], model: Path | None, tp: int | None
) -> dict[str, Any] | None:
    """Return the steps of a server; None: there are none.

    Args:
        run: the run.
        zero: the first time that was recorded of each rank.
        model: the model's configuration; None: not given.
        tp: how many ranks share it; None: not given.

    Raises:
        UsageError: the configuration is not of the recording's model.
    """
    if not run_serving.is_of_server(run.tables):
        return None
    tables = run.tables
    steps = run.serving_steps() if model is None else run_serving.serving_costs(tables, model, tp)
    kinds = run_serving.serving_kinds(tables, model, tp)
    found = phases(steps, tables.peaks)
    own = steps[steps["serving_step"].notna() & steps["start_ns"].notna()]
    own = own.assign(
        new_tokens=own["c_sq"] + own["g_sq"],
        start_ns=from_zero(own["rank"], own["start_ns"], zero),
        phase=as_text(own["phase"]).fillna("unknown"),
    )
    device = run.tables.peaks
    return {
        "phases": records(found),
        "kinds": records(kinds.assign(phase=as_text(kinds["phase"]).fillna("unknown"))),
        "steps": records(own[list(_STEPS)].head(MOST_STEPS)),
        "steps_left_out": max(0, len(own) - MOST_STEPS),
        "costs": [] if model is None else list(costs_in_words(found, steps.attrs)),
        "bandwidth": None if device is None else device.memory_bytes_per_s,
        "model": None if model is None else str(model),
    }
