"""What one recording says of its batch size: times by part, the calls behind them, memory.

The unit is a step; without steps the recording is one pass. A step's calls are those of the
typical step, whose kernels take the median time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from pyprof2.analysis.summaries.batch.phases import memory_peaks
from pyprof2.analysis.time.step_times import step_windows_of
from pyprof2.signatures import Input, Scalar, Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from pyprof2.analysis.summaries.batch.phases import Memory
    from pyprof2.analysis.summaries.batch.savable import Savable

_ROWS: Final = (
    "step", "op", "op_id", "category", "direction", "recompute", "layer", "flops", "start_ns",
)  # fmt: skip
INPUT: Final[dict[str, tuple[str, ...]]] = {
    "kernels": (*_ROWS, "dur_ns"),
    "ops": (*_ROWS, "dur_ns", "self_ns", "signature_id"),
    "signatures": ("signature_id", "op", "inputs"),
    "steps": ("rank", "start_ns", "step", "dur_ns"),
    "memory": (
        "time_ns", "pid", "tid", "device_type", "device", "address", "bytes", "allocated_bytes",
        "reserved_bytes", "phase",
    ),
    "memory_tags": ("rank", "time_ns", "moment", "device_type", "address", "bytes"),
    "devices": ("name", "memory_bytes"),
    "trace": ("cpu", "machine_bytes"),
}  # fmt: skip
"""Columns of a rank's tables."""

PART: Final = ["phase", "group"]
CALLS: Final = (*PART, "key", "signature_id", "flops")
TENSORS: Final = ("signature_id", "place", "elements", "sizes")
_WHOLE: Final = 0
"""The number of the only pass of a recording without steps."""


def _nothing() -> Savable | None:
    return None


@dataclass(frozen=True)
class Recorded:
    """A recording at one batch size.

    Attributes:
        batch: samples in a step.
        parts: time of a step by `phase` and `group`, ns: of each the median over steps.
        work_ns: of each step, the sum over parts.
        step_ns: of each step; empty: the recording has no steps.
        is_gpu: whether parts are kernels; else they are what ops take themselves.
        calls: of the typical step: `phase`, `group`, `key` (equal for calls that other recordings
            have as well), `signature_id`, `flops`.
        tensors: of each signature: `signature_id`, `place`, `elements`, `sizes` (a tuple).
        memory: peaks of phases, and what the allocator kept.
        capacity: bytes of the device, as recorded; None: not recorded.
        device: its name.
        clock: of what `step_ns` is, where each of it is the shortest step of a fresh process that
            recorded nothing; None: `step_ns` are the steps of the recording.
        savable: gives what could be made again or held elsewhere, which takes a while; None: there
            is no backward, or no memory.
    """

    batch: int
    parts: pd.Series
    work_ns: list[int]
    step_ns: list[int] = field(default_factory=list)
    is_gpu: bool = True
    calls: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=CALLS))
    tensors: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=TENSORS))
    memory: Memory | None = None
    capacity: int | None = None
    device: str | None = None
    clock: str | None = None
    savable: Callable[[], Savable | None] = _nothing

    @property
    def step_time_ns(self) -> float:
        """How long a step takes: the median of the steps, or the least of processes.

        What else runs on a machine only ever makes a process slower.
        """
        return float(min(self.step_ns) if self.clock else np.median(self.step_ns))

    @property
    def spread(self) -> float:
        """By how much the processes differ, over the least of them."""
        return max(self.step_ns) / min(self.step_ns) - 1 if self.step_ns else 0.0


def recorded(batch: int, tables: Mapping[str, pa.Table]) -> Recorded:
    """Return what the tables of one rank say; see `INPUT`."""
    windows = step_windows_of(tables["steps"].to_pandas())
    steps = _chosen_steps(windows)
    is_gpu = tables["kernels"].num_rows > 0
    ops = tables["ops"].to_pandas()
    rows = tables["kernels"].to_pandas() if is_gpu else ops.assign(dur_ns=ops["self_ns"])
    rows = _with_parts(_in_steps(rows, steps))
    by_step = rows.groupby(["step", *PART])["dur_ns"].sum().unstack(PART, fill_value=0)  # noqa: PD010
    work = by_step.sum(axis="columns")
    signatures = tables["signatures"].to_pandas()
    structures, tensors = _of_signatures(signatures)
    typical = _typical(work)
    calls = _calls(rows[rows["step"] == typical], ops, structures)
    chosen = windows[windows["step"].isin(steps)]
    device, capacity = _device(tables, is_gpu=is_gpu)
    return Recorded(
        batch=batch,
        parts=by_step.median() if len(by_step) else pd.Series(dtype=float),
        work_ns=[int(time) for time in work],
        step_ns=[int(time) for time in chosen["dur_ns"]],
        is_gpu=is_gpu,
        calls=calls,
        tensors=tensors,
        memory=memory_peaks(tables["memory"], tables["memory_tags"], _span(chosen)),
        capacity=capacity,
        device=device,
    )


def _device(tables: Mapping[str, pa.Table], *, is_gpu: bool) -> tuple[str | None, int | None]:
    """Return name and memory of the device: of the CPU those of the machine."""
    rows = tables["devices"].to_pylist()
    name = next((row["name"] for row in rows if row["name"]), None)
    size = next((row["memory_bytes"] for row in rows if row["memory_bytes"]), None)
    for machine in tables["trace"].to_pylist() if not is_gpu else ():
        name, size = name or machine["cpu"], size or machine["machine_bytes"]
    return name, size


def _span(windows: pd.DataFrame) -> tuple[int, int] | None:
    """Return from when to when the windows are, ns; None: there are none."""
    if windows.empty:
        return None
    ends = windows["start_ns"] + windows["dur_ns"]
    return int(windows["start_ns"].min()), int(ends.max())


def _chosen_steps(windows: pd.DataFrame) -> list[int]:
    """Return the steps that count: all but the first, where there are more."""
    steps = windows["step"].tolist()
    return steps[1:] or steps


def _in_steps(rows: pd.DataFrame, steps: list[int]) -> pd.DataFrame:
    if not steps:
        return rows.assign(step=_WHOLE)
    return rows[rows["step"].isin(steps)]


def _with_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `phase` and `group`."""
    phase = rows["direction"].astype(object).fillna("other")
    again = rows["recompute"].fillna(False).astype(bool)  # noqa: FBT003
    group = rows["category"].astype(object).fillna("other")
    return rows.assign(phase=phase.where(~again, "recompute"), group=group)


def _typical(work: pd.Series) -> Any:
    """Return the step whose work takes the median time, or the nearest to it."""
    return (work - work.median()).abs().idxmin() if len(work) else None


def _calls(rows: pd.DataFrame, ops: pd.DataFrame, structures: pd.Series) -> pd.DataFrame:
    """Return the op calls behind rows, one for each part that a call has work in."""
    own = rows[rows["op_id"].notna()].drop_duplicates(["op_id", *PART]).sort_values("op_id")
    of_op = ops.set_index("op_id")
    at = own["op_id"].astype("int64")
    signature = of_op["signature_id"].reindex(at).to_numpy()
    layer = own["layer"].astype(object).fillna("")
    structure = structures.reindex(signature).astype(object).to_numpy()
    found = own[PART].assign(
        signature_id=signature, structure=structure, layer=layer,
        flops=of_op["flops"].reindex(at).to_numpy(np.float64),
    ).dropna(subset="structure")  # fmt: skip
    names = [*PART, "layer", "structure"]
    number = found.groupby(names).cumcount().astype(str)
    key = found[names].astype(str).agg("|".join, axis="columns") + "|" + number
    return found.assign(key=key if len(found) else "")[list(CALLS)].reset_index(drop=True)


def _of_signatures(signatures: pd.DataFrame) -> tuple[pd.Series, pd.DataFrame]:
    """Return of each signature its structure, as text, and its tensors."""
    structures, rows = {}, []
    for number, op, text in signatures[["signature_id", "op", "inputs"]].itertuples(index=False):
        tensors = list(_tensors(parse_inputs(text))) if isinstance(text, str) else []
        if not tensors:
            continue
        kinds = ",".join(f"{len(tensor.shape)}{tensor.dtype}" for tensor in tensors)
        structures[number] = f"{op}({kinds})"
        for place, tensor in enumerate(tensors):
            elements = float(np.prod(tensor.shape, dtype=np.float64))
            rows.append((number, place, elements, tensor.shape))
    return pd.Series(structures, dtype=object), pd.DataFrame(rows, columns=list(TENSORS))


def _tensors(inputs: tuple[Input, ...]) -> Iterator[Tensor]:
    for item in inputs:
        if isinstance(item, Tensor):
            yield item
        elif item is not None and not isinstance(item, Scalar):
            yield from item
