"""Host and device: the delay of each launch, how much is queued, and which calls wait for work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from pyprof2.analysis.time.gaps import NEVER, DeviceActivities, read_activities
from pyprof2.columns import combine_keys, int_array, lookup
from pyprof2.recording import int_column

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

LAUNCH_INPUT: Final = ("rank", "launch_id", "start_ns", "dur_ns")
"""The columns of `launches` that are needed."""
BLOCKED_NS: Final = 2_000
"""A call that took longer waited for something."""
_WOKEN_NS: Final = 60_000
"""Such a call ended at most that long after the work that it waited for."""
_CLOCKS_NS: Final = 10_000
"""Recorders align host and device only so well: a call may seem to end that long before the work
that it waited for."""
_NEVER: Final = -(1 << 62)


def launch_delays(kernels: pa.Table, copies: pa.Table, launches: pa.Table) -> pa.Table:
    """Return how long each kernel or copy waited after its launch, for one rank.

    Returns:
        One row per activity in order of start: `kernel_id`, `launch_id`, `device`, `stream`,
        `start_ns` and `delay_ns`, from the end of the launch to its start; negative where it
        started while the call lasted; null without a recorded launch.
    """
    work, handed_over = _work(kernels, copies, launches)
    known = work.launch >= 0
    delay = np.where(known, work.start - handed_over, NEVER)
    launch_id = np.sort(int_column(launches, "launch_id", NEVER))
    return pa.table(
        {
            "kernel_id": pa.array(work.kernel_id),
            "launch_id": int_array(lookup(launch_id, work.launch, NEVER), NEVER),
            "device": int_array(work.device, NEVER),
            "stream": int_array(work.stream, NEVER),
            "start_ns": pa.array(work.start),
            "delay_ns": int_array(delay, NEVER),
        }
    )


def queue_depth(kernels: pa.Table, copies: pa.Table, launches: pa.Table) -> pa.Table:
    """Return how much was queued and running on each stream, for one rank.

    Work is queued from the end of its launch to its start; what started while the call lasted, or
    has no recorded launch, never was.

    Returns:
        One row per instant at which it changes, by stream and in order of time: `device`,
        `stream`, `time_ns`, and from then on `queued` and `running`.
    """
    work, handed_over = _work(kernels, copies, launches)
    queued_from = np.where(work.launch >= 0, np.minimum(handed_over, work.start), work.start)
    one, none = np.ones_like(work.start), np.zeros_like(work.start)
    time = np.concatenate((queued_from, work.start, work.end))
    queued = np.concatenate((one, -one, none))
    running = np.concatenate((none, one, -one))
    key = np.tile(combine_keys(work.device, work.stream), 3)
    row = np.tile(np.arange(len(work.start)), 3)
    order = np.lexsort((time, key))
    time, key, row = time[order], key[order], row[order]
    # Where several things happen on a stream at one instant, the last row has the sums.
    last = np.r_[(time[1:] != time[:-1]) | (key[1:] != key[:-1]), True][: len(time)]
    depth = np.stack((np.cumsum(queued[order]), np.cumsum(running[order])))[:, last]
    time, key, row = time[last], key[last], row[last]
    # Only the rows at which a depth differs from the one before; before the first it is 0.
    before = np.concatenate((np.zeros((2, 1), np.int64), depth[:, :-1]), axis=1)[:, : len(key)]
    changed = np.flatnonzero((depth != before).any(axis=0))
    return pa.table(
        {
            "device": int_array(work.device[row][changed], NEVER),
            "stream": int_array(work.stream[row][changed], NEVER),
            "time_ns": pa.array(time[changed]),
            "queued": pa.array(depth[0][changed]),
            "running": pa.array(depth[1][changed]),
        }
    )


def _work(kernels: pa.Table, copies: pa.Table, launches: pa.Table) -> tuple[DeviceActivities, Int]:
    """Return the activities, and when the call that launched each ended."""
    order = np.argsort(int_column(launches, "launch_id", NEVER), kind="stable")
    calls = launches.select(LAUNCH_INPUT[1:]).take(pa.array(order))
    start = int_column(calls, "start_ns", 0)
    end = start + np.maximum(0, int_column(calls, "dur_ns", 0))
    work = read_activities(kernels, copies, int_column(calls, "launch_id", NEVER), start)
    return work, lookup(end, work.launch, NEVER)


def last_ended(ended: Int, time: Int) -> Int:
    """Return the activity that ended last, not after each time; -1 for none.

    Args:
        ended: when each activity ended.
        time: the times.
    """
    order = np.append(np.argsort(ended, kind="stable"), -1)
    at: Int = np.searchsorted(ended, time, "right", order[:-1]) - 1
    return order[at]


def awaited_work(begin: Int, finish: Int, own: Int, ended: Int) -> Int:
    """Return the activity that each call waited for; -1 for none.

    A copy to memory that is not pinned returns when it is done, whatever its name says, and one of
    pinned memory does not wait. So a call that queued work waited for that or for none, and a call
    that queued none for the work that ended last before it did.

    Args:
        begin: of calls that wait for the device, by their names.
        finish: of each.
        own: the activity that each queued, the last one, or -1.
        ended: when each activity ended.
    """
    found = np.where(own >= 0, own, last_ended(ended, finish + _CLOCKS_NS))
    end = lookup(ended, found, _NEVER)
    good = (finish - begin > BLOCKED_NS) & (begin < end) & (end <= finish + _CLOCKS_NS)
    return np.where(good & (finish - end <= _WOKEN_NS), found, -1)
