"""My job is slow today, and I do not want to stop it: which rank is it?"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.journeys.conftest import line_of
from tests.watch.jobs_of_tests import socket_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.journeys.conftest import Walk

TRAINING: Final = """
import time, torch, torch.distributed as dist, pyprof2
from torch.nn.parallel import DistributedDataParallel
pyprof2.init()
torch.set_num_threads(1)
dist.init_process_group("gloo")
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
net = DistributedDataParallel(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    if dist.get_rank() == 1:
        time.sleep(0.05)
    optimizer.zero_grad()
    net(torch.ones(8, 64)).sum().backward()
    optimizer.step()
"""


@contextlib.contextmanager
def _job(folder: Path, ranks: int, sockets: Path) -> Iterator[None]:
    (folder / "train.py").write_text(TRAINING)
    ready = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(sockets)}
    words = ["-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"]
    child = subprocess.Popen(
        [sys.executable, *words, "--rdzv-endpoint=localhost:0", "train.py"],
        cwd=folder, env=os.environ | ready, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        child.terminate()
        child.wait()


@pytest.mark.minutes
def test_slow_rank_of_a_job_that_runs_is_named(walk: Walk) -> None:
    with socket_folder() as sockets, _job(walk.folder, 2, sockets):
        while len(list(sockets.glob("dynoconfigclient*"))) < 3:  # two ranks, and what starts them
            pass
        recorded = walk.run("pyprof2", "watch", "-o", "today", KINETO_IPC_SOCKET_DIR=str(sockets))
        assert list(sockets.glob("dynolog")) == []
    said = walk.text("ranks", "today.pyprof2")

    assert "2 recordings, which begin within" in recorded.stderr
    assert "ranks 0-1" in recorded.stdout.splitlines()[0]
    assert sorted(path.name for path in (walk.folder / "today").iterdir()) == [
        "rank0.json", "rank1.json",
    ]  # fmt: skip
    assert said.startswith("Rank 1 is the slower one")
    # What init() marks is in a recording on demand too: lines of the job's own code.
    place = f"train.py:{line_of(TRAINING, 'net(torch.ones')}"
    lines = walk.rows("prof", "today.pyprof2", "--by", "source")
    (own,) = (row for row in lines if row["source"].endswith(f"/{place}"))
    assert int(own["op_calls"]) > 0
    assert "problem " not in walk.text("check", "today.pyprof2")
