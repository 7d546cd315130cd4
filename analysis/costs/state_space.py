"""State space models and their short convolutions: mamba_ssm, causal_conv1d, and ports of them.

FLOPs are operations per element, counted by hand below; of the chunked scan only its products,
as with other products. Bytes: each operand once, and the result; the states that pass from chunk
to chunk inside the op are not counted.

Source: Gu and Dao, "Mamba"; Dao and Gu, "Transformers are SSMs".
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    flag,
    fresh,
    integer,
    like,
    maybe_tensor,
    needed,
    numel,
    refuse,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor


@cost_of("SelectiveScanFn", "mamba_ssm::selective_scan_fwd", "_C::selective_scan_fwd",
         category="other")  # fmt: skip
def selective_scan(call: OpCall) -> Cost:
    """u and delta (…, d, l), A (d, n), B, C, D, z, bias of delta -> y, of u's shape.

    flops for each element of u and each of n states: exp(delta·A) 2, delta·u·B 1, the new state
    2, its share of y 2; and for each element delta·u 1, D 2, z and its activation 2, the bias 1.
    """
    u, delta, a = (tensor(call, at) for at in range(3))
    if (a.dtype or "").startswith("c"):
        refuse("complex states are not counted")
    d, z, bias = (maybe_tensor(call, at) for at in (5, 6, 7))
    each = 1 + (0 if d is None else 2) + (0 if z is None else 2) + (0 if bias is None else 1)
    count, states = counted(u), Size(a.shape[-1], "S")
    return tally(
        (7 * states + each) * count,
        read=[u, delta, a, maybe_tensor(call, 3), maybe_tensor(call, 4), d, z, bias],
        written=[like(u)],
        params=f"N={count},S={states}",
    )


@cost_of("mamba_ssm::ssm_chunk_scan_combined_fwd", "MambaChunkScanCombinedFn",
         category="matmul")  # fmt: skip
def chunk_scan(call: OpCall) -> Cost:
    """x (b, s, h, p), dt, A (h), B and C (b, s, g, n), size of a chunk, D, z, bias -> as x.

    In each chunk a row looks at the rows before it and at itself: `pairs` of them. flops: C·Bᵀ
    2·b·pairs·g·n, that times x 2·b·pairs·h·p; the state of each chunk and what the next ones get
    from it 4·b·s·h·p·n. Kernels multiply whole chunks: `flops_hi`.
    """
    x, b = tensor(call, 0), tensor(call, 3)
    chunk = needed(integer(call, 5) or None, "the size of a chunk is not in the recording")
    (batch, rows, heads, width), (*_, groups, states) = x.shape, b.shape
    per_pair = 2 * batch * (groups * states + heads * width)
    passed = 4 * batch * rows * heads * width * states
    parts = [chunk] * (rows // chunk) + [rows % chunk]
    pairs, whole = sum(n * (n + 1) // 2 for n in parts), sum(n * n for n in parts)
    flops, most = (per_pair * count + passed for count in (pairs, whole))
    read = [x, *(maybe_tensor(call, at) for at in (1, 2, 3, 4, 6, 7, 8))]
    cost = tally(flops, read=read, written=[like(x)], dtype=x.dtype)
    params = f"B={batch},H={heads},S={rows},P={width},N={states},G={groups},Q={chunk}"
    return bounded(replace(cost, params=params), flops=(flops, most))


_STREAMED: Final = (
    "DaoAILab::_causal_conv1d_fwd_cpp", "causal_conv1d::causal_conv1d_fwd",
    "causal_conv1d_cuda::causal_conv1d_fwd",
)  # fmt: skip
_CACHED: Final = (
    "_C::causal_conv1d_fwd", "sgl_kernel::causal_conv1d_fwd", "trtllm::causal_conv1d_fwd",
)  # fmt: skip


@cost_of(*_STREAMED, category="conv")
def causal_conv(call: OpCall) -> Cost:
    """x (b, d, l), weight (d, w), bias, …, first states, result, last states: flops 2·b·d·l·w."""
    x, out = tensor(call, 0), maybe_tensor(call, 5)
    states = [item for item in [maybe_tensor(call, 6)] if item is not None]
    return _convolved(call, x, [maybe_tensor(call, 4)], [out or like(x), *states])


@cost_of(*_CACHED, category="conv")
def causal_conv_in_place(call: OpCall) -> Cost:
    """x (…, d, l) or (d, t), weight (d, w), bias, states of a cache, …: flops 2·N·w, in place.

    bytes: x, weight, bias, the result; not the few states of the cache that are in use.
    """
    x = tensor(call, 0)
    return _convolved(call, x, [], [like(x)])


def _convolved(call: OpCall, x: Tensor, more: list[Tensor | None], written: list[Tensor]) -> Cost:
    weight = tensor(call, 1)
    return tally(
        2 * numel(x.shape) * weight.shape[-1],
        read=[x, weight, maybe_tensor(call, 2), *more],
        written=written,
        params=_channels(weight),
    )


def _channels(weight: Tensor) -> str:
    """Return the numbers that matter: each channel is a group of its own."""
    return f"C={weight.shape[0]},groups={weight.shape[0]},W={weight.shape[-1]}"


@cost_of(
    "DaoAILab::_causal_conv1d_bwd_cpp", "causal_conv1d::causal_conv1d_bwd",
    "causal_conv1d_cuda::causal_conv1d_bwd", category="conv",
)  # fmt: skip
def causal_conv_backward(call: OpCall) -> Cost:
    """x, weight (d, w), bias, grad, …, gradients of x, weight, bias and states, activation.

    flops 2·b·d·l·w each for the gradients of x and of the weight; with an activation the result
    is computed again, as much once more.
    """
    x, weight, grad = tensor(call, 0), tensor(call, 1), tensor(call, 3)
    each = 2 * numel(x.shape) * weight.shape[-1]
    activated = flag(call, 11)
    made = [maybe_tensor(call, at) for at in (7, 8, 9, 10)]
    written = [item for item in made if item is not None] or [like(x), like(weight)]
    read = [x, weight, maybe_tensor(call, 2), grad]
    flops = (2 if activated is False else 3) * each
    cost = tally(flops, read=read, written=written, params=_channels(weight))
    if activated is None:
        note = "whether there is an activation is not recorded: taken to be"
        return bounded(cost, note, flops=(2 * each, 3 * each))
    return cost


@cost_of(
    "DaoAILab::_causal_conv1d_update_cpp", "causal_conv1d::causal_conv1d_update",
    "causal_conv1d_cuda::causal_conv1d_update", "_C::causal_conv1d_update",
    "sgl_kernel::causal_conv1d_update", "trtllm::causal_conv1d_update", category="conv",
)  # fmt: skip
def causal_conv_update(call: OpCall) -> Cost:
    """x (b, d) or (b, d, l), states (…, d, w'), weight (d, w), bias: flops 2·N·w.

    bytes: x, one state for each row, read and written, weight, bias, the result.
    """
    x, states, weight = (tensor(call, at) for at in range(3))
    used = fresh((min(x.shape[0], states.shape[0]), *states.shape[1:]), states.dtype)
    return tally(
        2 * numel(x.shape) * weight.shape[-1],
        read=[x, used, weight, maybe_tensor(call, 3)],
        written=[used, like(x)],
        params=_channels(weight),
    )
