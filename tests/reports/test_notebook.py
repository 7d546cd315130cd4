"""What a notebook shows of a run: its numbers, and every text as text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pyprof2
from tests.kineto_events import launched, load_events, op

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EVIL = "<script>alert(1)</script>&\"'\x1b[31m\u202e\n"


class Page(HTMLParser):
    """Collects the elements and the rows of a table."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs
        self.elements.add(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if self.rows and data.strip():
            self.rows[-1].append(data)


def test_a_run_shows_its_head_and_the_longest_ops(shared_trace: Callable[[str], Path]) -> None:
    run = pyprof2.load(shared_trace("kineto/tl_owlv2_h100.json.gz"))

    page = Page(run._repr_html_())

    assert page.elements == {"div", "b", "table", "tr", "th", "td"}
    assert any("NVIDIA H100 80GB HBM3" in word for word in page.words)
    head, *rows = page.rows
    # The recording's name, not that of the store it was read into; one unit for a column.
    assert page.words[0] == "tl_owlv2_h100.json.gz"
    assert head == ["op", "count", "time ms", "share %", "TFLOP/s", "of roof %"]
    assert all(re.fullmatch(r"<?[\d.,]+|-", cell) for row in rows for cell in row[1:])
    profile = run.profile(by="op").head(10)
    assert [row[:2] for row in rows] == [
        [name, f"{count:,}"] for name, count in zip(profile["op"], profile["count"], strict=True)
    ]
    # As `pyprof2 prof` prints it: 262.422 ms of _softmax, and 115 us of others of that name.
    assert rows[0][2] == f"{profile['time_ns'][0] / 1e6:.3f}"


def test_texts_of_a_recording_are_shown_and_not_obeyed(tmp_path: Path) -> None:
    run = load_events(tmp_path, op("aten::" + EVIL, 0, 9), launched(1, 1, at=20, dur=5, name=EVIL))

    page = Page(run._repr_html_())

    assert page.elements <= {"div", "b", "table", "tr", "th", "td"}
    shown = [word for word in page.words if "alert(1)" in word]
    assert shown == [r"aten::<script>alert(1)</script>&" + "\"'" + r"\x1b[31m\u202e\n"]


def test_totals_are_a_dictionary_and_a_table(tmp_path: Path) -> None:
    run = load_events(tmp_path, op("aten::a", 0, 9), launched(1, 1, at=20, dur=5))

    rows = dict(row for row in Page(run.summary._repr_html_()).rows if len(row) == 2)

    assert run.summary["kernel_time_ns"] == 5_000
    assert (rows["kernel_time_ns"], rows["kernel_count"], rows["ranks"]) == ("5000", "1", "0")
    assert rows.keys() <= run.summary.keys()
