"""A training whose lines are known: which is slow, which calls what, and how often."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

STEPS = 4
BUSY_S = 0.03


class Inner(nn.Module):
    """Runs a line three times."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return the same shape."""
        for _ in range(3):
            x = torch.sigmoid(x)  # loop of three
        y: Tensor = self.linear(x)  # small product
        return y


class Net(nn.Module):
    """Two inner modules, one of them run again in backward, and a line that is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(Inner() for _ in range(2))
        self.again = Inner()
        self.weight = nn.Parameter(torch.randn(700, 700))

    def forward(self, x: Tensor, big: Tensor) -> Tensor:
        """Return a number."""
        for part in self.parts:
            x = part(x)  # call of parts
        x = checkpoint(self.again, x, use_reentrant=False)  # checkpoint
        slow = (big @ self.weight).sum()  # slow product
        return x.sum() + slow  # small sum


def busy() -> None:
    """Keep the host from doing anything for PyTorch."""
    end = time.perf_counter() + BUSY_S
    while time.perf_counter() < end:
        pass


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, big = torch.randn(4, 8), torch.randn(700, 700)
    for _ in range(STEPS):
        loss = model(x, big)  # call of the model
        busy()
        loss.backward()  # backward
        optimizer.step()  # optimizer
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
