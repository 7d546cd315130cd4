"""A recording that the first PyProf marked: its markers still give lines and FLOPs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.journeys.conftest import Walk

FIRST, SECOND = 2 * 6 * 30 * 30 * 3 * 3 * 3, 2 * 16 * 26 * 26 * 6 * 5 * 5
"""FLOPs of its two convolutions: outputs of 30 × 30 and 26 × 26."""


def test_an_old_recording_has_flops_by_line(
    walk: Walk, shared_trace: Callable[[str], Path]
) -> None:
    trace = shared_trace("more/nsight/dlprof_norelu.sqlite")

    store = walk.text("parse", trace, "-o", "old.pyprof2").strip()
    rows = walk.rows("prof", store, "--by", "source")

    assert {row["source"]: int(row["flops"]) for row in rows} == {
        "dummy_network.py:25": FIRST, "dummy_network.py:26": SECOND,
        "dummy_network.py:34": 0, "dummy_network.py:35": 0,
    }  # fmt: skip
