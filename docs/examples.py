"""The recordings that the documentation shows, and its commands, run on them as a user runs them.

A page has the real output of each command, which runs in a process of its own. What it reads is
made here once: the two recordings that come with pyprof2, and made-up ones of what these lack,
which are the tests' own. `python -m docs.examples FOLDER` writes them, to try the commands.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests import dialled, training_trace
from tests.analysis.job.job_generator import Job, simulate, write

ROOT: Final = Path(__file__).resolve().parent.parent
PROGRAM: Final = Path(sys.executable).with_name("pyprof2")
"""The installed command."""
WIDTH: Final = 110
"""Columns of the terminal that commands run in."""


def write_recordings(place: Path) -> None:
    """Write all recordings into a folder that exists.

    `demo.json.gz` is real, of a CPU; `gpu.pyprof2` the store of a real one of an H200. Made up are
    `train.json`, a training on an H100 that waits for its loader, `faster.json`, the same with a
    faster loader, `job`, four ranks of which one is slow, and `b8.json`, `b16.json`, `b32.json`,
    steps at three batch sizes.
    """
    shutil.copy(ROOT / "pyprof2" / "data" / "demo.json.gz", place)
    run("pyprof2 demo --gpu -o gpu", place)
    (place / "gpu" / "gpu.pyprof2").rename(place / "gpu.pyprof2")
    (place / "train.json").write_bytes(training_trace.training_trace())
    slow = training_trace.LOADING
    try:
        training_trace.LOADING = slow // 10  # type: ignore[misc]
        (place / "faster.json").write_bytes(training_trace.training_trace())
    finally:
        training_trace.LOADING = slow  # type: ignore[misc]
    (place / "job").mkdir()
    write(simulate(Job(4, steps=3, slow={2: 1.2})), place / "job")
    for size in dialled.SIZES:
        events = list(dialled.events(size, "/home/me/train.py", "/home/me"))
        document = {"traceEvents": events, "deviceProperties": [dialled.DEVICE]}
        (place / f"b{size}.json").write_text(json.dumps(document), encoding="utf-8")


@functools.cache
def folder() -> Path:
    """Return a folder with all recordings, which goes when the program ends."""
    place = Path(tempfile.mkdtemp(prefix="examples-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    write_recordings(place)
    return place


def run(command: str, place: Path) -> str:
    """Return what a command of ours writes to stdout, run in a folder, in a terminal of `WIDTH`.

    Raises:
        ValueError: it is not a command of ours, or it fails.
    """
    program, *arguments = shlex.split(command)
    if program != "pyprof2":
        msg = f"not a command of ours: {command}"
        raise ValueError(msg)
    environment = os.environ | {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    done = subprocess.run(
        [str(PROGRAM), *arguments], cwd=place, env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if done.returncode:
        msg = f"{command}: exit code {done.returncode}: {done.stderr.strip()}"
        raise ValueError(msg)
    return done.stdout


@functools.cache
def output(command: str) -> str:
    """Return what a command writes to stdout in the folder of the recordings.

    Raises:
        ValueError: it is not a command of ours, or it fails.
    """
    # Without a compiler another scanner reads the same.
    return run(command, folder()).replace("Python scanner", "compiled scanner")


def main() -> int:
    """Write the recordings into the folder that the command line names; return the exit code."""
    if len(sys.argv) != 2:
        print("usage: python -m docs.examples FOLDER", file=sys.stderr)
        return 2
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    write_recordings(place)
    print(f"cd {shlex.quote(str(place))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
