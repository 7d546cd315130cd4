"""Whose an unfinished folder is, and a name that is going to be written: a locked file says it.

The lock falls when the process that holds it ends, however it ends. So what a killed run left can
be kept apart from what another run, on this host or on another one that shares the folder, is
writing, and from what somebody else put there under the same name. The file in a folder names the
host, and the folder its owner.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pyprof2.errors import OutputExistsError
from pyprof2.own_files import is_own, open_own

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

CLAIM: Final = ".claim.json"
"""The name of the file, in the folder that it claims."""

_LONGEST: Final = 4096
_TRIES: Final = 100
_MACHINE_ID: Final = Path("/etc/machine-id")


class Claim:
    """The claim of this process on a folder that it made, until `release`."""

    def __init__(self, folder: Path, **facts: str) -> None:
        self._file: IO[str] = (folder / CLAIM).open("x", encoding="utf-8")
        if (locks := _locks()) is not None:
            locks.flock(self._file, locks.LOCK_EX | locks.LOCK_NB)
        json.dump({"host": _host(), **facts}, self._file)
        self._file.flush()

    def release(self, folder: Path) -> None:
        """Give the folder, under the name that it has now, up as finished or as rubbish."""
        (folder / CLAIM).unlink(missing_ok=True)
        self._file.close()


@contextlib.contextmanager
def claimed_path(wanted: Path) -> Iterator[Path]:
    """Give a path that no other living process has claimed, and claim it until the end.

    It is the wanted one, or one whose name ends with the id of this process.
    """
    with contextlib.ExitStack() as claims:
        yield claim_path(wanted, claims)


def claim_path(wanted: Path, claims: contextlib.ExitStack) -> Path:
    """Return a path that no other living process has claimed; see `claimed_path`.

    Args:
        wanted: the path, in a folder that is there.
        claims: takes what gives it up.
    """
    own = f"{wanted.name}-pid{os.getpid()}"
    names = (f"{own}-{n}" if n else own for n in itertools.count())
    for path in (wanted, *map(wanted.with_name, itertools.islice(names, _TRIES))):
        try:
            mark = _mark(path.with_name(f".{path.name}.claim"))
        except OSError as error:  # it would name the file of the claim
            raise OSError(error.errno, error.strerror, str(path)) from error
        if mark is not None:
            claims.callback(_unmark, *mark)
            return path
    msg = f"{wanted}: its name is claimed in many forms by others; name another"
    raise OutputExistsError(msg)


def _mark(path: Path) -> tuple[Path, int] | None:
    """Make and lock the file of a claim; None: a living process has, or it is somebody else's."""
    locks = _locks()
    if locks is None:
        # Where there are no locks, an open file cannot be removed.
        with contextlib.suppress(OSError):
            path.unlink()
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | (0 if locks else os.O_EXCL)
    while True:
        try:
            file = os.open(path, flags, 0o600)
        except OSError:
            if os.path.lexists(path):
                return None
            raise
        try:
            if locks is not None:
                locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            return path, file  # a file system without locks
        # Who had it may have removed it since it was opened here.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), path.lstat()):
                return path, file
        os.close(file)


def _unmark(path: Path, file: int) -> None:
    if _locks() is not None:
        path.unlink(missing_ok=True)
        os.close(file)
        return
    os.close(file)
    path.unlink(missing_ok=True)


def abandoned_claim(folder: Path) -> dict[str, str] | None:
    """Return the facts of a claim on `folder` that a run of this user on this host left behind.

    None: there is no claim, or its run may still be at work, or it was somebody else's.
    """
    errors = contextlib.suppress(OSError, ValueError, RecursionError)
    with errors, open_own(folder / CLAIM, to_lock=True) as file:
        facts = json.loads(file.read(_LONGEST))
        locks = _locks()
        if locks is not None and is_own(folder) and facts["host"] == _host():
            # This fails where the run is still at work, and has the lock.
            locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
            return {str(name): str(value) for name, value in facts.items()}
    return None


def _locks() -> ModuleType | None:
    """Return the module of locks, or None where there are none: there nothing is abandoned."""
    try:
        import fcntl
    except ImportError:
        return None
    return fcntl


def _host() -> str:
    """Return a name for this host, and container, that others with the same folder do not have."""
    machine = ""
    with contextlib.suppress(OSError):
        machine = _MACHINE_ID.read_text(encoding="ascii").strip()
    return f"{platform.node()} {machine}".strip()
