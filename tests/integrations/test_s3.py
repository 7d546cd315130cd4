"""Recordings and stores in S3, of a real server on this machine: its client, errors and all."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from tests.builders import mm_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

moto = pytest.importorskip("moto.server", reason="no moto")
s3fs = pytest.importorskip("s3fs", reason="no s3fs")

TRACE = json.dumps(mm_trace()).encode()
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Return the address of a server of S3."""
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the files of the server, which the environment names, with an empty bucket `runs`."""
    for name, value in {
        "AWS_ENDPOINT_URL": server, "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    if files.exists("runs"):
        files.rm("runs", recursive=True)
    files.mkdir("runs")
    return files


def test_a_recording_in_s3_becomes_a_store_in_s3_that_is_read(
    bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.pipe({"runs/job/rank-0.json": TRACE, "runs/job/rank-1.json": TRACE})

    assert main(["parse", "-q", "s3://runs/job", "-o", "s3://runs/stores/job.pyprof2"]) == 0
    assert capsys.readouterr().out == "s3://runs/stores/job.pyprof2\n"
    words = ["prof", "-q", "s3://runs/stores/job.pyprof2", "--csv", "-c", "rank,op,dur_ns"]
    assert main([*words]) == 0

    assert capsys.readouterr().out.splitlines() == [
        '"rank","op","dur_ns"', '0,"aten::mm",40000', '1,"aten::mm",40000',
    ]  # fmt: skip
    assert main([*words, "-o", "s3://runs/job.csv"]) == 0
    assert bucket.cat("runs/job.csv").startswith(b'"rank","op","dur_ns"')


def test_a_store_in_s3_is_replaced_when_asked(
    bucket: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.pipe("runs/net.json", TRACE)
    words = ["parse", "-q", "s3://runs/net.json", "-o", "s3://runs/net.pyprof2"]

    assert [main(words), main(words), main([*words, "--force"])] == [0, 1, 0]

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pyprof2: s3://runs/net.pyprof2: exists; give another name")


def error_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line that a command fails with."""
    assert main(words) == 1
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_what_is_not_in_s3_is_one_line(bucket: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert bucket.exists("runs")

    assert error_of(["prof", "s3://runs/none.json"], capsys) == (
        "pyprof2: s3://runs/none.json: nothing is there; look at the address"
    )
    assert "s3://absent/none.json: nothing is there" in error_of(
        ["prof", "s3://absent/none.json"], capsys
    )


def test_without_rights_it_is_one_line(bucket: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from moto.core import set_initial_no_auth_action_count

    bucket.pipe("runs/net.json", TRACE)
    s3fs.S3FileSystem.clear_instance_cache()

    refused: Callable[..., str] = set_initial_no_auth_action_count(0)(error_of)
    for words in (
        ["prof", "s3://runs/net.json"],
        ["parse", "s3://runs/net.json", "-o", "s3://runs/net.pyprof2"],
    ):
        line = refused(words, capsys)
        assert "s3://runs/net" in line
        assert "no rights" in line
        assert "secret" not in line


def test_a_server_that_is_not_there_is_one_line(
    bucket: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bucket.exists("runs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    s3fs.S3FileSystem.clear_instance_cache()

    line = error_of(["prof", "s3://runs/net.json"], capsys)

    assert line.startswith("pyprof2: s3://runs/net.json: no connection (")


def test_a_connection_that_breaks_is_one_line_and_leaves_no_store(
    bucket: Any, server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server between ends what is sent to it as soon as the first table comes."""
    bucket.pipe("runs/net.json", TRACE)
    host, _, port = server.removeprefix("http://").partition(":")

    class Breaking(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection((host, int(port))) as up:
                # An answer may come in several parts.
                threading.Thread(target=self.answer, args=[up], daemon=True).start()
                while data := self.request.recv(1 << 20):
                    if data.startswith(b"PUT"):
                        break
                    up.sendall(data)
                with contextlib.suppress(OSError):
                    up.shutdown(socket.SHUT_RDWR)

        def answer(self, up: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := up.recv(1 << 20):
                    self.request.sendall(data)

    class Between(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Between(("127.0.0.1", 0), Breaking) as between:
        threading.Thread(target=between.serve_forever, daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{between.server_address[1]}")
        s3fs.S3FileSystem.clear_instance_cache()
        line = error_of(["parse", "s3://runs/net.json", "-o", "s3://runs/net.pyprof2"], capsys)
        between.shutdown()

    assert line.startswith("pyprof2: s3://runs/net.pyprof2: no connection (")
    assert not bucket.exists("runs/net.pyprof2/manifest.json")
