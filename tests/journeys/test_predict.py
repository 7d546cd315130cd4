"""Somebody with one recording asks what other GPUs would do, for how much money, and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.reports.page.reader import document_of
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk


@pytest.mark.slow
def test_one_recording_says_which_gpu_to_take(walk: Walk) -> None:
    (walk.folder / "net.json").write_bytes(training_trace())
    walk.text("parse", "net.json")

    ambiguous = walk.run("pyprof2", "predict", "net.pyprof2", "--on", "A100", code=2).stderr
    rows = walk.rows("predict", "net.pyprof2", "--on", "H100 SXM,A100 SXM 80GB,L4,V100 SXM2")
    priced = walk.text(
        "predict", "net.pyprof2", "--on", "H100 SXM,A100 SXM 80GB,L4", "--price", "3",
        "--price", "A100 SXM 80GB=1.5", "--price", "L4=0.6", "--deadline", "1000000:8",
    )  # fmt: skip
    why = walk.text("explain", "net.pyprof2", "predict:A100 SXM 80GB")
    many = walk.rows("predict", "net.pyprof2", "--on", "H100 SXM", "--ranks", "1,8",
                     "--link", "nvlink4")  # fmt: skip
    walk.text("report", "net.pyprof2", "-o", "net.html")
    walk.text("export", "net.pyprof2", "--deepview", "net.dv.json")

    assert "A100 SXM 80GB" in ambiguous
    found = {row["device"]: row for row in rows}
    recorded = float(found["H100 SXM"]["step_ms"])
    assert recorded == pytest.approx(11.839)
    for name in ("A100 SXM 80GB", "L4"):
        lo, value, hi = (float(found[name][key]) for key in ("lo_ms", "step_ms", "hi_ms"))
        assert recorded < lo < value < hi
    assert found["V100 SXM2"]["step_ms"] == ""
    assert "bf16" in found["V100 SXM2"]["why"]
    # Steps of 11.8, 18.4 and 77 ms at 3, 1.5 and 0.6 an hour: the A100 costs least, and is in time.
    assert "1,000,000 steps in 8 h: the cheapest is A100 SXM 80GB, for 7.6" in priced
    assert "sm90_xmma_gemm_bf16bf16" in why
    assert float(many[1]["throughput"] or 0) == 0
    assert 7 < float(many[1]["speedup"]) < 8.5
    shown = document_of(walk.folder / "net.html")["elsewhere"]
    assert [row["device"] for row in shown["rows"] if row["recorded"]] == ["H100 SXM"]
    state = json.loads((walk.folder / "net.dv.json").read_text(encoding="utf-8"))["analysisState"]
    assert {"H100", "A100", "L4"} <= {row["deviceName"] for row in state["habitat"]["predictions"]}
