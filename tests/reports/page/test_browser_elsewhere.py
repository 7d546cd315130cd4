"""A step on other GPUs: a bar for each with its interval, on the page and beside the dials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

import pyprof2
from pyprof2.reports.batch import BatchQuery
from pyprof2.reports.dials import DialsQuery, elsewhere_by_batch, parts_of_page
from pyprof2.reports.page.elsewhere import SHOWN
from tests.conftest import once
from tests.dialled import SIZES, workspace
from tests.training_trace import training_trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

BARS = """[...document.querySelectorAll('.elsewhere tbody tr')].map((row) => {
  const box = (name) => row.querySelector(name)?.getBoundingClientRect();
  const [bar, whisker, track] = ['.span', '.whisker', '.track'].map(box);
  const from = (at) => track ? at - track.left : null;
  return {
    device: row.querySelector('th').textContent,
    cells: [...row.querySelectorAll('.number')].map((cell) => cell.textContent),
    recorded: row.classList.contains('recorded'),
    value: bar ? bar.width : null,
    lo: whisker ? from(whisker.left) : null,
    hi: whisker ? from(whisker.right) : null,
    width: track?.width ?? null,
  };
})"""


@pytest.mark.parametrize("width", [1440, 390])
def test_bars_and_intervals_are_those_of_predict(
    open_page: Open, reported: Reported, width: int
) -> None:
    opened = open_page(reported.page, "page=overview", viewport={"width": width, "height": 900})
    found: list[dict[str, Any]] = opened.page.evaluate(BARS)
    run = pyprof2.load(reported.store)
    said = run.predict(["H100 SXM", *(name for name in SHOWN if name != "H100 SXM")])
    truth = {str(row["device"]): row for row in said.astype(object).to_dict("records")}
    most = max(float(each["hi_ms"]) for each in truth.values() if pd.notna(each["hi_ms"]))

    assert sorted(row["device"] for row in found) == sorted(truth)
    assert [row["device"] for row in found if row["recorded"]] == ["H100 SXM"]
    for row in found:
        own = truth[row["device"]]
        for end in ("value", "lo", "hi"):
            known = own["step_ms" if end == "value" else f"{end}_ms"]
            if row[end] is None:
                assert row["recorded"] or pd.isna(known), (row, end)
            else:
                # An interval is two pixels wide at least.
                assert row[end] == pytest.approx(row["width"] * known / most, abs=2.5)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert not opened.faults


def test_beside_the_dials_are_those_of_the_nearest_recording(open_page: Open) -> None:
    page = once("dials elsewhere", _dials)
    opened = open_page(page / "dials.html")
    heading = opened.page.locator(".others h2")

    assert heading.text_content() == "On another GPU, at a batch of 32"
    opened.page.locator("[role=slider]").first.press("Home")
    assert heading.text_content() == "On another GPU, at a batch of 8"
    assert len(opened.page.evaluate(BARS)) == len(SHOWN)
    assert not opened.faults


def _dials(folder: Path) -> None:
    script = workspace(folder)
    stores = {size: script.with_name(f"b{size}.pyprof2") for size in SIZES}
    (folder / "net.json").write_bytes(training_trace())
    # The recordings of the dials are of a device that no table has.
    (row,) = elsewhere_by_batch({1: pyprof2.load(folder / "net.json")})
    query = DialsQuery(BatchQuery(), "1", elsewhere=[row | {"batch": size} for size in SIZES])
    text = "".join(parts_of_page(pyprof2.batch_model(stores), query))
    (folder / "dials.html").write_text(text, encoding="utf-8")
