"""A batch model of runs: which batch size is worth trying, from recordings at others."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from pyprof2.analysis.summaries.batch.limits import Elsewhere
from pyprof2.analysis.summaries.batch.model import Model, fit_model
from pyprof2.analysis.summaries.batch.recorded import INPUT, recorded
from pyprof2.api import run_memory
from pyprof2.api.prediction import IDLE, OTHER_VENDOR, PredictedStep, Question
from pyprof2.api.run import Run, load
from pyprof2.columns import as_text
from pyprof2.errors import refuse
from pyprof2.store.folder import ranks_of, read_rank

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.hardware.devices import Device
    from pyprof2.analysis.summaries.batch.recorded import Recorded, Savable
    from pyprof2.api.prediction import OnDevice


def batch_model(runs: Mapping[int, Run | Path | str], *, progress: bool = False) -> Model:
    """Return what recordings at three or more batch sizes say of all others.

    Of a job with many ranks the lowest rank that has kernels counts, and the batch is its own.

    Args:
        runs: by batch size: what `load` returns, a store, or a trace.
        progress: show a bar on stderr while parsing.

    Raises:
        UsageError: there are fewer than three, a batch size is less than 1, or some runs have
            kernels and others none.
        TraceError, StoreError: a path cannot be read.
    """
    found = []
    for batch, given in runs.items():
        if batch < 1:
            refuse(f"batch size {batch}: it is 1 or more")
        run = given if isinstance(given, Run) else load(given, progress=progress)
        found.append(recorded_of(batch, run))
    return fit_model(found)


def recorded_of(batch: int, run: Run) -> Recorded:
    """Return what a recording says: of a job, the rank that counts."""
    chosen = _rank_of(run)
    tables = {name: read_rank(run.path, name, chosen, columns) for name, columns in INPUT.items()}
    return replace(recorded(batch, tables), savable=cache(partial(_savable, run, chosen)))


def _savable(run: Run, rank: int) -> Savable | None:
    from pyprof2.analysis.summaries.batch.recorded import savable_of

    profile = run_memory.memory_by_device(run.tables)
    own = [curve for curve in profile.curves if curve.rank == rank]
    return savable_of(replace(profile, curves=own))


def held_by_category(runs: Mapping[int, Run | Path | str]) -> dict[int, dict[str, int]]:
    """Return by batch size the bytes of each category of memory at the peak.

    Of a recording it is the rank that counts in a model, and the device that holds most; empty
    where no memory is recorded.
    """
    return {
        batch: _held(given if isinstance(given, Run) else load(given))
        for batch, given in runs.items()
    }


def _held(run: Run) -> dict[str, int]:
    rows = run.memory_profile("category", rank=_rank_of(run))
    if rows.empty:
        return {}
    kinds = as_text(rows["device_type"])
    rows = rows[kinds != "cpu"] if (kinds != "cpu").any() else rows
    devices = rows["device"].fillna(-1)
    largest = rows["bytes"].groupby(devices, observed=True).sum().idxmax()
    own = rows[devices == largest]
    sums = own["bytes"].groupby(as_text(own["category"]), sort=False, observed=True).sum()
    return {str(name): int(held) for name, held in sums.items() if held > 0}


def elsewhere(
    runs: Mapping[int, Run], devices: Sequence[Device]
) -> dict[str, dict[int, Elsewhere]]:
    """Return by device and recorded batch size how much longer a step takes there than here.

    A recording of which nothing can be predicted has no value, and says why.
    """
    found: dict[str, dict[int, Elsewhere]] = {device.name: {} for device in devices}
    for batch, run in runs.items():
        prediction = PredictedStep(run.tables)
        here = prediction.window[1] / 1e6
        for device in devices:
            (row,) = prediction.rows_of(device, Question())
            if prediction.window[0] is None and row.get("lo_ms") is not None:
                found[device.name][batch] = _of_kernels(prediction.on(device), row["why"])
                continue
            names = ("step_ms", "lo_ms", "hi_ms")
            value, lo, hi = (None if row.get(n) is None else row[n] / here for n in names)
            found[device.name][batch] = Elsewhere(value, lo, hi, row["why"])
    return found


def _of_kernels(said: OnDevice, why: str | None) -> Elsewhere:
    """Return how much longer kernels take: the host does not matter to them."""
    spread = math.exp(said.width)
    reasons = [each for each in (why or "").split("; ") if each and not each.startswith(IDLE)]
    value = None if OTHER_VENDOR in reasons else said.factor
    return Elsewhere(value, said.factor / spread, said.factor * spread, "; ".join(reasons) or None)


def _rank_of(run: Run) -> int:
    """Return the rank of a job that counts: the lowest that has kernels."""
    ranks = ranks_of(run.path)
    return next((rank for rank in ranks if _has_kernels(run.path, rank)), ranks[0])


def _has_kernels(store: Path, rank: int) -> bool:
    return bool(read_rank(store, "kernels", rank, ["kernel_id"]).num_rows)
