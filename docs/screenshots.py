"""Take the pictures of a report that the documentation shows: `make pictures`.

They are of recordings that are made here, of two ranks in training on GPUs, of a job of eight, and
at three batch sizes, and of the one that comes with pyprof2; in `docs/pictures`, as WebP. Chromium
is needed, and playwright.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

from pyprof2 import cli
from tests.analysis.job.job_generator import Job, name_pause, simulate, write
from tests.dialled import SIZES, workspace
from tests.training_trace import write_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

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
OF_THE_DIALS: Final = {"dials": ""}
"""The page of `pyprof2 batch -o`, with the number in a program."""


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
                for scheme, width in LOOKS if name == "overview" else LOOKS[:3]:
                    file = folder / f"report-{name}-{scheme}-{width}.webp"
                    take(browser, f"{report.as_uri()}#page={name}&{fragment}", file)
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
    yield dials(scratch), OF_THE_DIALS


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


def dials(scratch: Path) -> Path:
    """Return the page with the dials, of recordings at three batch sizes."""
    script = workspace(scratch / "ws")
    page = scratch / "dials.html"
    inputs = [f"{size}={script.parent / f'b{size}.pyprof2'}" for size in SIZES]
    with contextlib.chdir(script.parent):
        cli.main(["batch", *inputs, "-o", str(page), "--code", script.name, "-q"])
    return page


def take(browser: Browser, address: str, file: Path) -> None:
    """Take one picture, of the whole page where that is not too tall."""
    _, _, scheme, width = file.stem.split("-")
    dark = scheme == "dark"
    context = browser.new_context(
        viewport={"width": int(width), "height": 700}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("html[data-ready]")
    page.wait_for_timeout(300)
    height = min(TALLEST, int(page.evaluate("document.documentElement.scrollHeight")))
    clip = {"x": 0, "y": 0, "width": int(width), "height": height, "scale": 1}
    wanted = {"format": "webp", "quality": QUALITY, "clip": clip, "captureBeyondViewport": True}
    taken = context.new_cdp_session(page).send("Page.captureScreenshot", wanted)
    file.write_bytes(base64.b64decode(taken["data"]))
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
