"""Phases of an inference server: `prof --by phase`, and a line in the heading of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.serving.steps import OUTSIDE
from pyprof2.reports.table import drawn
from pyprof2.result_tables import SERVING_PHASES
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.reports.files import Target

_NO_STEPS: Final = (
    "no step of an inference server is recorded: vLLM, SGLang, ATOM, TensorRT-LLM and xDiT name "
    "theirs; --step-pattern reads names of others"
)
_UNKNOWN: Final = "unknown"
_TYPES: Final = {"int64": "Int64", "double": "float64", "string": "str"}
_SUMMED: Final = ("new_tokens", "out_least", "out_most", "span_ns", "gap_ns", "host_ns", "wait_ns")
_TABLE: Final = (
    "phase", "steps", "requests", "new_tokens", "out_least", "device_ns", "share_pct", "span_ns",
    "gap_ns", "host_ns", "wait_ns", "in_per_s", "out_per_s",
)  # fmt: skip


def phases(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the table `serving_phases`: the phases with the most time first, `outside` last.

    Args:
        steps: the table `serving_steps`.
    """
    new = steps["c_sq"] + steps["g_sq"]
    pace = steps["period_ns"].fillna(steps["span_ns"])
    rows = steps.assign(new_tokens=new, pace_ns=pace, phase=steps["phase"].fillna(_UNKNOWN))
    total_ns = int(rows["device_ns"].sum())
    found = []
    for phase, own in rows.groupby("phase", sort=False):
        row: dict[str, Any] = {
            "phase": phase,
            "steps": int(own["serving_step"].notna().sum()),
            "requests": own["requests"].astype("float64").mean(),
            "device_ns": int(own["device_ns"].sum()),
        }
        # A sum over steps of which one is unknown would be of fewer steps than it says.
        for name in (*_SUMMED, "pace_ns"):
            row[name] = None if own[name].isna().any() else int(own[name].sum())
        row["share_pct"] = 100 * row["device_ns"] / total_ns if total_ns else None
        for rate, tokens in (("in_per_s", "new_tokens"), ("out_per_s", "out_least")):
            known = row[tokens] is not None and row["pace_ns"]
            row[rate] = 1e9 * row[tokens] / row["pace_ns"] if known else None
        found.append(row)
    found.sort(key=lambda row: (row["phase"] == OUTSIDE, -row["device_ns"]))
    types = {column.name: _TYPES.get(str(column.type), "str") for column in SERVING_PHASES.columns}
    return pd.DataFrame(found, columns=SERVING_PHASES.names).astype(types)


def show_phases(steps: pd.DataFrame, target: Target) -> None:
    """Write the phases of the steps of a server, and how to read them.

    Args:
        steps: the table `serving_steps`.
        target: where to write.
    """
    rows = phases(steps)
    if not target.is_text:
        target.write_frame(rows, SERVING_PHASES.columns)
        return
    if rows.empty:
        target.write_lines([_NO_STEPS])
        return
    shown = rows[list(_TABLE)].dropna(axis="columns", how="all")
    table = drawn(shown, target, alike=["device_ns", "span_ns", "gap_ns", "host_ns", "wait_ns"])
    target.write_lines([*table.lines, "", *_notes(steps)])


def _notes(steps: pd.DataFrame) -> Iterator[str]:
    own = steps[steps["serving_step"].notna()]
    dialects = ", ".join(sorted(set(own["dialect"].dropna())))
    words = counted(len(own), "step")
    yield f"{words} by the names of {dialects}; work belongs to the step that launched it"
    ranks = own["rank"].nunique()
    if ranks > 1:
        yield f"of {ranks} ranks together: those that share a model name the same batches"
    if own["period_ns"].isna().all():
        yield "rates are over the span of a step: one alone has no distance to the next"
    wrong = own[own["contradiction"].notna()]
    if len(wrong):
        first = wrong["contradiction"].iloc[0]
        yield f"of {counted(len(wrong), 'step')} the sums are not taken: {first}"
    yield "each step: run.serving_steps() of pyprof2.load(TRACE)"


def serving_line(steps: pd.DataFrame) -> str:
    """Return the phases of a server's steps in a line; empty: there are none."""
    rows = phases(steps)
    words = []
    for row in rows[rows["phase"] != OUTSIDE].to_dict("records"):
        requests = f" of {format_rate(row['requests'])} requests" if row["requests"] else ""
        mean = f", each {format_time(int(row['device_ns'] / row['steps']))} of work"
        words.append(f"{row['phase']} {counted(row['steps'], 'step')}{requests}{mean}")
    return f"serving: {'; '.join(words)}; see --by phase" if words else ""
