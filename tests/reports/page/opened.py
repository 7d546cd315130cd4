"""A report that is open in a browser: what its tables say, and what it did that it must not."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import BrowserContext, Locator, Page

LAUNCH: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

# What a page copies is kept in the page: whether a file may use the clipboard is the browser's.
_CLIPBOARD: Final = """
Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => {
  window.copied = text;
}}});
"""
ROWS: Final = ".tabulator-tableholder .tabulator-row"


LOOKS: Final = [
    {"color_scheme": scheme, "viewport": {"width": width, "height": 900}}
    for scheme in ("light", "dark")
    for width in (1440, 480)
]
"""Options of a browser: light and dark, wide and narrow."""


def serious(page: Page, modules: Path) -> list[tuple[str, str, str]]:
    """Return what axe-core finds serious: the impact, the rule, and the first element's text.

    Args:
        page: one that is open.
        modules: the folder in which npm installed axe-core.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate((modules / "node_modules" / "axe-core" / "axe.min.js").read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 10
    return [
        (each["impact"], each["id"], each["nodes"][0]["html"])
        for each in found["violations"]
        if each["impact"] in {"serious", "critical"}
    ]


class Opened:
    """One report in one window of a browser.

    Attributes:
        page: of playwright.
        faults: errors on the console, requests beside that of the file, dialogs.
    """

    def __init__(self, context: BrowserContext, report: Path, fragment: str) -> None:
        """Open the report and wait until it can be used."""
        self.url = report.resolve().as_uri()
        self.faults: list[str] = []
        context.set_default_timeout(10_000)
        self.page = context.new_page()
        self.page.add_init_script(_CLIPBOARD)
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self._see(request.url))
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))
        self.page.goto(f"{self.url}#{fragment}")
        self.page.wait_for_selector("html[data-ready]", timeout=20_000)

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.faults.append(f"{kind}: {text}")

    def _see(self, url: str) -> None:
        if url.partition("#")[0] != self.url:
            self.faults.append(f"request of {url[:200]}")

    @property
    def tabs(self) -> list[str]:
        """The titles of the pages."""
        return self.page.locator("[role=tab]").all_inner_texts()

    def turn_to(self, title: str) -> None:
        """Open a page by its tab."""
        self.page.get_by_role("tab", name=title, exact=True).click()
        self.page.wait_for_selector(f"[role=tab][aria-selected=true]:text-is('{title}')")

    @property
    def current(self) -> str:
        """The id of the page that is shown."""
        return self.page.locator("#panel").get_attribute("data-page") or ""

    @property
    def fragment(self) -> dict[str, str]:
        """What the fragment of the address says."""
        found: dict[str, str] = self.page.evaluate(
            "Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        )
        return found

    def copied(self, button: str, among: int = 0) -> str:
        """Return what a button copies."""
        self.page.evaluate("window.copied = null")
        self.page.get_by_role("button", name=button).nth(among).click()
        self.page.wait_for_function("window.copied !== null")
        text: str = self.page.evaluate("window.copied")
        return text

    def rows(self, among: int = 0) -> list[dict[str, str]]:
        """Return all rows of a table in the order in which they stand, as CSV has them."""
        self.page.locator(".tabulator").nth(among).wait_for()
        text = self.copied("Copy CSV", among)
        return list(csv.DictReader(io.StringIO(text, newline="")))

    def cells(self, row: Locator) -> dict[str, str]:
        """Return what is to be read in a row, by the names of the columns."""
        found: dict[str, str] = row.evaluate(
            """row => Object.fromEntries([...row.querySelectorAll(".tabulator-cell")]
                .map(cell => [cell.getAttribute("tabulator-field"), cell.innerText]))"""
        )
        return found

    def first_cells(self) -> dict[str, str]:
        """Return what is to be read in the first row of the first table."""
        return self.cells(self.page.locator(ROWS).first)

    def totals(self) -> dict[str, str]:
        """Return what is to be read below the first table."""
        return self.cells(self.page.locator(".tabulator-calcs-bottom").first)

    def press(self, *keys: str) -> None:
        """Press keys, one after another."""
        for key in keys:
            self.page.keyboard.press(key)

    def ask(self, script: str, *arguments: Any) -> Any:
        """Return what a script says of the page."""
        return self.page.evaluate(script, *arguments)
