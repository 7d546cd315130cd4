"""The page in a browser: it opens, sorts, filters, leads from a kernel to its line and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import pyprof2
from pyprof2 import cli
from tests.conftest import ROOT
from tests.reports.page.opened import ROWS
from tests.training_trace import GEMM

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

TABS: Final = [
    "Overview", "Ops", "Kernels", "Layers", "Lines", "Line tree", "Ranges", "Roofline", "Icicle",
    "Timeline", "Memory", "Source", "Idle", "Findings", "Critical path", "Compare", "Ranks",
]  # fmt: skip
DEMO: Final = ROOT / "pyprof2" / "data" / "demo.json.gz"
MODEL_LINE: Final = "/home/me/model.py:18"


def test_every_page_opens_without_errors_and_requests(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page)

    # What was compared is what is asked first.
    assert opened.tabs == ["Compare", *(title for title in TABS if title != "Compare")]
    for title in TABS:
        opened.turn_to(title)
        assert opened.current == title.lower().split()[-1]
        assert opened.page.locator("#panel h2").first.is_visible()
    assert opened.faults == []


@pytest.mark.parametrize("name", ["tl_owlv2_h100", "rn50_v100_w0"])
def test_real_ones_open_too(open_page: Open, real_page: Callable[[str], Path], name: str) -> None:
    opened = open_page(real_page(f"kineto/{name}.json.gz"))
    for title in opened.tabs:
        opened.turn_to(title)

    # One rank, and nothing to compare with.
    assert opened.tabs == TABS[:-2]
    assert opened.faults == []


def test_a_click_on_a_header_sorts_and_is_remembered(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=ops")
    assert opened.rows()[0]["op"] == "aten::mm"
    header = opened.page.get_by_role("button", name="op", exact=True)

    header.click()
    rising = [row["op"] for row in opened.rows()]
    assert rising == sorted(rising)
    assert opened.fragment["sort"] == "+op"
    header.click()
    assert [row["op"] for row in opened.rows()] == rising[::-1]
    assert opened.fragment["sort"] == "op"

    opened.page.reload()
    opened.page.wait_for_selector(ROWS)
    assert [row["op"] for row in opened.rows()] == rising[::-1]


@pytest.mark.parametrize("sort", ["roofline_pct", "%2Broofline_pct"])
def test_null_comes_last_whichever_way(open_page: Open, reported: Reported, sort: str) -> None:
    opened = open_page(reported.page, f"page=ops&sort={sort}")

    values = [row["roofline_pct"] for row in opened.rows()]

    known = [float(value) for value in values if value]
    assert 0 < len(known) < len(values)
    assert values[len(known) :] == [""] * (len(values) - len(known))
    assert known == sorted(known, reverse=sort == "roofline_pct")


@pytest.mark.parametrize(
    ("column", "wanted", "left"),
    [
        pytest.param("op", "NORM", {"aten::native_layer_norm", "aten::native_layer_norm_backward"},
                     id="text in any case"),
        pytest.param("count", "144", {"aten::mm", "aten::addmm"}, id="at least"),
        pytest.param("count", "<72", {"aten::copy_", "aten::_fused_adamw_"}, id="less"),
        # 144 times 265 us and 288 us; 72 times 400 us and 420 us.
        pytest.param("time ms", "29..41", {"aten::mm", "nccl:all_reduce"}, id="from to"),
        pytest.param("TFLOP/s", ">1000", set(), id="none"),
    ],
)  # fmt: skip
def test_filters_leave_what_they_say_and_the_total_is_of_it(
    open_page: Open, reported: Reported, column: str, wanted: str, left: set[str]
) -> None:
    opened = open_page(reported.page, "page=ops")

    opened.page.get_by_role("searchbox", name=f"Filter {column}", exact=True).fill(wanted)

    opened.page.wait_for_function(
        "n => document.querySelector('.counter').textContent.startsWith(`${n} of`)", arg=len(left)
    )
    rows = opened.rows()
    assert {row["op"] for row in rows} == left
    assert int(opened.totals()["count"] or 0) == sum(int(row["count"]) for row in rows)
    opened.page.reload()
    assert {row["op"] for row in opened.rows()} == left


def test_search_finds_in_any_column_of_text(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=idle")

    opened.page.get_by_role("searchbox", name="Search in").fill("host waits")

    assert {row["group"] for row in opened.rows()} == {"host waits for the device"}
    assert opened.fragment["q"] == "host waits"


def test_from_a_kernel_to_its_line_and_back_by_mouse(open_page: Open, reported: Reported) -> None:
    run = pyprof2.load(reported.store)
    opened = open_page(reported.page, "page=kernels")

    opened.page.locator(ROWS, has_text=GEMM).click()
    opened.page.wait_for_selector("#panel[data-page=ops]")
    assert [row["op"] for row in opened.rows()] == ["aten::addmm"]
    opened.page.locator(ROWS).first.click()
    opened.page.wait_for_selector("#panel[data-page=layers]")
    layers = opened.rows()
    opened.page.locator(ROWS, has_text="Block_5.Linear_11").click()
    opened.page.wait_for_selector("#panel[data-page=lines]")
    lines = opened.rows()

    expected = run.profile("layer", kernel=GEMM, op="^aten::addmm$")
    assert [row["layer"] for row in layers] == expected["layer"].tolist()
    assert [int(row["time_ns"]) for row in layers] == expected["time_ns"].tolist()
    expected = run.profile("source", kernel=GEMM, layer="Linear_11$")
    assert [row["source"] for row in lines] == [MODEL_LINE] == expected["source"].tolist()
    assert [int(row["time_ns"]) for row in lines] == expected["time_ns"].tolist()

    crumbs = opened.page.get_by_role("navigation", name="Way down").locator("li")
    assert crumbs.count() == 4
    crumbs.nth(1).get_by_role("button").first.click()
    opened.page.wait_for_function("!location.hash.includes('op=')")
    assert set(opened.fragment) == {"page", "by", "kernel"}
    for page in ("lines", "layers", "ops", "kernels"):
        opened.page.go_back()
        opened.page.wait_for_selector(f"#panel[data-page={page}]")


def test_from_a_kernel_to_its_line_by_keyboard(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=kernels&sort=%2Bkernel")
    # From the box of the last filter the first row is the next thing to reach.
    opened.page.get_by_role("searchbox", name="Filter costed %").focus()
    opened.press("Tab")
    first, second = (row["kernel"] for row in opened.rows()[:2])
    opened.page.get_by_role("searchbox", name="Filter costed %").focus()
    opened.press("Tab", "ArrowDown", "ArrowUp", "ArrowDown", "Enter")
    opened.page.wait_for_selector("#panel[data-page=ops]")

    assert first != second
    assert opened.fragment["kernel"] == second
    opened.page.locator(ROWS).first.focus()
    opened.press("Enter")
    opened.page.wait_for_selector("#panel[data-page=layers]")


def test_tabs_go_by_arrow_keys_and_the_page_by_the_skip_link(
    open_page: Open, reported: Reported
) -> None:
    opened = open_page(reported.page)

    opened.press("Tab", "Enter")
    assert opened.ask("document.activeElement.id") == "panel"
    opened.page.get_by_role("tab", name="Overview").focus()
    left = [("ArrowLeft", page) for page in ("overview", "compare", "ranks")]
    for key, page in (("ArrowRight", "ops"), *left, ("Home", "compare")):
        opened.press(key)
        opened.page.wait_for_selector(f"#panel[data-page={page}]")
    assert opened.ask("document.activeElement.id") == "tab-compare"


def test_the_fragment_restores_a_selection(open_page: Open, reported: Reported) -> None:
    run = pyprof2.load(reported.store)
    opened = open_page(
        reported.page, "page=ops&rank=1&step=4&direction=backward&layer=Net_0.Block_2"
    )

    expected = run.profile(
        "op", rank=1, step=4, direction=["backward"], layer=r"^Net_0\.Block_2(\.|$)"
    )
    rows = opened.rows()
    assert [row["op"] for row in rows] == expected["op"].tolist()
    assert [int(row["time_ns"]) for row in rows] == expected["time_ns"].tolist()
    assert opened.page.locator("#pick-step").input_value() == "4"
    assert opened.page.locator("#pick-layer").input_value() == "Net_0.Block_2"

    # Another fragment in the same window.
    opened.ask("location.hash = 'page=layers&rank=0&step=1'")
    opened.page.wait_for_selector("#panel[data-page=layers]")
    expected = run.profile("layer", rank=0, step=1)
    assert [int(row["time_ns"]) for row in opened.rows()] == expected["time_ns"].tolist()


def test_what_is_chosen_above_holds_on_every_page(open_page: Open, reported: Reported) -> None:
    run = pyprof2.load(reported.store)
    opened = open_page(reported.page)

    opened.page.locator("#pick-rank").select_option("1")
    opened.page.locator("#pick-step").select_option("4")
    for title, axis in (("Ops", "op"), ("Kernels", "name"), ("Lines", "source")):
        opened.turn_to(title)
        expected = run.profile(axis, rank=1, step=4)["time_ns"].tolist()
        assert [int(row["time_ns"]) for row in opened.rows()] == expected

    opened.turn_to("Findings")
    assert "does not depend on the rank and the step" in opened.page.inner_text("#panel")


def test_the_icicle_is_gone_through_by_keys(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=icicle&rank=0")
    run = pyprof2.load(reported.store)
    inside = run.profile("layer", rank=0, layer=r"^Net_0\.")["time_ns"].sum()

    opened.page.locator("g.frame[tabindex='0']").focus()
    opened.press("ArrowDown")
    told = opened.page.locator(".details").inner_text()
    assert told.startswith(f"Net_0: {inside / 1e6:.3f} ms (")
    opened.press("Enter")
    opened.page.get_by_role("button", name="Select this").click()
    opened.page.wait_for_selector("#panel[data-page=ops]")

    assert opened.fragment["layer"] == "Net_0"
    assert sum(int(row["time_ns"]) for row in opened.rows()) == inside


def test_colours_follow_the_system_until_one_chooses(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"

    assert opened.ask(theme) == "dark"
    opened.page.get_by_role("button", name="Change to light colours").click()
    assert opened.ask(theme) == "light"


def test_paper_has_all_rows_in_light_colours(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=layers", color_scheme="dark")

    opened.ask("window.dispatchEvent(new Event('beforeprint'))")
    opened.page.emulate_media(media="print")

    assert opened.ask("document.documentElement.dataset.theme") == "light"
    assert opened.page.locator(".paper tbody tr").count() == len(
        pyprof2.load(reported.store).profile("layer")
    )
    assert opened.page.locator(".paper table").is_visible()
    assert not opened.page.locator(".tabulator").is_visible()


def test_a_step_that_is_folded_says_so_and_leads_to_the_others(
    open_page: Open, reported: Reported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyprof2.reports.page.document._SIZES", ((100, None),))
    page = tmp_path / "folded.html"
    assert cli.main(["report", str(reported.store), "-o", str(page)]) == 0
    opened = open_page(page, "page=ops&step=2")

    assert "Step 2 is not kept apart" in opened.page.inner_text("#panel")
    opened.page.get_by_role("button", name="Show those").click()
    opened.page.wait_for_selector(ROWS)

    # All steps but 0, the first and the median one, and 4, the slowest.
    run = pyprof2.load(reported.store)
    expected = sum(run.profile("op", step=step)["time_ns"].sum() for step in (1, 2, 3, 5))
    assert sum(int(row["time_ns"]) for row in opened.rows()) == expected


def test_a_layer_is_gone_down_from_without_those_below_it(open_page: Open, tmp_path: Path) -> None:
    # Of the demo: blocks.1 adds up and cuts off by itself, beside what its layers do.
    page = tmp_path / "demo.html"
    assert cli.main(["report", str(DEMO), "-o", str(page)]) == 0
    opened = open_page(page, "page=layers")
    own = {row["layer"]: int(row["time_ns"]) for row in opened.rows()}

    opened.page.locator(ROWS).nth(list(own).index("blocks.1")).click()
    opened.page.wait_for_selector("#panel[data-page=lines]")

    assert sum(int(row["time_ns"]) for row in opened.rows()) == own["blocks.1"]
    opened.ask("location.hash = 'page=lines&layer=blocks.1'")
    opened.page.wait_for_function("!document.querySelector('.crumbs').innerText.includes('=')")
    below = sum(time for layer, time in own.items() if layer.startswith("blocks.1"))
    assert sum(int(row["time_ns"]) for row in opened.rows()) == below
