"""Triton kernels that Inductor makes: their names say which ops they fuse.

`triton_poi_fused_add_cos_sin_0` works on each element, `triton_red_…` and `triton_per_…` reduce,
`triton_tem_…` is a template such as a matrix product. Their arguments are pointers to tensors,
then the number of elements, for reductions the number that each element of the result sums over.

FLOPs: each op of the name once for each element; a name lists an op once, however often the
kernel has it, and names are cut short: bounds from none to eight times. Bytes: each tensor once;
one that is updated in place is read and written, so the upper bound is twice all. Which one that
is follows from the sizes, where only it has that of a result. A kernel may
touch only a part of a tensor: the lower bound is one result.
"""

from __future__ import annotations

from typing import Final

from pyprof2.analysis.costs.operands import bounded, numel, refuse, tally, total, value
from pyprof2.analysis.costs.pointwise import FLOPS_PER_ELEMENT
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor

_MORE: Final = {
    "native_layer_norm": 8, "native_group_norm": 8, "native_batch_norm": 7, "rms_norm": 4,
    "_softmax": 5, "_log_softmax": 5, "softmax": 5, "log_softmax": 5, "logsumexp": 4,
    "_softmax_backward_data": 4, "_log_softmax_backward_data": 4, "native_dropout": 2,
    "native_layer_norm_backward": 14, "native_batch_norm_backward": 9, "sum": 1, "mean": 1,
    "amax": 1, "amin": 1, "max": 1, "min": 1, "prod": 1, "var_mean": 4, "var": 4, "std": 4,
    "argmax": 1, "any": 1, "all": 1, "cumsum": 1, "linalg_vector_norm": 2, "norm": 2,
    "mse_loss": 3, "nll_loss_forward": 1, "nll_loss_backward": 1, "index_add": 1,
    "_native_batch_norm_legit": 7, "_native_batch_norm_legit_functional": 7,
    "_native_batch_norm_legit_no_training": 2, "embedding_dense_backward": 1, "erf": 1,
}  # fmt: skip
_NONE: Final = (
    "_to_copy", "_unsafe_view", "_unsafe_index", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "view", "clone", "permute", "transpose", "t",
    "expand", "slice", "select", "split", "split_with_sizes", "unsqueeze", "squeeze", "cat",
    "stack", "copy", "copy_", "fill", "full", "full_like", "zeros", "zeros_like", "ones",
    "ones_like", "arange", "iota", "index", "index_put", "embedding", "gather", "scatter",
    "where", "scalar_tensor", "lift_fresh_copy", "detach", "alias", "constant_pad_nd", "repeat",
    "masked_fill", "addmm", "mm", "bmm", "convolution", "reshape", "unbind", "new_zeros",
    "empty", "to", "as_strided", "_reshape_copy", "native_dropout_backward", "rand", "randn",
    "index_select", "select_scatter", "slice_scatter", "slice_backward", "select_backward",
    "max_pool2d_with_indices", "triu", "tril", "flip", "roll", "contiguous", "threshold",
)  # fmt: skip
"""Ops that move data, or that other kernels do: the name lists where its inputs come from."""

WEIGHTS: Final = {**FLOPS_PER_ELEMENT, **_MORE, **dict.fromkeys(_NONE, 0)}
_MOST: Final = 8


def fused_ops(name: str) -> tuple[str, ...]:
    """Return the ops that a kernel's name lists, as far as they are known.

    Names of ops have underscores too: the longest that fits is taken, from the left.
    """
    _, _, rest = name.partition("_fused_")
    words = rest.split("_")
    found, at = [], 0
    while at < len(words):
        ends = (end for end in range(len(words), at, -1) if "_".join(words[at:end]) in WEIGHTS)
        end = next(ends, None)
        if end is None:
            at += 1
            continue
        found.append("_".join(words[at:end]))
        at = end
    return tuple(found)


@cost_of("triton_poi_*", category="elementwise")
def triton_pointwise(call: OpCall) -> Cost:
    """Tensors, number of elements: see the module."""
    return _triton(call)


@cost_of("triton_red_*", "triton_per_*", "triton_mix_*", category="reduce")
def triton_reduction(call: OpCall) -> Cost:
    """Tensors, number of results, number of elements for each: see the module."""
    return _triton(call)


def _triton(call: OpCall) -> Cost:
    items = [item for item in call.inputs if isinstance(item, Tensor) and item.shape]
    if not items:
        refuse("the tensors' shapes are not in the recording")
    count, results, sizes = _counts(call, items)
    per_element = sum(WEIGHTS[op] for op in fused_ops(call.op))
    at = _result(items, sizes)
    cost = tally(
        per_element * Size(count, "N"),
        read=items[:-1] if at == len(items) - 1 else items,
        written=[items[at]],
        dtype=items[0].dtype,
        params=f"N={count}",
    )
    least = total([Tensor((min(results, numel(items[at].shape)),), items[at].dtype)])
    whole = total(items)
    return bounded(
        cost,
        "from the kernel's name: each op once per element; each tensor once",
        flops=(0, _MOST * max(per_element, 1) * count),
        traffic=(least, None if whole is None else 2 * whole),
    )


def _counts(call: OpCall, items: list[Tensor]) -> tuple[int, int, set[int]]:
    """Return how many elements and results there are, and the sizes that a result may have."""
    numbers = [
        number
        for at in range(len(call.inputs))
        if isinstance(number := value(call, at), int) and not isinstance(number, bool)
    ]
    if not numbers:
        return max(numel(item.shape) for item in items), 1, set()
    reduces = not call.op.startswith("triton_poi")
    count = numel(numbers[-2:] if reduces else numbers[-1:])
    results = numbers[-2] if reduces and len(numbers) > 1 else numbers[-1]
    return count, results, {count, results, numel(numbers[-2:])}


def _result(items: list[Tensor], sizes: set[int]) -> int:
    """Return the position of a tensor that is written, and read too unless it is the last one.

    Results come last, tensors that are both come first. Where the last one has not the size of a
    result it is only read, so the result is the first one that has.
    """
    fits = [at for at, item in enumerate(items) if numel(item.shape) in sizes]
    last = len(items) - 1
    return last if last in fits or not fits else fits[0]
