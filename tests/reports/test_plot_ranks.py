"""Pictures of many ranks, and what a notebook shows of them: the numbers of `run.ranks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import pyprof2
from pyprof2.errors import UsageError
from tests.analysis.job.job_generator import Job, rename_ops, simulate, write
from tests.kineto_events import load_events, op
from tests.reports.test_notebook import Page

if TYPE_CHECKING:
    from pathlib import Path

    from pyprof2.run import Run

pytest.importorskip("plotly")

EVIL = "<script>alert(1)</script>\x1b[31m\u202e"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a job whose rank 2 is slow, in an op of a hostile name."""
    folder = tmp_path_factory.mktemp("job")
    files = write(simulate(Job(3, slow={2: 1.3}, one_stream=True)), folder)
    rename_ops(files, "gemm_", EVIL)
    return pyprof2.load(pyprof2.parse(files, folder / "job.pyprof2"))


def test_the_heat_map_has_the_parts_of_ranks(run: Run) -> None:
    figure = run.plot.ranks("compute_ns")
    (heat,) = figure.data

    assert list(heat.y) == ["rank 2", "rank 0", "rank 1"]
    for row in run.ranks.parts.to_dict("records"):
        field = heat.z[[2, 0, 1].index(row["rank"])][row["step"]]
        assert field == pytest.approx(row["compute_ns"] / 1e6, abs=1e-6)
    title = figure.layout.title.text
    assert "rank 2 is slow: it computes" in title
    assert "<script>" not in title
    assert "&lt;script&gt;" in title


def test_bars_of_parts_add_up_to_the_window(run: Run) -> None:
    figure = run.plot.rank_parts()
    whole = run.ranks.parts.groupby("rank")["window_ns"].sum().to_numpy()

    assert np.sum([bar.y for bar in figure.data], axis=0) == pytest.approx(whole / 1e6)
    assert {bar.name for bar in figure.data} >= {"computing alone", "communicating alone", "idle"}


def test_ranks_show_themselves_in_a_notebook(run: Run) -> None:
    page = Page(run.ranks._repr_html_())

    assert page.elements == {"div", "table", "tr", "th", "td"}
    head, *rows = page.rows
    assert (head[0], head[-1]) == ("rank", "verdict")
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[2][-1] == "straggler"
    assert any("rank 2 is slow: it computes" in word for word in page.words)
    assert any("most of it in aten::<script>" in word for word in page.words)
    assert not any("\x1b" in word for word in page.words)


def test_there_must_be_something_to_draw(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no measure 'x'; there are window_ns"):
        run.plot.ranks("x")
    nothing = load_events(tmp_path, op("aten::a", 0, 9))
    for draw in (nothing.plot.ranks, nothing.plot.rank_parts):
        with pytest.raises(UsageError, match="nothing to draw"):
            draw()
    assert "no work of a device" in nothing.ranks._repr_html_()
