"""What notes of compiled graphs cost: CPU seconds to compile a training, and of a step after it.

Usage: python benchmarks/compile_notes_cost.py [--rounds N] [--steps N]

A small transformer is compiled and trained on a CPU, each way in a process of its own, with one
thread. The ways take turns in every round; a number is the median over the rounds of the seconds of
the process, with the lowest and the highest. A round before warms the caches of kernels, which stay
on in all ways: so no compiler of C++ runs.

- `off`: without notes, torch's caches of graphs off, as they are where notes are taken.
- `notes`: with notes, the same caches off.
- `cached`: without notes, all caches on.
- `kept`: with notes and `keep_cache`, all caches on.

The claims: `notes` takes at most 3 % more than `off` to compile, and `kept` than `cached`, and a
step no more than it differs by itself between rounds. Exit code 1 if they do not hold.
"""

# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

WAYS: Final = {"off": (False, False), "notes": (True, False), "cached": (False, True),
               "kept": (True, True)}  # fmt: skip
"""Whether notes are taken, and whether graphs may come from caches."""
_ROOT: Final = Path(__file__).parents[1]
_MOST: Final = 1.03


def measure(way: str, steps: int) -> dict[str, float]:
    """Return the CPU seconds of compiling, and of a step, in this process."""
    import torch
    from torch import _dynamo

    from pyprof2.nvtx.compile_notes import notes
    from tests.compiled_models import TRAININGS
    from tests.compiled_oracle import run_steps

    takes_notes, keeps = WAYS[way]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    _dynamo.reset()
    training = TRAININGS["transformer"]
    model = training.make()
    with ExitStack() as undo:
        if takes_notes:
            notes.begin(undo, keep_cache=keeps)
        begin = time.process_time()
        compiled = training.compile_(model)
        run_steps(training, compiled, 1)
        compile_s = time.process_time() - begin
        run_steps(training, compiled, 20)
        each = []
        for _ in range(steps):
            begin = time.process_time()
            run_steps(training, compiled, 1)
            each.append(time.process_time() - begin)
    return {"compile": compile_s, "step": statistics.median(each)}


def in_turns(rounds: int, steps: int) -> dict[str, list[dict[str, float]]]:
    """Return what each way took in each round."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(-1, rounds):
            # A way is not always behind the same other one.
            ways = [*WAYS] if number % 2 else [*reversed(WAYS)]
            for way in ways:
                cache = "1" if WAYS[way][1] else "0"
                environment = os.environ | {
                    "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_FX_GRAPH_CACHE": cache,
                    "TORCHINDUCTOR_AUTOGRAD_CACHE": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1",
                    "PYTHONPATH": str(_ROOT),
                }  # fmt: skip
                command = [sys.executable, __file__, "--way", way, "--steps", str(steps)]
                done = subprocess.run(
                    command, check=True, capture_output=True, text=True, env=environment
                )
                if number >= 0:
                    found[way].append(json.loads(done.stdout.strip().splitlines()[-1]))
    return found


def main() -> int:
    """Measure, print, and say whether the claims hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        print(json.dumps(measure(args.way, args.steps)))
        return 0
    found = in_turns(args.rounds, args.steps)
    print(f"{'way':8}{'compile s':>12}{'low':>8}{'high':>8}{'step ms':>12}{'low':>8}{'high':>8}")
    middle: dict[str, dict[str, float]] = {}
    for way, each in found.items():
        words = f"{way:8}"
        middle[way] = {}
        for name, scale in (("compile", 1.0), ("step", 1e3)):
            values = sorted(one[name] * scale for one in each)
            middle[way][name] = statistics.median(values)
            words += f"{middle[way][name]:12.3f}{values[0]:8.3f}{values[-1]:8.3f}"
        print(words)
    holds = True
    for way, beside in (("notes", "off"), ("kept", "cached")):
        ratios = {name: middle[way][name] / middle[beside][name] for name in ("compile", "step")}
        own = [one["step"] for one in found[beside]]
        spread = max(own) / min(own)
        print(
            f"{way} / {beside}: compile {ratios['compile']:.3f} (at most {_MOST}), "
            f"step {ratios['step']:.3f} (alone it differs by {spread:.3f})"
        )
        holds &= ratios["compile"] <= _MOST and ratios["step"] <= max(_MOST, spread)
    print("the claims hold" if holds else "a claim does not hold")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
