"""What it costs a job that it can be recorded, while nobody records: CPU time of a step, in turns.

    python -m benchmarks.watch_idle

Three processes run the same training, of some 10 ms a step, a few steps each in turn, and in each
round in another order: plain, with the variables of `pyprof2 watch --env` and nobody to answer, and
with a daemon that answers. The CPU time is that of all threads of a process, while it waits for its
turn as well, in which it goes on asking. What is said is the median of each round's ratio to the
plain one, and in which interval it is with 95 % (by drawing the rounds anew). What is added to a
step is torch's own counting of optimizer steps, the same for a step of any length.

The claim: no job is slower by more than 1 %. Exit code 1 if the interval is not below that.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import threading

import numpy as np

from pyprof2.integrations.environment import on_demand
from pyprof2.own_files import SOCKET_DIR
from pyprof2.watch.daemon import Daemon
from pyprof2.watch.datagrams import Endpoint
from tests.watch.jobs_of_tests import socket_folder

_TRAINING = """
import sys, time, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for line in sys.stdin:
    for _ in range(int(line)):
        optimizer.zero_grad()
        net(torch.ones(128, 1024)).sum().backward()
        optimizer.step()
    print(time.process_time(), flush=True)
"""
_KINDS = ("plain", "nobody answers", "answered")
_AT_MOST = 1.01


def main() -> None:
    """Print the CPU time per step of each kind, and its ratio to that of the plain job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--steps", type=int, default=5, help="of each process in a round")
    args = parser.parse_args()
    found = _seconds(args.rounds, args.steps)
    chance = np.random.default_rng(0)
    drawn = chance.integers(0, args.rounds, (2000, args.rounds))
    highest = 0.0
    for number, kind in enumerate(_KINDS):
        ratios = found[:, number] / found[:, 0]
        low, high = np.quantile(np.median(ratios[drawn], axis=1), (0.025, 0.975))
        highest = max(highest, float(high))
        print(
            f"{kind:15} {1e6 * np.median(found[:, number]):8.1f} us of CPU a step, "
            f"x{np.median(ratios):.4f} ({low:.4f} to {high:.4f})"
        )
    sys.exit(highest > _AT_MOST)


def _seconds(rounds: int, steps: int) -> np.ndarray:
    """Return the CPU time of a step, in s, by round and kind."""
    with contextlib.ExitStack() as stack:
        jobs = []
        for kind in _KINDS:
            folder = stack.enter_context(socket_folder())
            if kind == "answered":
                daemon, is_over = Daemon(Endpoint(folder)), threading.Event()
                answers = threading.Thread(target=daemon.wait, args=(is_over.is_set,))
                answers.start()
                for end in (daemon.close, answers.join, is_over.set):
                    stack.callback(end)
            ready = {} if kind == "plain" else on_demand() | {SOCKET_DIR: str(folder)}
            job = subprocess.Popen(
                [sys.executable, "-c", _TRAINING], env=os.environ | ready, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.enter_context(job)
            if job.stdin is not None and job.stdout is not None:
                jobs.append((job.stdin, job.stdout))
        clocks = np.zeros((rounds + 2, len(jobs)))
        for number in range(rounds + 2):
            for at in np.roll(range(len(jobs)), number):
                stdin, stdout = jobs[at]
                stdin.write(f"{steps}\n")
                stdin.flush()
                clocks[number, at] = float(stdout.readline())
        # The first round has the start in it, the second what is slow once.
        return np.diff(clocks, axis=0)[1:] / steps


if __name__ == "__main__":
    main()
