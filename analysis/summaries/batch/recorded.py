"""A recording at one batch size: times by part, the calls behind them, memory.

The unit is a step; without steps the recording is one pass. A step's calls are those of the
typical step, whose kernels take the median time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.memory.curves import curves_of_rank
from pyprof2.analysis.memory.tags import tagged_bytes
from pyprof2.analysis.time.step_times import timed_steps
from pyprof2.columns import as_text
from pyprof2.signatures import Input, Scalar, Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray

    from pyprof2.analysis.memory.profile import MemoryProfile

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
        concurrency: how many kernels run at a time while any does, on average over the steps.
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
    concurrency: float = 1.0
    clock: str | None = None
    savable: Callable[[], Savable | None] = _nothing

    @property
    def step_time_ns(self) -> float:
        """How long a step takes: the median of the steps, or the least of processes.

        Other work on a machine only ever makes a process slower.
        """
        return float(min(self.step_ns) if self.clock else np.median(self.step_ns))

    @property
    def spread(self) -> float:
        """By how much the processes differ, over the least of them."""
        return max(self.step_ns) / min(self.step_ns) - 1 if self.step_ns else 0.0


def recorded(batch: int, tables: Mapping[str, pa.Table]) -> Recorded:
    """Return what the tables of one rank say; see `INPUT`."""
    windows = timed_steps(tables["steps"])
    # All but the first, where there are more.
    steps = [window.step for window in windows]
    steps = steps[1:] or steps
    is_gpu = tables["kernels"].num_rows > 0
    ops = tables["ops"].to_pandas()
    rows = tables["kernels"].to_pandas() if is_gpu else ops.assign(dur_ns=ops["self_ns"])
    rows = _with_parts(rows[rows["step"].isin(steps)] if steps else rows.assign(step=_WHOLE))
    sums = rows.groupby(["step", *PART], observed=True)["dur_ns"].sum()
    by_step = sums.unstack(PART, fill_value=0)  # noqa: PD010
    work = by_step.sum(axis="columns")
    signatures = tables["signatures"].to_pandas()
    structures, tensors = _of_signatures(signatures)
    typical = (work - work.median()).abs().idxmin() if len(work) else None
    calls = _calls(rows[rows["step"] == typical], ops, structures)
    chosen = [window for window in windows if window.step in steps]
    ends = [window.start_ns + window.dur_ns for window in chosen]
    span = (min(window.start_ns for window in chosen), max(ends)) if chosen else None
    device, capacity = _device(tables, is_gpu=is_gpu)
    return Recorded(
        batch=batch,
        parts=by_step.median() if len(by_step) else pd.Series(dtype=float),
        work_ns=[int(time) for time in work],
        step_ns=[window.dur_ns for window in chosen],
        is_gpu=is_gpu,
        concurrency=concurrency_of(rows) if is_gpu else 1.0,
        calls=calls,
        tensors=tensors,
        memory=memory_peaks(tables["memory"], tables["memory_tags"], span),
        capacity=capacity,
        device=device,
    )


def concurrency_of(kernels: pd.DataFrame) -> float:
    """Return how many kernels run at a time while any does, 1 or more, on average."""
    start, time = (kernels[name].to_numpy("int64") for name in ("start_ns", "dur_ns"))
    return max(1.0, float(time.sum()) / max(1, union_length(start, start + time)))


def _device(tables: Mapping[str, pa.Table], *, is_gpu: bool) -> tuple[str | None, int | None]:
    """Return name and memory of the device: of the CPU those of the machine."""
    rows = tables["devices"].to_pylist()
    name = next((row["name"] for row in rows if row["name"]), None)
    size = next((row["memory_bytes"] for row in rows if row["memory_bytes"]), None)
    for machine in tables["trace"].to_pylist() if not is_gpu else ():
        name, size = name or machine["cpu"], size or machine["machine_bytes"]
    return name, size


def _with_parts(rows: pd.DataFrame) -> pd.DataFrame:
    """Add `phase` and `group`."""
    phase = rows["direction"].astype(object).fillna("other")
    again = rows["recompute"].fillna(False).astype(bool)  # noqa: FBT003
    group = rows["category"].astype(object).fillna("other")
    return rows.assign(phase=phase.where(~again, "recompute"), group=group)


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
    number = as_text(found.groupby(names, observed=True).cumcount())
    key = as_text(found[names]).agg("|".join, axis="columns") + "|" + number
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


_CPU: Final = "cpu"
_REST: Final = "other"


@dataclass(frozen=True)
class Memory:
    """The most that is allocated in each phase of a step, on the device that holds most.

    Attributes:
        peaks: bytes by phase.
        over_base: they are above what was allocated before the recording, which is not known.
        reserved_ratio: the most that the allocator held, over the most that was allocated.
        always: bytes that are allocated at every moment, as parameters are.
    """

    peaks: dict[str, int]
    over_base: bool
    reserved_ratio: float
    always: int = 0


def memory_peaks(
    memory: pa.Table, tags: pa.Table, span: tuple[int, int] | None = None
) -> Memory | None:
    """Return the peaks of the table `memory` of one rank; None: it has no events.

    Args:
        memory: `time_ns`, `pid`, `tid`, `device_type`, `device`, `address`, `bytes`,
            `allocated_bytes`, `reserved_bytes`, `phase`.
        tags: the table `memory_tags` of the rank: `rank`, `time_ns`, `moment`, `device_type`,
            `address`, `bytes`.
        span: start and end of what counts, ns; None: all.
    """
    if not memory.num_rows:
        return None
    events = memory.to_pandas()
    # A GPU, where there is one.
    kinds = [str(kind) for kind in events["device_type"].dropna().unique()]
    chosen = min(kinds, key=lambda kind: (kind == _CPU, kind), default=_CPU)
    is_chosen = (events["device_type"].astype(object) == chosen).to_numpy()
    base = None
    if chosen == _CPU:
        rank = tags["rank"][0].as_py() if tags.num_rows else 0
        base = next(curves_of_rank([memory.filter(pa.array(is_chosen))], tags, rank)).base
    events = events.assign(live=_live)[is_chosen]
    if base is not None:
        events = events.assign(live=base + events["bytes"].cumsum())
    largest = (
        events.groupby(events["device"].fillna(-1).astype("int64"), observed=True)["live"]
        .max()
        .idxmax()
    )
    events = events[events["device"].fillna(-1).astype("int64") == largest]
    reserved = float(events["reserved_bytes"].max()) / max(1.0, float(events["live"].max()))
    if chosen == _CPU or not np.isfinite(reserved):
        reserved = 1.0  # on the CPU nothing is held back
    known = bool(events["allocated_bytes"].notna().all()) and chosen != _CPU
    events = events.assign(phase=events["phase"].astype(object).fillna(_REST))
    if span is not None:
        inside = events["time_ns"].between(*span)
        events = events[inside] if inside.any() else events
    peaks = events.groupby("phase", observed=True)["live"].max()
    found = {str(name): int(peak) for name, peak in peaks.items() if peak > 0}
    before = events["live"].iloc[0] - events["bytes"].iloc[0]
    always = max(0, int(min(before, events["live"].min())))
    return Memory(found, not (known or base is not None), reserved, always)


def _live(events: pd.DataFrame) -> NDArray[np.int64]:
    """Return what is allocated on the device after each event, else over what was before."""
    keys = [events["device_type"].astype(object).fillna(""), events["device"].fillna(-1)]
    # The release of what was allocated before the recording makes less of what was there before,
    # and nothing of what came on top of it.
    before = events.groupby([*keys, events["address"]], observed=True)["bytes"].shift()
    is_older = (events["bytes"] < 0) & events["address"].notna() & ~(before > 0)
    change = events["bytes"].where(~is_older, 0)
    running = change.groupby(keys, observed=True).cumsum().to_numpy(np.int64)
    total = events["allocated_bytes"]
    # On the CPU a recorder counts from its own first event: a running sum too, less exact.
    use = (total.notna() & (events["device_type"].astype(object) != _CPU)).to_numpy()
    return np.where(use, total.fillna(0).to_numpy(np.int64), running)


_STATE = "optimizer_state"


@dataclass(frozen=True)
class Savable:
    """Memory of the device with most of it when a backward begins, that might be saved.

    Attributes:
        checkpoints: the layers that are worth a checkpoint: `retained.CHECKPOINT_COLUMNS`.
        optimizer: bytes of the optimizer's state; None: not known.
    """

    checkpoints: pd.DataFrame
    optimizer: int | None


def savable_of(profile: MemoryProfile) -> Savable | None:
    """Return what a recording holds; None: it has no backward, or no memory."""
    if not profile.curves:
        return None
    number = max(range(len(profile.curves)), key=lambda at: _most(profile, at))
    found, moment = profile.retained(number), profile.moment(number, "backward")
    if found is None or moment is None:
        return None
    tagged = profile.tagged[number]
    known = {} if tagged is None else tagged_bytes(profile.curves[number], tagged, moment)
    if known.get(_STATE):
        return Savable(found[1], known[_STATE])
    # Blocks that look like state; where none does, it is from before the recording.
    entries = profile.entries[number]
    lives = (entries["begin"] <= moment) & (entries["end"] > moment)
    own = entries[lives & (as_text(entries["category"]) == _STATE).to_numpy()]
    return Savable(found[1], int(own["bytes"].sum()) or None)


def _most(profile: MemoryProfile, at: int) -> tuple[bool, int]:
    """Return what to choose a device by: a GPU, where there is one, and how much is on it."""
    curve = profile.curves[at]
    return curve.device_type != "cpu", (curve.base or 0) + curve.over_base(curve.peak)
