"""The delay of launches, and the depth of queues, against counts at every instant."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.time.queue import launch_delays, queue_depth
from tests.builders import canonical


def tables(
    launches: list[tuple[int, int]], work: list[tuple[int, int, int | None, int]]
) -> list[Any]:
    """Return kernels, copies and launches from (start, end) and (start, end, launch, stream)."""
    rows = [
        {"start_ns": a, "dur_ns": b - a, "launch_id": launch, "device": 0, "stream": stream}
        for a, b, launch, stream in work
    ]
    calls = [{"start_ns": a, "dur_ns": b - a} for a, b in launches]
    return [canonical("kernels", *rows), canonical("copies"), canonical("launches", *calls)]


WORK = tables(
    [(0, 10), (10, 20), (20, 60)],
    [(15, 40, 0, 7), (40, 50, 1, 7), (50, 70, 2, 7), (70, 80, None, 7)],
)


def test_a_delay_is_from_the_end_of_the_launch_and_may_be_negative() -> None:
    delays = launch_delays(*WORK)

    assert delays["delay_ns"].to_pylist() == [5, 20, -10, None]
    assert delays["launch_id"].to_pylist() == [0, 1, 2, None]


def test_the_queue_has_what_is_launched_and_not_started() -> None:
    rows = queue_depth(*WORK).to_pylist()

    assert [(r["time_ns"], r["queued"], r["running"]) for r in rows] == [
        (10, 1, 0), (15, 0, 1), (20, 1, 1), (40, 0, 1), (80, 0, 0),
    ]  # fmt: skip


def test_without_work_nothing_is_queued() -> None:
    nothing = tables([(0, 10)], [])

    assert queue_depth(*nothing).num_rows == launch_delays(*nothing).num_rows == 0


TIME = st.integers(0, 20)
CALL = st.tuples(TIME, TIME).map(lambda pair: (pair[0], sum(pair)))
PIECE = st.tuples(CALL, st.none() | st.integers(0, 4), st.integers(7, 8)).map(
    lambda drawn: (*drawn[0], *drawn[1:])
)


@given(launches=st.lists(CALL, max_size=5), work=st.lists(PIECE, max_size=8))
def test_at_every_instant_it_is_what_a_count_says(
    launches: list[tuple[int, int]], work: list[tuple[int, int, int | None, int]]
) -> None:
    rows = queue_depth(*tables(launches, work)).to_pylist()

    for stream in (7, 8):
        for t in range(-1, 45):
            queued = sum(
                launches[launch][1] <= t < a
                for a, _, launch, on in work
                if on == stream and launch is not None and launch < len(launches)
            )
            running = sum(a <= t < b for a, b, _, on in work if on == stream)
            seen = [r for r in rows if r["stream"] == stream and r["time_ns"] <= t]
            assert (queued, running) == (
                (seen[-1]["queued"], seen[-1]["running"]) if seen else (0, 0)
            )
