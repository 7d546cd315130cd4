"""A step of a run on other devices, and on more of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pandas as pd

from pyprof2.analysis.hardware.devices import (
    DEVICES,
    Device,
    device_named,
    load_device,
    memory_of,
)
from pyprof2.analysis.hardware.verdict import find_peaks, named_device
from pyprof2.analysis.job.job_graph import job_graph
from pyprof2.analysis.job.rank_graph import rank_graph
from pyprof2.analysis.memory.curves import HELD_NEEDED, most_held
from pyprof2.analysis.prediction.links import link_named
from pyprof2.analysis.prediction.model import (
    GROUPS,
    half_width,
    most_used,
    predict,
    shares_of_groups,
)
from pyprof2.analysis.prediction.parameters import MEMORY, eta_of, shipped
from pyprof2.analysis.prediction.replayed import StepGraph, busy_ns
from pyprof2.analysis.prediction.scaling import (
    STEPS_NEEDED,
    Gradients,
    buckets,
    evenly,
    finished,
    ready_times,
    scaled,
    slowest_of,
)
from pyprof2.analysis.prediction.work import Rows, remarks, why_not
from pyprof2.analysis.time.step_times import TimedStep, median_step, timed_steps
from pyprof2.api.job import job_of_ranks
from pyprof2.errors import refuse
from pyprof2.recording import code_column, has_text, int_column
from pyprof2.signatures import Tensor, nbytes, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from pyprof2.analysis.hardware.roofline import Floats
    from pyprof2.analysis.intervals import Bool, Int
    from pyprof2.analysis.prediction.links import Link
    from pyprof2.analysis.prediction.model import Predicted, Work
    from pyprof2.analysis.prediction.parameters import Parameters
    from pyprof2.api.run_tables import RunTables
    from pyprof2.store.rank_tables import RankTables

LEVEL: Final = 0.8
"""The probability of an interval, unless another is asked for."""
ALL: Final = "all"
"""Stands for all devices of the table."""
RECORDED: Final = "recorded"
IDLE_MAX_PCT: Final = 20.0
"""Where more of a step is idle, the host decides, and that of the other device is not known."""
OTHER_VENDOR: Final = "of another vendor, with other kernels: the interval alone"
IDLE: Final = "idle for"
"""How the reason begins that a host is not known."""
_HOST_RANGE: Final = (0.5, 2.0)
"""How much less or more time the other host may take."""
_NODE: Final = "torch::autograd::AccumulateGrad"
_BOUND: Final = ("compute", "memory", "host", "communication")
_NS_PER_MS: Final = 1e6
_NS_PER_HOUR: Final = 3.6e12
_COMPUTE, _MEMORY = range(2)
COLUMNS_SHOWN: Final = (
    "device", "ranks", "step_ms", "lo_ms", "hi_ms", "speedup", "throughput", "throughput_lo",
    "throughput_hi", "busy_ms", "bound_by", "compute_pct", "memory_pct", "extrapolated_pct",
    "kept_pct", "idle_pct", "fits", "eta_source", "exposed_comm_ms", "all_lo_ms", "all_hi_ms",
    "recorded_ms", "money_per_step", "money_per_step_lo", "money_per_step_hi",
    "money_per_million", "money_per_million_lo", "money_per_million_hi", "why",
)  # fmt: skip
_TEXTS: Final = ("device", "bound_by", "eta_source", "why")


@dataclass(frozen=True)
class Question:
    """The question, beside the devices.

    Attributes:
        ranks: numbers of devices that share the work; empty: as many as recorded.
        link: the link between them: its name, or GB/s in one direction; None: not known.
        overlap: whether gradients are added up beside the backward pass.
        level: the probability of an interval.
        batch: samples in a step of one rank; None: as recorded.
        prices: money per hour of a device, by its name.
    """

    ranks: Sequence[int] = ()
    link: str | None = None
    overlap: bool = True
    level: float = LEVEL
    batch: int | None = None
    prices: Mapping[str, float] = field(default_factory=dict)


class OnDevice(NamedTuple):
    """The answer of the model for a device.

    Attributes:
        device: which.
        found: of each activity of the step.
        why: reasons why nothing is said; else what was assumed.
        is_refused: whether nothing is said.
        width: half of the interval, in logarithms.
        eta: where the shares of its peaks are from.
        factor: the time of the step's activities there, over that here.
    """

    device: Device
    found: Predicted | None
    why: list[str]
    is_refused: bool = True
    width: float = 0.0
    eta: str = RECORDED
    factor: float = 1.0


class _Replayed(NamedTuple):
    """The step with other times: ns that it takes, when each of its activities ends, by row."""

    step: float
    end_of_row: Floats
    time: Floats
    factor: float
    gap: float


class _Found(NamedTuple):
    """A step, ns, its interval, and that with all losses, as far as they are known."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    exposed: float | None = None
    all_lo: float | None = None
    all_hi: float | None = None
    why: tuple[str, ...] = ()


def _ordered(times: Sequence[float]) -> tuple[float, float, float]:
    """Return value, least and most."""
    return times[0], min(times), max(times)


@dataclass
class PredictedStep:
    """The step that is predicted, of the lowest rank whose devices worked.

    Attributes:
        run: its tables.
        step: its number; None: that of median time.
        parameters: the fitted numbers.
    """

    run: RunTables
    step: int | None = None
    parameters: Parameters = field(default_factory=shipped)

    @cached_property
    def tables(self) -> RankTables:
        """Those of the rank.

        Raises:
            UsageError: no device worked.
        """
        worked = (each for each in self.run.ranks if each.parts("kernels").row_count)
        first = next(worked, None)
        if first is None:
            refuse(f"{self.run.label}: no device worked in it, so there is nothing to predict")
        return first

    @cached_property
    def _places(self) -> dict[str, set[int | None]]:
        """Devices and steps of the kernels and copies of the rank."""
        found: dict[str, set[int | None]] = {"device": set(), "step": set()}
        for table in ("kernels", "copies"):
            for part in self.tables.in_parts(table, (*found,)):
                for name, known in found.items():
                    known.update(part[name].unique().to_pylist())
        return found

    @cached_property
    def source(self) -> Device | None:
        """The device that was recorded; None: not known, or of several kinds."""
        if self.run.device is not None:
            return named_device(self.run.device)
        used = self._places["device"]
        listed = [row for row in self.tables.devices() if row["device_type"] != "cpu"]
        worked = [row for row in listed if row["device"] in used] or listed
        found = [find_peaks(row) for row in worked]
        first = next(iter(found), None)
        return first if all(each == first for each in found) else None

    @cached_property
    def _windows(self) -> list[TimedStep]:
        own = timed_steps(self.tables.read("steps", TimedStep._fields))
        return [window for window in own if window.step in self._places["step"]]

    @cached_property
    def window(self) -> tuple[int | None, int]:
        """The number of the step, None where there are none, and how long it took, ns.

        Raises:
            UsageError: there is no such step.
        """
        own = self._windows
        if self.step is not None:
            own = [window for window in own if window.step == self.step]
            if not own:
                there = ", ".join(str(window.step) for window in self._windows) or "none"
                refuse(f"{self.run.label}: no step {self.step} with work; there are {there}")
        if not own:
            return None, self._graph_of(None).recorded_ns
        chosen = median_step(own, self.tables.rank)
        return chosen.step, chosen.dur_ns

    @cached_property
    def own(self) -> Rows:
        """The kernels and copies of the step."""
        return Rows.of(self.tables.read, self.window[0])

    def _graph_of(self, step: int | None) -> StepGraph:
        names = ("kernel_id", "instance_id", "wait_ns", "kind")
        none = pd.DataFrame({name: pd.Series(dtype="Int64") for name in names})
        rank = self.tables.rank
        graph = rank_graph(self.tables.parts, none, rank, lambda time: time)
        return StepGraph.of(job_graph([graph], {rank: none}), step)

    @cached_property
    def graph(self) -> StepGraph:
        """The launches and activities of the step, and what each waits for."""
        return self._graph_of(self.window[0])

    @cached_property
    def memory_bytes(self) -> int | None:
        """The most memory that was held on a device; None: not recorded."""
        return most_held(self.tables.in_parts("memory", HELD_NEEDED))

    @cached_property
    def batch(self) -> int | None:
        """The samples in a step, where an entry point was recorded."""
        ranks: list[dict[str, Any]] = self.run.manifest["ranks"]
        entries = [rank["entry"] for rank in ranks if "entry" in rank]
        return entries[0].get("batch_size") if entries else None

    @cached_property
    def world_size(self) -> int:
        """How many ranks there were."""
        return max(job_of_ranks(self.run).world_size, len(self.run.ranks), 1)

    # -- one device ------------------------------------------------------------------------------

    def on(self, target: Device, level: float = LEVEL) -> OnDevice:
        """Return what the model says of a device."""
        source = self.source
        if source is None:
            names = [row["name"] for row in self.tables.devices() if row["name"]]
            known = f"is {names[0]}, which the table of devices lacks" if names else "has no name"
            why = f"the recorded device {known}: name one like it with --recorded-on"
            return OnDevice(target, None, [why])
        if target.name == source.name and not target.eta:
            target = source
        own = self.own
        there = predict(own.work, source, target, self.parameters)
        if why_nots := list(why_not(own, there, source, target)):
            return OnDevice(target, None, why_nots)
        what = most_used(own.work, there, source, target)
        factor = float(there.time.sum() / max(float(own.work.time.sum()), 1.0))
        notes = list(remarks(own, source, target))
        if target is source:
            return OnDevice(target, there, notes, is_refused=False)
        shares = shares_of_groups(there)
        width = half_width(shares, source, target, self.parameters, level, what)
        eta = eta_of(self.parameters, target, what).source
        return OnDevice(target, there, notes, False, width, eta, factor)  # noqa: FBT003

    def _replayed(self, said: OnDevice, sign: int = 0, *, alone: bool = False) -> _Replayed:
        """Return the step on a device.

        Args:
            said: of the device.
            sign: 0 for the value, -1 and 1 for the ends of the interval.
            alone: without the collectives that were recorded.
        """
        spread = math.exp(sign * said.width)
        gap = 1.0 if not sign or said.eta == RECORDED else _HOST_RANGE[sign > 0]
        time = (self.own.work.time if said.found is None else said.found.time) * spread
        if alone:
            time = np.where(self._is_comm, 0.0, time)
        return self._ended(time, said.factor * spread, gap)

    def _ended(
        self, time: Floats, factor: float, gap: float, held: tuple[Int, float] | None = None
    ) -> _Replayed:
        """Return the step whose activities take these times; `held` as of `StepGraph.ends`."""
        ends = self.graph.ends(time, factor, gap, held)
        if held is not None:
            ends[0] = round(held[1])
        of_row = np.full(len(time), -1.0)
        own = self.graph.row >= 0
        of_row[self.graph.row[own]] = ends[own]
        took, recorded, window = self.graph.lasts(ends, gap), self.graph.recorded_ns, self.window[1]
        # The part of the window before the first launch is the host's.
        rest = window - recorded
        took = took + rest * gap if rest >= 0 else took * window / max(1, recorded)
        return _Replayed(took, of_row, time, factor, gap)

    @cached_property
    def _is_comm(self) -> Bool:
        """Which activities of the step communicate."""
        return has_text(self.own.table, "category", ("comm",))

    def rows_of(self, target: Device, question: Question) -> list[dict[str, Any]]:
        """Return the rows of a device: one for each number of ranks."""
        said = self.on(target, question.level)
        counts = list(question.ranks) or [self.world_size]
        memory, fits = memory_of(said.device), None
        if memory is not None and self.memory_bytes is not None:
            fits = said.device is self.source or self.memory_bytes <= memory
        if said.is_refused:
            of_all = {"device": said.device.name, "fits": fits, "why": "; ".join(said.why)}
            return [of_all | {"ranks": count} for count in counts]
        if fits is False:
            said = said._replace(why=[*said.why, "it does not fit in its memory"])
        link = None if question.link is None else link_named(question.link, self.parameters)
        ends = {sign: self._replayed(said, sign, alone=bool(question.ranks)) for sign in (0, -1, 1)}
        rows = []
        for count in counts:
            found = _Found(*_ordered([ends[sign].step for sign in (0, -1, 1)]))
            if question.ranks:
                found = self._scaled(found, ends, count, question.overlap, link)
            row = self._row(said, ends[0], found, count)
            rows.append({"fits": fits} | row | self._rates(row, question))
        return rows

    def _row(
        self, said: OnDevice, replayed: _Replayed, found: _Found, ranks: int
    ) -> dict[str, Any]:
        """Return a row of what was found, in its units, with what it rests on."""
        assert said.found is not None  # noqa: S101 -- it is not refused
        time, group = replayed.time, said.found.group
        device = int_column(self.own.table, "device", 0)
        begin = np.rint(replayed.end_of_row - time).astype(np.int64)
        busy, exposed = busy_ns(begin, np.rint(time).astype(np.int64), device), found.exposed or 0.0
        whole = replayed.step + exposed
        # Devices of one rank beside one another are busy together.
        idle = 100 * max(0.0, 1 - (busy / max(1, len(set(device.tolist()))) + exposed) / whole)
        is_known, why = found.value is not None, [*said.why, *found.why]
        if said.eta != RECORDED:
            if self.source is not None and said.device.vendor != self.source.vendor:
                is_known = False
                why.append(OTHER_VENDOR)
            if idle > IDLE_MAX_PCT:
                is_known = False
                why.append(f"{IDLE} {idle:.0f} %, and its host is not known: the interval alone")
        comm = float(time[self._is_comm].sum())
        sums = np.bincount(group, time, len(GROUPS))
        terms = [sums[_COMPUTE], sums[_MEMORY], max(0.0, replayed.step - busy), comm + exposed]
        times = {
            "step_ms": found.value if is_known else None, "lo_ms": found.lo, "hi_ms": found.hi,
            "busy_ms": busy, "exposed_comm_ms": found.exposed, "all_lo_ms": found.all_lo,
            "all_hi_ms": found.all_hi,
            "recorded_ms": self.window[1]
            if said.device is self.source and ranks == self.world_size else None,
        }  # fmt: skip
        shares = (100 * sums / max(float(sums.sum()), 1e-9)).tolist()
        return {
            "device": said.device.name, "ranks": ranks,
            **{n: None if ns is None else ns / _NS_PER_MS for n, ns in times.items()},
            **dict(zip([f"{name}_pct" for name in GROUPS], shares, strict=True)),
            "bound_by": _BOUND[int(np.argmax(terms))], "idle_pct": idle, "eta_source": said.eta,
            "why": "; ".join(dict.fromkeys(why)) or None,
        }  # fmt: skip

    def _rates(self, row: dict[str, Any], question: Question) -> dict[str, Any]:
        """Return speed-up, throughput and money of a row, with their intervals."""
        ranks: int = row["ranks"]
        times = {"": row["step_ms"], "_lo": row["lo_ms"], "_hi": row["hi_ms"]}
        found: dict[str, Any] = {}
        if row["step_ms"]:
            # In samples per second: more ranks take more of them.
            more = ranks / self.world_size
            found["speedup"] = more * self.window[1] / _NS_PER_MS / row["step_ms"]
        batch = question.batch or self.batch
        price = question.prices.get(row["device"])
        other = {"": "", "_lo": "_hi", "_hi": "_lo"}
        for end, ms in times.items():
            if not ms:
                continue
            if batch is not None:
                found[f"throughput{other[end]}"] = 1e3 * batch * ranks / ms
            if price is not None:
                money = price * ranks * ms * _NS_PER_MS / _NS_PER_HOUR
                found[f"money_per_step{end}"] = money
                if batch is not None:
                    found[f"money_per_million{end}"] = 1e6 * money / (batch * ranks)
        return found

    def explain(self, target: Device) -> dict[str, Any]:
        """Return what the prediction of a device rests on, as plain data.

        `row`: as `Run.predict` has it; `peaks`: of each unit that worked, its peak and the share
        that long kernels reach, here and there; `kernels`: by name and what they rest on there,
        the recorded and the predicted ns, of one kernel in the middle the least times, the residual
        and what of it is kept; those that make most of the difference first.
        """
        (row,) = self.rows_of(target, Question(ranks=()))
        said, source = self.on(target), self.source
        facts: dict[str, Any] = {"reference": f"predict:{target.name}", "row": row}
        if said.is_refused or said.found is None or source is None:
            return facts | {"peaks": [], "kernels": []}
        own, found, work = self.own, said.found, self.own.work
        name, names = code_column(own.table, "kernel_short")
        frame = pd.DataFrame(
            {
                "kernel": [names[code] if code >= 0 else None for code in name.tolist()],
                "basis": [GROUPS[group] for group in found.group.tolist()],
                "here_ns": work.time, "there_ns": found.time,
                "least_here_ns": found.on_source.total, "least_there_ns": found.on_target.total,
                "residual": found.residual, "kept_residual": found.kept_residual,
            }
        )  # fmt: skip
        by = frame.groupby(["kernel", "basis"], dropna=False, observed=True)
        sums = by[["here_ns", "there_ns"]].sum().assign(count=by.size())
        sums = sums.join(
            by[["least_here_ns", "least_there_ns", "residual", "kept_residual"]].median()
        )
        order = (
            (sums["there_ns"] - sums["here_ns"]).abs().sort_values(ascending=False, kind="stable")
        )
        kernels = sums.reindex(order.index).reset_index().astype(object)
        return facts | {
            "peaks": list(self._peaks(work, source, said.device)),
            "kernels": kernels.where(kernels.notna(), None).to_dict("records"),
        }

    def _peaks(self, work: Work, source: Device, target: Device) -> Iterator[dict[str, Any]]:
        """Yield the rates that the prediction takes of each unit that worked, and of memories."""
        for at, unit in enumerate(work.units):
            own = (work.unit == at) & (work.flops > 0) & ~work.is_kept
            if not own.any():
                continue
            fact: dict[str, Any] = {"dtype": unit.dtype, "tensor_core": unit.matrix}
            fact["time_ns"] = float(work.time[own].sum())
            for where, device in (("here", source), ("there", target)):
                peak = unit.peak(device, source)
                eta = eta_of(self.parameters, device, unit.share_of(device, source))
                known = not math.isnan(peak)
                fact |= {f"peak_{where}": peak if known else None, f"eta_{where}": eta.value,
                         f"eta_source_{where}": eta.source}  # fmt: skip
            yield fact
        fact = {"dtype": None, "tensor_core": None, "time_ns": float(work.time.sum())}
        for where, device in (("here", source), ("there", target)):
            eta = eta_of(self.parameters, device, MEMORY)
            fact |= {f"peak_{where}": device.memory_bytes_per_s, f"eta_{where}": eta.value,
                     f"eta_source_{where}": eta.source}  # fmt: skip
        yield fact

    # -- more of them ----------------------------------------------------------------------------

    def _scaled(
        self, alone: _Found, ends: Mapping[int, _Replayed], ranks: int, overlap: bool,  # noqa: FBT001
        link: Link | None,
    ) -> _Found:  # fmt: skip
        """Return a step of n ranks that each take this step's samples, with data parallelism."""
        value, lo, hi = alone.value or 0.0, alone.lo or 0.0, alone.hi or 0.0
        if ranks == 1:
            return _Found(value, lo, hi, 0.0, lo, hi)
        if link is None:
            return _Found(why=("the link between devices is not known: --link",))
        waited, sums, evidence = {}, (0.0, 0.0), ""
        for sign in (-1, 0):
            gradients = self.gradients(ends[sign].end_of_row)
            if gradients is None:
                return _Found(why=("no gradients are recorded: no training step, or no shapes",))
            evidence = gradients.evidence
            whole = float(link.all_reduce(ranks, np.array([gradients.bytes.sum()]))[0])
            free, summed = float(gradients.ready.max()) + whole, whole
            if overlap:
                bucketed = buckets(gradients)
                each = link.all_reduce(ranks, bucketed.bytes)
                free, summed = finished(bucketed.ready, each), float(each.sum())
            waited[sign], sums = self._held(ends[sign], free).step, (summed, whole)
        slowest = slowest_of([window.dur_ns for window in self._windows], ranks)
        more = None if slowest is None else slowest * value / self.window[1]
        found = scaled((value, lo, hi), (waited[0], waited[-1]), sums, more)
        why = [f"gradients: {evidence}"]
        if slowest is None:
            why.append("slow ranks are not in it: fewer than 10 steps are recorded")
        return _Found(*found, tuple(why))

    def _held(self, of: _Replayed, free: float) -> _Replayed:
        """Return the step where the optimizer waits until gradients are added up."""
        held = np.flatnonzero(has_text(self.own.table, "direction", ("optimizer",)))
        return self._ended(of.time, of.factor, of.gap, (held, free))

    def gradients(self, end_of_row: Floats) -> Gradients | None:
        """Return the gradients of the step in the order in which they are ready; None: none.

        Args:
            end_of_row: when each activity of the step ends.
        """
        own, works = self.own, np.flatnonzero(~self._is_comm)
        launched = int_column(own.table, "launch_ns", -1)[works]
        known = launched >= 0
        found = self._recorded_buckets() or self._nodes()
        if found is not None:
            at, sizes, evidence = found
            ready = ready_times(launched[known], end_of_row[works[known]], at)
            return Gradients(np.maximum.accumulate(ready), sizes, evidence)
        total = self._optimized_bytes()
        backward = works[has_text(own.table, "direction", ("backward",))[works]]
        if total is None or not len(backward):
            return None
        start = end_of_row[backward] - own.work.time[backward]
        return evenly(float(start.min()), float(end_of_row[backward].max()), total)

    def ddp(self, ranks: Sequence[int]) -> dict[str, Any] | None:
        """Return when gradients are ready in the recorded steps, bucket by bucket.

        `forward_ns`: from the beginning of a step to its backward pass; `bytes`: of each bucket;
        `slowest_ns`: by number of ranks, how long the slowest of so many takes until each bucket is
        ready, since the one before it. None: fewer than ten steps with the same buckets.
        """
        forward, sizes, times, rows = [], [], [], Rows.of(self.tables.read, None)
        for window in self._windows:
            step = PredictedStep(self.run, window.step, self.parameters)
            vars(step)["own"] = rows.only(int_column(rows.table, "step", -1) == window.step)
            table = step.own.table
            start = int_column(table, "start_ns", 0)
            is_backward = has_text(table, "direction", ("backward",)) & ~step._is_comm
            gradients = step.gradients(start + step.own.work.time)
            if gradients is None or not is_backward.any():
                continue
            begins = int(start[is_backward].min())
            bucketed = buckets(gradients)
            forward.append(begins - window.start_ns)
            sizes.append(bucketed.bytes.tolist())
            times.append(np.diff(np.maximum(bucketed.ready, begins), prepend=begins).tolist())
        if len(times) < STEPS_NEEDED or any(each != sizes[0] for each in sizes):
            return None
        own_times = list(zip(*times, strict=True))
        slowest = {
            count: [fmean(each) + (slowest_of(each, count) or 0.0) for each in own_times]
            for count in ranks
        }
        return {"forward_ns": fmean(forward), "bytes": sizes[0], "slowest_ns": slowest}

    def _recorded_buckets(self) -> tuple[Int, Floats, str] | None:
        """Return when the all-reduces of the backward pass were issued, and their bytes."""
        names = ("kind", "issued_ns", "start_ns", "in_bytes", "step", "direction")
        found = self.tables.read("collectives", names).to_pandas()
        step = self.window[0]
        found = found[(found["kind"] == "all_reduce") & (found["direction"] == "backward")]
        found = found[found["step"] == step] if step is not None else found
        if found.empty or found["in_bytes"].isna().any():
            return None
        at = found["issued_ns"].fillna(found["start_ns"]).to_numpy(np.int64)
        order = np.argsort(at, kind="stable")
        return (
            at[order],
            found["in_bytes"].to_numpy(float)[order],
            "the all-reduces that were recorded",
        )

    def _nodes(self) -> tuple[Int, Floats, str] | None:
        """Return when the nodes that keep gradients ran, and the bytes of these."""
        ops = self.tables.read("ops", ("op", "start_ns", "step", "signature_id"))
        rows = np.flatnonzero(has_text(ops, "op", (_NODE,)))
        if self.window[0] is not None:
            rows = rows[int_column(ops, "step", -1)[rows] == self.window[0]]
        signature = int_column(ops, "signature_id", -1)[rows]
        of = self._bytes_of_signatures(set(signature.tolist()))
        sizes = np.array([of.get(number, math.nan) for number in signature.tolist()], float)
        if not len(rows) or np.isnan(sizes).any():
            return None
        at = int_column(ops, "start_ns", 0)[rows]
        order = np.argsort(at, kind="stable")
        return at[order], sizes[order], "the nodes that keep them"

    def _optimized_bytes(self) -> float | None:
        """Return the bytes of the gradients, by the first arguments of an op of the optimizer."""
        ops = self.tables.read("ops", ("op", "step", "signature_id", "direction"))
        own = has_text(ops, "direction", ("optimizer",))
        if self.window[0] is not None:
            own &= int_column(ops, "step", -1) == self.window[0]
        signature = int_column(ops, "signature_id", -1)[own]
        name, names = code_column(ops, "op")
        of = self._bytes_of_signatures(set(signature.tolist()))
        sums: dict[str, float] = {}
        for number, code in zip(signature.tolist(), name[own].tolist(), strict=True):
            sums[names[code]] = sums.get(names[code], 0.0) + of.get(number, 0.0)
        return max(sums.values(), default=0.0) or None

    def _bytes_of_signatures(self, wanted: set[int]) -> dict[int, float]:
        """Return the bytes of the first input of signatures: a tensor, or a list of them."""
        table = self.tables.read("signatures", ("signature_id", "inputs"))
        found = {}
        pairs = (table[name].to_pylist() for name in ("signature_id", "inputs"))
        for number, text in zip(*pairs, strict=True):
            if number not in wanted or text is None:
                continue
            first = next(iter(parse_inputs(text)), None)
            tensors = (first,) if isinstance(first, Tensor) else first
            if isinstance(tensors, tuple):
                counts = [nbytes(math.prod(t.shape), t.dtype or "f32") for t in tensors]
                found[number] = float(sum(count or 0 for count in counts))
        return found


def devices_of(on: str | Device | Sequence[str | Device]) -> list[Device]:
    """Return the devices that names or descriptions stand for, each once.

    Raises:
        UsageError: a name is of no device, or of several.
    """
    if on == ALL:
        return list(DEVICES)
    given = [on] if isinstance(on, str | Device) else on
    found = [device_named(each) if isinstance(each, str) else each for each in given]
    return list({device.name: device for device in found}.values())


def asked_devices(on: str | None, paths: Sequence[Path]) -> list[Device]:
    """Return the devices of a list of names, and those that files describe.

    Raises:
        UsageError: a name is of no device, or of several, or a file describes none.
    """
    names = [] if on is None else [on] if on == ALL else [name.strip() for name in on.split(",")]
    listed = devices_of(ALL) if names == [ALL] else devices_of(names)
    return [*listed, *map(load_device, paths)]


def priced(prices: Sequence[tuple[str | None, float]], source: Device | None) -> dict[str, float]:
    """Return prices by the names of the table; one without a name is of the recorded device.

    Raises:
        UsageError: a name is of no device, or of several, or the recorded device is not known.
    """
    found = {}
    for name, price in prices:
        if name is None and source is None:
            refuse(f"--price {price:g}: the recorded device is not known: say DEVICE={price:g}")
        known = source if name is None or (source and source.name == name) else device_named(name)
        found[known.name if known else ""] = price
    return found


def predicted(
    run: RunTables, on: str | Device | Sequence[str | Device], step: int | None,
    question: Mapping[str, Any],
) -> pd.DataFrame:  # fmt: skip
    """Return what `Run.predict` does."""
    devices, asked = devices_of(on), Question(**question)
    if asked.link is not None:
        link_named(asked.link, shipped())
    prediction = PredictedStep(run, step)
    return frame_of([row for each in devices for row in prediction.rows_of(each, asked)])


def frame_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows of predictions as a table: times in ms, shares in %, null where not known."""
    columns = {}
    for name in COLUMNS_SHOWN:
        values = [row.get(name) for row in rows]
        if name in _TEXTS:
            columns[name] = pd.Series(values, dtype="str")
        else:
            kind: Any = {"ranks": "Int64", "fits": "boolean"}.get(name, "Float64")
            columns[name] = pd.Series(pd.array(values, kind))
    return pd.DataFrame(columns)


def cheapest(frame: pd.DataFrame, steps: int, deadline_h: float, ranks: int) -> int | None:
    """Return the row of the least money whose longest time for some steps meets a deadline.

    More ranks need fewer steps, as each of these is of more samples.

    Args:
        frame: as `PredictedStep` gives it, with prices.
        steps: of as many ranks as were recorded.
        deadline_h: in hours.
        ranks: that were recorded.
    """
    needed = steps * ranks / frame["ranks"].astype(float)
    hours = needed * frame["hi_ms"].astype("Float64") * _NS_PER_MS / _NS_PER_HOUR
    usual = frame["money_per_step"].fillna(frame["money_per_step_hi"])
    money = (usual * needed).where(hours <= deadline_h)
    return None if money.isna().all() else int(np.nanargmin(money.to_numpy(float, na_value=np.nan)))
