"""What notes of compiled graphs cost: CPU seconds to compile a training, and of a step after it.

Usage: python -m benchmarks.compile_notes_cost [--starts N] [--compiles N] [--rounds N]

A small transformer is compiled and trained on a CPU with one thread, each way in a process of its
own. The processes take turns, in each round in another order: first to compile anew, then in steps,
a few at a time. They are started anew several times, as where a process has its code and data makes
some percent of a step. What is said is the median over the starts of the median ratio of a start's
rounds, with the least and the most. The caches of kernels stay on in all ways, and are warm: no
compiler of C++ runs.

- `unseen`: as `off`, and kernels of the CPU make no ranges, as torch has it. Without them no
  profiler sees these kernels, so they are on wherever notes are taken; their cost is printed too.
- `off`: without notes, torch's caches of graphs off, as they are where notes are taken.
- `notes`: with notes, the same caches off.
- `cached`: without notes, all caches on.
- `kept`: with notes and `keep_cache`, all caches on.

The claims: `notes` takes at most 3 % more than `off`, and `kept` than `cached`, to compile and for
a step. Exit code 1 if they do not hold.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np

WAYS: Final = {"unseen": (False, False), "off": (False, False), "notes": (True, False),
               "cached": (False, True), "kept": (True, True)}  # fmt: skip
"""Whether notes are taken, and whether graphs may come from caches."""
_MOST: Final = 1.03
_STEPS: Final = 10


def work(way: str) -> None:
    """For each line of stdin compile anew or do some steps, and print the CPU seconds it took."""
    import torch
    from torch import _dynamo

    from pyprof2.nvtx.compile_notes import notes
    from tests.compiled_models import TRAININGS
    from tests.compiled_oracle import run_steps

    takes_notes, keeps = WAYS[way]
    torch.set_num_threads(1)
    training = TRAININGS["transformer"]
    model = training.make()
    with ExitStack() as undo:
        if takes_notes:
            notes.begin(undo, keep_cache=keeps)
        call = model
        for line in sys.stdin:
            begin = time.process_time()
            if line == "compile\n":
                _dynamo.reset()
                call = training.compile_(model)
                run_steps(training, call, 1)
            else:
                run_steps(training, call, _STEPS)
            print(time.process_time() - begin, flush=True)


def in_turns(folder: str, compiles: int, rounds: int) -> dict[str, np.ndarray]:
    """Return what each way took, in s: of what is done, rounds × ways."""
    with ExitStack() as stack:
        pipes = []
        for way, (_, keeps) in WAYS.items():
            cache = str(int(keeps))
            environment = os.environ | {
                "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FX_GRAPH_CACHE": cache,
                "TORCHINDUCTOR_AUTOGRAD_CACHE": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1",
                "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE": str(int(way != "unseen")),
            }  # fmt: skip
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.compile_notes_cost", "--way", way], text=True,
                env=environment, cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            stack.enter_context(process)
            if process.stdin is not None and process.stdout is not None:
                pipes.append((process.stdin, process.stdout))
        found = {}
        for what, count in (("compile", compiles), ("step", rounds)):
            seconds = np.zeros((count + 1, len(pipes)))
            for number in range(count + 1):
                for at in np.random.default_rng(number).permutation(len(pipes)):
                    stdin, stdout = pipes[at]
                    stdin.write(f"{what}\n")
                    stdin.flush()
                    seconds[number, at] = float(stdout.readline())
            # The first round has in it what is slow once.
            found[what] = seconds[1:] / (_STEPS if what == "step" else 1)
        return found


def main() -> int:
    """Measure, print, and say whether the claims hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--starts", type=int, default=7)
    parser.add_argument("--compiles", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=100, help=f"of {_STEPS} steps each")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        work(args.way)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        starts = [in_turns(folder, args.compiles, args.rounds) for _ in range(args.starts)]
    ways = [*WAYS]
    holds = True
    for what in ("compile", "step"):
        middle = np.median([np.median(start[what], axis=0) for start in starts], axis=0)
        for way, seconds in zip(ways, middle, strict=True):
            print(f"{what:8}{way:8}{1e3 * seconds:10.3f} ms of CPU")
        for way, beside in (("off", "unseen"), ("notes", "off"), ("kept", "cached")):
            pair = ways.index(way), ways.index(beside)
            ratios = [np.median(s[what][:, pair[0]] / s[what][:, pair[1]]) for s in starts]
            ratio = np.median(ratios)
            print(f"{what:8}{way} / {beside} x{ratio:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
            holds &= way == "off" or bool(ratio <= _MOST)
    print("the claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
