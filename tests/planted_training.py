"""A small training whose steps are recorded, with one thing planted that makes them slow.

Usage: python planted_training.py PLANT TRACE

PLANT is `sleep`, `item`, `allocator`, `python` or `nothing`. It runs on the CPU; what a device
would have done is added to the recording, see `tests/simulated_device.py`. What is planted in
Python is recorded with Python stacks, which have the first lines of functions; what is planted in
an op without, and has its own line from `pyprof2.init()`.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

import pyprof2

PLANT, TRACE = sys.argv[1:3]
LAYERS = 40
STEPS = 4
UNRECORDED = 2
WIDTH = 32
DRAWN = 1_000_000 if PLANT == "item" else WIDTH * WIDTH
"""Numbers drawn for a batch: after a wait the device has nothing to do while they are."""


class Samples(Dataset[torch.Tensor]):
    """Random numbers, which take their time."""

    def __len__(self) -> int:
        """Return how many batches there are."""
        return STEPS + UNRECORDED

    def __getitem__(self, index: int) -> torch.Tensor:  # planted: sleep
        """Return a batch."""
        if PLANT == "sleep":
            time.sleep(0.3)
        return torch.randn(DRAWN)[: WIDTH * WIDTH].view(WIDTH, WIDTH)


def spin() -> None:  # planted: python
    """Do nothing, slowly."""
    sum(range(600_000))


class Layer(nn.Module):
    """A linear layer that may be slow to begin."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the layer's result."""
        if PLANT == "python":
            spin()
        result: torch.Tensor = self.linear(x)
        return result


def train(recorder: profile, model: nn.Module) -> float:
    """Train for all batches and return the sum of the losses that were looked at."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    total = 0.0
    for number, batch in enumerate(DataLoader(Samples(), batch_size=None)):
        if PLANT == "allocator" and number > UNRECORDED:
            batch.new_empty(WIDTH)  # planted: allocator
        loss = (model(batch) - batch).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if PLANT == "item":
            total += loss.item()  # planted: item
        recorder.step()
    return total


def main() -> None:
    """Train, and write the recording."""
    torch.set_num_threads(1)
    pyprof2.init()
    # The first op of a step comes after the batch: what is planted comes between ops.
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), *(Layer() for _ in range(LAYERS)))
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        record_shapes=True,
        with_stack=PLANT in ("sleep", "python"),
        on_trace_ready=lambda recorder: recorder.export_chrome_trace(TRACE),
    ) as recorder:
        train(recorder, model)


if __name__ == "__main__":
    main()
