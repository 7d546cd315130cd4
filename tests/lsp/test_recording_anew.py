"""Recording from the editor: only after consent, and nothing is left running.

The interpreter of most tests is a shell script, a real process that does at once what a training
takes minutes for: it writes the recording, fails, or sleeps with a child in the background.
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.markers import Marker, format_marker
from tests.conftest import ROOT
from tests.kineto_events import op, trace
from tests.lsp.editor import processes_of
from tests.lsp.workspaces import CODE, events, workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.lsp.editor import Editor

SLEEPS = "sleep 98765 & sleep 98764"
FAILS = r"""printf '  File "%s/train.py", line 13, in main\nValueError: no \033[31mred\n' "$PWD"
    exit 3"""


def interpreter(folder: Path, script: Path, capture: str | None = None) -> dict[str, Any]:
    """Return settings whose interpreter does this when it is to record; None: it records."""
    made = trace(folder / "made.json", *events(str(script), str(script.parent)))
    # What it records begins with no stdin, and with output that is not for the editor.
    capture = capture or f'cat; echo Content-Length: 7; cp "{made}" "$6.json"'
    program = folder / "python"
    program.write_text(f"""#!/bin/sh
echo "$3" >> "{folder / "log"}"
if [ "$3" = capture ]; then
    {capture}
else
    PYTHONPATH="{ROOT}" exec "{sys.executable}" "$@"
fi
""")
    program.chmod(0o755)
    return {"python": str(program), "capture": ["train.py", "--epochs", "1"]}


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a script without a recording."""
    folder = tmp_path / "ws"
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(CODE)
    os.utime(path, (1, 1))
    return path


def log(tmp_path: Path) -> list[str]:
    """Return what was run."""
    path = tmp_path / "log"
    return path.read_text().split() if path.exists() else []


def test_nothing_runs_before_it_is_allowed_and_consent_is_for_this_command_here(
    start: Callable[..., Editor], tmp_path: Path, script: Path
) -> None:
    settings = interpreter(tmp_path, script)
    editor = start(script.parent, **settings)
    editor.open(script)

    for answer in ({}, {"may this run": "Do not run"}):
        editor.answers = answer
        assert editor.run("profile") == {"ok": False, "text": "not allowed: nothing was run"}
    assert log(tmp_path) == []
    assert "python -m pyprof2 capture --kineto train.py --epochs 1" in editor.asked[0]
    editor.answers = {"may this run": "Allow"}
    assert editor.run("profile")["ok"]
    assert editor.hints() == [(7, "0.7 ms"), (8, "0.1 ms"), (13, "0.8 ms")]
    assert editor.run("state")["batch_known_by"] == "batch 32"
    editor.answers = {}
    assert editor.run("profile")["ok"]
    assert len(editor.asked) == 3
    # What is remembered is not in the workspace, and is no consent for anything else.
    assert {path.name for path in script.parent.iterdir()} == {"train.py"}
    other = start(script.parent, **settings | {"capture": ["other.py"]})
    assert not other.run("profile")["ok"]
    assert len(other.asked) == 1
    editor.run("revokeConsent")
    assert not editor.run("profile")["ok"]
    assert log(tmp_path) == ["capture", "parse"] * 2


def test_a_restricted_workspace_is_not_even_asked(
    start: Callable[..., Editor], tmp_path: Path, script: Path
) -> None:
    editor = start(script.parent, restricted=True, **interpreter(tmp_path, script))
    editor.answers = {"may this run": "Allow"}

    assert not editor.run("profile")["ok"]
    assert (editor.asked, log(tmp_path)) == ([], [])


def test_saving_records_anew_only_where_that_is_wanted(
    start: Callable[..., Editor], tmp_path: Path, script: Path
) -> None:
    settings = interpreter(tmp_path, script)

    def saved(mode: str) -> Editor:
        editor = start(script.parent, onSave=mode, **settings)
        editor.answers = {"record anew": "Not now", "may this run": "Allow"}
        editor.open(script)
        editor.save(script)
        return editor

    off, ask = saved("off"), saved("ask")
    ask.wait(lambda: ask.asked == ["pyprof2: record anew?"])
    assert (off.asked, log(tmp_path)) == ([], [])
    saved("on").wait(lambda: log(tmp_path) == ["capture", "parse"])


def test_an_error_stands_at_its_line_and_the_last_good_numbers_stay(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "ws")
    editor = start(script.parent, **interpreter(tmp_path, script, FAILS))
    editor.answers = {"may this run": "Allow"}
    editor.open(script)
    numbers = editor.wait(editor.hints)

    found = editor.run("profile")

    assert not found["ok"]
    assert (found["path"], found["line"]) == (str(script), 12)
    (said,) = editor.wait(lambda: editor.diagnostics.get(editor.uri))
    assert said.range.start.line == 12
    assert said.message.startswith("ValueError: no ")
    assert "\x1b" not in said.message
    assert editor.hints() == numbers


def entry_workspace(tmp_path: Path, fails: str) -> tuple[Path, dict[str, Any]]:
    """Return the script of an entry point with a recording of 32 samples, and settings.

    Their interpreter records any batch size, but for those that a pattern of the shell names.
    """
    script = workspace(tmp_path / "ws")
    for size in (16, 32, 64, 128):
        text = format_marker(Marker("entry", name=str(script), batch=size), quoteless=True)
        made = [op(text, 2, 1), *events(str(script), str(script.parent))]
        own = script.parent / "net.json" if size == 32 else tmp_path / f"made{size}.json"
        trace(own, *made)
    shutil.rmtree(script.parent / "net.pyprof2")
    (script.parent / "net.json").rename(script.parent / "net.pt.trace.json")
    capture = f"""for size; do :; done
    case $size in {fails}) echo "RuntimeError: no memory for $size"; exit 3;; esac
    cp "{tmp_path}/made$size.json" "$6.json\""""
    settings = interpreter(tmp_path, script, capture)
    return script, {"python": settings["python"]}


@pytest.mark.parametrize(("fails", "sizes"), [("128", [16, 32, 64]), ("64|128", [])])
def test_the_dials_run_an_entry_point_at_more_batch_sizes_and_what_is_shown_stays(
    start: Callable[..., Editor], tmp_path: Path, fails: str, sizes: list[int]
) -> None:
    script, settings = entry_workspace(tmp_path, fails)
    editor = start(script.parent, **settings)
    editor.open(script)

    refused = editor.run("dials", {"open": False})
    assert refused == {"ok": False, "text": "not allowed: nothing was run"}
    assert log(tmp_path) == []
    editor.answers = {"may this run": "Allow"}
    found = editor.begin("dialsPage").result(300)

    assert "batch sizes of 16, 64, 128, for the dials, now and whenever" in editor.asked[-1]
    assert editor.asked[-1].endswith("pyprof2 capture --kineto --entry train.py")
    assert log(tmp_path).count("capture") == 3
    assert editor.run("state")["recording"].endswith("net.pt.trace.json")
    assert any("batch size 64 (2 of 3): " in said for said in editor.progress)
    assert found["ok"] == bool(sizes)
    if sizes:
        document = editor.run("dialsAsk", {"ask": "document"})["document"]
        assert document["recorded"] == sizes
        assert editor.run("dialsPage")["ok"]
    else:
        assert "known: 16, 32" in found["text"]
        assert "batch size 64: RuntimeError: no memory for 64" in found["text"]
        assert "batch size 128: RuntimeError: no memory for 128" in found["text"]
    # Allowed once, nobody is asked again; and what is there is not recorded again.
    assert len(editor.asked) == 2
    assert log(tmp_path).count("capture") == 3


def test_cancelling_ends_what_the_dials_run_and_what_they_would_run(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script, settings = entry_workspace(tmp_path, f"64) {SLEEPS};; none")
    editor = start(script.parent, **settings)
    editor.answers = {"may this run": "Allow"}
    editor.open(script)
    editor.answer = editor.begin("dialsPage")
    editor.wait(lambda: len(processes_of("sleep\x0098765") + processes_of("sleep\x0098764")) == 2)

    editor.cancel_progress()

    assert editor.answer.result(20) == {"ok": False, "text": "cancelled"}
    editor.wait(is_over, 10)
    assert log(tmp_path) == ["capture", "parse", "capture"]


def running(start: Callable[..., Editor], tmp_path: Path, script: Path) -> Editor:
    """Return an editor that records what sleeps, with a child in the background."""
    editor = start(script.parent, **interpreter(tmp_path, script, SLEEPS))
    editor.answers = {"may this run": "Allow"}
    editor.open(script)
    editor.answer = editor.begin("profile")
    editor.wait(lambda: len(processes_of("sleep\x0098765") + processes_of("sleep\x0098764")) == 2)
    return editor


def is_over() -> bool:
    return not processes_of("sleep\x0098765") + processes_of("sleep\x0098764")


def test_cancelling_ends_all_that_was_started(
    start: Callable[..., Editor], tmp_path: Path, script: Path
) -> None:
    editor = running(start, tmp_path, script)
    assert not editor.run("profile")["ok"]
    assert "pyprof2: recording" in editor.progress

    editor.cancel_progress()

    assert editor.answer.result(20) == {"ok": False, "text": "cancelled"}
    editor.wait(is_over, 10)


def test_an_editor_that_says_goodbye_while_a_command_runs_hears_of_no_error(
    start: Callable[..., Editor], tmp_path: Path, script: Path
) -> None:
    editor = running(start, tmp_path, script)

    editor.shut()

    assert is_over()
    assert editor.answer.exception(20) is not None
    assert editor.said == []


@pytest.mark.parametrize("how", ["hang up", "kill"])
def test_an_editor_or_server_that_goes_leaves_no_program_running(
    start: Callable[..., Editor], tmp_path: Path, script: Path, how: str
) -> None:
    editor = running(start, tmp_path, script)

    if how == "kill":
        os.kill(editor.pid, 9)
    else:
        editor.hang_up()

    editor.wait(lambda: is_over() and not processes_of(str(tmp_path / "state")), 15)
