"""Many ranks on the page: its numbers are those of `pyprof2 ranks` and `pyprof2 whatif`."""

from __future__ import annotations

import csv
import shlex
from typing import TYPE_CHECKING

import pytest

from pyprof2 import cli
from tests.analysis.job.job_generator import Job, simulate, write
from tests.reports.page.opened import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Pages
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]


def _printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    capsys.readouterr()
    assert cli.main([*words, "--format", "csv"]) == 0
    return list(csv.DictReader(capsys.readouterr().out.splitlines()))


def _escaped(text: str) -> str:
    """Return a text as the command line writes it, whose files are looked at in terminals too."""
    return text.replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")


def _same(found: dict[str, str], printed: dict[str, str], names: list[str]) -> None:
    for name in names:
        assert bool(found[name]) == bool(printed[name]), name
        if found[name]:
            assert float(found[name]) == pytest.approx(float(printed[name]), rel=1e-9), name


def test_parts_of_ranks_are_those_of_ranks(
    open_page: Open, job: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_page(job.page, "page=ranks")
    found = opened.rows(0)
    words = shlex.split(opened.copied("Copy command"))
    printed = _printed([words[1], str(job.store)], capsys)

    assert words[:2] == ["pyprof2", "ranks"]
    assert [row["verdict"] for row in found] == ["", "", "straggler", ""]
    for own, other in zip(found, printed, strict=True):
        numbers = [name for name in own if name not in {"rank", "verdict"}]
        assert {"compute_only_ns", "exposed_wait_ns", "idle_ns"} <= set(numbers)
        _same(own, other, ["rank", *numbers])
        assert own["verdict"] == other["verdict"]
    assert not opened.faults


def test_the_first_sentence_says_which_rank_is_slow(
    open_page: Open, job: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = _printed(["ranks", str(job.store), "--by", "straggler"], capsys)
    for page in ("ranks", "path"):
        opened = open_page(job.page, f"page={page}")
        text = opened.page.locator(".blame").inner_text()

        assert text.startswith("Rank 2 is slow: it computes ")
        assert "3 ranks waited for it" in text
        assert f"{int(row['gain_ns']) / 4 / 1000:.3f} us of every step" in text


def test_what_ifs_are_those_that_their_commands_print(
    open_page: Open, job: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_page(job.page, "page=path")
    found = opened.rows(2)
    names = ["gain_ns", "lo_ns", "hi_ns", "gain_pct", "bound_ns", "model_error_pct"]

    assert {"rank 2 as the others", "all ranks ideal", "transfers × 0.5"} <= {
        row["what"] for row in found
    }
    tables = opened.page.locator(".tabulator").nth(2)
    for at, row in enumerate(found):
        opened.page.evaluate("window.copied = null")
        tables.locator(".tabulator-row").nth(at).click()
        opened.page.wait_for_function("window.copied !== null")
        words = shlex.split(str(opened.ask("window.copied")))
        assert words[:2] == ["pyprof2", "whatif"]
        (printed,) = _printed(["whatif", str(job.store), *words[3:]], capsys)
        assert printed["what"] == row["what"]
        _same(row, printed, names)


def test_the_path_and_the_blame_are_those_of_ranks(
    open_page: Open, job: Pages, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_page(job.page, "page=path")
    stretches = _printed(["ranks", str(job.store), "--by", "path"], capsys)
    sums: dict[tuple[str, str, str], int] = {}
    for row in stretches:
        key = (row["rank"], row["kind"], row["op"])
        sums[key] = sums.get(key, 0) + int(row["ns"])
    found: dict[tuple[str, str, str], int] = {}
    for row in opened.rows(0):
        key = (row.get("rank") or stretches[0]["rank"], row["kind"], _escaped(row["op"]))
        found[key] = found.get(key, 0) + int(row["time_ns"])
    assert found == sums
    total = opened.totals()
    assert total["share_pct"] == "100.00"
    blame = _printed(["ranks", str(job.store), "--by", "blame"], capsys)
    shown = opened.rows(1)
    assert [(r["rank"], _escaped(r["op"]), float(r["excess_ns"])) for r in shown] == [
        (r["rank"], r["op"], float(r["excess_ns"])) for r in blame
    ]


def test_a_rank_that_is_selected_stands_alone(open_page: Open, job: Pages) -> None:
    opened = open_page(job.page, "page=ranks&rank=2")

    assert [row["rank"] for row in opened.rows(0)] == ["2"]
    assert {row["rank"] for row in opened.rows(1)} == {"2"}
    label = opened.page.locator("#heat").get_attribute("aria-label")
    assert label is not None
    assert "of 1 ranks" in label
    opened.turn_to("Critical path")
    assert "of the path run on rank 2" in opened.page.inner_text("#panel")


def test_a_field_selects_its_rank_and_step(open_page: Open, job: Pages) -> None:
    opened = open_page(job.page, "page=ranks")
    box = opened.page.locator("#heat canvas").first.bounding_box()
    assert box is not None
    # The first row is of the rank that stands out, the last column of the last step.
    opened.page.mouse.click(box["x"] + box["width"] - 60, box["y"] + 20)
    opened.page.wait_for_selector("#panel[data-page=overview]")

    assert (opened.fragment["rank"], opened.fragment["step"]) == ("2", "3")


@pytest.mark.parametrize("page", ["ranks", "path"])
def test_what_a_trace_says_is_text(open_page: Open, job: Pages, page: str) -> None:
    opened = open_page(job.page, f"page={page}")
    opened.page.wait_for_selector(ROWS)
    text = opened.page.inner_text("body")

    assert not opened.faults
    assert opened.ask("document.querySelectorAll('img').length") == 0
    assert "\u202e" not in text
    if page == "path":
        assert "\\u202eevil\\x1b" in text


def test_a_path_of_one_rank_has_a_page_too(open_page: Open, job: Pages, tmp_path: Path) -> None:
    del job
    (file,) = write(simulate(Job(2)), tmp_path, ranks=[0])
    page = tmp_path / "one.html"
    assert cli.main(["report", str(file), "-o", str(page)]) == 0
    opened = open_page(page, "page=path")

    assert "Ranks" not in opened.tabs
    assert sum(int(row["time_ns"]) for row in opened.rows(0)) > 0
    assert not opened.faults
