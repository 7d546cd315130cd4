"""An entry point: one block of a GPT on the CPU, 256 wide, texts of 64 words, Adam."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, LENGTH, HEADS = 256, 64, 8


class Block(nn.Module):
    """Attention and a perceptron, around both of which the input is carried over."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Return the loss; `x` is batch, time, width."""
        batch = x.shape[0]
        heads = self.qkv(self.norm_1(x)).view(batch, LENGTH, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, LENGTH, WIDTH))
        x = x + self.down(functional.gelu(self.up(self.norm_2(x))))
        return x.square().mean()


def skyline_model_provider() -> nn.Module:
    """Return the model."""
    torch.manual_seed(0)
    return Block()


def skyline_input_provider(batch_size: int = 8) -> tuple[Tensor]:
    """Return a batch."""
    return (torch.randn(batch_size, LENGTH, WIDTH),)


def skyline_iteration_provider(model: nn.Module) -> Callable[[Tensor], None]:
    """Return what runs one iteration."""
    optimizer = torch.optim.Adam(model.parameters())

    def iteration(x: Tensor) -> None:
        optimizer.zero_grad()
        model(x).backward()
        optimizer.step()

    return iteration
