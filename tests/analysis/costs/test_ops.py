"""Counts by hand: what each op computes and moves, in numbers that fit into the head."""

from __future__ import annotations

import math
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyprof2.analysis.costs import Evidence, estimate
from pyprof2.analysis.costs.comm import bandwidth, bus_factor
from pyprof2.analysis.costs.triton import fused_ops
from pyprof2.signatures import OpCall, Tensor
from tests.analysis.costs.calls import call, f16, f32, i32, i64, known

YES, NO = True, False


X: Final = f32(10, 100)
LOGITS: Final = f32(10, 5)
IMAGE: Final = f32(2, 3, 8, 8)
LIST: Final = (Tensor((10, 100)), Tensor((24,)))
"""1024 elements, of unknown element type as lists are."""
WHOLE: Final = f32(2, 3, 4)

COUNTS: Final = {
    # pointwise: each element takes the operations of its formula
    "relu": (call("aten::relu", X), 1000, 8000),
    "sigmoid backward": (call("aten::sigmoid_backward", X, X), 3000, 12000),
    "threshold backward": (call("aten::threshold_backward", X, X, 0), 1000, 12000),
    "gelu backward": (call("aten::gelu_backward", X, X, "none"), 2000, 12000),
    "clamp": (call("aten::clamp", X, 0.0, 1.0), 2000, 8000),
    "addcmul": (call("aten::addcmul", X, X, X, 1.0), 3000, 16000),
    "add with a scale": (call("aten::add", X, X, -0.001), 1000, 12000),
    "eq": (call("aten::eq", X, 0), 1000, 5000),
    "output as a further input": (call("aten::clamp_min", X, 0, X), 1000, 8000),
    "masked_fill in place": (call("aten::masked_fill_", X, Tensor((10, 100), "bool"), 0), 0, 9000),
    "silu_and_mul": (call("_C::silu_and_mul", f16(10, 50), f16(10, 100)), 1000, 3000),
    "dropout, backward": (
        call("aten::native_dropout_backward", X, Tensor((10, 100), "bool"), 1.1), 2000, 9000),
    "dropout in inference": (call("aten::dropout", X, 0.1, NO), 0, 0),
    "rotary": (
        call("_C::rotary_embedding", i64(4), f16(4, 64), f16(4, 16), 16, f16(100, 16), YES),
        3 * 320, 4 * 8 + 2 * 2 * 320 + 2 * 4 * 16),
    "fp8 quant": (
        call("_C::static_scaled_fp8_quant", Tensor((10, 100), "f8e4m3"), f16(10, 100), f32(1)),
        3000, 3004),
    # reductions
    "sum": (call("aten::sum", X, [1], NO, None), 990, 4040),
    "sum of all": (call("aten::sum", X, None), 999, 4004),
    "mean": (call("aten::mean", X, [0], NO, None), 1000, 4400),
    "var": (call("aten::var", X, [1], None, NO), 4000, 4040),
    "max of rows": (call("aten::max", X, 1, NO), 1000, 4000 + 10 * 12),
    "logsumexp": (call("aten::logsumexp", X, [1], NO), 4000, 4040),
    "cumsum": (call("aten::cumsum", i32(1000), 0, None), 1000, 12000),
    "sort": (call("aten::sort", X, -1, NO), 7000, 16000),
    "topk": (call("aten::topk", X, 3, -1, YES, YES), 1000, 4000 + 30 * 12),
    "bucketize": (call("aten::bucketize", X, f32(63), NO, NO), 6000, 4000 + 252 + 8000),
    # norms and softmax
    "batch norm": (
        call("aten::cudnn_batch_norm", IMAGE, *[f32(3)] * 4, YES, 0.1, 1e-5),
        7 * 384, 4 * (2 * 384 + 8 * 3)),
    "batch norm, backward": (
        call("aten::cudnn_batch_norm_backward", IMAGE, IMAGE, *[f32(3)] * 5, 1e-5,
             Tensor((64,), "u8")),
        9 * 384, 4 * (3 * 384 + 5 * 3) + 64),
    "batch norm, backward, input only": (
        call("aten::native_batch_norm_backward", IMAGE, IMAGE, None, None, None, f32(3), f32(3),
             YES, 1e-5, [YES, NO, NO]),
        9 * 384, 4 * (3 * 384 + 2 * 3)),
    "batch norm, backward in inference": (
        call("aten::native_batch_norm_backward", IMAGE, IMAGE, *[f32(3)] * 3, None, None, NO,
             1e-5, [YES, NO, NO]),
        384, 4 * (3 * 384 + 3 * 3)),
    "layer norm, backward, input only": (
        call("aten::native_layer_norm_backward", X, X, [100], f32(10, 1), f32(10, 1), f32(100),
             f32(100), [YES, NO, NO]),
        11000, 4 * (3000 + 20 + 100)),
    "layer norm, backward, parameters only": (
        call("aten::native_layer_norm_backward", X, X, [100], f32(10, 1), f32(10, 1), f32(100),
             f32(100), [NO, YES, YES]),
        5000, 4 * (2000 + 20 + 100 + 200)),
    "group norm, backward": (
        call("aten::native_group_norm_backward", IMAGE, IMAGE, f32(2, 3), f32(2, 3), f32(3), 2, 3,
             64, 3, [YES, YES, YES]),
        14 * 384, 4 * (3 * 384 + 12 + 9)),
    "rms norm": (call("aten::_fused_rms_norm", X, [100], f32(100), 1e-5), 4000, 8000 + 440),
    "rms norm without weight": (
        call("aten::_fused_rms_norm", X, [100], None, 1e-5), 3000, 8000 + 40),
    "rms norm, backward": (
        call("aten::_fused_rms_norm_backward", X, X, [100], f32(10, 1), f32(100), [YES, YES]),
        9000, 4 * (3000 + 10 + 200)),
    "rms norm into": (
        call("_C::rms_norm", f16(10, 100), f16(10, 100), f16(100), 1e-5), 4000, 4200),
    "add and rms norm": (
        call("_C::fused_add_rms_norm", f16(10, 100), f16(10, 100), f16(100), 1e-5), 5000, 8200),
    "softmax to f32": (call("aten::_softmax", f16(10, 100), -1, YES), 5000, 6000),
    "softmax backward from f32": (
        call("aten::_softmax_backward_data", X, X, -1, 5), 4000, 10000),
    # losses: one element for each target, never the whole table
    "nll": (call("aten::nll_loss_forward", LOGITS, i64(10), None, 1, -100), 10, 40 + 80 + 8),
    "nll with weights": (
        call("aten::nll_loss_forward", LOGITS, i64(10), f32(5), 1, -100), 20, 40 + 80 + 20 + 8),
    "nll backward": (
        call("aten::nll_loss_backward", f32(), LOGITS, i64(10), None, 1, -100, f32()),
        10, 4 + 80 + 4 + 200),
    "cross entropy": (
        call("aten::cross_entropy_loss", LOGITS, i64(10), None, 1, -100, 0.0), 260, 200 + 80 + 4),
    "cross entropy with weights": (
        call("aten::cross_entropy_loss", LOGITS, i64(10), f32(5), 1, -100, 0.0),
        270, 200 + 80 + 20 + 4),
    "mse": (call("aten::mse_loss", X, X, 1), 3000, 8004),
    "mse of each": (call("aten::mse_loss", X, X, 0), 2000, 12000),
    "mse backward": (call("aten::mse_loss_backward", f32(), X, X, 1), 3000, 12004),
    # pooling
    "max pool": (
        call("aten::max_pool2d_with_indices", IMAGE, [2, 2], [], [0, 0], [1, 1], NO),
        384, 4 * 384 + 96 * 12),
    "max pool, backward": (
        call("aten::max_pool2d_with_indices_backward", f32(2, 3, 4, 4), IMAGE, [2, 2], [], [0, 0],
             [1, 1], NO, i64(2, 3, 4, 4)),
        96, 96 * 12 + 4 * 384),
    "avg pool, backward": (
        call("aten::avg_pool2d_backward", f32(2, 3, 4, 4), IMAGE, [2, 2], [], [0, 0], NO, YES,
             None),
        384, 4 * (96 + 384)),
    "nearest": (
        call("aten::upsample_nearest2d", IMAGE, [16, 16], None, None), 0, 4 * 5 * 384),
    "bilinear, backward": (
        call("aten::upsample_bilinear2d_backward", f32(2, 3, 16, 16), [16, 16], [2, 3, 8, 8], NO),
        11 * 1536, 4 * 5 * 384),
    # moving
    "copy with a cast": (call("aten::copy_", f16(1000), f32(1000), NO), 0, 6000),
    "add of an expanded row": (
        call("aten::add", X, Tensor((10, 100), "f32", (0, 1)), 1), 1000, 8400),
    "copy of an expanded row": (
        call("aten::copy_", X, Tensor((10, 100), "f32", (0, 1)), NO), 0, 4400),
    "to another type": (call("aten::to", f32(1000), 15, NO, NO, None), 0, 6000),
    "to the same type": (call("aten::to", f32(1000), 6, NO, NO, None), 0, 0),
    "to a device and a type": (call("aten::to", f32(1000), None, 5, NO, NO, None), 0, 6000),
    "as another tensor": (call("aten::type_as", f32(1000), f16(3)), 0, 6000),
    "contiguous already": (
        call("aten::contiguous", Tensor((10, 100), "f32", (100, 1)), 0), 0, 0),
    "contiguous from a transposed view": (
        call("aten::contiguous", Tensor((10, 100), "f32", (1, 10)), 0), 0, 8000),
    "index_select": (call("aten::index_select", f32(1000, 8), 0, i32(5)), 0, 2 * 160 + 20),
    "scatter_add_": (
        call("aten::scatter_add_", f32(50), 0, i64(1000), f32(1000)), 1000, 8000 + 4000 + 400),
    "embedding backward": (
        call("aten::embedding_dense_backward", f32(20, 8), i64(20), 100, -1, NO),
        160, 640 + 160 + 3200),
    "embedding bag": (
        call("aten::_embedding_bag", f32(1000, 8), i64(20), i64(4), NO, 0, NO, None, NO, -1),
        160, 640 + 160 + 32 + 128 + 24 * 8),
    "gather backward": (
        call("aten::gather_backward", X, f32(10, 500), 1, i64(10, 100), NO),
        1000, 4000 + 8000 + 20000),
    "slice backward": (
        call("aten::slice_backward", f32(2, 100), [10, 100], 0, 2, 4, 1), 0, 800 + 4000),
    "cat of one type": (call("aten::cat", (f16(10), f16(20)), 0), 0, 120),
    "arange": (call("aten::arange", 2, 12, 4, None, None, NO), 0, 80),
    "randperm": (call("aten::randperm", 1000, 4, None, None, NO), 10000, 8000),
    # optimizers
    "adamw with maxima": (
        call("aten::_fused_adamw_", *[(X,)] * 5, (f32(),), 0.1, 0.9, 0.9, 0.0, 1e-8, YES, NO),
        15000, 9 * 4000),
    "adam that unscales": (
        call("aten::_fused_adam_", *[(X,)] * 4, None, (f32(),), 0.1, 0.9, 0.9, 0.0, 1e-8, NO, NO,
             f32(1), f32(1)),
        14000, 8 * 4000),
    "sgd": (
        call("aten::_fused_sgd_", (X,), (X,), None, 0.0, 0.0, 0.1, 0.0, NO, NO, YES),
        2000, 3 * 4000),
    "sgd with decay and momentum": (
        call("aten::_fused_sgd_", (X,), (X,), (X,), 0.01, 0.9, 0.1, 0.0, NO, NO, NO),
        6000, 5 * 4000),
    "foreach add": (call("aten::_foreach_add_", (X,), (X,), 1), 1000, 12000),
    "foreach mul by a number": (call("aten::_foreach_mul_", (X,), 0.9), 1000, 8000),
    "foreach addcdiv": (call("aten::_foreach_addcdiv_", (X,), (X,), (X,), 0.1), 3000, 16000),
    "unscale": (
        call("aten::_amp_foreach_non_finite_check_and_unscale_", (X,), f32(1), f32(1)),
        2000, 8000),
    # recurrent
    "gru": (
        call("aten::gru", f32(7, 2, 4), f32(1, 2, 5), (f32(15, 4), f32(15, 5), f32(15), f32(15)),
             YES, 1, 0.0, YES, NO, NO),
        2 * 14 * 15 * 9, 4 * (56 + 165 + 14 * 5)),
    "LSTM layer of oneDNN": (
        call("aten::mkldnn_rnn_layer", f32(7, 2, 3), f32(16, 3), f32(16, 4), f32(16), f32(16),
             f32(1, 2, 4), f32(1, 2, 4), NO, [], 2, 4, 1, YES, NO, NO, YES),
        2 * 14 * 16 * 7, 4 * (42 + 16 * 9 + 16 + 56 + 16)),
    "LSTM layer of oneDNN, backward": (
        call("aten::mkldnn_rnn_layer_backward", f32(7, 2, 3), f32(16, 3), f32(16, 4), f32(16),
             f32(16), f32(1, 2, 4), f32(1, 2, 4), f32(7, 2, 4), f32(1, 2, 4), f32(1, 2, 4),
             f32(7, 2, 4), f32(1, 2, 4), f32(1, 2, 4), NO, 2, 4, 1, YES, YES, NO, [], NO,
             Tensor((1000,), "u8")),
        4 * 14 * 16 * 7, 4 * (2 * (42 + 16 * 9 + 16) + 56 + 16 + 56 + 16) + 1000),
    "gru of cuDNN, backward": (
        call("aten::_cudnn_rnn_backward", f32(7, 2, 4),
             (f32(15, 4), f32(15, 5), f32(15), f32(15)), 4, f32(165), f32(1, 2, 5), None,
             f32(7, 2, 5), f32(7, 2, 5), None, None, 3, 5, 0, 1, NO, 0.0, YES, NO, [], None,
             Tensor((99,), "u8"), [NO, NO, NO, YES]),
        # both gradients for the recurrent matrix, that of the weight alone for the other
        2 * 14 * (2 * 15 * 5 + 15 * 4),
        4 * (56 + 165 + 10 + 2 * 70 + 165 + 10)),
    "both directions": (
        call("aten::lstm", f32(7, 2, 4), (f32(2, 2, 5), f32(2, 2, 5)),
             (f32(20, 4), f32(20, 5), f32(20, 4), f32(20, 5)), NO, 1, 0.0, YES, YES, NO),
        2 * 14 * 2 * 20 * 9, 4 * (56 + 360 + 14 * 10)),
    "lstm cell": (
        call("aten::lstm_cell", f32(2, 4), (f32(2, 5), f32(2, 5)), f32(20, 4), f32(20, 5), f32(20),
             f32(20)),
        2 * 2 * 20 * 9, 4 * (8 + 180 + 40 + 40)),
    # fourier
    "rfft": (call("aten::_fft_r2c", f32(4, 16), [1], 0, YES), 5 * 64 * 4 // 2, 256 + 4 * 9 * 8),
    "irfft": (
        call("aten::_fft_c2r", Tensor((4, 9), "c64"), [1], 0, 16), 5 * 64 * 4 // 2,
        4 * 9 * 8 + 256),
    "fft of a real signal": (
        call("aten::fft_fft", f32(4, 16), None, -1, None), 5 * 64 * 4 // 2, 256 + 512),
    # communication
    "all-gather": (call("c10d::_allgather_base_", f32(800), f32(100), None), 0, 3600),
    "reduce-scatter": (
        call("_c10d_functional::reduce_scatter_tensor", f32(800), "sum", 8, "0"), 0, 3600),
    "all-reduce": (call("symm_mem::multimem_all_reduce_", f16(1000), "sum", "0"), 0, 4000),
    "as told": (
        call("record_param_comms", (Tensor((9,)),), 0, {
            "collective": "allreduce", "in_count": 1000, "out_count": 1000, "dtype": "bf16",
            "group_size": 8}),
        0, 4000),
    # products of other types
    "fp4, two in one": (
        call("aten::_scaled_mm", Tensor((16, 8), "f4e2m1x2"), Tensor((8, 32), "f4e2m1x2"), f32(),
             f32(), None, None, 15, NO),
        2 * 16 * 32 * 16, 16 * 8 + 8 * 32 + 2 * 4 + 2 * 16 * 32),
    "complex": (
        call("aten::mm", Tensor((2, 3), "c64"), Tensor((3, 4), "c64")), 192, 8 * (6 + 12 + 8)),
    "int4 weights": (
        call("aten::_weight_int4pack_mm", f16(3, 64), i32(4, 2, 32, 4), 32, f16(2, 32, 2)),
        2 * 3 * 32 * 64, 2 * 192 + 4 * 1024 + 2 * 128 + 2 * 96),
    "beta 0": (call("aten::addmm", f32(2, 4), f32(2, 3), f32(3, 4), 0, 1), 48, 4 * 26),
    "summed batches": (
        call("aten::addbmm", f32(2, 4), f32(5, 2, 3), f32(5, 3, 4), 1, 1), 240, 4 * (16 + 90)),
    "cholesky": (call("aten::linalg_cholesky_ex", f32(6, 6), NO, NO), 72, 288),
    # fbgemm
    "lookup in one table": (
        call("fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", f32(0),
             f32(8000), f32(0), f32(0, 0), i32(1), i64(1), i32(2), None, None, i64(2), None,
             i64(50), i64(11), None, None, None, i32(0), None, None, None, f32(1000), f32(0)),
        50 * 8, 4 * 400 + 400 + 88 + 10 * 8 * 4),
    "quantise rows": (call("fbgemm::FloatToFP8RowwiseQuantized", X, YES), 3000, 4000 + 10 * 108),
}  # fmt: skip


REPEATS: Final = {"index_select", "scatter_add_", "embedding bag", "lookup in one table"}
"""Which of their rows are named more than once is not recorded."""


@pytest.mark.parametrize("name", COUNTS)
def test_an_op_has_the_counts_of_its_formula(name: str) -> None:
    recorded, flops, total = COUNTS[name]

    found = estimate(recorded)

    cost = known(found)
    assert (cost.flops, cost.bytes) == (flops, total), found
    assert found.status == ("assumed" if name in REPEATS else "ok")


ASSUMED: Final = {
    # name: the call, value, least and most of flops and of bytes; None: not bounded
    "batch norm": (
        call("aten::cudnn_batch_norm", IMAGE, *[f32(3)] * 4, None, None, None),
        (2688, 768, 2688), (3168, 3120, 3168)),
    "sum of unknown dims": (
        call("aten::sum", X, None, None, None), (999, 0, 999), (4004, 4004, 8000)),
    "adam of unknown types": (
        call("aten::_fused_adam_", *[LIST] * 4, None, (f32(),), 0.1, 0.9, 0.9, 0.0, 1e-8, NO, NO),
        (14 * 1024, None, None), (28 * 1024, 14 * 1024, 56 * 1024)),
    "cat of unknown types": (
        call("aten::cat", LIST, 0), (0, None, None), (8 * 1024, 2 * 1024, 32 * 1024)),
    "all-reduce of unknown types": (
        call("c10d::allreduce_", LIST), (0, None, None), (8 * 1024, 2 * 1024, 32 * 1024)),
    "cast to an unknown type": (
        call("aten::_to_copy", X, None, None, None, None, None, None),
        (0, None, None), (8000, 5000, 20000)),
    "hits": (call("aten::nonzero", Tensor((1000,), "bool")), (1000, None, None),
             (1000, 1000, 9000)),
    "elements under a mask": (
        call("aten::masked_select", X, Tensor((10, 100), "bool")), (0, None, None),
        (9000, 1000, 9000)),
    "grouped product": (
        call("aten::_grouped_mm", f32(10, 4), f32(2, 4, 3), i32(2), None, None),
        (240, 0, 240), (4 * (40 + 24 + 30), 0, 4 * 94)),
}  # fmt: skip


@pytest.mark.parametrize("name", ASSUMED)
def test_an_assumption_has_bounds(name: str) -> None:
    recorded, flops, traffic = ASSUMED[name]

    found = estimate(recorded)

    cost = known(found)
    assert found.status == "assumed"
    assert (cost.flops, cost.flops_lo, cost.flops_hi) == flops
    assert (cost.bytes, cost.bytes_lo, cost.bytes_hi) == traffic


def test_a_list_takes_its_type_from_the_result() -> None:
    found = estimate(call("aten::cat", LIST, 0), Evidence(output=f16(1024)))

    assert (found.status, known(found).bytes) == ("ok", 4096)


def test_a_list_takes_its_type_from_the_kernels() -> None:
    """Two bytes an element, read and written; of what type they are does not matter to a copy."""
    found = estimate(call("aten::cat", LIST, 0), Evidence(elements=("bits16",)))

    assert (found.status, known(found).bytes, known(found).dtype) == ("ok", 4096, None)


def test_indices_that_are_known_are_read() -> None:
    """5 rows of 16 f32, out of 1000, and 5 indices of 8 bytes."""
    told = Evidence(output=Tensor((5, 16)), indices=(i64(5),))

    found = estimate(call("aten::index", f32(1000, 16), None), told)

    assert (found.status, known(found).bytes) == ("assumed", 2 * 320 + 40)
    assert (known(found).bytes_lo, known(found).bytes_hi) == (4 + 320 + 40, 2 * 320 + 40)
    assert found.note.startswith("what is named more than once is not recorded")


def test_a_mask_names_nothing_twice() -> None:
    """5 elements, read and written, and a byte for each of 1000."""
    told = Evidence(output=Tensor((5,)), indices=(Tensor((1000,), "bool"),))

    found = estimate(call("aten::index", f32(1000), None), told)

    assert (found.status, known(found).bytes) == ("ok", 2 * 20 + 1000)


INTO: Final = {
    # name: the call; flops; bytes, at least, at most: index and source read besides
    "rows added": (
        call("aten::index_add_", f32(10, 4), 0, i64(1000), f32(1000, 4), 1),
        4000, 24_000 + 2 * 160, 24_000 + 2 * 16, 24_000 + 2 * 16_000),
    "fewer rows than there are": (
        call("aten::index_add_", f32(10, 4), 0, i64(3), f32(3, 4), 1),
        12, 72 + 2 * 48, 72 + 2 * 16, 72 + 2 * 48),
    "one row": (
        call("aten::index_add_", f32(10, 4), 0, i64(1), f32(1, 4), 1), 4, 56, 56, 56),
    "elements added": (
        call("aten::scatter_add_", f32(50), 0, i64(1000), f32(1000)),
        1000, 12_000 + 2 * 200, 12_000 + 2 * 4, 12_000 + 2 * 4000),
    "the largest": (
        call("aten::scatter_reduce_", f32(50), 0, i64(1000), f32(1000), "amax"),
        1000, 12_000 + 2 * 200, 12_000 + 2 * 4, 12_000 + 2 * 4000),
    "rows put": (
        call("aten::index_copy_", f32(10, 4), 0, i64(1000), f32(1000, 4)),
        0, 24_000 + 160, 24_000 + 16, 24_000 + 16_000),
    "added elsewhere": (
        call("aten::scatter_add", f32(50), 0, i64(1000), f32(1000)), 1000, 12_400, 12_400, 12_400),
    # The more places are written, the fewer of x are read.
    "put elsewhere": (
        call("aten::scatter", f32(50), 0, i64(3), f32(3)),
        0, 36 + 4 * 47 + 200, 36 + 4 * 47 + 200, 36 + 4 * 49 + 200),
}  # fmt: skip


@pytest.mark.parametrize("name", INTO)
def test_no_more_of_a_destination_is_touched_than_there_is(name: str) -> None:
    recorded, flops, value, least, most = INTO[name]

    found = estimate(recorded)

    cost = known(found)
    low, high = cost.bytes_lo or cost.bytes, cost.bytes_hi or cost.bytes
    assert (cost.flops, cost.bytes, low, high) == (flops, value, least, most)
    assert found.status == ("ok" if least == most else "assumed")


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_bounds_hold_what_any_index_needs(places: list[int]) -> None:
    """Rows of 4 f32 added to 10: the distinct ones read and written, or each anew."""
    count = len(places)
    fixed = 8 * count + 16 * count

    cost = known(estimate(call("aten::index_add_", f32(10, 4), 0, i64(count), f32(count, 4), 1)))

    low, high = cost.bytes_lo or cost.bytes, cost.bytes_hi or cost.bytes
    assert low is not None
    assert high is not None
    assert low <= fixed + 2 * 16 * len(set(places)) <= fixed + 2 * 16 * count <= high


PLACES: Final = {
    # name: x, values, whether they add up, the indexed shape, indices; flops and bytes
    "values": (f32(10), f32(3), NO, f32(3), (i64(3),), 0, 12 + 24 + 12),
    "values that add up": (f32(10), f32(3), YES, f32(3), (i64(3),), 3, 12 + 24 + 12 + 12),
    "one value for half a million places": (
        f32(10**6), f32(), NO, f32(500_000), (i64(500_000),), 0, 4 + 4_000_000 + 2_000_000),
    "one row for many": (
        f32(4096, 1024), f32(1024), NO, f32(2048, 1024), (i64(2048),), 0,
        4096 + 16_384 + 8_388_608),
    "more places than there are": (
        f32(1000, 64), f32(), YES, f32(5000, 64), (i64(5000),), 320_000,
        4 + 40_000 + 256_000 + 256_000),
    "one value under a mask": (
        f32(1000), f32(), NO, None, (Tensor((1000,), "bool"),), 0, 4000 + 1000 + 4000),
}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_values_put_to_places_are_written_and_the_places_read(name: str) -> None:
    x, values, adds, output, indices, flops, nbytes = PLACES[name]

    recorded = call("aten::_index_put_impl_", x, None, values, adds)
    found = estimate(recorded, Evidence(output=output, indices=indices))

    # Of more places than there are each may be named; a mask names none twice.
    status = "ok" if indices[0].dtype == "bool" else "assumed"
    assert (found.status, known(found).flops, known(found).bytes) == (status, flops, nbytes)


def test_whether_values_add_up_is_an_assumption_where_it_is_not_recorded() -> None:
    """12 bytes of values and 24 of indices; one place written, all, or read and written."""
    recorded = call("aten::_index_put_impl_", f32(10), None, f32(3), None, None)

    found = estimate(recorded, Evidence(output=f32(3), indices=(i64(3),)))

    assert (found.status, known(found).bytes) == ("assumed", 48)
    assert (known(found).bytes_lo, known(found).bytes_hi) == (40, 60)
    assert (known(found).flops_lo, known(found).flops_hi) == (0, 3)


def test_so_is_how_often_values_are_repeated() -> None:
    recorded = call("aten::_index_put_impl_", f32(10), None, f32(3), NO)

    found = estimate(recorded, Evidence(indices=(i64(3),)))

    assert (found.status, known(found).bytes, known(found).bytes_hi) == ("assumed", 48, 76)


LOOKUP: Final = call(
    "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function", f32(0), f32(7992), f32(0),
    f32(0, 0), i32(2), i64(2), i32(3), None, None, i64(3), None, i64(50), i64(21), None, None,
    None, i32(0), None, None, None, f32(999), f32(0),
)  # fmt: skip
"""Two tables, 999 rows of 8 elements together; 50 rows in 2 x 10 bags."""


def test_tables_have_rows_of_one_length_where_the_means_by_table_and_by_row_agree() -> None:
    """7992 elements in 999 rows are 8 each; so are 16 in two tables, but not 20."""
    even, uneven = (estimate(LOOKUP, Evidence(output=f32(10, width))) for width in (16, 20))

    assert known(even).flops_lo == known(even).flops_hi == 50 * 8
    assert known(even).bytes == 4 * 400 + 400 + 168 + 20 * 8 * 4
    assert (uneven.status, known(uneven).flops) == ("assumed", 50 * 10)


def test_tables_of_as_many_rows_may_have_rows_of_several_lengths() -> None:
    """Two tables of 500 rows, of 4 and 12: their means agree, and no row has that length."""
    inputs = list(LOOKUP.inputs)
    inputs[1], inputs[20] = f32(8000), f32(1000)

    found = estimate(call(LOOKUP.op, *inputs), Evidence(output=f32(10, 16)))

    assert found.status == "assumed"


def test_the_gradient_of_a_lookup_updates_the_rows_that_were_looked_up() -> None:
    """50 rows of 8 f32 and one number each for the optimizer: read and written.

    Read besides: a gradient of 10 x 16, 50 indices and 21 offsets of 8 bytes.
    """
    node = call("torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>", f32(10, 16))

    found = estimate(node, Evidence(forward=LOOKUP))

    assert (found.status, known(found).flops) == ("assumed", 50 * 8 + 4 * 50 * 8)
    assert known(found).bytes == 640 + 400 + 168 + 2 * (1600 + 200)
    assert known(found).bytes_lo == 640 + 400 + 168 + 2 * (32 + 4)


def test_a_dense_table_has_a_gradient_of_its_own() -> None:
    """One table of 7 x 16: the gradient of all of it is written; 4 rows are added up in it."""
    forward = call("fbgemm::dense_embedding_codegen_lookup_function", f32(112), i64(1), i32(2),
                   None, None, i64(2), None, i64(4), i64(3))  # fmt: skip
    node = call("torch::autograd::CppNode<SplitLookupFunction_Dense_Op>", f32(2, 16))

    found = estimate(node, Evidence(forward=forward))

    assert (found.status, known(found).flops) == ("ok", 64)
    assert known(found).bytes == 128 + 32 + 24 + 448


def test_without_its_lookup_a_gradient_is_an_assumption() -> None:
    node = call("torch::autograd::CppNode<SplitLookupFunction_sgd_Op>", f32(10, 16))

    assert estimate(node).status == "assumed"


def test_an_index_needs_the_size_of_its_result() -> None:
    recorded = call("aten::index", f32(1000, 16), None)

    told = known(estimate(recorded, Evidence(output=Tensor((5, 16)))))

    assert estimate(recorded).status == "no_shapes"
    assert (told.bytes_read, told.bytes_written) == (320, 320)


def test_the_window_of_a_pool_follows_from_its_result_if_need_be() -> None:
    recorded = call("aten::max_pool2d_with_indices", IMAGE, None, None, None, None, None)

    told = estimate(recorded, Evidence(output=f32(2, 3, 4, 4)))

    assert estimate(recorded).status == "no_shapes"
    assert told.status == "assumed"
    assert known(told).bytes == 4 * 384 + 12 * 96


def test_half_of_a_sparse_product_is_needed() -> None:
    cost = known(
        estimate(call("aten::_sparse_semi_structured_mm", f16(32, 32), Tensor((32, 4), "i16"),
                      f16(64, 16)))
    )  # fmt: skip

    assert (cost.flops, cost.flops_hi) == (32 * 16 * 64, 2 * 32 * 16 * 64)
    assert cost.bytes == 2 * (32 * 32 + 32 * 4 + 64 * 16 + 32 * 16)


def test_rows_that_are_named_twice_may_come_from_the_cache() -> None:
    cost = known(estimate(call("aten::embedding", f32(1000, 16), i64(20), -1, NO, NO)))

    assert cost.bytes == 20 * (64 + 8) + 20 * 64
    assert (cost.bytes_lo, cost.bytes_hi) == (64 + 160 + 1280, cost.bytes)


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("triton_poi_fused_add_cos_sin_0", ("add", "cos", "sin")),
        (
            "triton_red_fused__unsafe_view_add_mean_mul_pow_rsqrt_1",
            ("_unsafe_view", "add", "mean", "mul", "pow", "rsqrt"),
        ),
        ("triton_per_fused__to_copy_native_layer_norm_7", ("_to_copy", "native_layer_norm")),
        ("triton_poi_fused_unheard_of_add_0", ("add",)),
    ],
)
def test_the_name_of_a_triton_kernel_lists_its_ops(name: str, ops: tuple[str, ...]) -> None:
    assert fused_ops(name) == ops


def test_a_triton_kernel_does_each_op_of_its_name_on_each_element() -> None:
    found = estimate(call("triton_poi_fused_add_cos_sin_0", *[X] * 3, 1000))

    cost = known(found)
    assert found.status == "assumed"
    assert (cost.flops, cost.flops_lo, cost.flops_hi) == (3000, 0, 24000)
    assert (cost.bytes, cost.bytes_lo, cost.bytes_hi) == (12000, 4000, 24000)


@pytest.mark.parametrize(
    ("items", "numbers", "moved"),
    [
        # x in and out, a bias in: x read and written, the bias read
        pytest.param([X, f32(100)], (1000,), 4 * (2 * 1000 + 100), id="in and out comes first"),
        pytest.param([f32(100), X, f32(100)], (1000,), 4 * (2000 + 200), id="in the middle"),
        pytest.param([f32(100), X], (1000,), 4 * 1100, id="the last one is the result"),
        pytest.param([X, f32(10), f32(100)], (10, 100), 4 * (2000 + 110), id="of a reduction"),
        pytest.param([X, f32(100), f32(10)], (10, 100), 4 * 1110, id="sums"),
        pytest.param([X, f32(100)], (), 4 * 1100, id="no numbers recorded"),
    ],
)
def test_a_tensor_that_a_triton_kernel_updates_is_told_by_its_size(
    items: list[Tensor], numbers: tuple[int, ...], moved: int
) -> None:
    name = "triton_red_fused_add_sum_0" if len(numbers) == 2 else "triton_poi_fused_add_0"

    cost = known(estimate(call(name, *items, *numbers)))

    assert cost.bytes == moved
    assert cost.bytes_hi == 2 * 4 * sum(math.prod(item.shape) for item in items)


@pytest.mark.parametrize(
    ("recorded", "terms"),
    [
        pytest.param(call("aten::mm", *[Tensor((4, 4), "c64")] * 2), 64, id="mm"),
        pytest.param(call("aten::bmm", *[Tensor((3, 4, 4), "c128")] * 2), 192, id="bmm"),
        pytest.param(call("aten::mv", Tensor((4, 5), "c64"), Tensor((5,), "c64")), 20, id="mv"),
        pytest.param(call("aten::dot", *[Tensor((5,), "c64")] * 2), 5, id="dot"),
    ],
)
def test_a_complex_multiply_add_is_four_of_real_numbers(recorded: OpCall, terms: int) -> None:
    """(a + bi)(c + di): 4 products and 2 sums, and 2 more to add it."""
    assert known(estimate(recorded)).flops == 8 * terms


def test_a_triton_reduction_has_two_numbers_of_elements() -> None:
    found = estimate(call("triton_red_fused_add_sum_0", X, X, f32(10), 10, 100))

    assert known(found).flops == 2000
    assert known(found).bytes_lo == 40


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("allreduce", 8, 1.75), ("_allgather_base", 8, 0.875), ("reduce_scatter", 4, 0.75),
        ("all_to_allv", 2, 0.5), ("broadcast", 8, 1.0), ("send", 2, 1.0), ("allreduce", 1, 0.0),
        ("barrier", 8, None), ("allreduce", 0, None),
    ],
)  # fmt: skip
def test_the_links_carry_a_share_of_the_payload(
    collective: str, ranks: int, factor: float | None
) -> None:
    assert bus_factor(collective, ranks) == factor


@pytest.mark.parametrize(
    ("params", "wanted"),
    [
        pytest.param("collective=allreduce,ranks=8", (100.0, 175.0), id="2·7/8"),
        pytest.param("collective=_allgather_base,ranks=4", (100.0, 75.0), id="3/4"),
        pytest.param("collective=broadcast,ranks=4", (100.0, 100.0), id="all"),
        pytest.param("collective=barrier,ranks=4", (100.0, None), id="not defined"),
        pytest.param("N=7", None, id="not described"),
    ],
)
def test_bandwidth_of_the_payload_and_of_the_links(
    params: str, wanted: tuple[float, float | None] | None
) -> None:
    """1 MB in 10 us is 100 GB/s; the payload is the larger of what goes in and comes out."""
    found = bandwidth(params, 250_000, 1_000_000, 10_000)

    assert (found and (found.algorithm_gbps, found.bus_gbps)) == wanted
    assert bandwidth(params, 1, 1, 0) is None


@pytest.mark.parametrize(
    ("smoothing", "flops", "gathered"),
    [(0.0, 260, 10), (0.1, 260 + 50, 50)],
    ids=["plain", "smooth"],
)
def test_a_loss_apart_writes_the_logarithms_and_reads_those_of_the_targets(
    smoothing: float, flops: int, gathered: int
) -> None:
    """Bounds that hold what `_log_softmax` and `nll_loss_forward` would add up to."""
    whole = estimate(call("aten::cross_entropy_loss", LOGITS, i64(10), None, 1, -100, smoothing))
    apart = (
        estimate(call("aten::_log_softmax", LOGITS, 1, NO)),
        estimate(call("aten::nll_loss_forward", LOGITS, i64(10), None, 1, -100)),
    )

    cost = known(whole)
    assert (whole.status, cost.flops_lo, cost.flops_hi) == ("ok", 260, flops)
    assert (cost.bytes_lo, cost.bytes_hi) == (284, 284 + 4 * (50 + gathered + 1))
    if not smoothing:
        assert cost.flops_hi == sum(known(each).flops for each in apart)
        assert cost.bytes_hi == sum(known(each).bytes or 0 for each in apart)
