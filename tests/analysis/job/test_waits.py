"""Traffic by layer, and what hosts did between collectives: by hand."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa

from pyprof2.analysis.job.late_hosts import OPS, host_blame, stretches
from pyprof2.analysis.job.waits import traffic
from pyprof2.tables import TABLES
from tests.analysis.job.job_members import members


def _traffic(*rows: dict[str, Any]) -> list[dict[Any, Any]]:
    """Return the traffic of members; `layer` and `direction` among their fields."""
    places = [{n: row.pop(n, None) for n in ("layer", "direction")} for row in rows]
    frame = members(*({"wait_ns": None, "transfer_ns": None} | row for row in rows))
    where = pd.DataFrame(places).assign(rank=frame["rank"], collective_id=frame["collective_id"])
    return traffic(frame, where).to_dict("records")


def test_a_layer_has_the_sums_of_its_collectives_over_calls_and_ranks() -> None:
    """Two ranks gather a layer of 80 bytes, twice, and scatter its gradients once."""
    common = {"group_desc": "fsdp", "group_key": "0-1|fsdp|0", "group_size": 2, "layer": "mlp"}
    gather = {"kind": "all_gather", "in_bytes": 40, "out_bytes": 80, "direction": "forward"}
    scatter = {"kind": "reduce_scatter", "in_bytes": 80, "out_bytes": 40, "direction": "backward"}
    rows = [
        common
        | gather
        | {"rank": rank, "dur_ns": 10, "wait_ns": 4 * rank, "transfer_ns": 10 - 4 * rank}
        for rank in (0, 1, 0, 1)
    ]
    rows += [common | scatter | {"rank": rank, "dur_ns": 7} for rank in (0, 1)]
    first, second = _traffic(*rows)

    assert first == {
        "layer": "mlp", "direction": "forward", "kind": "all_gather", "group": "fsdp", "ranks": 2,
        "calls": 4, "in_bytes": 160, "out_bytes": 320, "payload_bytes": 320, "time_ns": 40,
        "wait_ns": 8, "transfer_ns": 32, "unmatched_ns": 0,
    }  # fmt: skip
    assert (second["kind"], second["direction"], second["calls"]) == (
        "reduce_scatter",
        "backward",
        2,
    )
    assert (second["payload_bytes"], second["time_ns"], second["unmatched_ns"]) == (160, 14, 14)
    assert pd.isna(second["wait_ns"])


def test_bytes_of_a_layer_are_unknown_if_those_of_a_call_are() -> None:
    (row,) = _traffic({"in_bytes": 8, "out_bytes": 8}, {"in_bytes": None, "out_bytes": None})

    assert row["calls"] == 2
    assert pd.isna(row["layer"])
    assert all(pd.isna(row[name]) for name in ("in_bytes", "out_bytes", "payload_bytes"))


def test_groups_of_one_layer_are_told_apart_and_one_rank_is_no_traffic() -> None:
    rows = [{"layer": "moe", "in_bytes": 1, "out_bytes": 1, "group_desc": d} for d in ("ep", "tp")]
    alone = {"layer": "moe", "in_bytes": 9, "out_bytes": 9, "group_desc": "dp", "group_size": 1}

    assert sorted(row["group"] for row in _traffic(*rows, alone)) == ["ep", "tp"]


def _ops(*rows: tuple[str, int, int]) -> pa.Table:
    """Return ops of one thread by name, start and duration, with their lines."""
    frame = pd.DataFrame(rows, columns=["op", "start_ns", "dur_ns"])
    lines = [f"train.py:{number}" for number in range(len(rows))]
    frame = frame.assign(op_id=range(len(rows)), pid=1, tid=1, source=lines)
    empty = dict.fromkeys(set(OPS) - set(frame))
    schema = pa.schema([(c.name, c.type) for c in TABLES["ops"].columns if c.name in OPS])
    return pa.Table.from_pandas(frame.assign(**empty), schema, preserve_index=False)


def _job(*late: tuple[int, int]) -> tuple[list[pd.DataFrame], pd.DataFrame]:
    """Return stretches of ranks: `read` takes 10, later by the first, and longer by the second."""
    found, rows = [], []
    for rank, (pause, longer) in enumerate(late):
        begin = 20 + pause
        handed = begin + 10 + longer + 5
        ops = _ops(("zero", 0, 10), ("read", begin, 10 + longer), ("c10d::allreduce_", handed, 2),
                   ("step", handed + 100, 5))  # fmt: skip
        row = {"rank": rank, "issued_ns": handed, "start_ns": handed, "group_key": "g", "seq": 0}
        rows.append(row | {"instance_id": 4, "last_rank": None, "margin_ns": None})
        frame = members(rows[-1]).astype({"instance_id": "Int64"})
        found.append(stretches(ops, frame, rank))
    return found, members(*rows).astype({"instance_id": "Int64"})


def _blame(*late: tuple[int, int]) -> pd.DataFrame:
    return host_blame(*_job(*late), dict.fromkeys(range(len(late)), "same"))


def test_who_was_late_is_who_took_longer_than_the_others_where() -> None:
    """Rank 1 pauses for 50 before it reads; the time after the collective is no part of it."""
    (row,) = _blame((0, 0), (50, 0), (2, 0), (0, 1)).to_dict("records")

    assert (row["rank"], row["kind"], row["op"], row["source"]) == (1, "host", "read", "train.py:1")
    assert (row["worst_ns"], row["excess_ns"], row["instance"]) == (50, 50, 4)


def test_an_op_that_takes_longer_is_named_itself() -> None:
    (row,) = _blame((0, 0), (0, 0), (0, 70)).to_dict("records")

    assert (row["rank"], row["kind"], row["op"], row["worst_ns"]) == (2, "op", "read", 70)


def test_of_two_ranks_nobody_is_to_blame_and_of_equal_ones_nobody() -> None:
    assert _blame((0, 0), (50, 0)).empty
    assert _blame((0, 0), (0, 0), (0, 0)).empty


def test_a_gap_in_which_work_was_handed_over_is_no_ranks_own() -> None:
    """The host may wait there for the others, as in the backward of another thread."""
    ops = _ops(("c10d::allreduce_", 10, 2), ("step", 90, 5), ("c10d::allreduce_", 100, 2))
    rows = [{"issued_ns": 10}, {"issued_ns": 100}]
    frame = members(*rows).assign(instance_id=pd.array([0, 1], "Int64"))
    found = stretches(ops, frame, 0)

    assert found[found["kind"] == "host"]["ns"].tolist() == [5]
    assert found[found["kind"] == "op"]["ns"].tolist() == [2, 5, 2]


def test_the_last_rank_is_to_blame_where_it_is_known() -> None:
    """Rank 1 paused for longer, and yet rank 2 came last: it did more that has no twin."""
    found, frame = _job((0, 0), (50, 0), (30, 0), (0, 0))
    frame["last_rank"], frame["margin_ns"] = 2, 11
    (row,) = host_blame(found, frame, dict.fromkeys(range(4), "same")).to_dict("records")

    assert (row["rank"], row["margin_ns"], row["worst_ns"]) == (2, 11, 30)
