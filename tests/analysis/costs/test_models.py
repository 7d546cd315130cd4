"""Whole networks: forward and backward add up to what the closed form says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from pyprof2.analysis.costs import category_of, estimate, is_view
from pyprof2.signatures import OpCall, Scalar, Tensor

torch = pytest.importorskip("torch", reason="the networks need torch")

from tests.analysis.costs.models import MODELS  # noqa: E402 - it needs torch
from tests.analysis.costs.recorder import Recorded, record  # noqa: E402 - it needs torch

if TYPE_CHECKING:
    from pathlib import Path

DENSE: Final = ("matmul", "conv", "attention", "rnn")


@pytest.fixture(scope="module")
def truth(shared: Path) -> dict[str, dict[str, Any]]:
    found = json.loads((shared / "truth" / "flops_truth.json").read_text())
    return {row["name"]: row for row in found["models"]}


def dense_flops(ops: list[Recorded]) -> int:
    """Return the FLOPs of all products and convolutions; none may be without a count."""
    total = 0
    for recorded in ops:
        if category_of(recorded.call.op) in DENSE and not is_view(recorded.call.op):
            found = estimate(recorded.call)
            assert found.cost is not None, (recorded.call, found)
            total += found.cost.flops
    return total


@pytest.mark.parametrize("name", MODELS)
def test_a_network_does_its_flops_forward_and_backward(
    name: str, truth: dict[str, dict[str, Any]]
) -> None:
    with torch.device("meta"):
        model, x = MODELS[name]()  # type: ignore[no-untyped-call]
        losses: list[Any] = []
        forward = record(lambda: losses.append(model(x).sum()))
        backward = record(losses[0].backward)

    row = truth[name]
    assert (dense_flops(forward), dense_flops(backward)) == (row["fwd_closed"], row["bwd_closed"])


def lstm(name: str, *middle: Any, last: tuple[Any, ...] = ()) -> OpCall:
    """Return a call of cuDNN's LSTM: 128 steps, 32 sequences, 512 wide, 2 layers."""

    def f32(*shape: int) -> Tensor:
        return Tensor(shape, "f32")

    layer = (f32(2048, 512), f32(2048, 512), f32(2048), f32(2048))
    state = f32(2, 32, 512)
    weights = tuple(Tensor(item.shape) for item in 2 * layer)
    numbers: tuple[Any, ...] = (2, 512, 0, 2, False, 0.0, True, False, [])
    sizes = [Scalar(number) for number in numbers]
    head = (f32(128, 32, 512), weights, Scalar(4), f32(8404992), state, state)
    return OpCall(name, (*head, *middle, *sizes, None, *last))


def test_an_lstm_does_its_flops_forward(truth: dict[str, dict[str, Any]]) -> None:
    found = estimate(lstm("aten::_cudnn_rnn"))

    assert found.cost is not None
    assert found.cost.flops == truth["lstm-2x512"]["fwd_closed"]


def test_an_lstm_whose_input_needs_no_gradient_does_its_flops_backward(
    truth: dict[str, dict[str, Any]],
) -> None:
    out = Tensor((128, 32, 512), "f32")
    mask = Scalar([False, False, False, True])
    call = lstm(
        "aten::_cudnn_rnn_backward", out, out, None, None, last=(Tensor((1000,), "u8"), mask)
    )

    found = estimate(call)

    assert found.cost is not None
    assert found.cost.flops == truth["lstm-2x512"]["bwd_closed"]
