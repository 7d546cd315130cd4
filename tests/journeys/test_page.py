"""The page of a recording: every tab opens, without an error, and says what the command says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.reports.page.opened import Opened
from tests.training_trace import write_ranks

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.journeys.conftest import Walk


def test_every_tab_of_the_page_opens_without_an_error(walk: Walk, chromium: Browser) -> None:
    traces = walk.folder / "job"
    traces.mkdir()
    write_ranks(traces, 2)
    walk.run("pyprof2", "report", "job", "-o", "job.html")
    ops = walk.rows("prof", "job", "--by", "op")

    opened = Opened(chromium.new_context(), walk.folder / "job.html", "")
    tabs = opened.page.get_by_role("tab")
    seen = {}
    for at in range(tabs.count()):
        tabs.nth(at).click()
        seen[tabs.nth(at).inner_text()] = opened.page.locator("#panel").inner_text()
    opened.turn_to("Overview")
    opened.page.locator(".term", has_text="MFU").first.focus()
    meaning = opened.page.locator("#gloss").inner_text()
    opened.turn_to("Timeline")
    opened.page.get_by_role("button", name="Zoom in").click()
    zoomed = opened.fragment
    opened.page.context.close()

    assert opened.faults == []
    assert "FLOPs of the model" in meaning
    assert int(zoomed["to"]) > int(zoomed["from"]) > 0
    assert len(seen) >= 5
    assert all(text.strip() for text in seen.values())
    assert any(ops[0]["op"] in text for text in seen.values())
