"""Take the pictures of a report that the documentation shows: `make pictures`.

They are of recordings that are made here, of two ranks in training on GPUs, of a job of eight and
at three batch sizes, and of the two that come with pyprof2; as WebP. Chromium is needed, and
playwright.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

from docs import examples
from pyprof2 import cli
from tests import dialled
from tests.analysis.job.job_generator import Job, name_pause, simulate, write
from tests.training_trace import write_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
QUALITY: Final = 45
TALLEST: Final = 1100
WIDE, NARROW = 1440, 480
LOOKS: Final = (("light", WIDE), ("dark", WIDE), ("light", NARROW), ("dark", NARROW))
"""The last one of the overview alone, to keep the pictures small."""
PAGES: Final = {
    "overview": "", "ops": "", "kernels": "", "layers": "depth=3&sides=1", "lines": "",
    "ranges": "", "roofline": "", "icicle": "", "timeline": "rank=0", "memory": "rank=0",
    "idle": "", "findings": "", "compare": "",
}  # fmt: skip
"""The pages of the recording of ours on GPUs, and what is chosen on each."""
OF_THE_JOB: Final = {"path": "", "ranks": ""}
"""Those of eight ranks, of which one is slow, and one loads data for long in a step."""
OF_THE_DEMO: Final = {"source": ""}
OF_THE_README: Final = {"overview": ""}
BEYOND: Final = 52
"""Where the dials are dragged to: it was not recorded, and fits."""


def main(folder: Path) -> None:
    """Write the pictures into a folder."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium: apt-get install chromium")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--headless=new", "--no-sandbox", "--disable-gpu"]
        )
        for report, pages in reports(Path(scratch)):
            for name, fragment in pages.items():
                book = "readme" if pages is OF_THE_README else "report"
                count = 1 if book == "readme" else len(LOOKS) if name == "overview" else 3
                for scheme, width in LOOKS[:count]:
                    file = folder / f"{book}-{name}-{scheme}-{width}.webp"
                    take(browser, f"{report.as_uri()}#page={name}&{fragment}", file)
        dials = page_with_dials(Path(scratch)).as_uri()
        for scheme, width in LOOKS:
            take(browser, dials, folder / f"batch-dials-{scheme}-{width}.webp", drag)
        browser.close()


def reports(scratch: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Give the reports, and the pages of each to take."""
    ranks = scratch / "training"
    ranks.mkdir()
    write_ranks(ranks, 2)
    page = scratch / "training.html"
    cli.main(["report", str(ranks), "-o", str(page), "--against", str(ranks / "rank0.json"), "-q"])
    yield page, PAGES
    yield job(scratch), OF_THE_JOB
    data = ROOT / "pyprof2" / "data"
    demo = scratch / "demo.html"
    words = ["report", str(data / "demo.json.gz"), "-o", str(demo), "--source-root", str(data)]
    cli.main([*words, "-q"])
    yield demo, OF_THE_DEMO
    gpu = scratch / "gpu.html"
    cli.main(["report", str(examples.folder() / "gpu.pyprof2"), "-o", str(gpu), "-q"])
    yield gpu, OF_THE_README


def job(scratch: Path) -> Path:
    """Return the report of a made-up job of many ranks."""
    folder = scratch / "job"
    folder.mkdir()
    made = Job(8, steps=6, pause={3: (2, 9000.0)}, slow={5: 1.15}, one_stream=True)
    files = write(simulate(made), folder)
    name_pause(3, files[3])
    page = scratch / "job.html"
    cli.main(["report", str(folder), "-o", str(page), "-q"])
    return page


def page_with_dials(scratch: Path) -> Path:
    """Return the page of recordings at three batch sizes, beside the program."""
    script = dialled.workspace(scratch / "dials")
    page = scratch / "dials.html"
    recordings = [f"{size}={script.with_name(f'b{size}.pyprof2')}" for size in dialled.SIZES]
    cli.main(["batch", *recordings, "-o", str(page), "--code", str(script), "-q"])
    return page


def drag(page: Page) -> None:
    """Move the dials from the batch size of the program to another one, by keys."""
    dial = page.locator("#dial-throughput")
    dial.focus()
    while int(dial.get_attribute("aria-valuenow") or BEYOND) < BEYOND:
        page.keyboard.press("ArrowUp")


def take(
    browser: Browser, address: str, file: Path, prepare: Callable[[Page], None] | None = None
) -> None:
    """Take one picture, of the whole page where that is not too tall."""
    _, _, scheme, width = file.stem.split("-")
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": int(width), "height": 700}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    if prepare is not None:
        prepare(page)
    page.wait_for_timeout(300)
    height = min(TALLEST, int(page.evaluate("document.documentElement.scrollHeight")))
    clip = {"x": 0, "y": 0, "width": int(width), "height": height, "scale": 1}
    wanted = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
    taken = context.new_cdp_session(page).send("Page.captureScreenshot", wanted)
    file.write_bytes(base64.b64decode(taken["data"]))
    context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=PICTURES, help="%(default)s")
    main(parser.parse_args().folder)
