"""Two trainings whose optimizers get a closure: one with a functional loss, one with LBFGS."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 2


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Let the optimizer run forward and backward itself."""
    for _ in range(STEPS):
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))

        def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    for make in (torch.optim.Adam, torch.optim.LBFGS):
        model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
        train(model, make(model.parameters(), lr=0.01))


if __name__ == "__main__":
    main()
