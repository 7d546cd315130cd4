"""Without a home, a compiler or space on the disk, a script does as under plain Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.slow

SCRIPT: Final = """
import sys, torch
x = torch.ones(4, 4, requires_grad=True)
(x @ x).sum().backward()
print(x.grad.sum().item())
sys.exit(3)
"""
INIT: Final = "import pyprof2\npyprof2.init()\n"
ENVIRONMENTS: Final = {
    "home is a file": {"HOME": "/dev/null"},
    "no compiler": {"PATH": "/nonexistent", "CXX": "/nonexistent", "XDG_CACHE_HOME": "{}/cache"},
    "cache that cannot be made": {"XDG_CACHE_HOME": "/dev/null/cache"},
}
FULL: Final = """
mount -t tmpfs -o size=16k none "$1" && head -c 100000 /dev/zero >"$1/filling" 2>/dev/null
shift; exec "$@"
"""


def run(folder: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing that says where caches are but what is given."""
    kept = {name: text for name, text in os.environ.items() if name != "XDG_CACHE_HOME"}
    own = {name: text.format(folder) for name, text in environment.items()}
    return subprocess.run(
        words, cwd=folder, env=kept | own, capture_output=True, text=True, check=False
    )


def capture(trace: Path) -> list[str | Path]:
    """Return the command that records the script."""
    program = Path(sys.executable).with_name("pyprof2")
    return [program, "capture", "--kineto", "-o", trace, "train.py"]


@pytest.fixture
def plain(tmp_path: Path) -> tuple[int, str]:
    """Return the code and the output of the script under plain Python, which is there."""
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run(tmp_path, sys.executable, "train.py")
    assert (done.returncode, done.stdout) == (3, "128.0\n")
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_script_is_recorded_and_ends_as_without_us(
    name: str, plain: tuple[int, str], tmp_path: Path
) -> None:
    done = run(tmp_path, *capture(tmp_path / "net"), **ENVIRONMENTS[name])

    assert (done.returncode, done.stdout) == plain, done.stderr
    assert (tmp_path / "net.json.gz").exists()
    assert "Traceback" not in done.stderr
    assert "a fault in pyprof2" not in done.stderr


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_script_that_annotates_ends_as_without_us(
    name: str, plain: tuple[int, str], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(INIT + SCRIPT)

    done = run(tmp_path, sys.executable, "train.py", **ENVIRONMENTS[name])

    assert (done.returncode, done.stdout, done.stderr) == (*plain, "")


@pytest.mark.parametrize("full", ["output", "caches"])
@pytest.mark.skipif(sys.platform != "linux", reason="its namespaces are those of Linux")
def test_a_full_disk_ends_no_script(full: str, plain: tuple[int, str], tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    words: list[str | Path] = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        FULL,
        "sh",
        disk,
    ]
    if run(tmp_path, *words, "true").returncode:
        pytest.skip("no namespaces here")
    place, cache = (disk, tmp_path) if full == "output" else (tmp_path, disk)
    variables = {"XDG_CACHE_HOME": str(cache), "HOME": str(cache)}

    done = run(tmp_path, *words, *capture(place / "net"), **variables)

    assert (done.returncode, done.stdout) == plain, done.stderr
    assert "Traceback" not in done.stderr
    if full == "output":
        assert "No space left on device: the recording is not whole" in done.stderr
    else:
        assert (tmp_path / "net.json.gz").exists()
