"""How long the page of a report takes until it can be used, and how large its file is.

Usage: python -m benchmarks.report_page [TRACE] [--kernels N] [--rounds N]

A trace (by default one that is made here, of a model in training) is made as large as it takes to
have so many kernels, parsed, and reported on. The file is opened in Chromium, anew in each round;
the time is that from the start of the navigation until the first page is shown, the median of the
rounds.

The claims, for 1,000,000 kernels: under 3 s, and a file of less than 10 MB. Exit code 1 if one
does not hold.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from playwright.sync_api import sync_playwright

import pyprof2
from pyprof2 import cli
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMIT_S: Final = 3.0
LIMIT_BYTES: Final = 10_000_000


def large_store(trace: Path, kernels: int, folder: Path) -> Path:
    """Return a store of a trace that is repeated until it has so many kernels."""
    small = len(pyprof2.load(trace).kernels)
    large = folder / "large.json.gz"
    copies = str(math.ceil(kernels / small))
    command = [sys.executable, "-m", "benchmarks.scale_trace", str(trace), str(large)]
    subprocess.run([*command, "--copies", copies], check=True)
    return pyprof2.parse(large, folder / "large.pyprof2")


def opened(browser: Browser, page: Path) -> float:
    """Return how long it took until the page was shown, in s."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    window = context.new_page()
    window.goto(page.resolve().as_uri())
    window.wait_for_selector("html[data-ready]", timeout=120_000)
    ms = float(window.evaluate("performance.getEntriesByName('ready')[0].startTime"))
    context.close()
    return ms / 1000


def measure(page: Path, rounds: int) -> list[float]:
    """Return the times of all rounds, in s."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--headless=new", "--no-sandbox", "--disable-gpu"]
        )
        times = [opened(browser, page) for _ in range(rounds)]
        browser.close()
    return times


def main() -> int:
    """Print the times and the size, and whether the claims hold."""
    parser = argparse.ArgumentParser(description="Measure the page of a report.")
    parser.add_argument("trace", type=Path, nargs="?", metavar="TRACE")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        trace = args.trace or folder / "training.json"
        if args.trace is None:
            trace.write_bytes(training_trace())
        store, page = large_store(trace, args.kernels, folder), folder / "page.html"
        cli.main(["report", str(store), "-o", str(page), "-q"])
        size, times = page.stat().st_size, measure(page, args.rounds)
    median = statistics.median(times)
    print(f"{args.kernels:,} kernels: {size / 1e6:.2f} MB, shown after {median:.2f} s", end=" ")
    print(f"({min(times):.2f} to {max(times):.2f})")
    return int(median >= LIMIT_S or size >= LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
