"""The extension in the extension host of a real VS Code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lsp.workspaces import CODE, workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.vscode.code_server import CodeServer

OPEN = """
const document = await vscode.workspace.openTextDocument(vscode.Uri.file(path));
await vscode.window.showTextDocument(document, vscode.ViewColumn.One);
const { uri } = document;
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace(tmp_path_factory.mktemp("shared") / "ws")


@pytest.fixture(scope="module")
def code(code_server: Callable[..., CodeServer], script: Path) -> CodeServer:
    return code_server(script.parent)


def told(code: CodeServer, script: Path, program: str, **given: Any) -> Any:
    """Return what a program says of the open script, as soon as it has its numbers."""
    ready = "await until(() => hints(uri));\n"
    return code.run(f"{OPEN}{ready}{program}", path=str(script), **given)


def test_the_outline_has_totals_although_it_is_asked_for_at_once_and_then_kept(
    code: CodeServer, script: Path
) -> None:
    symbols = code.run(f"""{OPEN}
        const outline = () => run("vscode.executeDocumentSymbolProvider", uri);
        return (await until(outline)).map(({{ name, detail }}) => [name, detail]);
        """, path=str(script))  # fmt: skip

    assert symbols == [
        ["Block", "0.8 ms, 99.8 %, 3 MB, 2 op calls"], ["main", "0.802 ms, 100.0 %, 3 op calls"],
    ]  # fmt: skip


def test_hints_lenses_and_hover_are_those_of_the_server(code: CodeServer, script: Path) -> None:
    found = told(code, script, """
        const lenses = await run("vscode.executeCodeLensProvider", uri, 9);
        const hovers = await run("vscode.executeHoverProvider", uri, new vscode.Position(6, 9));
        return {
          app: vscode.env.appName, trusted: vscode.workspace.isTrusted, hints: await hints(uri),
          lenses: lenses.map(({ command }) => command.title),
          hover: hovers.map(({ contents }) => contents[0].value).join(),
        };""")  # fmt: skip

    assert (found["app"], found["trusted"]) == ("code-server", True)
    # Columns are of UTF-16: an emoji is two.
    assert found["hints"] == [
        [6, len("        y = self.up(x)  # ") + 2, "0.7 ms 3 MB"],
        [7, 27, "0.1 ms"],
        [12, 21, "0.8 ms"],
    ]
    assert found["lenses"][0].startswith("pyprof2: net.pyprof2 · ")
    assert found["lenses"][1:] == [
        "Block: 0.8 ms, 99.8 %, 3 MB, 2 op calls",
        "Block.forward: 0.8 ms, 99.8 %, 3 MB, 2 op calls",
        "main: 0.802 ms, 100.0 %, 3 op calls",
    ]
    assert "forward 0.4 ms, backward 0.3 ms" in found["hover"]


def test_only_the_number_is_edited_and_one_undo_brings_it_back(
    code: CodeServer, script: Path
) -> None:
    found = told(code, script, """
        const place = new vscode.Range(1, 0, 1, 1);
        const action = await until(async () =>
          (await run("vscode.executeCodeActionProvider", uri, place))
            .find(({ title }) => title.includes("→ 64")));
        const texts = [];
        const say = () => texts.push(document.getText());
        await vscode.workspace.applyEdit(action.edit); say();
        await run("undo"); say();
        await until(() => hints(uri));
        const answer = await run("pyprof2.setBatchSize", 96); say();
        await run("undo"); say();
        await run("workbench.action.files.revert");
        return { texts, answer };""")  # fmt: skip

    wanted = [CODE.replace("= 32", f"= {size}") for size in (64, 32, 96, 32)]
    assert found["texts"] == wanted
    assert (found["answer"]["ok"], found["answer"]["text"]) == (True, "train.py:2: 32 → 96")


def test_commands_of_the_palette_are_there_and_one_takes_all_hints_away(
    code: CodeServer, script: Path
) -> None:
    found = told(code, script, """
        const extension = vscode.extensions.getExtension("pyprof2.pyprof2");
        const offered = extension.packageJSON.contributes.commands.map(({ command }) => command);
        const known = await vscode.commands.getCommands(true);
        await run("pyprof2.toggleHints");
        await until(async () => (await hints(uri)).length === 0);
        await run("pyprof2.toggleHints");
        await until(() => hints(uri));
        return offered.filter((command) => !known.includes(command));""")  # fmt: skip

    assert found == []


def test_a_setting_reaches_the_server_and_comes_back(code: CodeServer, script: Path) -> None:
    found = told(code, script, """
        const settings = vscode.workspace.getConfiguration("pyprof2");
        const { Global } = vscode.ConfigurationTarget;
        const set = (value) => settings.update("threshold", value, Global);
        await set(50);
        const few = await until(async () => (await hints(uri)).length === 2 && hints(uri));
        await set(undefined);
        await until(async () => (await hints(uri)).length === 3);
        return few.map(([line]) => line);""")  # fmt: skip

    assert found == [6, 12]
