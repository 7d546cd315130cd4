"""A compiled training: which lines do its fused kernels work for, and which one is slow?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compiled_trace import TRACE

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk


def test_the_lines_behind_fused_kernels(walk: Walk) -> None:
    trace = walk.folder / "compiled.json.gz"
    trace.write_bytes(TRACE.read_bytes())

    lines = walk.text("compiled.json.gz", "--by", "source", "-w", "140")
    # The model's layers, not the line that calls it, have the time.
    assert "train.py:16" in lines
    assert "(shared: train.py:16, 19)" in lines
    assert "alone ms" in lines

    walk.run("pyprof2", "parse", "compiled.json.gz")
    assert "found in their code (4, 100.0 %)" in " ".join(
        walk.text("check", "compiled.pyprof2").split()
    )
    (number,) = {
        row["kernel_id"]
        for row in walk.rows("compiled.pyprof2", "--by", "kernel", "--step", "2")
        if "cpp_fused_add_native_layer_norm_2" in row["kernel"]
    }
    said = walk.text("explain", "compiled.pyprof2", f"kernel:{number}")
    assert "train.py:16: h = self.norm(x)" in said
    assert "train.py:19: return x + self.down(h)" in said

    by_line = {
        row["name"].rpartition("/")[2]: row
        for row in walk.rows("lines", "compiled.pyprof2")
        if row["kind"] == "line"
    }
    assert int(by_line["train.py:18"]["time_ns"]) > 0
