"""Train a multilayer perceptron.

Usage: python mlp.py [--steps N]

An ordinary training script, which knows nothing of profiling. Recorded with
`pyprof2 capture examples/mlp.py`, or with `pyprof2.init()` in it under nsys.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def train(steps: int) -> None:
    """Train for some steps on random data."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    ).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        x = torch.randn(64, 256, device=DEVICE)
        y = torch.randint(0, 10, (64,), device=DEVICE)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.3f}")


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=5, metavar="N", help="training steps")
    train(parser.parse_args().steps)


if __name__ == "__main__":
    main()
