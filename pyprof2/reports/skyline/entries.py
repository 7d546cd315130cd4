"""The entries of Skyline's reports: calls with their time, weights and activations with bytes.

Each entry has the lines that led to it, as Skyline records them: only the user's own, from the root
of the project, the innermost first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pyprof2.analysis.memory.live import live_at
from pyprof2.analysis.memory.profile import moment_of
from pyprof2.analysis.summaries.line_profile import LineQuery
from pyprof2.analysis.summaries.utilization import PHASE_INPUT, phase_utilization
from pyprof2.analysis.time import line_ops
from pyprof2.analysis.time.line_tree import NO_OP, StackLines
from pyprof2.analysis.time.lines import INPUT, invocations
from pyprof2.analysis.time.step_times import TimedStep, median_step, timed_steps
from pyprof2.api import run_memory, run_time
from pyprof2.columns import as_text, lookup
from pyprof2.errors import refuse
from pyprof2.frames import shown_line
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pandas as pd

    from pyprof2.analysis.memory.curves import MemoryCurve
    from pyprof2.analysis.summaries.batch.model import Model
    from pyprof2.api.run import Run
    from pyprof2.store.rank_tables import RankTables

UNSPLIT: Final = "(parameters and buffers)"
"""The name of weights whose layer or name was not recorded."""
_WEIGHTS: Final = ("parameter", "buffer", "parameter_or_buffer")


@dataclass(frozen=True)
class SkylineQuery:
    """Which report to write, of which step and device.

    Attributes:
        report: `time`, `memory`, `both` or `deepview`.
        path: the file to write.
        step, rank, device, ledger: see `Entries`.
        batch: samples in a step; None: those that the recording says.
        model: of this batch size and others; None: nothing is recorded of others.
    """

    report: str
    path: Path
    step: int | None = None
    rank: int | None = None
    device: str | None = None
    ledger: str | None = None
    batch: int | None = None
    model: Model | None = None


class Frame(NamedTuple):
    """A line of the user's: the file, from the root of the project, and the number from 1 on."""

    path: str
    line: int


class TimeEntry(NamedTuple):
    """A call.

    Attributes:
        op: its name.
        frames: the lines that led to it.
        forward_ns: its time in forward.
        backward_ns: that in backward; None: nothing ran there for it.
        is_forward: whether it was called in forward.
    """

    op: str
    frames: tuple[Frame, ...]
    forward_ns: int
    backward_ns: int | None
    is_forward: bool


class WeightEntry(NamedTuple):
    """Weights and their gradients.

    Attributes:
        name: of a parameter or buffer, or of the layer that holds several.
        size_bytes, grad_bytes: of it and its gradient; None: no gradient is known.
        frames: the lines that made it.
    """

    name: str
    size_bytes: int
    grad_bytes: int | None
    frames: tuple[Frame, ...] = ()


class ActivationEntry(NamedTuple):
    """Bytes that a call keeps from forward to backward."""

    op: str
    frames: tuple[Frame, ...]
    size_bytes: int


class TimeReport(NamedTuple):
    """The calls of a step.

    Attributes:
        entries: in order of time.
        rank, ledger: whose time, and of which ledger of `lines`.
        step: the number; None: a recording without steps, all of it.
        step_ns: time of the step in the ledger.
        wall_ns: how long the step took, as `pyprof2 batch` has it; None: there is no step.
    """

    entries: list[TimeEntry]
    rank: int
    ledger: str
    step: int | None
    step_ns: int
    wall_ns: int | None


class MemoryReport(NamedTuple):
    """The memory of a device.

    Attributes:
        weights, activations: the entries.
        peak_bytes: the most that was allocated; None: not known.
        device: whose, such as `cuda:0`.
        lacks: the facts that are not recorded, a line each.
    """

    weights: list[WeightEntry]
    activations: list[ActivationEntry]
    peak_bytes: int | None
    device: str
    lacks: list[str]


class Entries:
    """The entries of one rank of a run."""

    def __init__(self, run: Run, rank: int | None = None) -> None:
        """Choose the rank.

        Args:
            run: the run.
            rank: whose; None: the lowest with work of a device, else the lowest.

        Raises:
            UsageError: there is no such rank.
        """
        self._run = run
        tables = run.tables.of(rank)
        self._rank = next((each for each in tables if _has_kernels(each)), tables[0])

    def time(self, ledger: str | None = None, step: int | None = None) -> TimeReport:
        """Return the calls of a step.

        Args:
            ledger: `device` or `host`; None: `device` where one worked.
            step: the number; None: the step of median time.

        Raises:
            UsageError: there is no such step, or no work in the ledger.
        """
        number = step
        if step is None and self._windows:
            number = median_step(self._windows, self._rank.rank).step
        steps = None if number is None else (number, number)
        query = LineQuery(ledger, steps=steps, rank=self._rank.rank)
        profile = run_time.line_profile(self._run.tables, query)
        if not profile.steps:
            what = "no op and no kernel is recorded: there is no time report"
            refuse(f"{self._run.tables.label}: {what}")
        own = (each.dur_ns for each in self._windows if each.step == number)
        calls = invocations(self._rank.several(INPUT), profile.ledger, number).to_pylist()
        entries = [
            TimeEntry(
                str(call["op"]),
                self._stacks.frames(call["stack_id"]),
                call["forward_ns"],
                call["backward_ns"],
                call["is_forward"],
            )
            for call in calls
        ]
        return TimeReport(
            entries,
            self._rank.rank,
            profile.ledger,
            number,
            profile.total_ns,
            next(own, None),
        )

    @cached_property
    def _windows(self) -> list[TimedStep]:
        return timed_steps(self._rank.read("steps", TimedStep._fields))

    def phases(self, step: int | None) -> tuple[list[dict[str, Any]], float | None]:
        """Return how busy the phases of a step were, and the share of Tensor Cores in it.

        Args:
            step: the number; None: all of the recording.

        Returns:
            See `phase_utilization`; and in % of the time of kernels, None: there are none.
        """
        tables = {}
        for name, columns in PHASE_INPUT.items():
            table = self._rank.read(name, columns)
            if step is not None:
                table = table.filter(pa.array(int_column(table, "step", step - 1) == step))
            tables[name] = table
        kernels = tables["kernels"]
        time = int_column(kernels, "dur_ns", 0)
        code, words = code_column(kernels, "tensor_core")
        own = time[np.asarray(code == (words.index("yes") if "yes" in words else -2))]
        share = 100 * float(own.sum()) / float(time.sum()) if time.sum() else None
        return phase_utilization(kernels, tables["ops"]), share

    def memory(self, device: str | None = None) -> MemoryReport | None:
        """Return the memory of a device; None: nothing is recorded of any.

        Args:
            device: such as `cuda:0`; None: the one of which most is allocated, GPUs first.

        Raises:
            UsageError: there is no such device.
        """
        profile = run_memory.memory_by_device(self._run.tables).only(device, self._rank.rank)
        if not profile.curves:
            return None
        curves = profile.curves
        best = max(
            range(len(curves)),
            key=lambda at: (curves[at].device_type != "cpu", curves[at].over_base(curves[at].peak)),
        )
        curve, entries = curves[best], profile.entries[best]
        peak = None if curve.base is None else curve.base + curve.over_base(curve.peak)
        # Weights that the program named, with the lines that made them; else those at the peak.
        weights = [
            WeightEntry(
                row["name"],
                row["bytes"],
                row["gradient_bytes"],
                self._stacks.of_lines([row["source"], *(row["callers"] or "").split("\n")]),
            )
            for row in profile.named(best)[0].to_pylist()
        ] or _weights(curve, entries)
        activations = self._activations(curve, entries)
        name = curve.device_type + ("" if curve.device is None else f":{curve.device}")
        lacks = [*profile.notes_of(best), *_lacks(weights, activations, peak, entries)]
        return MemoryReport(weights, activations, peak, name, lacks)

    @cached_property
    def _stacks(self) -> _Frames:
        return _Frames(self._rank, self._run)

    def _activations(self, curve: MemoryCurve, entries: pd.DataFrame) -> list[ActivationEntry]:
        """Return the memory kept for a backward, one entry for each call that allocated it."""
        moment = moment_of(curve, "backward")
        if moment is None:
            return []
        live = live_at(entries, moment)
        kept = live[as_text(live["category"]) == "activation"]
        begin = kept["begin"].to_numpy(np.int64)
        ops = line_ops.line_ops(self._rank.read("ops", line_ops.INPUT))
        call = lookup(ops.at, int_column(curve.events, "op_id", -1)[begin], -1)
        stack = int_column(curve.events, "stack_id", -1)[begin]
        code, names = ops.call
        sums: dict[tuple[int, int], int] = {}
        for key, size in zip(
            zip(call.tolist(), stack.tolist(), strict=True), kept["bytes"].tolist(), strict=True
        ):
            sums[key] = sums.get(key, 0) + int(size)
        return [
            ActivationEntry(
                NO_OP if at < 0 else str(names[code[at]]), self._stacks.frames(stack_id), size
            )
            for (at, stack_id), size in sorted(sums.items())
        ]


class _Frames:
    """The lines of a rank's stacks as Skyline has them; each stack is looked up once."""

    def __init__(self, rank: RankTables, run: Run) -> None:
        table = rank.read("stacks", ["stack_id", "caller_id", "line"])
        roots = run.tables.source_roots
        self._stacks = StackLines(table, roots[0] if roots else None)
        self._roots = roots
        self._known: dict[int, tuple[Frame, ...]] = {}

    def frames(self, stack: int | None) -> tuple[Frame, ...]:
        """Return the user's own lines of a stack, the innermost first; none of no stack."""
        if stack is None or stack < 0:
            return ()
        if stack not in self._known:
            self._known[stack] = self.of_lines(reversed(self._stacks.lines(stack)))
        return self._known[stack]

    def of_lines(self, lines: Iterable[str | None]) -> tuple[Frame, ...]:
        """Return those of some lines that are the user's own, in their order."""
        return tuple(self._frame(line) for line in lines if line and self._stacks.is_own(line))

    def _frame(self, line: str) -> Frame:
        path, _, number = shown_line(line, self._roots).rpartition(":")
        return Frame(path, int(number))


def _has_kernels(rank: RankTables) -> bool:
    return any(rank.read(name, ["kernel_id"]).num_rows for name in ("kernels", "copies"))


def _weights(curve: MemoryCurve, entries: pd.DataFrame) -> list[WeightEntry]:
    """Return weights at the peak, and gradients when there are most, by layer where it is known."""
    live = live_at(entries, curve.peak)
    sizes = _by_layer(live[live["category"].isin(_WEIGHTS)])
    if not sizes:
        return []
    gradients = entries[as_text(entries["category"]) == "gradient"]
    fullest = -1
    if not gradients.empty:
        # The first moment at which most bytes of gradients live.
        begin, end, size = (gradients[n].to_numpy(np.int64) for n in ("begin", "end", "bytes"))
        moments, place = np.unique(np.concatenate([begin, end]), return_inverse=True)
        total = np.zeros(len(moments), np.int64)
        np.add.at(total, place, np.concatenate([size, -size]))
        fullest = int(moments[int(np.argmax(np.cumsum(total)))])
    grads = _by_layer(live_at(gradients, fullest))
    if set(sizes) == {UNSPLIT}:
        grads = {UNSPLIT: sum(grads.values())} if grads else {}
    names = sorted({*sizes, *grads})
    return [WeightEntry(name, sizes.get(name, 0), grads.get(name)) for name in names]


def _by_layer(rows: pd.DataFrame) -> dict[str, int]:
    """Return the bytes of each layer; blocks without one, or from before, are `UNSPLIT`."""
    sums: dict[str, int] = {}
    for layer, size in zip(as_text(rows["layer"]), rows["bytes"].tolist(), strict=True):
        name = UNSPLIT if layer.startswith("(") else layer
        sums[name] = sums.get(name, 0) + int(size)
    return sums


def _lacks(
    weights: list[WeightEntry],
    activations: list[ActivationEntry],
    peak: int | None,
    entries: pd.DataFrame,
) -> Iterator[str]:
    """Name the parts that were not recorded."""
    has_backward = "backward" in set(as_text(entries["phase"]))
    if peak is None:
        yield "no peak_usage_bytes: what was allocated before the recording is not known"
    if not weights:
        yield "no weights: they were allocated before the recording, of which nothing is known"
    elif {weight.name for weight in weights} == {UNSPLIT}:
        yield "weights are one entry: the recording does not say which parameter is where"
    if weights and has_backward and not any(weight.grad_bytes for weight in weights):
        yield "grad_size_bytes is 0: no block is known to be a gradient"
    if not has_backward:
        yield "no activations: no backward is recorded"
    elif not activations:
        yield "no activations: no block is known to be kept for a backward"
