"""State space models, FSDP's copies, Inductor's templates: calls by hand, counts by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import torch
import torch.distributed.fsdp
from torch.profiler import ProfilerActivity, profile

import pyprof2
from pyprof2.analysis.costs import Estimate, category_of, estimate
from pyprof2.signatures import OpCall, Tensor
from tests.analysis.costs.calls import bf16, call, f32, i32, known

if TYPE_CHECKING:
    from pathlib import Path

YES, NO = True, False
BF16 = 15
"""PyTorch's number of the element type."""


# --------------------------------------------------------------------------- state spaces

U: Final = bf16(2, 3, 5)
"""2 sequences of 3 channels and 5 steps: 30 elements."""


def test_a_selective_scan_takes_seven_operations_for_each_state() -> None:
    a, b = f32(3, 4), bf16(2, 4, 5)

    bare = known(estimate(call("SelectiveScanFn", U, U, a, b, b, None, None, None, NO)))
    full = known(estimate(call("SelectiveScanFn", U, U, a, b, b, f32(3), U, f32(3), YES)))

    assert bare.flops == 30 * (7 * 4 + 1)
    assert full.flops == 30 * (7 * 4 + 1 + 2 + 2 + 1)
    assert (bare.bytes_read, bare.bytes_written) == (2 * 60 + 4 * 12 + 2 * 80, 60)
    assert full.bytes_read == 2 * 60 + 4 * 12 + 2 * 80 + 12 + 60 + 12


def test_complex_states_are_left_open() -> None:
    op = call("SelectiveScanFn", U, U, Tensor((3, 4), "c64"), bf16(2, 4, 5), bf16(2, 4, 5))

    assert estimate(op).status == "no_shapes"


def scan(rows: int, chunk: int | None) -> Estimate:
    """Return the estimate for one sequence of 2 heads of width 3, in 1 group of 4 states."""
    x, dt, b = bf16(1, rows, 2, 3), f32(1, rows, 2), bf16(1, rows, 1, 4)
    name = "mamba_ssm::ssm_chunk_scan_combined_fwd"
    return estimate(call(name, x, dt, f32(2), b, b, chunk, None, None, None))


@pytest.mark.parametrize(
    ("rows", "chunk", "pairs", "whole"),
    [
        pytest.param(4, 4, 10, 16, id="one chunk"),
        pytest.param(8, 4, 20, 32, id="two chunks"),
        pytest.param(6, 4, 10 + 3, 16 + 4, id="a part of a chunk"),
    ],
)
def test_a_chunked_scan_counts_the_pairs_within_chunks(
    rows: int, chunk: int, pairs: int, whole: int
) -> None:
    cost = known(scan(rows, chunk))

    # C·Bᵀ has 4 products for each pair, that times x 2·3; states 2·3·4 products in and out.
    states = 2 * 2 * rows * 2 * 3 * 4
    assert cost.flops == 2 * pairs * (4 + 6) + states
    assert cost.flops_hi == 2 * whole * (4 + 6) + states
    assert cost.bytes == 2 * 2 * (rows * 6) + 4 * (rows * 2) + 8 + 2 * 2 * (rows * 4)


def test_a_scan_without_its_chunk_is_unknown() -> None:
    assert scan(4, None).note == "the size of a chunk is not in the recording"


CONV: Final = {
    # 30 elements, a window of 4: 2·30·4
    "forward": (
        call("DaoAILab::_causal_conv1d_fwd_cpp", U, bf16(3, 4), bf16(3), None, None, U, None, YES),
        240, 60 + 24 + 6 + 60),
    "forward, with states": (
        call("causal_conv1d::causal_conv1d_fwd", U, bf16(3, 4), None, None, bf16(2, 3, 3), U,
             bf16(2, 3, 3), NO),
        240, 60 + 24 + 36 + 60 + 36),
    "forward in place": (
        call("_C::causal_conv1d_fwd", bf16(3, 10), bf16(3, 4), None, bf16(9, 3, 3), i32(3), i32(2),
             None, YES, -1),
        240, 60 + 24 + 60),
    "backward": (
        call("DaoAILab::_causal_conv1d_bwd_cpp", U, bf16(3, 4), None, U, None, None, None, U,
             f32(3, 4), None, None, NO),
        2 * 240, 60 + 24 + 60 + 60 + 48),
    "backward with an activation": (
        call("DaoAILab::_causal_conv1d_bwd_cpp", U, bf16(3, 4), None, U, None, None, None, U,
             f32(3, 4), None, None, YES),
        3 * 240, 60 + 24 + 60 + 60 + 48),
    "one step": (
        call("causal_conv1d::causal_conv1d_update", bf16(2, 3), bf16(8, 3, 4), bf16(3, 4), None,
             bf16(2, 3), YES, None, i32(2)),
        2 * 6 * 4, 12 + 2 * 48 + 24 + 12),
}  # fmt: skip


@pytest.mark.parametrize("name", CONV)
def test_a_short_convolution_counts_its_window(name: str) -> None:
    op, flops, nbytes = CONV[name]
    found = estimate(op)
    cost = known(found)

    assert (found.status, found.category) == ("ok", "conv")
    assert (cost.flops, cost.bytes) == (flops, nbytes)


def test_an_activation_that_is_not_recorded_bounds_the_backward() -> None:
    name = "DaoAILab::_causal_conv1d_bwd_cpp"

    found = estimate(OpCall(name, (U, bf16(3, 4), None, U)))

    assert found.status == "assumed"
    assert (known(found).flops_lo, known(found).flops_hi) == (2 * 240, 3 * 240)


# --------------------------------------------------------------------------- FSDP

SHARDS: Final = (Tensor((10, 4)), Tensor((8,)))
"""48 elements of a type that is not recorded."""


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(
            call("fsdp::all_gather_copy_in", SHARDS, bf16(96), [40, 8], 48, 1), id="newer"
        ),
        pytest.param(
            call("fsdp::all_gather_copy_in", SHARDS, [40, 8], 48, 2, 1, BF16, "cuda"), id="older"
        ),
        pytest.param(
            call("fsdp::all_gather_copy_in", 48, 2, 1, BF16, "cuda", [40, 8], SHARDS), id="first"
        ),
    ],
)
def test_shards_are_copied_into_this_ranks_part_of_the_buffer(op: OpCall) -> None:
    found = estimate(op)
    cost = known(found)

    assert found.status == "assumed"
    assert found.note == "element type of the list not recorded: taken as bf16"
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, 96, 96)
    assert (cost.bytes_lo, cost.bytes_hi) == (48 + 96, 8 * 48 + 96)


def test_the_gathered_buffer_is_read_and_as_much_written() -> None:
    cost = known(estimate(call("fsdp::split_with_sizes_copy", bf16(2, 48), [40, 8], 1, SHARDS)))

    assert (cost.bytes_read, cost.bytes_written) == (192, 192)


def test_gradients_are_laid_side_by_side_with_padding() -> None:
    # 10 rows for 4 ranks are padded to 12.
    grads = (Tensor((10, 4), "bf16"),)

    cost = known(estimate(call("fsdp::chunk_cat", grads, 0, 4, f32(4, 12))))

    assert (cost.bytes_read, cost.bytes_written) == (80, 192)


def test_fsdps_copies_are_counted_as_torch_records_them(tmp_path: Path) -> None:
    half = torch.bfloat16
    shards, buffer = [torch.randn(40, dtype=half), torch.randn(8, dtype=half)], torch.empty(96)
    full, grads = buffer.to(half), [torch.randn(10, 4, dtype=half)]
    parts = [torch.empty(2, 40, dtype=half), torch.empty(2, 8, dtype=half)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorder:
        torch.ops.fsdp.all_gather_copy_in(shards, full, [40, 8], 48, 1)
        torch.ops.fsdp.split_with_sizes_copy(full.view(2, 48), [40, 8], 1, out=parts)
        torch.ops.fsdp.chunk_cat(grads, 0, 4, out=torch.empty(4, 12))
    recorder.export_chrome_trace(str(tmp_path / "t.json"))

    rows = pyprof2.load(tmp_path / "t.json").profile(by="kernel").set_index("op")

    # 48 values of 2 bytes in and out; 96 in and out; 40 of 2 bytes in and 48 of 4 bytes out.
    truth = {"all_gather_copy_in": 192, "split_with_sizes_copy": 384, "chunk_cat": 80 + 192}
    for name, nbytes in truth.items():
        row = rows.loc[f"fsdp::{name}"]
        assert row["bytes"] == nbytes or row["bytes_lo"] <= nbytes <= row["bytes_hi"]
    assert rows.loc["fsdp::all_gather_copy_in", "bytes"] == 192
    assert rows.loc["fsdp::split_with_sizes_copy", "bytes"] == 384


# --------------------------------------------------------------------------- NCCL


def test_an_exchange_of_all_is_read_and_written() -> None:
    found = estimate(call("nccl:all_to_all", f32(1000)))

    assert found.status == "assumed"
    assert found.note == "as much is taken to come in as goes out"
    assert (known(found).bytes_read, known(found).bytes_written) == (4000, 4000)


def test_an_exchange_of_lists_counts_them_all() -> None:
    lists = (Tensor((10,), "f32"), Tensor((30,), "f32"))

    assert known(estimate(call("nccl:all_to_all", lists))).bytes_read == 160


# --------------------------------------------------------------------------- Inductor's templates

A, B, OUT = bf16(4, 32), bf16(32, 16), bf16(4, 16)


@pytest.mark.parametrize(
    ("op", "nbytes"),
    [
        pytest.param(call("triton_tem_fused_mm_0", A, B, OUT, 1, 1, 1), 256 + 1024 + 128, id="mm"),
        pytest.param(call("triton_mm", A, bf16(16, 32), OUT), 256 + 1024 + 128, id="transposed"),
        pytest.param(
            call("triton_tem_fused_addmm_relu_3", bf16(16), A, B, OUT),
            32 + 256 + 1024 + 128, id="bias",
        ),
        pytest.param(
            call("triton_tem_fused_add_mm_1", A, B, bf16(4, 16), OUT),
            256 + 1024 + 2 * 128, id="residual",
        ),
        pytest.param(
            call("triton_tem_fused__to_copy_mm_2", bf16(2, 2, 32), B, bf16(2, 2, 16)),
            256 + 1024 + 128, id="as a view",
        ),
    ],
)  # fmt: skip
def test_a_template_multiplies_what_fits_by_size(op: OpCall, nbytes: int) -> None:
    found = estimate(op)
    cost = known(found)

    assert (found.status, found.category) == ("assumed", "matmul")
    assert (cost.flops, cost.bytes, cost.dtype) == (2 * 4 * 16 * 32, nbytes, "bf16")


def test_a_template_of_a_batch_multiplies_each() -> None:
    op = call("triton_tem_fused_bmm_0", bf16(3, 4, 32), bf16(3, 32, 16), bf16(3, 4, 16))

    assert known(estimate(op)).flops == 3 * 2 * 4 * 16 * 32


@pytest.mark.parametrize(
    "inputs",
    [
        pytest.param((A, B, bf16(4, 64), bf16(64, 16), OUT), id="two products added"),
        pytest.param((A, B, A, B, OUT), id="two equal products added"),
        pytest.param((A, B, bf16(5, 17)), id="no product"),
        pytest.param((A, B), id="no result"),
    ],
)
def test_a_template_that_sizes_do_not_explain_is_left_open(inputs: tuple[Tensor, ...]) -> None:
    assert estimate(call("triton_tem_fused_add_mm_1", *inputs)).status == "no_shapes"


@pytest.mark.parametrize(
    "name", ["triton_tem_fused_convolution_0", "triton_tem_fused_add_convolution"]
)
def test_a_template_convolves(name: str) -> None:
    x, weight, out = bf16(2, 8, 6, 6), bf16(16, 8, 3, 3), bf16(2, 16, 4, 4)

    cost = known(estimate(call(name, x, weight, bf16(16), out)))

    assert cost.flops == 2 * (2 * 16 * 4 * 4) * 8 * 9
    assert cost.bytes == 2 * (576 + 1152 + 16 + 512)


@pytest.mark.parametrize("name", ["flex_attention", "triton_tem_fused_flex_attention_0"])
def test_flex_attention_counts_in_full_and_bounds_the_mask(name: str) -> None:
    q, k, lse, blocks = bf16(1, 4, 8, 16), bf16(1, 2, 6, 16), f32(1, 4, 8), i32(1, 1, 1)

    found = estimate(call(name, q, k, k, lse, blocks, q))

    cost = known(found)
    assert (found.status, found.category) == ("assumed", "attention")
    assert found.note == "which blocks the mask leaves is not recorded: counted in full"
    assert (cost.flops_lo, cost.flops) == (0, 4 * 4 * 8 * 6 * 16)
    assert cost.bytes == 2 * (2 * 512 + 2 * 192)


def test_flex_attention_backward_makes_five_products() -> None:
    q, k = bf16(1, 4, 8, 16), bf16(1, 2, 6, 16)

    cost = known(estimate(call("flex_attention_backward", q, k, k, q, f32(1, 4, 8), q)))

    assert cost.flops == 5 * 2 * 4 * 8 * 6 * 16


def test_a_kernel_that_only_lists_a_product_is_none() -> None:
    assert category_of("triton_poi_fused_addmm_relu_3") == "elementwise"
    assert category_of("triton_tem_fused_addmm_relu_3") == "matmul"
