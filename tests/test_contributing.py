"""CONTRIBUTING names files that exist, and each holds what it is named for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
TEXT: Final = (ROOT / "CONTRIBUTING.rst").read_text(encoding="utf-8")
PATHS: Final = sorted(
    set(re.findall(r"``((?:analysis|parsers|pyprof2|tests|docs|web)/[\w/.]*)``", TEXT))
)


@pytest.mark.parametrize("path", PATHS)
def test_what_contributing_names_is_there(path: str) -> None:
    if "FORMAT" not in path:
        assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        pytest.param("analysis/costs/matmul.py", "@cost_of(", id="a formula"),
        pytest.param("parsers/formats.py", "FORMATS: Final", id="the list of formats"),
        pytest.param("parsers/formats.py", "TraceFormat(", id="a format"),
        pytest.param("pyprof2/tables.py", "Column(", id="a column"),
        pytest.param(
            "analysis/summaries/profile_columns.py", "SUMMARY_COLUMNS: Final", id="a column of prof"
        ),
        pytest.param("analysis/linking/kernels.py", "LINKS: Final", id="a link"),
        pytest.param("analysis/time/cause_names.py", "CAUSES: Final", id="a cause of idle time"),
        pytest.param("pyprof2/lsp/features.py", "def hover_text(", id="hover text"),
        pytest.param("pyprof2/lsp/costs.py", "VALUES: Final", id="a number of hover text"),
        pytest.param(
            "pyprof2/reports/page/document.py", "parts: dict", id="a part of the data of the page"
        ),
        pytest.param("web/report/tab_order.js", "export const PAGES", id="a tab of the page"),
        pytest.param("pyprof2/reports/notebook_plots.py", "class Plots", id="a plot"),
        pytest.param("pyprof2/cli/check.py", "def add_to(", id="a command"),
        pytest.param("pyprof2/problems.py", "_register(", id="a problem"),
        pytest.param("analysis/summaries/checks.py", "advice_on.", id="advice"),
        pytest.param("pyprof2/problems.py", "class Advice", id="advice of a format"),
        pytest.param("analysis/summaries/advice/rules.py", "RULES: Final", id="a rule"),
        pytest.param("pyprof2/data/kernels.toml", "[[tensor_core]]", id="a kernel's name"),
        pytest.param("pyprof2/data/devices.json", '"devices": [', id="a device"),
        pytest.param("parsers/_names.py", "COPY_KINDS", id="a word of Kineto's"),
        pytest.param("pyprof2/reports/files.py", "FORMATS: Final", id="a form of output"),
        pytest.param("pyprof2/reports/heading.py", "def heading(", id="a line above the table"),
        pytest.param("analysis/summaries/compared_sides.py", "def _choose(", id="a default"),
    ],
)
def test_the_file_to_touch_holds_one_already(path: str, holds: str) -> None:
    assert f"``{path}``" in TEXT
    assert holds in (ROOT / path).read_text(encoding="utf-8")
