"""Which release ends which allocation: against a list that is kept event by event."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.chunked import InMemory, chunks_of
from pyprof2.analysis.memory.curves import (
    EVENTS_NEEDED,
    HELD_NEEDED,
    curves_of_rank,
    find_blocks,
    most_held,
)
from pyprof2.analysis.memory.retained import forward_times
from tests.builders import canonical

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


_DEVICES = st.sampled_from([("cuda", 0), ("cuda", 1), ("cpu", None), (None, None), ("hip", 0)])


@given(st.lists(st.tuples(_DEVICES, st.integers(-9, 9)), max_size=20), st.integers(1, 20))
def test_each_device_has_the_events_that_are_its_own(
    events: list[tuple[tuple[str | None, int | None], int]], size: int
) -> None:
    rows = (
        {"time_ns": at, "device_type": kind, "device": device, "bytes": change}
        for at, ((kind, device), change) in enumerate(events)
    )
    parts = chunks_of(InMemory.cut(canonical("memory", *rows), size), EVENTS_NEEDED)

    found = list(curves_of_rank(parts, canonical("memory_tags"), 0))

    expected: dict[tuple[str, int | None], list[int]] = {}
    for (kind, device), change in events:
        expected.setdefault((kind or "unknown", device), []).append(change)
    assert [((c.device_type, c.device), c.change.tolist()) for c in found] == sorted(
        expected.items(), key=lambda item: (item[0][0], item[0][1] is not None, item[0][1])
    )


_STEPS = st.sampled_from([None, None, 1, 2])
_FORWARD_ROWS = st.tuples(
    st.sampled_from(["a", "a.b", None]), st.sampled_from(["forward", "forward", "backward", None]),
    st.sampled_from([False, None, True]), _STEPS, st.integers(0, 99),
)  # fmt: skip


@given(st.lists(_FORWARD_ROWS, max_size=20), st.integers(1, 4))
def test_the_time_of_forward_is_a_mean_over_its_steps(
    rows: list[tuple[str | None, str | None, bool | None, int | None, int]], size: int
) -> None:
    names = ("layer", "direction", "recompute", "step", "dur_ns")
    table = canonical("kernels", *(dict(zip(names, row, strict=True)) for row in rows))

    found = forward_times(chunks_of(InMemory.cut(table, size), names), "dur_ns")

    own = [(layer, step, time) for layer, way, again, step, time in rows
           if layer and way == "forward" and not again]  # fmt: skip
    if any(step is not None for *_, step, _ in rows):
        own = [each for each in own if each[1] is not None]
    steps = max(1, len({step for _, step, _ in own} - {None}))
    sums: dict[str, int] = {}
    for layer, _, time in own:
        sums[layer] = sums.get(layer, 0) + time
    assert dict(zip(found["layer"], found["time_ns"], strict=True)) == {
        layer: round(time / steps) for layer, time in sums.items()
    }


@pytest.mark.parametrize("known", ["allocated_bytes", "reserved_bytes", "both", "neither"])
@given(seed=st.integers(0, 2**32 - 1))
def test_the_most_that_is_held_is_that_of_curves(known: str, seed: int) -> None:
    """Where addresses come twice, and totals jump, what is allocated is not known."""
    random = np.random.default_rng(seed)
    size = random.choice([-8, 8, 16], 6)
    total = np.cumsum(size) + 100 + np.where(random.random(6) < 0.1, 1, 0)
    more = {"allocated_bytes": total, "reserved_bytes": random.integers(90, 140, 6)}
    rows = [
        {"rank": 0, "time_ns": at, "device_type": random.choice(["cuda", "cpu"], p=[0.9, 0.1])}
        | {"device": int(random.integers(2)), "bytes": int(size[at])}
        | {"address": int(random.integers(3))}
        | {name: int(of[at]) for name, of in more.items() if known in (name, "both")}
        for at in range(6)
    ]
    table = canonical("memory", *rows)

    curves = list(curves_of_rank([table.select(EVENTS_NEEDED)], canonical("memory_tags"), 0))

    held = [
        found
        for curve in curves
        if curve.device_type != "cpu"
        for found in (
            curve.facts["peak_reserved_bytes"],
            None if curve.base is None else curve.base + curve.over_base(curve.peak),
        )
        if found is not None
    ]
    assert most_held([table.select(HELD_NEEDED)]) == max(held, default=None)
