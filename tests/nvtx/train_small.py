"""A small training that ends with exit code 3: `python train_small.py RESULT`.

It has what the annotation looks at: modules, an autograd function, a checkpoint, a transform, a
DataLoader, two optimizers, no gradients. Its losses and parameters go into RESULT, as bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Twice(torch.autograd.Function):
    """Doubles, in a way of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Return the double."""
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient."""
        (x,) = ctx.saved_tensors
        grad: Tensor = grads[0] * 2 + x * 0
        return grad


class Net(nn.Module):
    """Two layers, of which one is run again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores."""
        hidden: Any = checkpoint(self.first, x, use_reentrant=False)
        doubled: Any = Twice.apply(hidden.relu_())  # type: ignore[no-untyped-call]
        scores: Tensor = self.second(doubled)
        return scores


def train(path: str) -> None:
    """Train for three steps, and write what came out of it."""
    torch.manual_seed(0)
    net = Net()
    weights, biases = (
        [p for p in net.parameters() if p.dim() > 1],
        [p for p in net.parameters() if p.dim() == 1],
    )
    optimizers = [torch.optim.AdamW(weights), torch.optim.SGD(biases, lr=0.1)]
    data = TensorDataset(torch.randn(12, 8), torch.randint(4, (12,)))
    found = []
    for x, y in DataLoader(data, batch_size=4):
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        found.append(loss.detach())
    with torch.no_grad():
        found.append(net(torch.ones(2, 8)).sum())
    squares = torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))
    found += [squares(torch.ones(2, 3)), *(p.detach() for p in net.parameters())]
    Path(path).write_bytes(b"".join(each.numpy().tobytes() for each in found))


if __name__ == "__main__":
    train(sys.argv[1])
    sys.exit(3)
