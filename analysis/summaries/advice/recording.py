"""Rules on the recording: what is the profiler's doing, or the start's, and not the program's.

They name no time at stake: they say which steps, or which numbers, not to trust.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from pyprof2.analysis.intervals import time_within, union_length
from pyprof2.analysis.summaries.advice.facts import RankFacts, codes, ends, int_values
from pyprof2.analysis.summaries.advice.findings import RuleFinding
from pyprof2.analysis.time.gaps import NEVER
from pyprof2.analysis.time.host_clock import clock_words
from pyprof2.analysis.time.step_times import starts_slowly
from pyprof2.columns import combinations, values_of
from pyprof2.units import counted, format_time

LONG_NS: Final = 1_000_000
FIRST_ACTIVITIES: Final = 10
DRIFT: Final = 1.3
DRIFT_NS: Final = 20_000
DRIFT_CALLS: Final = 4
WAITS_NS: Final = 100_000
DEEP_QUEUE: Final = 500
"""With so much queued a launch waits for room, and the host is ahead: nothing is lost."""


def slow_launches(facts: RankFacts) -> RuleFinding | None:
    """Launches that take over a millisecond: code is loaded, or the profiler prepares itself.

    Not those that wait for room in a full queue: there the host is ahead of the device.
    """
    calls = _slow_calls(facts)
    if calls.empty:
        return None
    launches = counted(len(calls), "launch", "launches")
    together = " together" if len(calls) > 1 else ""
    text = f"{launches} of over 1 ms, {format_time(int(calls['dur_ns'].sum()))}{together}"
    return RuleFinding(text, evidence={"launches": calls["launch_id"]}, remedy=facts.advice.later)


def module_loading(facts: RankFacts) -> RuleFinding | None:
    """Code of kernels was loaded or compiled: that happens once, before the first use of each."""
    calls, stalls = facts.calls_of("module_load"), stalls_of(facts, "module_load")
    start, end = (np.concatenate(c) for c in zip(ends(calls), ends(stalls), strict=True))
    time_ns = union_length(start, end)
    if time_ns < LONG_NS:
        return None
    text = f"code was loaded {counted(len(start), 'time')}, for {format_time(time_ns)}"
    evidence = {"launches": calls["launch_id"], "stalls": stalls["stall_id"]}
    return RuleFinding(text, evidence=evidence, remedy=facts.advice.later)


def slow_first_step(facts: RankFacts) -> RuleFinding | None:
    """The first step that was recorded took much longer than the others."""
    times = facts.steps.end - facts.steps.start
    if not starts_slowly(times.tolist()):
        return None
    ratio = times[0] / np.median(times)
    text = f"step {facts.steps.step[0]} took {ratio:.1f} times the median step"
    return RuleFinding(text, remedy=facts.advice.later)


def unrecorded_start(facts: RankFacts) -> RuleFinding | None:
    """At the start the device did not begin what was launched: it did what was not recorded.

    Work that was launched before the recording is missing in it, so the idle time is none.
    """
    idle = _unrecorded(facts)
    time_ns = int(idle["time_ns"].sum())
    if time_ns <= LONG_NS:
        return None
    text = f"{format_time(time_ns)} before the tenth piece of work; work at the start is missing"
    return RuleFinding(text, evidence={"kernels": idle["kernel_id"].dropna().unique()})


def clocks_differ(facts: RankFacts) -> RuleFinding | None:
    """GPU work begins before its launch, again and again: the clocks of host and device differ.

    Idle time in gaps that are shorter than ten times the difference has no known cause then, and
    rules on the host find none in it.
    """
    error_ns = facts.clock_error_ns
    return RuleFinding(clock_words(error_ns)) if error_ns else None


def kernel_drift(facts: RankFacts) -> RuleFinding | None:
    """The same kernel, with the same grid and inputs, takes now longer and now shorter.

    Clocks change, another process uses the device, or kernels that overlap share it. Differences
    of kernels' times below this are noise.
    """
    keys = ["device", "kernel", "grid", "block", "signature"]
    own = facts.rows("kernels", *keys, "dur_ns", where=~facts.comm("kernels"))
    time, group = own["dur_ns"].to_numpy("int64"), combinations([codes(own[k]) for k in keys])[1]
    longest = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    np.maximum.at(longest, group, time)
    # None of whose calls is long has a long median: only those of the others are sorted.
    wanted = (longest > DRIFT_NS) & (np.bincount(group, minlength=len(longest)) >= DRIFT_CALLS)
    group, time = group[wanted[group]], time[wanted[group]]
    order = np.lexsort((time, group))
    time, first = time[order], np.flatnonzero(np.diff(group[order], prepend=-1))
    last = np.r_[first[1:], len(time)][: len(first)] - 1
    median = (time[(first + last) // 2] + time[(first + last + 1) // 2]) / 2
    ratios = time[last] / np.maximum(1, time[first])
    ratio = np.quantile(ratios[median > DRIFT_NS], 0.9) if (median > DRIFT_NS).any() else 0
    if ratio <= DRIFT:
        return None
    return RuleFinding(
        f"the slowest call of a kernel takes up to {ratio:.2f} times the fastest one's time"
    )


def python_stacks(facts: RankFacts) -> RuleFinding | None:
    """Python stacks make all that the host does slower, and nothing on the device."""
    if not facts.has_stacks:
        return None
    return RuleFinding("times of the host are longer than without Python stacks")


def affected_steps(facts: RankFacts) -> set[int]:
    """Return the steps that hold what only a start does."""
    found = [_slow_calls(facts), facts.calls_of("module_load"), stalls_of(facts, "module_load")]
    calls = pd.concat([each[["start_ns", "dur_ns"]] for each in found])
    long = calls["dur_ns"].to_numpy("int64") > LONG_NS
    idle = _unrecorded(facts)
    times = [ends(calls[long]), ends(idle.rename(columns={"time_ns": "dur_ns"}))]
    start, end = (np.concatenate(column) for column in zip(*times, strict=True))
    held = time_within(start, end, facts.steps.start, facts.steps.end) > 0
    steps = set(facts.steps.step[held].tolist())
    return steps | ({int(facts.steps.step[0])} if slow_first_step(facts) else set())


def full_queue(facts: RankFacts) -> pd.DataFrame:
    """Return the launches that wait for room in the queue: over 100 us, with much in it."""
    calls = facts.calls_of("launch_call", above_ns=WAITS_NS)
    if calls.empty:
        return calls
    full = stalls_of(facts, "queue_full")
    is_full = time_within(*ends(full), *ends(calls)) > 0
    work = facts.work("launch_ns", "start_ns").dropna()
    launched, started = (
        np.sort(work[name].to_numpy("int64"), kind="stable") for name in ("launch_ns", "start_ns")
    )
    begin = calls["start_ns"].to_numpy("int64")
    queued = np.searchsorted(launched, begin) - np.searchsorted(started, begin)
    return calls[is_full | (queued >= DEEP_QUEUE)]


def _slow_calls(facts: RankFacts) -> pd.DataFrame:
    calls = facts.calls_of("launch_call", above_ns=LONG_NS)
    if calls.empty:
        return calls
    return calls[~calls["launch_id"].isin(full_queue(facts)["launch_id"])]


def stalls_of(facts: RankFacts, kind: str) -> pd.DataFrame:
    """Return the stalls of a kind."""
    columns = ("stall_id", "start_ns", "dur_ns")
    return facts.rows("stalls", *columns, where=facts.are("stalls", "kind", (kind,)))


def _unrecorded(facts: RankFacts) -> pd.DataFrame:
    """Return the unknown idle time before the tenth activity of each device; empty below 1 ms."""
    idle = facts.idle_of("unknown")
    if facts.clock_error_ns:  # that is why it is unknown
        idle = idle.iloc[:0]
    if not len(idle):
        return idle
    work = facts.work("device", "start_ns")
    device, start = int_values(work["device"]), work["start_ns"].to_numpy("int64")
    of_idle, until = int_values(idle["device"]), np.full(len(idle), NEVER)
    for each in values_of(of_idle).tolist():
        first = start[device == each]
        tenth = min(FIRST_ACTIVITIES, len(first)) - 1
        until[of_idle == each] = np.partition(first, tenth)[tenth] if len(first) else NEVER
    early = idle[idle["start_ns"].to_numpy("int64") < until]
    return early if early["time_ns"].sum() > LONG_NS else early.iloc[:0]
