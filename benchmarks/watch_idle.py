"""What it costs a job that it can be recorded, while nobody records: CPU time of a step, in turns.

    python -m benchmarks.watch_idle

Each round runs the same training, of some 20 ms a step, three times, in processes of their own and
in turning order: plain, with the variables of `pyprof2 watch --env` and nobody to answer, and with
a daemon that answers. The CPU time is that of all threads of the process. What is added to a step
is torch's own counting of optimizer steps, the same for a step of any length.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from typing import TYPE_CHECKING

from pyprof2.integrations.environment import ON_DEMAND
from pyprof2.watch.daemon import Daemon
from pyprof2.watch.datagrams import SOCKET_DIR, Endpoint
from tests.watch.jobs_of_tests import socket_folder

if TYPE_CHECKING:
    from pathlib import Path

_TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
steps = int(sys.argv[1])
def train(count):
    for _ in range(count):
        optimizer.zero_grad()
        net(torch.ones(256, 1024)).sum().backward()
        optimizer.step()
train(20)
before = time.process_time()
train(steps)
print((time.process_time() - before) / steps)
"""


def main() -> None:
    """Print the CPU time per step of each kind, and its ratio to that of the plain job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()
    kinds = ("plain", "nobody answers", "answered")
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(args.rounds):
        for kind in (*kinds[number % 3 :], *kinds[: number % 3]):
            with socket_folder() as folder:
                found[kind].append(_seconds(kind, folder, args.steps))
    for kind in kinds:
        ratios = [own / plain for own, plain in zip(found[kind], found["plain"], strict=True)]
        print(
            f"{kind:15} {1e6 * statistics.median(found[kind]):8.1f} us of CPU a step, "
            f"x{statistics.median(ratios):.4f} ({min(ratios):.4f} to {max(ratios):.4f})"
        )


def _seconds(kind: str, folder: Path, steps: int) -> float:
    """Return the CPU time of a step, in s."""
    ready = {} if kind == "plain" else ON_DEMAND | {SOCKET_DIR: str(folder)}
    is_over = threading.Event()
    daemon = Daemon(Endpoint(folder)) if kind == "answered" else None
    if daemon is not None:
        threading.Thread(target=daemon.wait, args=(is_over.is_set,)).start()
    done = subprocess.run(
        [sys.executable, "-c", _TRAINING, str(steps)],
        env=os.environ | ready, check=True, capture_output=True, text=True,
    )  # fmt: skip
    is_over.set()
    if daemon is not None:
        daemon.close()
    return float(done.stdout)


if __name__ == "__main__":
    main()
