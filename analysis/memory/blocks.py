"""Blocks: which release ends which allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof2.columns import combine_keys

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
    _pair(change, combine_keys(known.astype(np.int64), where, size), free_of)
    # What backward releases was allocated on another thread.
    rest = np.flatnonzero(~known & ~_is_paired(free_of))
    free_of[rest] = _rows(rest, _pair(change[rest], size[rest], np.full(len(rest), -1)))
    alloc = np.flatnonzero(change > 0)
    before = np.flatnonzero((change < 0) & ~_is_paired(free_of))
    by_size = bool((~known & (free_of >= 0)).any())
    return Blocks(alloc, free_of[alloc], before, by_size, _reused(change, address, known))


def _pair(change: Int, group: Int, free_of: Int) -> Int:
    """Put in the row of the release of each allocation, the last of its group that lives."""
    is_alloc = change > 0
    level = _levels(group, is_alloc)
    order = np.lexsort((np.arange(len(change)), level, group))
    first, then = order[:-1], order[1:]
    # On one level allocations and releases take turns, as opening and closing brackets do.
    paired = (group[first] == group[then]) & (level[first] == level[then])
    paired &= is_alloc[first] & ~is_alloc[then]
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


def _levels(group: Int, is_alloc: Bool) -> Int:
    """Return how many of its group live: after an allocation, and before a release."""
    order = np.argsort(group, kind="stable")
    step = np.where(is_alloc[order], 1, -1)
    total = np.cumsum(step)
    begins = np.r_[True, group[order][1:] != group[order][:-1]][: len(order)]
    offset = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    inside = total - (total - step)[offset] if len(order) else total
    level = np.empty(len(order), np.int64)
    level[order] = inside + (step < 0)
    return level


def _reused(change: Int, address: Int, known: Bool) -> int:
    rows = np.flatnonzero(known)
    order = rows[np.argsort(address[rows], kind="stable")]
    same = address[order][1:] == address[order][:-1]
    return int((same & (change[order][1:] > 0) & (change[order][:-1] > 0)).sum())
