"""A run that is killed leaves no half store, and the next one cleans up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent

# Parses the demo's recording, and stops for good once the first table stands in the store.
SLOW: Final = """
import time
from pathlib import Path
import pyprof2.pipeline.parsing as run

def stop(*args):
    Path("reached").touch()
    time.sleep(600)

real = run.write_table
def write(folder, name, rank, parts):
    real(folder, name, rank, parts)
    stop()

run.write_table = write
run.parse("demo.json.gz", "net.pyprof2", force=True)
"""


def _killed_parse(folder: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW], cwd=folder)
    while not (folder / "reached").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


def _parse(folder: Path) -> None:
    words = [sys.executable, "-m", "pyprof2", "parse", "-q", "--force", "demo.json.gz"]
    subprocess.run([*words, "-o", "net.pyprof2"], cwd=folder, check=True, capture_output=True)


def _place(tmp_path: Path) -> Path:
    (tmp_path / "demo.json.gz").symlink_to(ROOT / "pyprof2" / "data" / "demo.json.gz")
    return tmp_path


def test_a_killed_parse_leaves_no_store_and_the_next_one_leaves_nothing_else(
    tmp_path: Path,
) -> None:
    folder = _place(tmp_path)

    _killed_parse(folder)
    assert not (folder / "net.pyprof2").exists()
    _parse(folder)

    names = sorted(path.name for path in folder.iterdir())
    assert names == ["demo.json.gz", "net.pyprof2", "reached"]


def test_a_parse_that_is_killed_while_it_replaces_a_store_leaves_the_old_one(
    tmp_path: Path,
) -> None:
    folder = _place(tmp_path)
    _parse(folder)
    before = (folder / "net.pyprof2" / "manifest.json").read_bytes()

    _killed_parse(folder)

    assert (folder / "net.pyprof2" / "manifest.json").read_bytes() == before


# Reads the demo's recording through a temporary store, and waits in the middle of it.
WAITS: Final = """
import sys, time
from pathlib import Path
import pyprof2.pipeline.parsing as run
from pyprof2.cli import main

def wait(*args):
    Path("reached").touch()
    time.sleep(600)

run.assign_ranks = wait
sys.exit(main(["prof", "-q", "demo.json.gz"]))
"""


def test_a_terminated_run_leaves_no_temporary_folder(tmp_path: Path) -> None:
    folder, temporary = _place(tmp_path), tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = subprocess.Popen([sys.executable, "-c", WAITS], cwd=folder, env=environment)
    while not (folder / "reached").exists():
        assert process.poll() is None
        time.sleep(0.02)
    assert list(temporary.iterdir())

    process.send_signal(signal.SIGTERM)

    assert process.wait(60) == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []
