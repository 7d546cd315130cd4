"""Sequences that are fitted to one another, against what a plain loop finds."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyprof2.analysis.graphs.sequences import (
    NO_PLACE,
    WordWindows,
    by_stream,
    embedded,
    equal_stretches,
    group_equal,
    mixed,
    ordered_hashes,
    runs_that_differ,
    sum_of,
    walked,
)

WORDS = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@given(WORDS, st.data())
def test_a_place_is_known_where_all_ways_to_embed_agree(
    long: list[int], data: st.DataObject
) -> None:
    kept = sorted(data.draw(st.sets(st.integers(0, len(long) - 1), min_size=1)))
    short = [long[at] for at in kept]
    ways = [
        way
        for way in combinations(range(len(long)), len(short))
        if [long[at] for at in way] == short
    ]
    expected = [
        places[0] if len(set(places)) == 1 else NO_PLACE for places in zip(*ways, strict=True)
    ]

    assert embedded(short, long) == expected


def test_what_is_no_part_is_not_embedded() -> None:
    assert embedded([1, 2, 9], [1, 2, 3]) is None
    assert embedded([2, 1], [1, 2]) is None


@given(st.lists(WORDS, min_size=1, max_size=6))
@example([[1, 2, 3], [3, 2, 1], [1, 2, 3]])
def test_sequences_are_grouped_as_they_are_equal(sequences: list[list[int]]) -> None:
    length = np.array([len(each) for each in sequences])
    first = np.r_[0, np.cumsum(length)[:-1]]
    words = np.concatenate([np.array(each) for each in sequences])

    found = group_equal(ordered_hashes(mixed(words), first, length), length)

    for a, one in zip(found.which, sequences, strict=True):
        for b, other in zip(found.which, sequences, strict=True):
            assert (a == b) == (one == other)
    assert [found.which[at] for at in found.first] == list(range(len(found.first)))


@given(st.lists(st.integers(0, 2), min_size=3, max_size=30), st.integers(1, 3))
def test_windows_have_the_same_words_in_whatever_order(words: list[int], length: int) -> None:
    column = np.array(words)
    wanted = sorted(words[:length])

    found = dict(WordWindows(column).of_sum(length, np.array([sum_of(column[:length])], np.uint64)))

    places = [at for at in range(len(words) - length) if sorted(words[at : at + length]) == wanted]
    # The last window ends with the last word.
    last = len(words) - length
    places += [last] if sorted(words[last:]) == wanted and last not in places else []
    assert found[0].tolist() == places


def test_stretches_that_are_equal_count_once() -> None:
    values = mixed(np.array([1, 2, 3, 1, 2, 4, 1, 2, 3]))

    assert equal_stretches(values, np.array([0, 3, 6]), 3).tolist() == [0, 3]


@pytest.mark.parametrize(
    ("streams", "order", "launches", "found"),
    [
        pytest.param([[1, 2], [3]], [[0, 2], [1]], [1, 3, 2], [[0, 2], [1]], id="words apart"),
        pytest.param(
            [[1, 2], [1, 3]], [[0, 2], [1, 3]], [1, 1, 2, 3], [[-1, 2], [-1, 3]], id="one in both"
        ),
        pytest.param(
            [[1, 2], [1, 2]], [[0, 1], [2, 3]], [1, 2, 1, 2], [[-1, -1], [-1, -1]], id="twins"
        ),
        pytest.param([[1, 2]], [[0, 1]], [2, 1], None, id="another order"),
    ],
)
def test_launches_are_walked_along_streams(
    streams: list[list[int]],
    order: list[list[int]],
    launches: list[int],
    found: list[list[int]] | None,
) -> None:
    walk = walked([*map(np.array, streams)], [*map(np.array, order)], np.array(launches))

    assert (walk if walk is None else [each.tolist() for each in walk]) == found


@given(st.lists(WORDS, min_size=2, max_size=3))
def test_a_walk_is_never_wrong(streams: list[list[int]]) -> None:
    # However the streams are put together, what is told of a node is the launch that it was.
    rng = np.random.default_rng(len(streams) * 31 + sum(map(len, streams)))
    owner = rng.permutation(np.repeat(np.arange(len(streams)), [*map(len, streams)]))
    at = [0] * len(streams)
    truth: list[list[int]] = [[] for _ in streams]
    launches = []
    for launch, stream in enumerate(owner.tolist()):
        launches.append(streams[stream][at[stream]])
        truth[stream].append(launch)
        at[stream] += 1
    order = [rng.permutation(len(each)) for each in streams]

    walk = walked([*map(np.array, streams)], order, np.array(launches))

    for found, right in zip(walk or [], truth, strict=walk is not None):
        assert all(a in (NO_PLACE, b) for a, b in zip(found.tolist(), right, strict=True))


def test_streams_that_do_the_same_are_not_told_apart() -> None:
    words, stream = np.array([1, 1, 2, 2, 7]), np.array([5, 6, 5, 6, 9])

    found = by_stream(
        [np.array([1, 2]), np.array([7]), np.array([1, 2])], np.arange(5), stream, words
    )

    assert found is not None
    assert [each.tolist() for each in found] == [[-1, -1], [4], [-1, -1]]
    assert by_stream([np.array([1, 2]), np.array([1, 2])], np.arange(5), stream, words) is None
    other = [np.array([1, 2]), np.array([7]), np.array([7])]
    assert by_stream(other, np.arange(5), stream, words) is None


def test_a_run_in_which_a_size_differs_is_not_told() -> None:
    words = np.array([1, 1, 2, 3, 3, 3, 4])
    differs = np.array([False, False, True, False, True, False, True])

    assert runs_that_differ(words, differs).tolist() == [0, 0, 0, 1, 1, 1, 0]
