"""Jobs that ask a daemon, for tests: one that speaks the protocol, and real ones with torch."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRAINING: Final = """
import sys, time, torch
torch.set_num_threads(1)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
end = time.time() + float(sys.argv[1])
print("ready", flush=True)
while time.time() < end:
    optimizer.zero_grad()
    net(torch.ones(8, 16)).sum().backward()
    optimizer.step()
    time.sleep(0.02)
"""
"""A program that trains for some seconds."""

_LINE: Final = re.compile("^[A-Za-z]+$", re.MULTILINE)

STAND_IN: Final = """
import os, re, socket, struct, sys, time
folder, behaviour = sys.argv[1:]
own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
own.bind(f"{folder}/dynoconfigclient-{os.getpid()}")
own.settimeout(0.09)
def ask(kind):
    body = struct.pack("<iiqi", kind, 1, 0, os.getpid())
    own.sendto(struct.pack("<Q32s", len(body), b"req") + body, f"{folder}/dynolog")
    try:
        return own.recv(4096)[40:].decode()
    except TimeoutError:
        return ""
text = ""
while not text:
    text = ask(1 if behaviour == "busy" else 3)
    time.sleep(0.05)
path = re.search("ACTIVITIES_LOG_FILE=(.*)[.]json", text)[1] + f"_{os.getpid()}.json"
event = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
if behaviour != "silent":
    with open(path, "w") as file:
        file.write('{"traceEvents": [' + event)
        if behaviour == "complete":
            file.write('], "traceName": "x"}')
if behaviour not in ("complete", "dies"):
    time.sleep(60)
"""
"""A process that asks as libkineto does, every 50 ms, and then does as its argument says."""


@contextlib.contextmanager
def socket_folder() -> Iterator[Path]:
    """Give a folder for sockets, whose names have room for 108 bytes only."""
    folder = Path(tempfile.mkdtemp(prefix="w"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def running(
    *words: str, said: Path | str | None = None, **environment: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python with these arguments, and end it; what it prints is in a file, or nowhere."""
    with Path(said or os.devnull).open("w") as file:
        child = subprocess.Popen(
            [sys.executable, *words],
            env=os.environ | environment, stdout=file, stderr=file,
        )  # fmt: skip
        try:
            yield child
        finally:
            child.kill()
            child.wait()


@contextlib.contextmanager
def asking(
    *words: str, sockets: Path, said: Path, wait: Callable[[], object]
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a job that asks a daemon, once it has printed a line of its own.

    The recorder of torch 2.6 to 2.9 may end a job while it imports torch (pytorch issue 163545); it
    is started anew then.

    Args:
        words: what Python runs; its lines consist of letters.
        sockets: where the daemon answers.
        said: a file for what it prints.
        wait: called until it has printed a line.
    """
    ready = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": str(sockets)}
    for _ in range(9):
        with running(*words, said=said, **ready) as child:
            while child.poll() is None and not _LINE.search(said.read_text()):
                wait()
            if child.poll() is None:
                yield child
                return
        assert "Bad file descriptor" in said.read_text(), said.read_text()
    raise AssertionError(said.read_text())


def request(pid: int, kind: int = 3, *, count: int = 1, job: int = 0) -> bytes:
    """Return a request as libkineto sends it."""
    return datagram(b"req", struct.pack("<iiq", kind, count, job) + struct.pack("<i", pid) * count)


def datagram(kind: bytes, body: bytes, size: int | None = None) -> bytes:
    """Return a datagram, with another length than it has if one is given."""
    return struct.pack("<Q32s", len(body) if size is None else size, kind) + body


@contextlib.contextmanager
def client(folder: Path, name: str = "dynoconfigclient-1") -> Iterator[socket.socket]:
    """Give a socket that is connected to the daemon of a folder."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as own:
        own.bind(str(folder / name))
        own.settimeout(5)
        own.connect(str(folder / "dynolog"))
        yield own
