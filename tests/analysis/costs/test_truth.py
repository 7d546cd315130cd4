"""The op calls and whole models whose FLOPs and bytes are known: each number as it must be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.analysis.costs import Estimate, estimate
from pyprof2.signatures import Input, OpCall, Scalar, Tensor
from tests.analysis.costs.calls import bf16, f32, i64

if TYPE_CHECKING:
    from pathlib import Path


def op(name: str, *inputs: Any) -> OpCall:
    """Return a call; what is no tensor is a scalar argument."""
    return OpCall(name, tuple(_input(item) for item in inputs))


def _input(item: Any) -> Input:
    is_tensors = isinstance(item, tuple) and item and isinstance(item[0], Tensor)
    return item if item is None or isinstance(item, Tensor) or is_tensors else Scalar(item)


IMAGE: Final = f32(32, 256, 56, 56)
PARAMETERS: Final = (f32(25557032),)
STATISTICS: Final = (f32(4096), f32(4096))
N: Final = f32(4096, 1024)
BIG: Final = f32(4194304)

YES, NO = True, False

CALLS: Final = {
    "aten::mm bf16 [4096,512]x[512,1024]": op("aten::mm", bf16(4096, 512), bf16(512, 1024)),
    "aten::addmm bf16 bias[1024] + [4096,512]x[512,1024]": op(
        "aten::addmm", bf16(1024), bf16(4096, 512), bf16(512, 1024), 1, 1
    ),
    "aten::addmm beta matrix C[4096,1024]": op(
        "aten::addmm", bf16(4096, 1024), bf16(4096, 512), bf16(512, 1024), 1, 1
    ),
    "aten::mm with transposed view b.t()": op(
        "aten::mm", bf16(4096, 512), Tensor((512, 1024), "bf16", (1, 512))
    ),
    "aten::mm K=0": op("aten::mm", bf16(4096, 0), bf16(0, 1024)),
    "aten::bmm bf16 [16,128,64]x[16,64,256]": op(
        "aten::bmm", bf16(16, 128, 64), bf16(16, 64, 256)
    ),
    "aten::baddbmm bf16 bias[16,128,256]": op(
        "aten::baddbmm", bf16(16, 128, 256), bf16(16, 128, 64), bf16(16, 64, 256), 1, 1
    ),
    "aten::matmul [64,128,512]x[512,256] (folds to mm)": op(
        "aten::matmul", bf16(64, 128, 512), bf16(512, 256)
    ),
    "aten::dot f32 [1e6]": op("aten::dot", f32(1000000), f32(1000000)),
    "aten::addr/outer f32 [1000],[2000]": op("aten::outer", f32(1000), f32(2000)),
    "einsum('bqhd,bkhd->bhqk') B2 q128 k128 h8 d64": op(
        "aten::einsum", "bqhd,bkhd->bhqk", (bf16(2, 128, 8, 64), bf16(2, 128, 8, 64))
    ),
    "einsum('i,j->ij')": op("aten::einsum", "i,j->ij", (f32(1000), f32(2000))),
    "aten::linear [32,128,768]->3072 bias": op(
        "aten::linear", bf16(32, 128, 768), bf16(3072, 768), bf16(3072)
    ),
    "linear backward (mm dX + mm dW + sum dB)": op(
        "aten::linear_backward",
        bf16(32, 128, 768), bf16(32, 128, 3072), bf16(3072, 768), [YES, YES, YES],
    ),
    "aten::_scaled_mm fp8 e4m3 [4096,4096]x[4096,4096]->bf16": op(
        "aten::_scaled_mm",
        Tensor((4096, 4096), "f8e4m3"), Tensor((4096, 4096), "f8e4m3", (1, 4096)),
        f32(), f32(), None, None, 15, NO,
    ),
    "aten::_int_mm int8 1024^3 -> int32": op(
        "aten::_int_mm", Tensor((1024, 1024), "i8"), Tensor((1024, 1024), "i8")
    ),
    "aten::_addmm_activation / gelu epilogue": op(
        "aten::_addmm_activation", bf16(1024), bf16(4096, 512), bf16(512, 1024), 1, 1, YES
    ),
    "grouped_mm / MoE: T=4096 tokens, top2, E8, d1024->4096": op(
        "aten::_grouped_mm", bf16(8192, 1024), bf16(8, 1024, 4096), Tensor((8,), "i32")
    ),
    "sdpa fwd full bf16 B4 H16 S2048 D64": op(
        "aten::_scaled_dot_product_flash_attention",
        *[bf16(4, 16, 2048, 64)] * 3, 0.0, NO, NO,
    ),
    "conv2d f32 N32 3x224x224 ->64 k7 s2 p3": op(
        "aten::conv2d", f32(32, 3, 224, 224), f32(64, 3, 7, 7), None, [2, 2], [3, 3], [1, 1], 1
    ),
    "conv2d 1x1 N32 256x56x56->64": op(
        "aten::conv2d", IMAGE, f32(64, 256, 1, 1), None, [1, 1], [0, 0], [1, 1], 1
    ),
    "fft_fft c2c f32 [64,4096]": op(
        "aten::_fft_c2c", Tensor((64, 4096), "c64"), [1], 0, YES
    ),
    "add f32 same shape": op("aten::add", N, N, 1),
    "add f32 [4096,1024]+[1024]": op("aten::add", N, f32(1024), 1),
    "add scalar / mul scalar": op("aten::mul", N, 2.0),
    "add_ in-place f32": op("aten::add_", N, N, 1),
    "gelu bf16": op("aten::gelu", bf16(4096, 1024), "none"),
    "addcmul_/addcdiv_ f32": op("aten::addcdiv_", N, N, N, 1.0),
    "where(cond bool,a,b) f32": op("aten::where", Tensor((4096, 1024), "bool"), N, N),
    "sum f32 [4096,1024] dim=-1": op("aten::sum", N, [-1], NO, None),
    "softmax bf16 [4096,1024] dim -1": op("aten::_softmax", bf16(4096, 1024), -1, NO),
    "_softmax_backward_data": op(
        "aten::_softmax_backward_data", bf16(4096, 1024), bf16(4096, 1024), -1, 15
    ),
    "native_layer_norm bf16 [4096,1024] affine": op(
        "aten::native_layer_norm", bf16(4096, 1024), [1024], bf16(1024), bf16(1024), 1e-5
    ),
    "native_layer_norm_backward mask[1,1,1]": op(
        "aten::native_layer_norm_backward",
        bf16(4096, 1024), bf16(4096, 1024), [1024], f32(4096, 1), f32(4096, 1),
        bf16(1024), bf16(1024), [YES, YES, YES],
    ),
    "native_batch_norm train f32 [32,256,56,56]": op(
        "aten::native_batch_norm", IMAGE, *[f32(256)] * 4, YES, 0.1, 1e-5
    ),
    "batch_norm inference f32": op(
        "aten::native_batch_norm", IMAGE, *[f32(256)] * 4, NO, 0.1, 1e-5
    ),
    "native_group_norm f32 G32 [32,256,56,56]": op(
        "aten::native_group_norm", IMAGE, f32(256), f32(256), 32, 256, 3136, 32, 1e-5
    ),
    "max_pool2d k3 s2 p1 f32 [32,64,112,112]->56": op(
        "aten::max_pool2d_with_indices",
        f32(32, 64, 112, 112), [3, 3], [2, 2], [1, 1], [1, 1], NO,
    ),
    "avg_pool2d k2 s2 f32": op(
        "aten::avg_pool2d", f32(32, 64, 112, 112), [2, 2], [2, 2], [0, 0], NO, YES, None
    ),
    "adaptive_avg_pool2d(1) [32,2048,7,7]": op(
        "aten::_adaptive_avg_pool2d", f32(32, 2048, 7, 7), [1, 1]
    ),
    "native_dropout p=.1 bf16 [4096,1024]": op(
        "aten::native_dropout", bf16(4096, 1024), 0.1, YES
    ),
    "cumsum f32 [4096,1024] dim 1": op("aten::cumsum", N, 1, None),
    "upsample_bilinear2d [8,64,64,64]->128": op(
        "aten::upsample_bilinear2d", f32(8, 64, 64, 64), [128, 128], NO, None, None
    ),
    "cat f32 2x[4096,512] dim1": op("aten::cat", (f32(4096, 512), f32(4096, 512)), 1),
    "copy_ f32->f32 contiguous N": op("aten::copy_", BIG, BIG, NO),
    "aten::to/_to_copy f32->bf16 N": op("aten::_to_copy", BIG, 15, None, None, None, NO, None),
    "clone/contiguous of transposed": op(
        "aten::clone", Tensor((1024, 4096), "f32", (1, 1024)), None
    ),
    "fill_/zero_ f32 N": op("aten::fill_", BIG, 0.0),
    "sort f32 [1024,4096] dim -1": op("aten::sort", f32(1024, 4096), -1, NO),
    "topk f32 [1024,4096] k=50": op("aten::topk", f32(1024, 4096), 50, -1, YES, YES),
    "argmax f32 [4096,1024]": op("aten::argmax", N, -1, NO),
    "SGD momentum foreach (ResNet-50 params, f32)": op(
        "aten::_fused_sgd_", *[PARAMETERS] * 3, 0.0, 0.9, 0.1, 0.0, NO, NO, NO
    ),
    "Adam/AdamW fused f32": op(
        "aten::_fused_adamw_",
        *[PARAMETERS] * 4, None, (f32(),), 1e-3, 0.9, 0.999, 0.01, 1e-8, NO, NO,
    ),
    "foreach_norm / clip_grad (L2)": op("aten::_foreach_norm", PARAMETERS, 2),
    "ncclAllReduce f32 P elements, ring n ranks": op("c10d::allreduce_", PARAMETERS),
    "view/t/transpose/permute/expand/slice/select/detach/as_strided/split": op(
        "aten::transpose", N, 0, 1
    ),
}  # fmt: skip
"""The calls of the list, under its words for them."""

NO_OPS: Final = {"Memcpy HtoD 19267584 B", "Memset 128000 B"}
"""Activities of the device whose bytes are recorded."""
DATA_DEPENDENT: Final = {"bincount/histc/unique"}


@pytest.fixture(scope="module")
def truth(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "truth" / "flops_truth.json").read_text())
    return found


@pytest.fixture(scope="module")
def rows(truth: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["call"]: row for row in truth["ops"]}


@pytest.mark.parametrize("words", CALLS)
def test_a_known_call_has_its_flops_and_bytes(words: str, rows: dict[str, dict[str, Any]]) -> None:
    found = estimate(CALLS[words])

    assert found.cost is not None, found
    assert (found.cost.flops, found.cost.bytes) == (rows[words]["flops"], rows[words]["bytes"])


def test_every_known_call_is_tested(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {*CALLS, *NO_OPS, *DATA_DEPENDENT}


@pytest.mark.parametrize("name", ["aten::bincount", "aten::histc", "aten::unique_dim"])
def test_work_that_depends_on_data_is_unknown_with_the_reason(name: str) -> None:
    found = estimate(op(name, i64(1000)))

    assert found == Estimate(None, found.category, "no_formula", "the work depends on the data")
