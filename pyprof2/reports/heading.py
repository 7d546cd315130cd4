"""The lines above a table: what the recording is, and how much of it is known."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Final

from pyprof2.analysis.summaries.totals import total_utilization
from pyprof2.reports.cells import clean
from pyprof2.reports.headline import figures, loses_time, sentence, several_devices
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
_ALL_PCT: Final = 100
ABOVE_PEAK: Final = "another device (--device), a higher clock, or FLOPs that were not done"
"""Why more than all of the peak may have been used."""


def heading(run: Run, width: int) -> list[str]:
    """Return what the recording is, in lines of `width` at most."""
    summary = run.summary
    ranks = summary["ranks"]
    items = [("ranks", step_numbers(ranks) if len(ranks) > 1 else "")]
    steps = summary["steps"]
    spans = sorted({number for own in run.spans.values() for number in own})
    if len(spans) > 1:
        items.append(("spans", step_numbers(spans)))
    elif run.first_ids:
        items.append(("span", f"{step_numbers(spans)}, of several: --span N or all"))
    items.append(("step" if len(steps) == 1 else "steps", step_numbers(steps) or "none"))
    if summary["no_gpu"]:
        items.insert(0, ("device", ", ".join(["CPU", *summary["devices"]])))
        calls, time = (int(run.ledger[name].sum()) for name in ("count", "time_ns"))
        items.append(("op calls", f"{calls:,} in {format_time(time)}"))
    else:
        kernels, copies = summary["kernel_time_ns"], summary["copy_time_ns"]
        items.insert(0, ("device", ", ".join(summary["devices"]) or "not named"))
        items.append(("kernels", f"{summary['kernel_count']:,} in {format_time(kernels)}"))
        items.append(("copies", format_time(copies) if copies else ""))
        items.append(("busy", _busy(run)))
        items.append(("linked", _percent(summary["linked_pct"])))
    if run.device is not None:
        items.append(("roofs of", str(run.device)))
    lines = _flow([f"{name} {clean(value)}" for name, value in items if value], width)
    known = [f"{each.name} {each.value}" for each in figures(run) if each.value is not None]
    lines += textwrap.wrap(" | ".join(known), width)
    lines += textwrap.wrap(" | ".join([*_ledger(summary), *_utilization(run)]), width)
    words = f"{sentence(run)}; next: pyprof2 advise" if loses_time(run) else ""
    return lines + textwrap.wrap(words, width, break_on_hyphens=False)


def _busy(run: Run) -> str:
    """Return the busy time of all that was recorded, and of what lies between first and last."""
    times = (run.summary["busy_ns"], run.spent.recorded_ns, run.summary["gpu_span_ns"])
    busy, whole, span = map(format_time, times)
    active = "" if span == whole else f" ({span} from first to last activity)"
    return f"{busy} of {whole} recorded{several_devices(run)}{active}"


def _ledger(summary: Mapping[str, Any]) -> list[str]:
    """Return the shares of the time by what is known of the work."""
    times = summary["ledger"]
    total = sum(times.values())
    shares = [f"{_BINS[name]} {share_text(time, total)}" for name, time in times.items() if time]
    # Work that overlaps counts twice here, so these are no shares of the busy time.
    what = "op time" if summary["no_gpu"] else "GPU work"
    return [f"of {format_time(total)} of {what}: {', '.join(shares)}"] if shares else []


def share_text(part: int, whole: int) -> str:
    """Return `part` of `whole` as text in percent."""
    share = 100 * part / whole
    return f"{share:.1f} %" if share >= 0.05 else "<0.1 %"


def _utilization(run: Run) -> list[str]:
    """Return MFU, and HFU where it is another number."""
    shares = total_utilization(run.utilization_rows)
    mfu, hfu = shares["mfu_pct"], shares["hfu_pct"]
    if mfu is None or hfu is None:
        return []
    counted = [row["counted_pct"] for row in run.utilization_rows]
    known = [share for share in counted if share is not None]
    # Of matrix work whose FLOPs are not known it is only a lower bound.
    least = "" if known and min(known) >= _COUNTED_PCT else "at least "
    same = f"{mfu:.1f}" == f"{hfu:.1f}"
    texts = [f"MFU {least}{_rate_text(mfu)}"] + ([] if same else [f"HFU {least}{_rate_text(hfu)}"])
    return texts + ([f"above the peak: {ABOVE_PEAK}"] if max(mfu, hfu) > _ALL_PCT else [])


def _rate_text(share: float) -> str:
    return f"{format_rate(share)} %"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} %"


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
