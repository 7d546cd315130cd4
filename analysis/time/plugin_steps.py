"""The steps of a rank by what ran, as the TensorBoard plugin of PyTorch's profiler counts.

Time belongs to the first of the roles of which anything runs, whatever else does: a kernel, a
memcpy, a memset, a collective on the host, a call of the runtime, data loading, an op or range on
the host, else nothing. A step ends with the work that it launched, and the next one begins then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import merged, time_within
from pyprof2.columns import lookup, short
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.tables import whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyprof2.analysis.intervals import Bool, Int

ROLES: Final = (
    "kernel", "memcpy", "memset", "communication", "runtime", "dataloader", "cpu_exec",
)  # fmt: skip
"""Which role has the time, the first one first."""

NEEDED: Final = {
    "kernels": ("start_ns", "dur_ns", "launch_id", "op"),
    "copies": ("start_ns", "dur_ns", "launch_id", "category"),
    "launches": ("start_ns", "dur_ns"),
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
        nothing = cls(*np.zeros((2, 0), np.int64))
        return cls(*(np.concatenate(each) for each in zip(nothing, *parts, strict=True)))

    def union(self) -> _Spans:
        """Return when any of them was; they are in order of time then."""
        return _Spans(*merged(*self))


class TablesInParts(Protocol):
    """The canonical tables of one rank."""

    def in_parts(self, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield columns of a table part by part."""


class _Roles(dict[str, list[_Spans]]):
    """When any of a role ran: of each part of a table no more is kept than the union."""

    def add(self, role: str, table: pa.Table, chosen: Bool | None = None) -> None:
        """Add the rows of a part, or those chosen."""
        self.setdefault(role, []).append(_Spans.of(table, chosen).union())


def plugin_steps(tables: TablesInParts, rank: int) -> pa.Table:
    """Return a row for each step, with `COLUMNS`; none where nothing ran on the host.

    Args:
        tables: those of `NEEDED`, with its columns.
        rank: its number.
    """
    roles = _Roles()
    for part in tables.in_parts("ops", NEEDED["ops"]):
        is_collective = _named(part, "op", _COLLECTIVE)
        roles.add("communication", part, is_collective)
        roles.add("cpu_exec", part, ~is_collective)
    every = _Spans.both(*roles["communication"], *roles["cpu_exec"])
    numbers, steps = _steps(tables, roles)
    if not len(numbers):
        if not len(every.start):
            return pa.table({c.name: pa.array([], c.type) for c in COLUMNS})
        steps = _Spans(every.start.min(keepdims=True), every.end.max(keepdims=True))
    kept, steps = _with_devices(steps, tables, roles)
    found = {"rank": np.full(kept, rank), "step": pa.array(numbers[:kept], pa.int64())}
    found = found if len(numbers) else found | {"step": pa.nulls(kept, pa.int64())}
    covered, before = _Spans.both(), np.zeros(kept, np.int64)
    for name in ROLES:
        covered = _Spans.both(covered, *roles.pop(name, ())).union()
        now = time_within(*covered, *steps)
        found[f"{name}_ns"], before = now - before, now
    length = steps.end - steps.start
    return pa.table(found | {"other_ns": length - before, "total_ns": length})


def _steps(tables: TablesInParts, roles: _Roles) -> tuple[Int, _Spans]:
    """Return the numbers of the steps on the host, in order of time, and their spans.

    The roles get what else ranges say.
    """
    numbers, found = [np.zeros(0, np.int64)], [_Spans.both()]
    for part in tables.in_parts("ranges", NEEDED["ranges"]):
        codes, texts = code_column(part, "name")
        number = [int(m[1]) if (m := _STEP.fullmatch(text)) else -1 for text in texts]
        of_rows = np.array([*number, -1], np.int64)[codes]
        is_step = (of_rows >= 0) & has_text(part, "kind", ("step",))
        numbers.append(of_rows[is_step])
        found.append(_Spans.of(part, is_step))
        on_host = has_text(part, "kind", _ON_THE_HOST)
        is_collective = on_host & _named(part, "name", _COLLECTIVE)
        loads = on_host & _named(part, "name", _LOADING)
        roles.add("communication", part, is_collective)
        roles.add("dataloader", part, loads)
        roles.add("cpu_exec", part, on_host & (of_rows < 0) & ~is_collective & ~loads)
    spans = _Spans.both(*found)
    order = np.argsort(spans.start, kind="stable")
    return np.concatenate(numbers)[order], _Spans(spans.start[order], spans.end[order])


def _with_devices(steps: _Spans, tables: TablesInParts, roles: _Roles) -> tuple[int, _Spans]:
    """Return how many steps were recorded to their end, and these with the work they launched.

    The roles get what ran on the devices, and the calls that launched it.
    """
    count = len(steps.start)
    of_calls: list[Int] = [np.zeros(0, np.int32)]
    for part in tables.in_parts("launches", NEEDED["launches"]):
        roles.add("runtime", part)
        calls = _Spans.of(part)
        step = np.searchsorted(steps.start, calls.start, "right") - 1
        of_calls.append(short(np.where(calls.end <= steps.end[step], step, -1)))
    of_call = np.concatenate(of_calls)
    number, last = np.zeros(count, np.int64), np.full(count, np.iinfo(np.int64).min)
    first, others = np.iinfo(np.int64).max, [np.zeros(0, np.int64)]
    for part in _work(tables, roles):
        work, of_work = _Spans.of(part), lookup(of_call, int_column(part, "launch_id", -1), -1)
        matched = of_work >= 0
        np.maximum.at(last, of_work[matched], work.end[matched])
        number += np.bincount(of_work[matched], minlength=count)
        first = min(first, int(work.start[of_work == 0].min(initial=first)))
        others.append(work.end[~matched])
    if not number.any():
        return count, steps
    until = int(steps.start[0])
    if number[0]:
        other = np.concatenate(others)
        until = int(other[other < first].max(initial=until))
    starts, ends = [], []
    for start, end, device in zip(*(each.tolist() for each in (*steps, last)), strict=True):
        starts.append(max(until, start))
        until = max(end, device, starts[-1])
        ends.append(until)
    # The last one with work may not have been recorded to its end.
    at = int(np.flatnonzero(number)[-1])
    kept = at if at and number[at] < _FEWER * number[at - 1] else at + 1
    return kept, _Spans(np.array(starts[:kept]), np.array(ends[:kept]))


def _work(tables: TablesInParts, roles: _Roles) -> Iterator[pa.Table]:
    """Yield kernels and copies; the roles get when they ran."""
    for part in tables.in_parts("kernels", NEEDED["kernels"]):
        is_collective = _named(part, "op", _COLLECTIVE)
        roles.add("communication", part, is_collective)
        roles.add("kernel", part, ~is_collective)
        yield part
    for part in tables.in_parts("copies", NEEDED["copies"]):
        is_memset = has_text(part, "category", ("memset",))
        roles.add("memset", part, is_memset)
        roles.add("memcpy", part, ~is_memset)
        yield part


def _named(table: pa.Table, column: str, pattern: re.Pattern[str]) -> Bool:
    """Return the rows whose text is of a pattern; each distinct text is looked at once."""
    codes, texts = code_column(table, column)
    found: Bool = np.array([*(pattern.fullmatch(t) is not None for t in texts), False])[codes]
    return found
