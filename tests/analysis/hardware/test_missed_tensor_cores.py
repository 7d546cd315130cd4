"""Which time could have been on Tensor Cores, and why it was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from pyprof2.analysis.hardware.missed_tensor_cores import advice_on, missed_reasons, missed_time
from pyprof2.analysis.summaries.ledger import sum_by
from pyprof2.analysis.summaries.profile_columns import MORE_COLUMNS
from pyprof2.analysis.summaries.rows import activity_parts, frame
from pyprof2.tables import PROFILE_COLUMNS
from tests.builders import canonical, summarized
from tests.kineto_events import launched, load_events, op

if TYPE_CHECKING:
    from pathlib import Path

MISSED = {
    "tensor_core": "no", "tensor_core_eligible": True, "flops": 10, "dur_ns": 100,
    "compute_dtype": "bf16", "params": "M=512,N=512,K=512", "device_type": "cuda",
}  # fmt: skip


def reason(**facts: Any) -> str | None:
    """Return why the kernel missed the Tensor Cores."""
    codes, words = missed_reasons(canonical("kernels", MISSED | facts))
    return words[codes[0]] if codes[0] >= 0 else None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({"compute_dtype": "f32"}, "f32 without TF32", id="f32"),
        pytest.param({"compute_dtype": "c64"}, "f32 without TF32", id="complex"),
        pytest.param(
            {"compute_dtype": "f32", "device_type": "hip"},
            "the library chose another kernel",
            id="f32 on AMD needs no TF32",
        ),
        pytest.param({"params": "M=512,N=1,K=512"}, "a product with a vector", id="column"),
        pytest.param(
            {"params": "B=4,M=1,N=512,K=512", "compute_dtype": "f32"},
            "a product with a vector",
            id="row",
        ),
        pytest.param(
            {"params": "M=512,N=100,K=512"}, "sizes that are no multiples of 8", id="odd N"
        ),
        pytest.param(
            {"params": "M=512,N=24,K=512", "compute_dtype": "f8e4m3"},
            "sizes that are no multiples of 16",
            id="N in fp8",
        ),
        pytest.param({"params": "M=3,N=8,K=8"}, "the library chose another kernel", id="odd M"),
        pytest.param(
            {"params": "N=1,C=64,K=64,in=7x7,out=7x7,window=3x3,groups=1"},
            "the library chose another kernel",
            id="convolution, batch of one",
        ),
        pytest.param(
            {"params": "N=8,C=3,K=64,in=7x7,out=7x7,window=3x3,groups=1"},
            "sizes that are no multiples of 8",
            id="convolution of three channels",
        ),
        pytest.param(
            {"params": "N=8,C=64,K=64,window=3x3,groups=16"},
            "sizes that are no multiples of 8",
            id="four channels in a group",
        ),
        pytest.param({"params": None}, "the library chose another kernel", id="no sizes"),
        pytest.param(
            {
                "compute_dtype": "f32",
                "tensor_core_eligible": False,
                "tensor_core_eligible_half": True,
            },
            "f32, which these units take in half precision alone",
            id="f32 where there is no TF32",
        ),
        pytest.param(
            {
                "compute_dtype": "f64",
                "tensor_core_eligible": False,
                "tensor_core_eligible_half": True,
            },
            None,
            id="f64 is there for its digits",
        ),
        pytest.param(
            {
                "compute_dtype": "f32",
                "tensor_core_eligible": False,
                "tensor_core_eligible_half": False,
            },
            None,
            id="f32 on a device without matrix units",
        ),
        pytest.param({"tensor_core": "yes"}, None, id="used"),
        pytest.param({"tensor_core": "unknown"}, None, id="unknown"),
        pytest.param({"tensor_core_eligible": False}, None, id="never could"),
        pytest.param({"tensor_core_eligible": None}, None, id="unknown whether it could"),
        pytest.param({"flops": 0}, None, id="a helper"),
        pytest.param({"flops": None}, None, id="nothing counted"),
    ],
)
def test_each_miss_has_its_reason(facts: dict[str, Any], expected: str | None) -> None:
    assert reason(**facts) == expected


def test_each_reason_has_advice() -> None:
    reasons = ["f32 without TF32", "a product with a vector", "the library chose another kernel",
               "sizes that are no multiples of 8"]  # fmt: skip

    assert all(advice_on(text) for text in reasons)
    assert advice_on("another reason") == ""


def test_missed_time_goes_by_reason_and_layer_or_op() -> None:
    f32 = MISSED | {"compute_dtype": "f32"}
    kernels = canonical(
        "kernels",
        f32 | {"layer": "net.0", "op": "aten::mm"},
        f32 | {"layer": "net.0", "op": "aten::mm", "dur_ns": 150},
        f32 | {"op": "aten::bmm", "dur_ns": 200},
        MISSED | {"tensor_core": "yes", "dur_ns": 500},
    )

    found = sum_by(missed_time(kernels), ["reason", "place"], 1000)

    assert found.to_dict("records") == [
        {"reason": "f32 without TF32", "place": "net.0", "count": 2, "time_ns": 250,
         "share_pct": pytest.approx(25)},
        {"reason": "f32 without TF32", "place": "aten::bmm", "count": 1, "time_ns": 200,
         "share_pct": pytest.approx(20)},
    ]  # fmt: skip


def test_the_copy_of_a_bias_missed_nothing(tmp_path: Path) -> None:
    """Its op is a product that could have used Tensor Cores; and did, in its other kernel."""
    run = load_events(
        tmp_path,
        op("aten::addmm", 0, 20, dims=[[1], [5184, 1024], [1024, 8]],
           types=["c10::BFloat16"] * 3),
        launched(1, 1, at=30, dur=5, name="void at::native::elementwise_kernel<128, 4, "
                 "at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda>>(int)"),
        launched(2, 2, at=40, dur=5, name="nvjet_tst_64x8_64x16_2x1_v_bz_TNT"),
        deviceProperties=[{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9,
                           "computeMinor": 0}],
    )  # fmt: skip

    assert run.kernels["tensor_core"].tolist() == ["no", "yes"]
    assert missed_time(run.table("kernels")).empty


def test_an_axis_says_how_much_of_the_eligible_time_was_missed_and_why() -> None:
    kernels = canonical(
        "kernels",
        MISSED | {"op": "mm", "dur_ns": 100, "compute_dtype": "f32"},
        MISSED | {"op": "mm", "dur_ns": 20},
        MISSED | {"op": "mm", "dur_ns": 280, "tensor_core": "yes"},
        MISSED | {"op": "mm", "dur_ns": 999, "flops": 0},
        MISSED | {"op": "add", "dur_ns": 50, "tensor_core_eligible": False},
    )

    tables = {"kernels": kernels, "copies": canonical("copies")}
    wanted = [*PROFILE_COLUMNS, "tensor_core_missed"]
    rows = frame(activity_parts(lambda name, _: [tables[name]], wanted), wanted)
    sums = summarized(rows, ["op"])
    names = [column.name for column in MORE_COLUMNS if column.name.startswith("tensor_core")]
    more = sums.set_index("op")[names].to_dict("index")

    assert more["mm"] == {
        "tensor_core_missed_ns": 120,
        "tensor_core_missed_pct": pytest.approx(30),  # 120 of 120 + 280
        "tensor_core_missed": "f32 without TF32",
    }
    assert all(pd.isna(value) for value in more["add"].values())


def test_what_is_gained_in_half_precision_is_no_advice_on_other_kernels() -> None:
    """The rule on half precision counts that time; the one on Tensor Cores must not again."""
    half = {"tensor_core_eligible": False, "tensor_core_eligible_half": True}
    codes, _ = missed_reasons(
        canonical("kernels", MISSED | {"compute_dtype": "f32"} | half, MISSED), in_half=False
    )

    assert codes.tolist()[0] == -1
    assert codes.tolist()[1] >= 0
