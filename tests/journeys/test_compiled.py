"""A compiled training: which lines do its fused kernels work for, and which one is slow?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compiled_trace import TRACE

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk


@pytest.mark.slow
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
    columns = "kernel_id,kernel,source"
    ((number, source),) = {
        (row["kernel_id"], row["source"])
        for row in walk.rows("compiled.pyprof2", "--by", "kernel", "--step", "2", "-c", columns)
        if "cpp_fused_add_native_layer_norm_2" in row["kernel"]
    }
    assert source.startswith("(shared: ")
    assert source.endswith("train.py:16, 19)")
    said = walk.text("explain", "compiled.pyprof2", f"kernel:{number}")
    assert "train.py:16: h = self.norm(x)" in said
    assert "train.py:19: return x + self.down(h)" in said
    # Its work is that of its nodes, on the buffers that its code names.
    assert "flops 18,560 = 9·N1 + 2·N2 = 9·2048 + 2·64" in said
    assert "reads buf9 f32[64,1], buf11 f32[64,1], primals_3 f32[64,32]" in said
    assert "writes buf9 f32[64,1], buf11 f32[64,1], buf12 f32[64,32]" in said
    assert "generated code" in said

    # What the lines of such kernels have of their time, by a convention that is asked for.
    shares = walk.rows("compiled.pyprof2", "--by", "source", "-c", "source,time_ns,share_ns")
    assert sum(int(row["share_ns"]) for row in shares) == sum(int(r["time_ns"]) for r in shares)

    by_line = {
        row["name"].rpartition("/")[2]: row
        for row in walk.rows("lines", "compiled.pyprof2")
        if row["kind"] == "line"
    }
    assert int(by_line["train.py:18"]["time_ns"]) > 0
