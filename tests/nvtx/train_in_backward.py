"""A training whose optimizers step inside of backward, as soon as a gradient is there."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from torch import Tensor, nn

STEPS = 3


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizers = {p: torch.optim.AdamW([p], foreach=True) for p in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizers[parameter].step()  # type: ignore[index]
        optimizers[parameter].zero_grad(set_to_none=False)  # type: ignore[index]

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(STEPS):
        model(torch.randn(4, 8)).sum().backward()


if __name__ == "__main__":
    main()
