"""A step on other devices, as the page shows it: a bar for each."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pandas as pd

from pyprof2.analysis.hardware.devices import device_named
from pyprof2.api.job import MOST_REPLAYED
from pyprof2.api.prediction import PredictedStep, Question, frame_of
from pyprof2.reports.prediction import reasons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.api.run import Run

SHOWN: Final = (
    "T4", "V100 SXM2", "A10G", "L4", "A100 SXM 40GB", "A100 SXM 80GB", "L40S", "RTX 4090",
    "H100 SXM", "H200 SXM", "B200", "MI300X",
)  # fmt: skip
"""The devices that are shown, beside the recorded one."""
_NS_PER_MS: Final = 1e6


def elsewhere_of(run: Run, names: Sequence[str] = SHOWN) -> dict[str, Any] | None:
    """Return a step of the run on some devices; None: no device that is known computed in it.

    Where there is more work than is replayed at a time there is none either.
    """
    summary = run.summary
    work = summary["kernel_count"] + summary["copy_count"]
    if not summary["kernel_count"] or work > MOST_REPLAYED:
        return None
    prediction, question = PredictedStep(run.tables), Question()
    source = prediction.source
    if source is None:
        return None
    others = [device_named(name) for name in names if name != source.name]
    rows = [row for each in (source, *others) for row in prediction.rows_of(each, question)]
    return page_of(frame_of(rows), prediction, question.level)


def page_of(frame: pd.DataFrame, prediction: PredictedStep, level: float) -> dict[str, Any]:
    """Return predictions as the page takes them: whole ns, the slowest first."""

    def ns(value: Any) -> int | None:
        return None if pd.isna(value) else round(float(value) * _NS_PER_MS)

    source = prediction.source
    rows = [
        {
            "device": row["device"], "step_ns": ns(row["step_ms"]), "lo_ns": ns(row["lo_ms"]),
            "hi_ns": ns(row["hi_ms"]), "why": None if pd.isna(row["why"]) else row["why"],
            "recorded": source is not None and row["device"] == source.name,
        }
        for row in frame.to_dict("records")
    ]  # fmt: skip
    # The slowest first: by the value, or the middle of the interval; those without either last.
    rows.sort(
        key=lambda row: -(row["step_ns"] or math.sqrt((row["lo_ns"] or 0) * (row["hi_ns"] or 0)))
    )
    step, _ = prediction.window
    return {"step": step, "level": round(100 * level), "rows": rows, "notes": list(reasons(frame))}
