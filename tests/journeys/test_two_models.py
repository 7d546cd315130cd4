"""Teacher and student in one script: which of the two costs what?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

STEPS, BATCH, WIDE, NARROW = 3, 16, 64, 8
DISTIL = f"""
import torch
from torch import nn
teacher = nn.Sequential(nn.Linear({WIDE}, {WIDE}), nn.ReLU(), nn.Linear({WIDE}, {WIDE}))
student = nn.Sequential(nn.Linear({NARROW}, {NARROW}), nn.ReLU(), nn.Linear({NARROW}, {NARROW}))
sgd = torch.optim.SGD(student.parameters(), 0.1)
for _ in range({STEPS}):
    with torch.no_grad():
        teacher(torch.randn({BATCH}, {WIDE}))
    sgd.zero_grad()
    student(torch.randn({BATCH}, {NARROW})).sum().backward()
    sgd.step()
"""


@pytest.mark.slow
def test_two_models_each_have_the_flops_of_their_own_layers(walk: Walk) -> None:
    walk.write("distil.py", DISTIL)

    walk.run("pyprof2", "capture", "--kineto", "distil.py")
    rows = walk.rows(
        "prof", "distil.json.gz", "--by", "layer", "--op", "mm", "--direction", "forward"
    )

    def of(width: int) -> int:
        return STEPS * 2 * BATCH * width * width  # a product

    products = {row["layer"]: int(row["flops"]) for row in rows}
    assert products == {
        "teacher.0": of(WIDE), "teacher.2": of(WIDE),
        "student.0": of(NARROW), "student.2": of(NARROW),
    }  # fmt: skip
