"""The page as a designer would look at it: measured in a browser, wide and narrow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
import pytest

import pyprof2
from pyprof2 import cli
from tests.conftest import once
from tests.kineto_events import launched, op, step, trace
from tests.reports.page.looks import WIDTHS, boxes, overlapping, shares, wider
from tests.reports.page.reader import document_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Pages, Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

RESNET: Final = "kineto/rn50_v100_w0.json.gz"
DETECTOR: Final = "kineto/tl_owlv2_h100.json.gz"
TICK: Final = re.compile(r"10[⁻⁰¹²³⁴-⁹]+|0\.0*1|(1|10|100)( [kMGTPE])?")
SAME_NAMES: Final = """
selector => {
  const seen = {};
  for (const name of document.querySelectorAll(selector)) {
    (seen[name.textContent] ??= new Set()).add(name.title);
  }
  return Object.entries(seen).filter(([, titles]) => titles.size > 1).map(([text]) => text);
}
"""

each_width = pytest.mark.parametrize("width", WIDTHS)


def sized(width: int) -> dict[str, Any]:
    return {"viewport": {"width": width, "height": 900}}


def odd(kind: str) -> Path:
    """Return the report of a small recording of a kind that is rare."""
    long = "/".join(["/home/" + "a" * 60, *(f"package_{n}" for n in range(30)), "train.py"])
    one = [op("aten::mm", 10, 20, dims=[[4, 8], [8, 4]], types=["float", "float"]),
           *launched(12, 1, at=20, dur=30, name="k" * 400)]  # fmt: skip
    events = {
        "one kernel": one,
        "no kernel": [op("aten::mm", 10, 20)],
        "long names": [
            step(0, 0, 3000),
            *(each for n in range(20) for each in (
                op(f"{'lib' * 30}::{'x' * 90}{n}{'y' * 90}", 100 * n + 1, 90),
                *launched(100 * n + 2, n + 1, at=100 * n + 20, dur=30 + n, name=f"{long}{n}{long}"),
            )),
        ],
        "quarter": [
            step(0, 0, 20_000),
            *(each for n in range(5000) for each in launched(4 * n, n + 1, at=4 * n, dur=1)),
        ],
    }[kind]  # fmt: skip

    def make(folder: Path) -> None:
        folder.mkdir()
        file = trace(folder / f"{'long_' * 30 if kind == 'long names' else 'x'}.json", *events)
        assert cli.main(["report", str(file), "-o", str(folder / "page.html")]) == 0

    return once(f"odd report, {kind}", make) / "page.html"


@each_width
@pytest.mark.parametrize("kind", ["training", "job", "one kernel", "no kernel", "long names"])
def test_no_text_is_wider_than_its_box_and_no_page_than_its_window(
    open_page: Open, reported: Reported, job: Pages, kind: str, width: int
) -> None:
    made = {"training": reported.page, "job": job.page}
    opened = open_page(made.get(kind) or odd(kind), **sized(width))

    for title in opened.tabs:
        opened.turn_to(title)
        assert opened.ask("document.documentElement.scrollWidth") <= width, title
        assert wider(opened.page) == [], title
    assert opened.faults == []


@each_width
@pytest.mark.parametrize("name", [RESNET, DETECTOR, "kineto/tl_nsfwvit_h100.json.gz",
                                  "graphs/vllm_dec_capture.json.gz"])  # fmt: skip
def test_nor_on_real_ones(
    open_page: Open, real_page: Callable[[str], Path], name: str, width: int
) -> None:
    opened = open_page(real_page(name), **sized(width))

    for title in opened.tabs:
        opened.turn_to(title)
        assert opened.ask("document.documentElement.scrollWidth") <= width, title
        assert wider(opened.page) == [], title


@each_width
def test_no_two_names_of_a_table_look_the_same(
    open_page: Open, real_page: Callable[[str], Path], width: int
) -> None:
    for page in (real_page(DETECTOR), real_page(RESNET), odd("long names")):
        opened = open_page(page, **sized(width))
        for title in ("Ops", "Kernels", "Layers", "Lines", "Ranges", "Roofline"):
            opened.turn_to(title)
            found = opened.ask(SAME_NAMES, ".tabulator-cell:first-child .name")
            assert found == [], title


def test_a_name_that_is_cut_keeps_its_end(
    open_page: Open, real_page: Callable[[str], Path]
) -> None:
    opened = open_page(real_page(DETECTOR), "page=layers", **sized(390))

    names = opened.page.locator(".tabulator-tableholder .name")
    shown = [(n.inner_text(), n.get_attribute("title") or "") for n in names.all()]
    cut = [(text, whole) for text, whole in shown if text != whole]
    assert len(cut) > 5
    for text, whole in cut:
        head, _, tail = text.partition("…")
        assert whole.startswith(head)
        assert whole.endswith(tail)
        # The last name of the path, by which one layer is told from another.
        assert tail.endswith(whole.rpartition(".")[2])


@each_width
def test_a_table_that_scrolls_shows_its_bar_and_its_last_column(
    open_page: Open, reported: Reported, width: int
) -> None:
    opened = open_page(reported.page, **sized(width))

    scrolled = 0
    for title in ("Ops", "Kernels", "Roofline", "Ranks"):
        opened.turn_to(title)
        found = opened.ask(
            """() => [...document.querySelectorAll(".tabulator")].map(table => {
                const holder = table.querySelector(".tabulator-tableholder");
                const scrolls = holder.scrollWidth > holder.clientWidth;
                const bar = holder.offsetHeight - holder.clientHeight;
                holder.scrollLeft = holder.scrollWidth;
                const last = [...holder.querySelectorAll(".tabulator-cell:last-child")];
                const box = holder.getBoundingClientRect();
                const ends = last.map(cell => cell.getBoundingClientRect().right);
                return [scrolls, bar, Math.max(0, ...ends) - box.right];
            })"""
        )
        for scrolls, bar, beyond in found:
            assert beyond <= 1, title
            assert not scrolls or bar >= 8, title
            scrolled += scrolls
    assert scrolled if width == 390 else True


def test_every_column_has_one_unit(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, **sized(1440))

    for title in opened.tabs:
        opened.turn_to(title)
        numbers = opened.ask(
            """[...document.querySelectorAll(".tabulator-tableholder .tabulator-cell, td.number")]
                .filter(cell => getComputedStyle(cell).textAlign === "right")
                .map(cell => cell.innerText.trim())"""
        )
        odd_ones = [
            n for n in numbers if not re.fullmatch(r"(<?-?[\d.,]+|[–-]|yes|no)?( to [\d.]+)?", n)
        ]
        assert [n for n in odd_ones if n != "recorded"] == [], title


def test_the_parts_of_a_step_have_one_unit(
    open_page: Open, real_page: Callable[[str], Path]
) -> None:
    opened = open_page(real_page(DETECTOR), "page=overview")

    parts = opened.page.locator("#panel .parts .legend li").all_inner_texts()
    assert len(parts) > 8
    # From 620 ms of data loading to 96 us of launch latency.
    assert {text.split()[-1] for text in parts} == {"ms"}


# --- the time line


def busy_share(store: Path, stream: int, begin: int, end: int, rank: int = 0) -> float:
    """Return the share of a window in which a stream was busy, of the store's own rows."""
    rows = pd.concat(
        pd.read_parquet(store / name, columns=["start_ns", "dur_ns", "stream", "rank"])
        for name in ("kernels", "copies") if (store / name).is_dir()
    )  # fmt: skip
    rows = rows[(rows["stream"] == stream) & (rows["rank"] == rank)].sort_values("start_ns")
    start = rows["start_ns"].clip(begin, end).to_numpy()
    stop = (rows["start_ns"] + rows["dur_ns"]).clip(begin, end).to_numpy()
    covered = np.maximum.accumulate(np.r_[begin, stop])[:-1]
    return float(np.maximum(stop - np.maximum(start, covered), 0).sum()) / (end - begin)


@each_width
@pytest.mark.parametrize("name", [RESNET, DETECTOR, "kineto/tl_bertsmall_h100.json.gz"])
def test_the_painted_share_is_the_busy_share(
    open_page: Open, shared_trace: Callable[[str], Path], real_page: Callable[[str], Path],
    tmp_path: Path, name: str, width: int,
) -> None:  # fmt: skip
    store = pyprof2.parse(shared_trace(name), tmp_path / "x.pyprof2")
    document = document_of(real_page(name))
    first = int(document["meta"]["first_ns"][0]["first_ns"])
    opened = open_page(real_page(name), "page=timeline", **sized(width))
    order = ["median", "slowest", "recording", "step"]
    window = min(document["timeline"], key=lambda each: order.index(each["why"]))

    length = window["end_ns"] - window["start_ns"]
    tracks = [track["name"] for track in window["tracks"]]
    for begin, end in ((0, length), (length // 2, 5 * length // 8)):
        opened.ask(f"location.hash = 'page=timeline&from={begin}&to={end}'")
        opened.page.wait_for_timeout(150)
        at = first + window["start_ns"]
        for row, track in enumerate(tracks):
            if track.startswith("stream "):
                wanted = busy_share(store, int(track.split()[1]), at + begin, at + end)
                assert np.mean(shares(opened.page, row)) == pytest.approx(wanted, abs=0.02), track


@each_width
def test_a_stretch_that_is_busy_for_a_quarter_is_painted_a_quarter(
    open_page: Open, width: int
) -> None:
    opened = open_page(odd("quarter"), "page=timeline", **sized(width))
    tracks = [each["name"] for each in document_of(odd("quarter"))["timeline"][0]["tracks"]]

    for track, wanted in (("stream 7", 0.25), ("idle", 0.75)):
        painted = shares(opened.page, tracks.index(track))[5:-5]
        assert np.mean(painted) == pytest.approx(wanted, abs=0.02)
        # No pixel is solid busy, and none solid idle.
        assert max(abs(np.array(painted) - wanted)) < 0.15


def test_zoom_leads_to_single_kernels(
    open_page: Open, real_page: Callable[[str], Path], shared_trace: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    store = pyprof2.parse(shared_trace(RESNET), tmp_path / "x.pyprof2")
    document = document_of(real_page(RESNET))
    window = next(each for each in document["timeline"] if each["why"] == "median")
    zero = int(document["meta"]["first_ns"][0]["first_ns"]) + window["start_ns"]
    kernels = pd.read_parquet(store / "kernels", columns=["kernel_short", "start_ns", "dur_ns"])
    inside = kernels[
        kernels["start_ns"].between(zero, zero + window["end_ns"] - window["start_ns"])
    ]
    least = inside[inside["dur_ns"] > 0].nsmallest(1, "dur_ns").to_dict("records")[0]
    at, length = int(least["start_ns"]) - zero, int(least["dur_ns"])

    fragment = f"page=timeline&from={max(0, at - 2 * length)}&to={at + 3 * length}"
    opened = open_page(real_page(RESNET), fragment, **sized(1440))
    row = [each["name"] for each in window["tracks"]].index("stream 7")
    chart = opened.page.locator(".chart[data-row]")
    box = chart.bounding_box()
    assert box is not None
    left, height = (
        int(chart.get_attribute("data-left") or 0),
        int(chart.get_attribute("data-row") or 0),
    )
    middle = left + (box["width"] - left - 16) / 2
    opened.page.mouse.move(box["x"] + middle, box["y"] + 4 + (row + 0.8) * height)
    text = opened.page.locator(".tip").inner_text()

    # Each box of the stream is one kernel or copy.
    assert set(window["tracks"][row]["boxes"]["count"]) == {1}
    assert not {"merged", "activities"} & set(text.split())
    assert f"{length / 1000:.3f} us" in text
    assert text.split("\n")[0].split("…")[0][:12] in least["kernel_short"]


def test_zoom_goes_by_buttons_and_is_remembered(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=timeline&rank=0")

    opened.page.get_by_role("button", name="Zoom in").click()
    opened.page.get_by_role("button", name="Later").click()
    first = opened.fragment
    opened.page.reload()
    opened.page.get_by_role("button", name="Zoom out").click()
    second = opened.fragment

    whole = int(first["to"]) - int(first["from"])
    assert int(second.get("to", 2 * whole)) - int(second.get("from", 0)) == pytest.approx(
        2 * whole, abs=2
    )


def test_layers_and_phases_stand_above_the_streams_and_the_host_below(reported: Reported) -> None:
    kinds = ["step", "phase", "layer", "stream", "idle", "host"]

    for window in document_of(reported.page)["timeline"]:
        found = [track["kind"] for track in window["tracks"]]
        assert list(dict.fromkeys(found)) == [k for k in kinds if k in found]
        assert {"step", "phase", "layer", "stream", "host"} <= set(found)
        named = {name for track in window["tracks"] if track["kind"] == "phase"
                 for name in track["boxes"]["name"]["texts"]}  # fmt: skip
        assert {"forward", "backward", "optimizer"} <= named


# --- the roofline


@each_width
@pytest.mark.parametrize("name", [RESNET, DETECTOR, "kineto/tl_qwen_mi300.json.gz"])
def test_ticks_are_powers_of_ten_and_no_label_lies_on_another(
    open_page: Open, real_page: Callable[[str], Path], name: str, width: int
) -> None:
    opened = open_page(real_page(name), "page=roofline", **sized(width))

    ticks = boxes(opened.page, ".roofs .tick")
    assert len(ticks) >= 6
    assert [each["text"] for each in ticks if not TICK.fullmatch(each["text"])] == []
    for selector in (".roofs .tick", ".roofs .roof-name", ".roofs .reason"):
        assert overlapping(boxes(opened.page, selector)) == [], selector
    (picture,) = boxes(opened.page, ".roofs svg")
    for each in boxes(opened.page, ".roofs text"):
        assert picture["left"] - 1 <= each["left"] <= each["right"] <= picture["right"] + 1, each
    # On a narrow screen letters stand for the names, which are below.
    names = boxes(opened.page, ".roofs .roof-names li" if width == 390 else ".roofs .roof-name")
    assert len(names) == len(boxes(opened.page, ".roofs .roof-line"))


def test_a_dot_above_its_roof_says_why(open_page: Open, real_page: Callable[[str], Path]) -> None:
    opened = open_page(real_page(RESNET), "page=roofline", **sized(1440))
    flags = {
        r["signature"]: r["flag"]
        for r in rows_of(document_of(real_page(RESNET))["roofline"]["signatures"])
    }

    flagged = [row for row in opened.rows() if row["flag"] and float(row["tflops"] or 0) > 0]
    assert opened.page.locator(".dot.above").count() == len(flagged)
    assert {flags[row["signature"]] for row in flagged} == {row["flag"] for row in flagged}
    assert any("Winograd" in row["flag"] for row in flagged)
    assert "Winograd" in [each["text"] for each in boxes(opened.page, ".roofs .reason")]


# --- the icicle


@each_width
def test_colours_of_the_icicle_have_a_meaning_and_its_names_fit(
    open_page: Open, real_page: Callable[[str], Path], width: int
) -> None:
    opened = open_page(real_page(DETECTOR), "page=icicle", **sized(width))

    meanings = opened.page.locator("#panel .legend .mark").evaluate_all(
        "marks => marks.map(mark => mark.style.background)"
    )
    used = opened.page.locator(".icicle g.frame rect").evaluate_all(
        "all => all.map(each => /var\\((--[a-z]+)\\)/.exec(each.getAttribute('fill'))[0])"
    )
    assert set(used) == set(meanings)
    labels = opened.ask(
        """[...document.querySelectorAll(".icicle g.frame")].map(frame => {
            const label = frame.querySelector(".d3-flame-graph-label");
            return [frame.__data__.depth, frame.__data__.data.name, label.textContent,
                    label.scrollWidth <= label.clientWidth + 1 || !label.offsetParent];
        })"""
    )
    assert all(fits for *_, fits in labels)
    if width == 1440:
        encoder = [
            (text, name) for depth, name, text, _ in labels if "EncoderLayer_" in name and text
        ]
        assert len(encoder) > 20
        assert len({text for text, _ in encoder}) == len({name for _, name in encoder})


# --- the overview


def test_tiles_are_those_that_a_recording_is_judged_by(open_page: Open, reported: Reported) -> None:
    opened = open_page(reported.page, "page=overview")

    names = opened.page.locator(".tiles dt").all_inner_texts()
    assert names == [
        "step time",
        "GPU busy",
        "SM efficiency",
        "occupancy",
        "Tensor Cores",
        "MFU",
        "memory peak",
    ]
    tiles = {each["name"]: each for each in document_of(reported.page)["heading"]["figures"]}
    steps = rows_of(document_of(reported.page)["steps"])
    busy = 100 * sum(s["busy_ns"] for s in steps) / sum(s["window_ns"] for s in steps)
    assert float(tiles["GPU busy"]["value"].split()[0]) == pytest.approx(busy, abs=0.06)
    # What lies below the peak adds up to it.
    peaks = [each["peak"]["allocated"] for each in document_of(reported.page)["memory"]]
    assert sum(part["bytes"] for part in tiles["memory peak"]["parts"]) == max(peaks)


@each_width
def test_words_have_their_meaning_on_hover_and_by_keyboard(
    open_page: Open, reported: Reported, width: int
) -> None:
    opened = open_page(reported.page, "page=overview", **sized(width))

    words = [each.inner_text() for each in opened.page.locator(".term").all()]
    assert {"linked", "costed", "assumed", "matrix units", "MFU"} <= set(words)
    for place in range(len(words)):
        word = opened.page.locator(".term").nth(place)
        word.focus()
        bubble = opened.page.locator("#gloss")
        box = bubble.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, words[place]
        assert len(bubble.inner_text()) > 20
        opened.press("Escape")
        assert bubble.count() == 0
    opened.page.locator(".term").first.hover()
    assert opened.page.locator("#gloss").is_visible()


def test_a_job_begins_with_who_is_slow(open_page: Open, job: Pages) -> None:
    for page in ("overview", "ranks", "path"):
        opened = open_page(job.page, f"page={page}")
        first = opened.page.locator("#panel .sentence, #panel .blame").first.inner_text()
        assert first.startswith("Rank 2 is slow"), page


def test_mfu_is_at_least_that_where_flops_are_not_known(
    real_page: Callable[[str], Path],
) -> None:
    tiles = document_of(real_page("kineto/tl_nsfwvit_h100.json.gz"))["heading"]["figures"]

    found = {each["name"]: each["value"] for each in tiles}
    assert found["MFU"] is None or re.fullmatch(r"(at least )?[\d.]+ %", found["MFU"])
