"""Why a device was idle: one cause for every instant of every gap, and the rows of table `idle`.

A gap has up to three parts. Until the launch of what runs next begins, the host is late; while
that call lasts, the host is in it; after it, the work is handed over and has not started. The
rules of each part, the first that holds at an instant, stand in docs/idle.rst by their letters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from pyprof2.analysis.intervals import Bool, Int, last_not_after
from pyprof2.analysis.time.cause_names import BLOCKING, CAUSES, CODES, HOST_CAUSES, NAMES
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.host_clock import CERTAIN
from pyprof2.analysis.time.slices import Bounds, IntervalSlices
from pyprof2.columns import int_array, lookup, merge_texts, order_of, text_array
from pyprof2.recording import code_column, int_column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyprof2.analysis.intervals import Int
    from pyprof2.analysis.time.gaps import DeviceActivities, Gaps
    from pyprof2.analysis.time.host_state import Host, Stalls
    from pyprof2.analysis.time.step_windows import StepWindows

NORMAL_GAP_NS: Final = 30_000
"""The most that a device needs between two that are queued, or from a launch to its start."""

_STUCK: Final = (
    "queued or launched, and did not start: behind work that the recording lacks (launched before "
    "it, or by another process), or behind a wait that it lacks"
)
_UNRECORDED: Final = (
    "to see it, record Python stacks (Kineto: with_stack, in a file that keeps its frames; nsys: "
    "--python-sampling=true) and the system's calls (nsys: --trace=osrt)"
)
_INFLATED: Final = "Python stacks were recorded: times on the host are longer than without them"
CLOCKS_DIFFER: Final = (
    "GPU work begins before its launch: the clocks of host and device differ by more than a tenth "
    "of this gap"
)
LOST_NODE: Final = "the recording lacks a node of the graph, which ran in this time"
NOTES: Final = [
    "no launch recorded",
    "a wait call precedes the launch",
    _STUCK,
    "the launch was recorded as later than its start",
    _UNRECORDED,
    _INFLATED,
    CLOCKS_DIFFER,
]
NO_LAUNCH, WAIT_CALL, STUCK, LATE_LAUNCH, UNRECORDED, INFLATED, CLOCKS = range(len(NOTES))

LAUNCHING, OTHER = range(2)
THREADS: Final = ["launching", "other"]
"""Which thread decides: the one that launches what runs next, or another of its process."""


class Causes(NamedTuple):
    """Slices of gaps, each with its cause; -1 is null.

    Attributes:
        gap: the row of the gap.
        start, end: of the slice, in ns.
        cause, note, thread: codes.
        op, call: rows of the innermost op and of the call.
        line: the innermost line of the user's own, as a code.
        drained: whether the device ran dry in the call.
    """

    gap: Int
    start: Int
    end: Int
    cause: Int
    note: Int
    thread: Int
    op: Int
    call: Int
    line: Int
    drained: Int

    @classmethod
    def of(cls, slices: IntervalSlices, **columns: Any) -> Causes:
        """Return the slices with these columns, -1 in the others."""
        known = {"drained": 0} | columns
        rest = (np.broadcast_to(known.get(name, -1), len(slices)) for name in cls._fields[3:])
        return cls(slices.of, slices.start, slices.end, *rest)

    def sorted(self) -> Causes:
        """Return them in order of time, where those that differ in nothing are one."""
        order = order_of(self.gap, self.start)
        rows = np.stack(self)[:, order]
        same = np.delete(rows, [1, 2], axis=0)
        first = np.flatnonzero(np.r_[True, (same[:, 1:] != same[:, :-1]).any(axis=0)][: len(order)])
        last = np.r_[first[1:], len(order)][: len(first)] - 1
        gap, start, end, *columns = rows
        return Causes(gap[first], start[first], end[last], *(c[first] for c in columns))


_Found: TypeAlias = "tuple[list[Causes], IntervalSlices]"
"""Slices whose cause a rule knows, and those that it leaves to the next one."""


@dataclass(frozen=True)
class Handover:
    """How each gap's next activity was handed over.

    Attributes:
        call: the row of the call; -1: not recorded.
        begin, end: of the call, within the gap. Before it the host is late, after it the device.
        queued: whether it was in its stream's queue when the gap began.
        known: whether it is known when it was handed over.
        thread: that handed it over, or that launched the latest one before the recording's end.
    """

    call: Int
    begin: Int
    end: Int
    queued: Bool
    known: Bool
    thread: Int

    @classmethod
    def of(cls, gaps: Gaps, activities: DeviceActivities, host: Host, normal_ns: int) -> Handover:
        """Find it for each gap."""
        call = lookup(activities.launch, gaps.next, -1)
        is_last, launched = gaps.next < 0, call >= 0
        short = gaps.end - gaps.start <= normal_ns
        behind = ~launched & ~is_last & short & (gaps.later_launch <= gaps.start)
        latest = np.where(is_last, gaps.latest_launch, call)
        begin = lookup(host.calls.start, call, 0)
        end = lookup(host.calls.end, call, 0)
        open_end = is_last & (latest >= 0)
        begin, end = (
            np.where(
                launched, np.clip(t, gaps.start, gaps.end), np.where(open_end, gaps.end, gaps.start)
            )
            for t in (begin, end)
        )
        queued = np.where(launched, lookup(host.calls.end, call, 0) <= gaps.start, behind)
        known = launched | behind | open_end
        thread = lookup(host.calls.thread, latest, -1)
        return cls(call, begin, end, queued & (gaps.is_first == 0), known, thread)


def idle_causes(
    gaps: Gaps, activities: DeviceActivities, host: Host, stalls: Stalls,
    normal_ns: int = NORMAL_GAP_NS, handover: Handover | None = None,
) -> Causes:  # fmt: skip
    """Return the causes of all idle time, in order of gap and time.

    Args:
        gaps: of the devices, see `gaps.GapFinder`.
        activities: of the devices.
        host: what the host did.
        stalls: what the profilers say held the host or a stream up.
        normal_ns: how long a gap or a latency may be that needs no other reason.
        handover: how the next activity of each gap was handed over; None: as was recorded.
    """
    handover = handover or Handover.of(gaps, activities, host, normal_ns)
    case = _Rules(gaps, activities, host, stalls, handover, normal_ns)
    parts = [case.pending_part(), case.call_part(), *case.host_part()]
    return Causes(*(np.concatenate(column) for column in zip(*parts, strict=True))).sorted()


_ON_TWO_CLOCKS: Final = [*HOST_CAUSES, CODES["launch_latency"]]


def with_doubts(causes: Causes, gaps: Gaps, error_ns: int) -> Causes:
    """Return causes, unknown where they rest on times of host and device that are too uncertain.

    Args:
        causes: of gaps.
        gaps: by row.
        error_ns: how far the clocks of host and device are apart; 0: they agree.
    """
    doubted = (gaps.end - gaps.start)[causes.gap] < CERTAIN * error_ns
    doubted &= np.isin(causes.cause, _ON_TWO_CLOCKS)
    if not doubted.any():
        return causes
    none = dict.fromkeys(("thread", "op", "call", "line"), -1)
    new = none | {"cause": CODES["unknown"], "note": CLOCKS, "drained": 0}
    columns = {name: np.where(doubted, value, getattr(causes, name)) for name, value in new.items()}
    return causes._replace(**columns).sorted()


@dataclass(frozen=True)
class _Rules:
    """The rules, and the tables they look at: rows of `gaps` and `handover` belong together."""

    gaps: Gaps
    activities: DeviceActivities
    host: Host
    stalls: Stalls
    handover: Handover
    normal_ns: int

    @cached_property
    def op(self) -> Int:
        """The row of the op that launched what runs after each gap."""
        op_id = lookup(self.activities.op_id, self.gaps.next, -1)
        return self.host.op_row(op_id)

    def _line(self, gap: Int) -> Int:
        """Return the line at which each gap's launch began."""
        return self.host.known.at("line", self.handover.call[gap])

    def pending_part(self) -> Causes:
        """Return rules a to f: handed over, and not started."""
        gaps, handover = self.gaps, self.handover
        short = gaps.end - handover.end <= self.normal_ns
        rules = {
            "unknown": ~handover.known,
            "launch_latency": ~handover.queued & short,
            "stream_wait": handover.queued & (gaps.before < gaps.start),
            "graph_gap": handover.queued & short & self._in_graph(),
            "kernel_gap": handover.queued & short,
        }
        cause = np.select(list(rules.values()), [CODES[name] for name in rules], CODES["unknown"])
        stuck = (cause == CODES["unknown"]) & handover.known
        cause[stuck & self._waits()] = CODES["stream_wait"]
        note = np.where(cause == CODES["unknown"], np.where(stuck, STUCK, NO_LAUNCH), -1)
        rows = np.flatnonzero(note == STUCK)
        asked = self.host.known.at("waited", self.handover.call[rows]) > 0
        note[rows[asked]] = WAIT_CALL
        slices = IntervalSlices(np.arange(len(gaps)), handover.end, gaps.end)
        slices, held = self._device_waits_in(slices)
        of = slices.of
        held &= cause[of] == CODES["unknown"]
        return Causes.of(
            slices, cause=np.where(held, CODES["sync"], cause[of]),
            note=np.where(held, -1, note[of]), op=self.op[of], line=self._line(of),
        )  # fmt: skip

    def _in_graph(self) -> Bool:
        """Return whether the last one on the stream is of the same replay of a graph."""
        name, names = self.host.calls.name
        is_graph = np.array([*("GraphLaunch" in (text or "") for text in names), False])
        call = self.handover.call
        launched = lookup(self.host.calls.start, call, -NEVER)
        found: Bool = is_graph[lookup(name, call, -1)] & (self.gaps.previous_launch == launched)
        return found

    def _waits(self) -> Bool:
        """Return whether a recorded wait stands between the stream's last launch and this one."""
        a, following = self.activities, self.gaps.next
        device, stream, launched = (
            lookup(column, following, NEVER) for column in (a.device, a.stream, a.launched)
        )
        asked = self.stalls.last_wait(device, stream, launched)
        found: Bool = (asked > NEVER) & (asked >= self.gaps.previous_launch)
        return found

    def call_part(self) -> Causes:
        """Return the slices in which the host is in the call that hands the next one over."""
        handover, thread = self.handover, self.handover.thread
        slices = IntervalSlices(np.arange(len(self.gaps)), handover.begin, handover.end)
        slices = self.stalls.cut(slices, thread, "module_load")
        of = slices.of
        is_copy = lookup(self.activities.is_copy, self.gaps.next[of], 0) > 0
        loads = self.stalls.holds(thread[of], slices.start, "module_load")
        cause = np.select(
            [is_copy, loads], [CODES["copy_call"], CODES["module_load"]], CODES["launch_call"]
        )
        return Causes.of(
            slices, cause=cause, thread=LAUNCHING, op=self.op[of], call=handover.call[of],
            line=self._line(of),
        )  # fmt: skip

    def host_part(self) -> Iterator[Causes]:
        """Yield rules g to l: nothing that could run had been handed over."""
        gaps, handover = self.gaps, self.handover
        slices = IntervalSlices(np.arange(len(gaps)), gaps.start, handover.begin)
        for rule in (
            self._outside,
            self._profiled,
            self._drained,
            self._device_waits,
            self._by_thread,
        ):
            found, slices = rule(slices)
            yield from found
        yield Causes.of(slices, cause=CODES["host_unrecorded"], note=UNRECORDED)

    def _outside(self, slices: IntervalSlices) -> _Found:
        """Rule g: before the process began, or after it ended."""
        process = self.host.threads.process(self.handover.thread)
        facts = self.host.facts
        first, last = (lookup(t, process, 0) for t in (facts.first, facts.last))
        last = np.where(self.gaps.next < 0, last, -NEVER)
        slices = slices.cut_once(first[slices.of])
        slices = slices.cut_once(last[slices.of])
        before, after = slices.start < first[slices.of], slices.start >= last[slices.of]
        return [
            Causes.of(slices.where(before), cause=CODES["start"]),
            Causes.of(slices.where(after & ~before), cause=CODES["end"]),
        ], slices.where(~before & ~after)

    def _profiled(self, slices: IntervalSlices) -> _Found:
        """Rule h: the profiler holds the thread up."""
        thread = self.handover.thread
        slices = self.stalls.cut(slices, thread, "profiler")
        held = self.stalls.holds(thread[slices.of], slices.start, "profiler")
        found = Causes.of(slices.where(held), cause=CODES["profiler"], thread=LAUNCHING)
        return [found], slices.where(~held)

    def _drained(self, slices: IntervalSlices) -> _Found:
        """Rule i: the device ran dry while the host was in a call that waits for it."""
        gaps, calls, thread = self.gaps, self.host.calls, self.handover.thread
        call = np.where(gaps.next >= 0, self.host.blocked(thread, gaps.start, BLOCKING), -1)
        length = lookup(calls.end, call, 0) - lookup(calls.start, call, 0)
        until = gaps.start + length
        slices = slices.cut_once(until[slices.of])
        held = slices.start < until[slices.of]
        of = slices.of[held]
        on = lookup(calls.thread, call[of], -1)
        found = Causes.of(
            slices.where(held), cause=lookup(calls.cause, call[of], -1), call=call[of], drained=1,
            op=self.host.op_row(lookup(calls.op_id, call[of], -1)),
            line=self.host.known.at("line", call[of]),
            thread=np.where(on == thread[of], LAUNCHING, OTHER),
        )  # fmt: skip
        return [found], slices.where(~held)

    def _device_waits_in(self, slices: IntervalSlices) -> tuple[IntervalSlices, Bool]:
        """Return the slices, cut at the ends of their device's waits, and which are in one."""
        waiting = self.stalls.device_thread(self.gaps.device)
        slices = self.stalls.cut(slices, waiting, "device_wait")
        return slices, self.stalls.holds(waiting[slices.of], slices.start, "device_wait")

    def _device_waits(self, slices: IntervalSlices) -> _Found:
        """Queues of the device wait for one another, as the device itself recorded it."""
        slices, held = self._device_waits_in(slices)
        return [Causes.of(slices.where(held), cause=CODES["sync"])], slices.where(~held)

    def _by_thread(self, slices: IntervalSlices) -> _Found:
        """Rules j and k: what the launching thread does, else another one of its process."""
        found = []
        for who, thread in self._threads():
            if not len(slices):
                break
            seen, state, line, slices = self.host.states_in(slices, thread)
            found.append(Causes.of(seen, **state._asdict(), line=line, thread=who))
        return found, slices

    def _threads(self) -> Iterator[tuple[int, Int]]:
        """Yield threads by gap, in the order in which they are looked at, and who they are.

        That is the launching one, the one of the latest launch of its process before the gap, and
        then each of its process.
        """
        own, calls = self.handover.thread, self.host.calls
        process_of = self.host.threads.process
        process = process_of(own)
        yield LAUNCHING, own
        row = self.host.launching
        row = row[np.lexsort((calls.start[row], process_of(calls.thread[row])))]
        key = process_of(calls.thread[row])
        at = last_not_after(key, calls.start[row], process, self.gaps.start - 1)
        yield OTHER, np.where(own >= 0, lookup(calls.thread[row], at, -1), -1)
        for thread in self.host.busy_threads.tolist():
            yield OTHER, np.where(process == process_of(np.array([thread])), thread, -1)


def idle_rows(
    causes: Causes,
    windows: StepWindows,
    gaps: Gaps,
    activities: DeviceActivities,
    host: Host,
    ops: pa.Table,
) -> pa.Table:
    """Return the rows of table `idle`, without the column `rank`; gaps have their row as number.

    Args:
        causes: of gaps, in order.
        windows: of the steps.
        gaps: by row.
        activities: by row.
        host: what the host did.
        ops: columns `op_id`, `op`, `source`, `layer`, by row.
    """
    causes, step = _by_step(causes, windows)
    cause, calls, gap = causes.cause, host.calls, causes.gap
    line = (causes.line, host.facts.lines)
    columns = (code_column(ops, name) for name in ("source", "layer", "op"))
    source, layer, op = ((lookup(code, causes.op, -1), texts) for code, texts in columns)
    following = gaps.next[gap]
    return pa.table(
        {
            "gap_id": pa.array(gap),
            "device": int_array(gaps.device[gap], NEVER),
            "start_ns": pa.array(causes.start),
            "time_ns": pa.array(causes.end - causes.start),
            "count": pa.array(np.ones_like(gap)),
            "step": int_array(step, NEVER),
            "group": text_array((cause, [each.group for each in CAUSES])),
            "cause": text_array((cause, NAMES)),
            "op": text_array(op),
            "source": text_array(merge_texts(source, line)),
            "layer": text_array(layer),
            "call": text_array((lookup(calls.name[0], causes.call, -1), calls.name[1])),
            "thread": text_array((causes.thread, THREADS)),
            "note": text_array((_notes(causes, gaps, activities, host), NOTES)),
            "drained": pa.array(causes.drained > 0),
            "op_id": int_array(lookup(int_column(ops, "op_id", -1), causes.op, -1), -1),
            "launch_id": int_array(lookup(calls.launch_id, causes.call, -1), -1),
            "kernel_id": int_array(lookup(activities.kernel_id, following, -1), -1),
        }
    )


def _by_step(causes: Causes, windows: StepWindows) -> tuple[Causes, Int]:
    """Return the causes, cut where the window of a step begins or ends, and the step of each."""
    bounds = np.concatenate((windows.start, windows.end))
    row = np.arange(len(causes.gap))
    cut = IntervalSlices(row, causes.start, causes.end).cut(
        Bounds(np.zeros_like(bounds), bounds), np.zeros_like(row)
    )
    order = np.argsort(cut.of, kind="stable")
    of, start, end = cut.of[order], cut.start[order], cut.end[order]
    at = np.searchsorted(windows.start, start, "right") - 1
    inside = (at >= 0) & (start < lookup(windows.end, at, NEVER))
    step = lookup(windows.step, np.where(inside, at, -1), NEVER)
    gap, _, _, *columns = causes
    return Causes(gap[of], start, end, *(column[of] for column in columns)), step


def _notes(causes: Causes, gaps: Gaps, activities: DeviceActivities, host: Host) -> Int:
    """Return the notes, with what is to be said of the times of the host."""
    on_host = np.isin(causes.cause, HOST_CAUSES)
    following = gaps.next[causes.gap]
    launched = lookup(activities.launched, following, NEVER)
    is_late = on_host & (launched > gaps.end[causes.gap])
    inflated = on_host & host.facts.has_stacks
    free = causes.note < 0
    return np.select([free & is_late, free & inflated], [LATE_LAUNCH, INFLATED], causes.note)
