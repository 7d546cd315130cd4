"""What other users of a machine put in our way is neither read nor run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.lsp.kept import CONSENT, Choices
from pyprof2.own_files import is_own, make_own_folder, open_own
from tests.synthetic_trace import synthetic_trace

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files here")

OTHER: Final = 4001
PLANTED: Final = "json", "torch", "pyprof2", "numpy", "pyarrow", "tempfile", "argparse", "logging"


@pytest.fixture
def as_other() -> Callable[[Path], None]:
    """Return what gives a file to another user; only root can."""
    if os.geteuid():
        pytest.skip("only root gives files to others")
    return lambda path: os.chown(path, OTHER, OTHER, follow_symlinks=False)


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_another_users_is_not_own(
    kind: str, tmp_path: Path, as_other: Callable[[Path], None]
) -> None:
    path = tmp_path / "x"
    path.write_text("") if kind == "file" else path.mkdir()
    assert is_own(path)
    as_other(path)
    assert not is_own(path)


def test_a_link_is_not_own(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert not is_own(tmp_path / "link")
    assert not is_own(tmp_path / "missing")


def test_a_folder_that_others_write_is_not_made_our_own(tmp_path: Path) -> None:
    make_own_folder(tmp_path / "own" / "inside")
    assert (tmp_path / "own" / "inside").stat().st_mode & 0o777 == 0o700
    (tmp_path / "own").chmod(0o777)
    with pytest.raises(PermissionError, match="not this user's alone"):
        make_own_folder(tmp_path / "own")


@pytest.mark.parametrize("kind", ["link", "pipe", "device", "folder"])
def test_only_plain_files_are_opened(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        target = tmp_path / "target"
        target.write_text("secret")
        path.symlink_to("/dev/zero" if kind == "device" else target)
    with pytest.raises(OSError):  # noqa: PT011 - each system has its own words
        open_own(path)


def test_another_users_file_is_not_opened(tmp_path: Path, as_other: Callable[[Path], None]) -> None:
    (tmp_path / "lock").write_text("x")
    as_other(tmp_path / "lock")
    with pytest.raises(PermissionError, match="not this user's"):
        open_own(tmp_path / "lock")


@pytest.mark.parametrize("which", ["folder", "file", "writable folder"])
def test_a_consent_that_another_user_could_have_given_is_none(
    which: str, tmp_path: Path, as_other: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    choices = Choices("/home/me/net")
    choices.put(CONSENT, "python train.py")
    assert choices.get(CONSENT) == "python train.py"

    if which == "writable folder":
        choices.folder.chmod(0o777)
    else:
        as_other(choices.folder if which == "folder" else choices.folder / "kept.json")

    assert Choices("/home/me/net").get(CONSENT) is None
    if which != "file":
        with pytest.raises(PermissionError, match="not this user's alone"):
            choices.put(CONSENT, "python train.py")


STARTS: Final = """
import multiprocessing, os, sys
from pyprof2.cli import main
if __name__ == "__main__":
    multiprocessing.set_start_method(sys.argv[1])
    before = dict(os.environ)
    code = main(["parse", "-q", "--jobs", "2", *sys.argv[2:4], "-o", sys.argv[4]])
    assert dict(os.environ) == before
    sys.exit(code)
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_that_are_not_forked_run_nothing_of_the_current_folder(
    method: str, tmp_path: Path
) -> None:
    """They are what macOS and Python 3.14 start; they import modules before they have a path."""
    ran, here, own = tmp_path / "ran", tmp_path / "here", tmp_path / "own"
    here.mkdir()
    own.mkdir()
    for name in (*PLANTED, "multiprocessing", "pickle", "struct", "signal", "selectors"):
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})")
    script = own / "start.py"
    script.write_text(STARTS)
    traces = [own / f"rank{rank}.json" for rank in (0, 1)]
    for rank, trace in enumerate(traces):
        about = {"distributedInfo": {"rank": rank, "world_size": 2, "backend": "nccl"}}
        trace.write_text(json.dumps(synthetic_trace() | about))

    done = subprocess.run(
        [sys.executable, script, method, *traces, own / "job.pyprof2"],
        cwd=here, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert not ran.exists(), ran.read_text()
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_lies_in_the_current_folder_does_not_run(tmp_path: Path) -> None:
    """The observer is compiled and tested by programs that are started for it."""
    pytest.importorskip("torch")
    ran, here = tmp_path / "ran", tmp_path / "here"
    here.mkdir()
    for name in PLANTED:
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write({name!r})")
    (tmp_path / "own").mkdir()
    script = tmp_path / "own" / "train.py"
    script.write_text("import torch\nprint(torch.ones(2, 2).sum())\n")
    program = Path(sys.executable).with_name("pyprof2")

    done = subprocess.run(
        [program, "capture", "--kineto", "-o", tmp_path / "net", script],
        cwd=here, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert not ran.exists()
    assert list((tmp_path / "cache").rglob("observer-*.so"))
