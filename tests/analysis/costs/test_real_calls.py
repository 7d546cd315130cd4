"""Calls of real recordings, each counted by hand.

What each op of them did is written out: the sizes are those of the recording, 2 or 4 bytes for
each element of bf16 or f32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import pyprof2
from pyprof2.analysis.costs import estimate
from pyprof2.analysis.job.collective_rows import is_comm_op
from pyprof2.signatures import OpCall, Tensor, parse_inputs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N: Final = 8 * 16 * 32 * 32
"""Elements of the images of `tl_norm_mi300`."""
IMAGES: Final = "[8,16,32,32] f32"
ATTENTION: Final = "-, -, {0}, {0}, 0.0, False, False, 0.08838834764831843"

CALLS: Final = {
    "tl_sdpa_01": {
        # one sequence of 32768 rows, 32 heads of width 128, every pair twice
        "aten::_flash_attention_forward([1,32768,32,128] bf16, [1,32768,32,128] bf16, "
        f"[1,32768,32,128] bf16, {ATTENTION.format(32768)})": (
            4 * 32 * 32768 * 32768 * 128, 4 * 32768 * 32 * 128 * 2 + 32 * 32768 * 4),
    },
    "tl_sdpa_03": {
        "aten::_flash_attention_forward([16,128,32,128] bf16, [16,128,32,128] bf16, "
        f"[16,128,32,128] bf16, {ATTENTION.format(128)})": (
            4 * 16 * 32 * 128 * 128 * 128, 4 * 16 * 128 * 32 * 128 * 2 + 16 * 32 * 128 * 4),
    },
    "tl_elem_01": {
        "aten::add([8192,8192] f32, [8192,8192] f32, 1)": (8192 * 8192, 3 * 8192 * 8192 * 4),
    },
    "tl_moe2_b300": {
        # the router: 256 rows of 512 to 8 experts; two are picked and weighted
        "aten::mm([256,512] bf16, [512,8] bf16)": (
            2 * 256 * 512 * 8, 2 * (256 * 512 + 512 * 8 + 256 * 8)),
        "aten::topk([256,8] bf16, 2, -1, True, True)": (
            256 * 8, 2 * 256 * 8 + 512 * (2 + 8)),
        "aten::_softmax([256,2] bf16, -1, False)": (5 * 512, 2 * 2 * 512),
        # each row twice: the source is expanded, so 256 rows are read
        "aten::copy_([256,2,512] bf16, [256,2,512] bf16, False)": (
            0, 2 * (256 * 512 + 512 * 512)),
        # a matrix of its own for each of 512 rows
        "aten::bmm([512,1,512] bf16, [512,512,1024] bf16)": (
            2 * 512 * 512 * 1024, 2 * 512 * (512 + 512 * 1024 + 1024)),
        "aten::silu([512,1024] bf16)": (512 * 1024, 2 * 2 * 512 * 1024),
        "aten::mul([256,2,512] bf16, [256,2,1] bf16)": (
            512 * 512, 2 * (2 * 512 * 512 + 512)),
        "aten::sum([256,2,512] bf16, [1], False)": (
            256 * 512, 2 * (512 * 512 + 256 * 512)),
    },
    "tl_moe5_b300": {
        "aten::mm([512,1024] bf16, [1024,8] bf16)": (
            2 * 512 * 1024 * 8, 2 * (512 * 1024 + 1024 * 8 + 512 * 8)),
        "aten::bmm([1024,1,2048] bf16, [1024,2048,1024] bf16)": (
            2 * 1024 * 2048 * 1024, 2 * 1024 * (2048 + 2048 * 1024 + 1024)),
        "aten::sum([512,2,1024] bf16, [1], False)": (
            512 * 1024, 2 * (1024 * 1024 + 512 * 1024)),
    },
    "tl_norm_mi300": {
        # weight, bias and two running vectors read, those and two statistics written
        f"aten::miopen_batch_norm({IMAGES}, [16] f32, [16] f32, [16] f32, [16] f32, True, 0.1, "
        "1e-05)": (7 * N, 4 * (2 * N + 8 * 16)),
        "aten::native_batch_norm([1,128,32,32] f32, -, -, -, -, True, 0.1, 1e-05)": (
            7 * N, 4 * (2 * N + 2 * 128)),
        f"aten::native_layer_norm({IMAGES}, [16,32,32], [16,32,32] f32, [16,32,32] f32, 1e-05)": (
            8 * N, 4 * (2 * N + 2 * 16 * 32 * 32 + 2 * 8)),
        f"aten::native_group_norm({IMAGES}, [16] f32, [16] f32, 8, 16, 1024, 4, 1e-05)": (
            8 * N, 4 * (2 * N + 2 * 16 + 2 * 8 * 4)),
        f"aten::_fused_rms_norm({IMAGES}, [32,32], [32,32] f32)": (
            4 * N, 4 * (2 * N + 32 * 32 + 8 * 16)),
        f"aten::native_batch_norm_backward({IMAGES}, {IMAGES}, -, [16] f32, [16] f32, [16] f32, "
        "[16] f32, True, 1e-05, [True,False,False])": (9 * N, 4 * (3 * N + 2 * 16)),
        f"aten::miopen_batch_norm_backward({IMAGES}, {IMAGES}, [16] f32, [16] f32, [16] f32, "
        "[16] f32, [16] f32, 1e-05)": (9 * N, 4 * (3 * N + 3 * 16 + 2 * 16)),
        f"aten::native_layer_norm_backward({IMAGES}, {IMAGES}, [16,32,32], [8,1,1,1] f32, "
        "[8,1,1,1] f32, -, -, [True,False,False])": (11 * N, 4 * (3 * N + 2 * 8)),
        f"aten::_fused_rms_norm_backward({IMAGES}, {IMAGES}, [32,32], [8,16,1,1] f32, "
        "[32,32] f32, [True,True])": (9 * N, 4 * (3 * N + 8 * 16 + 2 * 32 * 32)),
        f"aten::mse_loss({IMAGES}, {IMAGES}, 1)": (3 * N, 4 * (2 * N + 1)),
        "aten::sum([8,16] f32, [0], False)": (7 * 16, 4 * (128 + 16)),
    },
}  # fmt: skip


def calls_of(path: Path) -> dict[str, OpCall]:
    """Return the calls of a recording under their texts."""
    table = pyprof2.load(path).signatures
    rows = zip(table["signature"], table["op"], table["inputs"], strict=True)
    return {text: OpCall(op, parse_inputs(inputs)) for text, op, inputs in rows}


@pytest.mark.parametrize("name", CALLS)
def test_the_calls_of_a_recording_have_the_counts_made_by_hand(
    name: str, shared_trace: Callable[[str], Path]
) -> None:
    calls = calls_of(shared_trace(f"kineto/{name}.json.gz"))

    found = {text: estimate(calls[text]) for text in CALLS[name]}

    counts = {
        text: None if one.cost is None else (one.cost.flops, one.cost.bytes)
        for text, one in found.items()
    }
    assert counts == CALLS[name]
    assert {one.status for one in found.values()} == {"ok"}


def test_an_image_model_does_the_flops_of_its_closed_form(
    shared_trace: Callable[[str], Path],
) -> None:
    """4 images through ViT-B/16: patches, 12 layers of 197 rows, a pooler."""
    calls = calls_of(shared_trace("kineto/tl_nsfwvit_h100.json.gz"))
    rows, width = 4 * 197, 768
    layer = 2 * rows * width * (4 * width + 8 * width)
    expected = {
        "aten::cudnn_convolution": {2 * 4 * 196 * width * width},
        "aten::_flash_attention_forward": {4 * 4 * 12 * 197 * 197 * 64},
        "aten::addmm": {2 * rows * width * n for n in (width, 4 * width)} | {2 * 4 * width * width},
    }

    found = {
        op: {cost.flops for call in calls.values() if call.op == op
             if (cost := estimate(call).cost)}
        for op in expected
    }  # fmt: skip

    assert found == expected
    patches, attention = (next(iter(found[op])) for op in list(expected)[:2])
    assert patches + 12 * (layer + attention) + 2 * 4 * width * width == 140_509_200_384


def test_no_call_of_a_recording_goes_without_a_status(kineto_trace: Path) -> None:
    for call in calls_of(kineto_trace).values():
        found = estimate(call)

        assert (found.cost is None) == (found.status in ("no_formula", "no_shapes"))
        if found.cost is not None and found.status == "assumed":
            cost = found.cost
            # What comes in of an all_to_all has no upper bound: the others decide it.
            bounds = [cost.flops_hi, cost.bytes_lo if is_comm_op(call.op) else cost.bytes_hi]
            assert bounds != [None, None] or cost.bytes is None, call


@pytest.mark.parametrize(
    ("trace", "share"),
    [("tl_owlv2_h100", 0.99), ("tl_bertsmall_h100", 1), ("tl_resnet_ckpt_mi300", 0.99)],
)
def test_nearly_all_ops_with_shapes_have_a_cost(
    trace: str, share: float, shared_trace: Callable[[str], Path]
) -> None:
    calls = [
        call
        for call in calls_of(shared_trace(f"kineto/{trace}.json.gz")).values()
        if call.op.startswith("aten::") and any(isinstance(i, Tensor) for i in call.inputs)
    ]

    costed = [call for call in calls if estimate(call).cost is not None]

    assert len(costed) >= share * len(calls)
