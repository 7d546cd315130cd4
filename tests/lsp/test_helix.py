"""A real Helix on a terminal of ours: it has no lenses, and asks for hints when one moves."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.conftest import ROOT
from tests.lsp.test_neovim import offline
from tests.lsp.workspaces import workspace

if TYPE_CHECKING:
    from pathlib import Path

ROWS: Final = 30
CONFIG: Final = "[editor.lsp]\ndisplay-inlay-hints = true\n"
LANGUAGES: Final = """
[language-server.pyprof2]
command = "{python}"
args = ["-P", "-m", "pyprof2", "lsp"]
timeout = 60

[[language]]
name = "python"
language-servers = ["pyprof2"]
"""


class Terminal:
    """A program on a terminal, whose screen can be read."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        pexpect, pyte = (pytest.importorskip(n, reason=f"no {n}") for n in ("pexpect", "pyte"))

        class Screen(pyte.Screen):  # type: ignore[misc, name-defined]
            """A screen that does not answer what Helix asks of it in private sequences."""

            def report_device_status(self, *_: Any, **__: Any) -> None: ...
            def report_device_attributes(self, *_: Any, **__: Any) -> None: ...
            def select_graphic_rendition(self, *_: Any, **__: Any) -> None: ...

        self._screen = Screen(110, ROWS)
        self._stream = pyte.ByteStream(self._screen)
        self._ends = (pexpect.TIMEOUT, pexpect.EOF)
        self._child = pexpect.spawn(
            command[0], command[1:], cwd=str(folder), env=environment, dimensions=(ROWS, 110)
        )

    def send(self, keys: str) -> None:
        """Press keys."""
        self._child.send(keys)

    def wait(self, words: str, keys: str = "", patience: float = 60) -> str:
        """Return the screen as soon as it has some words; press keys while it has not."""
        end = time.monotonic() + patience
        while words not in (screen := self.read()):
            assert time.monotonic() < end, screen
            self.send(keys)
        return screen

    def read(self, seconds: float = 1) -> str:
        """Return the screen after some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                self._stream.feed(self._child.read_nonblocking(1 << 16, timeout=0.1))
            except self._ends:
                continue
        return "\n".join(row.rstrip() for row in self._screen.display)

    def close(self) -> None:
        """End the program."""
        self._child.close(force=True)


@pytest.mark.minutes
def test_helix_shows_hints_takes_the_action_and_undoes_it_at_once(tmp_path: Path) -> None:
    program = os.environ.get("PYPROF2_HELIX") or shutil.which("hx")
    if program is None:
        pytest.skip("no hx: install Helix, or name it in PYPROF2_HELIX")
    script = workspace(tmp_path / "ws")
    config = tmp_path / "config" / "helix"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(CONFIG)
    (config / "languages.toml").write_text(LANGUAGES.format(python=sys.executable))
    environment = os.environ | {
        "XDG_CONFIG_HOME": str(config.parent), "TERM": "xterm-256color", "COLORTERM": "truecolor",
        "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    terminal = Terminal([*offline(), program, script.name], script.parent, environment)
    try:
        screen = terminal.wait("0.7 ms 3 MB", keys="j")  # without a key it draws none
        assert "loss = net(x) 0.8 ms" in screen.replace("  ", " ")
        assert "batch_size: int = 32" in screen
        terminal.send("gg")
        terminal.send("j")
        terminal.read()
        terminal.send(" a")
        terminal.wait("→ 64", patience=30)
        terminal.send("\r")
        terminal.wait("batch_size: int = 64", patience=30)
        terminal.send("u")
        terminal.wait("batch_size: int = 32", patience=30)
    finally:
        terminal.close()
