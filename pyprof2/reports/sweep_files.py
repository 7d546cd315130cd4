"""A batch model as the two CSV files of `skyline-evaluate`: measurements and fits."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.summaries.batch.model import MEMORY, STEP
from pyprof2.reports import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyprof2.analysis.summaries.batch.model import Model

MEASURED: Final = "measure-batches.csv"
MODELS: Final = "prediction-models.csv"
_MEASURED_COLUMNS: Final = ("batch_size", "trial", "samples_per_second", "memory_usage_bytes")
_MODEL_COLUMNS: Final = (
    "batch_size", "run_time_ms_slope", "run_time_ms_bias", "memory_usage_bytes_slope",
    "memory_usage_bytes_bias",
)  # fmt: skip
_NS_PER_S: Final = 10**9
_NS_PER_MS: Final = 10**6

_Row = tuple[float | int | None, ...]


def paths_in(folder: Path) -> list[Path]:
    """Return the files that `show` writes into a folder."""
    return [folder / name for name in (MEASURED, MODELS)]


def show(model: Model, folder: Path) -> list[str]:
    """Write both files into a folder, and return lines on unknown values."""
    measured, models = paths_in(folder)
    _write(measured, _MEASURED_COLUMNS, _measured(model))
    # For each recorded batch size the lines that touch the model there.
    unknown = (None, None)
    rows = (
        (each.batch, *(time or unknown), *(memory or unknown))
        for at, each in enumerate(model.recordings)
        for time, memory in [lines_at(model, at)]
    )
    _write(models, _MODEL_COLUMNS, rows)
    return list(_lacks(model))


def _write(path: Path, columns: Sequence[str], rows: Iterator[_Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(rows)
    files.write_text(text.getvalue(), path)


def _measured(model: Model) -> Iterator[_Row]:
    """Give a row for each step; one without a rate for a recording without steps."""
    has_memory = _has_memory(model)
    for each in model.recordings:
        peak = max(each.memory.peaks.values()) if each.memory and has_memory else None
        for trial, time in enumerate(each.step_ns or [None]):
            rate = None if not time else each.batch * _NS_PER_S / time
            yield each.batch, trial, rate, peak


_Line = tuple[float, float]


def lines_at(model: Model, at: int) -> tuple[_Line | None, _Line | None]:
    """Return slope and bias of time, ms, and of memory, bytes, at a recording; None: not known."""
    batch, alike = model.recordings[at].batch, not model.work.differs
    time = _tangent(model, STEP, at, batch) if alike and model.has_steps else None
    memory = _tangent(model, MEMORY, at, batch) if alike and _has_memory(model) else None
    return None if time is None else (time[0] / _NS_PER_MS, time[1] / _NS_PER_MS), memory


def _tangent(model: Model, measure: str, at: int, batch: int) -> tuple[float, float]:
    """Return slope and bias: the value of one more sample, and that of the line at no sample."""
    here, next_one = (model.modelled(measure, at, size, {}) for size in (batch, batch + 1))
    slope = next_one - here
    return slope, here - slope * batch


def _has_memory(model: Model) -> bool:
    """Whether the peaks are of all memory, not only of what was allocated while it recorded."""
    known = all(each.memory is not None and not each.memory.over_base for each in model.recordings)
    return known and bool(model.memory)


def _lacks(model: Model) -> Iterator[str]:
    if not model.has_steps:
        yield "no samples_per_second and no run_time_ms: not all recordings have step ranges"
    if not _has_memory(model):
        yield "no memory_usage_bytes: what was allocated before the recordings is not known"
    if model.work.differs:
        yield f"{MODELS} has no models: the recordings differ in more than the batch"
