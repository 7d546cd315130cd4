"""Random numbers: a draw is no FLOP; what is drawn is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    dtype_at,
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

if TYPE_CHECKING:
    from pyprof2.signatures import OpCall


@cost_of(
    "aten::normal_", "aten::uniform_", "aten::random_", "aten::exponential_", "aten::bernoulli_",
    "aten::log_normal_", "aten::cauchy_", "aten::geometric_", "aten::normal_functional",
    "aten::_philox_normal_", "aten::_philox_uniform_", category="random",
)  # fmt: skip
def draw_into(call: OpCall) -> Cost:
    """x, parameters: x written; probabilities given as a tensor are read."""
    x, more = tensor(call, 0), maybe_tensor(call, 1)
    return tally(read=[more], written=[x], params=f"N={numel(x.shape)}")


@cost_of(
    "aten::rand_like", "aten::randn_like", "aten::randint_like", "aten::bernoulli",
    "aten::poisson", "aten::binomial", "aten::_standard_gamma", category="random",
)  # fmt: skip
def draw_like(call: OpCall) -> Cost:
    """x -> as many draws: written; x is read only where it holds the parameters."""
    x = tensor(call, 0)
    read = [] if call.op.endswith("_like") else [x, maybe_tensor(call, 1)]
    dtype = dtype_at(call, 3 if "randint" in call.op else 1) if not read else None
    return tally(read=read, written=[like(x, dtype)], params=f"N={numel(x.shape)}")


@cost_with_evidence("aten::rand", "aten::randn", "aten::randint", "aten::normal", category="random")
def draw(call: OpCall, evidence: Evidence) -> Cost:
    """Shape, dtype -> draws: written. `randint` has one or two limits before the shape."""
    if evidence.output is not None:
        out = fresh(evidence.output.shape, evidence.output.dtype or "f32")
        return tally(written=[out], params=f"N={numel(out.shape)}")
    if call.op == "aten::normal":
        given = [item for at in range(2) if (item := maybe_tensor(call, at)) is not None]
        if given:
            return tally(read=given, written=[like(given[0])])
    at = next((at for at in range(3) if isinstance(value(call, at), list | tuple)), None)
    shape = None if at is None else integers(call, at)
    if at is None or shape is None:
        refuse("the shape is not in the recording")
    default = "i64" if call.op == "aten::randint" else "f32"
    out = fresh(shape, dtype_at(call, at + 1) or default)
    return tally(written=[out], params=f"N={numel(shape)}")


@cost_of("aten::randperm", category="random")
def randperm(call: OpCall) -> Cost:
    """n -> a permutation: n·log2 n comparisons of random keys; bytes: 8 each, written."""
    count = needed(integer(call, 0), "the length is not in the recording")
    out = fresh((count,), "i64")
    halvings = Size(max(count - 1, 0).bit_length(), "log2(N)")
    return tally(Size(count, "N") * halvings, written=[out], params=f"N={count}")


@cost_of("aten::multinomial", category="random")
def multinomial(call: OpCall) -> Cost:
    """Weights (…, c), draws -> places (…, draws): 2 flops for each weight; bytes: both.

    Assumed: one pass over the weights, as for one draw each.
    """
    weights = tensor(call, 0)
    count = needed(integer(call, 1), "the number of draws is not in the recording")
    out = fresh((*weights.shape[:-1], count), "i64")
    flops = 2 * counted(weights)
    cost = tally(flops, read=[weights], written=[out])
    note = "one pass over the weights assumed, as for one draw each"
    return bounded(cost, note, flops=(0, flops * max(count, 1)))
