"""`pyprof2 advise` on memory of the CPU: why its rules on memory say nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.kineto_events import memory, op, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_WHY = "the recorded memory is the CPU's, and rules on memory are for a GPU's: pyprof2 memory shows"


def test_on_the_cpu_the_rules_on_memory_say_why_they_are_silent(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    block = {"Bytes": 64, "Addr": 1, "Device Type": 0, "Device Id": -1, "Total Allocated": 64}
    recorded = [op("aten::mm", 0, 80), memory(10, **block)]

    lines = invoke("advise", str(trace(tmp_path / "with.json", *recorded))).lines
    rows = invoke("advise", str(tmp_path / "with.json"), "--format", "json").out
    without = invoke("advise", str(trace(tmp_path / "without.json", recorded[0]))).lines

    more = lines[len(without) :]
    assert more[0].startswith(_WHY)
    assert lines[: len(without)] == without
    assert not [row for row in json.loads(rows) if row["rule"].startswith("memory")]
