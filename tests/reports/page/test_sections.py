"""A section of the page that cannot be made takes none of the others with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import pyprof2
from pyprof2.api.run import Run
from pyprof2.cli import main
from pyprof2.reports.page import document as documents
from tests.kineto_events import copy, launch, launched, op, step, trace
from tests.reports.page.reader import document_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.opened import Opened

MAKERS: Final = {
    "steps_apart": "steps", "zeros": "times", "memory_of": "memory", "heading_of": "heading",
    "cube": "profile", "steps_of": "steps", "parts_of": "parts", "whole_of": "whole",
    "findings_of": "findings", "bounds_of": "bounds", "quality_of": "quality",
    "roofline_of": "roofline", "windows_of": "recorded", "idle_of": "idle",
    "timeline_of": "timeline", "lines_of": "lines", "serving_of": "serving",
    "elsewhere_of": "elsewhere", "job_of": "job", "_sources": "sources", "_meta": "meta",
    "steps_notes": "notes", "notes_of": "notes",
}  # fmt: skip
"""What makes a section, and the name of that section."""
OP: Final = op("aten::mm", 0, 9, id=1, dims=[[4, 4], [4, 4]], types=["float", "float"])


def recording(folder: Path) -> Path:
    return trace(folder, step(1, 0, 40), OP, *launched(2, 1, at=12, dur=20, id=1))


def copies(name: str, *, called: str) -> list[Any]:
    begun = launch(1, 1, name=called, id=1)
    return [op("aten::copy_", 0, 10, id=1), begun, copy(5, 9, 1, name=name)]


def broken(*_: object, **__: object) -> None:
    msg = "planted"
    raise RuntimeError(msg)


def report(path: Path, capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, Any], str]:
    page = path.parent / "page.html"
    assert main(["report", str(path), "-o", str(page), "--force"]) == 0
    return document_of(page), capsys.readouterr().err


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pyprof2.parse(recording(tmp_path_factory.mktemp("sections")))


@pytest.fixture(scope="module")
def whole(store: Path) -> dict[str, Any]:
    page = store.parent / "whole.html"
    assert main(["report", str(store), "-o", str(page)]) == 0
    return document_of(page)


@pytest.mark.parametrize("name", MAKERS)
def test_a_section_that_fails_is_left_out_and_said(
    name: str,
    store: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(documents, name, broken)
    document, said = report(store, capsys)

    assert whole["failed"] == {}
    assert set(document) == set(whole)
    assert "planted" in document["failed"][MAKERS[name]]
    assert f"the page has no section {MAKERS[name]}: a fault in pyprof2" in said
    if name not in ("steps_apart", "zeros"):  # others need these
        assert set(document["failed"]) == {MAKERS[name]}
        parts = {*whole} - {MAKERS[name], "failed", "meta"}
        parts -= {"cube", "calls", "helpers"} if name == "cube" else set()
        assert [n for n in parts if document[n] != whole[n]] == []


@pytest.mark.parametrize("method", ["advise", "check"])
def test_what_several_sections_need_takes_those_alone(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Run, method, broken)
    document, _ = report(recording(tmp_path), capsys)

    assert {"quality"} <= set(document["failed"]) <= {"quality", "heading", "findings"}
    assert document["cube"]["rows"] == 1


def test_what_was_asked_for_and_makes_no_sense_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-o", str(tmp_path / "page.html"), "--against", str(tmp_path / "missing.json")]

    assert main(["report", str(recording(tmp_path)), *options]) != 0
    assert "no section" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "events",
    [
        copies("Memcpy HtoD (Pageable -> Device)", called="cudaMemcpyAsync"),
        copies("Memset (Device)", called="cudaMemsetAsync"),
        [step(1, 0, 30), *copies("Memcpy DtoD (Device -> Device)", called="cudaMemcpyAsync")],
        [OP],
    ],
)
def test_a_recording_without_kernels_has_a_page_without_predictions(
    events: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, said = report(trace(tmp_path, *events), capsys)

    assert document["elsewhere"] is None
    assert document["failed"] == {}
    assert document["cube"]["rows"] == 1
    assert said == ""


def test_messages_name_the_recording_and_no_folder_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = trace(tmp_path, *copies("Memset (Device)", called="cudaMemsetAsync"))

    assert main(["predict", str(path), "--on", "T4"]) != 0
    assert capsys.readouterr().err.startswith(f"pyprof2: {path}: no device worked in it")


def test_a_page_without_any_section_opens_and_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    open_page: Callable[..., Opened],
) -> None:
    for name in MAKERS:
        monkeypatch.setattr(documents, name, broken)
    report(recording(tmp_path), capsys)

    opened = open_page(tmp_path / "page.html")
    assert "The section idle is missing: a fault in pyprof2" in opened.page.inner_text("body")
    for tab in opened.page.query_selector_all('[role="tab"]'):
        tab.click()
    assert opened.faults == []
