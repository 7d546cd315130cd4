"""Blocks: which release ends which allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from pyprof2.analysis.intervals import Bool, Int


class Blocks(NamedTuple):
    """The blocks of one device, as rows of its events.

    Attributes:
        alloc: the row of each allocation, ascending.
        free: the row of its release, -1 for none.
        before: the rows of releases of blocks that were there before the recording.
        by_size: whether any release found its allocation by its size, for want of an address.
        reused: allocations at an address whose last block has no release.
    """

    alloc: Int
    free: Int
    before: Int
    by_size: bool
    reused: int


def find_blocks(change: Int, address: Int, thread: Int) -> Blocks:
    """Pair allocations and releases of one device, which are in order.

    A release ends the last allocation of its address and size that still lives; without addresses
    the last one of its size on its thread, or where none lives there, on any other.

    Args:
        change: bytes, negative for a release.
        address: -1 for unknown.
        thread: a number for each thread.
    """
    known = address >= 0
    size, where = np.abs(change), np.where(known, address, thread)
    free_of = np.full(len(change), -1)
    _pair(change, (size, where, known), free_of)
    # What backward releases was allocated on another thread.
    rest = np.flatnonzero(~known & ~_is_paired(free_of))
    free_of[rest] = _rows(rest, _pair(change[rest], (size[rest],), np.full(len(rest), -1)))
    alloc = np.flatnonzero(change > 0)
    before = np.flatnonzero((change < 0) & ~_is_paired(free_of))
    by_size = bool((~known & (free_of >= 0)).any())
    return Blocks(alloc, free_of[alloc], before, by_size, _reused(change, address, known))


def _pair(change: Int, keys: tuple[Int | Bool, ...], free_of: Int) -> Int:
    """Put in the row of the release of each allocation, the last of its group that lives.

    Events whose `keys` are all equal are a group.
    """
    if not len(change):
        return free_of
    order = np.lexsort([key for key in keys if key.min() != key.max()] or keys[:1])
    begins = np.r_[True, np.zeros(len(order) - 1, bool)]
    for key in keys:
        begins[1:] |= key[order[1:]] != key[order[:-1]]
    level = _levels(begins, change[order] > 0)
    group = np.cumsum(begins)
    # Where a block is never allocated twice at a time, they take turns as they are.
    if level.min() != level.max():
        again = np.lexsort((level, group))
        order, level, group = order[again], level[again], group[again]
    first, then = order[:-1], order[1:]
    # On one level allocations and releases take turns, as opening and closing brackets do.
    paired = (group[:-1] == group[1:]) & (level[:-1] == level[1:])
    paired &= (change[first] > 0) & (change[then] < 0)
    free_of[first[paired]] = then[paired]
    return free_of


def _is_paired(free_of: Int) -> Bool:
    """Return which events are an allocation with a release, or that release."""
    paired: Bool = free_of >= 0
    paired = paired.copy()
    paired[free_of[free_of >= 0]] = True
    return paired


def _rows(of: Int, places: Int) -> Int:
    return np.where(places >= 0, of[places], -1) if len(of) else places


def _levels(begins: Bool, is_alloc: Bool) -> Int:
    """Return how many of its group live: after an allocation, and before a release.

    Args:
        begins: whether a group begins at this event; groups stand together, each in order.
        is_alloc: whether it is an allocation.
    """
    step = np.where(is_alloc, 1, -1)
    total = np.cumsum(step)
    offset = np.maximum.accumulate(np.where(begins, np.arange(len(begins)), 0))
    level: Int = total - (total - step)[offset] + ~is_alloc
    return level


def _reused(change: Int, address: Int, known: Bool) -> int:
    rows = np.flatnonzero(known)
    order = rows[np.argsort(address[rows], kind="stable")]
    same = address[order][1:] == address[order][:-1]
    return int((same & (change[order][1:] > 0) & (change[order][:-1] > 0)).sum())
