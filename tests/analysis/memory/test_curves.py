"""Which release ends which allocation: against a list that is kept event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.memory.curves import find_blocks

Event = tuple[int, int, int]
"""Bytes, address (-1: not recorded) and thread."""


def _find(events: list[Event]) -> tuple[dict[int, int], list[int]]:
    change, address, thread = np.array(events, np.int64).reshape(-1, 3).T
    found = find_blocks(change, address, thread)
    return dict(zip(found.alloc.tolist(), found.free.tolist(), strict=True)), found.before.tolist()


def _slowly(events: list[Event]) -> tuple[dict[int, int], list[int]]:
    """Return the same with a stack for each address and size, event by event."""
    ends = {row: -1 for row, (size, _, _) in enumerate(events) if size > 0}
    live: dict[tuple[int, int], list[int]] = {}
    before = []
    for row, (size, address, _) in enumerate(events):
        stack = live.setdefault((address, abs(size)), [])
        if size > 0:
            stack.append(row)
        elif stack:
            ends[stack.pop()] = row
        else:
            before.append(row)
    return ends, before


@pytest.mark.parametrize(
    ("events", "ends", "before"),
    [
        pytest.param([(8, 1, 0), (-8, 1, 0)], {0: 1}, [], id="one block"),
        pytest.param([(-8, 1, 0), (8, 1, 0)], {1: -1}, [0], id="released before allocated"),
        pytest.param([(8, 1, 0), (-8, 1, 0), (8, 1, 0)], {0: 1, 2: -1}, [], id="address again"),
        pytest.param([(8, 1, 0), (8, 2, 0), (-8, 1, 0)], {0: 2, 1: -1}, [], id="two addresses"),
        pytest.param([(8, 1, 0), (-4, 1, 0)], {0: -1}, [1], id="another size"),
        pytest.param([(8, 1, 0), (-8, 1, 1)], {0: 1}, [], id="address, other thread"),
        pytest.param([(8, -1, 0), (8, -1, 1), (-8, -1, 0)], {0: 2, 1: -1}, [], id="own thread"),
        pytest.param([(8, -1, 0), (8, -1, 0), (-8, -1, 0)], {0: -1, 1: 2}, [], id="the latest"),
        pytest.param(
            [(8, 1, 0), (8, 1, 0), (-8, 1, 0), (-8, 1, 0)], {0: 3, 1: 2}, [], id="one in another"
        ),
        pytest.param([(8, -1, 0), (-8, -1, 1)], {0: 1}, [], id="released by another thread"),
        pytest.param([(8, -1, 0), (-8, 5, 0)], {0: -1}, [1], id="address on one side only"),
        pytest.param([], {}, [], id="nothing"),
    ],
)
def test_a_release_ends_the_last_block_of_its_address_or_size(
    events: list[Event], ends: dict[int, int], before: list[int]
) -> None:
    assert _find(events) == (ends, before)


_EVENTS = st.lists(
    st.tuples(st.sampled_from([8, -8, 16, -16]), st.integers(0, 3), st.integers(0, 2)), max_size=60
)


@given(_EVENTS)
def test_blocks_with_addresses_are_those_of_a_list_kept_event_by_event(events: list[Event]) -> None:
    assert _find(events) == _slowly(events)


@given(_EVENTS)
def test_without_addresses_as_many_blocks_live_after_each_event(events: list[Event]) -> None:
    blind = [(size, -1, thread) for size, _, thread in events]
    ends, before = _find(blind)

    for row in range(len(blind)):
        live = sum(blind[a][0] for a, free in ends.items() if a <= row and not 0 <= free <= row)
        gone = sum(blind[b][0] for b in before if b <= row)
        assert live + gone == sum(size for size, _, _ in blind[: row + 1])


def test_an_address_that_is_allocated_twice_is_counted() -> None:
    found = find_blocks(np.array([8, 8, -8, 8]), np.array([1, 1, 1, 2]), np.zeros(4, np.int64))

    assert found.reused == 1


def test_releases_that_were_found_by_size_are_said_so() -> None:
    change, thread = np.array([8, -8]), np.zeros(2, np.int64)

    assert find_blocks(change, np.array([-1, -1]), thread).by_size
    assert not find_blocks(change, np.array([1, 1]), thread).by_size
