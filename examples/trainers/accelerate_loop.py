"""Train a tagger of words in a loop of Accelerate, and record some of its steps.

Usage: python accelerate_loop.py
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import torch
from accelerate import Accelerator
from outcome import report
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from pyprof2.integrations.accelerate import RecordTracker

STEPS = 10
BATCHES_PER_STEP = 2


class Tagger(nn.Module):
    """Gives each word of a sentence a class."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.hidden = nn.Linear(32, 64)
        self.head = nn.Linear(64, 8)

    def forward(self, sentence: torch.Tensor) -> torch.Tensor:
        """Return scores: batch, words, classes."""
        scores: torch.Tensor = self.head(functional.relu(self.hidden(self.words(sentence))))
        return scores


def main() -> None:
    """Train with gradient accumulation."""
    torch.manual_seed(0)
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=BATCHES_PER_STEP,
        log_with=RecordTracker(steps=(3, 6)),
    )
    model = Tagger()
    rows = 4 * BATCHES_PER_STEP * STEPS
    data = TensorDataset(torch.randint(0, 100, (rows, 12)), torch.randint(0, 8, (rows, 12)))
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters()), DataLoader(data, batch_size=4)
    )
    losses = []
    for sentence, classes in loader:
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(sentence).flatten(0, 1), classes.flatten())
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    accelerator.end_training()
    report(model, losses, BATCHES_PER_STEP)


if __name__ == "__main__":
    main()
