# mypy: disable-error-code="no-untyped-call"
"""Train a small network for some steps and record them: the script behind `pyprof2 demo`.

Usage: python demo_train.py [RECORDING.json.gz]

It is an ordinary training script. All that serves the profile is in `train`.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import profile, schedule

import pyprof2

BATCH = 32
CLASSES = 10


class Block(nn.Module):
    """Two convolutions around which the input is carried over."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations; same shape as `x`."""
        y = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(y)))


class Net(nn.Module):
    """A classifier of small colour pictures."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.blocks = nn.Sequential(Block(32), Block(32))
        self.head = nn.Linear(32 * 8 * 8, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scores of the classes; `x` is batch, 3, 32, 32."""
        x = self.blocks(self.stem(x))
        x = functional.max_pool2d(x, 4)
        scores: torch.Tensor = self.head(x.flatten(1))
        return scores


def train(path: str | None) -> None:
    """Train for four steps, and write what the last two did to `path`, if there is one."""
    pyprof2.init()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    pictures = torch.randn(BATCH, 3, 32, 32, device=device)
    labels = torch.randint(CLASSES, (BATCH,), device=device)
    # Without a path somebody else may record: pyprof2 capture, or nsys.
    profiler = profile(
        schedule=schedule(wait=1, warmup=1, active=2),
        on_trace_ready=lambda done: done.export_chrome_trace(str(path)),
        record_shapes=True,
        with_stack=True,
    )
    with profiler if path else nullcontext():
        for _ in range(4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(pictures), labels)
            loss.backward()
            optimizer.step()
            if path:
                profiler.step()


if __name__ == "__main__":
    train(sys.argv[1] if len(sys.argv) > 1 else None)
