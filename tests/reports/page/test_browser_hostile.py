"""A recording may say anything: on the page it is text, and it makes the page do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pyprof2 import cli
from tests.kineto_events import annotation, frame, launched, op, step, trace
from tests.reports.page.opened import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

ALARM: Final = "window.attacked = true; alert(1)"
NAMES: Final = {
    "script": f"<script>{ALARM}</script>",
    "closed script": f"</script><script>{ALARM}</script>",
    "image": f"<img src=x onerror='{ALARM}'>",
    "svg": f"<svg/onload=\"{ALARM}\"><iframe srcdoc='<script>{ALARM}</script>'>",
    "link": "<a href='javascript:alert(1)'>x</a><style>*{display:none}</style>",
    "remote": "<link rel=stylesheet href=https://example.com/x.css><img src=//example.com/x>",
    "quotes": "\"'`><b>&lt;&#60;${alert(1)}{{alert(1)}}",
    "comment": "<!--<script>",
    "terminal": "\x1b[31mred\x1b]0;title\x07",
    "bidi": "aten::\u202emm\u2066",
    "lines": "one\ntwo\ttabs\r",
    "template": "__proto__",
    "tilde": "~0",
    "equals": "=aten::mm",
    "formula": '=HYPERLINK("http://example.com")',
    "long": "x" * 1_000_000,
}  # fmt: skip


HANDLERS: Final = """
[...document.querySelectorAll("*")].flatMap(e => e.getAttributeNames()).filter(n => /^on/.test(n))
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of a recording in which every kind of text is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    events = []
    for at, name in enumerate(NAMES.values()):
        begin = 100 * at + 1
        path = f"../../../etc/{name[:200]}.py({at}): {name[:200]}"
        events += [
            frame(path, begin, 90),
            frame(f"nn.Module: {name}_0", begin + 1, 80),
            annotation(name, begin + 2, 70),
            op(name, begin + 3, 60, id=at + 1, dims=[[4, 4], [4, 4]], types=[name, name]),
            *launched(begin + 4, at + 1, at=begin + 20, dur=30 + at, name=name, id=at + 1),
        ]
    whole = 100 * len(NAMES) + 5
    file = trace(
        folder, step(0, 0, whole), *events,
        deviceProperties=[{"id": 0, "name": NAMES["script"]}],
    )  # fmt: skip
    page = folder / "hostile.html"
    assert cli.main(["report", str(file), "-o", str(page), "--source-root", str(folder)]) == 0
    return page


def test_a_hostile_recording_makes_the_page_do_nothing(open_page: Open, hostile: Path) -> None:
    opened = open_page(hostile)

    for title in opened.tabs:
        opened.turn_to(title)
        assert opened.ask("window.attacked") is None
        elements = opened.ask(
            "Object.fromEntries(['script', 'img', 'iframe', 'link', 'a[href^=java]', 'b b']"
            ".map(name => [name, document.querySelectorAll(name).length]))"
        )
        # The data, and the program.
        assert elements == {
            "script": 2, "img": 0, "iframe": 0, "link": 0, "a[href^=java]": 0, "b b": 0,
        }  # fmt: skip
        assert opened.ask(HANDLERS) == []
    assert opened.faults == []


def test_what_is_not_to_be_seen_is_shown_as_an_escape(open_page: Open, hostile: Path) -> None:
    opened = open_page(hostile, "page=ops")

    text = opened.page.locator("#panel").inner_text()

    assert r"aten::\u202emm\u2066" in text
    assert r"\x1b[31mred\x1b]0;title\x07" in text
    assert r"one\ntwo\ttabs\r" in text
    assert NAMES["script"] in text
    assert not {"\u202e", "\u2066", "\x1b"} & set(text)


def test_a_long_text_is_cut_where_it_is_shown_and_in_its_title(
    open_page: Open, hostile: Path
) -> None:
    opened = open_page(hostile, "page=kernels")

    sizes = opened.ask(
        "[...document.querySelectorAll('#panel *')].map(e => [e.children.length ? 0 : "
        "e.textContent.length, (e.getAttribute('title') ?? '').length])"
    )

    assert 80 < max(shown for shown, _ in sizes) <= 300
    assert max(title for _, title in sizes) == 2000


def test_every_name_can_be_gone_down_from(open_page: Open, hostile: Path) -> None:
    opened = open_page(hostile, "page=kernels")
    kernels = [row["kernel"] for row in opened.rows()]

    for name in (text for key, text in NAMES.items() if key != "long"):
        opened.page.locator(ROWS).nth(kernels.index(name)).click()
        opened.page.wait_for_selector("#panel[data-page=ops]")
        assert [each["op"] for each in opened.rows()] == [name]
        opened.page.go_back()
        opened.page.wait_for_selector("#panel[data-page=kernels]")
    assert opened.faults == []


def test_a_long_name_stands_in_the_fragment_by_its_number(open_page: Open, hostile: Path) -> None:
    opened = open_page(hostile, "page=kernels")
    opened.page.locator(ROWS, has_text="xxxxxxxxxx").click()
    opened.page.wait_for_selector("#panel[data-page=ops]")

    assert opened.fragment["kernel"].startswith("~")
    assert [row["op"][:9] for row in opened.rows()] == ["xxxxxxxxx"]


FRAGMENTS: Final = (
    "page=<script>alert(1)</script>", "page=ops&sort=<img>&f.op=<img>&q=<img src=x>",
    "page=ops&op=~99999999", "page=ops&step=zzz&rank=-1&depth=1e9", "page=__proto__",
    "page=ops&by=constructor", "page=idle&by=__proto__", "page=timeline&window=-5",
    "page=icicle&measure=toString&tree=constructor", "page=ranks&measure=valueOf",
    "%E0%A4%A", "page=source&file=../../etc/passwd", "page=memory&window=1e99",
)  # fmt: skip


def test_a_hostile_fragment_is_no_worse(open_page: Open, hostile: Path) -> None:
    opened = open_page(hostile, FRAGMENTS[0])

    for fragment in FRAGMENTS:
        opened.ask("fragment => { location.hash = fragment }", fragment)
        opened.page.wait_for_timeout(100)
        assert opened.page.locator("#panel h2").first.is_visible(), fragment
    opened.page.reload()
    assert opened.page.locator("#panel h2").first.is_visible()
    assert opened.ask("window.attacked") is None
    assert opened.faults == []
