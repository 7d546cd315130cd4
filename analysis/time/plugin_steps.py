"""The steps of a rank by what ran, as the TensorBoard plugin of PyTorch's profiler counts.

Time belongs to the first of the roles of which anything runs, whatever else does: a kernel, a
memcpy, a memset, a collective on the host, a call of the runtime, data loading, an op or range on
the host, else nothing. A step ends with the work that it launched, and the next one begins then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import time_within
from pyprof2.columns import row_of
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyprof2.analysis.intervals import Bool, Int

ROLES: Final = (
    "kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec",
)  # fmt: skip
"""Which role has the time, the first one first."""

NEEDED: Final = {
    "kernels": ("start_ns", "dur_ns", "launch_id", "op"),
    "copies": ("start_ns", "dur_ns", "launch_id", "category"),
    "launches": ("launch_id", "start_ns", "dur_ns"),
    "ops": ("start_ns", "dur_ns", "op"),
    "ranges": ("start_ns", "dur_ns", "name", "kind"),
}
"""The columns of each table that this reads."""

COLUMNS: Final = (
    whole("rank", "Process in the job.", nullable=False),
    whole("step", "Number of the step; null: there are none, it is the whole."),
    whole("kernel_ns", "A kernel runs that is no collective's.", "ns"),
    whole("memcpy_ns", "Else a memcpy.", "ns"),
    whole("memset_ns", "Else a memset.", "ns"),
    whole(
        "communication_ns",
        "Else a collective on the host, or a kernel of which it is the innermost op.",
        "ns",
    ),
    whole("runtime_ns", "Else a call of the GPU runtime or driver.", "ns"),
    whole("dataloader_ns", "Else data loading.", "ns"),
    whole("cpu_exec_ns", "Else an op or range on the host.", "ns"),
    whole("other_ns", "Else.", "ns"),
    whole("total_ns", "Length of the step.", "ns"),
)

_COLLECTIVE: Final = re.compile(
    r"(?:nccl|gloo):(?:broadcast|reduce|all_reduce|all_gather|reduce_scatter)"
)
_LOADING: Final = re.compile(r"enumerate\(Data(?:Loader\)#.*\.__next__|Pipe\)#.*)", re.DOTALL)
_STEP: Final = re.compile(r"ProfilerStep#(\d+)")
_ON_THE_HOST: Final = ("annotation", "step")
_FEWER: Final = 0.8
"""A last step with a smaller share of the work of the one before was not recorded to its end."""


class _Spans(NamedTuple):
    start: Int
    end: Int

    @classmethod
    def of(cls, table: pa.Table, chosen: Bool | None = None) -> _Spans:
        """Return the spans of the rows of a table, or of those chosen."""
        start, length = table["start_ns"].to_numpy(), table["dur_ns"].to_numpy()
        keep = np.ones(len(start), bool) if chosen is None else chosen
        return cls(start[keep], start[keep] + length[keep])

    @classmethod
    def both(cls, *parts: _Spans) -> _Spans:
        """Return the spans of all parts."""
        return cls(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def plugin_steps(tables: Mapping[str, pa.Table], rank: int) -> pa.Table:
    """Return a row for each step, with `COLUMNS`; none where nothing ran on the host.

    Args:
        tables: those of `NEEDED`, with its columns.
        rank: its number.
    """
    ranges, ops = tables["ranges"], tables["ops"]
    on_host = has_text(ranges, "kind", _ON_THE_HOST)
    numbers, steps = _steps(ranges)
    if not len(numbers):
        every = _Spans.both(_Spans.of(ops))
        if not len(every.start):
            return pa.table({c.name: pa.array([], c.type) for c in COLUMNS})
        steps = _Spans(every.start.min(keepdims=True), every.end.max(keepdims=True))
    kept, steps = _with_devices(steps, tables)
    of_step = _named(ranges, "name", _STEP)
    collectives = (
        _named(ops, "op", _COLLECTIVE), on_host & _named(ranges, "name", _COLLECTIVE),
        _named(tables["kernels"], "op", _COLLECTIVE),
    )  # fmt: skip
    loading = on_host & _named(ranges, "name", _LOADING)
    is_memset = has_text(tables["copies"], "category", ("memset",))
    roles = (
        _Spans.of(tables["kernels"], ~collectives[2]),
        _Spans.of(tables["copies"], ~is_memset),
        _Spans.of(tables["copies"], is_memset),
        _Spans.both(
            *(
                _Spans.of(table, chosen)
                for table, chosen in zip((ops, ranges, tables["kernels"]), collectives, strict=True)
            )
        ),
        _Spans.of(tables["launches"]),
        _Spans.of(ranges, loading),
        _Spans.both(
            _Spans.of(ops, ~collectives[0]),
            _Spans.of(ranges, on_host & ~of_step & ~collectives[1] & ~loading),
        ),
    )
    found = {"rank": np.full(kept, rank), "step": pa.array(numbers[:kept], pa.int64())}
    found = found if len(numbers) else found | {"step": pa.nulls(kept, pa.int64())}
    covered, before = _Spans(*np.zeros((2, 0), np.int64)), np.zeros(kept, np.int64)
    for name, spans in zip(ROLES, roles, strict=True):
        covered = _Spans.both(covered, spans)
        now = time_within(*covered, *steps)
        found[f"{name}_ns"], before = now - before, now
    length = steps.end - steps.start
    return pa.table(found | {"other_ns": length - before, "total_ns": length})


def _steps(ranges: pa.Table) -> tuple[Int, _Spans]:
    """Return the numbers of the steps on the host, in order of time, and their spans."""
    codes, texts = code_column(ranges, "name")
    number = [int(m[1]) if (m := _STEP.fullmatch(text)) else -1 for text in texts]
    of_rows = np.array([*number, -1], np.int64)[codes]
    rows = np.flatnonzero((of_rows >= 0) & has_text(ranges, "kind", ("step",)))
    spans = _Spans.of(ranges)
    rows = rows[np.argsort(spans.start[rows], kind="stable")]
    return of_rows[rows], _Spans(spans.start[rows], spans.end[rows])


def _with_devices(steps: _Spans, tables: Mapping[str, pa.Table]) -> tuple[int, _Spans]:
    """Return how many steps were recorded to their end, and these with the work they launched."""
    launches = tables["launches"]
    calls = _Spans.of(launches)
    step = np.searchsorted(steps.start, calls.start, "right") - 1
    inside = (step >= 0) & (calls.end <= steps.end[step])
    parts = [tables[name] for name in ("kernels", "copies")]
    work = _Spans.both(*map(_Spans.of, parts))
    launch = np.concatenate([int_column(part, "launch_id", -1) for part in parts])
    call = row_of(launches["launch_id"].to_numpy(), launch)
    of_work = np.where((call >= 0) & inside[call], step[call], -1) if len(calls.start) else call
    matched = of_work >= 0
    if not matched.any():
        return len(steps.start), steps
    count = len(steps.start)
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, of_work[matched], work.end[matched])
    number = np.bincount(of_work[matched], minlength=count)
    until = int(steps.start[0])
    if number[0]:
        early = ~matched & (work.end < work.start[of_work == 0].min())
        until = int(work.end[early].max(initial=until))
    starts, ends = [], []
    for start, end, device in zip(*(each.tolist() for each in (*steps, last)), strict=True):
        starts.append(max(until, start))
        until = max(end, device, starts[-1])
        ends.append(until)
    # The last one with work may not have been recorded to its end.
    at = int(np.flatnonzero(number)[-1])
    kept = at if at and number[at] < _FEWER * number[at - 1] else at + 1
    return kept, _Spans(np.array(starts[:kept]), np.array(ends[:kept]))


def _named(table: pa.Table, column: str, pattern: re.Pattern[str]) -> Bool:
    """Return the rows whose text is of a pattern; each distinct text is looked at once."""
    codes, texts = code_column(table, column)
    found: Bool = np.array([*(pattern.fullmatch(t) is not None for t in texts), False])[codes]
    return found
