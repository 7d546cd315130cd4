"""What other users of a machine put in our way is neither read nor run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from pyprof2.own_files import is_own, make_own_folder, open_own

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
