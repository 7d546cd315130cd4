"""The rows of a panel, over stdio: what a script is made of, down to the calls of a line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.lsp.editor import Editor
from tests.lsp.workspaces import CODE, record, workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Of 802 us: 400 + 300 of line 7, 100 of line 8, 2 of line 16; line 14 has none of its own.
UP = ("7: y = self.up(x)  # 😀", "0.7 ms", 100 * 700 / 802)
DOWN = ("8: return self.down(y)", "0.1 ms", 100 * 100 / 802)
NET = ("13: loss = net(x)", "0.8 ms", 100 * 800 / 802)
LOG = ("16: log(loss)", "<0.01 ms", 100 * 2 / 802)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workspace(tmp_path_factory.mktemp("shared") / "ws")


@pytest.fixture(scope="module")
def shared(script: Path) -> Iterator[Editor]:
    found = Editor("vscode-1.139.1", script.parent, script.parent.parent / "state")
    yield found
    found.shut()


@pytest.fixture
def editor(shared: Editor, script: Path) -> Iterator[Editor]:
    """Return an editor that shows the script."""
    shared.open(script)
    yield shared
    shared.close()


def bars(editor: Editor, below: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    answer = editor.run("breakdown", *([below] if below else []))
    assert answer["ok"]
    rows: list[dict[str, Any]] = answer["rows"]
    return rows


def shown(rows: list[dict[str, Any]]) -> list[Any]:
    return [(row["name"], row["time"], pytest.approx(row["time_pct"])) for row in rows]


def test_files_have_functions_and_those_have_lines_and_these_have_calls(editor: Editor) -> None:
    (file,) = bars(editor)
    classes = bars(editor, file["below"])
    methods = bars(editor, classes[1]["below"])
    main = bars(editor, classes[0]["below"])
    net = bars(editor, main[0]["below"])
    up = bars(editor, net[0]["below"])

    assert shown([file]) == [("train.py", "0.802 ms", 100)]
    assert [(r["kind"], r["name"], r["first"], r["last"]) for r in classes] == [
        ("function", "main", 10, 15), ("class", "Block", 4, 7),
    ]  # fmt: skip
    assert shown(classes) == [("main", "0.802 ms", 100), ("Block", "0.8 ms", NET[2])]
    assert shown(methods) == [("Block.forward", "0.8 ms", NET[2])]
    assert shown(bars(editor, methods[0]["below"])) == [UP, DOWN]
    assert shown(main) == [NET, LOG]
    assert shown(net) == [("train.py:7", *UP[1:]), ("train.py:8", *DOWN[1:])]
    assert shown(up) == [("aten::relu", *UP[1:])]
    assert (up[0]["detail"], up[0]["below"]) == ("1 op call, blocks.0", None)
    # An op stands at the line that called it.
    assert [(r["uri"], r["first"]) for r in up] == [(editor.uri, 6)]


def test_memory_is_a_share_of_the_peak_and_null_where_none_is_known(editor: Editor) -> None:
    (file,) = bars(editor)
    main, block = bars(editor, file["below"])

    assert (file["memory"], file["memory_pct"]) == ("3 MB", 100)
    assert (block["memory"], block["memory_pct"]) == ("3 MB", 100)
    assert (main["memory"], main["memory_pct"]) == ("", None)
    assert editor.run("breakdown")["memory_of"] == "cuda:0"


def test_rows_follow_edits(editor: Editor) -> None:
    (file,) = bars(editor)
    editor.replace("class Block", "# one\nclass Block")
    editor.replace("self.up(x)", "print(x)")

    main, block = bars(editor, file["below"])
    (method,) = bars(editor, block["below"])

    assert (main["first"], main["stale"]) == (11, False)
    assert (block["first"], block["stale"]) == (5, True)
    # The line that has other words has no number.
    assert [(r["name"], r["time"], r["stale"]) for r in bars(editor, method["below"])] == [
        ("9: return self.down(y)", "0.1 ms", True)
    ]


def test_of_two_functions_of_one_name_each_has_its_own(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    script.write_text(CODE.replace("\n\ndef main", "\nclass Block:\n    x = 1\n\ndef main"))
    record(script.parent, script, "net")
    editor = start(script.parent)
    editor.open(script)
    (file,) = bars(editor)

    first, *_ = (row for row in bars(editor, file["below"]) if row["name"] == "Block")

    assert [row["name"] for row in bars(editor, first["below"])] == ["Block.forward"]


def test_what_is_not_there_has_no_rows(editor: Editor) -> None:
    (file,) = bars(editor)
    uri = file["uri"]

    assert bars(editor, {"uri": f"{uri}x"}) == []
    assert bars(editor, {"uri": uri, "function": "nonsense"}) == []
    assert bars(editor, {"uri": uri, "recorded": 99}) == []
    assert bars(editor, {"node": 1, "recording": "another"}) == []
    assert bars(editor, {"node": 99, "recording": editor.run("state")["recording"]}) == []
    editor.run("hideRecording")
    assert editor.run("breakdown")["rows"] == []
    editor.run("hideRecording")


def test_only_an_editor_with_a_panel_hears_of_changes(
    start: Callable[..., Editor], script: Path
) -> None:
    editor = start(script.parent)
    editor.open(script)
    editor.wait(editor.hints)
    before = list(editor.changed)
    bars(editor)
    editor.replace("log(loss)", "log(loss, 1)")

    editor.wait(lambda: editor.changed)
    assert before == []
