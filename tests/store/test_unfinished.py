"""A name is written by one living process at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from pyprof2.store import unfinished as claims
from pyprof2.store.unfinished import claimed_path

ROOT: Final = Path(__file__).resolve().parents[2]
HOLD: Final = """
import sys
from pathlib import Path
from pyprof2.store.unfinished import claimed_path
with claimed_path(Path(sys.argv[1])) as path:
    print(path.name, flush=True)
    sys.stdin.read()
"""


def _hold(path: Path) -> subprocess.Popen[str]:
    """Start a process that claims a path until it is told to end; what it prints is its name."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_the_second_process_adds_its_id_and_what_ends_gives_the_name_back(tmp_path: Path) -> None:
    with _hold(tmp_path / "mq") as first, _hold(tmp_path / "other") as third:
        assert first.stdout is not None
        assert first.stdout.readline() == "mq\n"
        with _hold(tmp_path / "mq") as second:
            assert second.stdout is not None
            assert second.stdout.readline() == f"mq-pid{second.pid}\n"
            second.communicate()
        assert third.stdout is not None
        assert third.stdout.readline() == "other\n"
        for process in (first, third):
            process.communicate()

    assert not list(tmp_path.iterdir())
    with claimed_path(tmp_path / "mq") as path:
        assert path == tmp_path / "mq"


def test_what_a_killed_process_left_is_no_claim(tmp_path: Path) -> None:
    with _hold(tmp_path / "mq") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    assert [path.name for path in tmp_path.iterdir()] == [".mq.claim"]

    with claimed_path(tmp_path / "mq") as path:
        assert path == tmp_path / "mq"
    assert not list(tmp_path.iterdir())


def test_several_claims_of_one_process_have_names_of_their_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        names = [stack.enter_context(claimed_path(tmp_path / "mq")).name for _ in range(3)]

    assert names == ["mq", f"mq-pid{os.getpid()}", f"mq-pid{os.getpid()}-1"]


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / ".mq.claim").symlink_to(tmp_path / "theirs")

    with claimed_path(tmp_path / "mq") as path:
        assert path == tmp_path / f"mq-pid{os.getpid()}"
    assert not (tmp_path / "theirs").exists()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), claimed_path(tmp_path / "gone" / "mq"):
        pass


def test_a_file_removed_by_its_holder_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder ends between our opening of the file and our lock on it."""
    opened, mark = os.open, tmp_path / ".mq.claim"
    removals = iter([True, False])

    def open_and_lose(path: Path, flags: int, mode: int) -> int:
        file = opened(path, flags, mode)
        if next(removals):
            mark.unlink()
        return file

    monkeypatch.setattr(os, "open", open_and_lose)
    with claimed_path(tmp_path / "mq") as path:
        assert (path, mark.exists()) == (tmp_path / "mq", True)


def test_where_there_are_no_locks_the_file_itself_is_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows, where an open file cannot be removed."""
    monkeypatch.setattr(claims, "_locks", lambda: None)
    with claimed_path(tmp_path / "mq") as path:
        assert path == tmp_path / "mq"
        monkeypatch.setattr(Path, "unlink", lambda *_args, **_: None)
        with claimed_path(tmp_path / "mq") as other:
            assert other == tmp_path / f"mq-pid{os.getpid()}"


def test_an_error_names_the_file_that_the_user_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr("os.open", refuse)

    with pytest.raises(OSError, match="Read-only") as caught, claimed_path(tmp_path / "net"):
        pass
    assert caught.value.filename == str(tmp_path / "net")
