"""The pictures of a run show the numbers that the run gives, and obey no text of a recording."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import pyprof2
from pyprof2.errors import UsageError
from tests.analysis.job.job_generator import Job, rename_ops, simulate, write
from tests.kineto_events import launched, load_events, op, step
from tests.reports.test_notebook import Page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyprof2.api.run import Run

pytest.importorskip("plotly")

HOSTILE_OP = "<script>alert(1)</script>\x1b[31m\u202e"
EVIL = "<img/src=x/onerror=alert(1)>\x1b[31m\u202e"


@pytest.fixture
def rn50(shared_trace: Callable[[str], Path]) -> Run:
    """Return ResNet-50 on a V100: six steps."""
    return pyprof2.load(shared_trace("kineto/rn50_v100_w0.json.gz"))


@pytest.fixture
def by_hand(tmp_path: Path) -> Run:
    """Return two steps of 100 us, of which the second works for 30 us, the third for 10."""
    return load_events(
        tmp_path,
        step(1, 0, 100), op(EVIL, 1, 20), launched(2, 1, at=20, dur=30, name=EVIL),
        step(2, 100, 100), launched(102, 2, at=120, dur=10), step(3, 200, 50),
        launched(202, 3, at=220, dur=10),
    )  # fmt: skip


def bars(figure: Any) -> pd.DataFrame:
    """Return all bars of a timeline."""
    return pd.concat(
        [
            pd.DataFrame(
                {"kind": each.name, "place": each.y, "base": each.base, "length": each.x,
                 "height": np.array(each.width), "busy": each.customdata}
            )
            for each in figure.data
        ]
    )  # fmt: skip


def test_the_roofline_has_a_dot_for_each_signature_that_is_known(rn50: Run) -> None:
    rows = rn50.profile(by="signature")
    rows = rows[(rows["tflops"] > 0) & (rows["intensity"] > 0)]

    dots, *roofs = rn50.plot.roofline().data

    assert dots.x.tolist() == rows["intensity"].tolist()
    assert dots.y.tolist() == rows["tflops"].tolist()
    # The area is the time: that of the longest one is 40 wide.
    areas = np.array(dots.marker.size) ** 2 / 40**2
    time = (rows["time_ns"] / rows["time_ns"].max()).to_numpy()
    assert areas[time > 0.01] == pytest.approx(time[time > 0.01])
    # NVIDIA's data sheet of the V100 SXM2: 900 GB/s, 125 TFLOP/s, 15.7 and 7.8 of f32 and f64.
    tops = {each.name: max(each.y) for each in roofs}
    assert tops["V100 SXM2: f16 matrix"] == pytest.approx(125, rel=0.01)
    assert tops["V100 SXM2: f32 vector"] == pytest.approx(15.7, rel=0.01)
    assert all(each.y[0] == pytest.approx(each.x[0] * 0.9) for each in roofs)


def test_figures_lie_on_the_notebook_s_own_colour_and_are_read_on_any(rn50: Run) -> None:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    plot = rn50.plot
    for figure in (plot.roofline(), plot.timeline(), plot.steps(), plot.idle()):
        assert figure.layout.paper_bgcolor.endswith(" 0)")
        assert figure.layout.plot_bgcolor.endswith(" 0)")
        text = light(figure.layout.font.color)
        for ground in ("#ffffff", "#111111"):
            lighter, darker = sorted((text, light(ground)), reverse=True)
            assert (lighter + 0.05) / (darker + 0.05) >= 4


def test_steps_are_those_of_the_run(rn50: Run) -> None:
    figure = rn50.plot.steps()

    heights = np.sum([np.array(each.y) for each in figure.data], axis=0)
    assert heights == pytest.approx(rn50.steps["dur_ns"].to_numpy() / 1e6)
    (idle,) = (each for each in figure.data if each.name == "idle")
    assert list(idle.x) == [str(each) for each in rn50.steps["step"]]
    assert list(idle.y) == pytest.approx((rn50.steps["idle_ns"].astype(float) / 1e6).tolist())


def test_idle_time_is_that_of_the_run_by_cause(rn50: Run) -> None:
    figure = rn50.plot.idle()

    found = {
        (each.name, cause): time
        for each in figure.data
        for cause, time in zip(each.y, each.x, strict=True)
    }
    wanted = rn50.idle.groupby(["group", "cause"], observed=True)["time_ns"].sum() / 1e6
    assert found == pytest.approx(wanted.to_dict())


def test_the_timeline_shows_all_work_of_the_step_and_no_more(rn50: Run) -> None:
    found = bars(rn50.plot.timeline(step=7))

    (window,) = rn50.steps[rn50.steps["step"] == 7].to_dict("records")
    begin, end = window["start_ns"], window["start_ns"] + window["dur_ns"]
    for rows, time, is_idle in (
        (pd.concat([rn50.kernels, rn50.copies]), "dur_ns", False),
        (rn50.idle, "time_ns", True),
    ):
        inside = (rows["start_ns"] + rows[time]).clip(upper=end) - rows["start_ns"].clip(
            lower=begin
        )
        wanted = inside[inside > 0].sum() / 1e6
        own = found[found["place"].str.endswith("idle") == is_idle]
        assert own["busy"].sum() == pytest.approx(wanted)
        # What is seen is as large as what it stands for.
        assert (own["length"] * own["height"] / 0.9).sum() == pytest.approx(wanted)
    assert len(found) < 6000
    assert found["base"].between(0, window["dur_ns"] / 1e6).all()


def test_without_a_number_the_step_is_that_of_median_length(rn50: Run) -> None:
    steps = rn50.steps.sort_values("dur_ns")
    median = steps["step"].iloc[2]  # the third of six

    assert rn50.plot.timeline().layout.title.text.startswith(f"Step {median}, rank 0: ")


def test_a_timeline_by_hand(by_hand: Run) -> None:
    found = bars(by_hand.plot.timeline(step=1))

    kernel = found[found["place"] == "device 0, stream 7"]
    assert kernel[["base", "length", "height"]].to_numpy().tolist() == [[0.02, 0.03, 0.9]]


def test_texts_of_a_recording_are_shown_and_not_obeyed(by_hand: Run) -> None:
    figures = (by_hand.plot.timeline(step=1), by_hand.plot.idle(), by_hand.plot.steps())

    texts = [text for figure in figures for text in _texts(figure.to_plotly_json())]

    evil = [text for text in texts if "onerror" in text]
    assert evil == [r"&lt;img/src=x/onerror=alert(1)&gt;\x1b[31m\u202e"]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a figure."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, (list, tuple, np.ndarray)):
        for each in value:
            yield from _texts(each)


def test_what_is_not_there_is_said(by_hand: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="step 9: no such step in rank 0; there is 1, 2, 3"):
        by_hand.plot.timeline(step=9)
    with pytest.raises(UsageError, match="rank 4: no device of such a rank"):
        by_hand.plot.timeline(rank=4)
    folder = tmp_path / "cpu"
    folder.mkdir()
    cpu = load_events(folder, step(1, 0, 50), op("aten::a", 1, 2))
    with pytest.raises(UsageError, match="no work of a device was recorded"):
        cpu.plot.timeline()
    (bar,) = cpu.plot.steps().data
    assert list(bar.y) == [0.05]
    waited = {
        cause: ms for each in cpu.plot.idle().data for cause, ms in zip(each.y, each.x, strict=True)
    }
    assert waited == {"host_unrecorded": 0.048, "host_op": 0.002}
    assert cpu.plot.idle().layout.title.text.startswith("What steps waited for")
    assert [len(each.x) for each in cpu.plot.roofline().data] == [0]


def test_without_plotly_the_error_says_what_to_install(
    by_hand: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)

    for name in ("roofline", "timeline", "steps", "idle"):
        with pytest.raises(UsageError, match="a picture needs plotly: pip install plotly"):
            getattr(by_hand.plot, name)()


@pytest.fixture(scope="module")
def job_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return a job whose rank 2 is slow, in an op of a hostile name."""
    folder = tmp_path_factory.mktemp("job")
    files = write(simulate(Job(3, slow={2: 1.3}, one_stream=True)), folder)
    rename_ops(files, "gemm_", HOSTILE_OP)
    return pyprof2.load(pyprof2.parse(files, folder / "job.pyprof2"))


def test_the_heat_map_has_the_parts_of_ranks(job_run: Run) -> None:
    figure = job_run.plot.ranks("compute_ns")
    (heat,) = figure.data

    assert list(heat.y) == ["rank 2", "rank 0", "rank 1"]
    for row in job_run.ranks.parts.to_dict("records"):
        field = heat.z[[2, 0, 1].index(row["rank"])][row["step"]]
        assert field == pytest.approx(row["compute_ns"] / 1e6, abs=1e-6)
    title = figure.layout.title.text
    assert "rank 2 is slow: it computes" in title
    assert "<script>" not in title
    assert "&lt;script&gt;" in title


def test_bars_of_parts_add_up_to_the_window(job_run: Run) -> None:
    figure = job_run.plot.rank_parts()
    whole = job_run.ranks.parts.groupby("rank")["window_ns"].sum().to_numpy()

    assert np.sum([bar.y for bar in figure.data], axis=0) == pytest.approx(whole / 1e6)
    assert {bar.name for bar in figure.data} >= {"computing alone", "communicating alone", "idle"}


def test_ranks_show_themselves_in_a_notebook(job_run: Run) -> None:
    page = Page(job_run.ranks._repr_html_())

    assert page.elements == {"div", "table", "tr", "th", "td"}
    head, *rows = page.rows
    assert (head[0], head[-1]) == ("rank", "verdict")
    assert [row[0] for row in rows] == ["0", "1", "2"]
    assert rows[2][-1] == "straggler"
    assert any("rank 2 is slow: it computes" in word for word in page.words)
    assert any("most of it in aten::<script>" in word for word in page.words)
    assert not any("\x1b" in word for word in page.words)


def test_ranks_need_a_measure_and_something_to_draw(job_run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no measure 'x'; there are window_ns"):
        job_run.plot.ranks("x")
    nothing = load_events(tmp_path, op("aten::a", 0, 9))
    for draw in (nothing.plot.ranks, nothing.plot.rank_parts):
        with pytest.raises(UsageError, match="nothing to draw"):
            draw()
    assert "no work of a device" in nothing.ranks._repr_html_()
