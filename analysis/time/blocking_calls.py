"""Work of the device that calls of the host waited for: it ended just before they did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from pyprof2.columns import lookup

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Int

BLOCKED_NS: Final = 2_000
"""A call that took longer waited for something."""
_WOKEN_NS: Final = 60_000
"""Such a call ended at most that long after the work that it waited for."""
_CLOCKS_NS: Final = 10_000
"""Recorders align host and device only so well: a call may seem to end that long before the work
that it waited for."""
_NEVER: Final = -(1 << 62)


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
