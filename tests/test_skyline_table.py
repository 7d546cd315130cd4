"""The table of what became of Skyline's features: none is forgotten, each names a test there is."""

from __future__ import annotations

import re
from typing import Final

from tests.conftest import ROOT

FEATURES: Final = 32
"""Rows of the inventory of Skyline and DeepView."""
_TEST: Final = re.compile(r"``(tests/[\w/]+\.py)::(test_\w+)``")


def rows() -> list[list[str]]:
    """Return the cells of each row of the table, its header left out."""
    text = (ROOT / "docs" / "skyline.rst").read_text(encoding="utf-8")
    table = text.partition("What became of each of its features")[2]
    _, _, *found = re.split(r"^   \* - ", table, flags=re.MULTILINE)
    return [[" ".join(cell.split()) for cell in re.split(r"\n     -", row)] for row in found]


def test_every_feature_has_a_verdict_and_what_is_left_a_reason() -> None:
    found = rows()

    assert len(found) == FEATURES
    assert {len(row) for row in found} == {5}
    for there, verdict, how, _, test in found:
        assert verdict in {"works", "better", "left"}, there
        assert how, there
        assert test or verdict == "left", there


def test_every_row_names_a_test_that_exists() -> None:
    named = [(row[0], *match) for row in rows() for match in _TEST.findall(row[4])]

    assert len(named) == sum(bool(row[4]) for row in rows())
    for there, file, test in named:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), (there, file, test)
