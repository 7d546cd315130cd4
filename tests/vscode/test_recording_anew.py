"""Recording anew, clicked through: trust, then consent, then progress, cancel, and numbers.

What runs is a real program with torch, under the server's own interpreter and `pyprof2 capture`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.lsp.editor import processes_of
from tests.vscode.code_server import wait
from tests.vscode.test_extension import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Locator

    from tests.vscode.code_server import CodeServer

CODE = '''"""Trains, and where it is told to goes on for ever, with a child in the background."""
import os
import subprocess
import torch

net = torch.nn.Linear(512, 512)
for _ in range(3):
    net(torch.randn(256, 512)).sum().backward()
print("trained 3 times", flush=True)
if os.path.exists("forever"):
    subprocess.Popen(["sleep", "98763"])
    subprocess.run(["sleep", "98762"])
'''
SLEEPS = ("sleep\x0098763", "sleep\x0098762")


def said(code: CodeServer, text: str) -> Locator:
    """Return a message that is shown, once it is."""
    found = code.page.locator(".notification-list-item", has_text=text).first
    found.wait_for(timeout=90_000)
    return found


def click(message: Locator, button: str) -> None:
    message.get_by_role("button", name=button, exact=True).click()
    message.wait_for(state="hidden")


def running() -> list[int]:
    return [pid for command in SLEEPS for pid in processes_of(command)]


def servers(code: CodeServer) -> set[int]:
    return {*processes_of("pyprof2\x00lsp")} & {*processes_of(str(code.folder))}


def trust(code: CodeServer) -> None:
    """Trust the workspace, and wait for the server that is told so."""
    offered = 'return (await vscode.commands.getCommands(true)).includes("pyprof2.profile");'
    wait(lambda: code.run(offered))
    before = servers(code)
    code.press("Workspaces: Manage Workspace Trust")
    code.page.get_by_role("button", name="Trust", exact=True).first.click()
    wait(lambda: servers(code) - before)
    wait(lambda: code.run(offered))
    assert code.run("return vscode.workspace.isTrusted;")
    # What asked for trust takes all keys while it is there.
    heading = code.page.get_by_text("You trust this folder")
    heading.click()
    code.page.keyboard.press("Escape")
    heading.wait_for(state="hidden")


def is_not_offered(code: CodeServer) -> None:
    """Look for the command in a workspace that is not trusted."""
    code.page.keyboard.press("F1")
    code.page.locator(".quick-input-widget input").first.fill(">pyprof2: Re")
    offered = code.page.locator(".quick-input-list .monaco-list-row")
    offered.filter(has_text="Restart the Server").wait_for()
    assert not offered.filter(has_text="Record Anew").count()
    code.page.keyboard.press("Escape")


def refuse(code: CodeServer) -> None:
    """Ask for a recording, and do not allow it."""
    code.press("pyprof2: Record Anew")
    question = said(code, "may this run in")
    assert "-m pyprof2 capture --kineto train.py" in question.inner_text()
    click(question, "Do not run")
    said(code, "not allowed: nothing was run")
    assert running() == []


def allow_and_cancel(code: CodeServer) -> None:
    """Ask for a recording, allow it, and cancel it while it runs."""
    code.press("pyprof2: Record Anew")
    click(said(code, "may this run in"), "Allow")
    wait(lambda: len(running()) == 2)
    # A message that is long there goes to the status bar, which leads back to it.
    code.press("Notifications: Show Notifications")
    progress = said(code, "trained 3 times")
    assert "pyprof2: recording" in progress.inner_text()
    progress.get_by_role("button", name="Cancel", exact=True).click()
    said(code, "pyprof2: cancelled")
    wait(lambda: running() == [], 15)


def test_consent_progress_and_cancel_are_clicked_and_then_there_are_numbers(
    code_server: Callable[..., CodeServer], tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    folder = tmp_path / "ws"
    folder.mkdir()
    script, forever = folder / "train.py", folder / "forever"
    script.write_text(CODE)
    os.utime(script, (1, 1))
    forever.touch()
    code = code_server(folder, trusted=False, **{"pyprof2.capture": ["train.py"]})
    code.run(f"{OPEN}", path=str(script))

    is_not_offered(code)
    trust(code)
    refuse(code)
    allow_and_cancel(code)

    # Allowed already: nothing asks, and this time it ends by itself.
    forever.unlink()
    code.press("pyprof2: Record Anew")
    lines = code.run(
        f"{OPEN}return (await until(() => hints(uri))).map(([line]) => line);", path=str(script)
    )
    assert 7 in lines
    assert not code.page.get_by_text("may this run in").count()
    # What is remembered is not in the workspace.
    assert [path.name for path in folder.iterdir()] == ["train.py"]
