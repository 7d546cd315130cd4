"""A real Neovim, without a window, in a namespace without a network where that can be made."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT
from tests.lsp.workspaces import CODE, workspace

OLDEST: Final = (0, 10)
"""The first version that has inlay hints."""
TRAINING: Final = '''"""A network that trains, and waits, in lines of its own."""
batch_size = 32

import torch

network = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
torch.set_num_threads(1)
for _ in range(3):
    x = torch.randn(batch_size, 64)
    large = torch.randn(1000, 1000) @ torch.randn(1000, 1000)  # slow
    y = x + 1  # fast
    network(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
'''
"""Has a line that multiplies matrices of a thousand rows: 2 GFLOP, at 1 TFLOP/s 2 ms."""
MULTIPLIED_MS: Final = 2.0
_OFFLINE: Final = ("unshare", "-n", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")


def neovim() -> str:
    """Return the program; `PYPROF2_NVIM` names one that is not on the PATH."""
    path = os.environ.get("PYPROF2_NVIM") or shutil.which("nvim")
    if path is None:
        pytest.skip("no nvim: install Neovim 0.10 or later, or name one in PYPROF2_NVIM")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"NVIM v(\d+)\.(\d+)", said)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        pytest.skip(f"{said.splitlines()[0]} has no inlay hints; 0.10 or later has")
    return path


def offline() -> list[str]:
    """Return what starts a program with no network but loopback; nothing where that is denied."""
    try:
        subprocess.run([*_OFFLINE, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return []
    return list(_OFFLINE)


def driven(program: str, script: Path, home: Path) -> list[list[str]]:
    """Return what `neovim.lua` prints of a script, in rows of words."""
    environment = os.environ | {
        "SERVER": json.dumps([sys.executable, "-P", "-m", "pyprof2", "lsp"]),
        "PYTHONPATH": str(ROOT), "HOME": str(home), "XDG_STATE_HOME": str(home / "state"),
    }  # fmt: skip
    drive = str(Path(__file__).with_name("neovim.lua"))
    done = subprocess.run(
        [*offline(), program, "--headless", "-u", drive, script.name],
        cwd=script.parent, env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    assert "failed" not in [row[0] for row in rows], rows
    return rows


@pytest.mark.minutes
def test_neovim_shows_hints_takes_the_action_and_undoes_it_at_once(tmp_path: Path) -> None:
    program = neovim()

    rows = driven(program, workspace(tmp_path / "ws"), tmp_path)

    found = {row[0]: row[1:] for row in rows}
    # The column is one of bytes: an emoji is four.
    assert [row[1:] for row in rows if row[0] == "drawn"] == [
        ["7", str(len("        y = self.up(x)  # 😀".encode())), "0.7 ms 3 MB"],
        ["8", "27", "0.1 ms"],
        ["13", "21", "0.8 ms"],
    ]
    assert found["lenses"] == ["4"]
    assert found["edited"] == [CODE.splitlines()[1].replace("32", "64")]
    assert found["command"] == ["true", CODE.splitlines()[1].replace("32", "96")]
    assert [row[1] for row in rows if row[0] == "undone"] == ["true", "true"]


@pytest.mark.minutes
def test_neovim_shows_what_was_recorded_on_the_spot(tmp_path: Path) -> None:
    program = neovim()
    script = tmp_path / "ws" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAINING)
    for words in (["capture", "-q", "--kineto", "-o", "net.json.gz", "train.py"],
                  ["parse", "-q", "net.json.gz", "-o", "net.pyprof2"]):  # fmt: skip
        subprocess.run(
            [sys.executable, "-P", "-m", "pyprof2", *words],
            cwd=script.parent, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True,
        )  # fmt: skip

    rows = driven(program, script, tmp_path)

    found = {row[0]: row[1:] for row in rows}
    hints = {int(row[1]): row[3] for row in rows if row[0] == "drawn"}
    lines = TRAINING.splitlines()
    slow, fast = (1 + next(at for at, text in enumerate(lines) if word in text)
                  for word in ("# slow", "# fast"))  # fmt: skip
    assert float(hints[slow].split()[0]) >= MULTIPLIED_MS
    assert fast not in hints
    assert found["edited"] == [lines[1].replace("32", "64")]
    assert [row[1] for row in rows if row[0] == "undone"] == ["true", "true"]
