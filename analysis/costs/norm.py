"""Normalisation: batch, layer, group, instance, RMS.

N is the number of elements. FLOPs are operations per element, counted by hand below; the work
per channel or row is left out. Bytes: input and result once, weight and bias, and the statistics
kept for backward, in f32 (f64 for f64). A kernel that reads its input twice moves more: the
algorithmic minimum is one read.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    flag,
    flags,
    fresh,
    integer,
    integers,
    like,
    maybe_tensor,
    numel,
    refuse,
    spanning,
    tally,
    tensor,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor


def _statistics(count: int, like_: Tensor) -> Tensor:
    """Return `count` numbers of the type in which sums are kept."""
    return fresh((count,), "f64" if like_.dtype == "f64" else "f32")


_FIXED: Final = {
    "aten::_native_batch_norm_legit_no_training": False, "aten::_batch_norm_with_update": True,
    "aten::_batch_norm_with_update_functional": True, "aten::_batch_norm_no_update": False,
}  # fmt: skip
"""Whether it trains, where the op's name says it."""


@cost_of(
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
    "aten::batch_norm", "aten::_batch_norm_impl_index", "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_functional", *_FIXED, "aten::instance_norm", category="norm",
)  # fmt: skip
def batch_norm(call: OpCall) -> Cost:
    """x (n, c, …), weight, bias, running mean and variance (c) -> y; training: statistics too.

    flops: inference 2N, scale and shift; training 7N: mean 1, variance 3, normalise, scale and
    shift 3. bytes: x, y, the four vectors; training also writes the running ones and the mean and
    inverse deviation for backward.
    Where training is not recorded it is assumed, with inference as the lower bound.
    """
    x = tensor(call, 0)
    training = _FIXED.get(call.op, flag(call, 5))
    trained, applied = (_batch_norm(call, x, training=mode) for mode in (True, False))
    if training is None:
        return bounded(
            trained,
            "whether it trains is not recorded: taken to",
            flops=(applied.flops, trained.flops),
            traffic=(applied.bytes, trained.bytes),
        )
    return trained if training else applied


def _batch_norm(call: OpCall, x: Tensor, *, training: bool) -> Cost:
    channels = x.shape[1] if len(x.shape) > 1 else numel(x.shape)
    affine = [maybe_tensor(call, 1), maybe_tensor(call, 2)]
    running = [maybe_tensor(call, 3), maybe_tensor(call, 4)]
    written = [like(x)]
    if training:
        written += [item for item in running if item is not None]
        written += [_statistics(channels, x)] * 2
    return tally(
        (7 if training else 2) * _in_batch(x, channels),
        read=[x, *affine, *running],
        written=written,
        dtype=x.dtype,
        params=f"N={x.shape[0]},C={channels},HW={numel(x.shape[2:])}",
    )


def _in_batch(x: Tensor, channels: int) -> Size:
    """Return the number of elements, in terms of batch, channels and pixels."""
    pixels = Size(numel(x.shape[2:]), "HW")
    named = Size(x.shape[0], "N") * Size(channels, "C") * pixels if x.shape else counted(x)
    return named if named == numel(x.shape) else counted(x, "elements")


class _BatchBackward(NamedTuple):
    """Where a backward op has its arguments; -1: nowhere."""

    grad: int
    x: int
    weight: int
    mean: int
    training: int = -1
    mask: int = -1
    reserve: int = -1


_BATCH_NORM_BACKWARD: Final = {
    "aten::native_batch_norm_backward": _BatchBackward(0, 1, 2, 5, 7, 9),
    "aten::batch_norm_backward": _BatchBackward(0, 1, 2, 5, 7, 9, 10),
    "aten::cudnn_batch_norm_backward": _BatchBackward(1, 0, 2, 5, reserve=8),
    "aten::miopen_batch_norm_backward": _BatchBackward(1, 0, 2, 5),
    "aten::_batch_norm_impl_index_backward": _BatchBackward(2, 1, 3, 6, 8, 10, 11),
}


@cost_of(*_BATCH_NORM_BACKWARD, category="norm")
def batch_norm_backward(call: OpCall) -> Cost:
    """Grad, x, weight, saved mean and inverse deviation (c) -> gradients that the mask asks for.

    flops, training: normalise 2N, the sums for bias and weight 3N, the gradient of x 4N: 9N; the
    sums are needed for the gradient of x too. Inference: N for x, 5N for weight and bias.
    bytes: grad and x, the vectors, the gradients. Where training is not recorded it is assumed.
    """
    places = _BATCH_NORM_BACKWARD[call.op]
    grad, x = tensor(call, places.grad), tensor(call, places.x)
    training = flag(call, places.training) if places.training >= 0 else True
    wants_x, wants_weight, wants_bias = flags(call, places.mask) or (True, True, True)
    channels = x.shape[1] if len(x.shape) > 1 else numel(x.shape)
    vector = maybe_tensor(call, places.weight) or _statistics(channels, x)
    # In inference the running mean and variance stand in for those of the batch.
    first = places.weight + 1 if training is False else places.mean
    stats = [maybe_tensor(call, first + at) for at in range(2)]
    params = wants_weight or wants_bias
    trained = (5 if params or wants_x else 0) + (4 if wants_x else 0)
    applied = (5 if params else 0) + (1 if wants_x else 0)
    count = _in_batch(x, channels)
    cost = tally(
        (applied if training is False else trained) * count,
        read=[grad, x, maybe_tensor(call, places.weight), *stats,
              maybe_tensor(call, places.reserve)],
        written=[like(x) if wants_x else None, like(vector) if wants_weight else None,
                 like(vector) if wants_bias else None],
        dtype=x.dtype,
        params=f"N={x.shape[0]},C={channels},HW={numel(x.shape[2:])}",
    )  # fmt: skip
    if training is None:
        note = "whether it trained is not recorded: taken to"
        return bounded(cost, note, flops=(applied * count, trained * count))
    return cost


@cost_of("aten::batch_norm_stats", category="norm")
def batch_norm_stats(call: OpCall) -> Cost:
    """x (n, c, …) -> mean and inverse deviation (c): 4N, mean 1 and variance 3; bytes: x, both."""
    x = tensor(call, 0)
    written = [_statistics(x.shape[1], x)] * 2
    return tally(4 * counted(x), read=[x], written=written, dtype=x.dtype)


@cost_of(
    "aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts", category="norm"
)
def batch_norm_gather_stats(call: OpCall) -> Cost:
    """x, mean and inverse deviation of all ranks (ranks, c), … -> those of all: 6 flops each.

    x is not read: only its type matters.
    """
    x, mean, inverse = (tensor(call, index) for index in range(3))
    more = [maybe_tensor(call, index) for index in (3, 4)]
    written = [*more, *[_statistics(mean.shape[-1], x)] * 2]
    flops = 6 * counted(mean)
    return tally(flops, read=[mean, inverse, *more], written=written, dtype=mean.dtype)


@cost_of("aten::batch_norm_elemt", category="norm")
def batch_norm_elemt(call: OpCall) -> Cost:
    """x, weight, bias, mean, inverse deviation -> y: 2N, scale and shift; bytes: all once."""
    x = tensor(call, 0)
    more = [maybe_tensor(call, index) for index in range(1, 5)]
    return tally(2 * counted(x), read=[x, *more], written=[like(x)], dtype=x.dtype)


@cost_of("aten::batch_norm_backward_reduce", category="norm")
def batch_norm_backward_reduce(call: OpCall) -> Cost:
    """Grad, x, mean, inverse deviation -> four vectors (c): 5N, normalise 2 and sums 3."""
    grad, x = tensor(call, 0), tensor(call, 1)
    more = [maybe_tensor(call, index) for index in (2, 3)]
    written = [_statistics(x.shape[1], x)] * 4
    return tally(5 * counted(x), read=[grad, x, *more], written=written, dtype=x.dtype)


@cost_of("aten::batch_norm_backward_elemt", category="norm")
def batch_norm_backward_elemt(call: OpCall) -> Cost:
    """Grad, x, five vectors -> the gradient of x: 6N, normalise 2 and combine 4."""
    grad, x = tensor(call, 0), tensor(call, 1)
    more = [maybe_tensor(call, index) for index in range(2, 7)]
    return tally(6 * counted(x), read=[grad, x, *more], written=[like(x)], dtype=x.dtype)


def _rows(call: OpCall, x: Tensor, shape_at: int, *like_at: int) -> int:
    """Return how many rows are normalised, each by itself.

    From the normalised shape, or from a tensor of it (the weight), or from one per row (the mean).
    """
    shape = integers(call, shape_at)
    for index in like_at:
        item = maybe_tensor(call, index)
        shape = shape or (item.shape if item is not None else None)
    if not shape:
        refuse("the normalised shape is not in the recording")
    return numel(x.shape) // max(numel(shape), 1)


def _by_rows(x: Tensor, rows: int) -> Size:
    """Return the number of elements, in terms of rows and their width."""
    named = Size(rows, "rows") * Size(numel(x.shape) // max(rows, 1), "width")
    return named if named == numel(x.shape) else counted(x)


@cost_of("aten::native_layer_norm", "aten::layer_norm", category="norm")
def layer_norm(call: OpCall) -> Cost:
    """x, normalised shape, weight, bias -> y, mean and inverse deviation for each row.

    flops 8N: mean 1, subtract 1, square and add 2, scale 1, weight 1, bias 1, and 1 for the
    divisions. bytes: x, y, weight, bias, two numbers for each row.
    """
    x = tensor(call, 0)
    affine = [maybe_tensor(call, 2), maybe_tensor(call, 3)]
    rows = _rows(call, x, 1, 2, 3)
    written = [like(x), *[_statistics(rows, x)] * 2]
    params = f"rows={rows},width={numel(x.shape) // max(rows, 1)}"
    return tally(
        8 * _by_rows(x, rows), read=[x, *affine], written=written, dtype=x.dtype, params=params
    )


@cost_of("aten::native_layer_norm_backward", category="norm")
def layer_norm_backward(call: OpCall) -> Cost:
    """Grad, x, normalised shape, mean, inverse deviation, weight, bias, mask -> gradients.

    flops: normalise 2N, the gradient of x 9N, of the weight 2N, of the bias N: 14N for all.
    bytes: grad, x, mean and inverse deviation, weight; the gradients that the mask asks for.
    """
    grad, x, mean, rstd = (tensor(call, index) for index in (0, 1, 3, 4))
    weight = maybe_tensor(call, 5)
    mask = flags(call, 7) or (True, weight is not None, maybe_tensor(call, 6) is not None)
    shape = integers(call, 2) or (weight.shape if weight else x.shape[-1:])
    return _norm_backward(grad, x, weight, [mean, rstd], fresh(shape, x.dtype), mask)


def _norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    stats: list[Tensor],
    vector: Tensor,
    mask: tuple[bool, ...],
) -> Cost:
    """Return the cost of the gradients of x, weight and bias; `vector` is of the weight's shape."""
    wants_x, wants_weight, wants_bias = mask
    per_element = (
        (2 if wants_x or wants_weight else 0) + 9 * wants_x + 2 * wants_weight + wants_bias
    )
    vector = like(vector, weight.dtype if weight else None)
    rows = numel(stats[0].shape)
    return tally(
        per_element * _by_rows(x, rows),
        read=[grad, x, weight, *stats],
        written=[
            like(x) if wants_x else None,
            vector if wants_weight else None,
            vector if wants_bias else None,
        ],
        dtype=x.dtype,
        params=f"rows={rows},width={numel(x.shape) // max(rows, 1)}",
    )


@cost_of("aten::native_group_norm", category="norm")
def group_norm(call: OpCall) -> Cost:
    """x (n, c, …), weight, bias, n, c, size, groups -> y, mean and inverse deviation per group.

    flops 8N as `layer_norm`; bytes: x, y, weight, bias, two numbers for each of n·groups.
    """
    return _group_norm(call, tensor(call, 0), integer(call, 6), 1)


@cost_of("aten::group_norm", category="norm")
def composite_group_norm(call: OpCall) -> Cost:
    """x (n, c, …), groups, weight, bias -> y: as `native_group_norm`."""
    return _group_norm(call, tensor(call, 0), integer(call, 1), 2)


@cost_of("aiter::_groupnorm_run", category="norm")
def aiter_group_norm(call: OpCall) -> Cost:
    """x (n, c, …), groups, weight, bias -> y: as `native_group_norm`."""
    return _group_norm(call, tensor(call, 0), integer(call, 1), 2)


def _group_norm(call: OpCall, x: Tensor, groups: int | None, weight_at: int) -> Cost:
    affine = [maybe_tensor(call, weight_at), maybe_tensor(call, weight_at + 1)]
    # Not recorded: between one group and one for each channel.
    choices = (groups,) if groups is not None else (1, x.shape[1])
    costs = [
        tally(
            8 * counted(x, "elements"),
            read=[x, *affine],
            written=[like(x), *[_statistics(x.shape[0] * count, x)] * 2],
            dtype=x.dtype,
            params=f"N={x.shape[0]},C={x.shape[1]},G={count}",
        )
        for count in choices
    ]
    return spanning(*costs, assumed="the number of groups is not recorded: taken as one")


@cost_of("aten::native_group_norm_backward", category="norm")
def group_norm_backward(call: OpCall) -> Cost:
    """Grad, x, mean, inverse deviation (n, groups), weight, …, mask: 14N as for layers.

    9N of these for the gradient of x, 2N for that of the weight, N for the bias's, and 2N for work
    that the first two share; the mask says which are wanted.
    """
    grad, x, mean, rstd = (tensor(call, index) for index in range(4))
    weight = maybe_tensor(call, 4)
    mask = flags(call, 9) or (True, weight is not None, weight is not None)
    vector = fresh(x.shape[1:2], x.dtype)
    return _norm_backward(grad, x, weight, [mean, rstd], vector, mask)


@cost_of("aten::_fused_rms_norm", category="norm")
def fused_rms_norm(call: OpCall) -> Cost:
    """x, normalised shape, weight -> y, and the inverse root mean square for each row.

    flops: square and add 2N, scale N, weight N. bytes: x, y, weight, one number for each row.
    """
    x, weight = tensor(call, 0), maybe_tensor(call, 2)
    rows = _rows(call, x, 1, 2)
    return _rms_norm(x, weight, [like(x), _statistics(rows, x)])


def _rms_norm(x: Tensor, weight: Tensor | None, written: list[Tensor]) -> Cost:
    per_element = 3 if weight is None else 4
    count = counted(x)
    return tally(
        per_element * count, read=[x, weight], written=written, dtype=x.dtype, params=f"N={count}"
    )


@cost_of("aten::_fused_rms_norm_backward", category="norm")
def fused_rms_norm_backward(call: OpCall) -> Cost:
    """Grad, x, normalised shape, inverse root mean square, weight, mask -> gradients.

    flops: scale N; the gradient of x 5N, and N with a weight; of the weight 2N: 9N for all.
    bytes: grad, x, one number for each row, weight; the gradients that the mask asks for.
    """
    grad, x, rstd = (tensor(call, index) for index in (0, 1, 3))
    weight = maybe_tensor(call, 4)
    wants_x, wants_weight = flags(call, 5) or (True, weight is not None)
    per_element = 1 + (5 + (weight is not None)) * wants_x + 2 * wants_weight
    return tally(
        per_element * counted(x),
        read=[grad, x, rstd, weight],
        written=[like(x) if wants_x else None, weight if wants_weight else None],
        dtype=x.dtype,
        params=f"N={numel(x.shape)}",
    )


@cost_of("aten::rms_norm", category="norm")
def rms_norm(call: OpCall) -> Cost:
    """x, normalised shape, weight -> y: as `_fused_rms_norm`, nothing kept for backward."""
    x = tensor(call, 0)
    return _rms_norm(x, maybe_tensor(call, 2), [like(x)])


@cost_of(
    "_C::rms_norm", "sgl_kernel::rmsnorm", "sgl_kernel::gemma_rmsnorm", "vllm::rms_norm",
    category="norm",
)  # fmt: skip
def rms_norm_into(call: OpCall) -> Cost:
    """y, x, weight: as `rms_norm`, the result is the first input."""
    out, x = tensor(call, 0), tensor(call, 1)
    return _rms_norm(x, maybe_tensor(call, 2), [out])


@cost_of(
    "_C::fused_add_rms_norm", "sgl_kernel::fused_add_rmsnorm", "vllm::fused_add_rms_norm",
    "sgl_kernel::gemma_fused_add_rmsnorm", category="norm",
)  # fmt: skip
def fused_add_rms_norm(call: OpCall) -> Cost:
    """x, residual, weight: adds them and normalises the sum; both are overwritten.

    flops: 1 for the sum and 4 as `rms_norm`; bytes: both read, both written, weight.
    """
    x, residual, weight = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2)
    pair = [x, residual]
    return tally(5 * counted(x), read=[*pair, weight], written=pair, dtype=x.dtype)


@cost_of("aiter::rmsnorm", "aiter::rms_norm", "aiter::rmsnorm2d_fwd", category="norm")
def aiter_rms_norm(call: OpCall) -> Cost:
    """y, x, weight, or x, weight with a new result: as `rms_norm`."""
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    wide = _wide(items)
    weight = next((item for item in items if len(item.shape) == 1), None)
    x = wide[-1]
    return _rms_norm(x, weight, [wide[0] if len(wide) > 1 else like(x)])


def _wide(items: list[Tensor]) -> list[Tensor]:
    """Return the tensors of more than one dimension: not the weight."""
    wide = [item for item in items if len(item.shape) > 1]
    if not wide:
        refuse("no input has a shape in the recording")
    return wide


@cost_of("aiter::add_rmsnorm", "aiter::rmsnorm2d_fwd_with_add", category="norm")
def aiter_add_rms_norm(call: OpCall) -> Cost:
    """y, x, residual, sum, weight: as `fused_add_rms_norm`; x and residual read, two written."""
    items = [item for item in call.inputs if isinstance(item, Tensor)]
    x = _wide(items)[0]
    weight = next((item for item in items if len(item.shape) == 1), None)
    return tally(5 * counted(x), read=[x, x, weight], written=[like(x)] * 2, dtype=x.dtype)


@cost_of("fb::rms_norm", category="norm")
def fb_rms_norm(call: OpCall) -> Cost:
    """x, weight, bias, …: 5N, as `rms_norm` and a bias; bytes: x, y, weight, bias."""
    x = tensor(call, 0)
    more = [maybe_tensor(call, 1), maybe_tensor(call, 2)]
    return tally(5 * counted(x), read=[x, *more], written=[like(x)], dtype=x.dtype)


@cost_of("aten::_weight_norm_interface", category="norm")
def weight_norm(call: OpCall) -> Cost:
    """v, g -> g·v/|v|, and the norms: 3N: square, add, scale; bytes: v, g, result, norms."""
    v, g = tensor(call, 0), tensor(call, 1)
    return tally(3 * counted(v), read=[v, g], written=[like(v), like(g)], dtype=v.dtype)


@cost_of("aten::_weight_norm_interface_backward", category="norm")
def weight_norm_backward(call: OpCall) -> Cost:
    """Grad, v, g, norms -> gradients of v and g: 5N; bytes: all inputs, both gradients."""
    grad, v, g, norms = (tensor(call, index) for index in range(4))
    written = [like(v), like(g)]
    return tally(5 * counted(v), read=[grad, v, g, norms], written=written, dtype=v.dtype)
