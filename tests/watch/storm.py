"""Jobs and the daemon are killed at random while they record: each file is complete, or refused.

    python -m tests.watch.storm --seeds 1 2 3 --jobs 20
    python -m tests.watch.storm --jobs 5 --python OTHER/bin/python

Each file has ops. Every second job has `pyprof2.init()`, and its ops layers. Of four recordings of
all jobs the second one's daemon is killed, and the next one has the same folder; in each other
recording three jobs are killed.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyprof2
from tests.watch.jobs_of_tests import socket_folder

if TYPE_CHECKING:
    from collections.abc import Callable

JOB: Final = """
import sys, time
if sys.argv[1] == "marked":
    import pyprof2
    pyprof2.init(energy=False, cpu_peaks=False)
import torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    net(torch.ones(8, 16)).sum().backward()
    optimizer.step()
    open(sys.argv[2], "w").write("x")
    time.sleep(0.2)
"""
ROUNDS: Final = 4
DAEMON_DIES: Final = 1
VICTIMS: Final = 3
HANGS_S: Final = 300.0
_REMOTE: Final = "_remote_module_non_scriptable.py"


def storm(seed: int, count: int, python: str = sys.executable) -> list[str]:
    """Record some jobs, kill some of them and the daemon, and return a line of each recording.

    Raises:
        AssertionError: something is neither complete nor refused, hangs or is left.
    """
    chance = random.Random(seed)  # noqa: S311 -- the same each time
    said = []
    with contextlib.ExitStack() as stack:
        sockets = stack.enter_context(socket_folder())
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="storm")))
        temporary = work / "tmp"
        temporary.mkdir()
        ready = {
            "KINETO_USE_DAEMON": "1", "KINETO_LOG_LEVEL": "99", "TMPDIR": str(temporary),
            "KINETO_IPC_SOCKET_DIR": str(sockets), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        jobs = {}
        for number in range(count):
            beat = work / f"beat{number}"
            words = [python, "-c", JOB, "marked" if number % 2 else "plain", str(beat)]
            job = subprocess.Popen(words, env=os.environ | ready, stderr=subprocess.DEVNULL)
            stack.callback(job.wait)
            stack.callback(job.kill)
            jobs[job] = beat
        _wait_until(lambda: all(beat.exists() for beat in jobs.values()))
        for turn in range(ROUNDS):
            living = [job for job in jobs if job.poll() is None]
            output = work / f"recording{turn - (turn == DAEMON_DIES + 1)}"
            dies = turn == DAEMON_DIES
            marked = {job.pid for number, job in enumerate(jobs) if number % 2}
            said.append(_round(chance, living, marked, output, ready, dies=dies))
            sys.stdout.write(f"seed {seed}: {said[-1]}\n")
            sys.stdout.flush()
            if not dies:
                assert list(output.parent.glob("*/.watch-*")) == [], "left in the folder"
        for job, beat in jobs.items():
            if job.poll() is None:  # those that live go on
                beat.unlink(missing_ok=True)
                _wait_until(beat.exists)
        left = {path.name for path in temporary.iterdir() if not _is_of_torch(path)}
        assert left == set(), f"left in the temporary folder: {left}"
        assert not (sockets / "dynolog").exists(), "left in the folder of sockets"
    return said


def _is_of_torch(path: Path) -> bool:
    """Return whether torch itself left a folder: that of its compiler, or of remote modules."""
    inside = {each.name for each in path.iterdir()} if path.is_dir() else {"no folder"}
    is_empty = path.name.startswith("tmp") and inside <= {_REMOTE, "__pycache__"}
    return is_empty or path.name == f"torchinductor_{getpass.getuser()}"


def _round(
    chance: random.Random,
    living: list[subprocess.Popen[bytes]],
    marked: set[int],
    output: Path,
    ready: dict[str, str],
    *,
    dies: bool,
) -> str:
    """Record once, kill what is to die, and look at all files and at what is said."""
    words = ["-m", "pyprof2", "watch", "--no-parse", "--patience", "20s", "--duration", "1s"]
    began = time.monotonic()
    daemon = subprocess.Popen(
        [sys.executable, *words, "-o", str(output)],
        env=os.environ | ready, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    dying = [] if dies else chance.sample(living, min(VICTIMS, len(living) - 1))
    victims = {job: chance.uniform(3, 14) for job in dying}
    end = chance.uniform(3, 14) if dies else HANGS_S
    while daemon.poll() is None:
        seconds = time.monotonic() - began
        for job in [job for job, at in victims.items() if at < seconds]:
            job.kill()
        if seconds > end:
            daemon.kill()
        time.sleep(0.05)
    seconds = time.monotonic() - began
    _, error = daemon.communicate()
    files = [path for path in output.rglob("*.json") if ".watch-" not in str(path)]
    if dies:
        assert files == []
        return f"the daemon was killed after {seconds:.1f} s"
    assert seconds < HANGS_S, f"the daemon hangs: {error}"
    recorded = {int(path.stem.rpartition("-")[2]): path for path in files}
    for pid, path in recorded.items():
        layers = pyprof2.load(path).ops["layer"]
        assert len(layers), f"no op in {path}"
        assert layers.notna().any() == (pid in marked), f"layers in {path}"
    refused = {job.pid for job in living if f"process {job.pid}: " in error}
    missing = {job.pid for job in living if job not in victims} - set(recorded)
    assert missing <= refused, f"neither complete nor refused: {missing - refused}: {error}"
    assert refused.isdisjoint(recorded), error
    dead = {job.pid for job in victims}
    return (
        f"{len(living)} jobs, {len(dead)} killed: {len(recorded)} files complete, of "
        f"{len(dead.intersection(recorded))} killed ones, {len(refused & dead)} killed ones and "
        f"{len(refused - dead)} others refused by name, after {seconds:.1f} s"
    )


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + HANGS_S
    while not is_so():
        assert time.monotonic() < end, "jobs hang"
        time.sleep(0.1)


def main() -> None:
    """Run storms, and print what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    for seed in args.seeds:
        storm(seed, args.jobs, args.python)


if __name__ == "__main__":
    main()
