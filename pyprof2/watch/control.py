"""Another shell asks the daemon that serves: one line of JSON each way, between one user's own."""

from __future__ import annotations

import contextlib
import json
import math
import os
import socket
import struct
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any, Final

from pyprof2.errors import CaptureError, Pyprof2Error
from pyprof2.watch.recording import Wanted, WatchSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyprof2.watch.daemon import Daemon
    from pyprof2.watch.jobs import AskingProcess
    from pyprof2.watch.recording import OnDemandRecording

_CREDENTIALS: Final = struct.Struct("3i")
_LONGEST: Final = 1 << 16
_PATIENCE_S: Final = 2.0
_MISSED: Final = "its request was seen too late: this machine is busy"
_SHOWN: Final = 100
"""So many characters of a command are shown."""


NAME: Final = f"\0pyprof2-watch-{os.getuid()}"
"""The socket of this user's daemon: an abstract name, so that nothing is left of it."""


def _is_own(connection: socket.socket) -> bool:
    """Return whether the process at the other end is of this user."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, user, _ = _CREDENTIALS.unpack(data)
    return bool(user == os.getuid())


def row(process: AskingProcess) -> dict[str, Any]:
    """Return what is listed of a process."""
    return {
        "pid": process.pid,
        "rank": process.rank,
        "user": process.user,
        "state": "idle" if process.asked.is_idle else "recording",
        "torch": process.torch,
        "job": process.asked.job or None,
        "command": shorten(process.command, _SHOWN, placeholder=" …"),
    }


def result(recording: OnDemandRecording) -> dict[str, Any]:
    """Return what became of a recording."""
    begins = [part.begin_s for part in recording.parts.values() if part.trace is not None]
    spread = max(begins, default=math.nan) - min(begins, default=math.nan)
    return {
        "folders": [str(folder) for folder in recording.folders()],
        "spread_ms": None if math.isnan(spread) else round(1000 * spread, 3),
        "parts": [
            row(part.process)
            | {"trace": str(part.trace) if part.trace else None, "error": part.error}
            for part in recording.parts.values()
        ]
        + [row(each) | {"trace": None, "error": _MISSED} for each in recording.missed.values()],
        "busy": sorted(recording.busy),
    }


def progress(recording: OnDemandRecording) -> dict[str, Any]:
    """Return how far a recording is."""
    parts = recording.parts.values()
    return {
        "start": recording.start,
        "processes": len(parts),
        "complete": sum(part.is_over for part in parts),
        "bytes": sum(max(0, part.size) for part in parts),
    }


def serve(
    daemon: Daemon,
    say: Callable[[str], None],
    name: str = NAME,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Answer jobs, and do what other shells ask, until something is over, or interrupted."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(name)
        except OSError as error:
            msg = f"the socket of pyprof2 watch --trigger cannot be had: {error.strerror}"
            raise CaptureError(msg) from error
        listener.listen()
        listener.settimeout(0)
        asking: list[socket.socket] = []

        def has_come() -> bool:
            with contextlib.suppress(BlockingIOError):
                asking.append(listener.accept()[0])
            return bool(asking) or is_over()

        while not is_over():
            daemon.wait(has_come)
            while asking:
                with contextlib.suppress(OSError), asking.pop() as connection:
                    if _is_own(connection):
                        _serve_one(daemon, connection, say)


def _serve_one(daemon: Daemon, connection: socket.socket, say: Callable[[str], None]) -> None:
    connection.settimeout(_PATIENCE_S)
    with connection.makefile("rw", encoding="utf-8") as lines:
        try:
            asked = json.loads(lines.readline(_LONGEST))
            if asked.get("list"):
                daemon.wait(lambda: False, float(asked["list"]))
                _write(lines, {"processes": [row(each) for each in daemon.listed()]})
                return
            wanted = Wanted(**asked["wanted"] | {"pids": tuple(asked["wanted"]["pids"])})
            options, output = WatchSettings(**asked["options"]), Path(asked["output"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            _write(lines, {"error": f"not a request: {error}"})
            return
        say(f"asked to record into {output}")
        try:
            found = daemon.record(
                wanted, options, output, lambda each: _write(lines, {"progress": progress(each)})
            )
        except Pyprof2Error as error:
            say(str(error))
            _write(lines, {"error": str(error)})
            return
        say(f"recorded {len(found.folders())} job(s) into {output}")
        _write(lines, {"result": result(found)})


def _write(lines: IO[str], message: dict[str, Any]) -> None:
    # A shell that went away does not end the recording that it asked for.
    with contextlib.suppress(OSError):
        lines.write(json.dumps(message) + "\n")
        lines.flush()


def ask(message: dict[str, Any], name: str = NAME) -> Iterator[dict[str, Any]]:
    """Send a request to the daemon that serves, and yield its answers.

    Raises:
        CaptureError: none serves, or it says what is wrong.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(name)
        except OSError as error:
            msg = "no pyprof2 watch --serve runs here for this user"
            raise CaptureError(msg) from error
        if not _is_own(connection):
            msg = "the socket of pyprof2 watch --serve is another user's"
            raise CaptureError(msg)
        with connection.makefile("rw", encoding="utf-8") as lines:
            _write(lines, message)
            ended = True
            for line in lines:
                answer = json.loads(line)
                if "error" in answer:
                    raise CaptureError(answer["error"])
                ended = "progress" not in answer
                yield answer
            if not ended:
                msg = "pyprof2 watch --serve ended while it recorded"
                raise CaptureError(msg)
