"""Collectives that our annotation marks: what it says stands in for what was not recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyprof2.analysis.job.instances import Job, match_members
from pyprof2.markers import Marker, format_marker
from tests.analysis.job.job_members import members
from tests.analysis.job.test_collectives import called, comms
from tests.kineto_events import load_events, op, step

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
    return match_members(members(*(common | row for row in rows)), Job(one_clock))


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
