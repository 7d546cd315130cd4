"""Which lines may have numbers, what is said of recordings of other code, and what advice says."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

import pytest
from lsprotocol import types as lsp

from pyprof2.markers import Marker, format_marker
from pyprof2.pipeline.parsing import parse
from tests.kineto_events import complete, copy, launched, op, step, trace
from tests.lsp.editor import processes_of
from tests.lsp.workspaces import CODE, source, workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kineto_events import Event
    from tests.lsp.editor import Editor

CELL = "/tmp/ipykernel_77/1234567890.py"  # noqa: S108 - where ipykernel says that cells are
HASHED = "c4/cc4yzl23xqw2n7uxhv5kd6tq3m2o7r4zzp5w6y3nkd2u5v7x4qab.py"
PACKAGE = ".venv/lib/python3.11/site-packages/nets/net.py"


def head(root: Path) -> Event:
    """Return the marker of a process whose own code is below a folder."""
    marker = Marker("process", rank=0, world_size=1, source_root=str(root))
    return op(format_marker(marker, quoteless=True), 0, 1)


def of_lines(root: Path, *places: tuple[str, int]) -> Iterator[Event | list[Event]]:
    """Yield a step of 1 ms in which each line has a kernel of 100 us, one after another."""
    yield head(root)
    yield step(0, 10, 1000)
    for number, (path, line) in enumerate(places):
        at = 20 + 30 * number
        yield source(path, line, ts=at, dur=20)
        yield op("aten::relu", at + 1, 15, dims=[[32, 64]], types=["float"])
        yield launched(at + 2, number, at=1100 + 100 * number, dur=100)


def written(path: Path, text: str = "x = 1\ny = f(x)\n") -> Path:
    """Write a file that is older than its recording."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    old = time.time() - 3600
    os.utime(path, (old, old))
    return path


def recorded(root: Path, *events: Event | list[Event]) -> Path:
    """Write a recording, and return its store."""
    return parse(trace(root.parent / "net.json", *events), root / "net.pyprof2", force=True)


# -- what has no numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", [HASHED, PACKAGE])
def test_generated_files_and_packages_have_no_numbers_in_the_workspace_either(
    start: Callable[..., Editor], tmp_path: Path, name: str
) -> None:
    root = tmp_path / "ws"
    own, other = written(root / "train.py"), written(root / name)
    recorded(root, *of_lines(root, (str(own), 2), (str(other), 2)))
    editor = start(root)

    editor.open(own)
    editor.wait(lambda: editor.hints() == [(2, "0.1 ms")])
    editor.close()
    editor.open(other)
    time.sleep(0.5)

    assert editor.hints() == []
    assert editor.hover(2) == ""
    assert list(editor.run("state")["states"]) == [str(own)]


def test_cells_of_notebooks_are_no_files_and_are_said_to_be_not_here(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    root = tmp_path / "ws"
    own = written(root / "helpers.py")
    recorded(root, *of_lines(root, (str(own), 2), (CELL, 2), ("<string>", 2)))
    editor = start(root)

    editor.open(own)

    editor.wait(lambda: editor.hints() == [(2, "0.1 ms")])
    assert editor.run("state")["states"] == {str(own): "same", CELL: "missing"}
    assert editor.lenses()[0][1].endswith("1234567890.py not here")


# -- recordings of other code --------------------------------------------------------------------


def test_of_mixed_files_each_has_what_is_known_of_it_and_the_rest_is_said(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    root = tmp_path / "ws"
    same, changed, gone = (written(root / f"{name}.py") for name in ("same", "changed", "gone"))
    recorded(root, *of_lines(root, *((str(path), 2) for path in (same, changed, gone))))
    changed.write_text("x = 1\ny = f(x)\nz = 2\n")
    gone.unlink()
    editor = start(root)

    editor.open(same)
    editor.wait(lambda: editor.hints() == [(2, "0.1 ms")])

    state = editor.run("state")
    assert state["states"] == {str(same): "same", str(changed): "changed", str(gone): "missing"}
    assert state["mismatch"] == "changed.py changed since; gone.py not here"
    assert state["mismatch"] in editor.lenses()[0][1]
    editor.close()
    editor.open(changed)
    # The hash of the line says that it is as it was, and it is in no function that changed.
    editor.wait(lambda: editor.hints() == [(2, "0.1 ms")])
    editor.close()
    editor.open(changed, "x = 1\ny = g(x)\nz = 2\n")
    time.sleep(0.5)
    assert editor.hints() == []


def test_without_hashes_a_newer_file_has_no_numbers_and_is_of_unknown_age(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    root = tmp_path / "ws"
    own = root / "train.py"
    written(own)
    made = trace(tmp_path / "net.json", *of_lines(root, (str(own), 2)))
    own.unlink()
    store = parse(made, root / "net.pyprof2")
    own.write_text("x = 1\ny = f(x)\n")
    later = store.stat().st_mtime + 3600
    os.utime(own, (later, later))
    editor = start(root)

    editor.open(own)
    editor.wait(lambda: editor.run("state")["recording"])
    time.sleep(0.5)

    assert editor.hints() == []
    assert editor.run("state")["mismatch"] == "train.py of unknown age"


# -- findings ------------------------------------------------------------------------------------


def waits(root: Path, path: Path) -> Iterator[Event | list[Event]]:
    """Yield twenty steps whose line 16 waits for the device, which is then idle for 258 us."""
    yield head(root)
    for number in range(20):
        t, c = 10 + 1000 * number, 10 * number
        yield step(number, t, 1000)
        yield source(str(path), 13, ts=t + 5, dur=50)
        yield op("aten::mm", t + 10, 40)
        yield launched(t + 30, c, at=t + 40, dur=300)
        yield source(str(path), 16, ts=t + 60, dur=300)
        yield op("aten::item", t + 61, 290)
        yield op("aten::_local_scalar_dense", t + 62, 285)
        yield complete("cuda_runtime", "cudaMemcpyAsync", t + 65, 2, args={"correlation": c + 1})
        yield copy(t + 340, 2, c + 1, name="Memcpy DtoH (Device -> Pageable)")
        found = {"correlation": c + 2}
        yield complete("cuda_runtime", "cudaStreamSynchronize", t + 70, 275, args=found)
        yield source(str(path), 14, ts=t + 590, dur=50)
        yield op("aten::mm", t + 595, 30)
        yield launched(t + 600, c + 3, at=t + 605, dur=300)


def test_findings_are_diagnostics_where_they_are_wanted_and_follow_edits(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    root = tmp_path / "ws"
    own = written(root / "train.py", CODE)
    recorded(root, *waits(root, own))
    editor = start(root)
    editor.open(own)
    editor.wait(editor.hints)
    assert editor.diagnostics == {}

    settings = {"pyprof2": {"diagnostics": True}}
    params = lsp.DidChangeConfigurationParams(settings)
    editor.tell(editor._client.workspace_did_change_configuration, params)

    (found,) = editor.wait(lambda: editor.diagnostics.get(editor.uri))
    assert (found.code, found.source) == ("sync", "pyprof2")
    assert found.severity == lsp.DiagnosticSeverity.Warning
    # `        log(loss)`, the blanks left out.
    ends = (found.range.start.line, found.range.start.character, found.range.end.character)
    assert ends == (15, 8, 17)
    assert re.match(r"\d\d\.\d % of the time after the host waited for the device", found.message)
    assert "remedy: keep results on the device: no .item()" in found.message
    assert found.message.endswith("(docs: advice, sync)")
    editor.replace("class Block", "# one\nclass Block")
    editor.wait(lambda: [d.range.start.line for d in editor.diagnostics[editor.uri]] == [16])
    editor.replace("        log(loss)\n", "")
    editor.wait(lambda: editor.diagnostics[editor.uri] == [])


# -- another machine -----------------------------------------------------------------------------


def test_through_a_pipe_as_of_ssh_with_folders_of_another_machine(
    start: Callable[..., Editor], tmp_path: Path
) -> None:
    script = workspace(tmp_path / "there")
    here = tmp_path / "here"
    script.parent.rename(here)
    (here / "src").mkdir()
    (here / "train.py").rename(here / "src" / "train.py")
    # Bytes alone go from and to the server, whose folder is another one.
    pipe = ("sh", "-c", 'cd /; cat | "$@" | cat', "sh")
    mapped = {str(script.parent): str(here / "src")}

    editor = start(here, through=pipe, pathMap=mapped)
    editor.open(here / "src" / "train.py")

    editor.wait(lambda: [line for line, _ in editor.hints()] == [7, 8, 13])
    assert editor.run("setBatchSize", 64)["ok"]
    assert editor.text == CODE.replace("= 32", "= 64")
    editor.hang_up()
    editor.wait(lambda: not processes_of(str(tmp_path / "state")), 10)
