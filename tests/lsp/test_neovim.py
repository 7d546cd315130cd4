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


@pytest.mark.minutes
def test_neovim_shows_hints_takes_the_action_and_undoes_it_at_once(tmp_path: Path) -> None:
    program = neovim()
    script = workspace(tmp_path / "ws")
    server = [sys.executable, "-P", "-m", "pyprof2", "lsp"]
    environment = os.environ | {
        "SERVER": json.dumps(server), "PYTHONPATH": str(ROOT), "HOME": str(tmp_path),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip
    drive = str(Path(__file__).with_name("neovim.lua"))

    done = subprocess.run(
        [*offline(), program, "--headless", "-u", drive, script.name],
        cwd=script.parent, env=environment, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip

    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    found = {row[0]: row[1:] for row in rows}
    assert "failed" not in found, found
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
