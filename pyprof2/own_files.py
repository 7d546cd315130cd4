"""Files on a machine that others use too: what is this user's alone, and what may be opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from pyprof2.errors import say

if TYPE_CHECKING:
    from collections.abc import Iterable

SOCKET_DIR: Final = "KINETO_IPC_SOCKET_DIR"
"""The folder of the sockets of jobs and daemon; without it their names are any user's to take."""
_WRITABLE: Final = stat.S_IWGRP | stat.S_IWOTH


def is_own(path: Path, *, alone: bool = False) -> bool:
    """Whether `path` is a file or folder of this user's, and no link to one.

    Args:
        path: what may not be there.
        alone: nobody else may write it.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    is_plain = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    if not is_plain or not hasattr(os, "geteuid"):  # Windows says neither owner nor mode
        return is_plain
    return found.st_uid == os.geteuid() and not (alone and found.st_mode & _WRITABLE)


def of_their_owner(found: Iterable[Path], files: Iterable[Path], option: str) -> list[Path]:
    """Return the paths whose owner is that of one of some files; a line on stderr names the others.

    Args:
        found: what lies beside the files.
        files: recordings.
        option: which reads the others.
    """
    owners, kept = {file.stat().st_uid for file in files}, []
    for path in found:
        if path.stat().st_uid in owners:
            kept.append(path)
        else:
            say(f"{path}: not read, as its owner is not the recording's; {option} reads it")
    return kept


def make_own_folder(path: Path) -> None:
    """Make a folder that this user alone writes, if there is none.

    Raises:
        OSError: it cannot be made, or what is there is somebody else's or others may write it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_own(path) and not path.stat().st_mode & stat.S_IWOTH:
        path.chmod(0o700)  # it may have been made with a mask that lets the user's group write
    if not is_own(path, alone=True):
        raise PermissionError(errno.EACCES, "it is not this user's alone", str(path))


def cache_folder() -> Path:
    """Return the folder of what pyprof2 keeps for this user.

    Raises:
        OSError: the user has no home.
    """
    try:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # HOME is not set, and the user is not in the machine's list
        raise FileNotFoundError(errno.ENOENT, "there is no home folder") from error
    return own / "pyprof2"


def socket_folder() -> Path:
    """Return the folder of this user's sockets: one path for all the shells and jobs of a machine.

    Raises:
        OSError: it is another user's, or cannot be made.
    """
    folder = Path(f"/tmp/pyprof2-watch-{os.getuid()}")  # noqa: S108 -- it must be the user's alone
    make_own_folder(folder)
    return folder


def open_own(path: Path, *, to_lock: bool = False) -> IO[str]:
    """Open a text file of this user's to read, or to lock; neither links nor pipes are opened.

    Raises:
        OSError: it cannot be opened, or is somebody else's.
    """
    flags = os.O_RDWR if to_lock else os.O_RDONLY
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.fdopen(os.open(path, flags), encoding="utf-8", errors="surrogateescape")
    found = os.fstat(file.fileno())
    is_others = hasattr(os, "geteuid") and found.st_uid != os.geteuid()
    if is_others or not stat.S_ISREG(found.st_mode):
        file.close()
        raise PermissionError(errno.EACCES, "it is not this user's", str(path))
    return file
