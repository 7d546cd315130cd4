"""A real VS Code with our extension; skipped where `make test-vscode` did not install them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

    from tests.vscode.code_server import CodeServer


def _program() -> Path:
    """Return the folder of code-server; skip where it is not."""
    named = os.environ.get("PYPROF2_CODE_SERVER")
    if not named:
        pytest.skip("make test-vscode installs code-server, and runs this")
    folder = Path(named)
    if not (folder / "ready").exists():
        why = folder / "failed"
        pytest.skip(f"no code-server: {why.read_text().strip() if why.exists() else 'not there'}")
    return folder


@pytest.fixture(scope="session")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of our extension and the driver, which are installed once."""
    from tests.vscode.code_server import EXTENSION, install

    program = _program()
    if not EXTENSION.exists():
        pytest.skip("no extension: make vscode")
    return install(program, tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def code_server(
    chromium: Browser, extensions: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., CodeServer]]:
    """Return a function that starts VS Code with a workspace; all are ended."""
    from tests.vscode.code_server import CodeServer

    servers: list[CodeServer] = []

    def started(workspace: Path, *, trusted: bool = True, **settings: Any) -> CodeServer:
        folder = tmp_path_factory.mktemp("code-server")
        servers.append(CodeServer(_program(), extensions, folder, workspace, **settings))
        servers[-1].start(chromium, trusted=trusted)
        return servers[-1]

    yield started
    for server in servers:
        server.stop()
