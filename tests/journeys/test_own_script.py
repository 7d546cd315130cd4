"""Why is my training slow? A script of one's own, whose loader sleeps, on a laptop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import line_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

SLEEP_MS, BATCHES = 40, 8
TRAIN = f"""
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return {BATCHES}
    def __getitem__(self, at):
        time.sleep({SLEEP_MS / 1000})  # reads a file
        return torch.randn(8)

net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
sgd = torch.optim.SGD(net.parameters(), 0.1)
for batch in DataLoader(Samples(), batch_size=1):
    sgd.zero_grad()
    net(batch).sum().backward()
    sgd.step()
"""


def test_own_script_is_slow_because_it_loads(walk: Walk) -> None:
    script = walk.write("train.py", TRAIN)

    walk.run("pyprof2", "capture", "--kineto", "train.py")
    causes = walk.rows("idle", "train.json.gz", "--by", "cause")
    first, *_ = walk.rows("advise", "train.json.gz")

    slept = SLEEP_MS * 1e6 * BATCHES
    assert causes[0]["cause"] == "data_loading"
    assert int(causes[0]["time_ns"]) >= 0.8 * slept  # the first batch may precede the first step
    assert first["rule"] == "data-loading"
    assert int(first["at_stake_hi_ns"]) >= 0.8 * slept
    assert first["source"] == f"{script}:{line_of(TRAIN, 'torch.randn')}"
