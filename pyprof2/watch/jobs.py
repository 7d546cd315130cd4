"""Processes that ask to be recorded: who they are, and where they can write."""

from __future__ import annotations

import contextlib
import pwd
import re
import shlex
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyprof2.markers import LAUNCHERS, place_in_job

if TYPE_CHECKING:
    from pyprof2.watch.datagrams import Request

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
