"""Train a convolutional network with batch normalisation.

Usage: python convnet.py [--steps N]

An ordinary training script, which knows nothing of profiling. Recorded with
`pyprof2 capture examples/convnet.py`, or with `pyprof2.init()` in it under nsys.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    """Two convolutions around which the input is carried over."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(channels)
        self.conv_2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations; same shape as `x`."""
        y = functional.relu(self.norm_1(self.conv_1(x)), inplace=True)
        return functional.relu(x + self.norm_2(self.conv_2(y)))


class ConvNet(nn.Module):
    """A classifier of small colour pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the scores of the classes; `x` is batch, 3, height, width."""
        x = self.blocks(self.stem(x))
        scores: Tensor = self.head(self.dropout(x.mean((2, 3))))
        return scores


def train(steps: int) -> None:
    """Train for some steps on random pictures."""
    torch.manual_seed(0)
    model = ConvNet().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    pictures = torch.randn(16 * steps, 3, 32, 32)
    loader = DataLoader(TensorDataset(pictures, torch.randint(0, 10, (16 * steps,))), 16)
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x.to(DEVICE)), y.to(DEVICE))
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
