"""A process beside the server, for long tasks: `python -m pyprof2.lsp.worker`.

It reads a request per line from its stdin and writes an answer per line to its stdout. When its
stdin ends, as when the server is killed, it ends at once, whatever it is at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any, Final

from pyprof2.capture.runner import environment

_LONGEST: Final = 1 << 28
"""Bytes of the longest answer."""


class WorkerError(Exception):
    """The worker cannot answer; the message is one line."""


class Worker:
    """The server's end: starts the process when it is first needed, and again if it died."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, task: str, **arguments: Any) -> Any:
        """Return the answer of the worker; one question at a time.

        Raises:
            WorkerError: it cannot answer, or died of the question.
        """
        async with self._turn:
            try:
                return await self._answer(json.dumps({"task": task, "arguments": arguments}))
            except BaseException:
                # Cancelled, or dead: an answer that still comes would be taken for the next one.
                self.close()
                raise

    async def _answer(self, question: str) -> Any:
        process = await self._started()
        if process.stdin is None or process.stdout is None:  # both are pipes
            raise WorkerError(_DIED)
        try:
            process.stdin.write(question.encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        except (OSError, ValueError) as error:
            raise WorkerError(_DIED) from error
        if not line:
            raise WorkerError(_DIED)
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer["result"]

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                # Without -P Python would import what the workspace has beside its files.
                sys.executable, "-P", "-m", "pyprof2.lsp.worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True, limit=_LONGEST,
                env=environment(),
            )  # fmt: skip
        return self._process

    def close(self) -> None:
        """End the process, and what it started."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            end_group(process.pid)


_DIED: Final = "the process that reads recordings and files died, perhaps out of memory"


def end_group(pid: int) -> None:
    """End a process that leads a group of its own, with all of the group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGTERM)


# -- in the process ------------------------------------------------------------------------------


def main() -> None:
    """Answer questions until there are no more."""
    # Output of libraries must not stand between answers.
    from pyprof2.errors import Pyprof2Error

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    questions: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=[questions], daemon=True).start()
    with contextlib.suppress(OSError):
        while True:
            question = json.loads(questions.get())
            try:
                answer = {"result": _result(question["task"], **question["arguments"])}
            except (Pyprof2Error, OSError) as error:
                answer = {"error": str(error)}
            except Exception as error:  # noqa: BLE001 - one file must not end what serves all
                answer = {"error": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
    # Nobody reads any more; the thread that listens holds what Python wants when it ends.
    os._exit(1)


def _listen(questions: queue.Queue[str]) -> None:
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)


def _result(task: str, **arguments: Any) -> Any:
    """Do a task: `analyse` a file, `read`, `search` or find the `newest` recording, `dials`."""
    if task == "analyse":
        from pyprof2.lsp.analysis import analyse

        return analyse(**arguments)
    if task == "dials":
        from pyprof2 import __version__
        from pyprof2.api.batch import batch_model, held_by_category
        from pyprof2.api.run import load
        from pyprof2.reports.batch import BatchQuery
        from pyprof2.reports.dials import DialsQuery, document, elsewhere_by_batch

        runs = {int(size): load(path) for size, path in arguments["recordings"].items()}
        held = held_by_category(runs)
        others = elsewhere_by_batch(runs)
        query = DialsQuery(
            BatchQuery(), __version__, arguments["sizes"], held=held, elsewhere=others
        )
        return document(batch_model(runs), query)
    from pyprof2.lsp import recordings

    if task == "search":
        return [str(path) for path in recordings.search(**arguments)]
    if task == "read":
        return recordings.read(Path(arguments.pop("path")), **arguments)
    return recordings.newest(**arguments)


if __name__ == "__main__":
    main()
