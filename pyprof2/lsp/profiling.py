"""Recording the program anew: only after consent, in processes that end with the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.capture.runner import environment
from pyprof2.lsp.worker import end_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RECORDER: Final = ("--nsys", "--kineto")
_FRAME: Final = re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+)')
_MOST_KEPT: Final = 5
"""Recordings that are kept of a workspace."""
_LONGEST: Final = 1 << 20
"""Characters of a program's output that are kept, its end."""


class Failure(NamedTuple):
    """Why nothing was recorded.

    Attributes:
        text: the last line that the program wrote.
        path, line: the innermost place in the workspace, the line from 0; empty: none.
    """

    text: str
    path: str = ""
    line: int = 0


class ProfilingError(Exception):
    """Nothing was recorded; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def commands(python: str, capture: Sequence[str], folder: Path) -> list[list[str]]:
    """Return the commands that make a store in a folder: record, then parse."""
    recorder = [] if capture and capture[0] in _RECORDER else ["--kineto"]
    start = [python, "-m", "pyprof2"]
    return [
        [*start, "capture", *recorder, "-o", str(folder / "recording"), *capture],
        [*start, "parse", "-o", str(folder.with_suffix(".pyprof2")), str(folder)],
    ]


def shown_command(python: str, capture: Sequence[str]) -> str:
    """Return the command for which consent is asked."""
    recorder = [] if capture and capture[0] in _RECORDER else ["--kineto"]
    return shlex.join([python, "-m", "pyprof2", "capture", *recorder, *capture])


class Profiling:
    """One recording at a time."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._is_running = False
        self.is_cancelled = False
        """Whether the user ended the last one."""

    @property
    def is_running(self) -> bool:
        """Whether a program is being recorded."""
        return self._is_running

    def cancel(self) -> None:
        """End the program, with all that it started, as the user wants."""
        self.is_cancelled = True
        self.end()

    def end(self) -> None:
        """End the program, if it runs, with all that it started."""
        if self._process is not None and self._process.returncode is None:
            end_group(self._process.pid)

    async def record(
        self,
        python: str,
        capture: Sequence[str],
        root: str,
        folder: Path,
        report: Callable[[str], None],
        label: str = "",
    ) -> Path:
        """Record a program, and return the store; of older ones the last few are kept.

        Args:
            python: the interpreter.
            capture: the script and its arguments.
            root: the folder that it runs in, and below which errors are looked for.
            folder: where recordings are kept.
            report: takes the last line that the program wrote.
            label: the end of the store's name.

        Raises:
            ProfilingError: it failed, or was cancelled.
            OSError: the folder cannot be written.
        """
        name = time.strftime("%Y%m%d-%H%M%S") + label
        own = folder / name
        own.mkdir(parents=True, mode=0o700)
        self._is_running, self.is_cancelled = True, False
        try:
            for command in commands(python, capture, own):
                await self._run(command, python, root, report)
        finally:
            self._is_running = False
            shutil.rmtree(own, ignore_errors=True)
        _remove_old(folder)
        return folder / f"{name}.pyprof2"

    async def _run(
        self, command: list[str], python: str, root: str, report: Callable[[str], None]
    ) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "pyprof2.lsp.child", *command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, start_new_session=True, cwd=root,
            env=environment() if _is_own(python) else None,
        )  # fmt: skip
        self._process = process
        try:
            output = await _read(process, report)
            code = await process.wait()
        finally:
            self.end()
            self._process = None
        if code:
            raise ProfilingError(failure_of(output, root, code))


def _is_own(python: str) -> bool:
    return os.path.realpath(python) == os.path.realpath(sys.executable)


async def _read(process: asyncio.subprocess.Process, report: Callable[[str], None]) -> str:
    """Return the end of what a process writes, to its end."""
    output = ""
    while process.stdout is not None and (chunk := await process.stdout.read(1 << 16)):
        output = (output + chunk.decode("utf-8", "replace"))[-_LONGEST:]
        lines = [line for line in re.split(r"[\r\n]", output) if line.strip()]
        if lines:
            report(lines[-1].strip())
    return output


def failure_of(output: str, root: str, code: int) -> Failure:
    """Return why a program ended with an exit code, with the innermost of its own lines."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("pyprof2: ")] or lines
    text = said[-1] if said else f"it ended with exit code {code}"
    base = os.path.realpath(root) + os.sep
    for match in reversed(list(_FRAME.finditer(output))):
        path = os.path.realpath(Path(root, match["path"]))
        if path.startswith(base) and "site-packages" not in path:
            return Failure(text, path, int(match["line"]) - 1)
    return Failure(text)


def _remove_old(folder: Path) -> None:
    stores = sorted(folder.glob("*.pyprof2"), key=lambda path: path.name, reverse=True)
    for store in stores[_MOST_KEPT:]:
        with contextlib.suppress(OSError):
            shutil.rmtree(store)
