"""MFU and HFU: how much of what the device can do the steps of a model used.

*Model FLOPs utilization* is the FLOPs of the model over what the device could do at its peak in
the time that the step took. Only the work of ops that are matrix products counts (matmul, conv,
attention, rnn), forward and backward, and nothing twice: not what checkpointing runs again, nor
the products that a fused attention repeats in its backward. Source: A. Chowdhery et al., "PaLM:
Scaling Language Modeling with Pathways", appendix B (arXiv:2204.02311).

*Hardware FLOPs utilization* counts all matrix work that was done: what was run again, and that
of the optimizer too. Source: V. Korthikanti et al., "Reducing Activation Recomputation in Large
Transformer Models", section 5 (arXiv:2205.05198).

The time of a step is that of its window, idle time and all: it ends when the work that the step
launched has ended (see `pyprof2.analysis.time.step_windows`); its FLOPs are those of the kernels
that were launched in it. The peak is the highest that the device allows for the dtype of
most of the FLOPs: its matrix units where they take the dtype, float32 as TF32 where there is
TF32, else the vector lanes.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.chunked import RunningCodes, chunks_of, whole
from pyprof2.analysis.hardware.roofline import highest_peak
from pyprof2.analysis.intervals import union_length
from pyprof2.analysis.time.recordings import recorded_span
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.columns import int_array, lookup, merge_texts, narrow, sum_at, text_array
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.result_tables import UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pyprof2.analysis.chunked import ChunkedTable
    from pyprof2.analysis.intervals import Int

_PANDAS: Final = {pa.int64(): "Int64", pa.float64(): "float64", pa.string(): "object"}
COLUMNS: Final = {column.name: _PANDAS[column.type] for column in UTILIZATION.columns}
"""The columns of `utilization` and their pandas types."""

NEEDED: Final = {
    "kernels": ("start_ns", "dur_ns", "step", "device", "category", "compute_dtype", "flops",
                "direction", "recompute", "cost_op_id"),
    "copies": ("start_ns", "dur_ns", "step", "device"),
    "ops": ("start_ns", "dur_ns", "step", "category", "compute_dtype", "flops", "direction",
            "recompute"),
    "trace": ("start_ns",),
}  # fmt: skip
"""The columns that it reads of each table."""

PHASES: Final = ("forward", "backward", "optimizer")
PHASE_INPUT: Final = {
    "kernels": ("step", "direction", "start_ns", "dur_ns", "tensor_core"),
    "ops": ("step", "direction", "start_ns", "dur_ns"),
}
"""The columns that `phase_utilization` reads of each table, and `step`."""

_SPAN: Final = ("start_ns", "dur_ns")
_SUMS: Final = ("known", "flops", "once", "five", "time", "known_time")
_OF_WORK: Final = tuple(name for name in NEEDED["kernels"] if name != "start_ns")
_WHOLE: Final = -1
_FIRST, _LAST = -(1 << 62), 1 << 62


def phase_utilization(kernels: pa.Table, ops: pa.Table) -> list[dict[str, Any]]:
    """Return how busy each phase of a step was.

    Args:
        kernels: of one step of one rank: `direction`, `start_ns`, `dur_ns`.
        ops: the same of ops.

    Returns:
        For each of `PHASES` that has ops: `phase`, `span_ns` (from its first op or kernel to its
        last on the longer of host and device), `host_ns` (inside of ops), and where kernels ran
        `device_ns` (at least one did), each moment once; `utilization_pct`, the part of the span in
        which the device worked, or without any device the host.
    """
    found = []
    for phase in PHASES:
        host, device = (_times_of(table, phase) for table in (ops, kernels))
        if not len(host[0]):
            continue
        row: dict[str, Any] = {"phase": phase, "host_ns": union_length(*host)}
        spans = [int(ends.max() - starts.min()) for starts, ends in (host, device) if len(starts)]
        row["span_ns"] = max(spans)
        if kernels.num_rows:
            row["device_ns"] = union_length(*device)
        busy = row.get("device_ns", row["host_ns"])
        row["utilization_pct"] = 100 * busy / max(1, row["span_ns"])
        found.append(row)
    return found


def _times_of(table: pa.Table, phase: str) -> tuple[Int, Int]:
    """Return start and end of the rows of a phase."""
    code, words = code_column(table, "direction")
    own = np.asarray(code == (words.index(phase) if phase in words else -2))
    start = int_column(table, "start_ns", 0)[own]
    return start, start + int_column(table, "dur_ns", 0)[own]


def utilization(
    tables: Mapping[str, ChunkedTable],
    windows: StepWindows,
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
    rank: int = 0,
) -> pa.Table:
    """Return MFU and HFU of each step of a rank.

    Args:
        tables: columns `NEEDED` of the rank's canonical tables.
        windows: of its steps.
        devices: its rows of the canonical table `devices`.
        override: a device's name, or a file that describes one, to use instead of the recorded.
        rank: its number.

    Returns:
        Table `utilization`: one row per step; where there are none, one for all of the time, with
        a null step; where nothing worked, none. `busy_ns` is added up over devices; it and
        `gpu_ns` are null without a GPU; FLOPs are null where none is known; with a `counted_pct`
        below 100 the utilizations are too low, and null without a known peak.
    """
    if not any(tables[name].row_count for name in ("kernels", "copies", "ops")):
        return UTILIZATION.empty()
    walls, busy = _times(windows, tables)
    has_kernels = bool(tables["kernels"].row_count)
    steps = np.array(list(walls), np.int64)
    work = _Work(steps, devices, override, only_known=not has_kernels)
    # Without a GPU the work is that of ops.
    for part in _by_op(tables) if has_kernels else chunks_of(tables["ops"], NEEDED["ops"]):
        is_op = "device" not in part.column_names
        nowhere = pa.nulls(part.num_rows, pa.int64())
        work.add(part.append_column("device", nowhere) if is_op else part)
    wall = np.array(list(walls.values()), np.int64)
    columns = {
        "rank": np.full(len(steps), rank),
        "step": int_array(steps, _WHOLE),
        "wall_ns": wall,
        "gpu_ns": _gpu_time([tables["kernels"], tables["copies"]], steps),
        "busy_ns": None if busy is None else np.array([busy[step] for step in walls], np.int64),
    }
    known = {name: values for name, values in columns.items() if values is not None}
    return UTILIZATION.conform(pa.table(known | work.use(wall)))


def _sums(table: pa.Table, steps: Int, values: Int) -> Int:
    """Return the sum of the rows' values in each step; all rows are in the step `_WHOLE`."""
    place = np.zeros(table.num_rows, np.int64)
    if steps.tolist() != [_WHOLE]:
        step = int_column(table, "step", _WHOLE)
        place = np.minimum(np.searchsorted(steps, step), len(steps) - 1)
        values = np.where(steps[place] == step, values, 0)
    return sum_at(place, values, len(steps))


def _gpu_time(tables: Sequence[ChunkedTable], steps: Int) -> Int | None:
    """Return the summed time of what was launched in each step; None without a GPU."""
    if not any(table.row_count for table in tables):
        return None
    parts = chain.from_iterable(chunks_of(table, ("step", "dur_ns")) for table in tables)
    times = np.zeros(len(steps), np.int64)
    for part in parts:
        times += _sums(part, steps, int_column(part, "dur_ns", 0))
    return times


def _by_op(tables: Mapping[str, ChunkedTable]) -> Iterator[pa.Table]:
    """Yield the kernels with the category of the op that accounts for them, where there is one.

    A kernel of `aten::copy_` inside a convolution may have done all its work, or nothing of it.
    """
    words = RunningCodes()
    parts = (words.add(part, "category") for part in chunks_of(tables["ops"], ["category"]))
    # One word of a few for each op: of millions they are megabytes.
    codes = np.concatenate([narrow(part) for part in parts])
    for kernels in chunks_of(tables["kernels"], _OF_WORK):
        owner = int_column(kernels, "cost_op_id", -1)
        # Ids of ops are dense within a rank, so they are positions.
        of_op = lookup(codes, np.where(owner < len(codes), owner, -1), -1), words.texts
        category = text_array(merge_texts(of_op, code_column(kernels, "category")))
        at = kernels.column_names.index("category")
        yield kernels.set_column(at, "category", category)


def _times(
    windows: StepWindows, own: Mapping[str, ChunkedTable]
) -> tuple[dict[int, int], dict[int, int] | None]:
    """Return the time of each step and, with a GPU, how much of it devices were busy."""
    activities = [own["kernels"], own["copies"]]
    has_gpu = any(table.row_count for table in activities)
    if len(windows.step):
        return windows.time_by_step(), windows.busy_by_step(activities) if has_gpu else None
    trace = whole(own["trace"], NEEDED["trace"])
    # From the first kernel or copy to the last; without any, from the first op on.
    parts = chain.from_iterable(chunks_of(own[name], _SPAN) for name in ("kernels", "copies"))
    length = recorded_span(parts, trace) or recorded_span(chunks_of(own["ops"], _SPAN), trace)
    every = np.array([_WHOLE])
    always = StepWindows(every, np.array([_FIRST]), np.array([_LAST]))
    return {_WHOLE: length}, always.busy_by_step(activities) if has_gpu else None


class _Work:
    """Sums of the matrix work of a rank, which comes in parts."""

    def __init__(
        self,
        steps: Int,
        devices: Sequence[Mapping[str, Any]],
        override: Path | str | None,
        *,
        only_known: bool,
    ) -> None:
        self._steps, self._devices, self._override = steps, devices, override
        self._sums = {name: np.zeros(len(steps), np.int64) for name in _SUMS}
        self._dtypes = RunningCodes()
        self._flops_of_dtype: dict[int, float] = {}
        self._used: set[tuple[int, int]] = set()
        self._has_flops, self._only_known = False, only_known

    def add(self, work: pa.Table) -> None:
        """Take up work."""
        # The verdicts take long to import, and most who import this only add up what is stored.
        from pyprof2.analysis.hardware.verdict import devices_of

        is_matrix = has_text(work, "category", MATRIX_WORK)
        if self._only_known:
            is_matrix &= pc.is_valid(work["flops"]).to_numpy()
        # The dtype that comes first in all the work breaks ties.
        dtype = self._dtypes.add(work, "compute_dtype")[is_matrix]
        matrix = work.filter(pa.array(is_matrix))
        place, _ = devices_of(matrix, self._devices, self._override)
        device = int_column(matrix, "device", -1)
        self._used |= set(zip(place.tolist(), device.tolist(), strict=True))
        flops = int_column(matrix, "flops", 0)
        self._has_flops |= bool(flops.any())
        for name, values in _flops(matrix, flops).items():
            self._sums[name] += _sums(matrix, self._steps, values)
        # As floats one by one: there may be more than 64 bits hold.
        sums = np.array(
            [self._flops_of_dtype.get(at, 0.0) for at in range(len(self._dtypes.texts))]
        )
        np.add.at(sums, dtype[dtype >= 0], flops[dtype >= 0])
        self._flops_of_dtype = dict(enumerate(sums.tolist()))

    def use(self, wall: Int) -> dict[str, pa.Array]:
        """Return the columns of FLOPs, and of what the peak allows in so many ns of each step."""
        known, flops, once, five, time, known_time = (self._sums[name] for name in _SUMS)
        peak, words = self.peak()
        could = np.full(len(wall), np.nan if peak is None else peak) * wall / 1e9
        could[~(could > 0)] = np.nan
        model, hardware = (
            np.where(known > 0, done, np.nan) for done in (once + five * 4 // 5, flops)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            counted = np.where(time > 0, 100 * known_time / time, np.nan)
        return {
            "model_flops": pa.array(once + five * 4 // 5, mask=known <= 0),
            "hardware_flops": pa.array(flops, mask=known <= 0),
            "counted_pct": _or_null(counted),
            "peak_flop_per_s": pa.array([peak] * len(wall), pa.float64()),
            "peak": pa.array([words] * len(wall), pa.string()),
            "mfu_pct": _or_null(100 * model / could),
            "hfu_pct": _or_null(100 * hardware / could),
        }

    def peak(self) -> tuple[float | None, str | None]:
        """Return the peak of all devices that worked, for the dtype of most matrix FLOPs."""
        from pyprof2.analysis.hardware.verdict import devices_of

        nothing = pa.table({"device": pa.array([], pa.int64())})
        _, found = devices_of(nothing, self._devices, self._override)
        by_dtype = [self._flops_of_dtype[at] for at in sorted(self._flops_of_dtype)]
        is_known = bool(by_dtype) and self._has_flops
        dtype = self._dtypes.texts[int(np.argmax(by_dtype))] if is_known else None
        total, words = 0.0, []
        for at, _ in sorted(self._used):
            device = found[at][1]
            highest = highest_peak(device, dtype)
            if device is None or highest is None:
                return None, None
            total += highest[0]
            words.append(f"{device.name}, {highest[1]}")
        count = f"{len(words)} × " if len(words) > 1 else ""
        return (total, f"{count}{'; '.join(dict.fromkeys(words))}") if words else (None, None)


def _or_null(values: NDArray[np.float64]) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _flops(matrix: pa.Table, flops: Int) -> dict[str, Int]:
    """Return what is added up of matrix work, by step."""
    known = matrix["flops"].is_valid().to_numpy()
    time = int_column(matrix, "dur_ns", 0)
    again = matrix["recompute"].fill_null(False).to_numpy()  # noqa: FBT003
    of_model = has_text(matrix, "direction", ("forward", "backward")) & ~again
    # One of the five products of a fused attention's backward only repeats the forward.
    fused = has_text(matrix, "category", ("attention",))
    fused &= has_text(matrix, "direction", ("backward",))
    return {
        "known": known.astype(np.int64),
        "flops": flops,
        "once": np.where(of_model & ~fused, flops, 0),
        "five": np.where(of_model & fused, flops, 0),
        "time": time,
        "known_time": np.where(known, time, 0),
    }
