"""The recordings that the documentation shows, and its commands run on them, in this process.

A page has the real output of each command. What it reads is made here once: the two recordings that
come with pyprof2, and made-up ones of what these lack, which are the tests' own.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.cli import main
from tests import dialled, training_trace
from tests.analysis.job.job_generator import Job, simulate, write

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
WIDTH: Final = 110
"""Columns of the terminal that commands run in."""


@functools.cache
def folder() -> Path:
    """Return a folder with all recordings, which goes when the program ends.

    `demo.json.gz` is real, of a CPU; `gpu.pyprof2` the store of a real one of an H200. Made up are
    `train.json`, a training on an H100 that waits for its loader, `faster.json`, the same with a
    faster loader, `job`, four ranks of which one is slow, and `b8.json`, `b16.json`, `b32.json`,
    steps at three batch sizes.
    """
    place = Path(tempfile.mkdtemp(prefix="examples-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    shutil.copy(ROOT / "pyprof2" / "data" / "demo.json.gz", place)
    gpu = place / "gpu"
    with contextlib.redirect_stdout(io.StringIO()):
        main(["demo", "--gpu", "-o", str(gpu)])
    (gpu / "gpu.pyprof2").rename(place / "gpu.pyprof2")
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
    return place


@contextlib.contextmanager
def _inside(place: Path) -> Iterator[None]:
    """Work in a folder, with a terminal of our width, and without colours."""
    here, variables = Path.cwd(), {"COLUMNS": str(WIDTH), "NO_COLOR": "1"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(here)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@functools.cache
def output(command: str) -> str:
    """Return what a command writes to stdout.

    Raises:
        ValueError: it is none of ours, or fails.
    """
    program, *arguments = shlex.split(command)
    if program != "pyprof2":
        msg = f"not a command of ours: {command}"
        raise ValueError(msg)
    out, problems = io.StringIO(), io.StringIO()
    with (
        _inside(folder()), contextlib.redirect_stdout(out), contextlib.redirect_stderr(problems)
    ):  # fmt: skip
        code = main(arguments)
    if code:
        msg = f"{command}: exit code {code}: {problems.getvalue().strip()}"
        raise ValueError(msg)
    # Without a compiler another scanner reads the same.
    return out.getvalue().replace("Python scanner", "compiled scanner")
