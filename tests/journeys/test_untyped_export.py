"""Somebody marked ops by `emit_nvtx` under Nsight Systems: shapes without any element type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.nsight_exports import Export

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

SIZE: Final = 4096
TOOK_NS: Final = 3_000_000
FLOPS: Final = 2 * SIZE**3
BYTES: Final = 3 * 4 * SIZE**2


@pytest.mark.slow
def test_the_kernels_name_gives_bytes_roof_and_the_advice_on_tensor_cores(walk: Walk) -> None:
    export = Export().gpu()
    for number in range(4):
        begin = 4_000_000 * number
        sizes = f"[[{SIZE}, {SIZE}], [{SIZE}, {SIZE}]]"
        export.range(f"aten::mm, op_id = {number}, sizes = {sizes}", begin, begin + 50_000)
        export.call("cudaLaunchKernel", begin + 1000, 2000, number + 1)
        export.kernel("ampere_sgemm_128x128_nn", begin + 60_000, TOOK_NS, number + 1)
    export.write(walk.folder / "net.sqlite")

    walk.run("pyprof2", "parse", "net.sqlite")
    (row,) = walk.rows("prof", "net.pyprof2", "--by", "op")
    explained = walk.text("explain", "net.pyprof2", "kernel:0")
    advice = walk.text("advise", "net.pyprof2")

    assert (row["op"], int(row["flops"]), int(row["bytes"])) == ("aten::mm", 4 * FLOPS, 4 * BYTES)
    assert float(row["gbps"]) == pytest.approx(BYTES / TOOK_NS)
    # FP32 of the H100 SXM without Tensor Cores: 66.9 TFLOP/s.
    assert float(row["roofline_pct"]) == pytest.approx(100 * FLOPS / 66.9e3 / TOOK_NS, rel=0.01)
    assert "elements of f32, as the kernel's name says" in " ".join(explained.split())
    assert "tensor-cores-unused" in advice.partition("unknown ")[0]
    assert "record shapes" not in advice
