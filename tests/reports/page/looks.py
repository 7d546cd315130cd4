"""What can be measured of how a page looks: texts and their boxes, labels, painted pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS: Final = (1440, 390)

_WIDER: Final = """
() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode;
    const hidden = ".skip, .offscreen, script, noscript, option";
    if (!text.textContent.trim() || text.parentElement.closest(hidden)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const box = range.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    // A word is not to be torn into a column of letters.
    const lines = new Set([...range.getClientRects()].map(({top}) => Math.round(top))).size;
    const words = text.textContent.trim().split(/\\s+/);
    if (lines > Math.max(2, words.length) && words.join(" ").length < 3.5 * lines) {
      found.push(`torn: ${text.textContent.slice(0, 60)}`);
    }
    let holder = text.parentElement;
    let limit = {left: 0, right: innerWidth};
    for (; holder && holder !== document.body; holder = holder.parentElement) {
      const style = getComputedStyle(holder);
      if (["auto", "scroll"].includes(style.overflowX)) { limit = null; break; }
      if (style.overflowX !== "visible" || style.display === "table-cell") {
        limit = holder.getBoundingClientRect();
        break;
      }
    }
    // What scrolls shows all of it.
    if (limit && (box.left < limit.left - 1 || box.right > limit.right + 1)) {
      const { className, tagName } = text.parentElement;
      found.push(`${className || tagName}: ${text.textContent.slice(0, 60)}`);
    }
  }
  return found;
}
"""

_BOXES: Final = """
selector => [...document.querySelectorAll(selector)].map(each => {
  const {left, right, top, bottom} = each.getBoundingClientRect();
  return {text: (each.firstChild?.textContent ?? ""), left, right, top, bottom};
})
"""

_HEIGHTS: Final = """
([row]) => {
  const box = document.querySelector(".chart[data-row]");
  const canvas = box.querySelector("canvas");
  const scale = canvas.width / box.clientWidth;
  const height = Number(box.dataset.row);
  const top = Math.round(4 + row * height + 2);
  const context = canvas.getContext("2d");
  const image = context.getImageData(0, top * scale, canvas.width, (height - 4) * scale);
  const near = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]);
  const rgb = name => {
    const probe = document.createElement("canvas").getContext("2d");
    probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    probe.fillRect(0, 0, 1, 1);
    return probe.getImageData(0, 0, 1, 1).data;
  };
  const [page, line] = [rgb("--page"), rgb("--line")];
  const tones = ["--matrix", "--compute", "--comm", "--copies", "--warn", "--muted",
    ...[0, 1, 2, 3, 4, 5].map(n => `--idle-${n}`)].map(rgb);
  const heights = [];
  for (let x = 0; x < image.width; x += 1) {
    let painted = 0;
    for (let y = 0; y < image.height; y += 1) {
      const at = 4 * (y * image.width + x);
      const own = image.data.slice(at, at + 3);
      const opaque = image.data[at + 3] / 255;
      const ground = Math.min(near(own, page), near(own, line));
      const empty = opaque < 0.5 || ground < Math.min(...tones.map(tone => near(own, tone)));
      // Names stand on what is painted: the highest painted pixel counts.
      if (!empty) { painted = image.height - y; break; }
    }
    heights.push(painted / image.height);
  }
  return heights;
}
"""


def wider(page: Page) -> list[str]:
    """Return the texts that are wider than what clips them or than the window, or torn apart."""
    found: list[str] = page.evaluate(_WIDER)
    return found


def boxes(page: Page, selector: str) -> list[dict[str, Any]]:
    """Return text and bounds of elements."""
    found: list[dict[str, Any]] = page.evaluate(_BOXES, selector)
    return found


def overlapping(labels: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the pairs of labels of which one lies upon the other, by more than a pixel."""
    return [
        (a["text"], b["text"])
        for place, a in enumerate(labels)
        for b in labels[place + 1 :]
        if min(a["right"], b["right"]) - max(a["left"], b["left"]) > 1
        and min(a["bottom"], b["bottom"]) - max(a["top"], b["top"]) > 1
    ]


def heights(page: Page, row: int) -> list[float]:
    """Return how much of the height of a row of the time line is painted, pixel by pixel."""
    found: list[float] = page.evaluate(_HEIGHTS, [row])
    return found


def shares(page: Page, row: int) -> list[float]:
    """Return the painted share of each pixel of a row's own part of the time line."""
    width = page.locator(".chart[data-row]").evaluate("box => box.clientWidth")
    left = int(page.locator(".chart[data-row]").get_attribute("data-left") or 0)
    return heights(page, row)[left : width - 16]
