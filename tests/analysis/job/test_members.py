"""What completes members: our annotation, where the recorder is silent, and gloo's workers.

An op of gloo hands its work over; a worker's range is when it was done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.job.instances import Recordings, match_members
from pyprof2.api.run import load, parse
from pyprof2.markers import Marker, format_marker
from tests.analysis.job.job_members import members
from tests.analysis.job.test_collectives import called, comms
from tests.kineto_events import annotation, load_events, op, step, trace

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


MARKER = Marker(
    "collective", op="c10d::allreduce_", group="3", desc="tp", span=(4, 3, 2), number=17, since=5,
    dtype="bf16", in_bytes=60, out_bytes=60, waits=True,
)  # fmt: skip


def _row(folder: Path, marker: Marker, *inside: Any) -> dict[Any, Any]:
    text = format_marker(marker, quoteless=True)
    events = [op("c10d::allreduce_", 10, 50), op(text, 11, 1), *inside]
    (row,) = load_events(folder, step(3, 0, 1000), *events).collectives.to_dict("records")
    return row


def test_a_marker_says_group_number_and_bytes(tmp_path: Path) -> None:
    row = _row(tmp_path, MARKER)

    wanted = {
        "op": "c10d::allreduce_", "kind": "all_reduce", "group_key": "4,6,8|tp|0",
        "group_name": "3", "group_desc": "tp", "group_size": 3, "seq": 17, "seq_source": "marker",
        "seq_since": 5, "in_bytes": 60, "out_bytes": 60, "dtype": "bf16", "asynchronous": False,
        "bytes_source": "marker", "start_ns": 10_000, "dur_ns": 50_000,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert list(row["group_ranks"]) == [4, 6, 8]


def test_what_the_recorder_said_stays(tmp_path: Path) -> None:
    """It counted otherwise, too: its number is the one that other recordings have."""
    text = format_marker(MARKER, quoteless=True)
    events = called(10, 1, comms("allreduce", 100, 100, Seq=41))
    found = load_events(tmp_path, step(3, 0, 1000), events, op(text, 12, 1)).collectives
    (row,) = found.to_dict("records")

    assert (row["seq"], row["seq_source"], row["group_desc"]) == (41, "recorded", "dp")
    assert (row["in_bytes"], row["bytes_source"]) == (400, "recorded")


def test_several_calls_of_one_op_are_one_collective_of_all_their_bytes(tmp_path: Path) -> None:
    more = Marker("collective", op="c10d::allreduce_", span=(4, 3, 2), in_bytes=4, out_bytes=4)
    row = _row(tmp_path, MARKER, op(format_marker(more, quoteless=True), 20, 1))

    assert (row["seq"], row["in_bytes"], row["out_bytes"]) == (17, 64, 64)


def _matched(*rows: dict[str, Any], one_clock: bool = False) -> pd.DataFrame:
    common = {"group_key": "g", "group_size": 2, "seq_source": "marker", "seq_since": 0, "step": 1}
    return match_members(members(*(common | row for row in rows)), Recordings(one_clock))


def test_members_match_by_marker_whatever_their_order_and_step() -> None:
    rows = [
        {"rank": 0, "seq": 7, "issued_ns": 1},
        {"rank": 0, "seq": 8, "issued_ns": 2},
        {"rank": 1, "seq": 8, "issued_ns": 1, "step": 2},
        {"rank": 1, "seq": 9, "issued_ns": 2, "step": 2},
    ]
    found = _matched(*rows)

    assert found["match"].tolist() == ["unmatched", "marker", "marker", "unmatched"]
    assert found["instance_id"][1] == found["instance_id"][2]
    assert found["match_note"].tolist()[0] == "only one of its ranks is recorded"


def test_ranks_that_began_to_count_at_different_places_match_by_order() -> None:
    """The second one counts from one collective later: number 0 there is number 1 here."""
    rows: list[dict[str, Any]] = [
        {"rank": 0, "seq": 1, "issued_ns": 1},
        {"rank": 1, "seq": 0, "issued_ns": 1},
    ]
    found = _matched(rows[0], rows[1] | {"seq_since": 1})

    assert found["match"].tolist() == ["order", "order"]
    unknown = _matched(*(row | {"seq": 1, "seq_since": None, "step": None} for row in rows))
    assert set(unknown["match"]) == {"unmatched"}


def test_a_number_of_different_calls_is_no_match() -> None:
    rows = [{"rank": 0, "seq": 1, "in_bytes": 4}, {"rank": 1, "seq": 1, "in_bytes": 8}]
    again = [{"rank": 0, "seq": 1}, {"rank": 0, "seq": 1}, {"rank": 1, "seq": 1}]

    assert set(_matched(*rows)["match_note"]) == {
        "members with this number are of different kinds or sizes"
    }
    assert set(_matched(*again)["match_note"]) == {
        "a rank has this number twice: a restart, or the counter began again"
    }


def test_sends_match_the_recvs_of_their_peer() -> None:
    """Rank 0 sends twice to 1, which sends once to it; all have the numbers of their direction."""
    rows = [
        {"rank": 0, "kind": "send", "peer": 1, "seq": 0},
        {"rank": 0, "kind": "send", "peer": 1, "seq": 1},
        {"rank": 0, "kind": "recv", "peer": 1, "seq": 0},
        {"rank": 1, "kind": "send", "peer": 0, "seq": 0},
        {"rank": 1, "kind": "recv", "peer": 0, "seq": 1},
        {"rank": 1, "kind": "recv", "peer": 0, "seq": 0},
        {"rank": 1, "kind": "all_reduce", "seq": 0},
        {"rank": 0, "kind": "all_reduce", "seq": 0},
    ]
    found = _matched(*({"group_size": 8} | row for row in rows))
    pairs = found.groupby("instance_id").groups

    assert set(found["match"]) == {"marker"}
    assert sorted(map(sorted, pairs.values())) == [[0, 5], [1, 4], [2, 3], [6, 7]]


WORKER = 77
GATHERED = {
    "Input Dims": [[4160], [1040], [], [], []],
    "Input type": ["float", "float", "", "", ""],
}


def _gathers(*work: Any) -> list[Any]:
    """Return two all_gather that take 10 us to hand over, at 100 and 200, and a worker's ranges."""
    calls = [op("c10d::_allgather_base_", at, 10, **GATHERED) for at in (100, 200)]
    return [*calls, *(annotation(name, at, dur, tid=WORKER) for name, at, dur in work)]


def _times(found: pd.DataFrame) -> list[list[Any]]:
    names = ["kind", "start_ns", "dur_ns", "issued_ns", "in_bytes", "out_bytes"]
    rows: list[list[Any]] = found[names].to_numpy().tolist()
    return rows


def test_a_member_is_as_long_as_the_work(tmp_path: Path) -> None:
    events = _gathers(("gloo:all_gather", 105, 60), ("gloo:all_gather", 230, 40))
    found = load_events(tmp_path, *events).collectives

    assert _times(found) == [
        ["all_gather", 105_000, 60_000, 100_000, 4160, 16640],
        ["all_gather", 230_000, 40_000, 200_000, 4160, 16640],
    ]
    assert found["transport"].tolist() == ["gloo", "gloo"]


def test_what_the_worker_calls_it_does_not_matter(tmp_path: Path) -> None:
    """Gloo does a reduce_scatter as an all_reduce of the whole."""
    shapes = {"Input Dims": [[1040], [4160]], "Input type": ["float", "float"]}
    events = [
        op("c10d::_reduce_scatter_base_", 100, 10, **shapes),
        annotation("gloo:all_reduce", 120, 500, tid=WORKER),
    ]
    found = load_events(tmp_path, *events).collectives

    assert _times(found) == [["reduce_scatter", 120_000, 500_000, 100_000, 16640, 4160]]


@pytest.mark.parametrize(
    ("kind", "dtype", "shape", "wanted"),
    [
        ("all_reduce", "signed char", [10], (10, 10, "i8")),
        ("all_reduce", "c10::BFloat16", [4, 2], (16, 16, "bf16")),
        ("all_reduce", "c10::complex<float>", [3], (24, 24, "c64")),
        ("all_reduce", "float", [0], (0, 0, "f32")),
        # Its op does not say of how many ranks the group is.
        ("all_gather", "double", [5], (40, None, "f64")),
    ],
)
def test_the_work_has_the_sizes_that_the_op_lacks(
    tmp_path: Path, kind: str, dtype: str, shape: list[int], wanted: tuple[Any, ...]
) -> None:
    """The op has a list of tensors, of which no type is recorded."""
    name = {"all_reduce": "c10d::allreduce_", "all_gather": "c10d::allgather_"}[kind]
    dims = {"all_reduce": [[shape]], "all_gather": [[], [shape]]}[kind]
    called = {"Input Dims": [shape], "Input type": [dtype]}
    found = load_events(
        tmp_path,
        op(name, 100, 10, dims=dims, types=["TensorList"] * len(dims)),
        annotation(f"gloo:{kind}", 120, 500, tid=WORKER, args=called),
        # Another kind of work than the op hands over says nothing of its size.
        op("c10d::reduce_scatter_", 700, 10),
        annotation("gloo:all_reduce", 720, 500, tid=WORKER, args=called),
        # The tensor of a barrier moves nothing.
        op("c10d::barrier", 1300, 10, dims=[[1]], types=["unsigned char"]),
        annotation("gloo:barrier", 1320, 5, tid=WORKER),
    ).collectives

    names = ["in_bytes", "out_bytes", "dtype"]
    rows = found[names].astype(object).where(found[names].notna(), None).to_numpy().tolist()
    assert [tuple(row) for row in rows] == [wanted, (None, None, None), (None, None, None)]
    assert found["start_ns"].tolist() == [120_000, 720_000, 1_320_000]


@pytest.mark.parametrize(
    "work",
    [
        pytest.param([("gloo:all_gather", 205, 60)], id="one is missing"),
        pytest.param(
            [("gloo:all_gather", 90, 60), ("gloo:all_gather", 230, 40)], id="begun before"
        ),
        pytest.param([("gloo:wait", 105, 60), ("gloo:all_gather", 230, 40)], id="a wait"),
    ],
)
def test_where_work_and_ops_do_not_fit_times_are_those_of_ops(
    tmp_path: Path, work: list[Any]
) -> None:
    found = load_events(tmp_path, *_gathers(*work)).collectives

    assert found["start_ns"].tolist() == [100_000, 200_000]
    assert found["dur_ns"].tolist() == [10_000, 10_000]


@pytest.mark.parametrize(
    ("work", "starts", "durs"),
    [
        pytest.param([(105, 60)], [105, 200], [60, 10], id="the last has not ended"),
        pytest.param(
            [(90, 60), (105, 60), (230, 40)], [105, 230], [60, 40], id="one of an earlier op"
        ),
        pytest.param([(90, 12), (105, 60)], [105, 200], [60, 10], id="both"),
    ],
)
def test_recording_that_cuts_work_off_has_the_times_of_the_rest(
    tmp_path: Path, work: list[tuple[int, int]], starts: list[int], durs: list[int]
) -> None:
    ranges = [("gloo:all_gather", start, dur) for start, dur in work]
    found = load_events(tmp_path, *_gathers(*ranges)).collectives

    assert found["start_ns"].tolist() == [1000 * start for start in starts]
    assert found["dur_ns"].tolist() == [1000 * dur for dur in durs]


def test_ranks_wait_in_the_work(tmp_path: Path) -> None:
    """Rank 1 hands over 20 ms late: the other waits so long. Each op returns at once."""
    for rank, late in ((0, 0), (1, 20_000)):
        events = [
            step(0, 0, 50_000),
            op("c10d::_allgather_base_", 100 + late, 10, **GATHERED),
            annotation("gloo:all_gather", 110 + late, 20_500 - late, tid=WORKER),
        ]
        around = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "gloo"}}
        trace(tmp_path / f"rank{rank}.json", *events, **around)
    files = [tmp_path / f"rank{rank}.json" for rank in (0, 1)]
    found = load(parse(files, tmp_path / "job.pyprof2")).ranks.members

    assert found["match"].tolist() == ["order_kind", "order_kind"]
    assert found["wait_ns"].tolist() == [20_000_000, 0]
    assert found["last_rank"].tolist() == [1, 1]
    assert found["transfer_ns"].tolist() == [500_000, 500_000]
