"""Replay of event tables: by hand, and against a slow reader of the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.job.replay import (
    CircleError,
    Graph,
    recorded_lags,
    replay,
    replay_events,
    way_back,
)
from pyprof2.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["0", "1"], ids=["compiled", "pure"], autouse=True, scope="module")
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run all tests with `_nest.c`, where it is built, and without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYPROF2_PURE", request.param)
        yield


def _events(*rows: tuple[Any, ...], columns: str) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns.split())


def _edges(*rows: tuple[Any, ...], lag: bool = False) -> pd.DataFrame:
    names = ["before", "after", "lag_ns"] if lag else ["before", "after"]
    return pd.DataFrame(rows, columns=names)


def test_an_event_starts_when_the_last_one_it_waits_for_has_ended() -> None:
    events = _events(("a", 3), ("b", 5), ("c", 2), columns="event dur_ns")

    found = replay_events(events, _edges(("a", "c", 4), ("b", "c", 1), lag=True))

    assert found["start_ns"].tolist() == [0, 0, 7]
    assert found["end_ns"].tolist() == [3, 5, 9]
    assert found["after"].tolist() == [None, None, "a"]


def test_members_end_the_transfer_after_the_last_start() -> None:
    """Three ranks by hand: own work as events between two collectives."""
    own = [(100, 200), (150, 178), (130, 262)]
    transfer = [(50, 60), (52, 58), (48, 61)]
    rows, edges = [], []
    for rank in range(3):
        for n in range(2):
            rows += [
                (f"own {rank} {n}", own[rank][n], None, 0),
                (f"all {rank} {n}", 0, n, transfer[rank][n]),
            ]
            edges += [(f"own {rank} {n}", f"all {rank} {n}")]
        edges += [(f"all {rank} 0", f"own {rank} 1")]
    events = _events(*rows, columns="event dur_ns instance transfer_ns").astype(
        {"instance": "Int64"}
    )

    found = replay_events(events, _edges(*edges)).set_index("event")

    assert [found.loc[f"all {r} {n}", "end_ns"] for r in range(3) for n in range(2)] == [
        200, 520, 202, 518, 198, 521,
    ]  # fmt: skip
    faster = events.assign(
        dur_ns=events["dur_ns"]
        .mask(events["event"] == "own 2 0", 125)
        .mask(events["event"] == "own 2 1", 189)
    )
    assert replay_events(faster, _edges(*edges))["end_ns"].max() == 461


def test_the_edge_that_ended_last_carries_the_lag() -> None:
    events = _events(("a", 0, 10), ("b", 0, 4), ("c", 12, 5), columns="event start_ns dur_ns")
    edges = _edges(("a", "c"), ("b", "c"))

    assert replay_events(events, edges)["start_ns"].tolist() == [0, 0, 12]
    faster = events.assign(dur_ns=[1, 4, 5])
    # The lag is the recording's, so it has to be given with other durations.
    lags = edges.assign(lag_ns=[2, 0])
    assert replay_events(faster, lags)["start_ns"].tolist() == [0, 0, 4]


def test_what_begins_before_its_predecessor_ends_is_that_much_early() -> None:
    events = _events(("a", 0, 10), ("b", 0, 9), ("c", 7, 5), columns="event start_ns dur_ns")

    found = replay_events(events, _edges(("a", "c"), ("b", "c")))

    assert found["start_ns"].tolist() == [0, 0, 7]


def test_the_way_back_goes_by_the_edges_that_starts_rest_on() -> None:
    """Event 2 waits longest for 1, and 3 for 2; nothing that 4 does is on the way."""
    duration, base = np.array([3, 5, 2, 1, 9]), np.zeros(5, np.int64)
    source, target = np.array([0, 1, 2, 0, 0]), np.array([2, 2, 3, 3, 4])
    graph = Graph.of(duration, base, (source, target, np.array([1, 0, 0, 2, 0])))

    found = replay(graph, is_bound=True)

    assert found.end.tolist() == [3, 5, 7, 8, 12]
    assert found.binding.tolist() == [-1, -1, 1, 2, 4]
    assert way_back(found.binding, graph, 3).tolist() == [3, 2, 1]
    assert not len(replay(graph).binding)


def test_a_hint_by_which_an_edge_goes_back_is_not_followed() -> None:
    """Event 0 waits for 1, which is recorded as later."""
    edges = (np.array([1]), np.array([0]), np.array([4]))

    graph = Graph.of(np.array([1, 2]), np.zeros(2, np.int64), edges, np.array([0, 5]))

    assert graph.order.tolist() == [1, 0]
    assert replay(graph).end.tolist() == [7, 2]


def test_of_those_that_ended_last_the_first_carries_the_lag() -> None:
    start, end = np.array([0, 0, 12, 4]), np.array([5, 5, 20, 9])

    lags = recorded_lags(start, end, np.array([0, 1, 0]), np.array([0, 0, 0, 2, 3]))

    assert lags.tolist() == [7, 0, -1]


def test_times_that_are_no_whole_numbers_stay_so() -> None:
    events = _events(("a", 0.25), ("b", 0.5), columns="event dur_ns")

    found = replay_events(events, _edges(("a", "b", 1e-7), lag=True))

    assert found["end_ns"].tolist() == pytest.approx([0.25, 0.7500001], abs=1e-12)


def test_a_circle_is_an_error_that_names_events() -> None:
    events = _events(("a", 1), ("b", 1), ("c", 1), columns="event dur_ns")

    with pytest.raises(CircleError, match="2 events wait for one another in a circle"):
        replay_events(events, _edges(("b", "c"), ("c", "b"), ("a", "b")))


@pytest.mark.parametrize(
    ("edges", "words"),
    [(_edges(("a", "z")), "'z', which is not in the table"), (_edges(("a", "a")), "circle")],
)
def test_edges_that_make_no_sense_are_said(edges: pd.DataFrame, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        replay_events(_events(("a", 1), columns="event dur_ns"), edges)


@given(st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_a_recording_replays_to_itself(count: int, seed: int) -> None:
    """Any starts, any edges forward in time: 0 ns from the recording."""
    random = np.random.default_rng(seed)
    start = np.sort(random.integers(0, 50, count))
    frame = pd.DataFrame(
        {"event": range(count), "start_ns": start, "dur_ns": random.integers(0, 30, count)}
    )
    pairs = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.3]

    found = replay_events(frame, pd.DataFrame(pairs, columns=["before", "after"]))

    assert found["start_ns"].tolist() == start.tolist()


@given(st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_against_a_slow_reader(count: int, seed: int) -> None:
    """Repeat the definition until nothing moves."""
    random = np.random.default_rng(seed)
    dur, lag = random.integers(0, 30, count), random.integers(0, 9, (count, count))
    instance = random.integers(0, 3, count)
    pairs = [(a, b) for b in range(count) for a in range(b) if random.random() < 0.4]
    # Members of one instance do not wait for one another.
    pairs = [(a, b) for a, b in pairs if instance[a] < instance[b]]
    frame = pd.DataFrame(
        {"event": range(count), "dur_ns": dur, "transfer_ns": dur, "instance": instance}
    )
    edges = pd.DataFrame(
        [(a, b, lag[a, b]) for a, b in pairs], columns=["before", "after", "lag_ns"]
    )
    start, end = [0] * count, [0] * count
    for _ in range(count + 1):
        last = [
            max(start[m] for m in range(count) if instance[m] == instance[e]) for e in range(count)
        ]
        end = [last[e] + dur[e] for e in range(count)]
        start = [
            max([end[a] + lag[a, b] for a, b in pairs if b == e], default=0) for e in range(count)
        ]

    found = replay_events(frame, edges)

    assert found["start_ns"].tolist() == start
    assert found["end_ns"].tolist() == end
