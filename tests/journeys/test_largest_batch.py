"""Somebody with recordings of three batch sizes wants to know the largest that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.dialled import CODE, held_bytes, named, step_ns, workspace
from tests.journeys.conftest import line_of
from tests.reports.page.reader import document_of

if TYPE_CHECKING:
    from tests.journeys.conftest import Walk

USABLE = 80_000_000 * 0.98
"""Bytes of the recorded device that may be allocated."""


def test_a_sweep_says_which_batch_fits_and_the_page_changes_it_in_the_code(walk: Walk) -> None:
    script = workspace(walk.folder / "ws")
    walk.folder = script.parent
    recorded = [f"{batch}={path}" for batch, path in named().items()]

    first, *_ = walk.text("batch", *recorded).splitlines()
    asked = walk.rows("batch", *recorded, "--at", "24,80")
    binds = walk.text("batch", *recorded, "--at", "80")
    page = walk.text("batch", *recorded, "-o", "dials.html", "--code", script.name)

    # (5 + b) MB <= 78.4; that is sure where 5 % more are too, beyond 64 0.05 · (b / 32 - 1).
    fits = max(b for b in range(1, 99) if held_bytes(b) <= USABLE)
    sure = max(b for b in range(64, 99) if (1 + 0.05 * (b / 32 - 1)) * held_bytes(b) <= USABLE)
    assert first.startswith(f"largest batch that fits: about {fits}; {sure} is sure")
    assert "80.000 MB (recorded, Small GPU)" in first
    found = {(int(row["batch_size"]), row["measure"]): row for row in asked}
    for batch in (24, 80):
        for measure, truth in (
            ("step_time_ns", step_ns(batch)),
            ("memory_bytes", held_bytes(batch)),
        ):
            row = found[batch, measure]
            assert float(row["value"]) == truth
            assert float(row["lo"]) < truth < float(row["hi"])
    lacks = (held_bytes(80) - USABLE) / 1e6
    assert f"80 is asked for and is not expected to fit: it lacks about {lacks:.3f} MB" in binds
    assert page.strip() == "dials.html"
    shown = document_of(walk.folder / "dials.html")
    assert [(place["place"], place["value"]) for place in shown["code"]["places"]] == [
        (f"{script.name}:{line_of(CODE, 'batch_size')}", 32)
    ]
    assert shown["memory"]["value"][shown["batches"].index(fits)] == held_bytes(fits)
