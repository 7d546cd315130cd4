"""The top of the page: facts of the recording, findings, and the quality of the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.summaries.advice import RULES, alike
from pyprof2.frames import shown_line
from pyprof2.reports.heading import disturbances, figures, heading, sentence, step_numbers
from pyprof2.reports.page.values import records

if TYPE_CHECKING:
    from pyprof2.api.run import Run

_WIDE: Final = 1 << 16
_STAKES: Final = {"at_stake_lo_ns": "lo_ns", "at_stake_hi_ns": "hi_ns"}
_DOCS: Final = "advice.html#advice-"


def heading_of(run: Run) -> dict[str, Any]:
    """Return one sentence on the recording, and the lines that `prof` prints above its tables."""
    said = sentence(run, disturbances(run.advise()))
    tiles = [each._asdict() for each in figures(run)]
    return {"sentence": said, "figures": tiles, "lines": heading(run, _WIDE)}


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
            "shown": row["source"] and shown_line(row["source"], run.source_roots),
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
    # FLOPs and bytes of this work are known, exact or with an assumption.
    ledger = summary["ledger"]
    counted, whole = ledger["ok"] + ledger["assumed"], sum(ledger.values())
    return {
        "linked_pct": summary["linked_pct"],
        "costed_pct": summary["costed_pct"],
        "counted_pct": 100 * counted / whole if whole else None,
        "polluted": None if run.gain_bounds.empty else bool(disturbed),
        "disturbed": titles,
        "steps_used": f"{len(steps)}: {step_numbers(steps)}" if steps else "none recorded",
        "problems": records(check[check["severity"] != "info"]),
    }
