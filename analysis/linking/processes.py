"""Which process launched each GPU activity, where the recorder does not say it.

Correlation ids count within a process. In a file that several processes were merged into, a
launch of the right id may be another process's. What tells them apart: the recorder's own id of
the op, which the launch has too; that an id occurs in one of the processes only, or that only one
launched before the activity began; else that all other work of the device is of one process.
"""

from __future__ import annotations

import numpy as np

from pyprof2.analysis.intervals import Bool, Int, last_not_after
from pyprof2.columns import lookup, order_of


def choose_processes(claims: Bool, named: Bool, device: Int) -> Int:
    """Return the process of each activity as a position, -1 where it cannot be known.

    Args:
        claims: by process and activity, whether the process may have launched it.
        named: the same, whether the recorder's own id says so.
        device: of each activity.
    """
    choice = np.where(claims.sum(axis=0) == 1, claims.argmax(axis=0), -1)
    choice = np.where(named.sum(axis=0) == 1, named.argmax(axis=0), choice)
    _, place = np.unique(device, return_inverse=True)
    used = np.zeros((place.max(initial=-1) + 1, len(claims)), bool)
    used[place[choice >= 0], choice[choice >= 0]] = True
    only = np.where(used.sum(axis=1) == 1, used.argmax(axis=1), -1)[place]
    may_be = (only >= 0) & claims[only, np.arange(len(only))]
    return np.where((choice < 0) & may_be, only, choice)


def candidates(key: Int, start: Int, wanted: Int, time: Int) -> tuple[Int, Bool]:
    """Return for each activity the last launch of its id that starts not after it, by position.

    Args:
        key: the correlation id of each launch, in any order.
        start: the start of each launch.
        wanted: the correlation id of each activity.
        time: the start of each activity.

    Returns:
        Positions among the launches; where all launches of the id are later, the first of them; -1
        where there is none. And whether it starts not after the activity.
    """
    order = order_of(key, start)
    found, is_before = among_sorted(key[order], start[order], wanted, time)
    return lookup(order, found, -1), is_before


def among_sorted(key: Int, start: Int, wanted: Int, time: Int) -> tuple[Int, Bool]:
    """Return what `candidates` does, of launches that are sorted by id and start."""
    if not len(key):
        return np.full(len(wanted), -1, np.int64), np.zeros(len(wanted), bool)
    found = last_not_after(key, start, wanted, time)
    is_before = found >= 0
    # A clock that drifts can put the kernel before its launch.
    first = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
    late = ~is_before & (key[first] == wanted)
    found[late] = first[late]
    return found, is_before
