"""Softmax and loss functions.

N is the number of elements. FLOPs are operations per element, counted by hand; a transcendental
is 1. Where a loss adds up its elements, that is one more each. Bytes: inputs and results once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    dtype_at,
    first_tensor,
    flag,
    fresh,
    integer,
    like,
    maybe_tensor,
    numel,
    promote,
    size,
    tally,
    tensor,
    value,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import Tensor

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall


@cost_of("aten::_softmax", "aten::_log_softmax", category="softmax")
def softmax(call: OpCall) -> Cost:
    """x, dim, half_to_float -> y: flops 5N: maximum, subtract, exponential, sum, divide.

    The logarithm counts the same: it subtracts where softmax divides. bytes: x and y.
    """
    x = tensor(call, 0)
    out = like(x, "f32") if flag(call, 2) and x.dtype in ("f16", "bf16") else like(x)
    return _softmax(x, out, 5)


def _softmax(x: Tensor, out: Tensor, per_element: int, *more: Tensor | None) -> Cost:
    count = counted(x)
    return tally(
        per_element * count,
        read=[x, *more],
        written=[out],
        dtype=x.dtype,
        params=f"N={count}",
    )


@cost_of(
    "aten::softmax", "aten::log_softmax", "aten::special_softmax", "aten::special_log_softmax",
    "aten::_safe_softmax", category="softmax",
)  # fmt: skip
def composite_softmax(call: OpCall) -> Cost:
    """x, dim, dtype -> y of that type: as `_softmax`."""
    x = tensor(call, 0)
    return _softmax(x, like(x, dtype_at(call, 2)), 5)


@cost_of("aten::_masked_softmax", category="softmax")
def masked_softmax(call: OpCall) -> Cost:
    """x, mask -> y: as `_softmax`; the mask is read."""
    x, mask = tensor(call, 0), tensor(call, 1)
    return _softmax(x, like(x), 5, mask)


@cost_of("aten::_softmax_backward_data", "aten::_log_softmax_backward_data", category="softmax")
def softmax_backward(call: OpCall) -> Cost:
    """Grad, y, dim -> gradient: flops 4N: product, sum, subtract, product; bytes: all three.

    After a logarithm: sum, exponential, product, subtract. A fourth input of 2021, the softmax's
    input, is not read: only its type matters.
    """
    grad, y = tensor(call, 0), tensor(call, 1)
    out = like(grad, dtype_at(call, 3))
    count = counted(grad)
    return tally(4 * count, read=[grad, y], written=[out], dtype=grad.dtype, params=f"N={count}")


@cost_of("aten::_masked_softmax_backward", category="softmax")
def masked_softmax_backward(call: OpCall) -> Cost:
    """Grad, y, mask -> gradient: as `_softmax_backward_data`; the mask is read."""
    grad, y, mask = (tensor(call, index) for index in range(3))
    flops = 4 * counted(grad)
    return tally(flops, read=[grad, y, mask], written=[like(grad)], dtype=grad.dtype)


@cost_of(
    "aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::nll_loss", "aten::nll_loss2d",
    "aten::nll_loss_nd", category="loss",
)  # fmt: skip
def nll_loss(call: OpCall) -> Cost:
    """Logarithms (n, c, …), target (n, …), weight (c), reduction -> loss and total weight.

    One element is read for each target, not all c. flops: one addition each, and a product with
    the weight. bytes: the targets, that many elements, the weight; without reduction the loss of
    each is written, else two numbers.
    """
    scores, target, weight = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2)
    count = counted(target)
    out = target.shape if integer(call, 3) == 0 else ()
    return tally(
        (2 if weight else 1) * count,
        read=[fresh((count,), scores.dtype), target, weight],
        written=[fresh(out, scores.dtype), fresh((), scores.dtype)],
        dtype=scores.dtype,
        params=f"N={count},C={_classes(scores)}",
    )


def _classes(scores: Tensor) -> int:
    return scores.shape[1] if len(scores.shape) > 1 else numel(scores.shape)


@cost_of("aten::nll_loss_backward", "aten::nll_loss2d_backward", category="loss")
def nll_loss_backward(call: OpCall) -> Cost:
    """Grad, logarithms (n, c, …), target, weight, …, total weight -> gradient (n, c, …).

    flops: one for each target. bytes: grad, target, weight, total weight; the whole gradient is
    written, mostly zeros. The logarithms are not read.
    """
    grad, scores, target = (tensor(call, index) for index in range(3))
    count = counted(target)
    return tally(
        count,
        read=[grad, target, maybe_tensor(call, 3), maybe_tensor(call, 6)],
        written=[like(scores)],
        dtype=scores.dtype,
        params=f"N={count},C={_classes(scores)}",
    )


@cost_of("aten::cross_entropy_loss", category="loss")
def cross_entropy_loss(call: OpCall) -> Cost:
    """Scores (n, c, …), target, weight: log_softmax 5N, and for each target as `nll_loss`.

    bytes: scores, target, weight, and the loss: the logarithms need not leave the chip. At the
    most they are written, and that of each target read again, with the sum of the weights; with
    smoothed labels all of them are read, and added up.
    """
    scores, target, weight = tensor(call, 0), tensor(call, 1), maybe_tensor(call, 2)
    out = target.shape if integer(call, 3) == 0 else ()
    count, total = counted(target), fresh((), scores.dtype)
    smooths = value(call, 5) not in (None, 0)
    flops = 5 * counted(scores, "scores") + (2 if weight else 1) * count
    fused, apart = (
        tally(
            flops + numel(scores.shape) if smooths and not is_fused else flops,
            read=[scores, target, weight, None if is_fused else gathered],
            written=[fresh(out, scores.dtype), *([] if is_fused else [like(scores), total])],
            dtype=scores.dtype,
            params=f"N={numel(target.shape)},C={_classes(scores)}",
        )
        for is_fused, gathered in (
            (True, None),
            (False, like(scores) if smooths else fresh((count,), scores.dtype)),
        )
    )
    return bounded(
        fused,
        note=_FUSED,
        flops=(fused.flops, apart.flops),
        traffic=(fused.bytes, apart.bytes),
    )


_FUSED: Final = "the logarithms stay on the chip: at the most they are written and read again"


@cost_of("aten::linear_cross_entropy", category="loss")
def linear_cross_entropy(call: OpCall) -> Cost:
    """x (…, h), weight (c, h), target (…): flops 2·rows·c·h, and as `cross_entropy_loss`.

    bytes: x, weight, target, the loss: the scores need not leave the chip. At the most they are
    written and read once.
    """
    x, weight, target = (tensor(call, at) for at in range(3))
    rows, classes = numel(x.shape[:-1]), weight.shape[0]
    m, c, h = Size(rows, "M"), Size(classes, "N"), Size(weight.shape[-1], "K")
    bias = next((item for item in call.inputs[3:5] if isinstance(item, Tensor)), None)
    cost = tally(
        2 * m * c * h + 5 * m * c + m,
        read=[x, weight, target, bias],
        written=[fresh((), x.dtype)],
        dtype=x.dtype,
        params=f"M={rows},N={classes},K={weight.shape[-1]}",
    )
    scores = size(fresh((rows, classes), x.dtype))
    most = None if scores is None or cost.bytes is None else cost.bytes + 2 * scores
    return bounded(cost, note=_FUSED, traffic=(cost.bytes, most))


class _Loss(NamedTuple):
    """Operations per element of a loss and of its gradient; where reduction and weights stand."""

    flops: int
    backward: int
    reduction: int
    weights: tuple[int, ...] = ()


_LOSSES: Final = {
    "mse_loss": _Loss(2, 3, 2),
    "l1_loss": _Loss(2, 2, 2),
    "smooth_l1_loss": _Loss(4, 4, 2),
    "huber_loss": _Loss(4, 4, 2),
    "soft_margin_loss": _Loss(4, 5, 2),
    "binary_cross_entropy": _Loss(7, 6, 3, (2,)),
    "binary_cross_entropy_with_logits": _Loss(7, 4, 4, (2, 3)),
    "kl_div": _Loss(4, 2, 2),
    "poisson_nll_loss": _Loss(3, 2, 5),
    "hinge_embedding_loss": _Loss(4, 2, 3),
}  # fmt: skip
"""mse: subtract, square. bce: two logarithms, two products, a subtraction, an addition, a sign."""

_FORWARD: Final = {f"aten::{name}": loss for name, loss in _LOSSES.items()}
_BACKWARD: Final = {f"aten::{name}_backward": loss for name, loss in _LOSSES.items()}


@cost_of(*_FORWARD, category="loss")
def loss(call: OpCall) -> Cost:
    """x, target, reduction -> loss: flops per element from the table, and 1 to add them up.

    bytes: x, target, weights; the loss of each (reduction 0) or one number. Where the reduction
    is not recorded one number is assumed.
    """
    row = _FORWARD[call.op]
    x, target = tensor(call, 0), tensor(call, 1)
    weights = [maybe_tensor(call, index) for index in row.weights]
    reduction = integer(call, row.reduction)
    count = counted(x)
    summed, each = (
        tally(
            (row.flops + extra) * count,
            read=[x, target, *weights],
            written=[fresh(shape, promote(x, target))],
            dtype=x.dtype,
            params=f"N={count}",
        )
        for extra, shape in ((1, ()), (0, x.shape))
    )
    if reduction is not None:
        return each if reduction == 0 else summed
    note = "the reduction is not recorded: one number taken to be the result"
    return bounded(
        summed, note, flops=(each.flops, summed.flops), traffic=(summed.bytes, each.bytes)
    )


@cost_of(*_BACKWARD, category="loss")
def loss_backward(call: OpCall) -> Cost:
    """Grad, x, target -> gradient: flops per element from the table; bytes: grad, both, result.

    grad is one number, or one for each element, as recorded.
    """
    grad, x, target = (tensor(call, index) for index in range(3))
    weights = [maybe_tensor(call, 1 + index) for index in _BACKWARD[call.op].weights]
    return tally(
        _BACKWARD[call.op].backward * counted(x),
        read=[grad, x, target, *weights],
        written=[like(x)],
        dtype=x.dtype,
        params=f"N={numel(x.shape)}",
    )


@cost_of("aten::cosine_similarity", category="loss")
def cosine_similarity(call: OpCall) -> Cost:
    """Two (…, n) -> (…): three sums of products, 6 flops each pair of elements; bytes: all."""
    a, b = tensor(call, 0), tensor(call, 1)
    dim = integer(call, 2)
    shape = [n for at, n in enumerate(a.shape) if at != (1 if dim is None else dim) % len(a.shape)]
    return tally(6 * counted(a), read=[a, b], written=[fresh(shape, a.dtype)], dtype=a.dtype)


@cost_of("aten::_ctc_loss", "aten::_cudnn_ctc_loss", category="loss")
def ctc_loss(call: OpCall) -> Cost:
    """Logarithms (t, n, c), targets (n, s): three ways into each of t·n·(2s+1) states, 6 flops.

    bytes: logarithms, targets, and the table of states in the logarithms' type.
    """
    scores, targets = tensor(call, 0), tensor(call, 1)
    steps, batch, _ = scores.shape
    longest = max(targets.shape[1] if len(targets.shape) > 1 else _longest(call), 1)
    states = steps * batch * (2 * longest + 1)
    table = fresh((states,), scores.dtype)
    cost = tally(6 * states, read=[scores, targets], written=[table], dtype=scores.dtype)
    return bounded(
        cost,
        "all sequences taken to be as long as the longest",
        flops=(0, cost.flops),
        traffic=(0, cost.bytes),
    )


def _longest(call: OpCall) -> int:
    lengths = value(call, 3)
    return (
        max(lengths)
        if isinstance(lengths, list | tuple) and lengths
        else numel(first_tensor(call).shape[:1])
    )
