"""What is marked of trainings, by the torch that runs, to be compared with another one.

`python -m tests.nvtx.marked_trainings WAY` writes, as JSON, the ops of each: text of the marker
(op, layer, line, direction, forward op, inputs) and which of the ops before it has the same node.
`WAY` is `observer` or `mode`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import runpy
import sys
import warnings
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from pyprof2.nvtx.annotation import shutdown, start
from pyprof2.nvtx.observers import observer
from pyprof2.nvtx.options import Options
from tests.nvtx.recorder import Recorder
from tests.nvtx.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
TRAINING: Final = str(Path(__file__).with_name("train_small.py"))


def run_script(path: str, *arguments: str) -> None:
    sys.argv = [path, *arguments]
    with contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")


TRAININGS: Final[dict[str, Callable[[], None]]] = {
    **SCENARIOS,
    **{
        path.stem: partial(run_script, str(path), "--steps", "2")
        for path in sorted(EXAMPLES.glob("*.py"))
    },
    "small": partial(run_script, TRAINING, os.devnull),
}
AT_ONCE: Final = "threads"


def ops_of(name: str) -> list[list[Any]]:
    """Return the ops of a training: text, and the number of the first op of the same node."""
    torch.manual_seed(0)
    recorder = Recorder()
    start(Options(cpu_peaks=False, energy=False), recorder.sink())
    try:
        TRAININGS[name]()
    finally:
        shutdown()
    threads: dict[int, list[Any]] = defaultdict(list)
    nodes: dict[int, dict[int, int]] = defaultdict(dict)
    for each in recorder.ops():
        # Threads that run at once come in any order, and so do the numbers of their models.
        thread = each.thread if name == AT_ONCE else 0
        text = re.sub(r"#\d+", "", each.text) if name == AT_ONCE else each.text
        ops = threads[thread]
        first = None if each.payload < 0 else nodes[thread].setdefault(each.payload, len(ops))
        ops.append([text, first])
    return [op for ops in sorted(threads.values(), key=json.dumps) for op in ops]


def main(way: str) -> None:
    """Run all of them, and write what was marked."""
    warnings.simplefilter("ignore")
    os.environ["PYPROF2_OBSERVER"] = "1" if way == "observer" else "0"
    if way == "observer" and observer() is None:
        sys.exit("there is no observer here")
    found = {}
    with contextlib.redirect_stdout(sys.stderr):
        for run in TRAININGS.values():
            run()  # what is imported, and compiled, only then may call ops
        for name in TRAININGS:
            found[name] = ops_of(name)
    json.dump({"torch": torch.__version__, "trainings": found}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
