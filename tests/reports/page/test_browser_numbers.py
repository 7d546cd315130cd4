"""The numbers on the page are those of `prof`, `idle`, `advise` and `compare` on the same store."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections import defaultdict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
import pytest

import pyprof2
from pyprof2 import cli
from pyprof2.analysis.summaries.profile_columns import SUMMARY_COLUMNS
from pyprof2.api import comparison, run_profile
from pyprof2.reports.cells import render_markdown
from pyprof2.reports.comparison import comparison_sentence
from pyprof2.units import format_time
from tests.compiled_trace import FOLDER, SOURCE, changed
from tests.reports.page.opened import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.reports.page.conftest import Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

PAGES: Final = {
    "op": "page=ops", "signature": "page=ops&by=signature", "name": "page=kernels",
    "category": "page=kernels&by=category", "layer": "page=layers", "source": "page=lines",
    "range": "page=ranges",
}  # fmt: skip
REAL: Final = ("rn50_v100_w0", "tl_owlv2_h100", "hta_df_index_v100_ddp")


def assert_same(rows: list[dict[str, str]], expected: pd.DataFrame, key: str) -> None:
    """Assert that rows of CSV are those of a table, in any order of equals."""
    found = {row[key]: row for row in rows}
    assert found
    assert sorted(found) == sorted(expected[key])
    for _, row in expected.iterrows():
        for column in SUMMARY_COLUMNS:
            value, own = row[column.name], found[row[key]][column.name]
            if pd.isna(value):
                assert own == "", (row[key], column.name)
            else:
                assert math.isclose(float(own), float(value), rel_tol=1e-9), (row[key], column.name)


@pytest.mark.parametrize("axis", PAGES)
def test_tables_have_the_numbers_of_prof(open_page: Open, reported: Reported, axis: str) -> None:
    expected = pyprof2.load(reported.store).profile(axis)

    rows = open_page(reported.page, PAGES[axis]).rows()

    assert_same(rows, expected, expected.columns[0])
    assert [int(row["time_ns"]) for row in rows] == expected["time_ns"].tolist()


@pytest.mark.parametrize("name", REAL)
def test_tables_of_real_ones_have_them_too(
    open_page: Open,
    shared_trace: Callable[[str], Path],
    real_page: Callable[[str], Path],
    name: str,
) -> None:
    run = pyprof2.load(shared_trace(f"kineto/{name}.json.gz"))
    opened = open_page(real_page(f"kineto/{name}.json.gz"))

    for axis, title in (("op", "Ops"), ("name", "Kernels"), ("layer", "Layers")):
        opened.turn_to(title)
        expected = run.profile(axis)
        assert_same(opened.rows(), expected, expected.columns[0])


def test_cells_read_as_prof_prints_them(open_page: Open, reported: Reported) -> None:
    expected = pyprof2.load(reported.store).profile("op")
    lines = render_markdown(expected, []).splitlines()[2:]
    printed = [
        [cell.strip().replace("\\", "") for cell in line.strip("|").split("|")] for line in lines
    ]
    opened = open_page(reported.page, "page=ops")

    shown = [list(opened.cells(row).values()) for row in opened.page.locator(ROWS).all()]

    def plain(cells: Iterable[str]) -> list[str]:
        return [cell.replace(",", "").replace("\u2013", "-") for cell in cells]

    assert [plain(cells) for cells in shown] == [plain(cells) for cells in printed]


def test_totals_are_sums_over_sums(open_page: Open, reported: Reported) -> None:
    # GEMM forward and backward: 2·8192·1024·4096 FLOPs each, 130, 140, 270, 280 us on rank 0.
    opened = open_page(reported.page, "page=ops&rank=0")
    opened.page.get_by_role("searchbox", name="Filter op", exact=True).fill("mm")
    opened.page.wait_for_function("document.querySelector('.counter').textContent[0] === '2'")

    total = opened.totals()

    flops = 4 * 2 * 8192 * 1024 * 4096 + 8192 * 4096 + 8192 * 1024
    assert total["time_ns"] == f"{36 * 820 / 1000:.3f}"
    assert float(total["tflops"]) == pytest.approx(flops / 820e-6 / 1e12, rel=0.005)
    assert total["count"] == total["op_calls"] == "144"


def test_the_command_gives_the_rows_of_the_table(
    open_page: Open, reported: Reported, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_page(reported.page, "page=layers&rank=1&step=4&direction=backward&op=aten::mm")
    opened.page.get_by_role("searchbox", name="Filter layer", exact=True).fill("block_5.")
    opened.page.wait_for_function("document.querySelector('.counter').textContent[0] === '2'")

    words = shlex.split(opened.copied("Copy command"))
    capsys.readouterr()
    assert words[0] == "pyprof2"
    assert cli.main([*words[1:], "--csv"]) == 0

    printed = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["layer"] for row in opened.rows()] == [row["layer"] for row in printed]
    assert [row["time_ns"] for row in opened.rows()] == [row["time_ns"] for row in printed]


@pytest.mark.parametrize(
    ("fragment", "why"),
    [
        pytest.param("page=ops&source=/home/me/model.py:18", "source", id="a line"),
        pytest.param("page=ops&f.count=100", "count", id="a filter on numbers"),
        pytest.param("page=ops&sort=op", "order", id="text downwards"),
        pytest.param("page=layers&layer=(none)", "layer", id="no layer"),
    ],
)
def test_where_no_command_gives_them_it_says_so(
    open_page: Open, reported: Reported, fragment: str, why: str
) -> None:
    opened = open_page(reported.page, fragment)

    opened.page.get_by_role("button", name="Copy command").click()

    said = opened.page.locator("#status").inner_text()
    assert said.startswith("no command: ")
    assert why in said


def test_parts_of_the_bar_add_up_to_the_steps(open_page: Open, reported: Reported) -> None:
    run = pyprof2.load(reported.store)
    opened = open_page(reported.page, "page=overview&rank=0&step=4")
    window = run.steps.query("rank == 0 and step == 4").iloc[0]
    parts = opened.ask(
        "Object.fromEntries([...document.querySelectorAll('.parts [data-part]')]"
        ".map(({dataset}) => [dataset.part, Number(dataset.ns)]))"
    )

    assert sum(parts.values()) == window["dur_ns"]
    idle = sum(time for part, time in parts.items() if part.startswith("idle:"))
    assert idle == window["idle_ns"]
    assert parts["comm_exposed"] == window["comm_only_ns"]
    assert f"one step: {format_time(window['dur_ns'])}" in opened.page.inner_text("#panel")


@pytest.mark.parametrize("by", ["cause", "source", "op", "step"])
def test_idle_time_is_that_of_idle(open_page: Open, reported: Reported, by: str) -> None:
    axes = ("group", "cause") if by == "cause" else (by,)
    expected = pyprof2.load(reported.store).idle_profile(axes)

    rows = open_page(reported.page, f"page=idle&by={by}").rows()

    found = {row[by]: (int(row["count"]), int(row["time_ns"])) for row in rows}
    keys = ["(none)" if pd.isna(key) else str(key) for key in expected[by]]
    values = zip(expected["count"], expected["time_ns"], strict=True)
    assert found == dict(zip(keys, values, strict=True))


def test_findings_are_those_of_advise(open_page: Open, reported: Reported) -> None:
    run = pyprof2.load(reported.store)
    fires = run.advise().query("status == 'fires'").astype({"rank": "int64"})
    # Of two ranks that have a finding the one with the larger stake stands for both.
    both = fires.assign(stake=fires["at_stake_hi_ns"].fillna(0)).sort_values(
        ["stake", "rank"], ascending=[False, True], kind="stable"
    )
    expected = both.drop_duplicates("rule")
    opened = open_page(reported.page, "page=findings")

    cards = opened.ask(
        "[...document.querySelectorAll('[data-rule]')]"
        ".map(({dataset}) => [dataset.rule, dataset.lo ?? null, dataset.hi ?? null])"
    )

    stakes = expected[["rule", "at_stake_lo_ns", "at_stake_hi_ns"]].itertuples(index=False)
    wanted = [[rule, *(_text(value) for value in lo_hi)] for rule, *lo_hi in stakes]
    assert sorted(cards, key=str) == sorted(wanted, key=str)
    assert len(fires) > len(cards)
    text = opened.page.inner_text("#panel")
    for bound in run.gain_bounds.to_dict("records"):
        assert format_time(bound["bound_ns"]) in text


def _text(value: Any) -> str | None:
    return None if pd.isna(value) else str(value)


def _words(term: Any) -> str:
    return str(term).replace("_", " ")


def test_a_page_that_compares_begins_with_the_difference(
    open_page: Open, reported: Reported
) -> None:
    compared = comparison.compare(reported.against, reported.store, force=True)
    opened = open_page(reported.page)

    assert opened.page.locator("#tab-compare[aria-selected=true]").count() == 1
    assert opened.page.locator("h2.sentence").inner_text() == comparison_sentence(compared)
    chart = opened.page.locator(".chart").get_attribute("aria-label")
    before, after = (format_time(round(time)) for time in compared.comparison.step_ns)
    assert (chart or "").startswith(f"A takes {before} per step, B {after}.")
    # The bars of both are as long as their steps.
    lengths = [sum(map(int, bar)) for bar in opened.page.locator(".parts").evaluate_all(
        "bars => bars.map(bar => [...bar.querySelectorAll('li')].map(li => li.dataset.ns))"
    )]  # fmt: skip
    windows = [len(side.windows) for side in compared.sides]
    assert [length / count for length, count in zip(lengths, windows, strict=True)] == [
        pytest.approx(float(time), abs=1) for time in compared.comparison.step_ns
    ]


def test_the_comparison_is_that_of_compare(open_page: Open, reported: Reported) -> None:
    found = comparison.compare(reported.against, reported.store, force=True).comparison
    opened = open_page(reported.page, "page=compare")

    rows = {row["term"]: row for row in opened.rows()}

    expected = [row for row in found.terms.to_dict("records") if row["delta_ns"]]
    assert len(expected) > 3
    assert sorted(rows) == sorted(_words(row["term"]) for row in expected)
    step = float(found.step_ns[0])
    for row in expected:
        own = rows[_words(row["term"])]
        # Rounded to the ns so that the terms add up: each is less than one off.
        assert abs(float(own["delta_ns"]) - float(row["delta_ns"])) < 1, row["term"]
        assert float(own["delta_pct"]) == pytest.approx(
            100 * float(row["delta_ns"]) / step, rel=1e-9
        )
        for name in ("lo_ns", "hi_ns"):
            if own.get(name, "") == "":
                assert pd.isna(row[name]), (row["term"], name)
            else:
                assert abs(float(own[name]) - float(row[name])) <= 1, (row["term"], name)
    change = float(found.step_ns[1] - found.step_ns[0])
    assert sum(float(row["delta_ns"]) for row in rows.values()) == round(change)


@pytest.mark.parametrize("axis", ["layer", "op", "signature"])
def test_the_parts_of_a_comparison_are_those_of_compare(
    open_page: Open, reported: Reported, axis: str
) -> None:
    found = comparison.compare(reported.against, reported.store, force=True).comparison

    rows = open_page(reported.page, f"page=compare&by={axis}").rows(among=1)

    shown = {(row[axis], row["term"]): float(row["delta_ns"]) for row in rows}
    sums: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for row in found.details.to_dict("records"):
        key = "" if pd.isna(row[axis]) else str(row[axis])
        sums[key, _words(row["term"])] += row["delta_ns"]
    expected = {key: float(value) for key, value in sums.items() if round(value)}
    assert {key: value for key, value in shown.items() if value} == pytest.approx(expected, abs=1)


def test_a_row_of_the_roofline_explains_itself_as_explain_does(
    open_page: Open, reported: Reported, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = open_page(reported.page, "page=roofline&rank=0")
    opened.page.locator(ROWS, has_text="aten::gelu(").first.click()
    told = opened.page.locator(".detail pre").inner_text().split()

    run = pyprof2.load(reported.store)
    own = run.kernels.query("rank == 0 and op == 'aten::gelu'")
    longest = own.sort_values("dur_ns", ascending=False, kind="stable")["kernel_id"].iloc[0]
    capsys.readouterr()
    command = ["explain", str(reported.store), f"kernel:{longest}", "--rank", "0"]
    assert cli.main(command) == 0

    assert told == capsys.readouterr().out.split()


def test_the_heat_map_of_ranks_is_of_the_steps(open_page: Open, reported: Reported) -> None:
    expected = pyprof2.load(reported.store).steps

    rows = open_page(reported.page, "page=ranks").rows(1)

    found = {(int(r["rank"]), int(r["step"])): int(r["window_ns"]) for r in rows}
    columns = zip(expected["rank"], expected["step"], expected["dur_ns"], strict=True)
    assert found == {(rank, step): dur for rank, step, dur in columns}


def test_memory_at_the_peak_adds_up(open_page: Open, reported: Reported) -> None:
    # Each layer of the model keeps 64 MiB for its backward, on top of 400 MB.
    opened = open_page(reported.page, "page=memory&rank=0")

    assert "At the peak: 2.01 GB" in opened.page.inner_text("#panel")
    assert sum(int(row["bytes"]) for row in opened.rows()) == 400_000_000 + 24 * 2 * 8192 * 4096


def test_kernels_of_several_lines_are_rows_of_their_own_and_found_by_each(
    open_page: Open, tmp_path: Path
) -> None:
    def moved(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        text = json.dumps(found).replace(SOURCE, str(tmp_path / "train.py"))
        return list(json.loads(text))

    (tmp_path / "train.py").write_text((FOLDER / "train.txt").read_text())
    trace = changed(tmp_path / "net.json", moved, moved)
    page = tmp_path / "net.html"
    words = ["report", str(trace), "--source-root", str(tmp_path), "-o", str(page)]
    assert cli.main(words) == 0
    run = pyprof2.load(trace, source_root=str(tmp_path))

    for fragment, depth in (("lines", None), ("layers", None), ("layers", 1)):
        axis = fragment.removesuffix("s").replace("line", "source")
        opened = open_page(page, f"page={fragment}{f'&depth={depth}' if depth else ''}")
        rows = {row[axis]: int(row["time_ns"]) for row in opened.rows()}
        own = run.profile(by=axis, depth=depth)
        # An owner of nothing alone is no row of the page.
        times = dict(zip(own[axis], own["time_ns"], strict=True))
        assert rows == {name: time for name, time in times.items() if time}
        assert any("(shared: " in each for each in rows) == (depth is None)
        assert sum(rows.values()) == run_profile.rows_of(run.tables)["dur_ns"].sum()

    lines = run.profile(by="source").set_index("source")
    opened = open_page(page, "page=source")
    heads = opened.page.locator("table.source th[scope=col]").all_inner_texts()
    assert heads[:3] == ["line", "time ms", "shared ms"]
    for number in (16, 18, 19):
        cells = opened.page.locator(f"#line-{number} td.number").all_inner_texts()
        known = lines.loc[f"{tmp_path}/train.py:{number}", ["time_ns", "shared_ns"]]
        assert [float(each) for each in cells[:2]] == pytest.approx(known / 1e6, rel=0.01, abs=1e-3)
    assert opened.faults == []
