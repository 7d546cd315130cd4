"""Convolutions in one to three dimensions: grouped, depthwise, dilated, transposed.

Layouts: input (n, c, …), weight (k, c/groups, …), output (n, k, …); a transposed convolution's
weight is (c, k/groups, …). FLOPs of the forward pass are 2 for each multiply-add: every output
element (transposed: every input element) meets `numel(weight[0])` weights. The gradients of
input and weight take that many each, whatever the stride. Adding a bias, and summing its
gradient, is not counted as FLOPs, as with matrix products; their bytes are. Every tensor is read
or written once in a pass; each gradient is a pass of its own.

Source: the definition of the convolution; checked against `torch.utils.flop_counter`, which
counts the weight gradient of grouped convolutions `groups` times (its error).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    bounded,
    each_dimension,
    flag,
    flags,
    fresh,
    integer,
    integers,
    like,
    maybe_tensor,
    needed,
    numel,
    refuse,
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
from pyprof2.signatures import OpCall, Tensor


class _ConvPlaces(NamedTuple):
    """Where a forward op has its arguments; None: it has none."""

    bias: int | None
    stride: int
    padding: int
    dilation: int | None
    groups: int | None
    transposed: int | None = None
    output_padding: int | None = None
    always_transposed: bool = False
    addend: int | None = None


_FORWARD: Final = {
    "aten::convolution": _ConvPlaces(2, 3, 4, 5, 8, 6, 7),
    "aten::convolution_overrideable": _ConvPlaces(2, 3, 4, 5, 8, 6, 7),
    "aten::_convolution": _ConvPlaces(2, 3, 4, 5, 8, 6, 7),
    "aten::_convolution_mode": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::conv1d": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::conv2d": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::conv3d": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::conv_transpose1d": _ConvPlaces(2, 3, 4, 7, 6, None, 5, always_transposed=True),
    "aten::conv_transpose2d": _ConvPlaces(2, 3, 4, 7, 6, None, 5, always_transposed=True),
    "aten::conv_transpose3d": _ConvPlaces(2, 3, 4, 7, 6, None, 5, always_transposed=True),
    "aten::cudnn_convolution": _ConvPlaces(None, 3, 2, 4, 5),
    "aten::cudnn_convolution_transpose": _ConvPlaces(
        None, 4, 2, 5, 6, None, 3, always_transposed=True
    ),
    "aten::cudnn_convolution_relu": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::cudnn_convolution_add_relu": _ConvPlaces(4, 5, 6, 7, 8, addend=2),
    "aten::miopen_convolution": _ConvPlaces(2, 4, 3, 5, 6),
    "aten::miopen_depthwise_convolution": _ConvPlaces(2, 4, 3, 5, 6),
    "aten::miopen_convolution_transpose": _ConvPlaces(
        2, 5, 3, 6, 7, None, 4, always_transposed=True
    ),
    "aten::miopen_convolution_relu": _ConvPlaces(2, 3, 4, 5, 6),
    "aten::miopen_convolution_add_relu": _ConvPlaces(4, 5, 6, 7, 8, addend=2),
    "aten::mkldnn_convolution": _ConvPlaces(2, 4, 3, 5, 6),
    "mkldnn::_convolution_pointwise": _ConvPlaces(2, 4, 3, 5, 6),
    "aten::_mps_convolution": _ConvPlaces(2, 4, 3, 5, 6),
    "aten::_slow_conv2d_forward": _ConvPlaces(3, 4, 5, None, None),
    "aten::thnn_conv2d": _ConvPlaces(3, 4, 5, None, None),
    "aten::thnn_conv2d_forward": _ConvPlaces(3, 4, 5, None, None),
    "aten::slow_conv3d": _ConvPlaces(3, 4, 5, None, None),
    "aten::slow_conv3d_forward": _ConvPlaces(3, 4, 5, None, None),
    "aten::slow_conv_dilated2d": _ConvPlaces(3, 4, 5, 6, None),
    "aten::slow_conv_dilated3d": _ConvPlaces(3, 4, 5, 6, None),
    "aten::_conv_depthwise2d": _ConvPlaces(3, 4, 5, 6, None),
    "aten::thnn_conv_depthwise2d_forward": _ConvPlaces(3, 4, 5, 6, None),
    "aten::conv_depthwise3d": _ConvPlaces(3, 4, 5, 6, None),
    "aten::slow_conv_transpose2d": _ConvPlaces(3, 4, 5, 7, None, None, 6, always_transposed=True),
    "aten::slow_conv_transpose3d": _ConvPlaces(3, 4, 5, 7, None, None, 6, always_transposed=True),
}  # fmt: skip
"""The forward ops and where their arguments are; input and weight come first in all."""


_FOLLOWING: Final = (
    "stride and padding are not recorded: the output has the size of the next call's input"
)


@cost_with_evidence(*_FORWARD, category="conv")
def convolution(call: OpCall, evidence: Evidence) -> Cost:
    """Input, weight, bias -> output: flops 2·|out|·(c/groups)·|window|, transposed 2·|in|·….

    bytes: input, weight, bias, output. The size of the output follows from stride, padding and
    dilation, or is given; recordings of 2021 have neither. For calls in Python it is assumed to
    be that of the next call's input, where that fits.
    """
    places = _FORWARD[call.op]
    x, weight = tensor(call, 0), tensor(call, 1)
    spatial = len(weight.shape) - 2
    if len(x.shape) == spatial + 1:
        x = Tensor((1, *x.shape), x.dtype)
    transposed = places.always_transposed
    if places.transposed is not None:  # what is not recorded is taken to be an ordinary one
        transposed = flag(call, places.transposed) or False
    out = fresh(_output_shape(call, evidence, x, weight, transposed=transposed), x.dtype)
    bias = maybe_tensor(call, places.bias) if places.bias is not None else None
    addend = maybe_tensor(call, places.addend) if places.addend is not None else None
    cost = tally(
        2 * _terms(x, weight, out, transposed=transposed),
        read=[x, weight, bias, addend],
        written=[out],
        params=_params(x, weight, out, transposed=transposed),
    )
    has_stride = each_dimension(call, places.stride, spatial) is not None
    return cost if evidence.output is not None or has_stride else bounded(cost, _FOLLOWING)


def _terms(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> Size:
    """Return how many multiply-adds a pass takes, in terms of the numbers of `_params`."""
    per_group, window = weight.shape[1], Size(numel(weight.shape[2:]), "window")
    if transposed:
        dense = _sizes(x, "C", "in")
        return dense * Size(per_group, "(K/groups)") * window
    return _sizes(out, "K", "out") * Size(per_group, "(C/groups)") * window


def _sizes(item: Tensor, channels: str, spatial: str) -> Size:
    batch, width, *ends = item.shape
    return Size(batch, "N") * Size(width, channels) * Size(numel(ends), spatial)


def _output_shape(
    call: OpCall, evidence: Evidence, x: Tensor, weight: Tensor, *, transposed: bool
) -> tuple[int, ...]:
    """Return the output's shape, from the arguments or as given from elsewhere."""
    places = _FORWARD[call.op]
    spatial = len(weight.shape) - 2
    stride = each_dimension(call, places.stride, spatial)
    dilation: tuple[int, ...] | None = (1,) * spatial
    if places.dilation is not None:
        dilation = each_dimension(call, places.dilation, spatial)
    padding = _padding(call, places.padding, weight, dilation)
    if evidence.output is not None:
        shape = evidence.output.shape
        return shape if len(shape) == spatial + 2 else (1, *shape)
    if stride is None and not transposed and evidence.following is not None:
        # The next call's input, if an ordinary convolution could give it.
        shape = evidence.following.shape
        fits = shape[:2] == (x.shape[0], weight.shape[0]) and len(shape) == len(x.shape)
        extents = zip(shape[2:], x.shape[2:], strict=fits)
        if fits and all(0 < out <= size for out, size in extents):
            return shape
    if stride is None or padding is None or dilation is None:
        refuse("stride and padding are not in the recording, nor is the output's size")
    sizes = list(zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True))
    if not transposed:
        ends = tuple((n + pad - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in sizes)
        return (x.shape[0], weight.shape[0], *ends)
    groups = integer(call, places.groups) if places.groups is not None else 1
    more = each_dimension(call, places.output_padding, spatial) or (0,) * spatial
    ends = tuple(
        (n - 1) * s - pad + d * (k - 1) + extra + 1
        for (n, k, s, pad, d), extra in zip(sizes, more, strict=True)
    )
    return (x.shape[0], weight.shape[1] * (groups or 1), *ends)


def _padding(
    call: OpCall, index: int, weight: Tensor, dilation: tuple[int, ...] | None
) -> tuple[int, ...] | None:
    """Return what padding adds to each dimension, at both ends together."""
    if value(call, index) == "valid":
        return (0,) * (len(weight.shape) - 2)
    if value(call, index) == "same":
        return dilation and tuple(
            d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)
        )
    found = each_dimension(call, index, len(weight.shape) - 2)
    return found and tuple(2 * pad for pad in found)


def _params(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> str:
    """Return the numbers that matter: C channels to K, input to output size, the window, groups."""
    (n, c, *ins), (_, k, *outs) = x.shape, out.shape
    window = "x".join(map(str, weight.shape[2:]))
    groups = (k if transposed else c) // max(weight.shape[1], 1)
    sizes = f"in={'x'.join(map(str, ins))},out={'x'.join(map(str, outs))}"
    return f"N={n},C={c},K={k},{sizes},window={window},groups={groups}"


@dataclass(frozen=True)
class _Backward:
    """Where a backward op has its arguments; -1: nowhere."""

    grad: int
    x: int
    weight: int
    mask: int
    transposed: int = -1
    always_transposed: bool = False


_BACKWARD: Final = {
    "aten::convolution_backward": _Backward(0, 1, 2, 10, 7),
    "aten::convolution_backward_overrideable": _Backward(0, 1, 2, 9, 6),
    "aten::cudnn_convolution_backward": _Backward(1, 0, 2, 10),
    "aten::cudnn_convolution_transpose_backward": _Backward(
        1, 0, 2, 11, always_transposed=True
    ),
    "aten::miopen_convolution_backward": _Backward(1, 0, 2, 9),
    "aten::miopen_depthwise_convolution_backward": _Backward(1, 0, 2, 9),
    "aten::miopen_convolution_transpose_backward": _Backward(
        1, 0, 2, 10, always_transposed=True
    ),
    "aten::mkldnn_convolution_backward": _Backward(1, 0, 2, 7),
    "aten::_slow_conv2d_backward": _Backward(0, 1, 2, 6),
    "aten::thnn_conv2d_backward": _Backward(0, 1, 2, 8),
    "aten::slow_conv3d_backward": _Backward(0, 1, 2, 8),
    "aten::slow_conv_dilated2d_backward": _Backward(0, 1, 2, 7),
    "aten::_conv_depthwise2d_backward": _Backward(0, 1, 2, 7),
    "aten::thnn_conv_depthwise2d_backward": _Backward(0, 1, 2, 7),
    "aten::conv_depthwise3d_backward": _Backward(0, 1, 2, 7),
    "aten::mps_convolution_backward": _Backward(1, 0, 2, 7),
}  # fmt: skip
"""The backward ops, and where they have grad_output, input, weight, output_mask, transposed."""


@cost_of(*_BACKWARD, category="conv")
def convolution_backward(call: OpCall) -> Cost:
    """Grad_output, input, weight, mask -> the gradients that the mask asks for.

    flops: those of the forward pass for the gradient of the input, and as many for that of the
    weight. bytes: grad_output once for each gradient, which is a pass of its own; the weight
    where the input's gradient is wanted, the input where the weight's is; the gradients, that of
    the bias too.
    Where the mask is not recorded: both are assumed, the bounds are one and both.
    """
    places = _BACKWARD[call.op]
    grad, x, weight = (tensor(call, at) for at in (places.grad, places.x, places.weight))
    transposed = places.always_transposed or flag(call, places.transposed) or False
    mask = flags(call, places.mask)
    if mask is not None:
        return _gradients(grad, x, weight, mask, transposed=transposed)
    likely = _gradients(grad, x, weight, (True, True, False), transposed=transposed)
    every = _gradients(grad, x, weight, (True, True, True), transposed=transposed)
    ones = [
        _gradients(grad, x, weight, one, transposed=transposed)
        for one in ((True, False, False), (False, True, False))
    ]
    least = [one.bytes for one in ones if one.bytes is not None]
    return bounded(
        likely,
        "output_mask not recorded: gradients of input and weight taken to be wanted",
        flops=(ones[0].flops, likely.flops),
        traffic=(min(least, default=None), every.bytes),
    )


def _gradients(
    grad: Tensor, x: Tensor, weight: Tensor, mask: tuple[bool, ...], *, transposed: bool
) -> Cost:
    wants_x, wants_weight, _ = mask = (*mask, False)[:3]
    width = grad.shape[1] if len(grad.shape) == len(weight.shape) else grad.shape[0]
    each = 2 * _terms(_batched(x, weight), weight, _batched(grad, weight), transposed=transposed)
    gradients = (like(x), like(weight), fresh((width,), grad.dtype))
    params = _params(_batched(x, weight), weight, _batched(grad, weight), transposed=transposed)
    names = [name for name, want in zip(("input", "weight", "bias"), mask, strict=True) if want]
    return tally(
        (wants_x + wants_weight) * each,
        read=[*[grad] * sum(mask), weight if wants_x else None, x if wants_weight else None],
        written=[made for made, is_wanted in zip(gradients, mask, strict=True) if is_wanted],
        dtype=grad.dtype,
        params=f"{params},grads={'+'.join(names)}",
    )


def _batched(item: Tensor, weight: Tensor) -> Tensor:
    """Return the tensor with a batch of one, where it has none."""
    missing = len(item.shape) < len(weight.shape)
    return Tensor((1, *item.shape), item.dtype) if missing else item


@cost_with_evidence(
    "aten::cudnn_convolution_backward_input", "aten::miopen_convolution_backward_input",
    "aten::miopen_depthwise_convolution_backward_input", "aten::mkldnn_convolution_backward_input",
    category="conv",
)  # fmt: skip
def convolution_backward_input(call: OpCall, evidence: Evidence) -> Cost:
    """Size of the input, grad_output, weight: flops 2·|grad_output|·numel(weight[0]).

    bytes: grad_output, weight, the gradient of the input; its size is recorded by value, or is
    that of the forward op's input.
    """
    grad, weight = tensor(call, 1), tensor(call, 2)
    shape = integers(call, 0) or _forward_shape(evidence, 0)
    out = fresh(shape, grad.dtype) if shape else None
    cost = tally(
        2 * _terms(grad, weight, grad, transposed=False),
        read=[grad, weight],
        written=[out],
        params="" if out is None else _params(out, weight, grad, transposed=False),
    )
    return cost if out else Cost(cost.flops, cost.bytes_read, None, cost.dtype)


@cost_with_evidence(
    "aten::cudnn_convolution_backward_weight", "aten::miopen_convolution_backward_weight",
    "aten::miopen_depthwise_convolution_backward_weight", category="conv",
)  # fmt: skip
def convolution_backward_weight(call: OpCall, evidence: Evidence) -> Cost:
    """Size of the weight, grad_output, input: flops 2·|grad_output|·numel(weight[0]).

    bytes: grad_output, input, the gradient of the weight; its size is recorded by value, or is
    that of the forward op's weight.
    """
    grad, x = tensor(call, 1), tensor(call, 2)
    shape = integers(call, 0) or _forward_shape(evidence, 1)
    if not shape:
        refuse("the weight's size is not in the recording, nor is the forward op")
    weight = fresh(shape, x.dtype)
    return tally(
        2 * _terms(x, weight, grad, transposed=False),
        read=[grad, x],
        written=[weight],
        params=_params(x, weight, grad, transposed=False),
    )


def _forward_shape(evidence: Evidence, index: int) -> tuple[int, ...] | None:
    found = maybe_tensor(evidence.forward, index) if evidence.forward else None
    return found.shape if found else None


@cost_of("aten::cudnn_convolution_backward_bias", "aten::miopen_convolution_backward_bias",
         category="conv")  # fmt: skip
def convolution_backward_bias(call: OpCall) -> Cost:
    """Grad_output (n, k, …) -> (k): no FLOPs by convention; bytes: read, and k written."""
    grad = tensor(call, 0)
    out = fresh(grad.shape[1:2], grad.dtype)
    return tally(0, read=[grad], written=[out], dtype=grad.dtype)


@cost_of("aten::conv_tbc", category="conv")
def conv_tbc(call: OpCall) -> Cost:
    """Input (t, b, c), weight (window, c, k), bias, pad -> (t', b, k): flops 2·t'·b·k·window·c."""
    x, weight = tensor(call, 0), tensor(call, 1)
    (steps, batch, _), (window, _, k) = x.shape, weight.shape
    pad = needed(integer(call, 3), "the padding is not in the recording")
    out = fresh((steps + 2 * pad - window + 1, batch, k), x.dtype)
    flops = 2 * numel(out.shape) * numel(weight.shape[:2])
    return tally(flops, read=[x, weight, maybe_tensor(call, 2)], written=[out])


@cost_of("aten::conv_tbc_backward", category="conv")
def conv_tbc_backward(call: OpCall) -> Cost:
    """Grad (t', b, k), input, weight, bias: twice the FLOPs of `conv_tbc`; all gradients.

    bytes: grad once for each of them.
    """
    grad, x, weight = (tensor(call, index) for index in range(3))
    bias = maybe_tensor(call, 3)
    flops = 4 * numel(grad.shape) * numel(weight.shape[:2])
    gradients = [like(x), like(weight), bias]
    read = [*[grad] * (2 if bias is None else 3), x, weight]
    return tally(flops, read=read, written=gradients, dtype=grad.dtype)


@cost_of("aten::im2col", "aten::col2im", category="conv")
def columns(call: OpCall) -> Cost:
    """Windows laid out as columns, or added back: im2col copies, col2im adds each element once.

    bytes: input read, result written; sizes from the kernel, dilation, padding and stride.
    """
    x = tensor(call, 0)
    unfolds = call.op == "aten::im2col"
    first = 1 if unfolds else 2
    found = [integers(call, first + at) for at in range(4)]
    if any(item is None for item in found):
        refuse("the window is not in the recording")
    window, dilation, pad, stride = (item * 2 if len(item) == 1 else item for item in found if item)
    if unfolds:
        blocks = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(x.shape[-2:], window, dilation, pad, stride, strict=True)
        ]
        shape = (*x.shape[:-3], x.shape[-3] * numel(window), numel(blocks))
    else:
        image = integers(call, 1) or ()
        shape = (*x.shape[:-2], x.shape[-2] // numel(window), *image)
    flops = 0 if unfolds else numel(x.shape)
    return tally(flops, read=[x], written=[fresh(shape, x.dtype)])
