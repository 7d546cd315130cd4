"""The dials in a panel of VS Code: the server's page, which changes the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests import dialled
from tests.vscode.code_server import wait
from tests.vscode.test_extension import OPEN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.vscode.code_server import CodeServer


def test_a_key_on_a_dial_changes_the_number_in_the_code(
    code_server: Callable[..., CodeServer], tmp_path: Path
) -> None:
    script = dialled.workspace(tmp_path / "ws")
    code = code_server(script.parent, **{"pyprof2.batches": dialled.named()})
    code.run(f"{OPEN}await until(() => hints(uri));", path=str(script))
    code.press("pyprof2: Show Dials")
    page = code.page.frame_locator("iframe.webview").first.frame_locator("iframe").first
    page.locator("html[data-ready]").wait_for(timeout=60_000)

    page.locator("#dial-memory").focus()
    code.page.keyboard.press("ArrowUp")
    code.page.keyboard.press("Enter")

    say = "return vscode.window.visibleTextEditors[0].document.getText();"
    wait(lambda: code.run(say) == dialled.CODE.replace("32", "33"))
    assert script.read_text() == dialled.CODE
