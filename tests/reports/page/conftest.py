"""Reports that the tests of the page open in a browser, and what npm has for them."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

import pyprof2
from pyprof2 import cli
from tests.analysis.job.job_generator import Job, rename_ops, simulate, write
from tests.conftest import ROOT, once
from tests.reports.page.opened import Opened
from tests.training_trace import write_ranks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

WEB: Final = ROOT / "web"
HOSTILE: Final = "<img src=x onerror=alert(1)>\u202eevil\x1b[31m"


class Reported(NamedTuple):
    """A report, the store it is of, and the store that it is compared with."""

    page: Path
    store: Path
    against: Path


class Pages(NamedTuple):
    """A store of a job, and its report."""

    store: Path
    page: Path


@pytest.fixture
def open_page(chromium: Browser) -> Iterator[Callable[..., Opened]]:
    """Return a function that opens a report, at a fragment, with options of the browser."""
    contexts = []

    def opened(report: Path, fragment: str = "", **options: Any) -> Opened:
        context = chromium.new_context(**{"viewport": {"width": 1440, "height": 900}} | options)
        contexts.append(context)
        return Opened(context, report, fragment)

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def reported() -> Reported:
    """Return a report of two ranks in training, compared with the first rank alone."""
    folder = once("report of two ranks", _report)
    return Reported(folder / "job.html", folder / "my job.pyprof2", folder / "before.pyprof2")


def _report(folder: Path) -> None:
    ranks = folder / "job"
    ranks.mkdir(parents=True)
    write_ranks(ranks, 2)
    store = pyprof2.parse(ranks, folder / "my job.pyprof2")
    against = pyprof2.parse(ranks / "rank0.json", folder / "before.pyprof2")
    page = folder / "job.html"
    assert cli.main(["report", str(store), "-o", str(page), "--against", str(against)]) == 0


@pytest.fixture
def real_page(shared_trace: Callable[[str], Path]) -> Callable[[str], Path]:
    """Return a function from the name of a real trace to its report, which is made once."""

    def page_of(name: str) -> Path:
        trace = shared_trace(name)

        def make(path: Path) -> None:
            assert cli.main(["report", str(trace), "-o", str(path)]) == 0

        return once(f"{trace.name}.html", make)

    return page_of


@pytest.fixture(scope="session")
def web_modules() -> Path:
    """Return a copy of `web/` with what `npm ci` installs; skip where that cannot be had."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("no node and npm to build the page with")
    return once("web", _install)


def _install(folder: Path) -> None:
    shutil.copytree(WEB, folder, ignore=shutil.ignore_patterns("node_modules"))
    command = ["npm", "ci", "--prefer-offline", "--no-progress"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        assert "EINTEGRITY" not in done.stderr
        pytest.skip(f"npm ci: {done.stderr.strip()[-300:]}")


@pytest.fixture
def job() -> Pages:
    """Return a job of four ranks, one of them slow, whose group has a hostile name."""
    folder = once("report of four ranks", _report_of_a_job)
    return Pages(folder / "a job.pyprof2", folder / "job.html")


def _report_of_a_job(folder: Path) -> None:
    folder.mkdir()
    files = write(simulate(Job(4, slow={2: 1.2}, one_stream=True)), folder)
    rename_ops(files, "gemm_4", HOSTILE)
    store = pyprof2.parse(files, folder / "a job.pyprof2")
    page = folder / "job.html"
    assert cli.main(["report", str(store), "-o", str(page)]) == 0
