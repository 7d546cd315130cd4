"""Sets of rows: how many things have just the same ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pyprof2.columns import distinct, first_rows, sorted_distinct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyprof2.analysis.intervals import Int


class Sets(NamedTuple):
    """Sets of rows, the members of one after those of the other.

    Attributes:
        first: where the members of each begin, and one more: where the last ends.
        rows: the members, in ascending order.
    """

    first: Int
    rows: Int


def picked(sets: Sets, which: Int) -> Sets:
    """Return some of the sets, in this order."""
    length = np.diff(sets.first)[which]
    first = np.r_[0, np.cumsum(length)]
    at = np.arange(first[-1]) - np.repeat(first[:-1], length) + np.repeat(sets.first[which], length)
    return Sets(first, sets.rows[at])


def joined(parts: Sequence[Sets], before: Int) -> Sets:
    """Return sets one after another, their members counted on from so many rows before each."""
    lengths = [np.diff(each.first) for each in parts]
    rows = [each.rows + first for each, first in zip(parts, before.tolist(), strict=False)]
    return Sets(np.r_[0, np.cumsum(np.concatenate(lengths))], np.concatenate(rows))


def distinct_sets(owner: Int, member: Int) -> tuple[Sets, Int]:
    """Return the distinct sets of members that owners have, and the set of each owner.

    Args:
        owner: a number below 2³¹, not negative; an owner may have a member more than once.
        member: the same.

    Returns:
        The sets, and for each distinct owner, in ascending order, which of them it has.
    """
    size = int(member.max(initial=0)) + 1
    pairs = sorted_distinct(owner * size + member)
    of, members = pairs // size, pairs % size
    begin = np.flatnonzero(np.diff(of, prepend=-1))
    length = np.diff(np.r_[begin, len(of)])
    # Most have one member, which is their number. Others that agree so far have one number, and
    # keep it when their members have come to an end.
    which = members[begin]
    used = size
    several = np.flatnonzero(length > 1)
    for place in range(1, int(length.max(initial=0))):
        more = several[length[several] > place]
        codes = which[more] * size + members[begin[more] + place]
        values, inverse = distinct(codes)
        which[more] = used + inverse
        used += len(values)
    values, which = distinct(which)
    every = Sets(np.r_[begin, len(of)].astype(np.int64), members)
    return picked(every, first_rows(which, len(values))), which
