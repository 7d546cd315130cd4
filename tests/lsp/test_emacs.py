"""A real Emacs with its Eglot, which counts in UTF-32, and has neither lenses nor a refresh."""

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
from tests.lsp.test_neovim import offline
from tests.lsp.workspaces import CODE, workspace

OLDEST: Final = 30


def emacs() -> str:
    """Return the program; `PYPROF2_EMACS` names one that is not on the PATH."""
    path = os.environ.get("PYPROF2_EMACS") or shutil.which("emacs")
    if path is None:
        pytest.skip("no emacs: install Emacs 30 or later, or name one in PYPROF2_EMACS")
    said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"GNU Emacs (\d+)", said)
    if match is None or int(match[1]) < OLDEST:
        pytest.skip(f"{said.splitlines()[0]}: its Eglot may have no inlay hints; 30 has")
    return path


@pytest.mark.minutes
def test_emacs_shows_hints_takes_the_action_and_undoes_it_at_once(tmp_path: Path) -> None:
    program = emacs()
    script = workspace(tmp_path / "ws")
    environment = os.environ | {
        "SERVER": json.dumps([sys.executable, "-P", "-m", "pyprof2", "lsp"]),
        "PYTHONPATH": str(ROOT), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"),
    }  # fmt: skip

    done = subprocess.run(
        [*offline(), program, "-Q", "--batch", "-l", str(Path(__file__).with_name("emacs.el"))],
        cwd=script.parent, env=environment, capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip

    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    found = {row[0]: row[1:] for row in rows}
    assert "undone" in found, done.stdout + done.stderr
    assert [row[1:] for row in rows if row[0] == "drawn"] == [
        ["7", "0.7 ms 3 MB"], ["8", "0.1 ms"], ["13", "0.8 ms"],
    ]  # fmt: skip
    assert found["edited"] == [CODE.splitlines()[1].replace("32", "64")]
    assert found["undone"] == ["t"]
    assert found["encoding"] == ["utf-32"]
