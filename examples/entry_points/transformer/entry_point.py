"""An entry point of DeepView's: a transformer's encoder that looks for a GPU itself."""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS, WIDTH, LENGTH = 128, 32, 16
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Tagger(nn.Module):
    """Gives every word of a text a tag, and returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, nhead=4, dim_feedforward=64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text: Tensor, tags: Tensor) -> Tensor:
        """Return the loss; both are batch, time."""
        scores = self.head(self.encoder(self.words(text)))
        return nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten())


def deepview_model_provider() -> nn.Module:
    """Return the model."""
    return Tagger().to(DEVICE)


def deepview_input_provider(batch_size: int = 8) -> list[Tensor]:
    """Return a text and its tags."""
    return [torch.randint(0, WORDS, (batch_size, LENGTH), device=DEVICE) for _ in range(2)]


def deepview_iteration_provider(model: nn.Module) -> Callable[..., None]:
    """Return what runs one iteration."""
    optimizer = torch.optim.AdamW(model.parameters())

    def iteration(text: Tensor, tags: Tensor) -> None:
        optimizer.zero_grad(set_to_none=True)
        model(text, tags).backward()
        optimizer.step()

    return iteration
