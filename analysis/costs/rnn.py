"""Recurrent networks: whole stacks by cuDNN or MIOpen, and single cells.

FLOPs are those of the matrix products: every weight matrix meets every row of every step, so
2·steps·batch·(elements of all weight matrices). That holds for any number of layers, gates,
directions and projections. The functions of the gates, about ten for each hidden element, are
not counted, as with other fused ops. Bytes: input, weights and states once, the output.

Source: the definition of the LSTM and GRU; `torch.utils.flop_counter` has none.
"""

from __future__ import annotations

from typing import Final

from pyprof2.analysis.costs.operands import (
    bounded,
    counted,
    elements,
    flag,
    flags,
    fresh,
    integer,
    like,
    maybe_tensor,
    maybe_tensors,
    numel,
    refuse,
    tally,
    tensor,
    tensors,
    typed,
)
from pyprof2.analysis.costs.registry import Cost, cost_of
from pyprof2.analysis.costs.sizes import Size
from pyprof2.signatures import OpCall, Tensor

_GATES: Final = {0: 1, 1: 1, 2: 4, 3: 3}
"""Gates of the modes of cuDNN: plain with relu and tanh, LSTM, GRU."""


def _matrices(weights: tuple[Tensor, ...]) -> Size:
    return Size(sum(numel(item.shape) for item in weights if len(item.shape) == 2), "weights")


def _rows(x: Tensor) -> Size:
    """Return steps times batch; a packed input has both in one dimension."""
    return Size(numel(x.shape[:-1]), "rows")


_STACKS: Final = {
    # places of the hidden state, the mode, the hidden size, layers, both directions
    "aten::_cudnn_rnn": (4, 6, 7, 9, 13),
    "aten::miopen_rnn": (3, 5, 6, 7, 11),
}
_STACKS_BACKWARD: Final = {
    # places of the hidden state, the output, the mode, the hidden size, layers, directions, mask
    "aten::_cudnn_rnn_backward": (4, 6, 10, 11, 13, 17, 21),
    "aten::miopen_rnn_backward": (4, 6, 10, 11, 12, 16, 20),
}


@cost_of(*_STACKS, category="rnn")
def stack(call: OpCall) -> Cost:
    """x (t, b, i), weights, …, hidden and cell state: flops 2·t·b·(elements of the matrices).

    bytes: x, weights, states, the output (t, b, width) and the new states.
    """
    hidden, *places = _STACKS[call.op]
    x, state = tensor(call, 0), tensor(call, hidden)
    cell = maybe_tensor(call, hidden + 1)
    weights = _weights(call, x, *places)
    width = state.shape[-1] * (2 if flag(call, places[-1]) else 1)
    out = fresh((*x.shape[:-1], width), x.dtype)
    return tally(
        2 * _rows(x) * _matrices(weights),
        read=[x, *_as(weights, x), state, cell],
        written=[out, like(state), None if cell is None else like(cell)],
        params=_params(x, weights),
    )


def _as(weights: tuple[Tensor, ...], x: Tensor) -> tuple[Tensor, ...]:
    """Return the weights, whose list lacks element types, in that of x, as the libraries ask."""
    return weights if x.dtype is None else typed(weights, x.dtype)


def _params(x: Tensor, weights: tuple[Tensor, ...]) -> str:
    return f"rows={_rows(x)},in={x.shape[-1]},weights={_matrices(weights)}"


def _weights(
    call: OpCall, x: Tensor, mode_at: int, hidden_at: int, layers_at: int, both_at: int
) -> tuple[Tensor, ...]:
    """Return the weights, from their list, or as the sizes say."""
    given = maybe_tensors(call, 1)
    if given:
        return given
    gates = _GATES.get(integer(call, mode_at) or 0, 1)
    hidden, layers = integer(call, hidden_at), integer(call, layers_at)
    if hidden is None or layers is None:
        refuse("the sizes of the weights are not in the recording")
    ways = 2 if flag(call, both_at) else 1
    found = []
    for layer in range(layers):
        width = x.shape[-1] if layer == 0 else ways * hidden
        pair = (fresh((gates * hidden, width), None), fresh((gates * hidden, hidden), None))
        found += [*pair, fresh((2 * gates * hidden,), None)] * ways
    return tuple(found)


@cost_of(*_STACKS_BACKWARD, category="rnn")
def stack_backward(call: OpCall) -> Cost:
    """x, weights, …, output, gradients, mask: twice the forward FLOPs.

    One product for the gradient of each input row and one for that of each weight; not the first
    layer's for x where the mask does not ask for it, nor the weights' where not. bytes: x,
    weights, states, output and its gradient; gradients of x, weights and states.
    """
    hidden, output, *places, mask_at = _STACKS_BACKWARD[call.op]
    x, state = tensor(call, 0), tensor(call, hidden)
    cell = maybe_tensor(call, hidden + 1)
    weights = _weights(call, x, *places)
    mask = flags(call, mask_at)
    ways = 2 if flag(call, places[-1]) else 1
    every = _matrices(weights)
    layers = integer(call, places[-2])
    if not layers:
        refuse("the number of layers is not in the recording")
    # The matrices that meet x itself, the first of each direction: layer by layer, direction by
    # direction, the weights stand in groups of one size.
    group = len(weights) // (layers * ways)
    first = _matrices(weights[: group * ways : group])
    wants_x, _, _, wants_weights = mask or (True, True, True, True)
    terms = every * (1 + wants_weights) - (0 if wants_x else first)
    flops = 2 * _rows(x) * terms
    known = _as(weights, x)
    out = maybe_tensor(call, output) or fresh((*x.shape[:-1], state.shape[-1]), x.dtype)
    cost = tally(
        flops,
        read=[x, *known, state, cell, out, maybe_tensor(call, output + 1)],
        written=[
            like(x) if wants_x else None,
            *(known if wants_weights else ()),
            like(state),
            None if cell is None else like(cell),
        ],
        params=_params(x, weights),
    )
    if mask is not None:
        return cost
    note = "output_mask not recorded: all gradients taken to be wanted"
    return bounded(cost, note, flops=(2 * _rows(x) * (every - first), flops))


@cost_of("aten::mkldnn_rnn_layer", category="rnn")
def cpu_layer(call: OpCall) -> Cost:
    """x (t, b, i), weights (g·h, i), (g·h, h), two biases, states: one layer, in one direction.

    flops 2·t·b·(elements of the matrices). bytes: x, weights, states, the output (t, b, h) and the
    new states; not what is kept for backward, whose size only oneDNN knows.
    """
    x, *weights, state, cell = (tensor(call, at) for at in range(7))
    out = fresh((*x.shape[:-1], state.shape[-1]), x.dtype)
    return tally(
        2 * _rows(x) * _matrices(tuple(weights)),
        read=[x, *weights, state, cell],
        written=[out, like(state), like(cell)],
        params=_params(x, tuple(weights)),
    )


@cost_of("aten::mkldnn_rnn_layer_backward", category="rnn")
def cpu_layer_backward(call: OpCall) -> Cost:
    """As forward, then the output, the new states and their gradients: twice the forward FLOPs.

    bytes: all inputs; gradients of x, weights and states.
    """
    x, *weights, state, cell = (tensor(call, at) for at in range(7))
    rest = [maybe_tensor(call, at) for at in (*range(7, 13), 22)]
    return tally(
        4 * _rows(x) * _matrices(tuple(weights)),
        read=[x, *weights, state, cell, *rest],
        written=[like(item) for item in (x, *weights, state, cell)],
        params=_params(x, tuple(weights)),
    )


_COMPOSITES: Final = ("aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu")


@cost_of(*_COMPOSITES, category="rnn")
def network(call: OpCall) -> Cost:
    """x, state, weights, …; a packed x has the batch sizes second: as `_cudnn_rnn`."""
    x = tensor(call, 0)
    packed = 1 if isinstance(call.inputs[1], Tensor) and len(call.inputs[1].shape) == 1 else 0
    weights = tensors(call, 2 + packed)
    both = flag(call, 7 + packed) or False
    state = maybe_tensor(call, 1 + packed) or maybe_tensors(call, 1 + packed)[0]
    out = fresh((*x.shape[:-1], state.shape[-1] * (2 if both else 1)), x.dtype)
    known = _as(weights, x)
    return tally(
        2 * _rows(x) * _matrices(weights),
        read=[x, *known],
        written=[out],
        params=_params(x, weights),
    )


@cost_of(
    "aten::lstm_cell", "aten::gru_cell", "aten::rnn_tanh_cell", "aten::rnn_relu_cell",
    category="rnn",
)  # fmt: skip
def cell(call: OpCall) -> Cost:
    """x (b, i), state (b, h), two weights, two biases -> new state: flops 2·b·g·h·(i + h)."""
    x, inner, outer = tensor(call, 0), tensor(call, 2), tensor(call, 3)
    biases = [maybe_tensor(call, 4), maybe_tensor(call, 5)]
    states = typed(maybe_tensors(call, 1), x.dtype or "f32") or (tensor(call, 1),)
    return tally(
        2 * _rows(x) * (numel(inner.shape) + numel(outer.shape)),
        read=[x, inner, outer, *biases, *states],
        written=[like(item) for item in states],
        params=_params(x, (inner, outer)),
    )


@cost_of("aten::_thnn_fused_lstm_cell", category="rnn")
def fused_lstm_cell(call: OpCall) -> Cost:
    """Two (b, 4h) products, cell state (b, h), biases -> state, cell state, gates.

    flops for each hidden element: 4 sums (8 with biases), 5 functions, 3 products, 1 sum.
    bytes: all inputs; both states, and the gates kept for backward.
    """
    inner, outer, state = (tensor(call, at) for at in range(3))
    biases = [maybe_tensor(call, 3), maybe_tensor(call, 4)]
    each = 13 if biases[0] is None else 21
    written = [like(state), like(state), like(inner)]
    flops = each * counted(state)
    return tally(flops, read=[inner, outer, state, *biases], written=written)


@cost_of("aten::_thnn_fused_gru_cell", category="rnn")
def fused_gru_cell(call: OpCall) -> Cost:
    """Two (b, 3h) products, state (b, h), biases -> state, workspace (b, 5h).

    flops for each hidden element: 3 sums (6 more with biases), 3 functions, 3 products, 2 sums.
    """
    inner, outer, state = (tensor(call, at) for at in range(3))
    biases = [maybe_tensor(call, 3), maybe_tensor(call, 4)]
    each = 11 if biases[0] is None else 17
    workspace = fresh((5 * numel(state.shape),), state.dtype)
    return tally(
        each * counted(state),
        read=[inner, outer, state, *biases],
        written=[like(state), workspace],
    )


@cost_of("aten::_thnn_fused_lstm_cell_backward", "aten::_thnn_fused_lstm_cell_backward_impl",
         category="rnn")  # fmt: skip
def fused_lstm_cell_backward(call: OpCall) -> Cost:
    """Gradients of state and cell, both cell states, gates (b, 4h) -> their gradients: 24 each."""
    grads = [maybe_tensor(call, 0), maybe_tensor(call, 1)]
    before, after, gates = (tensor(call, at) for at in (2, 3, 4))
    flops = 24 * elements(before)
    return tally(
        flops,
        read=[*grads, before, after, gates],
        written=[like(gates), like(before)],
        dtype=gates.dtype,
    )


@cost_of("aten::_thnn_fused_gru_cell_backward", category="rnn")
def fused_gru_cell_backward(call: OpCall) -> Cost:
    """Gradient (b, h), workspace (b, 5h) -> those of both products and the state: 20 flops each."""
    grad, workspace = tensor(call, 0), tensor(call, 1)
    wide = fresh((3 * numel(grad.shape),), grad.dtype)
    flops = 20 * counted(grad)
    return tally(flops, read=[grad, workspace], written=[wide, wide, like(grad)])
