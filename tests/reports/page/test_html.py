"""The file of a page: it may load nothing, and what a recording says is in its data alone."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from pyprof2.reports.page import html
from tests.kineto_events import frame, launched, op, step, trace
from tests.reports.page.reader import document_of, rows_of

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "\"'`&amp;{{x}}",
    "a\x00b\x1b[31mred\x07",
    "\u202eevil\u2066\u200b",
    "\ud7ff\U0001f600é",
    "x" * 1_000_000,
    "__proto__",
    "constructor",
)


class Tags(HTMLParser):
    """Lists the tags of a file, and the texts of its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and data.strip():
            self.scripts.append(data)


def tags_of(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    return tags


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the page of a recording in which every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    events: list[Any] = [step(1, 0, 1000)]
    for n, name in enumerate(HOSTILE):
        at = 10 + 50 * n
        events += [
            frame(f"{name}/../../../etc/passwd({n + 1}): f", at - 1, 40),
            frame(f"nn.Module: {name}_0", at, 38),
            op(f"aten::{name}", at + 1, 20, dims=[[2, 2]], types=[name], values=[name]),
            *launched(at + 2, n + 1, at=at + 5, dur=9, name=name),
        ]
    path = trace(folder, *events, deviceProperties=[{"id": 0, "name": HOSTILE[0]}])
    assert main(["report", str(path), "-o", str(folder / "x.html"), "--source-root", "/"]) == 0
    return (folder / "x.html").read_text()


def test_hostile_names_make_no_tag(hostile: str, tmp_path: Path) -> None:
    harmless = trace(tmp_path, step(1, 0, 100), op("aten::mm", 1, 20), *launched(2, 1, at=5, dur=9))
    assert main(["report", str(harmless)]) == 0
    usual = tags_of((tmp_path / "trace.html").read_text())

    found = tags_of(hostile)

    assert found.tags == usual.tags
    assert found.scripts[1:] == usual.scripts[1:]


def test_hostile_names_are_in_the_data_alone(hostile: str, tmp_path: Path) -> None:
    (tmp_path / "x.html").write_text(hostile)
    document = document_of(tmp_path / "x.html")
    around = re.sub(r'id="document">[^<]*<', "<", hostile)
    # Program and style are ours: the test above shows that they are the same for every trace.
    around = re.sub(r"<(script|style)>.*?</\1>", "", around, flags=re.DOTALL)

    names = {row["kernel"] for row in rows_of(document["cube"])}
    assert HOSTILE[0] in names
    for words in ("alert", "onerror", "evil", "proto", "passwd", "xxxx"):
        assert words not in around
    explained = document["roofline"]["signatures"]["columns"].pop("explain")
    assert max(len(text) for text in _texts(explained)) <= 20_001
    assert max(len(text) for text in _texts(document)) <= 4001
    assert document["sources"] == []


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for part in parts for text in _texts(part)]


def test_the_data_is_letters_that_html_gives_no_meaning(hostile: str) -> None:
    (data,) = re.findall(r'id="document">([^<]*)</script>', hostile)

    assert re.fullmatch("[A-Za-z0-9+/]+={0,2}", data)


def test_the_policy_allows_no_request_and_no_script_but_this_one(hostile: str) -> None:
    tags = tags_of(hostile)
    (policy,) = [a["content"] or "" for _, a in tags.tags if a.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    digest = hashlib.sha256(tags.scripts[-1].encode()).digest()
    assert rules == {
        "default-src": "'none'",
        "script-src": f"'sha256-{base64.b64encode(digest).decode()}'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    # A policy counts from where it stands: before all that it is about.
    assert [tag for tag, _ in tags.tags[:4]] == ["html", "head", "meta", "meta"]
    assert not [a for _, attributes in tags.tags for a in attributes if a in {"src", "href"}]


def test_a_program_cannot_end_its_own_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = tmp_path / "built"
    built.mkdir()
    (built / "report.js").write_text('x = "</script>" + "</SCRIPT >" + "<!-- <script>";')
    (built / "report.css").write_text("a { content: '</style>' }")
    monkeypatch.setattr(html, "DATA", tmp_path)

    text = "".join(html.page("data"))

    tags = tags_of(text)
    assert [tag for tag, _ in tags.tags].count("script") == 2
    assert tags.scripts[-1].startswith('x = "<\\/script>')
    digest = hashlib.sha256(tags.scripts[-1].encode()).digest()
    assert base64.b64encode(digest).decode() in text


def test_data_is_what_was_packed() -> None:
    document = {"a": [1, None, 2**53, float("nan")], "b": "é</script>"}

    packed = html.packed(document)

    read = json.loads(__import__("gzip").decompress(base64.b64decode(packed)))
    assert read == {"a": [1, None, 2**53, None], "b": "é</script>"}
    assert packed == html.packed(document)
