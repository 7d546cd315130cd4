"""The datagrams between a job and its daemon: libkineto's protocol of recording on demand.

A job that was started with `KINETO_USE_DAEMON=1` sends a request every five seconds to the socket
named `dynolog`, and waits 50 ms or 90 ms for the answer: a configuration as text, or nothing. An
answer that comes later is taken for that to its next request, and so on for ever. Each datagram
is a header, the length of the rest and a type of 32 bytes, and the rest, little-endian.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyprof2.errors import CaptureError, say
from pyprof2.own_files import SOCKET_DIR, socket_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME: Final = "dynolog"
_CLIENT: Final = "dynoconfigclient"
_HEADER: Final = struct.Struct("<Q32s")
_REQUEST: Final = struct.Struct("<iiq")
_CONTEXT: Final = struct.Struct("<iiq")
_CREDENTIALS: Final = struct.Struct("3i")
_TIME: Final = struct.Struct("@ll")
_SO_TIMESTAMP: Final = 29
"""The kernel says when it took a datagram: Python has no name for that."""
_MOST_PIDS: Final = 1024
_LONGEST: Final = _HEADER.size + _REQUEST.size + 4 * _MOST_PIDS
_ACTIVITIES: Final = 2
_OWN_PIDS: Final = Path("/proc/self/ns/pid")


class Request(NamedTuple):
    """A request.

    Attributes:
        pid: of who sent it, as the kernel says it, in this process's namespace.
        own_pid: as the job itself has it; another one in a container.
        job: the number that its scheduler gave it; 0: none.
        is_idle: whether it would record; not while it records.
        address: where the answer goes.
        sent: when, in seconds since the epoch.
    """

    pid: int
    own_pid: int
    job: int
    is_idle: bool
    address: str | bytes
    sent: float


class Endpoint:
    """The socket that jobs ask.

    Attributes:
        refused: users other than ours whose datagrams came, by number.
        dropped: how many datagrams were not requests.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Bind the name.

        Args:
            folder: of the sockets; without one they have abstract names, of this network namespace.

        Raises:
            CaptureError: another process has it.
        """
        self.folder = folder
        self.refused: set[int] = set()
        self.dropped = 0
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.socket.settimeout(0)
        for option in (socket.SO_PASSCRED, _SO_TIMESTAMP):
            self.socket.setsockopt(socket.SOL_SOCKET, option, 1)
        self._path = None if self.folder is None else self.folder / _NAME
        try:
            self._bind()
        except OSError as error:
            self.socket.close()
            msg = f"jobs ask at {self._shown()}, which cannot be had: {error.strerror}"
            if (pid := _holder(self._path)) is not None:
                msg = f"jobs ask at {self._shown()}, which process {pid} has: {_command(pid)}"
            elif self._path is None and error.errno == errno.EADDRINUSE:
                msg = f"jobs ask at {self._shown()}, which another user or a container has"
            raise CaptureError(msg) from error

    def _bind(self) -> None:
        if self._path is None:
            self.socket.bind(f"\0{_NAME}\0")
            return
        # libkineto leaves the socket of each job behind.
        for path in (self._path, *self._path.parent.glob(f"{_CLIENT}*")):
            if _is_abandoned(path):
                path.unlink(missing_ok=True)
        self.socket.bind(str(self._path))
        self._path.chmod(0o600)

    def _shown(self) -> str:
        return f"the socket {_NAME}" if self._path is None else str(self._path)

    def fileno(self) -> int:
        """Return the descriptor, to wait for datagrams."""
        return self.socket.fileno()

    def close(self) -> None:
        """Give the name up."""
        self.socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def receive(self) -> Request | None:
        """Return the next request; None: what came was none, or there is nothing.

        Raises:
            BlockingIOError: no datagram is there.
        """
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_TIME.size)
        data, extra, flags, address = self.socket.recvmsg(_LONGEST + 1, space)
        pid, user, sent = _sender(extra)
        if user != os.getuid():
            if user is not None and len(self.refused) < _MOST_PIDS:
                self.refused.add(user)
            return None
        asked = None
        if not flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC) and self._is_client(address):
            asked = self._parsed(data, pid, address, sent)
        self.dropped += asked is None
        return asked

    def _parsed(self, data: bytes, pid: int, address: str | bytes, sent: float) -> Request | None:
        size, kind = _HEADER.unpack_from(data.ljust(_HEADER.size, b"\0"))
        body = data[_HEADER.size :]
        name = kind.rstrip(b"\0")
        if name == b"ctxt" and size == len(body) == _CONTEXT.size:
            # It names the process once more; what it wants back is how many there are.
            self._send("ctxt", struct.pack("<i", 1), address)
        if name != b"req" or not _REQUEST.size < size == len(body):
            return None
        wants, count, job = _REQUEST.unpack_from(body)
        if not 0 < count <= _MOST_PIDS or size != _REQUEST.size + 4 * count:
            return None
        (own,) = struct.unpack_from("<i", body, _REQUEST.size)
        if own <= 0 or (own != pid and _is_in_our_namespace(pid)):
            return None
        return Request(pid, own, job, bool(wants & _ACTIVITIES), address, sent)

    def _is_client(self, address: str | bytes | None) -> bool:
        """Return whether a job listens there: nothing else is ever sent to."""
        if isinstance(address, bytes):
            return self._path is None and address.startswith(b"\0" + _CLIENT.encode())
        if not address or self.folder is None:
            return False
        path = Path(address)
        return path.parent == self.folder and path.name.startswith(_CLIENT)

    def answer(self, asked: Request, configuration: str = "") -> bool:
        """Answer a request, and return whether it could be sent; empty: there is nothing to do."""
        return self._send("req", configuration.encode(), asked.address)

    def _send(self, kind: str, body: bytes, address: str | bytes) -> bool:
        datagram = _HEADER.pack(len(body), kind.encode()) + body
        # A job that ended, or one that does not read its answers, is not waited for.
        with contextlib.suppress(OSError):
            return self.socket.sendto(datagram, socket.MSG_DONTWAIT, address) == len(datagram)
        return False


def endpoints() -> list[Endpoint]:
    """Return the sockets that jobs of this user ask, as the variables say that they were given.

    Without `KINETO_IPC_SOCKET_DIR` there are two: the one in this user's folder, and the one with
    the name that jobs without that variable ask, which is anybody's to take.

    Raises:
        CaptureError, OSError: another process has the first.
    """
    if named := os.environ.get(SOCKET_DIR):
        return [Endpoint(Path(named))]
    found = [Endpoint(socket_folder())]
    try:
        found.append(Endpoint())
    except CaptureError as error:
        say(f"{error}; it answers jobs without {SOCKET_DIR}, which pyprof2 watch --env sets")
    return found


def _sender(extra: Sequence[tuple[int, int, bytes]]) -> tuple[int, int | None, float]:
    """Return the process and the user that the kernel says sent a datagram, and when."""
    pid, user, sent = 0, None, 0.0
    for level, kind, data in extra:
        if level != socket.SOL_SOCKET:
            continue
        if kind == socket.SCM_CREDENTIALS and len(data) == _CREDENTIALS.size:
            pid, user, _ = _CREDENTIALS.unpack(data)
        elif kind == _SO_TIMESTAMP and len(data) == _TIME.size:
            seconds, microseconds = _TIME.unpack(data)
            sent = seconds + microseconds / 1e6
    return pid, user, sent


def _is_in_our_namespace(pid: int) -> bool:
    """Return whether a process has the numbers of processes that this one has."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == _OWN_PIDS.readlink()
    except OSError:
        return True


def _is_abandoned(path: Path) -> bool:
    """Return whether a socket of this user is left of a process that ended."""
    try:
        found = path.lstat()
        if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.getuid():
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _holder(path: Path | None) -> int | None:
    """Return the process that has the name bound, as far as this user may know it."""
    name = f"@{_NAME}@" if path is None else str(path)
    try:
        rows = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    inodes = {row.split()[6] for row in rows if row.endswith(f" {name}")}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            if str(link.readlink())[len("socket:[") : -1] in inodes:
                return int(link.parts[2])
    return None


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if text := b" ".join(words).decode(errors="replace").strip():
            return text
    return "stop it"
