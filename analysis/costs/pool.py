"""Pooling, resizing and sampling of images.

FLOPs: pooling with a window compares or adds each element of the window, for each element of the
result; adaptive pooling has each element of the input once. Resizing multiplies and adds the
neighbours of each point. Bytes: input and result once; the places of maxima are 8 bytes each.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    each_dimension,
    flag,
    fresh,
    integers,
    like,
    maybe_tensor,
    needed,
    numel,
    refuse,
    result,
    spanning,
    tally,
    tensor,
    value,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor

_MAX: Final = {
    "aten::max_pool2d_with_indices": (2, True), "aten::max_pool3d_with_indices": (3, True),
    "aten::max_pool1d_with_indices": (1, True), "aten::max_pool1d": (1, False),
    "aten::max_pool2d": (2, False), "aten::max_pool3d": (3, False),
    "aten::mkldnn_max_pool2d": (2, False), "aten::mkldnn_max_pool3d": (3, False),
    "aten::quantized_max_pool2d": (2, False),
}  # fmt: skip
_AVERAGE: Final = {
    "aten::avg_pool1d": 1, "aten::avg_pool2d": 2, "aten::avg_pool3d": 3,
}  # fmt: skip


@cost_with_evidence(*_MAX, category="pool")
def max_pool(call: OpCall, evidence: Evidence) -> Cost:
    """x, window, stride, padding, dilation, ceil -> maxima, and their places: 8 bytes each.

    flops: comparisons, the window's size for each element of the result.
    """
    spatial, indices = _MAX[call.op]
    return _pool(call, evidence, spatial, dilation=4, ceil=5, indices=indices)


@cost_with_evidence(*_AVERAGE, category="pool")
def avg_pool(call: OpCall, evidence: Evidence) -> Cost:
    """x, window, stride, padding, ceil -> means: additions, the window's size for each result."""
    return _pool(call, evidence, _AVERAGE[call.op], dilation=None, ceil=4, indices=False)


def _pool(
    call: OpCall,
    evidence: Evidence,
    spatial: int,
    dilation: int | None,
    ceil: int,
    *,
    indices: bool,
) -> Cost:
    x = tensor(call, 0)
    window = each_dimension(call, 1, spatial)
    out = result(evidence, x.dtype)
    if out is None:
        out = fresh(_pooled(call, x, spatial, dilation, ceil), x.dtype)
    taps = numel(window) if window else numel(x.shape) // max(numel(out.shape), 1)
    cost = tally(
        Size(taps, "window") * counted(out, "out"),
        read=[x],
        written=[out, like(out, "i64") if indices else None],
        dtype=x.dtype,
        params=f"window={'x'.join(map(str, window or ()))},out={numel(out.shape)}",
    )
    if window:
        return cost
    note = "the window is not recorded: taken to have each element once"
    most = numel(out.shape) * numel(x.shape[-spatial:])
    return bounded(cost, note, flops=(numel(out.shape), most))


def _pooled(
    call: OpCall, x: Tensor, spatial: int, dilation: int | None, ceil: int
) -> tuple[int, ...]:
    """Return the result's shape from window, stride, padding and dilation."""
    window = each_dimension(call, 1, spatial)
    if not window:
        refuse("the window is not in the recording, nor is the result's size")
    stride = each_dimension(call, 2, spatial) or window
    padding = each_dimension(call, 3, spatial) or (0,) * spatial
    spread = each_dimension(call, dilation, spatial)
    up = flag(call, ceil) or False
    ends = []
    for n, k, s, pad, d in zip(
        x.shape[-spatial:], window, stride, padding, spread or (1,) * spatial, strict=True
    ):
        span = n + 2 * pad - d * (k - 1) - 1
        steps = -(-span // s) if up else span // s
        # A window that would start in the padding after the end is left out.
        ends.append(steps + 1 - (up and steps * s >= n + pad))
    return (*x.shape[:-spatial], *ends)


@cost_of(
    "aten::max_pool2d_with_indices_backward", "aten::max_pool3d_with_indices_backward",
    "aten::adaptive_max_pool2d_backward", "aten::adaptive_max_pool3d_backward",
    "aten::fractional_max_pool2d_backward", "aten::fractional_max_pool3d_backward",
    category="pool",
)  # fmt: skip
def max_pool_backward(call: OpCall) -> Cost:
    """Grad, x, …, places -> gradient of x: one addition for each element of grad.

    bytes: grad and places, 8 each, read; the whole gradient written. x itself is not read.
    """
    grad, x = tensor(call, 0), tensor(call, 1)
    count = counted(grad, "grad")
    return tally(
        count,
        read=[grad, like(grad, "i64")],
        written=[like(x)],
        dtype=grad.dtype,
        params=f"grad={count},N={numel(x.shape)}",
    )


@cost_of("aten::avg_pool2d_backward", "aten::avg_pool3d_backward", category="pool")
def avg_pool_backward(call: OpCall) -> Cost:
    """Grad, x, window -> gradient of x: the window's size in additions for each element of grad.

    bytes: grad read, the gradient written. Without a window: one for each element of x.
    """
    grad, x = tensor(call, 0), tensor(call, 1)
    window = each_dimension(call, 2, 2 if "2d" in call.op else 3)
    count = counted(grad, "grad")
    cost = tally(
        count * Size(numel(window), "window") if window else counted(x),
        read=[grad],
        written=[like(x)],
        dtype=grad.dtype,
    )
    if window:
        return cost
    note = "the window is not recorded: taken to have each element once"
    return bounded(cost, note, flops=(count, count * numel(x.shape[2:])))


_ADAPTIVE: Final = {
    "aten::_adaptive_avg_pool2d": (2, False), "aten::_adaptive_avg_pool3d": (3, False),
    "aten::adaptive_avg_pool1d": (1, False), "aten::adaptive_avg_pool2d": (2, False),
    "aten::adaptive_avg_pool3d": (3, False), "aten::adaptive_max_pool1d": (1, True),
    "aten::adaptive_max_pool2d": (2, True), "aten::adaptive_max_pool3d": (3, True),
    "aten::mkldnn_adaptive_avg_pool2d": (2, False),
}  # fmt: skip


@cost_with_evidence(*_ADAPTIVE, category="pool")
def adaptive_pool(call: OpCall, evidence: Evidence) -> Cost:
    """x, size of the result -> means, or maxima and places: N operations; bytes: x and results.

    Where the size is not recorded, one element each is assumed.
    """
    spatial, indices = _ADAPTIVE[call.op]
    x = tensor(call, 0)
    size = each_dimension(call, 1, spatial)
    known = evidence.output.shape if evidence.output else None
    shape = (*x.shape[:-spatial], *size) if size else known
    shapes = [shape] if shape else [(*x.shape[:-spatial], *(1,) * spatial), x.shape]
    costs = [
        tally(
            counted(x),
            read=[x],
            written=[fresh(out, x.dtype), fresh(out, "i64") if indices else None],
            dtype=x.dtype,
            params=f"N={numel(x.shape)},out={numel(out)}",
        )
        for out in shapes
    ]
    words = "the size of the result is not recorded: taken as one element each"
    return spanning(*costs, assumed=words)


@cost_of("aten::_adaptive_avg_pool2d_backward", "aten::_adaptive_avg_pool3d_backward",
         "aten::mkldnn_adaptive_avg_pool2d_backward", category="pool")  # fmt: skip
def adaptive_avg_pool_backward(call: OpCall) -> Cost:
    """Grad, x -> gradient of x: one division for each element of x; bytes: grad, the gradient."""
    grad, x = tensor(call, 0), tensor(call, 1)
    return tally(counted(x), read=[grad], written=[like(x)], dtype=grad.dtype)


@cost_of("aten::max_unpool2d", "aten::max_unpool3d", category="pool")
def max_unpool(call: OpCall) -> Cost:
    """x, places, size -> zeros with x at the places: both read, the result written; no FLOPs."""
    x, places = tensor(call, 0), tensor(call, 1)
    size = needed(integers(call, 2) or None, "the size of the result is not in the recording")
    out = fresh((*x.shape[: -len(size)], *size), x.dtype)
    return tally(0, read=[x, places], written=[out], dtype=x.dtype)


_TAPS: Final = {
    "upsample_nearest1d": (1, 0), "upsample_nearest2d": (2, 0), "upsample_nearest3d": (3, 0),
    "_upsample_nearest_exact1d": (1, 0), "_upsample_nearest_exact2d": (2, 0),
    "_upsample_nearest_exact3d": (3, 0), "upsample_linear1d": (1, 3),
    "upsample_bilinear2d": (2, 11), "upsample_trilinear3d": (3, 31),
    "upsample_bicubic2d": (2, 35),
}  # fmt: skip
"""Spatial dimensions, and FLOPs for each element of the result.

Linear: 2 products and an addition; bilinear: 4 weights, 4 products, 3 additions; trilinear: 8
weights of 2 products, 8 products, 7 additions; bicubic: 5 cubics of 4 products, 3 additions.
"""
_RESIZE: Final = {f"aten::{name}": taps for name, taps in _TAPS.items()}
_RESIZE_BACKWARD: Final = {f"aten::{name}_backward": taps for name, taps in _TAPS.items()}


@cost_with_evidence(*_RESIZE, category="pool")
def upsample(call: OpCall, evidence: Evidence) -> Cost:
    """x, size or factors -> x at that size: flops for each element of the result from the table.

    bytes: x read once and the result written; nearest neighbours take no FLOPs.
    """
    spatial, per_element = _RESIZE[call.op]
    x = tensor(call, 0)
    out = result(evidence, x.dtype) or fresh(_resized(call, x, spatial), x.dtype)
    return tally(
        per_element * counted(out, "out"),
        read=[x],
        written=[out],
        dtype=x.dtype,
        params=f"N={numel(x.shape)},out={numel(out.shape)}",
    )


def _resized(call: OpCall, x: Tensor, spatial: int) -> tuple[int, ...]:
    size = integers(call, 1)
    if size and len(size) == spatial:
        return (*x.shape[:-spatial], *size)
    for at in range(1, len(call.inputs)):
        factors = _factors(call, at)
        if len(factors) == spatial:
            ends = (
                math.floor(n * factor)
                for n, factor in zip(x.shape[-spatial:], factors, strict=True)
            )
            return (*x.shape[:-spatial], *ends)
    return refuse("the size of the result is not in the recording")


def _factors(call: OpCall, at: int) -> tuple[float, ...]:
    found = value(call, at)
    return tuple(found) if isinstance(found, list | tuple) else ()


@cost_of(*_RESIZE_BACKWARD, category="pool")
def upsample_backward(call: OpCall) -> Cost:
    """Grad, size, size of the input -> gradient: as forward, grad read and the gradient written.

    Nearest neighbours: one addition for each element of grad.
    """
    spatial, per_element = _RESIZE_BACKWARD[call.op]
    grad, sizes = tensor(call, 0), integers(call, 2)
    if not sizes or len(sizes) != spatial + 2:
        refuse("the size of the input is not in the recording")
    flops = max(per_element, 1) * counted(grad)
    return tally(flops, read=[grad], written=[fresh(sizes, grad.dtype)], dtype=grad.dtype)


@cost_of("aten::grid_sampler_2d", "aten::grid_sampler_3d", "aten::grid_sampler",
         "aten::cudnn_grid_sampler", category="pool")  # fmt: skip
def grid_sample(call: OpCall) -> Cost:
    """x (n, c, …), grid (n, …, 2 or 3) -> (n, c, …): as resizing at the points of the grid.

    flops: bilinear 11, trilinear 31 for each element; nearest none, bicubic 35. bytes: grid and
    result, and x once.
    """
    x, grid = tensor(call, 0), tensor(call, 1)
    mode = integers(call, 2) or (0,)
    per_element = {0: 31 if len(x.shape) == 5 else 11, 1: 0, 2: 35}.get(mode[0], 11)
    out = fresh((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
    return tally(per_element * counted(out), read=[x, grid], written=[out], dtype=x.dtype)


@cost_of("aten::grid_sampler_2d_backward", "aten::grid_sampler_3d_backward",
         "aten::cudnn_grid_sampler_backward", category="pool")  # fmt: skip
def grid_sample_backward(call: OpCall) -> Cost:
    """Grad, x, grid -> gradients of x and grid: twice the forward FLOPs; bytes: all five."""
    if call.op.startswith("aten::cudnn"):
        x, grid, grad = (tensor(call, at) for at in range(3))
    else:
        grad, x, grid = (tensor(call, at) for at in range(3))
    per_element = 62 if len(x.shape) == 5 else 22
    written = [like(x), like(grid)]
    flops = per_element * counted(grad)
    return tally(flops, read=[grad, x, grid], written=written, dtype=grad.dtype)


@cost_of("aten::affine_grid_generator", category="pool")
def affine_grid(call: OpCall) -> Cost:
    """Matrices (n, 2, 3), size (n, c, h, w) -> points (n, h, w, 2): flops 2·3·2 for each point."""
    theta, size = tensor(call, 0), integers(call, 1)
    if not size or maybe_tensor(call, 0) is None:
        refuse("the size is not in the recording")
    dims = len(size) - 2
    out = fresh((size[0], *size[2:], dims), theta.dtype)
    flops = 2 * (dims + 1) * numel(out.shape)
    return tally(flops, read=[theta], written=[out], dtype=theta.dtype)
