"""`check` names what has no counts, and what missed the Tensor Cores, by time."""

from __future__ import annotations

from typing import Any

import pytest

from pyprof2.analysis.summaries.findings import COLUMNS, findings_table
from pyprof2.analysis.summaries.work_checks import (
    _OWN_FORMULA,
    CountedWork,
    find_devices,
    find_work,
)
from pyprof2.parsers.formats import advice_of
from tests.builders import canonical


def find(*kernels: dict[str, Any], profiler: str = "kineto") -> list[dict[str, Any]]:
    """Return the findings on these kernels."""
    time_ns = sum(row["dur_ns"] for row in kernels)
    work = CountedWork.of([canonical("kernels", *kernels)], time_ns, has_gpu=True)
    frame = findings_table(find_work([work], advice_of([profiler])))
    assert list(frame) == COLUMNS
    return [{str(name): row[name] for name in row} for row in frame.to_dict("records")]


def uncosted(op: str, time: int, status: str = "no_shapes", **more: Any) -> dict[str, Any]:
    """Return a kernel without counts."""
    return {"op": op, "dur_ns": time, "cost_status": status} | more


def test_an_op_without_counts_has_its_time_and_what_to_do() -> None:
    note = "the indices are not in the recording"
    rows = find(
        uncosted("my::scan", 100, "no_formula"),
        uncosted("aten::mm", 300),
        uncosted("aten::index", 200, cost_note=note),
        uncosted("aten::add", 400, "ok"),
    )

    assert [(r["severity"], r["finding"], r["count"], r["share_pct"]) for r in rows] == [
        ("lack", "no formula: my::scan", 1, 10),
        ("lack", "no shapes: aten::mm", 1, 30),
        ("lack", f"no shapes: aten::index ({note})", 1, 20),
    ]
    assert [row["advice"] for row in rows] == [
        _OWN_FORMULA,
        "profile(record_shapes=True)",
        "this version of PyTorch does not record these inputs; another one may",
    ]


def test_an_nsight_recording_is_told_to_annotate() -> None:
    (row,) = find(uncosted("aten::mm", 300), profiler="nsight")

    assert row["advice"] == "call pyprof2.init() in the script"


def test_five_ops_are_named_and_the_others_summed() -> None:
    rows = find(*(uncosted(f"op{i}", 100 - i) for i in range(8)))

    assert [row["finding"] for row in rows] == [
        *(f"no shapes: op{i}" for i in range(5)),
        "no shapes: all other ops",
    ]
    assert rows[-1]["count"] == 3
    assert sum(row["share_pct"] for row in rows) == pytest.approx(100)


def test_missed_tensor_cores_come_by_reason_with_the_layers() -> None:
    missed = {
        "tensor_core": "no", "tensor_core_eligible": True, "flops": 10, "cost_status": "ok",
        "compute_dtype": "f32", "params": "M=64,N=64,K=64", "device_type": "cuda",
    }  # fmt: skip
    rows = find(
        missed | {"dur_ns": 300, "layer": "net.1"},
        missed | {"dur_ns": 200, "layer": "net.0"},
        missed | {"dur_ns": 100, "layer": "net.2", "params": "M=1,N=64,K=64"},
        {"dur_ns": 400, "cost_status": "ok"},
    )

    start = "Tensor Cores could have worked, but did not: "
    assert [(row["severity"], row["finding"].removeprefix(start)) for row in rows] == [
        ("info", "f32 without TF32 (most in net.1 30.0 %, net.0 20.0 %)"),
        ("info", "a product with a vector (most in net.2 10.0 %)"),
    ]
    assert [row["share_pct"] for row in rows] == pytest.approx([50, 10])
    assert "set_float32_matmul_precision" in rows[0]["advice"]


def test_where_all_is_counted_and_used_there_is_nothing_to_say() -> None:
    assert find({"dur_ns": 10, "cost_status": "ok", "tensor_core": "yes"}) == []


def test_devices_without_known_peaks_are_named() -> None:
    h100 = {"name": "NVIDIA H100 80GB HBM3", "device_type": "cuda"}
    other = {"name": "AMD Radeon Graphics", "device_type": "hip"}

    frame = findings_table(find_devices([h100, other, other, other | {"name": None}]))

    assert frame[["severity", "finding", "count"]].to_numpy().tolist() == [
        ["lack", "no peaks known of the device, which has no name: no roofs, no MFU", 1],
        ["lack", "no peaks known of AMD Radeon Graphics: no roofs, no MFU", 2],
    ]
