"""Matching, clocks, wait and transfer: by hand, where every number is in the test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pyprof2.analysis.job.clocks import Clock, clock_frame, compare_clocks, slope
from pyprof2.analysis.job.instances import Recordings, match_members
from pyprof2.analysis.job.reduce import machines, ranks_of_other_job, reduce_job
from pyprof2.analysis.job.waits import bandwidths, payload, with_waits
from pyprof2.parsers.formats import SESSIONS
from tests.analysis.job.job_members import by_hand, members, traces

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd


def _matched(*rows: dict[str, Any], one_clock: bool = False) -> pd.DataFrame:
    return match_members(members(*rows), Recordings(one_clock))


def test_three_ranks_by_hand_have_the_clocks_of_the_ends() -> None:
    found = clock_frame(reduce_job(by_hand(), traces(3)).clocks).set_index("rank")

    assert found["offset_ns"].tolist() == [0, 1000, -500.5]
    assert found.loc[[1, 2], ["lo_ns", "hi_ns"]].to_numpy().tolist() == [[950, 1102], [-560, -402]]
    assert found["applied"].tolist() == [False, True, True]


def _cut(first: dict[int, int], count: int, **more: Any) -> list[dict[str, Any]]:
    """Return calls of two sizes in turn, each 60 ns after 100 more; ranks begin at other calls."""
    return [
        {"rank": rank, "start_ns": 100 * n + 10 * rank, "dur_ns": 60 - 10 * rank,
         "in_bytes": 4 + n % 2, "collective_id": n - begin} | more
        for rank, begin in first.items()
        for n in range(begin, count)
    ]  # fmt: skip


@pytest.mark.parametrize("first", [{0: 0, 1: 1}, {0: 0, 1: 2}, {0: 2, 1: 0}, {0: 3, 1: 0, 2: 2}])
def test_ranks_that_were_cut_at_one_instant_meet_where_they_overlap(first: dict[int, int]) -> None:
    """A rank that begins two calls later has the same sizes, in other calls."""
    rows = _cut(first, 40)
    found = _matched(*rows, one_clock=True)

    begin = max(first.values())
    is_common = found["start_ns"] >= 100 * begin
    assert set(found["match"][is_common]) == {"order_kind"}
    number = found["start_ns"] // 100
    assert (found["instance_id"][is_common] == number[is_common] - begin).all()
    assert set(found["match_note"][~is_common]) == {
        "not all ranks were recorded when it was called"
    }


def test_ranks_that_never_overlap_are_not_shifted() -> None:
    """All ways of counting are as good: those of order stay, which the clocks are held against."""
    apart = [row | {"start_ns": row["start_ns"] + 60 * row["rank"], "dur_ns": 1}
             for row in _cut({0: 0, 1: 1}, 40)]  # fmt: skip
    assert set(_matched(*apart, one_clock=True)["match"]) == {"unmatched"}


def test_three_ranks_by_hand_wait_and_transfer() -> None:
    matched = match_members(by_hand((0, 0, 0)), Recordings(one_clock=True))
    found = with_waits(matched, {rank: Clock(rank, 0) for rank in range(3)})

    assert found["wait_ns"].tolist() == [50, 60, 0, 80, 20, 0]
    assert found["transfer_ns"].tolist() == [50, 60, 52, 58, 48, 61]
    assert found["last_rank"].tolist() == [1, 2, 1, 2, 1, 2]
    assert found["margin_ns"].tolist() == [20, 60, 20, 60, 20, 60]


def test_wait_and_transfer_are_the_duration_on_any_clocks() -> None:
    found = reduce_job(by_hand((0, 10**9, -7 * 10**12)), traces(3)).members

    assert (found["wait_ns"] + found["transfer_ns"]).tolist() == found["dur_ns"].tolist()
    assert found["last_rank"].tolist() == [1, 2, 1, 2, 1, 2]


def test_a_clock_ten_years_off_loses_no_nanosecond() -> None:
    far = 3 * 10**17 + 1
    start, end = np.array([100, 400]), np.array([200, 520])

    clock = compare_clocks((start + far, end + far), (start, end), np.zeros(2, int), (1, 0))

    assert (clock.base, clock.offset, clock.lo, clock.hi) == (far, 0, -100, 100)


def test_drift_is_the_slope_and_noise_has_none() -> None:
    t = np.arange(0, 10**9, 10**7, dtype=float)
    noise = np.random.default_rng(1).normal(0, 1000, len(t))

    assert slope(t, 5e-6 * t) == pytest.approx(5e-6)
    assert slope(t, noise) == 0
    assert slope(t[:9], 5e-6 * t[:9]) == 0


def test_a_drift_is_taken_out_of_offset_bound_and_starts() -> None:
    t = np.arange(0, 10**9, 10**7)
    own = np.rint((t + 5000) * (1 + 5e-6)).astype(np.int64)
    clock = compare_clocks((own, own + 100), (t, t + 100), np.zeros(len(t), int), (1, 0))

    assert clock.drift == pytest.approx(5e-6, rel=1e-3)
    moved = Clock(**(vars(clock) | {"applied": True})).aligned(own)
    assert np.abs(moved - t).max() <= 2


def test_ranks_of_one_host_are_not_moved_unless_it_is_certain() -> None:
    apart = reduce_job(by_hand(), traces(3, host="a"))
    near = reduce_job(by_hand((0, 20, -20)), traces(3, host="a"))

    assert {r: c.applied for r, c in apart.clocks.items()} == {0: False, 1: True, 2: True}
    assert {c.reason for r, c in near.clocks.items() if r} == {"one clock"}
    assert {c.error for c in near.clocks.values()} == {0}


def test_what_no_clock_explains_is_not_aligned() -> None:
    frame = by_hand((0, 0, 0))
    frame["start_ns"] += [0, 0, 10**6, 0, 0, 0]

    found = reduce_job(frame, traces(3))

    assert found.clocks[1].reason.startswith("no offset and drift fit")
    assert found.members["wait_ns"].isna().all()
    assert found.members["match_note"].str.contains("cannot be compared").all()


def test_ends_biased_by_size_are_error_and_no_skew() -> None:
    """One clock: ends of a quarter of the members, of another size, differ by -20 us."""
    rows = [
        {
            "rank": rank, "start_ns": 10**6 * n + 400_000 * rank, "in_bytes": 10 + (n % 4 == 3),
            "dur_ns": 900_000 - 400_000 * rank - 20_000 * rank * (n % 4 == 3), "seq": n,
            "group_key": "g", "group_size": 2,
        }
        for rank in range(2)
        for n in range(20)
    ]  # fmt: skip

    clock = reduce_job(members(*rows), traces(2)).clocks[1]

    assert clock.class_spread == 10_000
    assert (clock.error, clock.applied) == (10_000, False)


def test_numbers_match_before_order() -> None:
    rows = [
        {"rank": r, "group_key": "g", "group_size": 2, "seq": s, "start_ns": t, "step": 1}
        for r, s, t in [(0, 5, 0), (0, 6, 9), (1, 6, 2), (1, 7, 4)]
    ]

    found = _matched(*rows)

    assert found["match"].tolist() == ["unmatched", "seq", "seq", "unmatched"]
    assert found["instance_id"].tolist()[1:3] == [0, 0]
    assert found["match_note"].iloc[0] == "only one of its ranks is recorded"


def test_a_number_that_comes_twice_is_not_matched() -> None:
    row = {"group_key": "g", "group_size": 2, "seq": 5}

    found = _matched({"rank": 0} | row, {"rank": 0, "start_ns": 9} | row, {"rank": 1} | row)

    assert set(found["match"]) == {"unmatched"}
    assert found["match_note"].str.contains("restart").all()


def test_order_counts_launches_not_starts() -> None:
    """Two streams swap the starts of rank 1; the launches were in order."""
    row = {"group_key": "g", "group_size": 2, "step": 1}
    rows = [
        {"rank": 0, "start_ns": 10, "issued_ns": 1, "stream": 1, "in_bytes": 4},
        {"rank": 0, "start_ns": 20, "issued_ns": 2, "stream": 2, "in_bytes": 8},
        {"rank": 1, "start_ns": 30, "issued_ns": 1, "stream": 1, "in_bytes": 4},
        {"rank": 1, "start_ns": 15, "issued_ns": 2, "stream": 2, "in_bytes": 8},
    ]

    found = _matched(*(row | each for each in rows))

    assert found["match"].unique().tolist() == ["order"]
    assert found.groupby("instance_id")["in_bytes"].nunique().tolist() == [1, 1]


def test_sequences_that_differ_match_up_to_the_difference() -> None:
    rows = [
        {"rank": r, "group_key": "0-1|dp|0", "group_desc": "dp", "group_size": 2, "step": 3,
         "start_ns": n, "in_bytes": 4 if (r, n) != (1, 2) else 8}
        for r, count in ((0, 4), (1, 3))
        for n in range(count)
    ]  # fmt: skip

    found = _matched(*rows)

    assert found["match"].tolist() == ["order"] * 2 + ["unmatched"] * 2 + ["order"] * 2 + [
        "unmatched"
    ]
    assert found["match_note"].iloc[2] == (
        "unmatched: rank 1 has 3, rank 0 has 4 all_reduce of group dp; first difference at 2"
    )


def test_without_steps_and_clock_order_is_refused() -> None:
    rows = [{"rank": r, "group_key": "g", "group_size": 2, "start_ns": r} for r in (0, 1)]

    assert set(_matched(*rows)["match"]) == {"unmatched"}
    assert _matched(*rows)["match_note"].str.contains("do not share a clock").all()
    assert set(_matched(*rows, one_clock=True)["match"]) == {"order"}


def test_unknown_groups_match_by_kind_unless_there_are_two() -> None:
    one = [{"rank": r, "step": 1, "start_ns": r} for r in (0, 1)]
    two = [row | {"stream": s, "start_ns": s} for row in one for s in (1, 2)]

    assert set(_matched(*one)["match"]) == {"order_kind"}
    assert set(_matched(*two)["match"]) == {"unmatched"}
    assert _matched(*two)["match_note"].str.contains("2 streams").all()


def test_a_group_of_one_is_never_matched() -> None:
    found = _matched(*({"rank": r, "group_key": "g", "group_size": 1, "seq": 1} for r in (0, 1)))

    assert set(found["match"]) == {"unmatched"}
    assert found["match_note"].str.contains("one rank").all()


def test_sends_match_receives_in_order() -> None:
    row = {"group_key": "g", "group_size": 2, "step": 1}
    rows = [
        {"rank": 0, "kind": "send", "peer": 1, "start_ns": 1, "in_bytes": 1},
        {"rank": 1, "kind": "recv", "peer": 0, "start_ns": 5, "in_bytes": 1},
        {"rank": 0, "kind": "recv", "peer": 1, "start_ns": 2, "in_bytes": 2},
        {"rank": 1, "kind": "send", "peer": 0, "start_ns": 1, "in_bytes": 2},
        {"rank": 0, "kind": "send", "peer": 1, "start_ns": 9, "in_bytes": 3},
    ]

    found = _matched(*(row | each for each in rows))

    assert found.groupby("instance_id")["in_bytes"].agg(list).tolist() == [[1, 1], [2, 2]]
    assert found["match_note"].iloc[4] == "the other end is not recorded"


def test_a_missing_rank_makes_the_wait_a_bound() -> None:
    frame = by_hand((0, 0, 0))
    found = reduce_job(frame[frame["rank"] < 2], traces(2, host="a", world_size=3)).members

    assert found["members_recorded"].tolist() == [2] * 4
    assert found["wait_ns"].tolist() == [50, 0, 0, 20]
    assert found["last_rank"].isna().all()
    assert found["match_note"].str.contains("members are missing").all()
    assert bandwidths(found)["algbw_gbps"].isna().all()


def test_a_rank_of_another_job_is_said_and_not_matched() -> None:
    trace = traces(3)
    trace.loc[2, "world_size"] = 64

    found = reduce_job(by_hand(), trace).members

    assert found.groupby("rank")["match"].first().tolist() == ["seq", "seq", "unmatched"]
    assert found["match_note"].iloc[-1] == "of another job, or of another start of it"


def test_recordings_of_two_starts_are_not_matched() -> None:
    trace = traces(3, unix_ns=1_700_000_000 * 10**9)
    trace.loc[0, "unix_ns"] = 1_700_009_999 * 10**9

    assert ranks_of_other_job(trace) == {
        0: "rank 0 was recorded 2.8 hours after rank 2, or its clock is wrong"
    }
    assert not ranks_of_other_job(traces(3, unix_ns=1_700_000_000 * 10**9))


def test_a_session_of_nsight_has_one_clock_and_kineto_says_nothing() -> None:
    nsight = traces(2, profiler="nsight")

    assert set(machines(traces(2), SESSIONS, one_clock=False).values()) == {None}
    assert set(machines(nsight, SESSIONS, one_clock=False).values()) == {"a"}
    assert set(machines(traces(2), SESSIONS, one_clock=True).values()) == {"said"}


@pytest.mark.parametrize(
    ("kind", "into", "out", "wanted", "factor"),
    [
        ("all_reduce", 80000, 80000, 80000, 1.5), ("all_gather", 100000, 400000, 400000, 0.75),
        ("reduce_scatter", 400000, 100000, 400000, 0.75), ("all_to_all", 80000, 80000, 80000, 0.75),
        ("broadcast", 80000, 80000, 80000, 1), ("gather", 80000, 0, 320000, 0.75),
        ("scatter", 0, 80000, 320000, 0.75),
    ],
)  # fmt: skip
def test_bandwidth_is_of_the_bytes_of_the_kind(
    kind: str, into: int, out: int, wanted: int, factor: float
) -> None:
    row = {"kind": kind, "in_bytes": into, "out_bytes": out, "group_key": "g", "group_size": 4}
    rows = [row | {"rank": rank, "seq": 1, "dur_ns": 1000} for rank in range(4)]
    found = bandwidths(reduce_job(members(*rows), traces(4, host="a")).members).iloc[0]

    assert (found["bytes"], found["factor"]) == (wanted, factor)
    assert found["algbw_gbps"] == wanted / 1000
    assert found["busbw_gbps"] == factor * wanted / 1000


def test_an_uneven_all_to_all_takes_the_busiest_rank() -> None:
    row = {"kind": "all_to_all", "uneven": True, "group_key": "g", "group_size": 2, "seq": 1}
    rows = [
        row | {"rank": 0, "in_bytes": 10**6, "out_bytes": 3 * 10**6, "dur_ns": 1000,
               "send_bytes_to_others": 5 * 10**5, "recv_bytes_from_others": 2 * 10**6},
        row | {"rank": 1, "in_bytes": 3 * 10**6, "out_bytes": 10**6, "dur_ns": 1000,
               "send_bytes_to_others": 2 * 10**6, "recv_bytes_from_others": 5 * 10**5},
    ]  # fmt: skip

    found = bandwidths(reduce_job(members(*rows), traces(2, host="a")).members).iloc[0]

    assert found["bytes"] == 3 * 10**6
    assert found["busbw_gbps"] == pytest.approx(2 * 10**6 / 1000)


def test_small_messages_have_a_latency_and_no_rate() -> None:
    frame = by_hand((0, 0, 0)).assign(in_bytes=65_535)

    found = bandwidths(reduce_job(frame, traces(3, host="a")).members)

    assert payload(frame).tolist() == [65_535] * 6
    assert found["algbw_gbps"].isna().all()
    assert found["transfer_ns"].tolist() == [50, 60]


def test_two_devices_of_one_session(shared_trace: Callable[[str], Path]) -> None:
    from pyprof2.api.run import load

    run = load(shared_trace("nsight/mfu_2gpu_before.sqlite"))
    found = run.ranks.members
    by_rank = found.groupby("rank")[["wait_ns", "transfer_ns"]].sum()
    (clock,) = run.clocks[run.clocks["rank"] == 1].to_dict("records")

    assert found.groupby(["rank", "match"]).size().to_dict() == {
        (0, "order_kind"): 33, (1, "order_kind"): 33,
    }  # fmt: skip
    assert by_rank.to_numpy().tolist() == [[10_898_336, 6_274_316], [2_477_480, 5_751_620]]
    assert found[found["rank"] == 0]["last_rank"].value_counts().to_dict() == {1: 22, 0: 11}
    assert (clock["lo_ns"], clock["hi_ns"]) == (-110_732, 94_643)
    assert (clock["applied"], clock["reason"]) == (False, "one clock")


def test_a_drift_that_no_clock_has_must_be_twice_as_sure() -> None:
    """16 collectives in 9 ms: a slope of 212 ppm moves 1.9 us, four times the scatter."""
    x = np.linspace(0, 9e6, 16)
    scatter = np.where(np.arange(16) % 2, 340.0, -340.0)
    by_chance, real = (slope(x, scatter - ppm * 1e-6 * x) for ppm in (212, 900))

    assert by_chance == 0
    assert real == pytest.approx(-900e-6, rel=0.1)
    # The same scatter over a longer recording, of a clock that may be: it is sure enough.
    assert slope(10 * x, scatter - 25e-6 * 10 * x) == pytest.approx(-25e-6, rel=0.3)
