"""A notebook: load a recording, sum it, draw its steps."""

from __future__ import annotations

from pathlib import Path

import pytest

import pyprof2

DEMO = Path(pyprof2.__file__).parent / "data" / "demo.json.gz"


def test_a_notebook_draws_the_roofline_of_what_its_table_says() -> None:
    pytest.importorskip("plotly")

    run = pyprof2.load(DEMO)
    table = run.profile(by="signature")
    figure = run.plot.roofline()

    known = table[(table["tflops"] > 0) & (table["intensity"] > 0)]
    dots = {
        (round(float(x), 6), round(float(y), 6))
        for each in figure.data
        if each.mode == "markers"
        for x, y in zip(each.x, each.y, strict=True)
    }
    assert dots == {
        (round(x, 6), round(y, 6)) for x, y in zip(known["intensity"], known["tflops"], strict=True)
    }
    assert "aten::convolution_backward" in run._repr_html_()
