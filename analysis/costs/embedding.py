"""Embedding tables and bags of their rows.

Bytes: the indices and only the rows that they name; the gradient of a table is written whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.analysis.costs.index import gathered
from pyprof2.analysis.costs.operands import (
    counted,
    fresh,
    integer,
    like,
    maybe_tensor,
    numel,
    refuse,
    tally,
    tensor,
    value,
    with_more,
)
from pyprof2.analysis.costs.registry import (
    Cost,
    Evidence,
    cost_of,
    cost_with_evidence,
)
from pyprof2.analysis.costs.sizes import Size

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall


@cost_of("aten::embedding", category="embedding")
def embedding(call: OpCall) -> Cost:
    """Weight (v, d), indices -> (…, d): bytes: indices, a row for each, result; no FLOPs."""
    weight, indices = tensor(call, 0), tensor(call, 1)
    count, width = numel(indices.shape), weight.shape[1]
    out = fresh((*indices.shape, width), weight.dtype)
    return gathered(count, weight, width, indices, out)


@cost_with_evidence(
    "aten::embedding_dense_backward", "aten::embedding_backward", category="embedding"
)
def embedding_backward(call: OpCall, evidence: Evidence) -> Cost:
    """Grad (…, d), indices, number of rows v -> gradient (v, d), all of it written.

    flops: one addition for each element of grad. bytes: grad, indices, the whole gradient.
    """
    grad, indices = tensor(call, 0), tensor(call, 1)
    rows = integer(call, 2)
    if rows is None and evidence.forward is not None:
        rows = tensor(evidence.forward, 0).shape[0]
    if rows is None:
        refuse("the number of rows is not in the recording, nor is the forward op")
    width = grad.shape[-1]
    out = fresh((rows, width), grad.dtype)
    params = f"rows={numel(indices.shape)},width={width},table={rows}"
    flops = counted(grad, "grad")
    return tally(flops, read=[grad, indices], written=[out], params=params)


@cost_of(
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only", "aten::embedding_bag",
    category="embedding",
)  # fmt: skip
def embedding_bag(call: OpCall) -> Cost:
    """Weight (v, d), indices (n), offsets (b) or bags (b, n/b), …, weights (n) -> (b, d).

    flops: n·d additions, and as many products with weights. bytes: a row for each index, indices,
    offsets, weights, the result; and for each index and bag 8 bytes kept for backward.
    """
    weight, indices, offsets = (tensor(call, at) for at in range(3))
    scales = maybe_tensor(call, 6)
    count, width = numel(indices.shape), weight.shape[1]
    bags = numel(offsets.shape) - (value(call, 7) is True)
    out = fresh((bags, width), weight.dtype)
    flops = (1 if scales is None else 2) * Size(count, "rows") * Size(width, "width")
    cost = gathered(count, weight, width, indices, out, flops)
    return with_more(cost, [offsets, scales], [fresh((count + bags,), "i64")])


@cost_of(
    "aten::_embedding_bag_dense_backward", "aten::_embedding_bag_backward", category="embedding"
)
def embedding_bag_backward(call: OpCall) -> Cost:
    """Grad (b, d), indices (n), offsets or none, bag of each, sizes, maxima, rows v -> (v, d).

    flops: n·d additions, products with weights as many. bytes: grad once, indices and bags, the
    whole gradient written; a sparse one has a row for each index, and the indices.
    """
    is_whole = call.op == "aten::_embedding_bag_backward"
    grad, indices, bags = (tensor(call, at) for at in (0, 1, 3 if is_whole else 2))
    rows = integer(call, 6 if is_whole else 5)
    if rows is None:
        refuse("the number of rows is not in the recording")
    scales = maybe_tensor(call, 10 if is_whole else 8)
    width = grad.shape[-1]
    if is_whole and value(call, 9) is True:
        made = [fresh((numel(indices.shape), width), grad.dtype), like(indices)]
        flops = 0 if scales is None else counted(indices, "rows") * Size(width, "width")
        return tally(flops, read=[grad, indices, bags, scales], written=made)
    flops = (1 if scales is None else 2) * counted(indices, "rows") * Size(width, "width")
    out = fresh((rows, width), grad.dtype)
    return tally(flops, read=[grad, indices, bags, scales], written=[out])
