"""The socket that jobs ask: what is a request, what is not, and who may ask."""

from __future__ import annotations

import os
import random
import socket
import stat
import struct
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyprof2.errors import CaptureError
from pyprof2.watch.datagrams import Endpoint
from tests.watch.jobs_of_tests import client, datagram, request, socket_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyprof2.watch.datagrams import Request

ME = os.getpid()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder of sockets."""
    with socket_folder() as found:
        yield found


@pytest.fixture
def endpoint(folder: Path) -> Iterator[Endpoint]:
    """Give a socket that jobs of this test ask."""
    found = Endpoint(folder)
    yield found
    found.close()


def _received(endpoint: Endpoint) -> list[Request]:
    """Return all requests that came."""
    found: list[Request] = []
    while True:
        try:
            asked = endpoint.receive()
        except BlockingIOError:
            return found
        if asked is not None:
            found.append(asked)


def test_request_is_understood_and_answered(endpoint: Endpoint, folder: Path) -> None:
    with client(folder) as job:
        job.send(request(ME, kind=3, count=3, job=77))
        (asked,) = _received(endpoint)

        assert (asked.pid, asked.own_pid, asked.job, asked.is_idle) == (ME, ME, 77, True)
        assert endpoint.answer(asked, "A=1\n")
        assert job.recv(1000) == datagram(b"req", b"A=1\n")


@pytest.mark.parametrize(("kind", "is_idle"), [(1, False), (2, True), (3, True)])
def test_job_that_records_asks_for_events_only(
    endpoint: Endpoint, folder: Path, kind: int, *, is_idle: bool
) -> None:
    with client(folder) as job:
        job.send(request(ME, kind))
        assert [asked.is_idle for asked in _received(endpoint)] == [is_idle]


def test_registration_is_answered_with_a_count(endpoint: Endpoint, folder: Path) -> None:
    with client(folder) as job:
        job.send(datagram(b"ctxt", struct.pack("<iiq", 0, ME, 0)))
        assert _received(endpoint) == []
        assert job.recv(1000) == datagram(b"ctxt", struct.pack("<i", 1))


HOSTILE = {
    "empty": b"",
    "header cut off": request(ME)[:39],
    "shorter than it says": datagram(b"req", request(ME)[40:], 60),
    "longer than it says": datagram(b"req", request(ME)[40:], 16),
    "a length of 2**64 - 1": datagram(b"req", request(ME)[40:], (1 << 64) - 1),
    "another type": datagram(b"data", request(ME)[40:]),
    "no type": datagram(b"", request(ME)[40:]),
    "no pids": datagram(b"req", struct.pack("<iiq", 3, 0, 0)),
    "as many pids as fit in no datagram": datagram(
        b"req", struct.pack("<iiqi", 3, (1 << 31) - 1, 0, ME)
    ),
    "a negative number of pids": datagram(b"req", struct.pack("<iiqi", 3, -1, 0, ME)),
    "pid 0": request(0),
    "a negative pid": request(-ME),
    "the pid of another": request(1),
    "longer than any request": request(ME, count=1025),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_datagram_is_dropped(endpoint: Endpoint, folder: Path, name: str) -> None:
    with client(folder) as job:
        job.send(HOSTILE[name])
        assert _received(endpoint) == []
        assert endpoint.dropped == 1

        job.send(request(ME))
        assert len(_received(endpoint)) == 1


@pytest.mark.parametrize("name", ["someone", "dynolog2"])
def test_nothing_but_a_job_is_answered(endpoint: Endpoint, folder: Path, name: str) -> None:
    with client(folder, name) as other:
        other.send(request(ME))
        assert _received(endpoint) == []


def test_sender_without_a_name_is_dropped(endpoint: Endpoint, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(request(ME), str(folder / "dynolog"))
    assert _received(endpoint) == []


def test_job_that_reads_no_answers_is_not_waited_for(endpoint: Endpoint, folder: Path) -> None:
    with client(folder) as job:
        job.send(request(ME))
        (asked,) = _received(endpoint)
        sent = [endpoint.answer(asked, "x" * 1000) for _ in range(1000)]
    assert (sent[0], sent[-1]) == (True, False)
    assert not endpoint.answer(asked, "the job has ended")


def _flood(endpoint: Endpoint, folder: Path, count: int) -> None:
    """Send random datagrams, damaged requests among them; a true one is answered afterwards."""
    chance = random.Random(34)  # noqa: S311 - the same each time
    good = request(ME, count=2)
    with client(folder) as job:
        for _ in range(count):
            if chance.random() < 0.5:
                data = bytearray(good)
                for _ in range(chance.randint(1, 4)):
                    data[chance.randrange(len(data))] = chance.randrange(256)
                data = data[: chance.randint(0, len(data))] if chance.random() < 0.3 else data
            else:
                data = bytearray(chance.randbytes(chance.randint(0, 200)))
            job.send(data)
            for asked in _received(endpoint):
                assert asked.own_pid == ME == asked.pid
        job.send(good)
        assert len(_received(endpoint)) == 1


def test_flood_of_random_datagrams(endpoint: Endpoint, folder: Path) -> None:
    _flood(endpoint, folder, 5_000)


@pytest.mark.release
def test_long_flood_of_random_datagrams(endpoint: Endpoint, folder: Path) -> None:
    _flood(endpoint, folder, 100_000)


@pytest.mark.skipif(os.getuid() != 0, reason="needs the rights to become another user")
def test_other_user_is_refused(endpoint: Endpoint, folder: Path) -> None:
    """The kernel says who sends: a process of another user that may write to the socket."""
    folder.chmod(0o777)
    (folder / "dynolog").chmod(0o666)
    code = (
        "import os, socket, sys\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        f"own.bind('{folder}/dynoconfigclient-x')\n"
        f"own.sendto({request(ME)!r}, '{folder}/dynolog')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

    assert _received(endpoint) == []
    assert endpoint.refused == {65534}


def test_socket_is_this_users_alone_and_goes(folder: Path) -> None:
    endpoint = Endpoint(folder)
    assert stat.S_IMODE((folder / "dynolog").stat().st_mode) == 0o600
    endpoint.close()
    assert list(folder.iterdir()) == []


def test_name_that_is_taken_is_refused_with_its_process(endpoint: Endpoint, folder: Path) -> None:
    assert endpoint.fileno() >= 0
    with pytest.raises(CaptureError, match=rf"which process {ME} has: .*python"):
        Endpoint(folder)


def test_socket_of_a_killed_daemon_is_replaced(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind(str(folder / "dynolog"))
    Endpoint(folder).close()


def test_file_in_the_place_of_the_socket_is_left(folder: Path) -> None:
    (folder / "dynolog").write_text("mine")
    with pytest.raises(CaptureError, match="cannot be had: Address already in use"):
        Endpoint(folder)
    assert (folder / "dynolog").read_text() == "mine"
