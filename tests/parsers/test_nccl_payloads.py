"""NCCL's own ranges say in their payloads which communicator calls, and how many bytes go."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from tests.nsight_exports import RANGES, Export

if TYPE_CHECKING:
    from pathlib import Path

ID = 0xDEADBEEF


def told(
    export: Export, name: str, start: int, end: int, said: dict[str, Any], column: str = "jsonText"
) -> None:
    """Add a range of NCCL with a payload."""
    export.range(name, start, end, domain=3)
    text = json.dumps(said)
    export.tables[RANGES][-1][column] = text if column == "jsonText" else export.string(text)


def message(size: int) -> dict[str, Any]:
    return {"NCCL communicator ID": ID, "Message size [bytes]": size}


def begun() -> Export:
    """Return an export in which a communicator of 4 ranks begins."""
    export = Export().gpu().domain("NCCL", 3)
    told(
        export,
        "ncclCommInitRank",
        10,
        20,
        {"NCCL communicator ID": ID, "No. of ranks": 4, "Rank": 1, "CUDA device": 0},
    )
    return export


def collective(folder: Path, export: Export) -> dict[Any, Any]:
    (row,) = export.load(folder).collectives.to_dict("records")
    return row


@pytest.mark.parametrize("column", ["jsonText", "jsonTextId"])
@pytest.mark.parametrize(
    ("name", "kind", "into", "out"),
    [
        ("AllReduce", "all_reduce", 1000, 1000), ("AllGather", "all_gather", 1000, 4000),
        ("ReduceScatter", "reduce_scatter", 4000, 1000), ("Broadcast", "broadcast", 1000, 1000),
        ("Send", "send", 1000, 0),
    ],
)  # fmt: skip
def test_the_payload_tells_group_and_bytes_of_the_kernel_that_its_range_launches(
    tmp_path: Path, name: str, kind: str, into: int, out: int, column: str
) -> None:  # fmt: skip
    export = begun()
    told(export, f"nccl{name}", 100, 200, message(1000), column)
    export.launched(f"ncclDevKernel_{name}_RING_LL", 150, 1)
    row = collective(tmp_path, export)
    wanted = {"kind": kind, "in_bytes": into, "out_bytes": out, "group_size": 4,
              "group_name": str(ID), "bytes_source": "recorded"}  # fmt: skip
    assert {key: row[key] for key in wanted} == wanted


def test_inside_of_an_op_it_is_what_the_op_does_not_say(tmp_path: Path) -> None:
    export = begun().range("c10d::allreduce_, op_id = 7", 90, 300)
    told(export, "ncclAllReduce", 100, 200, message(64) | {"Reduction operation": "Sum"})
    # Kernels of a group are launched at its end.
    export.range("ncclGroupEnd", 210, 250, domain=3)
    export.launched("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 220, 1)
    row = collective(tmp_path, export)
    assert (row["op"], row["in_bytes"], row["out_bytes"]) == ("c10d::allreduce_", 64, 64)
    assert (row["group_name"], row["group_size"]) == (str(ID), 4)


@pytest.mark.parametrize(
    "said",
    ["", "{", "[]", "7", '{"Message size [bytes]": 8}', '{"NCCL communicator ID": 1}',
     '{"NCCL communicator ID": 1, "Message size [bytes]": "many"}',
     '{"NCCL communicator ID": 1, "Message size [bytes]": -8}'],
)  # fmt: skip
def test_what_is_no_description_says_nothing(tmp_path: Path, said: str) -> None:
    export = begun().range("ncclAllReduce", 100, 200, domain=3)
    export.tables[RANGES][-1] |= {"jsonText": said}
    export.launched("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 150, 1)
    row = collective(tmp_path, export)
    assert row["kind"] == "all_reduce"
    assert pd.isna(row["in_bytes"])


def test_a_gather_among_unknown_ranks_has_the_bytes_of_one_side(tmp_path: Path) -> None:
    export = Export().gpu().domain("NCCL", 3)
    told(export, "ncclAllGather", 100, 200, message(1000))
    export.launched("ncclDevKernel_AllGather_RING_LL", 150, 1)
    row = collective(tmp_path, export)
    assert row["in_bytes"] == 1000
    assert pd.isna(row["out_bytes"])


def test_payloads_of_other_ranges_are_no_collectives(tmp_path: Path) -> None:
    export = begun()
    told(export, "my own range", 100, 200, message(1000))
    export.launched("ncclDevKernel_AllReduce_Sum_f16_RING_LL", 150, 1)
    assert pd.isna(collective(tmp_path, export)["in_bytes"])
