"""`pyprof2 watch`: what it takes, what it refuses, and what its options become."""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyprof2.cli import main
from pyprof2.cli.watch import _duration, _instant
from pyprof2.watch.recording import (
    OnDemandRecording,
    Wanted,
    WatchSettings,
    remove_abandoned,
)
from tests.watch.jobs_of_tests import STAND_IN, running, socket_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = ["export KINETO_USE_DAEMON=1", "export KINETO_LOG_LEVEL=99"]


@pytest.fixture(autouse=True)
def sockets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Keep the daemons of these tests apart from those of the machine."""
    with socket_folder() as folder:
        monkeypatch.setenv("KINETO_IPC_SOCKET_DIR", str(folder))
        monkeypatch.chdir(tmp_path)
        yield folder


def test_variables_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("#")] == VARIABLES


@pytest.mark.skipif(sys.platform != "linux", reason="sockets of jobs are Linux's")
def test_variables_name_a_folder_of_this_user(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KINETO_IPC_SOCKET_DIR")

    assert main(["watch", "--env"]) == 0

    *others, last = capsys.readouterr().out.splitlines()
    name, _, path = last.removeprefix("export ").partition("=")
    assert (others[-2:], name) == (VARIABLES, "KINETO_IPC_SOCKET_DIR")
    found = Path(path).lstat()
    assert (found.st_uid, found.st_mode & 0o777) == (os.getuid(), 0o700)
    assert Path(path).parent == Path("/tmp")  # noqa: S108 -- the same in every session


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--keep", "3"], "--keep is how many recordings of --every are kept"),
        (["--every", "1m", "--at", "+20s"], "--at is when one recording of a duration begins"),
        (["--steps", "3", "--at", "+20s"], "--at is when one recording of a duration begins"),
        (["--duration", "11m"], "--duration can be up to 600 s"),
        (["--duration", "0s"], "--duration can be up to 600 s"),
        (["--duration", "2"], "'2' is not a time such as 500ms, 2s or 10m"),
        (["--at", "soon"], "'soon' is no instant such as +30s, 14:30:00 or 2026-11-26T14:30:00"),
        (["--name", "("], "'(' is no regular expression"),
        (["--pid", "0"], "'0' is not a number of 1 or more"),
        (["--list", "--serve"], "not allowed with argument"),
    ],
)
def test_options_without_a_meaning_are_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_folder_that_is_there_is_left(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("there", "also.pyprof2"):
        (tmp_path / name).mkdir()
    for name in ("there", "also"):
        assert main(["watch", "-o", name]) == 1
        assert "exists; name another folder with -o" in capsys.readouterr().err


def test_nobody_asks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["watch", "--list"]) == 1
    assert "no job asked within 6 s; pyprof2 watch --env" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _wait_for(pattern: str, folder: Path) -> Path:
    """Return what comes to be in a folder."""
    end = time.monotonic() + 60
    while not (found := list(folder.glob(pattern))):
        assert time.monotonic() < end
        time.sleep(0.05)
    return found[0]


@pytest.mark.parametrize(
    ("output", "given"), [("out", "out"), ("watch-20261126-080000", "there"), ("ring/1", "ring")]
)
def test_what_a_killed_daemon_left_goes_with_the_next_one(
    sockets: Path, tmp_path: Path, output: str, given: str
) -> None:
    living = OnDemandRecording(Wanted(), WatchSettings(), tmp_path / "watch-lives")
    lives = living._own_folder()
    for name in ("there", "ring"):
        (tmp_path / name).mkdir()
    (tmp_path / "ring/kept").touch()
    with running("-m", "pyprof2", "watch", "-o", output) as daemon:
        _wait_for("dynolog", sockets)
        with running("-c", STAND_IN, str(sockets), "stops"):
            own = _wait_for(f"{output}/.watch-*/*.json", tmp_path).parent
            daemon.kill()
            daemon.wait()
    (elsewhere := tmp_path / "pyprof2-watch-1_2.json").touch()
    (mine := tmp_path / "mine").touch()
    with (own / "pyprof2-watch-lock").open("a") as lock:
        lock.write(f"{elsewhere}\n{mine}\n")

    assert main(["watch", "-o", given]) == 1

    assert not (tmp_path / output).exists()
    assert not elsewhere.exists()
    assert mine.exists()
    assert lives.exists()
    living.close()


@pytest.mark.parametrize("lock", ["lock", "pyprof2-watch-lock"])
def test_what_is_not_ours_stays(tmp_path: Path, lock: str) -> None:
    (folder := tmp_path / "project" / ".watch-cache").mkdir(parents=True)
    for name in (lock, "precious.txt"):
        (folder / name).touch()

    remove_abandoned(tmp_path)

    assert (folder / "precious.txt").exists()


def test_the_lock_of_a_folder_that_others_write_is_not_read(tmp_path: Path) -> None:
    (folder := tmp_path / "project" / ".watch-x").mkdir(parents=True)
    (mine := tmp_path / "pyprof2-watch-1_2.json").touch()
    (folder / "pyprof2-watch-lock").write_text(f"{mine}\n")

    folder.chmod(0o777)
    remove_abandoned(tmp_path)
    assert mine.exists()

    folder.chmod(0o700)
    remove_abandoned(tmp_path)
    assert not mine.exists()


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("2s", 2), ("1.5m", 90), ("2h", 7200)]
)
def test_times(text: str, seconds: float) -> None:
    assert _duration(text) == seconds


def test_instants() -> None:
    now, now_zone = time.time(), datetime.now().astimezone().tzinfo
    assert 29.9 < _instant("+30s")() - now < 31
    given = datetime(2027, 1, 2, 3, 4, 5).astimezone()
    assert _instant("2027-01-02T03:04:05")() == given.timestamp()
    assert _instant("2027-01-02T03:04:05+00:00")() == 1798859045
    later = datetime.fromtimestamp(_instant("14:30:00")(), now_zone)
    assert (later.hour, later.minute, later.second) == (14, 30, 0)
    assert 0 <= later.timestamp() - now <= 86_400
