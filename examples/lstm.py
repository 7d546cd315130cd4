"""Train a recurrent network.

Usage: python lstm.py [--steps N]

An ordinary training script, which knows nothing of profiling. Recorded with
`pyprof2 capture examples/lstm.py`, or with `pyprof2.init()` in it under nsys.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Tagger(nn.Module):
    """Gives every word of a text a tag."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.lstm = nn.LSTM(32, 64, num_layers=2, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the tags; `tokens` is batch, time."""
        states, _ = self.lstm(self.words(tokens))
        scores: Tensor = self.head(states)
        return scores


def train(steps: int) -> None:
    """Train for some steps on random text."""
    torch.manual_seed(0)
    model = Tagger().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        tokens = torch.randint(0, 100, (8, 20), device=DEVICE)
        tags = torch.randint(0, 5, (8 * 20,), device=DEVICE)
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(tokens).flatten(0, 1), tags)
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
