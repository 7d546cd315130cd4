"""Train a perceptron in a plain loop, and record some of its steps.

Usage: python plain_loop.py
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from outcome import report
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import pyprof2


def main() -> None:
    """Train for ten steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(160, 64), torch.randint(0, 10, (160,)))
    losses = []
    with pyprof2.record(steps=(3, 6)):
        for x, y in DataLoader(data, batch_size=16):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    report(model, losses)


if __name__ == "__main__":
    main()
