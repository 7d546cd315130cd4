"""Verdicts and roofs of whole tables: what a rate proves, and what the kernels of an op share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import pyprof2
from pyprof2.analysis.hardware.verdict import JUDGED, examine, judge
from tests.builders import canonical

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

H100 = {"device": 0, "device_type": "cuda", "name": "NVIDIA H100 80GB HBM3",
        "compute_capability": "9.0"}  # fmt: skip
V100 = {"device": 0, "device_type": "cuda", "name": "Tesla V100-SXM2-16GB",
        "compute_capability": "7.0"}  # fmt: skip
SILENT = "mystery"
WINOGRAD = "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>()"
MS = 1_000_000


def kernel(**facts: Any) -> dict[str, Any]:
    """Return a kernel of 1 ms that does all of its op, a product of 200 TFLOP/s in bf16."""
    flops = facts.get("flops", 200 * 10**9)
    nbytes = facts.get("bytes", 10**6)
    time = facts.get("op_time_ns", MS)
    rates = {"tflops": flops / time / 1e3, "gbps": nbytes / time}
    return {
        "kernel": SILENT, "category": "matmul", "compute_dtype": "bf16", "device": 0,
        "cost_status": "ok", "cost_op_id": 0, "dur_ns": MS, "op_time_ns": time, "flops": flops,
        "flops_lo": flops, "bytes": nbytes, "bytes_lo": nbytes,
    } | rates | facts  # fmt: skip


def judged(*rows: dict[str, Any], device: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Return the rows with their verdicts."""
    found: list[dict[str, Any]] = judge(canonical("kernels", *rows), [device or H100]).to_pylist()
    return found


def test_a_rate_above_the_vector_peak_proves_tensor_cores() -> None:
    # 200 TFLOP/s; the vector lanes of an H100 do 133.8 in bf16.
    (row,) = judged(kernel())

    assert row["tensor_core"] == "yes"
    assert row["tensor_core_evidence"] == (
        "200.0 TFLOP/s exceed the vector peak of 133.8 for bf16 on H100 SXM: "
        "only matrix units can do that"
    )
    # So the roof is that of the matrix units: 989.4 TFLOP/s.
    assert row["roofline_pct"] == pytest.approx(100 * 200 / 989.4)


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"flops": 139 * 10**9}, id="within 5 % of the vector peak"),
        pytest.param({"flops_lo": 100 * 10**9}, id="only the upper bound is above it"),
        pytest.param({"cost_status": "assumed"}, id="the count is assumed"),
        pytest.param({"category": "conv"}, id="a convolution may multiply less"),
        pytest.param({"category": "elementwise"}, id="no product"),
        pytest.param({"compute_dtype": "i8"}, id="a dtype whose vector peak is not stated"),
        pytest.param({"compute_dtype": None}, id="no dtype"),
        pytest.param({"device": 5, "cost_op_id": None}, id="no op"),
        pytest.param({"flops": None, "flops_lo": None, "tflops": None}, id="no count"),
    ],
)
def test_without_proof_a_silent_name_stays_unknown(facts: dict[str, Any]) -> None:
    row = kernel() | facts if facts.get("flops", 0) is None else kernel(**facts)

    assert judged(row)[0]["tensor_core"] == "unknown"


def test_what_a_name_says_holds_against_the_rate() -> None:
    (row,) = judged(kernel(kernel="ampere_sgemm_128x64_tn"))

    assert row["tensor_core"] == "no"
    assert row["roofline_flag"].startswith("flops")


def test_of_two_silent_kernels_neither_is_proven() -> None:
    half = {"flops": 10**11, "op_time_ns": MS, "tflops": 200.0}
    rows = judged(kernel(**half), kernel(kernel="another", **half))

    assert [row["tensor_core"] for row in rows] == ["unknown", "unknown"]


def test_runs_of_one_silent_kernel_are_proven_together_and_helpers_are_not() -> None:
    half = {"flops": 10**11, "tflops": 200.0}
    rows = judged(kernel(**half), kernel(**half), kernel(kernel="helper", flops=0, tflops=200.0))

    assert [row["tensor_core"] for row in rows] == ["yes", "yes", "unknown"]


def test_a_rate_that_another_kernel_explains_proves_nothing() -> None:
    half = {"flops": 10**11, "tflops": 200.0}
    rows = judged(kernel(kernel="sm80_xmma_gemm_bf16bf16_hmma", **half), kernel(**half))

    assert [row["tensor_core"] for row in rows] == ["yes", "unknown"]


def test_sets_of_rows_are_judged_as_if_there_were_no_others() -> None:
    # Of one op: the first alone is proven, the two of the second explain one another's rate.
    half = {"flops": 10**11, "tflops": 200.0}
    rows = [kernel(), kernel(**half), kernel(kernel="another", **half)]

    together = examine(canonical("kernels", *rows), [H100], apart=np.array([0, 1, 1]))

    alone = [*judged(rows[0]), *judged(*rows[1:])]
    assert [row["tensor_core"] for row in alone] == ["yes", "unknown", "unknown"]
    for name in JUDGED:
        assert together.table[name].to_pylist() == [row[name] for row in alone]


def test_the_product_of_a_winograd_convolution_has_the_roof_of_the_algorithm() -> None:
    # F(4x4, 3x3) does 36 products for 144 multiply-adds: 4 × 15.7 TFLOP/s on a V100.
    both = {
        "category": "conv", "compute_dtype": "f32", "params": "window=3x3,groups=1",
        "op_time_ns": MS,
    }  # fmt: skip
    rows = judged(
        kernel(kernel=WINOGRAD, flops=0, bytes=0, **both) | {"tflops": None, "gbps": None},
        kernel(kernel="volta_sgemm_64x64_nn", flops=25 * 10**9, **both),
        kernel(kernel="volta_sgemm_64x64_nn", cost_op_id=1, flops=25 * 10**9, **both),
        device=V100,
    )

    assert [row["roofline_pct"] for row in rows] == [
        None, pytest.approx(100 * 25 / 62.8), pytest.approx(100 * 25 / 15.7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "params", "tflops", "flag"),
    [
        pytest.param(
            WINOGRAD, "window=3x3", 16, "algorithm: Winograd's F(4×4, 3×3), up to 4 times fewer",
            id="above 15.7",
        ),
        # 32·17 frequencies of 8 FLOPs for 28² outputs of 2·25: 39200/4352.
        pytest.param(
            "void fft2d_r2c_32x32<float>()", "window=5x5", 16,
            "algorithm: a Fourier transform of 32×32 tiles, up to 9.01 times fewer", id="FFT",
        ),
        pytest.param(WINOGRAD, "window=3x3", 15, None, id="below 15.7"),
        pytest.param("volta_sgemm_64x64_nn", "window=3x3", 15, None, id="a direct product"),
    ],
)  # fmt: skip
def test_a_fast_convolution_above_the_plain_peak_is_flagged(
    name: str, params: str, tflops: int, flag: str | None
) -> None:
    facts = {"category": "conv", "compute_dtype": "f32", "params": params}
    (row,) = judged(kernel(kernel=name, flops=tflops * 10**9, **facts), device=V100)

    assert (row["roofline_flag"] and row["roofline_flag"].startswith(flag)) == (flag and True)
    assert row["roofline_pct"] < 100


def test_no_kernel_of_a_real_trace_is_above_its_roof_without_a_reason(kineto_trace: Path) -> None:
    kernels = pyprof2.load(kineto_trace).kernels

    above = kernels[(kernels["roofline_pct"] > 105) & kernels["roofline_flag"].isna()]
    # A fast convolution is above the plain peak for a reason that is known.
    unsure = kernels[~kernels["roofline_flag"].astype(str).str.startswith("algorithm")]
    flagged = unsure.loc[unsure["roofline_flag"].notna(), "dur_ns"].sum()

    assert above.empty
    assert flagged <= 0.01 * kernels["dur_ns"].sum()


def test_winograd_lifts_the_roof_in_a_real_trace(shared_trace: Callable[[str], Path]) -> None:
    kernels = pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz")).kernels
    transforms = kernels["kernel"].astype(str).str.contains("winograd")
    ops = kernels[kernels["cost_op_id"].isin(kernels.loc[transforms, "cost_op_id"])]

    # The product kernels between the transforms have a grid of 36 products: F(4x4, 3x3).
    products = ops[ops["kernel_short"].astype(str).str.contains("sgemm")]
    assert {grid.split(",")[-1] for grid in products["grid"].unique()} == {"36"}
    # More than the V100's 15.7 TFLOP/s, and below the roof of the algorithm.
    assert ops["tflops"].max() > 15.7
    assert ops["roofline_pct"].max() == pytest.approx(100 * ops["tflops"].max() / (4 * 15.7))
    assert (ops["roofline_flag"].notna() == (ops["tflops"] > 15.7)).all()


def test_communication_has_no_roof() -> None:
    """1 GB in 1 ms are 1 TB/s, of the 3.35 of the memory: the links bound it, not the memory."""
    facts = {"flops": 0, "flops_lo": 0, "bytes": 10**9, "compute_dtype": None, "cost_op_id": 0}

    (comm,) = judged(kernel(**facts, category="comm"))
    (copy,) = judged(kernel(**facts, category="copy"))

    assert (comm["roofline_pct"], comm["bound"]) == (None, None)
    assert copy["roofline_pct"] == pytest.approx(100 / 3.35)


@pytest.mark.parametrize(
    ("name", "capability", "facts", "as_it_is", "in_half"),
    [
        pytest.param("Tesla V100-SXM2-16GB", "7.0", {}, False, True, id="before TF32"),
        pytest.param("NVIDIA A100-SXM4-80GB", "8.0", {}, True, True, id="TF32"),
        pytest.param("Tesla P100-PCIE-16GB", "6.0", {}, False, False, id="no matrix units"),
        pytest.param(
            "Tesla V100-SXM2-16GB", "7.0", {"params": "C=64,K=64,groups=64"}, False, False,
            id="depthwise",
        ),
        pytest.param(
            "Tesla V100-SXM2-16GB", "7.0", {"category": "reduce"}, False, False, id="no product",
        ),
        pytest.param(
            "Tesla V100-SXM2-16GB", "7.0", {"compute_dtype": None}, None, True, id="no dtype",
        ),
    ],
)  # fmt: skip
def test_half_precision_is_judged_by_the_sizes_alone(
    name: str,
    capability: str,
    facts: dict[str, Any],
    as_it_is: bool | None,  # noqa: FBT001 - a parameter
    in_half: bool,  # noqa: FBT001 - a parameter
) -> None:
    device = {"device": 0, "device_type": "cuda", "name": name, "compute_capability": capability}
    f32 = kernel(**({"category": "conv", "compute_dtype": "f32"} | facts))

    (row,) = judged(f32, device=device)

    assert (row["tensor_core_eligible"], row["tensor_core_eligible_half"]) == (as_it_is, in_half)
