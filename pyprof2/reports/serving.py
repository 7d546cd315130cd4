"""Phases of an inference server: `prof --by phase`, and a line in the heading of a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.serving.costs import COLUMNS, shares_of_peak
from pyprof2.analysis.serving.steps import OUTSIDE
from pyprof2.reports.table import drawn
from pyprof2.result_tables import SERVING_PHASES
from pyprof2.units import counted, format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.reports.files import Target

_NO_STEPS: Final = (
    "no step of an inference server is recorded: vLLM, SGLang, ATOM, TensorRT-LLM and xDiT name "
    "theirs; --step-pattern reads names of others"
)
_UNKNOWN: Final = "unknown"
_ALL_PCT: Final = 100
_TAKEN: Final = "keys and values are taken to have 16 bits; activations are left out"
_TYPES: Final = {"int64": "Int64", "double": "float64", "string": "str"}
_SUMMED: Final = ("new_tokens", "out_least", "out_most", "span_ns", "gap_ns", "host_ns", "wait_ns")
_TABLE: Final = (
    "phase", "steps", "requests", "new_tokens", "out_least", "device_ns", "share_pct", "span_ns",
    "gap_ns", "host_ns", "wait_ns", "in_per_s", "out_per_s",
)  # fmt: skip


def phases(steps: pd.DataFrame, device: Device | None = None) -> pd.DataFrame:
    """Return the table `serving_phases`: the phases with the most time first, `outside` last.

    Args:
        steps: the table `serving_steps`; or with the costs of each, of `Run.serving_costs`.
        device: what ran them, for shares of its peaks; None: not known.
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
            total = _sum(own[name], whole=True)
            row[name] = None if total is None else int(total)
        row["share_pct"] = 100 * row["device_ns"] / total_ns if total_ns else None
        for rate, tokens in (("in_per_s", "new_tokens"), ("out_per_s", "out_least")):
            known = row[tokens] is not None and row["pace_ns"]
            row[rate] = 1e9 * row[tokens] / row["pace_ns"] if known else None
        row |= dict.fromkeys(COLUMNS)
        if COLUMNS[0] in own:
            # At least what is known of; at most nothing, where that of one step is not.
            row |= {name: _sum(own[name], whole=name.endswith("most")) for name in COLUMNS}
        row |= shares_of_peak(row, device, row["pace_ns"])
        found.append(row)
    found.sort(key=lambda row: (row["phase"] == OUTSIDE, -row["device_ns"]))
    types = {column.name: _TYPES.get(str(column.type), "str") for column in SERVING_PHASES.columns}
    return pd.DataFrame(found, columns=SERVING_PHASES.names).astype(types)


def _sum(column: pd.Series, *, whole: bool) -> float | None:
    """Return the sum of what is known; None: nothing is, or, if it is to be whole, not all."""
    unknown = column.isna()
    return None if unknown.all() or (whole and unknown.any()) else float(column.sum())


def show_phases(steps: pd.DataFrame, target: Target, device: Device | None = None) -> None:
    """Write the phases of the steps of a server, and how to read them.

    Args:
        steps: the table `serving_steps`, with or without costs.
        target: where to write.
        device: what ran them; None: not known.
    """
    rows = phases(steps, device)
    if not target.is_text:
        target.write_frame(rows, SERVING_PHASES.columns)
        return
    if rows.empty:
        target.write_lines([_NO_STEPS])
        return
    shown = rows[list(_TABLE)].dropna(axis="columns", how="all")
    table = drawn(shown, target, alike=["device_ns", "span_ns", "gap_ns", "host_ns", "wait_ns"])
    costs = []
    if COLUMNS[0] in steps:
        checked = ", ".join(steps.attrs["checked"])
        costs = [*_costs(rows), f"of the model the recording says too: {checked}", _TAKEN]
    target.write_lines([*table.lines, "", *costs, *_notes(steps)])


def _costs(rows: pd.DataFrame) -> Iterator[str]:
    """Say of each phase what the model's configuration makes of it."""
    for row in rows[rows["phase"] != OUTSIDE].to_dict("records"):
        work = [
            f"{_between(row, 'flops', 1e12)} TFLOP",
            f"{_between(row, 'bytes', 1e9)} GB",
            f"MFU {_between(row, 'mfu', 1, '_pct')} % of the 16-bit peak",
            f"MBU {_between(row, 'mbu', 1, '_pct')} %",
        ]
        yield f"{row['phase']}: {', '.join(text for text in work if _UNKNOWN not in text)}"
        if max(row["mfu_least_pct"] or 0, row["mbu_least_pct"] or 0) > _ALL_PCT:
            yield "  more than the device can do: the configuration, --device or --tp is not right"


def _between(row: Mapping[Hashable, Any], name: str, unit: float, ending: str = "") -> str:
    least, most = (row[f"{name}_{end}{ending}"] for end in ("least", "most"))
    if pd.isna(least):
        return _UNKNOWN
    if pd.isna(most):
        return f"at least {format_rate(least / unit)}"
    texts = [format_rate(each / unit) for each in (least, most)]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


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
