"""Operators of other libraries that do much in one call, each counted another way."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

import pyprof2
from pyprof2.analysis.costs import estimate
from pyprof2.signatures import Tensor
from tests.analysis.costs.calls import bf16, call, f32, i32, i64, known

if TYPE_CHECKING:
    from pathlib import Path

NO, YES = False, True
X = f32(2, 3, 16, 16)
BOXES = f32(5, 5)
BINS = 5 * 3 * 7 * 7


def test_roi_align_samples_each_bin() -> None:
    found = estimate(call("torchvision::roi_align", X, BOXES, 0.25, 7, 7, 2, YES))

    cost = known(found)
    # 4 samples: 4 products, 3 additions, and one to add it up; one division.
    assert cost.flops == cost.flops_lo == cost.flops_hi == BINS * (4 * 8 + 1)
    assert cost.bytes == 4 * (2 * 3 * 16 * 16 + 25 + BINS)
    assert (found.status, cost.bytes_lo) == ("assumed", 4 * (25 + BINS))


def test_as_many_samples_as_pixels_are_between_one_and_the_image() -> None:
    cost = known(estimate(call("torchvision::roi_align", X, BOXES, 0.25, 7, 7, -1, YES)))

    assert (cost.flops_lo, cost.flops, cost.flops_hi) == (BINS * 9, BINS * 33, BINS * (9 * 8 + 1))


def test_the_backward_pass_of_roi_align_writes_the_whole_gradient() -> None:
    sizes = (0.25, 7, 7, 2, 3, 16, 16, 2, YES)
    found = estimate(call("torchvision::_roi_align_backward", f32(5, 3, 7, 7), BOXES, *sizes))

    cost = known(found)
    assert (found.status, cost.flops) == ("ok", BINS * 32)
    assert cost.bytes == 4 * (BINS + 25 + 2 * 3 * 16 * 16)


@pytest.mark.torch
def test_a_deformed_convolution_is_one_with_values_between_pixels() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    offset, mask = f32(2, 18, 14, 14), f32(2, 9, 14, 14)
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.conv2d(
            torch.empty(2, 3, 16, 16, device="meta"), torch.empty(8, 3, 3, 3, device="meta")
        )
    op = "torchvision::deform_conv2d"
    rest = (1, 1, 0, 0, 1, 1, 1, 1)
    weight, bias = f32(8, 3, 3, 3), f32(8)

    masked = known(estimate(call(op, X, weight, offset, mask, bias, *rest, YES)))
    plain = known(estimate(call(op, X, weight, offset, mask, bias, *rest, NO)))

    values = 2 * 3 * 9 * 14 * 14
    assert masked.flops == counter.get_total_flops() + 8 * values
    assert plain.flops == counter.get_total_flops() + 7 * values
    elements = [2 * 3 * 256, 8 * 27, 2 * 18 * 196, 2 * 9 * 196, 8, 2 * 8 * 196]
    assert masked.bytes == 4 * sum(elements)


def test_nms_compares_at_most_all_pairs() -> None:
    found = estimate(call("torchvision::nms", f32(10, 4), f32(10), 0.5))

    cost = known(found)
    assert (found.status, cost.flops_lo, cost.flops) == ("assumed", 9 * 13, 45 * 13)
    assert (cost.bytes_lo, cost.bytes) == (4 * 50 + 8, 4 * 50 + 80)


@pytest.mark.torch
@pytest.mark.parametrize("aligned", ["edges", "corners"])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("sizes", [(40, 12), (33, 10), (12, 30), (17, 17)], ids=str)
def test_smoothing_takes_the_taps_that_have_a_weight(
    sizes: tuple[int, int], mode: str, aligned: str
) -> None:
    torch = pytest.importorskip("torch")
    source, out = sizes
    rows = torch.eye(source, dtype=torch.float64)[:, None, None]
    weights = torch.nn.functional.interpolate(
        rows, (1, out), mode=mode, align_corners=aligned == "corners", antialias=True
    )
    taps = int((weights.abs() > 1e-12).sum())

    op = call(
        f"aten::_upsample_{mode}2d_aa", f32(2, 3, source, source), [out, out],
        aligned == "corners", None, None,
    )  # fmt: skip
    cost = known(estimate(op))

    # Those at the very edge of a filter weigh nothing: one at each side; and of a cubic one those
    # at the zeros between.
    zeros = {"bilinear": 2, "bicubic": 4}[mode]
    least, most = (2 * 6 * (source + out) * (taps + more) for more in (0, zeros * out))
    assert least <= cost.flops <= most
    assert cost.bytes == 4 * 6 * (source**2 + out**2)


@pytest.mark.parametrize(
    ("m", "n", "mode", "flops"),
    [
        # A square: 4n³/3 for each of R and Q.
        pytest.param(6, 6, "reduced", 2 * 4 * 216 // 3, id="square"),
        pytest.param(6, 6, "complete", 2 * 4 * 216 // 3, id="square, complete"),
        pytest.param(6, 3, "r", 2 * 6 * 9 - 2 * 27 // 3, id="r"),
        pytest.param(6, 3, "reduced", 2 * (2 * 6 * 9 - 18), id="tall"),
        pytest.param(6, 3, "complete", 108 - 18 + 4 * (36 * 3 - 6 * 9 + 9), id="tall, complete"),
        pytest.param(3, 6, "reduced", 108 - 18 + 4 * 27 // 3, id="wide"),
    ],
)
def test_qr_takes_reflections(m: int, n: int, mode: str, flops: int) -> None:
    cost = known(estimate(call("aten::linalg_qr", f32(5, m, n), mode)))

    short = min(m, n)
    q = {"r": 0, "complete": m * m}.get(mode, m * short)
    r = (m if mode == "complete" else short) * n
    assert cost.flops == 5 * flops
    assert cost.bytes == 4 * 5 * (m * n + q + r)


def test_two_triangular_solves_of_a_factor() -> None:
    cost = known(estimate(call("aten::cholesky_solve", f32(3, 8, 2), f32(3, 8, 8), NO)))
    each = known(estimate(call("aten::linalg_solve_triangular", f32(3, 8, 8), f32(3, 8, 2), NO)))

    assert cost.flops == 2 * each.flops == 3 * 2 * 8 * 8 * 2
    assert cost.bytes == 4 * 3 * (16 + 64 + 16)


def test_the_backward_pass_of_a_bag_is_that_of_what_it_calls() -> None:
    grad, index, bags, scales = f32(4, 8), i64(10), i64(10), f32(10)
    sizes = (i64(4), i64(0))
    whole = call("aten::_embedding_bag_backward", grad, index, i64(4), bags, *sizes, 50, NO, 0, NO,
                 scales, -1)  # fmt: skip
    inside = call("aten::_embedding_bag_dense_backward", grad, index, bags, *sizes, 50, NO, 0,
                  scales, -1)  # fmt: skip

    cost = known(estimate(whole))
    assert (cost.flops, cost.bytes) == (
        known(estimate(inside)).flops,
        known(estimate(inside)).bytes,
    )
    assert cost.flops == 2 * 10 * 8
    assert cost.bytes == 4 * 32 + 8 * 20 + 4 * 10 + 4 * 50 * 8


def test_a_linear_loss_is_a_product_and_a_loss() -> None:
    cost = known(estimate(call("aten::linear_cross_entropy", bf16(6, 16), bf16(40, 16), i64(6))))
    loss = known(
        estimate(call("aten::cross_entropy_loss", bf16(6, 40), i64(6), None, 1, -100, 0.0))
    )

    assert cost.flops == 2 * 6 * 40 * 16 + loss.flops
    assert cost.bytes == 2 * (6 * 16 + 40 * 16) + 8 * 6 + 2
    assert cost.bytes_hi == cost.bytes + 2 * 2 * 6 * 40


T, H, E, INNER, K = 6, 16, 8, 24, 2
GATED = bf16(E, 2 * INNER, H), bf16(E, H, INNER)
CHOICE = f32(T, K), i32(T, K)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("vllm::inplace_fused_experts", (bf16(T, H), *GATED, *CHOICE)),
        ("vllm::outplace_fused_experts", (bf16(T, H), *GATED, *CHOICE, "silu")),
        ("sglang::inplace_fused_experts", (bf16(T, H), *GATED, *CHOICE)),
        ("sgl_kernel::fused_experts_cpu", (bf16(T, H), *GATED, *CHOICE)),
        ("aiter::fused_moe_", (bf16(T, H), *GATED, *CHOICE)),
        ("aiter::fmoe_g1u1", (bf16(T, H), bf16(T, H), *GATED, i32(64), f32(64), i32(2), i32(1), K)),
        ("vllm::inplace_fused_experts",
         (bf16(T, H), Tensor((E, 2 * INNER, H // 2), "u8"), Tensor((E, H, INNER // 2), "u8"),
          *CHOICE)),
    ],
)  # fmt: skip
def test_experts_multiply_each_token_k_times(op: str, inputs: tuple[Any, ...]) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    first, second = (torch.empty(*shape, device="meta") for shape in ((2 * INNER, H), (H, INNER)))
    with FlopCounterMode(display=False) as counter:
        for _ in range(K):
            hidden = torch.empty(T, H, device="meta") @ first.T
            _ = hidden[:, :INNER] @ second.T

    found = estimate(call(op, *inputs))

    cost = known(found)
    assert (found.status, found.category) == ("assumed", "matmul")
    assert cost.flops == cost.flops_lo == counter.get_total_flops()
    assert "experts" in found.note


def test_only_experts_that_can_be_chosen_are_read() -> None:
    few = known(
        estimate(call("vllm::inplace_fused_experts", bf16(1, H), *GATED, f32(1, K), i32(1, K)))
    )
    many = known(estimate(call("vllm::inplace_fused_experts", bf16(T, H), *GATED, *CHOICE)))

    expert = 2 * (2 * INNER * H + H * INNER)
    assert few.bytes == few.bytes_lo == 2 * 2 * H + 8 * K + K * expert
    assert many.bytes == 2 * 2 * T * H + 8 * T * K + E * expert
    assert many.bytes_lo == many.bytes - (E - K) * expert


def test_where_experts_are_on_several_ranks_there_may_be_none_here() -> None:
    cost = known(
        estimate(call("vllm::inplace_fused_experts", bf16(T, H), *GATED, *CHOICE, i32(64)))
    )

    assert (cost.flops_lo, cost.flops_hi) == (0, cost.flops)


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # deprecated
def test_a_linear_layer_quantised_on_the_way_shows_its_width(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not {"fbgemm", "onednn", "x86"} & set(torch.backends.quantized.supported_engines):
        pytest.skip("no engine for quantised products")
    model = torch.ao.nn.quantized.dynamic.Linear(16, 24)
    with torch.profiler.profile(record_shapes=True) as profiler:
        model(torch.ones(5, 16))
    path = tmp_path / "t.json"
    profiler.export_chrome_trace(str(path))

    ops = pyprof2.load(path).ops
    found = ops[ops["op"] == "quantized::linear_dynamic"].iloc[0]

    assert (found["cost_status"], found["flops"]) == ("ok", math.prod((2, 5, 16, 24)))
    assert found["bytes"] == 4 * 5 * 16 + 16 * 24 + 4 * 5 * 24
