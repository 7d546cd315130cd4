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

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyprof2.analysis.categories import MATRIX_WORK
from pyprof2.analysis.hardware.roofline import highest_peak
from pyprof2.analysis.time.spans import recorded_span
from pyprof2.analysis.time.step_windows import StepWindows
from pyprof2.columns import lookup, merge_texts, text_array
from pyprof2.recording import code_column, int_column
from pyprof2.result_tables import UTILIZATION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.intervals import Bool, Int

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

_WHOLE: Final = -1
_FIRST, _LAST = -(1 << 62), 1 << 62


def utilization(
    tables: Mapping[str, pa.Table],
    windows: StepWindows,
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None = None,
    rank: int = 0,
) -> pd.DataFrame:
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
    import pandas as pd

    frame = pd.DataFrame(columns=list(COLUMNS))
    if any(tables[name].num_rows for name in ("kernels", "copies", "ops")):
        frame = _of_steps(tables, _times(windows, tables), devices, override)
        frame.insert(0, "rank", rank)
    return frame.astype(COLUMNS)


def _of_steps(
    own: Mapping[str, pa.Table],
    times: tuple[Mapping[int, int], Mapping[int, int] | None],
    devices: Sequence[Mapping[str, Any]],
    override: Path | str | None,
) -> pd.DataFrame:
    """Return the rows of one rank; `times` are those of each step and of work in it, in order."""
    import pandas as pd

    walls, busy = times
    steps = np.array(list(walls), np.int64)
    has_kernels = own["kernels"].num_rows
    work = _by_op(own["kernels"], own["ops"]) if has_kernels else _accounting(own["ops"])
    frame = pd.DataFrame({"step": pd.array(steps, "Int64"), "wall_ns": list(walls.values())})
    frame["busy_ns"] = None if busy is None else [busy[step] for step in walls]
    frame["step"] = frame["step"].where(frame["step"] != _WHOLE)
    frame["gpu_ns"] = _gpu_time([own["kernels"], own["copies"]], steps)
    for name, column in _flops(work, steps).items():
        frame[name] = column
    frame["peak_flop_per_s"], frame["peak"] = _peak(work, devices, override)
    could = frame["peak_flop_per_s"].astype("float64") * frame["wall_ns"] / 1e9
    could = could.where(could > 0)
    frame["mfu_pct"] = 100 * frame["model_flops"].astype("float64") / could
    frame["hfu_pct"] = 100 * frame["hardware_flops"].astype("float64") / could
    return frame


def total(rows: pd.DataFrame) -> dict[str, Any]:
    """Return `mfu_pct` and `hfu_pct` of all rows together, None where not all know theirs."""
    known = bool(len(rows)) and bool(rows["mfu_pct"].notna().all())
    could = float((rows["wall_ns"].astype("float64") / 1e9 * rows["peak_flop_per_s"]).sum())
    return {
        share: 100 * float(rows[count].sum()) / could if known and could else None
        for share, count in (("mfu_pct", "model_flops"), ("hfu_pct", "hardware_flops"))
    }


def _sums(table: pa.Table, steps: Int, values: Int) -> Int:
    """Return the sum of the rows' values in each step; all rows are in the step `_WHOLE`."""
    place = np.zeros(table.num_rows, np.int64)
    if steps.tolist() != [_WHOLE]:
        step = int_column(table, "step", _WHOLE)
        place = np.minimum(np.searchsorted(steps, step), len(steps) - 1)
        values = np.where(steps[place] == step, values, 0)
    sums = np.zeros(len(steps), np.int64)
    np.add.at(sums, place, values)
    return sums


def _gpu_time(tables: Sequence[pa.Table], steps: Int) -> Int | None:
    """Return the summed time of what was launched in each step; None without a GPU."""
    if not any(table.num_rows for table in tables):
        return None
    times: Int = np.sum([_sums(t, steps, int_column(t, "dur_ns", 0)) for t in tables], axis=0)
    return times


def _by_op(kernels: pa.Table, ops: pa.Table) -> pa.Table:
    """Return the kernels with the category of the op that accounts for them, where there is one.

    A kernel of `aten::copy_` inside a convolution may have done all its work, or nothing of it.
    """
    codes, words = code_column(ops, "category")
    owner = int_column(kernels, "cost_op_id", -1)
    # Ids of ops are dense within a rank, so they are positions.
    of_op = lookup(codes, np.where(owner < len(codes), owner, -1), -1), words
    category = text_array(merge_texts(of_op, code_column(kernels, "category")))
    at = kernels.column_names.index("category")
    return kernels.set_column(at, "category", category)


def _accounting(ops: pa.Table) -> pa.Table:
    """Return the ops that account for FLOPs, in the shape of kernels: without a GPU they work."""
    ops = ops.filter(pc.is_valid(ops["flops"]))
    return ops.append_column("device", pa.nulls(ops.num_rows, pa.int64()))


def _times(
    windows: StepWindows, own: Mapping[str, pa.Table]
) -> tuple[dict[int, int], dict[int, int] | None]:
    """Return the time of each step and, with a GPU, how much of it devices were busy."""
    activities = [own["kernels"], own["copies"]]
    has_gpu = any(table.num_rows for table in activities)
    if len(windows.step):
        return windows.time_by_step(), windows.busy_by_step(activities) if has_gpu else None
    trace = own["trace"]
    whole = recorded_span(activities, trace) or recorded_span([own["ops"]], trace)
    every = np.array([_WHOLE])
    always = StepWindows(every, np.array([_FIRST]), np.array([_LAST]))
    return {_WHOLE: whole}, always.busy_by_step(activities) if has_gpu else None


def _is(table: pa.Table, name: str, words: Sequence[str]) -> Bool:
    codes, texts = code_column(table, name)
    found: Bool = np.array([*(text in words for text in texts), False])[codes]
    return found


def _flops(work: pa.Table, steps: Int) -> dict[str, pd.Series]:
    """Return the FLOPs of the model and of the hardware, and how much of the time they cover."""
    import pandas as pd

    matrix = work.filter(pa.array(_is(work, "category", MATRIX_WORK)))
    known = matrix["flops"].is_valid().to_numpy()
    flops, time = (int_column(matrix, name, 0) for name in ("flops", "dur_ns"))
    again = matrix["recompute"].fill_null(False).to_numpy()  # noqa: FBT003
    of_model = _is(matrix, "direction", ("forward", "backward")) & ~again
    # Of the five products of a fused attention's backward one only repeats the forward.
    fused = _is(matrix, "category", ("attention",)) & _is(matrix, "direction", ("backward",))

    def sums(values: Int) -> pd.Series:
        return pd.Series(_sums(matrix, steps, values))

    any_known = sums(known.astype(np.int64)) > 0
    whole = sums(time)
    once = sums(np.where(of_model & ~fused, flops, 0))
    five = sums(np.where(of_model & fused, flops, 0))
    return {
        "model_flops": (once + five * 4 // 5).where(any_known).astype("Int64"),
        "hardware_flops": sums(flops).where(any_known).astype("Int64"),
        "counted_pct": 100 * sums(np.where(known, time, 0)) / whole.where(whole > 0),
    }


def _peak(
    work: pa.Table, devices: Sequence[Mapping[str, Any]], override: Path | str | None
) -> tuple[float | None, str | None]:
    """Return the peak of all devices that worked, for the dtype of most matrix FLOPs."""
    # What judges takes long to import, and most who import this only add up what is stored.
    from pyprof2.analysis.hardware.verdict import devices_of

    place, found = devices_of(work, devices, override)
    matrix = _is(work, "category", MATRIX_WORK)
    dtype = _dominant(work.filter(pa.array(matrix)))
    used = np.unique(np.stack((place, int_column(work, "device", -1)))[:, matrix], axis=1)
    total, words = 0.0, []
    for at in used[0].tolist():
        device = found[at][1]
        highest = highest_peak(device, dtype)
        if device is None or highest is None:
            return None, None
        total += highest[0]
        words.append(f"{device.name}, {highest[1]}")
    count = f"{len(words)} × " if len(words) > 1 else ""
    return (total, f"{count}{'; '.join(dict.fromkeys(words))}") if words else (None, None)


def _dominant(matrix: pa.Table) -> str | None:
    codes, texts = code_column(matrix, "compute_dtype")
    flops: Int = int_column(matrix, "flops", 0)
    if not texts or not flops.any():
        return None
    return texts[int(np.bincount(codes[codes >= 0], flops[codes >= 0], len(texts)).argmax())]
