"""What `pyprof2.record` costs outside of the steps that it records.

Usage: python -m benchmarks.window_cost [--rounds N] [--steps N]

The training is a perceptron, whose step takes some tenths of a millisecond: what is done once per
step weighs more than in any real training. It runs without a recording and with one that waits for
a step that is far away, in turns, so that what else the machine does hits both alike; then after
one that is over. The time is that of the thread's own work; a number is the median over all steps.

The claim: under 1 % more, before and after. Exit code 1 if it does not hold.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch
from torch import nn
from torch.nn import functional

import pyprof2

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT: Final = 0.01
FAR: Final = 1 << 40


def training_step() -> Callable[[], None]:
    """Return a function that trains for one step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def times(step: Callable[[], None], steps: int) -> list[int]:
    """Return the time of each of some steps, in ns of the thread's own work."""
    found = []
    for _ in range(steps):
        began = time.thread_time_ns()
        step()
        found.append(time.thread_time_ns() - began)
    return found


def main() -> int:
    """Measure in turns, and print what is added."""
    parser = argparse.ArgumentParser(description="Measure what pyprof2.record costs outside.")
    parser.add_argument("--rounds", type=int, default=100, help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=25, help="per round; default: %(default)s")
    args = parser.parse_args()
    torch.set_num_threads(1)
    step = training_step()
    times(step, 300)
    before = _turns(step, args.rounds, args.steps)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        with pyprof2.record(steps=1, out=Path(folder) / "some"):
            times(step, 5)
        after = statistics.median(times(step, args.rounds * args.steps))
    base = before[False]
    print(f"a step takes {base / 1e3:.0f} us without")
    added = {"before": before[True] / base - 1, "after": after / base - 1}
    for name, share in added.items():
        print(f"{name:<6} {share:+.2%}, {share * base / 1e3:+.1f} us")
    return int(max(added.values()) >= LIMIT)


def _turns(step: Callable[[], None], rounds: int, steps: int) -> dict[bool, float]:
    """Return the median time of a step while a recording waits, and without one, in turns."""
    found: dict[bool, list[int]] = {False: [], True: []}
    with contextlib.redirect_stderr(io.StringIO()):
        for number in range(rounds):
            for waits in (False, True) if number % 2 else (True, False):
                waiting = pyprof2.record(steps=FAR, out="never")
                with waiting if waits else contextlib.nullcontext():
                    found[waits] += times(step, steps)
    return {waits: statistics.median(each) for waits, each in found.items()}


if __name__ == "__main__":
    sys.exit(main())
