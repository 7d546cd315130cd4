"""Somebody whose tables were in TensorBoard: the same figures, from a trace to each view."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kineto_events import annotation, frame, kernel, launch, memory, op, step, trace

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@pytest.mark.slow
def test_each_view_of_the_plugin_has_its_figures(walk: Walk) -> None:
    name = "worker0.pt.trace.json"
    trace(
        walk.folder / name,
        step(1, 0, 100),
        annotation(LOADER, 2, 18),
        frame("nn.Module: Net_0", 20, 60),
        op("aten::linear", 25, 40),
        op("aten::addmm", 30, 30),
        memory(32, **{"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": 512}),
        launch(40, 1, dur=10), kernel(60, 30, 1, name="sgemm"),
        memory(70, **{"Device Type": 1, "Device Id": 0, "Addr": 64, "Bytes": -512}),
    )  # fmt: skip
    store = "net.pyprof2"
    walk.text("parse", name, "-o", store)

    # Operator
    columns = "op,calls,time_ns,device_total_ns,host_self_ns,host_total_ns"
    assert walk.rows("prof", store, "--by", "op", "-c", columns) == [
        dict(zip(columns.split(","), row, strict=True))
        for row in (
            ("aten::addmm", "1", "30000", "30000", "20000", "30000"),
            ("aten::linear", "1", "0", "30000", "10000", "40000"),
        )
    ]
    # Overview
    (row,) = walk.rows("prof", store, "--by", "step", "--breakdown", "plugin")
    assert [row[f"{role}_ns"] for role in ("dataloader", "kernel", "runtime", "total")] == [
        "18000", "30000", "10000", "100000",
    ]  # fmt: skip
    # Module
    (row,) = walk.rows("prof", store, "--by", "layer", "-c", "layer,operators,host_self_ns")
    assert row == {"layer": "Net_0", "operators": "1", "host_self_ns": "20000"}
    # Memory
    (row,) = walk.rows("memory", store, "--events")
    assert (row["op"], row["bytes"], row["dur_ns"]) == ("aten::addmm", "512", "38000")
    rows = walk.rows("memory", store, "--statistics", "--between", "0:0.05")
    assert [(r["op"], r["increase_bytes"], r["self_increase_bytes"]) for r in rows] == [
        ("aten::addmm", "512", "512"), ("aten::linear", "512", "0"),
    ]  # fmt: skip
