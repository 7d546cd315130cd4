"""Mixtures of experts in one operator, as vLLM, SGLang and aiter call them.

Tokens (t, h), k experts for each: the first weights of an expert (n, h) and the second (h, i); n is
2·i if the first ones hold a gate too. FLOPs: 2·t·k·(n·h + h·i), those of the two products;
activations and the weighted sum are fused, and not counted, as with other products. Bytes: tokens,
result, numbers and weights of the choice, and the experts that were chosen, once each: which these
are is data.

Source: the schemas with which the libraries register their operators.
"""

from __future__ import annotations

from typing import Final

from pyprof2.analysis.costs.operands import bounded, like, refuse, size, tally, tensor, value
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor

_CHOSEN: Final = "which experts the tokens chose is data: taken to be as many as can be"
_ELSEWHERE: Final = "; experts of other ranks are counted too"
_TOPK_AT: Final = 8


@cost_of(
    "vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "vllm::fused_experts",
    "sglang::inplace_fused_experts", "sglang::outplace_fused_experts",
    "sgl_kernel::fused_experts_cpu", "aiter::fused_moe", "aiter::fused_moe_", "aiter::ck_moe",
    "aiter::asm_moe", "aiter::fmoe", "aiter::fmoe_*", category="matmul",
)  # fmt: skip
def fused_experts(call: OpCall) -> Cost:
    """Tokens (t, h), weights (e, n, h) and (e, h, i), …, k experts each: flops 2·t·k·(n·h + h·i).

    bytes: tokens, result, choice, and min(e, t·k) experts; at the least k of them.
    """
    places = [at for at, item in enumerate(call.inputs) if _dims(item) == 3]
    before = [
        at for at, item in enumerate(call.inputs[: min(places, default=0)]) if _dims(item) == 2
    ]
    if len(places) < 2 or not before:
        refuse("the experts' weights are not among the inputs")
    x, first, second = (tensor(call, at) for at in (before[-1], *places[:2]))
    tokens, width = x.shape
    experts, n, depth = first.shape
    inner = second.shape[2] * (width // depth if depth else 1)
    fits = second.shape[:2] == (experts, width) and depth and width in (depth, 2 * depth)
    if not fits or n not in (inner, 2 * inner):
        refuse("the shapes of the experts' weights do not fit")
    chosen, more = _chosen(call, places[1], tokens)
    calls = Size(tokens, "tokens") * Size(chosen, "k")
    flops = 2 * calls * (Size(n, "N") * Size(width, "H") + Size(width, "H") * Size(inner, "I"))
    cost, least = (
        tally(
            flops,
            read=[x, *more, *(_some(item, count) for item in (first, second))],
            written=[like(x)],
            params=f"tokens={tokens},k={chosen},E={experts},N={n},H={width},I={inner}",
        )
        for count in (min(experts, int(calls)), min(experts, chosen if tokens else 0))
    )
    is_spread = any(_dims(item) == 1 and _is_whole(item) for item in call.inputs[places[1] + 1 :])
    is_spread &= not call.op.startswith("aiter::fmoe")
    words = _CHOSEN + (_ELSEWHERE if is_spread else "")
    # Where experts are on several ranks no token may have chosen one of these.
    low = 0 if is_spread else int(flops)
    fewest = size(like(x)) if is_spread else least.bytes
    return bounded(cost, words, flops=(low, int(flops)), traffic=(fewest, cost.bytes))


def _chosen(call: OpCall, last: int, tokens: int) -> tuple[int, list[Tensor]]:
    """Return how many experts each token has, and the tensors that say which and how much."""
    after = [item for item in call.inputs[last + 1 :] if isinstance(item, Tensor)]
    tables = [item for item in after if len(item.shape) == 2 and item.shape[0] == tokens]
    whole = [item for item in tables if _is_whole(item)]
    if whole:
        return whole[0].shape[1], tables[:2]
    count = value(call, _TOPK_AT)
    if not call.op.startswith("aiter::fmoe") or not isinstance(count, int) or count < 0:
        refuse("how many experts a token has is not in the recording")
    return count, [item for item in after if len(item.shape) == 1][:4]


def _some(weights: Tensor, experts: int) -> Tensor:
    return Tensor((experts, *weights.shape[1:]), weights.dtype)


def _dims(item: object) -> int:
    return len(item.shape) if isinstance(item, Tensor) else 0


def _is_whole(item: object) -> bool:
    return isinstance(item, Tensor) and (item.dtype or "")[:1] in ("i", "u")
