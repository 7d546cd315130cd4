"""The memory of a recording: totals of each device, what lives at a moment, and how two differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.memory import categories, live
from pyprof2.analysis.memory.curves import START
from pyprof2.analysis.memory.live import ROW_COLUMNS
from pyprof2.analysis.memory.retained import checkpoints, retained
from pyprof2.analysis.memory.tags import tag_notes, tagged, weights_of
from pyprof2.errors import UsageError, refuse
from pyprof2.tables import WEIGHTS, Column, text, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.analysis.memory.retained import Retained
    from pyprof2.analysis.memory.tags import Tagged

_REFUTED: Final = "{} weights that the program names contradict the recording: left out"
MOMENTS: Final = ("peak", "end", "backward", "oom")
"""The peak; after the last event; the start of the backward with most alive; out of memory."""

DEVICE_COLUMNS: Final = (
    whole("rank", "Process in the job.", nullable=False),
    text("device_type", "`cuda`, `hip`, `xpu` or `cpu`.", nullable=False),
    whole("device", "Ordinal of the device; null for the CPU."),
    whole("events", "Allocations and releases.", nullable=False),
    whole("base_bytes", "Allocated before the first event; null: not known.", "B"),
    whole("peak_over_base_bytes", "The most above it.", "B", nullable=False),
    whole("peak_allocated_bytes", "The sum of both; null as the base is.", "B"),
    whole(
        "base_at_peak_bytes", "What is left at the peak of what was there before.", "B"
    ),
    whole("peak_time_ns", "When the peak is first reached.", "ns"),
    whole("end_over_base_bytes", "Above the base at the end.", "B", nullable=False),
    whole("end_allocated_bytes", "Allocated after the last event.", "B"),
    whole(
        "peak_active_bytes",
        "The most that is allocated or still in use by another stream.",
        "B"
    ),
    whole("peak_reserved_bytes", "The most that the allocator held, as seen.", "B"),
    whole("reserved_at_peak_bytes", "What it held at the peak.", "B"),
    whole("reserved_bytes", "What it holds at the end: the sum of five parts.", "B"),
    whole("allocated_bytes", "Of it allocated.", "B"),
    whole("free_segments_bytes", "Of it whole segments that are free.", "B"),
    whole("fragmentation_bytes", "Of it free inside segments that are used.", "B"),
    whole(
        "private_bytes", "Of it free in pools of their own, as of CUDA graphs: not for others.", "B"
    ),
    whole("pending_bytes", "Of it released, but in use by another stream.", "B"),
    whole("rounding_bytes", "Of what is allocated at the end, not asked for.", "B"),
    whole(
        "non_torch_bytes",
        "Used on the device at the end beside what the allocator of this process holds, such as "
        "CUDA's context, other libraries and processes; null: not recorded.",
        "B"
    ),
)  # fmt: skip
"""The columns of `MemoryProfile.devices`."""
_KEYS: Final = ("rank", "device_type", "device")
DIFFERENCE_COLUMNS: Final = (
    *(c for c in ROW_COLUMNS if c.name not in ("bytes", "blocks", "share_pct", "certainty")),
    whole("a_bytes", "What lives in A.", "B", nullable=False),
    whole("b_bytes", "What lives in B.", "B", nullable=False),
    whole("difference_bytes", "B less A.", "B", nullable=False),
    whole("a_blocks", "Number of blocks in A."),
    whole("b_blocks", "Number of blocks in B."),
)


@dataclass(frozen=True)
class MemoryProfile:
    """The memory of all devices of a recording.

    Attributes:
        path: the recording or store.
        curves: of each device of each rank.
        settings: of the allocator; empty: not recorded.
        tags: what the recorded program tagged of blocks, rows of the table `memory_tags`.
        weights: what it named: of the table `weights`, see `weights.last_weights`.
        forward: gives `layer` and `time_ns` of forward in a step of a rank; None: not recorded.
        begins: by rank, when its recording began, ns; empty: not recorded.
    """

    path: Path
    curves: Sequence[MemoryCurve]
    settings: dict[str, Any] = field(default_factory=dict)
    tags: pa.Table | None = None
    weights: pa.Table | None = None
    forward: Callable[[int], pd.DataFrame] | None = None
    begins: Mapping[int, int] = field(default_factory=dict)

    def only(self, device: str | None = None, rank: int | None = None) -> MemoryProfile:
        """Return the profile of one device (`cuda:0`, `0`, `cpu`) or one rank.

        Raises:
            UsageError: there is none.
        """
        kept = [
            curve
            for curve in self.curves
            if rank in (None, curve.rank) and (device is None or device in _names(curve))
        ]
        if not kept and self.curves:
            there = ", ".join(dict.fromkeys(_names(curve)[0] for curve in self.curves))
            ranks = ", ".join(map(str, dict.fromkeys(curve.rank for curve in self.curves)))
            msg = f"{self.path}: no memory of this device and rank; devices {there}, ranks {ranks}"
            raise UsageError(msg)
        return replace(self, curves=kept)

    @cached_property
    def tagged(self) -> list[Tagged | None]:
        """The tags of each curve, None where the program tagged nothing."""
        if self.tags is None or not self.tags.num_rows:
            return [None] * len(self.curves)
        return [tagged(curve, self.tags) for curve in self.curves]

    @cached_property
    def entries(self) -> list[pd.DataFrame]:
        """Everything that lived at any time, for each curve; see `live.entries`."""
        pairs = zip(self.curves, self.tagged, strict=True)
        return [live.entries(curve, found) for curve, found in pairs]

    @cached_property
    def devices(self) -> pd.DataFrame:
        """One row per device, of `DEVICE_COLUMNS`."""
        return _frame([_totals(curve) for curve in self.curves], DEVICE_COLUMNS)

    def moment(self, number: int, at: str) -> int | None:
        """Return a moment of `MOMENTS` of a curve, by its place; None: it has none.

        Where the program tagged when backward began, that is the start of it.

        Raises:
            UsageError: there is no such moment.
        """
        curve, found = self.curves[number], self.tagged[number]
        if at != "backward" or found is None or not len(found.backward):
            return moment_of(curve, at)
        over = [curve.over_base(int(row)) for row in found.backward]
        return int(found.backward[int(np.argmax(over))])

    def retained(self, number: int) -> tuple[Retained, pd.DataFrame] | None:
        """Return what forward leaves for backward on a curve, by its place, and what to do.

        Returns:
            See `retained.retained` and `retained.checkpoints`; None: there is no backward.
        """
        moment = self.moment(number, "backward")
        if moment is None:
            return None
        kept = retained(self.entries[number], moment, self.tagged[number])
        forward, rank = self.forward, self.curves[number].rank
        return kept, checkpoints(kept.rows, forward and (lambda: forward(rank)))

    def notes_of(self, at: int) -> list[str]:
        """Return what else there is to say of the device at a place among the curves."""
        found = self.tagged[at]
        own = [] if found is None else tag_notes(self.curves[at], found)
        refuted = self.named(at)[1]
        if refuted:
            own.append(_REFUTED.format(refuted))
        return [*self.curves[at].notes, *own]

    def named(self, at: int) -> tuple[pa.Table, int]:
        """Return the weights that the program named on a curve, by its place.

        Returns:
            Rows of the table `weights`, and how many more the recording contradicts.
        """
        found = self.tagged[at]
        if self.weights is None or found is None:
            return WEIGHTS.schema().empty_table(), 0
        return weights_of(self.curves[at], found, self.weights)

    def rows(self, by: Sequence[str] = ("category",), at: str = "peak") -> pd.DataFrame:
        """Return what lives at a moment, summed along axes: `live.ROW_COLUMNS`.

        The rows of a device add up to what is allocated at that moment; where the base is not
        known, to what is above it. Devices are never added up.

        Args:
            by: some of `live.AXES`.
            at: one of `MOMENTS`.

        Raises:
            UsageError: an axis or a moment is unknown.
        """
        import pandas as pd

        live.check_axes(by)
        parts = [
            live.summarize(curve, live.live_at(entries, moment), by)
            for number, (curve, entries) in enumerate(zip(self.curves, self.entries, strict=True))
            if (moment := self.moment(number, at)) is not None
        ]
        if not parts:
            names = [c.name for c in live.ROW_COLUMNS if c.name not in live.AXES or c.name in by]
            return pd.DataFrame(columns=names)
        return pd.concat(parts, ignore_index=True)


def _names(curve: MemoryCurve) -> list[str]:
    if curve.device is None:
        return [curve.device_type]
    return [f"{curve.device_type}:{curve.device}", str(curve.device), curve.device_type]


def moment_of(curve: MemoryCurve, at: str) -> int | None:
    """Return a moment of `MOMENTS` as a row of the curve's events; None: it has none.

    Raises:
        UsageError: there is no such moment.
    """
    if at == "peak":
        return curve.peak
    if at == "end":
        return curve.end
    if at == "oom":
        return curve.failures[-1]["moment"] if curve.failures else None
    if at != "backward":
        refuse(f"no moment {at!r}; there are {', '.join(MOMENTS)}")
    phase, step = live.phases_and_steps(curve)
    starts = _first_rows(phase == categories.PHASES.index("backward"), step)
    if not len(starts):
        return None
    over = [curve.over_base(int(row) - 1) for row in starts]
    return int(starts[int(np.argmax(over))]) - 1


def _first_rows(marked: Any, step: Any) -> Any:
    """Return the first marked row of each step."""
    rows = np.flatnonzero(marked)
    _, first = np.unique(step[rows], return_index=True)
    return np.sort(rows[first])


def _totals(curve: MemoryCurve) -> dict[str, Any]:
    base, over, end = curve.base, curve.over_base(curve.peak), curve.over_base(curve.end)
    known = {} if base is None else {
        "peak_allocated_bytes": base + over, "end_allocated_bytes": base + end
    }  # fmt: skip
    return {
        "rank": curve.rank,
        "device_type": curve.device_type,
        "device": curve.device,
        "events": curve.events.num_rows,
        "base_bytes": base,
        "peak_over_base_bytes": over,
        "base_at_peak_bytes": curve.base_at(curve.peak),
        "peak_time_ns": None if curve.peak == START else curve.time_at(curve.peak),
        "end_over_base_bytes": end,
        "rounding_bytes": curve.rounding,
        **known,
        **curve.facts,
    }


def _frame(rows: list[dict[str, Any]], columns: Sequence[Column]) -> pd.DataFrame:
    from pyprof2.columns import as_pandas

    schema = pa.schema([column.field() for column in columns])
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    never = [c.name for c in columns if not c.nullable and c.type == pa.int64()]
    return as_pandas(pa.Table.from_pylist(full, schema=schema), never)


def difference(
    a: MemoryProfile, b: MemoryProfile, by: Sequence[str], at: str = "peak"
) -> pd.DataFrame:
    """Return what lives in B more than in A, along axes, the largest difference first.

    The differences of a device add up to that of what is allocated at the moment.

    Args:
        a: the one before.
        b: the one after.
        by: some of `live.AXES`.
        at: one of `profile.MOMENTS`.

    Returns:
        The columns of `DIFFERENCE_COLUMNS`, of the axes only those asked for.
    """
    keys = [*_KEYS, *by]
    sides = [side.rows(by, at)[[*keys, "bytes", "blocks"]] for side in (a, b)]
    plain = [side.astype(dict.fromkeys([*by, "device_type"], "object")) for side in sides]
    both = plain[0].merge(plain[1], on=keys, how="outer", suffixes=("_a", "_b"))
    numbers = {}
    for side in "ab":
        lacks = both[f"bytes_{side}"].isna()
        numbers[f"{side}_bytes"] = both[f"bytes_{side}"].fillna(0).astype("int64")
        numbers[f"{side}_blocks"] = both[f"blocks_{side}"].astype("Int64").mask(lacks, 0)
    found = both[keys].assign(**numbers)
    found["difference_bytes"] = found["b_bytes"] - found["a_bytes"]
    found = found.sort_values(
        "difference_bytes", ascending=False, kind="stable", key=abs, ignore_index=True
    )
    return found[[c.name for c in DIFFERENCE_COLUMNS if c.name in found]]
