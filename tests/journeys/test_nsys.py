"""Nsight Systems records the script; the profile knows shapes, layers and lines."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import line_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

TRAIN = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU())
for _ in range(2):
    net(torch.ones(8, 32)).sum().backward()  # both passes
"""


@pytest.mark.nsys
@pytest.mark.skipif(shutil.which("nsys") is None, reason="nsys is not installed")
def test_nsys_then_prof_gives_layer_line_and_flops_of_both_passes(walk: Walk) -> None:
    script = walk.write("train.py", TRAIN)

    walk.run("pyprof2", "capture", "--nsys", "train.py")
    rows = walk.rows(
        "prof", "train.sqlite", "--by", "layer,source,direction", "--category", "matmul"
    )

    found = {row["direction"]: (row["layer"], row["source"], int(row["flops"])) for row in rows}
    place = f"{script}:{line_of(TRAIN, 'both passes')}"
    assert found == {
        "forward": ("0", place, 2 * 2 * 8 * 64 * 32),  # a product, twice
        "backward": ("0", place, 2 * 2 * 64 * 8 * 32),  # the gradient of the weight, twice
    }
