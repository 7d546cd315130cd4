"""Recordings of inference servers made up event by event: steps of layers, op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.kineto_events import annotation, kernel, launch, op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kineto_events import Event

BF16: Final = "c10::BFloat16"
_PRODUCT: Final = "nvjet_tst_128x64_64x8_2x1_v_bz_bias_TNT"


class Call(NamedTuple):
    """An op that launches one kernel: its name, the shapes of its inputs, kernel, and duration."""

    op: str
    shapes: Sequence[Sequence[int]]
    kernel: str
    us: float


def step_events(name: str, calls: Sequence[Call], *, at: int = 1000, first: int = 1) -> list[Event]:
    """Return a step of that name whose ops launch one kernel each; the device works in order.

    Args:
        name: of the range.
        calls: the ops.
        at: when the step begins, in us.
        first: the correlation id of the first launch.
    """
    events: list[Event] = [annotation(name, at, 10 * len(calls) + 10)]
    begins = float(at + 5)
    for number, call in enumerate(calls):
        own = at + 5 + 10 * number
        types = [BF16] * len(call.shapes)
        begins = max(begins, own + 5.0)
        events += [
            op(call.op, own, 8, dims=list(map(list, call.shapes)), types=types),
            launch(own + 2, first + number),
            kernel(begins, call.us, first + number, name=call.kernel),
        ]
        begins += call.us
    return events


def gpt_oss_layers(tokens: int, layers: int, shards: int, experts: int) -> list[Call]:
    """Return the ops of gpt-oss on one of the ranks that share it, with the shares of a real B200.

    Args:
        tokens: in the batch.
        layers: how many of the model.
        shards: how many ranks there are.
        experts: in a layer.
    """
    hidden, padded, size, heads, keys = 2880, 3072, 64, 64 // shards, max(1, 8 // shards)
    width, row = heads * size, (heads + 2 * keys) * size
    rows = [tokens, hidden]
    norm = Call("_C::rms_norm", [rows, rows, [hidden]], "rms_norm_kernel", 4)
    reduced = Call("c10d::allreduce_", [rows], "ncclDevKernel_AllReduce_Sum_bf16", 30)
    layer = [
        norm,
        Call("aten::addmm", [[row], [tokens, hidden], [hidden, row]], _PRODUCT, 14),
        Call(
            "vllm::unified_attention_with_output",
            [[tokens, heads, size], [tokens, keys, size], [tokens, keys, size]],
            "fmhaSm100Kernel_QkvBfloat16OBfloat16H64PagedKvSlidingOrChunkedCausalP16", 5,
        ),
        Call("aten::addmm", [[hidden], [tokens, width], [width, hidden]], _PRODUCT, 14),
        reduced,
        norm,
        Call("aten::addmm", [[experts], [tokens, hidden], [hidden, experts]], _PRODUCT, 6),
        Call(
            "vllm::moe_forward", [[tokens, padded], [tokens, experts]],
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256_swiGlu_dynBatch_sm100f", 150,
        ),
        reduced,
    ]  # fmt: skip
    vocab = 201088 // shards
    head = Call("aten::mm", [[1, hidden], [hidden, vocab]], _PRODUCT, 40)
    return [*layer * layers, norm, head]


def gpt_oss(config: dict[str, Any], *, layers: int, experts: int) -> dict[str, Any]:
    """Return a configuration like gpt-oss with other numbers of layers and experts."""
    kinds = ["sliding_attention", "full_attention"] * layers
    changes = {"num_hidden_layers": layers, "num_local_experts": experts}
    return config | changes | {"layer_types": kinds[:layers]}
