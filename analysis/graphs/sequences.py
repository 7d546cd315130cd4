"""Sequences of words, which the nodes of graphs are: hashed, grouped, and fitted to one another.

A word is a number that stands for the name of a kernel; every copy and fill has the same one.
Sums of random numbers wrap around in 64 bits: two sequences have one sum by chance once in 2^64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import numpy as np

from pyprof2.columns import groups_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from pyprof2.analysis.intervals import Bool, Int

Hashes: TypeAlias = "NDArray[np.uint64]"

UNKNOWN_WORD: Final = -1
"""The word of a launch whose kernel's name is not recorded."""
LOST_SHARE: Final = 0.01
"""A recording may lack this share of a graph's nodes, or one of them."""
NO_PLACE: Final = -1

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = ((np.uint64(30), 0xBF58476D1CE4E5B9), (np.uint64(27), 0x94D049BB133111EB))
_BASE: Final = 0xD6E8FEB86659FD93
_BASE_INVERSE: Final = pow(_BASE, -1, 1 << 64)


def mixed(*columns: Int) -> Hashes:
    """Return a number for each row that looks random: equal where all columns are.

    By the finaliser of SplitMix64 (Steele et al., OOPSLA 2014).
    """
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found + column.astype(np.uint64) + np.uint64(1)) * _STEP
        for shift, factor in _MIX:
            found = (found ^ (found >> shift)) * np.uint64(factor)
        found ^= found >> np.uint64(31)
    return found


def _powers(base: int, count: int) -> Hashes:
    factors = np.full(max(1, count), base, np.uint64)
    factors[0] = 1
    return np.cumprod(factors)[:count]


def ordered_hashes(values: Hashes, first: Int, length: Int) -> Hashes:
    """Return a hash of each group of rows, which depends on their order.

    Args:
        values: of all rows; those of a group follow one another.
        first: the first row of each group; none overlap.
        length: of each.
    """
    place = np.arange(len(values)) - np.repeat(first, length)
    weights = _powers(_BASE, int(length.max(initial=0)))
    found = np.zeros(len(first), np.uint64)
    has_rows = length > 0
    if has_rows.any():
        found[has_rows] = np.add.reduceat(values * weights[place], first[has_rows])
    return found


class WordWindows:
    """Stretches of a sequence, found by the sum of their words."""

    def __init__(self, words: Int) -> None:
        self._sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed(words))))

    def of_sum(self, length: int, wanted: Hashes) -> Iterator[tuple[int, Int]]:
        """Yield the number of each wanted sum, and where stretches begin that have it."""
        if length >= len(self._sums):
            return
        sums = self._sums[length:] - self._sums[:-length]
        places = np.flatnonzero(np.isin(sums, wanted))
        for number, each in enumerate(wanted.tolist()):
            begins = places[sums[places] == each]
            if len(begins):
                yield number, begins


def equal_stretches(values: Hashes, begins: Int, length: int) -> Int:
    """Return where distinct stretches begin first, among those that begin at these rows."""
    weighted = values * _powers(_BASE, len(values))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(weighted)))
    back = _powers(_BASE_INVERSE, len(values) + 1)
    _, first = np.unique((sums[begins + length] - sums[begins]) * back[begins], return_index=True)
    return begins[np.sort(first)]


def sum_of(words: Int) -> int:
    """Return the sum of a sequence's words, whatever their order; see `WordWindows`."""
    return int(mixed(words).sum(dtype=np.uint64))


class Grouped(NamedTuple):
    """Sequences that are equal, each once.

    Attributes:
        first: of each distinct sequence, the first that is equal to it.
        which: of each sequence, the distinct one that it is.
    """

    first: Int
    which: Int


def group_equal(hashes: Hashes, length: Int) -> Grouped:
    """Return the distinct sequences, by hash and length."""
    return Grouped(*groups_of(mixed(hashes.view(np.int64), length).view(np.int64)))


def embedded(short: Sequence[int], long: Sequence[int]) -> list[int] | None:
    """Return where each word of a sequence stands in a longer one that has all of them in order.

    Words that may stand in several places are at `NO_PLACE`: those whose leftmost and rightmost
    place differ. None: it has not all of them.
    """
    left = _leftmost(short, long)
    if left is None:
        return None
    last = len(long) - 1
    mirrored = _leftmost(short[::-1], long[::-1])
    right = [last - at for at in reversed(mirrored or [])]
    return [a if a == b else NO_PLACE for a, b in zip(left, right, strict=True)]


def _leftmost(short: Sequence[int], long: Sequence[int]) -> list[int] | None:
    places, at, spare = [], 0, len(long) - len(short)
    for word in short:
        while at < len(long) and long[at] != word:
            at, spare = at + 1, spare - 1
        if at == len(long) or spare < 0:
            return None
        places.append(at)
        at += 1
    return places


def walked(streams: Sequence[Int], order: Sequence[Int], words: Int) -> list[Int] | None:
    """Return of each row of each stream the launch that it is, in the order of the launches.

    Each launch is the next row of the one stream that has its word next. Where several have it,
    the earliest is taken, and the node is not known: `NO_PLACE`. From there on it is not known how
    far these streams are, until one comes to a word that no other stream has. None: no stream has
    the word of a launch next.

    Args:
        streams: the words of each stream.
        order: of each of their rows, its place among all in order of time.
        words: of the launches.
    """
    found = [np.full(len(stream), NO_PLACE) for stream in streams]
    texts, times = [s.tolist() for s in streams], [o.tolist() for o in order]
    having: dict[int, list[int]] = {}
    for stream, own in enumerate(texts):
        for word in dict.fromkeys(own):
            having.setdefault(word, []).append(stream)
    at, unsure = [0] * len(texts), [False] * len(texts)
    for launch, word in enumerate(words.tolist()):
        holders = having.get(word, ())
        heads = [s for s in holders if at[s] < len(texts[s]) and texts[s][at[s]] == word]
        if not heads:
            return None
        stream = min(heads, key=lambda s: times[s][at[s]])
        if len(holders) == 1:
            unsure[stream] = False
        elif len(heads) > 1:
            for each in heads:
                unsure[each] = True
        if not any(unsure[each] for each in holders):
            found[stream][at[stream]] = launch
        at[stream] += 1
    return found


def by_stream(
    streams: Sequence[Int], launches: Int, stream_of: Int, words: Int
) -> list[Int] | None:
    """Return of each row of each stream the eager launch that it is.

    Each stream has the words of exactly one of the launches' streams, in its order. Where several
    have them, its rows are at `NO_PLACE`. None: none has, or launches are left over.

    Args:
        streams: the words of each stream of the replay.
        launches: the rows of the launches, in order.
        stream_of: of each of these rows.
        words: of each of these rows.
    """
    own = [launches[stream_of == stream] for stream in np.unique(stream_of).tolist()]
    if len(own) != len(streams):
        return None
    texts = [words[stream_of == stream].tobytes() for stream in np.unique(stream_of).tolist()]
    wanted = [stream.astype(words.dtype).tobytes() for stream in streams]
    if sorted(texts) != sorted(wanted):
        return None
    return [
        own[texts.index(text)] if texts.count(text) == 1 else np.full(len(stream), NO_PLACE)
        for text, stream in zip(wanted, streams, strict=True)
    ]


def runs_that_differ(words: Int, differs: Bool) -> Bool:
    """Return the rows in runs of equal words, two or more, in which a size differs.

    A row that a recording lacks shifts those of its run: which of them it was is not known.
    """
    begins = np.r_[True, words[1:] != words[:-1]][: len(words)]
    run = np.cumsum(begins) - 1
    count = np.bincount(run)
    found: Bool = (np.bincount(run, differs) > 0)[run] & (count[run] > 1)
    return found
