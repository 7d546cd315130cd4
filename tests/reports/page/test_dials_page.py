"""The page with the dials, alone: both dials and all bars move, by mouse and by keys."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pyprof2.cli import main
from tests.dialled import CODE, SIZES, workspace
from tests.reports.page.dialler import Dialler
from tests.reports.page.opened import serious

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser

    Open = Callable[..., Dialler]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a workspace with its recordings."""
    return workspace(tmp_path_factory.mktemp("dials") / "ws").parent


@pytest.fixture
def dial(
    chromium: Browser, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Return a function that writes a page and opens it."""
    contexts = []

    def opened(*arguments: str, **options: Any) -> Dialler:
        monkeypatch.chdir(folder)
        page = tmp_path / "dials.html"
        inputs = [f"{size}=b{size}.pyprof2" for size in SIZES]
        assert main(["batch", *inputs, "-q", "--force", "-o", str(page), *arguments]) == 0
        size = {"width": 1280, "height": 900}
        contexts.append(chromium.new_context(**{"viewport": size} | options))
        return Dialler(contexts[-1], page.as_uri())

    yield opened
    for context in contexts:
        context.close()


def test_a_drag_moves_both_dials_all_bars_and_the_interval(dial: Open) -> None:
    opened = dial()
    before, widths = opened.state(), opened.widths()
    assert before[:3] == (32, "61538 samples/s", "37.0 MB")

    opened.grab("memory", up=60)

    after = opened.state()
    assert after[0] > 40
    assert after[2] == f"{5 + after[0]:.1f} MB"
    rate = after[0] / (200 + 10 * after[0]) * 1e6
    assert after[1] == f"{rate:.0f} samples/s"
    assert all(one != other for one, other in zip(before, after, strict=True))
    # Forward and what grows are longer, the optimizer and what does not grow are as they were.
    grew = [now > was + 1 for was, now in zip(widths, opened.widths(), strict=True)]
    assert grew == [True, False, True, False]
    opened.drop()
    assert opened.state() == after
    assert opened.faults == []
    assert len(opened.requests) == 1


def test_the_throughput_dial_leads_as_well(dial: Open) -> None:
    opened = dial()

    opened.grab("throughput", up=-80)
    opened.drop()

    assert opened.batch < 25
    assert opened.value("memory") == f"{5 + opened.batch:.1f} MB"


def test_keys_move_a_dial_and_the_ends_are_ends(dial: Open) -> None:
    opened = dial()

    keys = "ArrowUp ArrowRight ArrowDown ArrowLeft PageUp PageDown End Home"
    seen = []
    for key in keys.split():
        opened.press("throughput", key)
        seen.append(opened.batch)

    assert seen == [33, 34, 33, 32, 42, 32, 91, 1]
    handle = opened.page.locator("#dial-memory")
    assert handle.get_attribute("aria-valuenow") == "1"
    assert handle.get_attribute("aria-valuetext") == (
        "batch 1, extrapolated 8x: 6.00 MB, from 3.90 MB to 17.6 MB"
    )


def test_what_was_not_tried_is_said_and_looks_so(dial: Open) -> None:
    opened = dial()

    def look() -> tuple[str, str]:
        band = opened.page.locator(".band").first
        return opened.sure, str(band.get_attribute("fill"))

    assert look() == ("measured", "currentColor")
    opened.press("memory", "ArrowDown")
    assert look() == ("interpolated: predicted, not tried", "currentColor")
    opened.press("memory", "PageUp")
    assert look() == (
        "extrapolated 1.28x beyond the recordings: predicted, not tried", "url(#hatch-throughput)"
    )  # fmt: skip


def test_whether_a_batch_fits_is_said_by_the_estimate_with_its_interval(dial: Open) -> None:
    opened = dial()
    line = opened.page.locator(".fits")
    said, usable = {}, "78.4 MB can be allocated"
    opened.press("memory", "End")
    while opened.batch >= 69:
        said[opened.batch] = line.inner_text()
        opened.press("memory", "ArrowDown")

    # 5 MB and 1 MB per sample, more or less 5 % of it times B / 32 - 1; 78.4 MB can be allocated.
    assert said[91] == "does not fit: it takes about 96.0 MB, from 87.1 MB to 105 MB; " + usable
    assert said[80].startswith("does not fit: ")
    assert said[79] == (
        "is not expected to fit: it takes about 84.0 MB, from 77.8 MB to 90.2 MB; " + usable
    )
    assert said[74].startswith("is not expected to fit: ")
    assert said[73] == (
        "is expected to fit, which is not sure: it takes about 78.0 MB, from 73.0 MB to 83.0 MB; "
        + usable
    )
    assert said[70].startswith("is expected to fit, which is not sure: ")
    assert said[69] == ""


def test_escape_and_a_lost_pointer_put_back_what_was(dial: Open) -> None:
    opened = dial()
    before = opened.state()

    opened.grab("memory", up=50)
    assert opened.state() != before
    opened.page.keyboard.press("Escape")
    assert opened.state() == before
    opened.drop()
    assert opened.state() == before

    opened.grab("memory", up=50)
    opened.page.evaluate(
        "document.querySelectorAll('.dial')[1].dispatchEvent(new PointerEvent('pointercancel'))"
    )
    assert opened.state() == before
    opened.drop()
    opened.press("memory", "PageUp", "Escape")
    assert opened.state() == before


def test_alone_it_gives_a_patch_of_exactly_the_literal(
    dial: Open, folder: Path, tmp_path: Path
) -> None:
    opened = dial("--code", "train.py")
    assert opened.page.locator("#patch").is_hidden()

    opened.grab("memory", up=50)
    opened.drop()
    opened.page.get_by_role("button", name="Copy patch").click()
    opened.page.wait_for_selector("#status:has-text('Patch copied')")
    text = opened.page.evaluate("window.copied")

    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copy(folder / "train.py", copy)
    command = ["git", "apply", "-"]
    subprocess.run(command, input=text.encode(), cwd=copy, check=True)
    assert (copy / "train.py").read_text() == CODE.replace("= 32", f"= {opened.batch}")
    with opened.page.expect_download() as found:
        opened.page.get_by_role("button", name="Save patch").click()
    assert found.value.path().read_text() == text
    assert (folder / "train.py").read_text() == CODE


def test_the_dials_do_not_move_until_a_place_is_chosen(dial: Open, folder: Path) -> None:
    (folder / "two.py").write_text("batch_size = 32\nbs = 16\nBS = 2 * 16\nbsz = 64\n")
    opened = dial("--code", "two.py")
    before = opened.state()

    assert opened.refusal == "Read-only: choose which of these is the batch size"
    opened.grab("memory", up=50)
    opened.drop()
    opened.press("throughput", "ArrowUp")
    assert opened.state() == before
    assert opened.page.get_attribute("#dial-memory", "aria-readonly") == "true"
    for at, words in ((2, "2 * 16"), (3, "it is 64, and the recordings have batches of 8, 16, 32")):
        opened.page.select_option("#place", str(at))
        assert opened.refusal.startswith("Read-only")
        assert words in opened.page.inner_text(".code")
        opened.press("throughput", "ArrowUp")
        assert opened.page.get_attribute("#dial-memory", "aria-readonly") == "true"
    opened.page.select_option("#place", "1")
    assert (opened.batch, opened.refusal) == (16, "")
    opened.press("throughput", "ArrowUp")
    assert opened.batch == 17
    assert "+bs = 17" in opened.page.inner_text("#patch")


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(dial: Open, web_modules: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    opened = dial("--code", "train.py", color_scheme=scheme, viewport=size)

    for key in ("ArrowUp", "End"):
        opened.press("memory", key)
        assert serious(opened.page, web_modules) == []
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert opened.page.evaluate(wide)
