"""Train a small transformer with scaled dot product attention.

Usage: python gpt.py [--steps N]

An ordinary training script, which knows nothing of profiling. Recorded with
`pyprof2 capture examples/gpt.py`, or with `pyprof2.init()` in it under nsys.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

WORDS, WIDTH, HEADS, CONTEXT = 256, 64, 4, 32


class Block(nn.Module):
    """Attention and a perceptron, around both of which the input is carried over."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the activations; `x` is batch, time, width."""
        batch, time, _ = x.shape
        heads = self.qkv(self.norm_1(x)).view(batch, time, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, time, WIDTH))
        carried: Tensor = x + self.mlp(self.norm_2(x))
        return carried


class Gpt(nn.Module):
    """A model of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the scores of the next words; `tokens` is batch, time."""
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        scores: Tensor = self.head(self.norm(x))
        return scores


def train(steps: int) -> None:
    """Train for some steps on random text."""
    torch.manual_seed(0)
    model = Gpt().to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(steps):
        text = torch.randint(0, WORDS, (8, CONTEXT + 1), device=DEVICE)
        optimizer.zero_grad()
        scores = model(text[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), text[:, 1:].flatten())
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
