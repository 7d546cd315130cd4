"""Operators of Megatron, Transformer Engine, Primus, aiter and vLLM on ROCm, counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.analysis.costs import Evidence, estimate
from pyprof2.signatures import OpCall, Tensor
from tests.analysis.costs.calls import bf16, call, f32, i32, i64, known
from tests.kineto_events import ENGINE, kernel, launch, load_events, node, op

if TYPE_CHECKING:
    from pathlib import Path

YES, NO = True, False
LENGTHS = (i32(3), i32(3))
PAGES = bf16(16, 2, 1, 4, 8)
"""Of 10 pages and more; of which the sequences use a part."""
COUNTS = {
    "rows of weights": (
        call("_rocm_C::wvSplitK", bf16(64, 32), bf16(2, 32), 304), 2 * 64 * 32 * 2,
        2 * (64 * 32 + 2 * 32 + 2 * 64)),
    "with a bias": (
        call("_rocm_C::wvSplitK", bf16(64, 32), bf16(2, 32), bf16(64), 304), 2 * 64 * 32 * 2,
        2 * (64 * 32 + 2 * 32 + 2 * 64 + 64)),
    "one row": (
        call("_rocm_C::LLMM1", bf16(64, 32), bf16(1, 32), 4), 2 * 64 * 32,
        2 * (64 * 32 + 32 + 64)),
    "groups": (
        call("primus_turbo_cpp_extension::grouped_gemm", bf16(6, 8), bf16(3, 8, 10), i64(3)),
        2 * 6 * 8 * 10, 2 * (48 + 240 + 60)),
    "groups, transposed": (
        call("primus_turbo::ck_grouped_gemm", bf16(6, 8), bf16(3, 10, 8), i64(3), i64(4), NO, YES),
        2 * 6 * 8 * 10, 2 * (48 + 240 + 60)),
    "gradient of groups": (
        call("primus_turbo::grouped_gemm_variable_k", bf16(6, 8), bf16(6, 10), i64(3)),
        2 * 6 * 8 * 10, 2 * (48 + 60 + 240)),
    "layer norm": (
        call("FusedLayerNormAffineFunction", bf16(6, 8), bf16(8), bf16(8)), 8 * 48,
        2 * (48 + 16 + 48) + 2 * 4 * 6),
    "root mean square": (
        call("FusedRMSNormAffineFunction", f32(6, 8), f32(8)), 5 * 48, 4 * (48 + 8 + 48 + 6)),
    "causal softmax": (
        call("ScaledUpperTriangMaskedSoftmax", bf16(2, 4, 4), 1.0), 6 * 2 * 10,
        2 * (2 * 10 + 2 * 16)),
    "masked softmax": (
        call("ScaledMaskedSoftmax", bf16(2, 3, 4, 4), Tensor((2, 1, 4, 4), "bool"), 1.0), 6 * 96,
        2 * 192 + 32),
    "heads": (
        call("aten::_transform_bias_rescale_qkv", bf16(2, 5, 24), bf16(24), 4), 4 * 80,
        2 * (240 + 24 + 240)),
    "fused, sequence first": (
        call("FusedAttnFunc", *LENGTHS, bf16(6, 2, 4, 8), bf16(6, 2, 4, 8), bf16(6, 2, 4, 8),
             "sbhd_sbhd_sbhd", "no_mask"),
        4 * 2 * 4 * 36 * 8, 2 * 4 * 384 + 4 * 48),
    "fused, batch first and causal": (
        call("FusedAttnFunc", *LENGTHS, bf16(2, 6, 4, 8), bf16(2, 6, 4, 8), bf16(2, 6, 4, 8),
             "bshd_bshd_bshd", "causal"),
        4 * 2 * 4 * 21 * 8, 2 * 4 * 384 + 4 * 48),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_an_op_has_the_counts_of_its_formula(name: str) -> None:
    recorded, flops, total = COUNTS[name]
    found = estimate(recorded)
    cost = known(found)
    assert (cost.flops, cost.bytes, found.status) == (flops, total, "ok"), found


@pytest.mark.parametrize(("mask", "pairs"), [("no_mask", 36), ("causal", 21)])
def test_the_backward_pass_of_fused_attention_has_five_products(mask: str, pairs: int) -> None:
    """Two batches of 6 queries, 4 heads, q and k of 8, v of 16; the inputs are its forward op's."""
    qk, v = bf16(6, 2, 4, 8), bf16(6, 2, 4, 16)
    forward = call("FusedAttnFunc", *LENGTHS, qk, qk, v, "sbhd_sbhd_sbhd", mask)
    node = call("FusedAttnFuncBackward", v)
    found = estimate(node, Evidence(forward=forward))
    cost = known(found)

    assert cost.flops == 2 * 2 * 4 * pairs * (3 * 8 + 2 * 16)
    # q, k, v, twice the result, their gradients; the sums.
    assert cost.bytes == 2 * (2 * (384 + 384 + 768) + 2 * 768) + 4 * 48
    assert found.status == "ok"
    assert estimate(node).status == "no_shapes"
    assert estimate(node, Evidence(forward=call("aten::mm", qk, qk))).status == "no_shapes"


def test_without_layout_and_mask_the_counts_have_bounds() -> None:
    """The true one is within them, whichever of the two dimensions is the sequence."""
    shape = bf16(6, 2, 4, 8)
    found = estimate(call("FusedAttnFunc", *LENGTHS, shape, shape, shape))
    cost = known(found)
    assert found.status == "assumed"
    for sequence, batch in ((6, 2), (2, 6)):
        for pairs in (sequence * sequence, sequence * (sequence + 1) // 2):
            assert (cost.flops_lo or 0) <= 4 * batch * 4 * pairs * 8 <= (cost.flops_hi or 0)


@pytest.mark.parametrize("more", [("padding_causal",), ("arbitrary",), ("causal", [512, 0])])
def test_what_padding_and_windows_leave_is_not_known(more: tuple[object, ...]) -> None:
    shape = bf16(6, 2, 4, 8)
    found = estimate(call("FusedAttnFunc", *LENGTHS, shape, shape, shape, "sbhd_sbhd_sbhd", *more))
    cost = known(found)
    assert found.status == "assumed"
    assert cost.flops_lo == 0
    assert cost.flops_hi == cost.flops


def varlen(*before: object, causal: bool = YES, name: str = "aiter::fmha_v3_varlen_fwd") -> OpCall:
    lengths = (i32(3), i32(3), 4, 4, 0, 0.0, 0.1)
    return call(name, *[bf16(8, 4, 16)] * 3, *lengths, *before, NO, causal, -1, -1, YES, NO, 1)


@pytest.mark.parametrize("name", ["aiter::fmha_v3_varlen_fwd", "aiter::mha_varlen_fwd"])
@pytest.mark.parametrize("before", [(), (0.0,)])
@pytest.mark.parametrize(("causal", "pairs"), [(YES, 10), (NO, 16)])
def test_packed_sequences_of_one_length_are_counted_exactly(
    name: str, before: tuple[float, ...], *, causal: bool, pairs: int
) -> None:
    """2 sequences of 4; a version of before has no cap of the logits."""
    cost = known(estimate(varlen(*before, causal=causal, name=name)))
    assert cost.flops == 4 * 2 * 4 * pairs * 16


@pytest.mark.parametrize("starts", [[], [None], [i32(3)]])
def test_a_decode_on_rocm_looks_at_as_many_keys_as_the_longest_has(starts: list[object]) -> None:
    q, sums = bf16(2, 4, 8), f32(2, 4, 1)
    recorded = call(
        "_rocm_C::paged_attention", q, sums, sums, bf16(2, 4, 1, 8), q, PAGES, PAGES, 2, 0.5,
        i32(2, 4), i32(2), *starts, 16, 60,
    )  # fmt: skip
    found = estimate(recorded)
    assert known(found).flops == 4 * 2 * 4 * 60 * 8
    assert found.status == "assumed"


@pytest.mark.parametrize(
    "recorded",
    [
        call("FusedAttnFunc", *LENGTHS, bf16(12, 4, 8), bf16(12, 4, 8), bf16(12, 4, 8)),
        call("FusedAttnFunc"),
        call("_rocm_C::wvSplitK", bf16(64, 32), bf16(2, 30), 304),
        call("primus_turbo::grouped_gemm", bf16(6, 8), bf16(8, 10)),
        call("aten::_transform_bias_rescale_qkv", bf16(2, 5, 25), bf16(25), 5),
    ],
)
def test_what_the_recording_does_not_say_has_no_counts(recorded: OpCall) -> None:
    assert estimate(recorded).status == "no_shapes"


def test_the_kernel_of_a_node_of_fused_attention_has_its_counts(tmp_path: Path) -> None:
    item: dict[str, Any] = {"dims": [[6, 2, 4, 8]] * 3, "types": ["c10::BFloat16"] * 3}
    kernels = load_events(
        tmp_path,
        op("FusedAttnFunc", 0, 30, seq=3, fwd=0, **item),
        node("FusedAttnFuncBackward", 100, 30, seq=3, dims=[[6, 2, 4, 8]], types=["c10::BFloat16"]),
        launch(110, 1, tid=ENGINE), kernel(120, 5, 1, name="fmha_bprop"),
    ).kernels  # fmt: skip

    assert kernels["flops_hi"].tolist() == [2 * 2 * 4 * 36 * 5 * 8]
    assert kernels["op"].tolist() == ["FusedAttnFuncBackward"]
