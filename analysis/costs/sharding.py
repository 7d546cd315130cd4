"""Copies of FSDP around its collectives: into the buffers that it sends, and out again.

No FLOPs. Bytes: what is read, and what is written, at its own size and type. A list of tensors
is recorded without element types: the buffer's is assumed, and bounds say what else it may be.

Source: `torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.analysis.costs.operands import (
    count_text,
    dtype_at,
    fresh,
    like,
    maybe_tensor,
    maybe_tensors,
    numel,
    over_dtypes,
    refuse,
    tally,
    tensor,
    typed,
)
from pyprof2.analysis.costs.registry import Cost, cost_of

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor


@cost_of("fsdp::all_gather_copy_in", category="cat")
def all_gather_copy_in(call: OpCall) -> Cost:
    """Shards, the buffer for all ranks, …: shards read, this rank's part of the buffer written.

    In versions before PyTorch 2.7 the op makes the buffer itself, of the type among its inputs.
    """
    shards, buffer = _listed(call), maybe_tensor(call, 1)
    named = dtype_at(call, 5 if maybe_tensors(call, 0) else 3)
    dtype = buffer.dtype if buffer is not None else named
    count = sum(numel(shard.shape) for shard in shards)
    return _gathered(shards, fresh((count,), dtype))


@cost_of("fsdp::chunk_cat", category="cat")
def chunk_cat(call: OpCall) -> Cost:
    """Gradients, dimension, ranks, the buffer: gradients read, the buffer written, with padding."""
    return _gathered(_listed(call), tensor(call, 3))


@cost_of("fsdp::split_with_sizes_copy", category="cat")
def split_with_sizes_copy(call: OpCall) -> Cost:
    """The buffer of all ranks -> parameters: read, and as much written."""
    x = tensor(call, 0)
    return tally(read=[x], written=[like(x)], params=count_text(x))


def _listed(call: OpCall) -> tuple[Tensor, ...]:
    found = next((item for item in call.inputs if isinstance(item, tuple)), ())
    if not found:
        refuse("the shapes of the list are not in the recording")
    return found


def _gathered(parts: tuple[Tensor, ...], out: Tensor) -> Cost:
    def make(guess: str) -> Cost:
        (out_,) = typed([out], guess)
        return tally(read=typed(parts, guess), written=[out_], params=count_text(out))

    return over_dtypes([*parts, out], make, ("u8", out.dtype or "f32", "f64"))
