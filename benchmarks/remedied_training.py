"""A small training, as it is and after a remedy, recorded on the CPU.

Usage: python remedied_training.py REMEDY before|after FOLDER [ROUNDS]

Writes one recording per round: FOLDER/0.json, FOLDER/1.json … What a device would have done is
added to them by `benchmarks/remedies.py`, which says what the remedies are.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

import pyprof2

REMEDY, SIDE, FOLDER = sys.argv[1:4]
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 1
STEPS = 6
UNRECORDED = 2
LAYERS = 30
WIDTH = 32
PYTHON_LOOP = 300_000
"""Some milliseconds: longer than a product of matrices takes where the device is the limit."""
PARTS = 16
"""Tensors in a batch that is copied to the device."""


def is_slow(remedy: str) -> bool:
    """Return whether a thing is as it was before its remedy."""
    return remedy == REMEDY and SIDE == "before"


class Samples(Dataset[torch.Tensor]):
    """Random numbers, which may take their time."""

    def __len__(self) -> int:
        """Return how many batches there are."""
        return STEPS + UNRECORDED

    def __getitem__(self, index: int) -> torch.Tensor:
        """Return a batch."""
        if REMEDY == "workers":
            sum(range(2_000_000))
        drawn = 20_000 if REMEDY == "item" else WIDTH * WIDTH
        return torch.randn(drawn)[: WIDTH * WIDTH].view(WIDTH, WIDTH)


class Layer(nn.Module):
    """A linear layer and what comes after it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        if is_slow("python"):
            sum(range(PYTHON_LOOP))
        y = self.linear(x)
        if is_slow("mask"):
            torch.nonzero(y > 0)
        elif REMEDY == "mask":
            (y > 0).sum()
        return activated(y) if REMEDY == "fused" else y


def activated(y: torch.Tensor) -> torch.Tensor:
    """Return a GELU, by hand or as one op."""
    if SIDE == "after":
        return functional.gelu(y, approximate="tanh")
    return 0.5 * y * (1 + torch.tanh(0.79788456 * (y + 0.044715 * y * y * y)))


def train(recorder: profile, model: nn.Module) -> None:
    """Train for all batches."""
    fused = not is_slow("optimizer")
    optimizer = torch.optim.SGD(model.parameters(), 0.01, 0.9, nesterov=True, foreach=fused)
    workers = 1 if REMEDY == "workers" and SIDE == "after" else 0
    total = torch.zeros(())
    on_device = torch.zeros(WIDTH * WIDTH)
    for batch in DataLoader(Samples(), batch_size=None, num_workers=workers):
        for _ in range(PARTS if REMEDY == "pinned" else 0):
            on_device.copy_(batch.view(-1), non_blocking=SIDE == "after")
        if is_slow("allocator"):
            batch.new_empty(WIDTH)
        if is_slow("garbage"):
            gc.collect()
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if is_slow("item"):
            loss.item()
        else:
            total += loss.detach()
        recorder.step()


def main() -> None:
    """Train, and write the recordings."""
    torch.set_num_threads(1)
    pyprof2.init()
    for number in range(ROUNDS):
        path = Path(FOLDER) / f"{number}.json"
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Layer() for _ in range(LAYERS)))
        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
            record_shapes=True,
            with_stack=REMEDY in ("garbage", "python"),
            on_trace_ready=lambda recorder, path=path: recorder.export_chrome_trace(str(path)),
        ) as recorder:
            train(recorder, model)


if __name__ == "__main__":
    main()
