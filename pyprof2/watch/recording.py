"""One recording on demand: of which processes, with which settings, and what became of each.

The processes ask to be recorded: here is who they are, and where they can write.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import pwd
import re
import secrets
import shlex
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from pyprof2.errors import CaptureError, TraceError
from pyprof2.markers import LAUNCHERS, place_in_job
from pyprof2.own_files import is_own, open_own
from pyprof2.parsers import holds_work

if TYPE_CHECKING:
    from pyprof2.watch.datagrams import Request

POLL_S: Final = 5.0
"""Jobs ask that often."""
AHEAD_S: Final = 13.0
"""A recording begins so long after it was asked for: every job has asked twice by then."""
WAITS_S: Final = 0.04
"""They wait for an answer a little longer; one that comes later they take the next time."""
_AGAIN_S: Final = POLL_S + 0.5
_LEAST_S: Final = 10.0
"""Every job has asked once by then."""
_WARM_UP_S: Final = 2
"""A job prepares itself before the recording begins."""
_LATE_S: Final = _WARM_UP_S + 1.0
"""A job that asks later than that before the begin cannot take part."""
_STEM: Final = "pyprof2-watch-"
_STAGING: Final = ".watch-"
_LOCK: Final = f"{_STEM}lock"
"""A file that a daemon locks as long as it lives, beside the files that come, with their paths."""
_TAIL: Final = 1 << 16
_COMPLETE: Final = re.compile(rb'"traceName"\s*:.*\}\s*\Z', re.DOTALL)
"""The end of a file that is complete: the name comes last."""
_WINDOW: Final = re.compile(rb'"cat":\s*"Trace"[^{}]*?"ts":\s*(\d+\.?\d*),\s*"dur":\s*(\d+\.?\d*)')
_NO_STEPS: Final = "; steps are counted by optimizers, so give --duration for a program without one"


class Wanted(NamedTuple):
    """Which processes to record; all that ask where nothing is said."""

    pids: tuple[int, ...] = ()
    name: str = ""
    job: int | None = None

    def fits(self, process: AskingProcess) -> bool:
        """Return whether a process is one of them; a launcher is one where it is named."""
        return (
            (process.pid in self.pids if self.pids else not process.is_launcher)
            and (self.job is None or process.asked.job == self.job)
            and re.search(self.name, process.command) is not None
        )


class WatchSettings(NamedTuple):
    """The settings of a recording.

    Attributes:
        duration_ms: how long.
        steps: how many steps of an optimizer instead; 0: a duration.
        start: when, in seconds since the epoch; None: as soon as all can begin together.
        shapes, stack, memory: what of each op.
        multiple: steps begin at a multiple of this number, on every rank.
        patience_s: a file that has not come, or has not grown, for so long does not come.
    """

    duration_ms: int = 2000
    steps: int = 0
    start: float | None = None
    shapes: bool = True
    stack: bool = False
    memory: bool = False
    multiple: int = 1
    patience_s: float = 60.0

    def configuration(self, path: Path, start: float) -> str:
        """Return the text that a job is sent.

        Args:
            path: of its file; libkineto adds the number of the process to it.
            start: when it begins, in seconds since the epoch.
        """
        found = [f"ACTIVITIES_LOG_FILE={path}"]
        if self.steps:
            found += [
                f"PROFILE_START_ITERATION_ROUNDUP={self.multiple}",
                f"ACTIVITIES_ITERATIONS={self.steps}",
            ]
        else:
            found += [
                f"PROFILE_START_TIME={round(1000 * start)}",
                f"ACTIVITIES_WARMUP_PERIOD_SECS={_WARM_UP_S}",
                f"ACTIVITIES_DURATION_MSECS={self.duration_ms}",
            ]
        for name, is_on in (
            ("REPORT_INPUT_SHAPES", self.shapes),
            ("WITH_STACK", self.stack),
            ("WITH_MODULES", self.stack),
            ("PROFILE_MEMORY", self.memory),
        ):
            found.append(f"PROFILE_{name}={'true' if is_on else 'false'}")
        return "\n".join(found) + "\n"


@dataclass
class Part:
    """The recording of one process.

    Attributes:
        process: whose.
        written: where its file comes, as this process sees it.
        size: of the file when last looked at.
        moved: when it last grew, of the monotonic clock.
        window: when it began and how long it was, in s; None: its file is not complete.
        error: why it will not be.
        trace: the file, where it was wanted; None: there is no op in it.
    """

    process: AskingProcess
    written: Path
    size: int = -1
    moved: float = 0.0
    window: tuple[float, float] | None = None
    error: str | None = None
    trace: Path | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.window is not None or self.error is not None

    @property
    def begin_s(self) -> float:
        """When a complete one began, on the clock of the machine; NaN: not recorded."""
        return math.nan if self.window is None else self.window[0]


class OnDemandRecording:
    """One recording of all processes that are wanted, at one instant.

    Attributes:
        output: the folder of what is recorded.
        start: when it begins, in seconds since the epoch.
        parts: of each process that takes part.
        busy: the processes that fit and were recording already.
        missed: those whose requests were seen too late to answer.
    """

    def __init__(self, wanted: Wanted, options: WatchSettings, output: Path) -> None:
        """Prepare; nothing is written before the first process takes part.

        Raises:
            CaptureError: it would begin too soon.
        """
        now = time.time()
        self.wanted, self.options, self.output = wanted, options, output
        self.start = now + AHEAD_S if options.start is None else options.start
        if options.start is not None and self.start < now + _LEAST_S - 0.5:
            msg = f"jobs ask every {POLL_S:.0f} s: begin at least {_LEAST_S:.0f} s ahead"
            raise CaptureError(msg)
        self._until = now + POLL_S + 1 if options.steps else self.start - _LATE_S
        self.parts: dict[int, Part] = {}
        self.busy: dict[int, AskingProcess] = {}
        self.missed: dict[int, AskingProcess] = {}
        self._token = secrets.token_hex(8)
        self._staging: Path | None = None
        self._lock: IO[str] | None = None

    def configuration_for(self, process: AskingProcess) -> str:
        """Return the answer to a process that asks; empty: it does not take part."""
        if process.pid in self.parts or self.is_closed or not self.wanted.fits(process):
            return ""
        if not process.asked.is_idle:
            self.busy[process.pid] = process
            return ""
        self.busy.pop(process.pid, None)
        answered = process.asked.sent + WAITS_S
        if time.time() > answered and (self.options.steps or answered + _AGAIN_S > self._until):
            self.missed[process.pid] = process
            return ""
        self.missed.pop(process.pid, None)
        folder = process.folder(self._own_folder())
        # Processes of two containers may have one number, and one folder for temporary files.
        stem = f"{_STEM}{self._token}-{process.pid}"
        path = folder / f"{stem}_{process.asked.own_pid}.json"
        part = self.parts[process.pid] = Part(process, process.seen_from_here(path))
        print(part.written, file=self._lock, flush=True)
        return self.options.configuration(folder / f"{stem}.json", self.start)

    @property
    def is_closed(self) -> bool:
        """Whether no more processes can take part."""
        return time.time() >= self._until

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes."""
        return self.is_closed and all(part.is_over for part in self.parts.values())

    def look(self) -> None:
        """Look at the files that are still to come."""
        due = self._until if self.options.steps else self.start + self.options.duration_ms / 1000
        for part in self.parts.values():
            if not part.is_over:
                self._look_at(part, time.time() - due)

    def _look_at(self, part: Part, overdue_s: float) -> None:
        try:
            size = part.written.stat().st_size
        except OSError:
            size = -1
        if size != part.size:
            part.size, part.moved = size, time.monotonic()
        elif size > 0 and (window := _window(part.written)) is not None:
            part.window = window
        elif not part.process.is_alive():
            # Its last bytes may have come after the look at the file.
            if size == _size(part.written):
                part.error = "ended while it recorded"
        elif min(overdue_s, time.monotonic() - part.moved) > self.options.patience_s:
            why = _NO_STEPS if size < 0 and self.options.steps else ""
            what = "its file did not come" if size < 0 else "its file is not complete"
            part.error = f"{what} within {self.options.patience_s:g} s{why}"
        if part.error is not None:
            with contextlib.suppress(OSError):
                part.written.unlink()

    def keep(self) -> None:
        """Move the complete files with any work in them to where they are wanted."""
        kept = [part for part in self.parts.values() if part.window and _holds_work(part.written)]
        groups = sorted({part.process.group for part in kept})
        for part in kept:
            job = f"job{groups.index(part.process.group)}" if len(groups) > 1 else "."
            folder = self.output / job
            folder.mkdir(parents=True, exist_ok=True)
            target = folder / f"{part.process.name}.json"
            if target.exists():
                target = folder / f"{part.process.name}-{part.process.pid}.json"
            shutil.move(part.written, target)
            part.trace = target

    def _own_folder(self) -> Path:
        """Return the folder into which files are written, and from which they are moved."""
        if self._staging is None:
            self.output.mkdir(parents=True, exist_ok=True)
            # Nobody may find it before it is locked.
            new = Path(tempfile.mkdtemp(prefix=f".new{_STAGING}", dir=self.output.absolute()))
            self._lock = (new / _LOCK).open("w", encoding="utf-8", errors="surrogateescape")
            with contextlib.suppress(OSError):  # some file systems have no locks
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            self._staging = new.rename(new.with_name(new.name.removeprefix(".new")))
        return self._staging

    def close(self) -> None:
        """Remove what is not wanted."""
        for part in self.parts.values():
            if part.trace is None:
                with contextlib.suppress(OSError):
                    part.written.unlink()
        if self._staging is not None and self._lock is not None:
            shutil.rmtree(self._staging, ignore_errors=True)
            self._lock.close()
        # Where nothing came, no folder is left either.
        with contextlib.suppress(OSError):
            self.output.rmdir()

    def folders(self) -> list[Path]:
        """Return the folders with the recordings of each job."""
        return sorted({part.trace.parent for part in self.parts.values() if part.trace})


def remove_abandoned(output: Path) -> None:
    """Remove what daemons that were killed left in a folder of recordings, and beside it."""
    for pattern in (output.glob(f"{_STAGING}*"), output.glob(f"*/{_STAGING}*"),
                    output.parent.glob(f"watch-*/{_STAGING}*")):  # fmt: skip
        for folder in pattern:
            if not is_own(folder, alone=True):
                continue  # whoever made it says what to remove
            with contextlib.suppress(OSError), open_own(folder / _LOCK, to_lock=True) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its daemon is dead
                written = map(Path, lock.read().splitlines())
                for path in (*written, *folder.glob(f"{_STEM}*")):
                    if path.name.startswith(_STEM):
                        with contextlib.suppress(OSError):
                            path.unlink()
                folder.rmdir()  # what is not ours stays
                # A folder that is empty now was nothing but its place.
                for each in (folder.parent, output):
                    with contextlib.suppress(OSError):
                        each.rmdir()


def _holds_work(path: Path) -> bool:
    try:
        return holds_work(path)
    except TraceError:
        return True  # parsing says what is wrong with it


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _window(path: Path) -> tuple[float, float] | None:
    """Return when a recording began and how long it was, in s; None: the file is not complete.

    The begin is on the clock of the machine, and null, NaN, where the file does not say it.
    """
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL))
            tail = file.read()
    except OSError:
        return None
    if _COMPLETE.search(tail) is None:
        return None
    found = _WINDOW.search(tail)
    return (float(found[1]) / 1e6, float(found[2]) / 1e6) if found else (math.nan, math.nan)


TRACE_DIR: Final = "KINETO_ONDEMAND_TRACE_DIR"
"""The variable that names the folder below which newer versions may write."""
_GROUPS: Final = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
"""Variables that are equal in all processes of a job."""
_VERSION: Final = re.compile(r"__version__ = ['\"]([^'\"]+)")
_OWN_FILES: Final = Path("/proc/self/ns/mnt")
_FREE_PATHS: Final = (2, 13)
"""The last version known to write anywhere."""


@dataclass
class AskingProcess:
    """A process that asked.

    Attributes:
        asked: its latest request.
        seen: when that came, of the monotonic clock.
    """

    asked: Request
    seen: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Read what the system knows about it, once."""
        self._home = Path(f"/proc/{self.pid}")
        self.began = _began(self.pid)
        words = self._read("cmdline").split("\0")
        words = words[:-1] if words[-1:] == [""] else words
        self.command = shlex.join(words)
        self._words = words
        self.is_launcher = any(Path(word).name in LAUNCHERS for word in words[:4])
        pairs = (pair.partition("=") for pair in self._read("environ").split("\0"))
        self.environment = {name: value for name, _, value in pairs}
        self.rank = place_in_job(self.environment).rank
        self.torch = self._torch()
        self.user = _user(self._home)

    @property
    def pid(self) -> int:
        """Its number here."""
        return self.asked.pid

    @property
    def group(self) -> str:
        """A text that all processes of its job share; of one alone its own number."""
        if self.asked.job:
            return f"job{self.asked.job}"
        shared = [self.environment[name] for name in _GROUPS if self.environment.get(name)]
        return ":".join(shared) if shared and self.rank is not None else f"pid{self.pid}"

    @property
    def name(self) -> str:
        """A name for its recording: of its rank, else of its script."""
        if self.rank is not None:
            return f"rank{self.rank}"
        words = self._words[1:]
        of_module = words[words.index("-m") + 1 :] if "-m" in words else None
        scripts = of_module or [word for word in words if word.endswith(".py")]
        stem = re.sub(r"[^\w.-]", "_", Path(scripts[0]).stem) if scripts else "python"
        return f"{stem[:64]}-{self.pid}"

    def is_alive(self) -> bool:
        """Return whether it is still there, and not another one of its number."""
        return self.began is not None and _began(self.pid) == self.began

    def folder(self, wanted: Path) -> Path:
        """Return the folder, as the process itself sees it, into which it can write."""
        if named := self.environment.get(TRACE_DIR):
            return Path(named)
        numbers = re.findall(r"\d+", self.torch or "")[:2]
        if self._shares_files() and tuple(map(int, numbers)) <= _FREE_PATHS:
            return wanted
        return Path(self.environment.get("TMPDIR") or "/tmp")  # noqa: S108 - names are random

    def seen_from_here(self, path: Path) -> Path:
        """Return where a file of the process is for this one."""
        return path if self._shares_files() else Path(f"{self._home}/root{path}")

    def _shares_files(self) -> bool:
        try:
            return (self._home / "ns/mnt").readlink() == _OWN_FILES.readlink()
        except OSError:
            return True

    def _torch(self) -> str | None:
        """Return the version of the torch that it has loaded."""
        found = re.search(r"(/\S*)/torch/lib/libtorch_cpu\.so", self._read("maps"))
        if found is None:
            return None
        with contextlib.suppress(OSError):
            path = self.seen_from_here(Path(found[1]) / "torch/version.py")
            version = _VERSION.search(path.read_text(encoding="utf-8", errors="replace"))
            return version[1] if version else None
        return None

    def _read(self, name: str) -> str:
        try:
            return (self._home / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def why_not(pid: int) -> str | None:
    """Return why a process cannot be recorded; None: nothing is known against it."""
    home = Path(f"/proc/{pid}")
    if not home.is_dir():
        return f"there is no process {pid}"
    try:
        environment = (home / "environ").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid} belongs to {_user(home) or 'another user'}"
    if not any(pair.startswith(b"KINETO_USE_DAEMON=") for pair in environment):
        return (
            f"process {pid} was started without KINETO_USE_DAEMON=1 and cannot be recorded; "
            f"pyprof2 watch --env shows how to start one that can"
        )
    return None


def _began(pid: int) -> str | None:
    """Return when a process began, in ticks of the system; None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program is in parentheses and may contain anything.
    state, *rest = fields.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]


def _user(home: Path) -> str | None:
    try:
        number = home.stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
