"""The server over stdio, as five real editors speak with it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest
from lsprotocol import types as lsp

from tests.lsp.editor import PROFILES, Editor, is_alive, processes_of
from tests.lsp.workspaces import CODE, record, workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HINTS = [(7, "0.7 ms 3 MB"), (8, "0.1 ms"), (13, "0.8 ms")]
"""Line 16 has 0.25 % of the step, and no hint."""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a script with a recording, for tests that write neither."""
    return workspace(tmp_path_factory.mktemp("shared") / "ws")


@pytest.fixture(scope="module")
def shared(script: Path) -> Iterator[Editor]:
    found = Editor("neovim-0.12.4", script.parent, script.parent.parent / "state")
    yield found
    found.shut()


@pytest.fixture
def editor(shared: Editor, script: Path) -> Iterator[Editor]:
    """Return an editor that shows the script with its numbers, and was asked nothing yet."""
    shared.open(script)
    shared.wait(lambda: shared.hints() == HINTS)
    yield shared
    shared.close()


def opened(start: Callable[..., Editor], script: Path, profile: str = "neovim-0.12.4") -> Editor:
    """Return an editor that shows the script with its numbers."""
    editor = start(script.parent, profile)
    editor.open(script)
    editor.wait(editor.hints)
    return editor


@pytest.mark.parametrize("profile", PROFILES)
def test_each_editor_gets_hints_and_an_edit_of_the_number_alone(
    start: Callable[..., Editor], tmp_path: Path, profile: str
) -> None:
    script = workspace(tmp_path / "ws", ends="\r\n")
    editor = opened(start, script, profile)
    before = editor.text

    wide = ("neovim-0.10.4", "vscode-1.139.1")
    assert editor.encoding == {**dict.fromkeys(wide, "utf-16"), "emacs-30.1": "utf-32"}.get(
        profile, "utf-8"
    )
    assert editor.hints() == HINTS
    action = next(a for a in editor.actions(2) if "→ 64" in a.title)
    assert action.edit is not None
    assert editor.apply(action.edit)
    assert editor.text == before.replace("= 32", "= 64")
    announced = editor.profile["capabilities"]["workspace"].get("inlayHint") or {}
    assert bool(editor.refreshed) == bool(announced.get("refreshSupport"))


def test_a_hint_stands_at_the_end_of_its_line_in_the_editors_units(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    editor = opened(start, workspace(tmp_path / "ws", ends="\r\n"), "neovim-0.10.4")
    where = lsp.Range(lsp.Position(0, 0), lsp.Position(99, 0))

    found = editor.raw_hints(lsp.InlayHintParams(lsp.TextDocumentIdentifier(editor.uri), where))

    # `        y = self.up(x)  # 😀`: an emoji is two units of UTF-16.
    assert (found[0].position.line, found[0].position.character) == (6, 28)


def test_only_lines_in_the_range_have_hints_and_one_toggle_takes_all_away(editor: Editor) -> None:

    assert editor.hints(7, 11) == [(8, "0.1 ms")]
    assert editor.run("toggleHints")["ok"]
    assert editor.hints() == []
    editor.run("toggleHints")
    assert editor.hints() == HINTS


def test_threshold_and_number_of_hints_can_be_set(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = start(script.parent, threshold=0, maxHints=3)
    editor.open(script)

    editor.wait(lambda: editor.hints() == HINTS)
    settings = {"pyprof2": {"threshold": 0, "maxHints": 4, "nonsense": 1, "hints": "yes"}}
    params = lsp.DidChangeConfigurationParams(settings)
    editor.tell(editor._client.workspace_did_change_configuration, params)

    editor.wait(lambda: editor.hints() == [*HINTS, (16, "<0.01 ms")])
    assert [each for each in editor.said if "setting" in each] == [
        "pyprof2: setting nonsense: no such setting",
        "pyprof2: setting hints: 'yes' is no bool",
    ]


def test_lenses_are_the_recording_and_the_totals_of_functions_and_classes(editor: Editor) -> None:

    (_, title), *others = editor.lenses()

    assert title.startswith("pyprof2: net.pyprof2 · ")
    assert title.endswith(" · batch 32 in 100 % of the shapes · step 0.802 ms")
    assert others == [
        (5, "Block: 0.8 ms, 99.8 %, 3 MB, 2 op calls"),
        (6, "Block.forward: 0.8 ms, 99.8 %, 3 MB, 2 op calls"),
        (11, "main: 0.802 ms, 100.0 %, 3 op calls"),
    ]


def test_hover_says_everything(editor: Editor) -> None:

    text = editor.hover(7)

    for words in (
        "**0.7 ms** of a step, 87.3 % (GPU time)", "forward 0.4 ms, backward 0.3 ms",
        "1 op call in forward", "memory at the peak on cuda:0: 3 MB",
    ):  # fmt: skip
        assert words in text
    # What is of the recording is no part of the list's last point.
    assert "\n\npyprof2: net.pyprof2" in text
    assert "main: 0.802 ms" in editor.hover(11)
    assert editor.hover(1) == ""


def test_within_a_module_hover_says_both(editor: Editor) -> None:

    assert editor.run("setScope", "blocks.0")["ok"]
    assert "within blocks.0: 0.7 ms, 1 op call" in editor.hover(7)
    assert "within blocks.0: nothing" in editor.hover(16)
    wrong = editor.run("setScope", "blocks.7")
    assert not wrong["ok"]
    assert "blocks" in wrong["text"]


def test_numbers_follow_edits_stale_until_they_are_looked_at(editor: Editor) -> None:

    editor.replace("class Block", "# one\n# two\nclass Block")

    # At once, before anything was analysed: moved, and marked.
    assert editor.hints() == [(line + 2, f"~{text}") for line, text in HINTS]
    editor.wait(lambda: editor.hints() == [(line + 2, text) for line, text in HINTS])


def test_a_changed_function_is_marked_and_a_line_that_is_gone_has_no_number(editor: Editor) -> None:

    editor.replace("        y = self.up(x)  # 😀\n", "")

    wanted = [(7, "~0.1 ms"), (12, "0.8 ms")]
    editor.wait(lambda: editor.hints() == wanted)
    assert [line for line, text in editor.lenses() if text.startswith("~")] == [5, 6]


def test_an_unsaved_file_that_is_other_than_recorded_opens_with_its_numbers(
    editor: Editor, script: Path
) -> None:
    editor.open(script, "import os\n" + CODE.replace("self.up(x)", "print(x)"))

    editor.wait(lambda: editor.hints() == [(9, "~0.1 ms"), (14, "0.8 ms")])


def test_a_half_typed_file_keeps_what_is_left_of_its_numbers(editor: Editor) -> None:

    editor.replace("log(loss)", "log(loss")
    time.sleep(1)

    assert editor.hints() == [(line, f"~{text}") for line, text in HINTS]
    assert [a.title for a in editor.actions(2)] == []


@pytest.mark.parametrize("strange", ["\f", "\u2028", "\x85"])
def test_edits_go_to_the_right_line_below_what_is_no_line_end(
    editor: Editor, script: Path, strange: str
) -> None:
    editor.open(script, f"x = 1  # {strange}\nbatch_size = 32\n")

    editor.replace("= 32", "= 48")
    editor.wait(lambda: editor.actions(2))

    assert editor.run("setBatchSize", 64)["ok"]
    assert editor.text == f"x = 1  # {strange}\nbatch_size = 64\n"


def test_a_renamed_file_keeps_nothing_that_was_not_recorded_of_it(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = opened(start, script)
    other = script.with_name("other.py")

    script.rename(other)
    editor.run("refresh")
    editor.open(other)
    time.sleep(0.5)

    assert editor.hints() == []
    assert editor.run("state")["recording"] is None
    said = editor.lenses()[0][1]
    assert "no line of it is of a file of this workspace" in said
    assert f"its files are in {script.parent}: see pathMap" in said


def test_symbols_have_totals_and_calls_are_the_breakdown(editor: Editor) -> None:
    document = lsp.TextDocumentIdentifier(editor.uri)

    symbols = editor.ask("text_document_document_symbol_async", lsp.DocumentSymbolParams(document))
    items = editor.ask(
        "text_document_prepare_call_hierarchy_async",
        lsp.CallHierarchyPrepareParams(document, lsp.Position(12, 0)),
    )
    below = editor.ask(
        "call_hierarchy_outgoing_calls_async", lsp.CallHierarchyOutgoingCallsParams(items[0])
    )
    above = editor.ask(
        "call_hierarchy_incoming_calls_async", lsp.CallHierarchyIncomingCallsParams(below[0].to)
    )

    assert [(s.name, s.detail) for s in symbols] == [
        ("Block", "0.8 ms, 99.8 %, 3 MB, 2 op calls"), ("main", "0.802 ms, 100.0 %, 3 op calls"),
    ]  # fmt: skip
    assert [c.name for c in symbols[0].children] == ["forward"]
    assert [(b.to.name, b.to.detail, b.to.range.start.line) for b in below] == [
        ("train.py:7", "0.7 ms, 87.3 %, 1 op call, blocks.0", 6),
        ("train.py:8", "0.1 ms, 12.5 %, 1 op call, blocks.0", 7),
    ]
    assert [a.from_.name for a in above] == ["train.py:13"]


def test_symbols_asked_for_at_once_wait_for_their_totals(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = start(script.parent)
    editor.open(script)
    document = lsp.TextDocumentIdentifier(editor.uri)

    symbols = editor.ask("text_document_document_symbol_async", lsp.DocumentSymbolParams(document))

    assert [s.detail for s in symbols][1:] == ["0.802 ms, 100.0 %, 3 op calls"]


def test_a_layer_leads_to_its_line_where_it_is_now(editor: Editor, script: Path) -> None:
    editor.replace("class Block", "# one\nclass Block")

    found = editor.run("showLayer", "blocks.0")

    assert (found["path"], found["line"]) == (str(script), 7)
    assert not editor.run("showLayer", "blocks.9")["ok"]


# -- which recording -----------------------------------------------------------------------------


def test_the_newest_recording_of_the_workspace_is_shown_and_others_can_be_chosen(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    old = script.parent / "net.pyprof2"
    os.utime(old / "manifest.json", (time.time() - 60, time.time() - 60))
    new = record(script.parent, script, "twice", slower=2)
    editor = opened(start, script)

    assert editor.run("state")["recording"] == str(new)
    assert editor.hints()[0] == (7, "1.4 ms 3 MB")
    editor.answers = {"which recording": "net.pyprof2"}
    assert editor.run("chooseRecording")["ok"]
    assert editor.hints() == HINTS
    assert editor.run("compareWith", str(new))["ok"]
    assert editor.hints()[0] == (7, "0.7 ms 3 MB (was 1.4 ms)")
    editor.run("compareWith", "")
    editor.run("hideRecording")
    assert editor.hints() == []
    assert editor.lenses() == [(1, "pyprof2: numbers are put away")]


def test_the_newest_recording_with_lines_of_the_open_file_is_shown(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    old = script.parent / "net.pyprof2"
    os.utime(old / "manifest.json", (time.time() - 60, time.time() - 60))
    other = script.with_name("compiled.py")
    other.write_bytes(script.read_bytes())
    os.utime(other, (time.time() - 3600, time.time() - 3600))
    new = record(script.parent, other, "comp", slower=2)

    editor = opened(start, script)

    assert editor.run("state")["recording"] == str(old)
    assert editor.hints() == HINTS
    editor.open(other)  # the recording of train.py says nothing of it
    editor.wait(lambda: editor.run("state")["recording"] == str(new))


def test_files_that_changed_or_are_not_here_are_said(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = opened(start, script)
    assert editor.run("state")["states"] == {str(script): "same"}

    script.write_text(CODE + "# more\n")
    editor.run("refresh")

    assert editor.run("state")["mismatch"] == "train.py changed since"
    assert "train.py changed since" in editor.lenses()[0][1]


def test_a_recording_of_another_machine_is_mapped_by_its_root_or_as_is_said(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "there")
    here = tmp_path / "here"
    script.parent.rename(here)

    editor = opened(start, here / "train.py")

    assert editor.hints() == HINTS
    (here / "src").mkdir()
    (here / "train.py").rename(here / "src" / "train.py")
    other = start(here, pathMap={str(script.parent): str(here / "src")})
    other.open(here / "src" / "train.py")
    other.wait(lambda: other.hints() == HINTS)


def test_a_broken_recording_is_passed_over_and_named(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    (script.parent / "bad.pyprof2").mkdir()
    (script.parent / "bad.pyprof2" / "manifest.json").write_text("{")
    editor = opened(start, script)

    assert editor.hints() == HINTS
    assert not editor.run("compareWith", str(script.parent / "bad.pyprof2"))["ok"]


# -- the batch size ------------------------------------------------------------------------------


TWO = "def train(batch_size=32): ...\n\nBATCH_SIZE = 16\nx = DataLoader(d, 2 * 16)\n"


def test_of_several_places_one_is_chosen_once_and_remembered(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = tmp_path / "ws" / "train.py"
    script.parent.mkdir()
    editor = start(script.parent)
    editor.open(script, TWO)
    editor.answers = {"which of these": "train.py:3"}

    assert editor.run("setBatchSize", 64)["ok"]
    assert editor.text == TWO.replace("= 16", "= 64")
    assert len(editor.asked) == 1
    other = start(script.parent)
    other.open(script, "# moved\n" + TWO)
    assert other.run("setBatchSize", 8)["ok"]
    assert (other.text, other.asked) == ("# moved\n" + TWO.replace("= 16", "= 8"), [])
    assert not list(script.parent.glob("**/kept.json"))


def test_each_place_has_its_actions_and_what_cannot_be_changed_the_reason(
    editor: Editor, script: Path
) -> None:
    editor.open(script, TWO)

    found = editor.wait(lambda: editor.actions(3))

    titles = [(a.title, a.disabled and a.disabled.reason) for a in found]
    assert titles[0] == ("Batch size 16 → 32 (train.py:3, value of the name BATCH_SIZE)", None)
    other = "Batch size 32 → 64 (train.py:1, default of the parameter train(batch_size))"
    assert (other, None) in titles
    shows = editor.profile["capabilities"]["textDocument"]["codeAction"].get("disabledSupport")
    refused = [t for t in titles if t[1] == "it is computed: change it by hand"]
    assert len(refused) == (1 if shows else 0)


def test_what_cannot_be_changed_is_refused_with_the_reason(editor: Editor, script: Path) -> None:
    editor.open(script, "batch_size = 2 * 16\n")

    for batch in (0, -1, True, "64", 1.5, None):
        assert not editor.run("setBatchSize", batch)["ok"]
    found = editor.run("setBatchSize", 64)
    assert found == {"ok": False, "text": "train.py:1: 2 * 16: it is computed: change it by hand"}
    assert editor.edits == []


def test_an_edit_is_of_one_version_and_a_changed_document_refuses_it(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    editor = opened(start, workspace(tmp_path / "ws"), "emacs-30.1")
    action = next(a for a in editor.actions(2) if "→ 64" in a.title)

    editor.replace("# 😀 keep", "# changed")

    assert action.edit is not None
    assert not editor.apply(action.edit)
    editor.refuses = True
    assert editor.run("setBatchSize", 64)["text"] == "train.py:2: not changed: text changed"


def test_the_batch_size_of_a_yaml_file(editor: Editor, script: Path) -> None:
    config = script.with_name("config.yaml")
    config.write_text("# 😀\ntrain: {lr: 1,   batch_size: 32}\n")
    editor.close()
    editor.open(config)

    assert editor.run("setBatchSize", 64)["ok"]
    assert editor.text == "# 😀\ntrain: {lr: 1,   batch_size: 64}\n"


# -- ends ----------------------------------------------------------------------------------------


def test_a_server_whose_editor_goes_without_a_word_leaves_no_process(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = opened(start, script)
    state = str(tmp_path / "state")
    assert len(processes_of(state)) == 3

    editor.hang_up()

    editor.wait(lambda: not processes_of(state), 10)


def test_a_server_that_is_killed_leaves_no_process(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = opened(start, script)

    os.kill(editor.pid, 9)

    editor.wait(lambda: not processes_of(str(tmp_path / "state")), 10)
    assert not is_alive(editor.pid)


def test_nothing_of_the_workspace_is_imported(start: Callable[..., Editor], tmp_path: Path) -> None:
    script = workspace(tmp_path / "ws")
    for name in ("json", "pandas", "pyarrow", "pyprof2", "sitecustomize"):
        (script.parent / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    editor = start(script.parent, "neovim-0.12.4")
    editor.open(script)
    editor.wait(editor.hints)

    assert not (tmp_path / "ran").exists()
