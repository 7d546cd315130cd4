"""Train a vision transformer of timm, and record some of its steps.

Usage: python timm_loop.py

The wheel of torchvision on PyPI is made for CUDA. Beside torch for CPUs its operators do not load,
and its import asks for two of them, which nothing here calls: they are declared first.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import importlib.util

import torch
from outcome import report
from torch.utils.data import DataLoader, TensorDataset

import pyprof2

if torch.version.cuda is None and importlib.util.find_spec("torchvision"):
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor a, Tensor b, float c) -> Tensor")

import timm
import timm.loss
import timm.optim


def main() -> None:
    """Train for ten steps."""
    torch.manual_seed(0)
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=10
    )
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3)
    smoothed = timm.loss.LabelSmoothingCrossEntropy()
    data = TensorDataset(torch.randn(80, 3, 32, 32), torch.randint(0, 10, (80,)))
    losses = []
    with pyprof2.record(steps=(3, 6)):
        for x, y in DataLoader(data, batch_size=8):
            optimizer.zero_grad()
            loss = smoothed(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    report(model, losses)


if __name__ == "__main__":
    main()
