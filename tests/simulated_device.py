"""A device that is not there: what it would have done in a recording of a program on the CPU.

The host's events are real: a run of PyTorch under `torch.profiler`. Ops that would have launched
a kernel get a launch inside of them, and the kernel runs on one stream, in order. A launch starts
its kernel `LATENCY_NS` after it returns, or `GAP_NS` after the kernel before it; a call that
waits returns `RETURN_NS` after the stream is empty. Whatever a call takes moves all that the host
does after it.

The same recording can be simulated without some of the host's intervals: they and the calls inside
of them are cut out. The difference of the two is what these intervals cost, to the ns, known
without looking at any idle time.

Times are ns, those of a recording from its first event.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from pathlib import Path

Event = dict[str, Any]

LAUNCH_NS: Final = 2_000
LATENCY_NS: Final = 1_000
GAP_NS: Final = 1_000
RETURN_NS: Final = 1_000
PREEMPTED_NS: Final = 300_000
CALM_NS: Final = 20_000
STREAM: Final = 7

KERNELS: Final = frozenset({
    "aten::mm", "aten::addmm", "aten::relu", "aten::clamp_min", "aten::threshold_backward",
    "aten::sub", "aten::pow", "aten::mean", "aten::sum", "aten::mul", "aten::mul_", "aten::add",
    "aten::add_", "aten::div", "aten::div_", "aten::neg", "aten::fill_", "aten::tanh",
    "aten::clone", "aten::gelu", "aten::gelu_backward", "aten::_foreach_mul_",
    "aten::_foreach_add_", "aten::sigmoid", "aten::exp", "aten::addcmul_", "aten::addcdiv_",
    "aten::sqrt", "aten::lerp_", "aten::tanh_backward", "aten::index", "aten::nonzero", "aten::gt",
    "aten::where", "aten::_index_put_impl_",
})  # fmt: skip
"""Ops that launch one, unless an op inside of them does."""

_LOADER: Final = "enumerate(DataLoader)#"
_DEVICE: Final = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000,
    "computeMajor": 9, "computeMinor": 0, "numSms": 132,
}  # fmt: skip


class Interval(NamedTuple):
    """Host time, `[start, end)`."""

    start: int
    end: int


@dataclass(frozen=True)
class Call:
    """A GPU call that is put into the recording.

    Attributes:
        at: when, on the recorded clock; what the host does from then on comes later.
        name: of the call.
        dur_ns: how long it takes, without waiting.
        work_ns: how long the work takes that it hands over; None: none.
        work: the name of the work.
        waits: whether it returns only when the stream is empty.
        op: the event that it is inside of.
        args: of the work's event.
    """

    at: int
    name: str
    dur_ns: int = LAUNCH_NS
    work_ns: int | None = None
    work: str = "kernel"
    waits: bool = False
    op: Event = field(default_factory=dict)
    args: Event = field(default_factory=dict)


class Done(NamedTuple):
    """A call, when it was made, and when its work ran, on the simulated clock."""

    call: Call
    made: Interval
    ran: Interval | None


class Recording:
    """The host's side of a recording of one process.

    Attributes:
        events: those with a duration, in order of start; longer ones first.
    """

    def __init__(self, path: Path) -> None:
        """Read a Kineto trace."""
        self._file = json.loads(path.read_text(encoding="utf-8"))
        complete = [event for event in self._file["traceEvents"] if event.get("ph") == "X"]
        timed = [event for event in complete if "Ev Idx" in event["args"]]
        self._base = min(round(1000 * float(event["ts"])) for event in timed)
        self.events = sorted(timed, key=lambda e: (self.start(e), -self.end(e)))

    def start(self, event: Event) -> int:
        """Return when an event starts."""
        return round(1000 * float(event["ts"])) - self._base

    def end(self, event: Event) -> int:
        """Return when it ends."""
        return self.start(event) + round(1000 * float(event["dur"]))

    def interval(self, event: Event) -> Interval:
        """Return when it starts and ends."""
        return Interval(self.start(event), self.end(event))

    def inside(self, op: Event) -> int:
        """Return when an op calls: at its start, which is never a time that something else took."""
        return self.start(op) + 1

    def named(self, *names: str) -> list[Event]:
        """Return the events whose names are one of these."""
        return [event for event in self.events if event["name"] in names]

    def outside_loader(self, events: Iterable[Event]) -> list[Event]:
        """Return those that are not inside of a DataLoader."""
        loading = self.loading()
        return [e for e in events if not any(a <= self.start(e) < b for a, b in loading)]

    def loading(self) -> list[Interval]:
        """Return when a DataLoader was asked for a batch."""
        return [self.interval(e) for e in self.events if e["name"].startswith(_LOADER)]

    def preempted(self, but: Sequence[Interval] = ()) -> list[Interval]:
        """Return when something else had the processor: long times in which nothing happens.

        Between the events of PyTorch some 10 us pass; who takes the processor away has it for
        milliseconds. What is left of such a time is `CALM_NS`. Batches are left as they are.

        Args:
            but: intervals that are left as they are, too.
        """
        times = sorted({time for event in self.events for time in self.interval(event)})
        kept = Clock((), sorted({*self.loading(), *but}))
        return [
            Interval(a + CALM_NS, b)
            for a, b in pairwise(times)
            if b - a > PREEMPTED_NS and not kept.is_cut(Interval(a, b))
        ]

    def launching(self, names: Collection[str] = KERNELS) -> list[Event]:
        """Return the ops that launch a kernel: the innermost ones of these names."""
        found = self.outside_loader(e for e in self.named(*names) if e["cat"] == "cpu_op")
        following = [self.start(event) for event in found[1:]] + [self.end(found[-1])]
        return [e for e, start in zip(found, following, strict=True) if start >= self.end(e)]

    def kernels(self, work_ns: Callable[[Event], int] | None = None) -> list[Call]:
        """Return the launches of all ops that launch a kernel.

        Args:
            work_ns: how long the kernel of an op takes; None: 0.
        """
        return [
            Call(
                self.inside(op), "cudaLaunchKernel",
                work_ns=work_ns(op) if work_ns else 0, work=f"{op['name']}_kernel", op=op,
            )
            for op in self.launching()
        ]  # fmt: skip

    def write(self, path: Path, done: Sequence[Done], cut: Iterable[Interval]) -> Path:
        """Write the recording with what the device did, as a Kineto trace; return its path."""
        clock = Clock(done, cut)
        kept = [e for e in self.events if not clock.is_cut(self.interval(e))]
        moved = [event | self._times(clock.interval(self.interval(event))) for event in kept]
        host = {key: self.events[0][key] for key in ("pid", "tid")}
        events = [e for i, each in enumerate(done) for e in self._of_call(i + 1, each, host)]
        rest = [event for event in self._file["traceEvents"] if event.get("ph") == "M"]
        whole = self._file | {"deviceProperties": [_DEVICE], "traceEvents": rest + moved + events}
        path.write_text(json.dumps(whole), encoding="utf-8")
        return path

    def _of_call(self, number: int, done: Done, host: Event) -> list[Event]:
        """Return the event of a call and that of its work."""
        call = done.call
        ids = {"correlation": number} | (
            {"External id": call.op["args"]["External id"]} if call.op else {}
        )
        times = self._times(done.made)
        found = [host | times | _complete("cuda_runtime", call.name, ids)]
        if done.ran is not None:
            args = ids | {"device": 0, "stream": STREAM} | call.args
            kind = "gpu_memcpy" if call.work.startswith("Memcpy") else "kernel"
            place = {"pid": 0, "tid": STREAM}
            found.append(place | self._times(done.ran) | _complete(kind, call.work, args))
        return found

    def _times(self, interval: Interval) -> Event:
        return {
            "ts": (interval.start + self._base) / 1000,
            "dur": (interval.end - interval.start) / 1000,
        }


def _complete(category: str, name: str, args: Event) -> Event:
    return {"ph": "X", "cat": category, "name": name, "args": args}


class Clock:
    """From the recorded clock to the simulated one."""

    def __init__(self, done: Sequence[Done], cut: Iterable[Interval]) -> None:
        """Take the calls in order of time, and the intervals that are cut out, which are apart."""
        self._at = [each.call.at for each in done]
        taken = [each.made.end - each.made.start for each in done]
        self._taken = list(accumulate(taken, initial=0))
        self._cut = sorted(cut)
        self._starts = [start for start, _ in self._cut]
        lengths = [end - start for start, end in self._cut]
        self._lengths = list(accumulate(lengths, initial=0))

    def without(self, time: int) -> int:
        """Return the time on a clock that stands still in what is cut out."""
        before = bisect_right(self._starts, time)
        late = max(0, self._cut[before - 1].end - time) if before else 0
        return time - self._lengths[before] + late

    def interval(self, interval: Interval) -> Interval:
        """Return an interval with the calls inside of it, and without those at its borders."""
        start, end = interval
        return Interval(
            self.without(start) + self._taken[bisect_right(self._at, start)],
            self.without(end) + self._taken[bisect_left(self._at, end)],
        )

    def is_cut(self, interval: Interval) -> bool:
        """Return whether all of an interval is cut out."""
        start, end = interval
        return any(a <= start and end <= b for a, b in self._cut)


def simulate(calls: Iterable[Call], cut: Sequence[Interval] = ()) -> list[Done]:
    """Return what the host and the device do when these calls are made.

    Args:
        calls: in any order.
        cut: host time that is left out, with the calls in it.
    """
    clock = Clock((), cut)
    kept = [call for call in calls if not clock.is_cut(Interval(call.at, call.at + 1))]
    done: list[Done] = []
    shift, free = 0, 0
    for call in sorted(kept, key=lambda call: call.at):
        begin = clock.without(call.at) + shift
        end, ran = begin + call.dur_ns, None
        if call.work_ns is not None:
            start = max(end + LATENCY_NS, free + GAP_NS)
            ran = Interval(start, start + call.work_ns)
            free = ran.end
        if call.waits:
            end = max(end, free + RETURN_NS)
        shift += end - begin
        done.append(Done(call, Interval(begin, end), ran))
    return done


def device_end(done: Sequence[Done]) -> int:
    """Return when the device is done with everything."""
    return max(each.ran.end for each in done if each.ran is not None)


def paced(recording: Recording, cut: Sequence[Interval], factor: int = 2) -> list[Call]:
    """Return launches of kernels, each of which takes `factor` times as long as to the next one.

    So the device, which starts late, always has work, if the host is not at what is cut out: of
    that no kernel knows.
    """
    clock = Clock((), cut)
    calls = recording.kernels()
    ends = [clock.without(call.at) for call in calls]
    times = [b - a + LAUNCH_NS for a, b in zip(ends, [*ends[1:], ends[-1]], strict=True)]
    return [
        Call(call.at, call.name, work_ns=factor * time, work=call.work, op=call.op)
        for call, time in zip(calls, times, strict=True)
    ]
