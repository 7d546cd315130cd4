"""An entry point of Skyline's: a translator, whose inputs have time first and the batch second."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found"

from __future__ import annotations

import argparse

import torch
from seq2seq.model import WORDS, Gnmt

parser = argparse.ArgumentParser()
parser.add_argument("--length", type=int, default=12)
options = parser.parse_args()

device = torch.device("cuda:0")


def skyline_model_provider():
    """Return the model, which returns its loss."""
    model = Gnmt().to(device)
    model.train()
    return model


def skyline_input_provider(
    batch_size: int = 4,
):
    """Return a text, its lengths and its translation."""
    shape = (options.length, batch_size)
    source = torch.randint(0, WORDS, shape, dtype=torch.int64, device=device)
    lengths = torch.full((batch_size,), options.length, device="cuda")
    target = torch.randint(0, WORDS, shape, dtype=torch.int64, device=device)
    return source, lengths, target


class Schedule:
    """An optimizer with a rate that grows; it clears gradients itself."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.steps = 0

    def step_and_update_lr(self) -> None:
        """Make a step."""
        self.steps += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, self.steps / 100)
        self.optimizer.step()
        self.optimizer.zero_grad()


def skyline_iteration_provider(model):
    """Return what runs one iteration."""
    optimizer = Schedule(torch.optim.Adam(model.parameters()))

    def iteration(*inputs):
        loss = model(*inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step_and_update_lr()

    return iteration
