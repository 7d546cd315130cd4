"""A workspace that nobody trusts: its recordings are shown, and nothing of it runs."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from tests.lsp.workspaces import workspace
from tests.vscode.code_server import wait
from tests.vscode.test_extension import OPEN, told

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.vscode.code_server import CodeServer


def hostile(folder: Path) -> tuple[Path, Path]:
    """Return a script in a workspace that leaves a mark if anything of it runs, and the mark."""
    script = workspace(folder / "ws")
    mark = folder / "ran"
    program = script.parent / "python"
    program.write_text(f'#!/bin/sh\necho "$*" >> "{mark}"\nexec "{sys.executable}" "$@"\n')
    program.chmod(0o755)
    for name in ("pygls", "pyprof2", "sitecustomize"):
        (script.parent / f"{name}.py").write_text(f'open({str(mark)!r}, "a").write({name!r})\n')
    (script.parent / ".vscode").mkdir()
    settings = {
        "pyprof2.interpreter": str(program), "pyprof2.python": str(program),
        "pyprof2.capture": ["train.py"], "pyprof2.onSave": "on", "pyprof2.threshold": 50,
    }  # fmt: skip
    (script.parent / ".vscode" / "settings.json").write_text(json.dumps(settings))
    return script, mark


def test_in_restricted_mode_numbers_are_shown_and_nothing_of_the_workspace_runs(
    code_server: Callable[..., CodeServer], tmp_path: Path
) -> None:
    script, mark = hostile(tmp_path)
    code = code_server(script.parent, trusted=False)

    found = told(code, script, """
        const answer = await run("pyprof2.profile");
        await vscode.window.activeTextEditor.edit((edit) =>
          edit.insert(new vscode.Position(0, 0), " "));
        await run("undo");
        await document.save();
        await sleep(2000);
        const settings = vscode.workspace.getConfiguration("pyprof2");
        return {
          trusted: vscode.workspace.isTrusted, answer, hints: await hints(uri),
          interpreter: settings.get("interpreter"), onSave: settings.get("onSave"),
        };""")  # fmt: skip

    assert not found["trusted"]
    # A setting of the workspace that runs nothing holds: two lines have half of the step.
    assert [line for line, _, _ in found["hints"]] == [6, 12]
    assert found["answer"] == {
        "ok": False, "text": "nothing runs in a workspace that is not trusted",
    }  # fmt: skip
    assert (found["interpreter"], found["onSave"]) == (sys.executable, "off")
    assert not mark.exists()

    # The same workspace once it is trusted: its interpreter is taken, and the mark works.
    code.press("Workspaces: Manage Workspace Trust")
    code.page.get_by_role("button", name="Trust", exact=True).first.click()
    wait(mark.exists)
    trusted = code.run(f"{OPEN}await until(() => hints(uri)); return vscode.workspace.isTrusted;",
                       path=str(script))  # fmt: skip
    assert trusted
    assert mark.read_text().splitlines()[0] == "-P -m pyprof2 lsp"
