"""Axe-core finds nothing serious on any page, in light and dark, wide and narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.reports.page.opened import LOOKS, serious

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Pages, Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]

each_look = pytest.mark.parametrize(
    "look", LOOKS, ids=lambda look: f"{look['color_scheme']}-{look['viewport']['width']}"
)


@each_look
def test_axe_finds_nothing_serious(
    open_page: Open, reported: Reported, web_modules: Path, look: dict[str, Any]
) -> None:
    opened = open_page(reported.page, **look)

    for title in opened.tabs:
        opened.turn_to(title)
        assert serious(opened.page, web_modules) == [], title


@each_look
def test_nor_where_a_rank_stands_out_and_what_ifs_have_gains(
    open_page: Open, job: Pages, web_modules: Path, look: dict[str, Any]
) -> None:
    opened = open_page(job.page, **look)

    for title in ("Overview", "Findings", "Critical path", "Ranks"):
        opened.turn_to(title)
        assert serious(opened.page, web_modules) == [], title
