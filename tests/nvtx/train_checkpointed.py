"""Train a network with both kinds of checkpointing, and a function of its own; a test records it.

Usage: train_checkpointed.py
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Double(torch.autograd.Function):
    """Twice its input."""

    @staticmethod
    def forward(_ctx: Any, x: Tensor) -> Tensor:
        """Return twice `x`."""
        return x * 2

    @staticmethod
    def backward(_ctx: Any, grad: Tensor) -> Tensor:
        """Return twice the gradient."""
        return grad * 2


class Net(nn.Module):
    """Three parts, of which two are run again in backward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.second = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
        self.third = nn.Sequential(nn.Linear(16, 8), nn.GELU(), nn.Dropout(0.5))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output; `x` is batch, 8."""
        x = self.first(x)
        x = checkpoint(self.second, x, use_reentrant=False)
        x = checkpoint(self.third, x, use_reentrant=True)
        doubled: Tensor = Double.apply(x)
        return doubled


def main() -> None:
    """Train for two steps."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
