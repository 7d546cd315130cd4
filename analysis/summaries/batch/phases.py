"""Memory of a recording: the most that is allocated in each phase of a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.memory.curves import curves_of_rank

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

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
    chosen = _device_type(events)
    is_chosen = (events["device_type"].astype(object) == chosen).to_numpy()
    base = None
    if chosen == _CPU:
        rank = tags["rank"][0].as_py() if tags.num_rows else 0
        base = next(curves_of_rank(memory.filter(pa.array(is_chosen)), tags, rank)).base
    events = events.assign(live=_live)[is_chosen]
    if base is not None:
        events = events.assign(live=base + events["bytes"].cumsum())
    largest = events.groupby(events["device"].fillna(-1).astype("int64"))["live"].max().idxmax()
    events = events[events["device"].fillna(-1).astype("int64") == largest]
    reserved = float(events["reserved_bytes"].max()) / max(1.0, float(events["live"].max()))
    if chosen == _CPU or not np.isfinite(reserved):
        reserved = 1.0  # on the CPU nothing is held back
    known = bool(events["allocated_bytes"].notna().all()) and chosen != _CPU
    events = events.assign(phase=events["phase"].astype(object).fillna(_REST))
    if span is not None:
        inside = events["time_ns"].between(*span)
        events = events[inside] if inside.any() else events
    peaks = events.groupby("phase")["live"].max()
    found = {str(name): int(peak) for name, peak in peaks.items() if peak > 0}
    before = events["live"].iloc[0] - events["bytes"].iloc[0]
    always = max(0, int(min(before, events["live"].min())))
    return Memory(found, not (known or base is not None), reserved, always)


def _device_type(events: pd.DataFrame) -> str:
    """Return the kind of device to look at: a GPU, where there is one."""
    kinds = [str(kind) for kind in events["device_type"].dropna().unique()]
    return min(kinds, key=lambda kind: (kind == _CPU, kind), default=_CPU)


def _live(events: pd.DataFrame) -> NDArray[np.int64]:
    """Return what is allocated on the device after each event, else over what was before."""
    keys = [events["device_type"].astype(object).fillna(""), events["device"].fillna(-1)]
    change = events["bytes"].where(~_of_before(events), 0)
    running = change.groupby(keys).cumsum().to_numpy(np.int64)
    total = events["allocated_bytes"]
    # On the CPU a recorder counts from its own first event: a running sum too, less exact.
    use = (total.notna() & (events["device_type"].astype(object) != _CPU)).to_numpy()
    return np.where(use, total.fillna(0).to_numpy(np.int64), running)


def _of_before(events: pd.DataFrame) -> pd.Series:
    """Return which events release what was allocated before the recording.

    That makes less of what was there before, and nothing of what came on top of it.
    """
    keys = [events["device_type"].astype(object).fillna(""), events["device"].fillna(-1)]
    before = events.groupby([*keys, events["address"]])["bytes"].shift()
    return (events["bytes"] < 0) & events["address"].notna() & ~(before > 0)
