"""code-server for tests: a real VS Code, whose extension host runs what a test asks for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.conftest import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

EXTENSION: Final = ROOT / "editors" / "vscode" / "pyprof2.vsix"
_DRIVER: Final = Path(__file__).parent / "driver"
_PATIENCE: Final = 120.0
_OPTIONS: Final = ("--auth", "none", "--disable-telemetry", "--disable-update-check")


class CodeServer:
    """One that runs, with a workspace.

    Attributes:
        folder: for all that it writes.
        workspace: what it has open.
        page: its page in a browser, once it is open.
        hosts: what the page asked for anything, beside the server.
    """

    page: Page

    def __init__(
        self, program: Path, extensions: Path, folder: Path, workspace: Path, **settings: Any
    ) -> None:
        """Prepare one with extensions that are installed; settings are those of the user."""
        self.folder, self.workspace = folder, workspace
        self.hosts: set[str] = set()
        self._asked = 0
        self._driver = folder / "driver"
        self._driver.mkdir(parents=True)
        self._command = _command(program, folder, extensions)
        chosen = folder / "data" / "User" / "settings.json"
        chosen.parent.mkdir(parents=True, exist_ok=True)
        chosen.write_text(json.dumps(_QUIET | settings))

    def _environment(self) -> dict[str, str]:
        return _own(self.folder) | {"PYPROF2_DRIVER": str(self._driver)}

    def start(self, browser: Browser, *, trusted: bool) -> None:
        """Serve the workspace, and open it in a browser."""
        trust = ["--disable-workspace-trust"] if trusted else []
        socket = ["--bind-addr", "127.0.0.1:0"]
        with (self.folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command, *trust, *socket, str(self.workspace)],
                env=self._environment(), stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        address = wait(self._address)
        self.page = browser.new_context(viewport={"width": 1400, "height": 800}).new_page()
        self.page.on("request", lambda request: self.hosts.add(_host(request.url)))
        self.page.goto(f"{address}/?folder={self.workspace}")
        self.page.wait_for_selector(".monaco-workbench", timeout=1000 * _PATIENCE)

    def _address(self) -> str | None:
        said = (self.folder / "log").read_text(errors="replace")
        _, found, rest = said.partition("HTTP server listening on ")
        return rest.split()[0].rstrip("/") if found and rest.split() else None

    def run(self, program: str, **given: Any) -> Any:
        """Return what JavaScript returns in the extension host, with `vscode` and what is given."""
        names = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in given.items())
        path = self._driver / f"{self._asked}.js"
        path.with_suffix(".part").write_text(f"{names}{_HELP}{program}", encoding="utf-8")
        path.with_suffix(".part").rename(path)
        self._asked += 1
        answer = wait(lambda: path.with_suffix(".json").exists() and path.with_suffix(".json"))
        found = json.loads(answer.read_text(encoding="utf-8"))
        assert "error" not in found, found["error"]
        return found["value"]

    def press(self, command: str) -> None:
        """Run a command by the palette, as a user does."""
        page = self.page
        page.keyboard.press("F1")
        box = page.locator(".quick-input-widget input").first
        box.wait_for(state="visible")
        box.fill(f">{command}")
        page.locator(".quick-input-list .monaco-list-row").first.wait_for()
        page.wait_for_timeout(500)
        page.keyboard.press("Enter")

    def stop(self) -> None:
        """End it, with all that it started."""
        if hasattr(self, "page"):
            self.page.context.close()
        if hasattr(self, "_process"):
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait(30)


_HELP: Final = """
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const until = async (found, patience = 90000) => {
  for (const end = Date.now() + patience; Date.now() < end; await sleep(200)) {
    const result = await found();
    if (result && result.length !== 0) return result;
  }
  throw new Error(`not in time: ${found}`);
};
const run = vscode.commands.executeCommand;
const whole = new vscode.Range(0, 0, 9999, 0);
const hints = async (uri) =>
  ((await run("vscode.executeInlayHintProvider", uri, whole)) ?? []).map(
    ({ position, label }) => [position.line, position.character, label]);
"""
"""What programs of tests can say."""
_QUIET: Final = {
    "workbench.startupEditor": "none", "security.workspace.trust.startupPrompt": "never",
    "extensions.ignoreRecommendations": True, "workbench.tips.enabled": False,
    "window.restoreWindows": "none", "git.enabled": False, "files.autoSave": "off",
    "chat.commandCenter.enabled": False, "workbench.secondarySideBar.defaultVisibility": "hidden",
    "pyprof2.interpreter": sys.executable,
}  # fmt: skip
"""Settings of the user without which windows of others stand in the way."""


def install(program: Path, folder: Path) -> Path:
    """Return the folder of our extension and the driver, installed; servers can share it."""
    folder.mkdir(exist_ok=True)
    extensions = folder / "extensions"
    packed = (EXTENSION, _packed(_DRIVER, folder / "driver.vsix"))
    wanted = [word for path in packed for word in ("--install-extension", str(path))]
    subprocess.run(
        [*_command(program, folder, extensions), *wanted],
        env=_own(folder), check=True, capture_output=True,
    )  # fmt: skip
    return extensions


def _command(program: Path, folder: Path, extensions: Path) -> list[str]:
    return [
        str(program / "node"), str(program / "entry.js"),
        "--config", str(folder / "config.yaml"), "--user-data-dir", str(folder / "data"),
        "--extensions-dir", str(extensions), *_OPTIONS,
    ]  # fmt: skip


def _own(folder: Path) -> dict[str, str]:
    return os.environ | {
        # Without it extensions are looked for in the net.
        "EXTENSIONS_GALLERY": "{}",
        "HOME": str(folder),
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONPATH": str(ROOT),
    }


def _packed(folder: Path, path: Path) -> Path:
    """Return an extension in the form that can be installed; it needs no more than its files."""
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"extension/{file.name}")
    return path


def _host(url: str) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts.hostname or parts.scheme


def wait(found: Any, patience: float = _PATIENCE) -> Any:
    """Return what is found as soon as it is something."""
    end = time.monotonic() + patience
    while not (result := found()):
        assert time.monotonic() < end, f"not within {patience} s"
        time.sleep(0.1)
    return result
