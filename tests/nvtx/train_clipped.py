"""A training that adds up, unscales and clips gradients, averages weights, and is evaluated."""

from __future__ import annotations

import copy

import torch
from torch import nn

STEPS = 3


def main() -> None:
    """Train, and evaluate after each step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    average = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(STEPS):
        for _ in range(2):
            scaler.scale(model(torch.randn(8, 16)).square().mean()).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        with torch.no_grad():
            average(torch.ones(8, 16))


if __name__ == "__main__":
    main()
