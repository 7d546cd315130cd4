"""Two ranks of mpirun, each under capture with the same command line, then both as one job."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.journeys.conftest import PYPROF2

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

pytest.importorskip("torch")

TRAIN = """
import os
import torch
rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
for _ in range(3 + rank):
    torch.ones(4, 4) @ torch.ones(4, 4)
"""
PRODUCT_FLOPS = 2 * 4 * 4 * 4


@pytest.mark.slow
def test_two_ranks_of_mpirun_make_one_store(walk: Walk) -> None:
    walk.write("train.py", TRAIN)
    command = [str(PYPROF2), "capture", "--kineto", "-o", "out/mq.json.gz", "train.py"]

    ranks = [
        subprocess.Popen(
            command, cwd=walk.folder, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
            env=os.environ | {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"},
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [rank.communicate()[1].decode() for rank in ranks]
    store = walk.text("parse", "out", "-o", "job.pyprof2").strip()
    rows = walk.rows("prof", store, "--by", "rank", "--op", "mm")

    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert {int(row["rank"]): int(row["flops"]) for row in rows} == {
        0: 3 * PRODUCT_FLOPS, 1: 4 * PRODUCT_FLOPS,
    }  # fmt: skip
