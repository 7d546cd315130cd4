"""An entry point of Skyline's: a residual network on a GPU, whose loss is in the iteration."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found, attr-defined"

from __future__ import annotations

import resnet
import torch
from torch import nn


def skyline_model_provider():
    """Return the model."""
    return resnet.ResNet().cuda()


def skyline_input_provider(batch_size=8):
    """Return the inputs of a batch."""
    return (
        torch.randn((batch_size, 3, 32, 32)).cuda(),
        torch.randint(low=0, high=10, size=(batch_size,)).cuda(),
    )


def skyline_iteration_provider(model):
    """Return what runs one iteration."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    def iteration(*inputs):
        pictures, labels = inputs
        optimizer.zero_grad()
        loss = loss_of(model(pictures), labels)
        loss.backward()
        optimizer.step()

    return iteration
