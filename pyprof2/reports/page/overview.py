"""The top of the page: facts of the recording, findings, and the quality of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.advice import RULES, alike
from pyprof2.analysis.summaries.totals import total_utilization
from pyprof2.api import run_time
from pyprof2.frames import shown_line
from pyprof2.reports.heading import (
    Figure,
    costed_time,
    disturbances,
    figures,
    heading,
    sentence,
    share_of_peak,
    step_numbers,
)
from pyprof2.reports.page.values import records
from pyprof2.units import byte_unit, format_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.api.run import Run

_WIDE: Final = 1 << 16
_STAKES: Final = {"at_stake_lo_ns": "lo_ns", "at_stake_hi_ns": "hi_ns"}
_DOCS: Final = "advice.html#advice-"


def heading_of(run: Run, memory: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return one sentence on the recording, tiles, and the lines that `prof` prints above tables.

    Args:
        run: the run.
        memory: what `memory_of` returns of it.
    """
    said = sentence(run, disturbances(run.advise()))
    return {"sentence": said, "figures": list(_tiles(run, memory)), "lines": heading(run, _WIDE)}


def _tiles(run: Run, memory: list[dict[str, Any]] | None) -> Iterator[dict[str, Any]]:
    """Give the numbers that a recording is judged by; `parts` is null but of the memory."""
    for each in figures(run):
        # Copies are work too: kernels alone stand beside it.
        found = _busy(run, each) if each.name == "GPU utilization" else each
        yield found._asdict() | {"parts": None}
    mfu = total_utilization(run_time.utilization_rows(run.tables))["mfu_pct"]
    value = None if mfu is None else share_of_peak(run, mfu)
    note = "of what the device can do at its peak" if value else "no peak or no FLOPs are known"
    yield Figure("MFU", value, note)._asdict() | {"parts": None}
    yield _memory_peak(memory)


def _busy(run: Run, kernels: Figure) -> Figure:
    """Return the share of the time in which anything ran."""
    spent = run.spent
    if not spent.window_ns:
        return kernels._replace(name="GPU busy")
    place = "of the steps" if spent.windows else "of all that was recorded"
    alone = f"; kernels alone: {kernels.value} {kernels.note.partition(', ')[2]}"
    share = 100 * (1 - spent.share(spent.idle_ns))
    return Figure("GPU busy", f"{format_rate(share)} %", place + (alone if kernels.value else ""))


def _memory_peak(memory: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Return the largest peak of a device, and the categories of the blocks that were live then."""
    curves = [curve for curve in memory or [] if curve["peak"] is not None]
    if not curves:
        none = Figure("memory peak", None, "no allocation was recorded")
        return none._asdict() | {"parts": None}
    most = max(curves, key=lambda curve: curve["peak"]["allocated"])
    unit = byte_unit(most["peak"]["allocated"])
    size = f"{format_rate(most['peak']['allocated'] / unit.size)} {unit.label}"
    place = "" if most["device"] is None else f", device {most['device']}"
    found = Figure(
        "memory peak",
        size if most["base"] is not None else f"at least {size}",
        f"allocated at one time: rank {most['rank']}{place}",
    )
    return found._asdict() | {"parts": most["peak"]["categories"]}


def findings_of(run: Run) -> list[dict[str, Any]]:
    """Return the findings of `advise` that fire or cannot be judged, in its order."""
    found = run.advise()
    rows = alike(found[found["status"] != "silent"])
    names = [*found.columns, "ranks", "least_ns"]
    frame = pd.DataFrame(rows, columns=names, dtype=object).rename(columns=_STAKES)
    titles = {rule.slug: rule.title for rule in RULES}
    return [
        row
        | {
            "title": titles[row["rule"]],
            "docs": f"{_DOCS}{row['rule']}",
            "shown": row["source"] and shown_line(row["source"], run.tables.source_roots),
        }
        for row in records(frame)
    ]


def bounds_of(run: Run) -> list[dict[str, Any]]:
    """Return the most that the remedies of all findings together gain, by rank."""
    return records(run.gain_bounds)


def quality_of(run: Run) -> dict[str, Any]:
    """Return the shares of time linked and costed, and problems of the recording."""
    summary, disturbed = run.summary, disturbances(run.advise())
    titles = [rule.title for rule in RULES if rule.slug in disturbed]
    steps = summary["steps"]
    check = run.check()
    counted, whole = costed_time(summary)
    return {
        "linked_pct": summary["linked_pct"],
        "costed_pct": summary["costed_pct"],
        "counted_pct": 100 * counted / whole if whole else None,
        "polluted": None if run.gain_bounds.empty else bool(disturbed),
        "disturbed": titles,
        "steps_used": f"{len(steps)}: {step_numbers(steps)}" if steps else "none recorded",
        "problems": records(check[check["severity"] != "info"]),
    }
