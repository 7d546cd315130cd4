"""The daemon: it knows the jobs that ask, has them recorded together, and waits for their files.

Another shell asks the daemon that serves: one line of JSON each way, between one user's own.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import socket
import struct
import time
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any, Final

from pyprof2.errors import CaptureError, Pyprof2Error
from pyprof2.watch.recording import (
    POLL_S,
    WAITS_S,
    AskingProcess,
    OnDemandRecording,
    Wanted,
    WatchSettings,
    why_not,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyprof2.watch.datagrams import Endpoint, Request

    Report = Callable[[OnDemandRecording], None]


_TICK_S: Final = 0.2
_MOST_PROCESSES: Final = 4096
_AT_ONCE: Final = 64
"""So many datagrams are read before anything else is looked at: a flood stops nothing."""
_FORGOTTEN_S: Final = 4 * POLL_S
"""A job that has not asked for so long is not listed."""
_TRIES: Final = 3
_SPREAD_STEPS: Final = 4 * POLL_S
"""Steps begin at a multiple of as many as are made in this time, in s."""
_AHEAD_OF_NOTHING: Final = (
    "no job asked within {seconds:.0f} s; pyprof2 watch --env shows how to start one that does"
)


class Daemon:
    """It answers the jobs of this user.

    Attributes:
        processes: those that asked, by number.
    """

    def __init__(self, *endpoints: Endpoint) -> None:
        """Answer at some sockets; nothing is recorded before `record`."""
        self._endpoints = endpoints
        self.processes: dict[int, AskingProcess] = {}
        self._recording: OnDemandRecording | None = None
        self._selector = selectors.DefaultSelector()
        for endpoint in endpoints:
            self._selector.register(endpoint, selectors.EVENT_READ, endpoint)

    def close(self) -> None:
        """Give the name up, so that the jobs ask nobody."""
        self._selector.close()
        for endpoint in self._endpoints:
            endpoint.close()

    def wait(self, is_over: Callable[[], bool], seconds: float = math.inf) -> None:
        """Answer until something is over, or for some seconds."""
        end = time.monotonic() + seconds
        while not is_over() and (left := end - time.monotonic()) > 0:
            for key, _ in self._selector.select(min(_TICK_S, left)):
                self._receive(key.data)
            if self._recording is not None:
                self._recording.look()

    def _receive(self, endpoint: Endpoint) -> None:
        for _ in range(_AT_ONCE):
            try:
                asked = endpoint.receive()
            except OSError:
                return
            if asked is not None:
                self._answer(endpoint, asked)

    def _answer(self, endpoint: Endpoint, asked: Request) -> None:
        known = self.processes.get(asked.pid)
        if known is None or not known.is_alive():
            if len(self.processes) >= _MOST_PROCESSES:
                self.listed()
            if len(self.processes) >= _MOST_PROCESSES:
                return
            known = self.processes[asked.pid] = AskingProcess(asked)
        known.asked, known.seen = asked, time.monotonic()
        text = "" if self._recording is None else self._recording.configuration_for(known)
        # It would take nothing that comes too late for the answer to its next request.
        if text or time.time() < asked.sent + WAITS_S / 2:
            endpoint.answer(asked, text)

    def listed(self) -> list[AskingProcess]:
        """Return the processes that ask and live, and forget the others."""
        earliest = time.monotonic() - _FORGOTTEN_S
        self.processes = {
            pid: each
            for pid, each in self.processes.items()
            if each.seen >= earliest and each.is_alive()
        }
        return [self.processes[pid] for pid in sorted(self.processes)]

    def record(
        self, wanted: Wanted, options: WatchSettings, output: Path, report: Report = lambda _: None
    ) -> OnDemandRecording:
        """Record all processes that are wanted at one instant, and return what became of each.

        Args:
            wanted: which.
            options: what, when and for how long.
            output: the folder of the files.
            report: called now and then with the state.

        Raises:
            CaptureError: none takes part, or the steps of the processes are not the same.
        """
        if not options.steps:
            return self._record(wanted, options, output, report)
        self.wait(lambda: False, POLL_S + 1)
        groups: dict[str, list[AskingProcess]] = {}
        for process in filter(wanted.fits, self.listed()):
            groups.setdefault(process.group, []).append(process)
        largest = max(groups.values(), key=len, default=[])
        for _ in range(_TRIES if len(largest) > 1 else 1):
            if len(largest) > 1:
                options = options._replace(multiple=self._steps_meanwhile(largest[0], output))
            found = self._record(wanted, options, output, report)
            if _is_together(found):
                return found
            for part in found.parts.values():
                if part.trace is not None:
                    part.trace.unlink()
            found.close()
        msg = f"the processes did not record the same steps in {_TRIES} tries: say --duration"
        raise CaptureError(msg)

    def _steps_meanwhile(self, process: AskingProcess, output: Path) -> int:
        """Return how many steps a job makes while all its processes ask several times over."""
        asked = Wanted(pids=(process.pid,))
        probe = self._record(asked, WatchSettings(steps=2, shapes=False), output / ".steps")
        (part,) = probe.parts.values()
        seconds = part.window[1] / 2 if part.window else 0.0
        if part.trace is not None:
            part.trace.unlink()
        probe.close()
        return max(1, math.ceil(_SPREAD_STEPS / seconds)) if seconds > 0 else 1

    def _record(
        self, wanted: Wanted, options: WatchSettings, output: Path, report: Report = lambda _: None
    ) -> OnDemandRecording:
        recording = self._recording = OnDemandRecording(wanted, options, output)

        def is_over() -> bool:
            report(recording)
            return recording.is_over

        try:
            self.wait(is_over)
            recording.keep()
        finally:
            self._recording = None
            recording.close()
        if not recording.parts:
            raise CaptureError(self._why_none(recording))
        return recording

    def _why_none(self, recording: OnDemandRecording) -> str:
        """Return why no process takes part."""
        wanted, asked = recording.wanted, self.listed()
        if recording.busy:
            return f"{_numbers(recording.busy)}: records already"
        for pid in wanted.pids:
            if why := why_not(pid):
                return why
        if asked:
            return f"none of the {len(asked)} jobs that ask is meant: see pyprof2 watch --list"
        if any(endpoint.refused for endpoint in self._endpoints):
            return "only jobs of other users asked, and they are not recorded"
        return _AHEAD_OF_NOTHING.format(seconds=POLL_S + 1)


def _numbers(pids: Iterable[int]) -> str:
    return "process " + ", ".join(map(str, sorted(pids)))


def _is_together(recording: OnDemandRecording) -> bool:
    """Return whether the recordings of each job overlap by half or more: they have one begin."""
    windows: dict[str, list[tuple[float, float]]] = {}
    for part in recording.parts.values():
        if part.trace is not None and part.window is not None:
            windows.setdefault(part.process.group, []).append(part.window)
    return all(
        max(begin for begin, _ in each) - min(begin for begin, _ in each)
        <= max(length for _, length in each) / 2
        for each in windows.values()
        if not any(math.isnan(begin) for begin, _ in each)
    )


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
        "state": "not recorded" if process.asked.is_idle else "recording",
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
