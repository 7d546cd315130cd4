"""A page with dials that is open in a browser: what it shows, and hands that move it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext

_CLIPBOARD: Final = """
Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => {
  window.copied = text;
}}});
"""


class Dialler:
    """One page in one window.

    Attributes:
        page: of playwright.
        faults: errors on the console.
        requests: what was asked for, by address.
    """

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        context.set_default_timeout(15_000)
        self.page = context.new_page()
        self.page.add_init_script(_CLIPBOARD)
        self.page.on("console", lambda message: self._hear(message.type, message.text))
        self.page.on("pageerror", lambda error: self._hear("error", str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        self.page.wait_for_selector("html[data-ready]", timeout=90_000)

    def _hear(self, kind: str, text: str) -> None:
        if kind in {"error", "warning"}:
            self.faults.append(text)

    @property
    def batch(self) -> int:
        """The batch size that is shown."""
        return int(self.page.evaluate("document.documentElement.dataset.batch"))

    @property
    def sure(self) -> str:
        """What the page says of how sure that is."""
        return self.page.inner_text("#sure")

    @property
    def refusal(self) -> str:
        """Why the dials do not move; empty: they do."""
        found = self.page.locator("#refusal")
        return found.inner_text() if found.count() else ""

    def wait_batch(self, batch: int) -> None:
        """Wait until a batch size is shown; a script of the test may not wait on this page."""
        self.page.wait_for_selector(f"html[data-batch='{batch}']")

    def wait_free(self) -> None:
        """Wait until the dials move."""
        self.page.wait_for_selector("#refusal", state="detached")
        self.page.wait_for_selector("#dial-memory[aria-readonly=false]")

    def value(self, dial: str) -> str:
        """Return what a dial reads."""
        return self.page.inner_text(f".dial-box:has(#dial-{dial}) .reading")

    def bars(self) -> list[float]:
        """Return the values of all bars."""
        found = self.page.eval_on_selector_all(".bar", "all => all.map(b => +b.dataset.value)")
        return [float(each) for each in found]

    def widths(self) -> list[float]:
        """Return how long the bars are drawn, px."""
        script = "all => all.map(b => b.getBoundingClientRect().width)"
        return [float(each) for each in self.page.eval_on_selector_all(".bar", script)]

    def state(self) -> tuple[Any, ...]:
        """Return all that moves with a dial."""
        bands = self.page.eval_on_selector_all(
            ".band", "all => all.map(b => [b.getAttribute('y'), b.getAttribute('height')])"
        )
        return (
            self.batch, self.value("throughput"), self.value("memory"), str(bands),
            tuple(self.bars()), self.sure,
        )  # fmt: skip

    def middle(self, dial: str) -> tuple[float, float]:
        """Return where the handle of a dial is."""
        box = self.page.locator(f"#dial-{dial}").bounding_box()
        assert box is not None
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def grab(self, dial: str, up: float) -> None:
        """Take a handle, move it up by so many px, and hold it there."""
        x, y = self.middle(dial)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x, y - up, steps=6)

    def drop(self) -> None:
        """Let go."""
        self.page.mouse.up()

    def press(self, dial: str, *keys: str) -> None:
        """Press keys on a dial."""
        self.page.focus(f"#dial-{dial}")
        for key in keys:
            self.page.keyboard.press(key)
