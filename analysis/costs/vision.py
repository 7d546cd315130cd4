"""Detection and resizing: torchvision's operators, and resizing that smooths.

A value between four neighbours takes 7 FLOPs: 4 products with weights and 3 additions; what makes
the weights and the places is not counted, as it is of the order of the boxes or of the sizes.

Source: torchvision's documentation of its operators (`roi_align`: Mask R-CNN; `deform_conv2d`:
Deformable ConvNets v2); of resizing the definition of the triangle filter, which is as wide as one
element of the result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    elements,
    flag,
    fresh,
    integer,
    integers,
    like,
    maybe_tensor,
    numel,
    refuse,
    tally,
    tensor,
    total,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall, Tensor

_BETWEEN: Final = 7
_SAMPLES: Final = (
    "how many samples a bin has follows from the boxes: 4 taken, 1 to all of the image"
)
_PLACES: Final = "which elements the boxes lie on depends on the data: taken to be distinct"


@cost_of("torchvision::roi_align", category="pool")
def roi_align(call: OpCall) -> Cost:
    """x (n, c, h, w), boxes (k, 5), scale, p, q, samples s -> (k, c, p, q): flops 8·s² + 1 each.

    8: a value between four neighbours, and its addition; 1: the division. bytes: boxes, result, and
    of x what the samples lie on: at most four elements each, and none that is not there.
    Where s is 0 or less there are as many samples as pixels: assumed 2.
    """
    x, boxes = tensor(call, 0), tensor(call, 1)
    bins = integer(call, 3), integer(call, 4)
    if None in bins:
        refuse("how many bins there are is not in the recording")
    out = fresh((boxes.shape[0], x.shape[1], *filter(None, bins)), x.dtype)
    return _pooled(x, boxes, out, integer(call, 5), is_backward=False)


@cost_of("torchvision::_roi_align_backward", category="pool")
def roi_align_backward(call: OpCall) -> Cost:
    """Grad (k, c, p, q), boxes, …, n, c, h, w, samples s -> gradient of x: flops 8·s² each.

    A product with a weight and an addition for each neighbour. bytes: grad, boxes, the gradient.
    """
    grad, boxes = tensor(call, 0), tensor(call, 1)
    sizes = [integer(call, at) for at in range(5, 9)]
    if None in sizes:
        refuse("the size of the input is not in the recording")
    x = fresh([each or 0 for each in sizes], grad.dtype)
    return _pooled(x, boxes, grad, integer(call, 9), is_backward=True)


def _pooled(
    x: Tensor, boxes: Tensor, bins: Tensor, samples: int | None, *, is_backward: bool
) -> Cost:
    """Return the cost of pooling x in bins, or of its backward pass."""
    each = counted(bins, "bins")
    if samples and samples > 0:
        grids = (samples * samples,) * 3
    else:  # a box that is all of the image has most samples in a bin
        pairs = zip(x.shape[-2:], bins.shape[-2:], strict=True)
        grids = (1, 4, max(4, math.prod(-(-whole // max(part, 1)) for whole, part in pairs)))
    parts = [fresh((min(elements(x), int(4 * points * each)),), x.dtype) for points in grids]
    least, likely, most = (
        tally(
            each * (8 * points + (0 if is_backward else 1)),
            read=[bins, boxes] if is_backward else [part, boxes],
            written=[like(x)] if is_backward else [bins],
            dtype=x.dtype,
            params=f"bins={numel(bins.shape)},samples={points}",
        )
        for points, part in zip(grids, parts, strict=True)
    )
    # All boxes may be one: then its samples alone are read.
    none = total([boxes, like(x) if is_backward else None, bins])
    traffic = (none, most.bytes) if not is_backward else None
    words = _PLACES if samples and samples > 0 else f"{_SAMPLES}; {_PLACES}"
    if is_backward and samples and samples > 0:
        return likely
    return bounded(likely, words, flops=(least.flops, most.flops), traffic=traffic)


@cost_of("torchvision::deform_conv2d", category="conv")
def deform_conv2d(call: OpCall) -> Cost:
    """x (n, c, h, w), weight (k, c/g, y, x), offset (n, …, p, q), mask, bias -> (n, k, p, q).

    flops: 2·|out|·(c/g)·window of the product, and 7 for each value that it takes between pixels,
    n·c·window·p·q, with a mask 8. bytes: all inputs and the result.
    """
    x, weight, offset = (tensor(call, at) for at in range(3))
    masks = flag(call, 13) is not False
    mask, bias = maybe_tensor(call, 3) if masks else None, maybe_tensor(call, 4)
    out = fresh((x.shape[0], weight.shape[0], *offset.shape[-2:]), x.dtype)
    window, places = Size(numel(weight.shape[2:]), "window"), Size(numel(offset.shape[-2:]), "out")
    columns = Size(x.shape[0], "N") * places * window
    per_value = _BETWEEN + (mask is not None and numel(mask.shape) > 0)
    product = 2 * columns * Size(weight.shape[0], "K") * Size(weight.shape[1], "(C/groups)")
    return tally(
        product + per_value * columns * Size(x.shape[1], "C"),
        read=[x, weight, offset, mask, bias],
        written=[out],
        params=f"N={x.shape[0]},C={x.shape[1]},K={weight.shape[0]},out={numel(offset.shape[-2:])},"
        f"window={numel(weight.shape[2:])}",
    )


@cost_of("torchvision::nms", category="sort")
def nms(call: OpCall) -> Cost:
    """Boxes (n, 4), scores (n), threshold -> places of those kept: flops 13 for each pair.

    A pair: 2 maxima, 2 minima, 2 differences, 2 clamps, a product; a sum and a difference of areas,
    a division, a comparison. Assumed: all pairs are compared; at the least one box with all others.
    bytes: boxes, scores, and at most all places.
    """
    boxes, scores = tensor(call, 0), tensor(call, 1)
    n = boxes.shape[0]
    flops = 13 * (n * (n - 1) // 2)
    cost = tally(
        flops,
        read=[boxes, scores],
        written=[fresh((n,), "i64")],
        params=f"N={n}",
    )
    read = total([boxes, scores])
    least = None if read is None else read + min(n, 1) * 8
    words = "which boxes are kept depends on the data: all pairs taken to be compared"
    return bounded(cost, words, flops=(13 * max(0, n - 1), flops), traffic=(least, cost.bytes))


_LONGEST: Final = 1 << 16


_REACH: Final = {"bilinear": 1, "bicubic": 2, "lanczos": 3}
"""How far the filters reach, in elements of the longer rows or of their own."""
_SMOOTH: Final = {
    f"aten::_upsample_{name}2d_aa{ending}": reach
    for name, reach in _REACH.items()
    for ending in ("", "_backward")
}


@cost_of(*_SMOOTH, category="pool")
def smooth_resize(call: OpCall) -> Cost:
    """x (n, c, h, w), size (p, q) -> (n, c, p, q): rows, then columns: 2 flops for each tap.

    A row becomes one of q: n·c·h times all taps of q; a column of p: n·c·q times those. The taps of
    a place are the elements at most max(1, h/p) from its centre, of a cubic filter twice as far, of
    Lanczos' three times. Backward takes as many.
    bytes: x and the result; in one pass, without the rows between, all taps of both are the most.
    """
    x = tensor(call, 0)
    is_backward = call.op.endswith("_backward")
    given = integers(call, 2 if is_backward else 1)
    if given is None or len(given) != (4 if is_backward else 2):
        refuse("the size of the result is not in the recording")
    other = fresh(given if is_backward else (*x.shape[:-2], *given), x.dtype)
    source, out = (other, x) if is_backward else (x, other)
    (rows, columns), images = source.shape[-2:], numel(source.shape[:-2])
    reach, by_corners = _SMOOTH[call.op], flag(call, 3 if is_backward else 2) is True
    down, across = (
        _taps(n, m, reach, by_corners=by_corners)
        for n, m in zip((rows, columns), out.shape[-2:], strict=True)
    )
    apart = 2 * images * (rows * across + out.shape[-1] * down)
    cost = tally(apart, read=[x], written=[other], params=f"out={numel(out.shape)}")
    note = "rows, then columns; a kernel that does both at once does more"
    return bounded(cost, note=note, flops=(apart, max(apart, 2 * images * down * across)))


def _taps(length: int, result: int, reach: int, *, by_corners: bool) -> int:
    """Return how many elements of a row the places of its result are made of, all together.

    Args:
        length: of the row.
        result: its places.
        reach: of the filter.
        by_corners: whether the first and the last elements lie upon each other.
    """
    if max(length, result) > _LONGEST:
        refuse("a side is longer than any image's")
    if by_corners:
        scale = (length - 1) / (result - 1) if result > 1 else 0.0
    else:
        scale = length / result if result else 0.0
    support = reach * max(1.0, scale)
    centres = [scale * (place + 0.5) for place in range(result)]
    return sum(
        min(int(centre + support + 0.5), length) - max(int(centre - support + 0.5), 0)
        for centre in centres
    )
