"""Train a convolutional network with Lightning, and record some of its steps.

Usage: python lightning_trainer.py
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from typing import Any

import lightning
import torch
from outcome import report
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from pyprof2.integrations.lightning import RecordCallback


class Classifier(lightning.LightningModule):
    """A network, its loss, and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16), nn.ReLU()
        )
        self.head = nn.Linear(16, 10)
        self.losses: list[float] = []

    def training_step(self, batch: Any, _index: int) -> torch.Tensor:
        """Return the loss of a batch."""
        pictures, classes = batch
        scores = self.head(self.features(pictures).mean((2, 3)))
        loss = functional.cross_entropy(scores, classes)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, _index: int) -> None:
        """Score a batch that is not trained on."""
        pictures, classes = batch
        scores = self.head(self.features(pictures).mean((2, 3)))
        self.log("validation loss", functional.cross_entropy(scores, classes))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return what trains."""
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def main() -> None:
    """Train two epochs of five steps, with a validation after each."""
    lightning.seed_everything(0)
    model = Classifier()
    data = TensorDataset(torch.randn(40, 3, 32, 32), torch.randint(0, 10, (40,)))
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[RecordCallback(steps=(3, 6))],
    )  # fmt: skip
    trainer.fit(model, DataLoader(data, batch_size=8), DataLoader(data, batch_size=8))
    report(model, model.losses)


if __name__ == "__main__":
    main()
