"""A script that works in a folder of its own for each run, as Hydra makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import line_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

TRAIN = """
import os
import torch

@torch.jit.script
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * 2

def main():
    os.makedirs("outputs/run", exist_ok=True)
    os.chdir("outputs/run")
    net = torch.nn.Linear(32, 32)
    torch.jit.script(net)
    for _ in range(3):
        scaled(net(torch.ones(16, 32)))  # the line that costs
    open("result.txt", "w").write(os.path.abspath(__file__))

main()
"""


@pytest.mark.slow
def test_a_script_that_changes_its_directory_is_recorded_where_it_began(walk: Walk) -> None:
    script = walk.write("train.py", TRAIN)

    walk.run("pyprof2", "capture", "--kineto", "train.py")
    rows = walk.rows("prof", "train.json.gz", "--by", "source", "--op", "addmm")

    assert (walk.folder / "outputs/run/result.txt").read_text() == str(script)
    assert [row["source"] for row in rows] == [f"{script}:{line_of(TRAIN, 'that costs')}"]
    assert int(rows[0]["flops"]) == 3 * 2 * 16 * 32 * 32
