"""Axe-core finds nothing serious on any page, in light and dark, wide and narrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reports.page.conftest import Reported
    from tests.reports.page.opened import Opened

    Open = Callable[..., Opened]


@pytest.mark.parametrize("width", [1440, 480])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    open_page: Open, reported: Reported, web_modules: Path, scheme: str, width: int
) -> None:
    axe = (web_modules / "node_modules" / "axe-core" / "axe.min.js").read_text()
    size = {"width": width, "height": 900}
    opened = open_page(reported.page, color_scheme=scheme, viewport=size)
    opened.ask(axe)

    for title in opened.tabs:
        opened.turn_to(title)
        found = opened.ask("axe.run(document, {resultTypes: ['violations']})")
        assert len(found["passes"]) > 10
        told = [
            (each["impact"], each["id"], each["nodes"][0]["html"]) for each in found["violations"]
        ]
        assert [each for each in told if each[0] in {"serious", "critical"}] == [], title
