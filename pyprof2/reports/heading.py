"""The lines above a table: what the recording is, and how much of it is known."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries import utilization
from pyprof2.frames import shown_line
from pyprof2.reports.cells import clean
from pyprof2.units import format_rate, format_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyprof2.run import Run

_BINS: Final = {
    "ok": "costed",
    "assumed": "assumed",
    "no_shapes": "no shapes",
    "no_formula": "no formula",
    "no_op": "no op",
    "comm": "communication",
    "copy": "copies",
}
_COUNTED_PCT: Final = 99.5
_NOTHING: Final = "nothing was recorded that could be profiled"
_SPOKEN_OF: Final = 0.01
"""The least share of idle time to speak of."""


def heading(run: Run, width: int) -> list[str]:
    """Return what the recording is, in lines of `width` at most."""
    summary = run.summary
    ranks = summary["ranks"]
    items = [("ranks", step_numbers(ranks) if len(ranks) > 1 else "")]
    steps = summary["steps"]
    items.append(("step" if len(steps) == 1 else "steps", step_numbers(steps) or "none"))
    if summary["no_gpu"]:
        items.insert(0, ("device", ", ".join(["CPU", *summary["devices"]])))
        calls, time = (int(run.ledger[name].sum()) for name in ("count", "time_ns"))
        items.append(("op calls", f"{calls:,} in {format_time(time)}"))
    else:
        kernels, copies = summary["kernel_time_ns"], summary["copy_time_ns"]
        busy, span = format_time(summary["busy_ns"]), format_time(summary["gpu_span_ns"])
        items.insert(0, ("device", ", ".join(summary["devices"]) or "not named"))
        items.append(("kernels", f"{summary['kernel_count']:,} in {format_time(kernels)}"))
        items.append(("copies", format_time(copies) if copies else ""))
        gpus = summary["gpu_count"]
        items.append(("busy", f"{busy} of {span}" + (f" on {gpus} GPUs" if gpus > 1 else "")))
        items.append(("linked", _percent(summary["linked_pct"])))
    if run.device is not None:
        items.append(("roofs of", str(run.device)))
    lines = _flow([f"{name} {clean(value)}" for name, value in items if value], width)
    lines += textwrap.wrap(" | ".join([*_ledger(summary), *_utilization(run)]), width)
    return lines + textwrap.wrap(_why_idle(run), width, break_on_hyphens=False)


def sentence(run: Run) -> str:
    """Return one sentence on the recording: how long a step takes, and where the time goes."""
    summary = run.summary
    steps = run.utilization[run.utilization["step"].notna()]
    words = []
    if len(steps):
        mean = int(steps["wall_ns"].astype("float64").mean())
        words.append(f"{format_time(mean)} per step")
    if summary["no_gpu"]:
        calls, time = (int(run.ledger[name].sum()) for name in ("count", "time_ns"))
        words += [f"{calls:,} op calls in {format_time(time)}, without a GPU"] if calls else []
    else:
        words.append(
            _idle_words(run) or f"of {format_time(_recorded_ns(run))} recorded less than 1 % idle"
        )
    return clean("; ".join(words)) if words else _NOTHING


def _why_idle(run: Run) -> str:
    """Return how much of the recorded time was idle, and why most of it; nothing below 1 %."""
    words = _idle_words(run)
    return clean(f"{words}; next: pyprof2 advise") if words else ""


def _idle_words(run: Run) -> str:
    most, recorded = run.leading_cause, _recorded_ns(run)
    if run.summary["no_gpu"] or most["idle_ns"] < _SPOKEN_OF * recorded:
        return ""
    share, of_cause = (f"{100 * most[n] / recorded:.0f} %" for n in ("idle_ns", "cause_ns"))
    line = f", {shown_line(most['source'], run.source_roots)}" if most["source"] else ""
    cause = most["cause"].replace("_", " ")
    # The busy time above is of the span from first to last work, which is shorter.
    return f"of {format_time(recorded)} recorded {share} idle, {of_cause} {cause}{line}"


def _recorded_ns(run: Run) -> int:
    """Return the time in which devices were recorded, added up over them."""
    return int(run.leading_cause["idle_ns"] + run.summary["busy_ns"])


def _ledger(summary: Mapping[str, Any]) -> list[str]:
    """Return the shares of the time by what is known of the work."""
    times = summary["ledger"]
    total = sum(times.values())
    shares = [f"{_BINS[name]} {share_text(time, total)}" for name, time in times.items() if time]
    what = "op time" if summary["no_gpu"] else "GPU time"
    return [f"{what}: {', '.join(shares)}"] if shares else []


def share_text(part: int, whole: int) -> str:
    """Return `part` of `whole` as text in percent."""
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 else "<0.1 %"


def _utilization(run: Run) -> list[str]:
    """Return MFU, and HFU where it is another number."""
    shares = utilization.total(run.utilization)
    mfu, hfu = shares["mfu_pct"], shares["hfu_pct"]
    if mfu is None or hfu is None:
        return []
    # Of matrix work whose FLOPs are not known it is only a lower bound.
    least = "" if run.utilization["counted_pct"].min() >= _COUNTED_PCT else "at least "
    same = f"{mfu:.1f}" == f"{hfu:.1f}"
    return [f"MFU {least}{_rate_text(mfu)}"] + ([] if same else [f"HFU {least}{_rate_text(hfu)}"])


def _rate_text(share: float) -> str:
    return f"{format_rate(share)} %"


def _percent(value: float | None) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.1f} %"


def step_numbers(numbers: Sequence[int]) -> str:
    """Return sorted numbers as text: `0-3, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _flow(items: Sequence[str], width: int) -> list[str]:
    """Return the items side by side, on as many lines as they need."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f" | {item}"
        else:
            lines.append(item[:width])
    return lines
