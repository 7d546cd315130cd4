"""Did half precision help? Two runs of one script, on the CPU, and what differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

TRAIN = """
import sys
import torch
from torch import nn

half = sys.argv[1] == "half"
net = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
sgd = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        loss = net(torch.randn(64, 256)).square().mean()
    sgd.zero_grad()
    loss.backward()
    sgd.step()
"""


@pytest.mark.slow
def test_two_runs_differ_by_precision_and_not_by_size(walk: Walk) -> None:
    walk.write("train.py", TRAIN)
    for name in ("full", "half"):
        walk.run("pyprof2", "capture", "--kineto", "-o", f"{name}.json.gz", "train.py", name)

    said = walk.text("compare", "full.json.gz", "half.json.gz")

    first, *_ = said.splitlines()
    assert "step" in first
    assert "precision" in said
    assert "batch or model size" not in said
