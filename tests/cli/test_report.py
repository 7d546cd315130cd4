"""`pyprof2 report`: where it writes, what it refuses, what it prints."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.api.run import parse
from pyprof2.cli.report import default_output
from tests.builders import mm_trace
from tests.reports.page.reader import document_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "net.json"
    path.write_text(json.dumps(mm_trace()))
    return path


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("net.pyprof2", "net.html"),
        ("net.json", "net.html"),
        ("net.json.gz", "net.html"),
        ("net.sqlite", "net.html"),
        ("v1.2.pyprof2", "v1.2.html"),
        ("job", "job.html"),
        (".pyprof2", ".pyprof2.html"),
    ],
)
def test_the_page_stands_beside_its_recording(name: str, page: str, tmp_path: Path) -> None:
    assert default_output(tmp_path / name) == tmp_path / page


def test_a_store_and_its_trace_give_the_same_page(
    trace: Path, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    store = parse(trace, tmp_path / "net.pyprof2")

    results = [invoke("report", path, "-o", f"{path}.html") for path in (trace, store)]

    assert [(r.code, r.out, r.err) for r in results] == [
        (0, f"{trace}.html\n", ""), (0, f"{store}.html\n", ""),
    ]  # fmt: skip
    one, other = (document_of(tmp_path / f"net.{s}.html") for s in ("json", "pyprof2"))
    for document, path in ((one, trace), (other, store)):
        for name in ("name", "command"):
            del document["meta"][name]
        commands = document["job"]["whatif"]["columns"]["command"]["texts"]
        commands[:] = [
            text.replace(f"pyprof2 whatif {path} ", "pyprof2 whatif ") for text in commands
        ]
    assert one == other


def test_the_command_line_of_a_page_can_be_pasted(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "my net$(x).json"
    path.write_text(json.dumps(mm_trace()))

    invoke("report", path, "-o", tmp_path / "x.html")

    meta = document_of(tmp_path / "x.html")["meta"]
    assert meta["command"] == f"pyprof2 prof '{path}'"
    assert meta["name"] == "my net$(x).json"


def test_nothing_is_overwritten_without_force(trace: Path, invoke: Callable[..., Any]) -> None:
    page = trace.with_suffix(".html")
    page.write_text("mine")

    refused = invoke("report", trace)
    kept = page.read_text()
    forced = invoke("report", trace, "--force")

    assert (refused.code, kept, forced.code) == (1, "mine", 0)
    assert "exists" in refused.err
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert not list(page.parent.glob(".*"))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        pytest.param(["--source-root", "{none}"], 2, "no such folder", id="root"),
        pytest.param(["-o", "{none}/x.html"], 1, "make it first", id="folder"),
        pytest.param(["--against", "{none}"], 1, "none", id="against"),
        pytest.param(["-o", "{folder}"], 1, "is a directory", id="a folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    options: list[str],
    code: int,
    message: str,
    trace: Path,
    invoke: Callable[..., Any],
    tmp_path: Path,
) -> None:
    named = [o.format(none=tmp_path / "none", folder=tmp_path) for o in options]

    result = invoke("report", trace, *named)

    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert result.err.count("\n") == 1
    assert not list(tmp_path.glob("**/*.html"))


def test_a_trace_that_cannot_be_read_leaves_no_page(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "x.json").write_text("no trace")

    result = invoke("report", tmp_path / "x.json")

    assert result.code == 1
    assert not (tmp_path / "x.html").exists()


def test_a_damaged_store_is_refused_in_one_line(
    trace: Path, invoke: Callable[..., Any], tmp_path: Path
) -> None:
    store = parse(trace, tmp_path / "net.pyprof2")
    shutil.rmtree(store / "idle")

    result = invoke("report", store)

    assert (result.code, result.err.count("\n")) == (1, 1)
    assert not (tmp_path / "net.html").exists()
